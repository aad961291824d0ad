# SPDX-License-Identifier: Apache-2.0
"""Under distribution strategies all replicas stay the same, and what plain TensorFlow makes them under the strategy."""

import concurrent.futures
import contextlib
import json
import os
import socket
from pathlib import Path

import pytest

import forks
from conftest import slow

SCRIPT = Path(__file__).resolve().parent / "run_distributed.py"
SECONDS = 300
PROCESSES = {"mirrored": 1, "workers": 2}
LONG = os.environ.get("STASH_TF_LONG") == "1"
CASES = [("mirrored", "small_vgg", "custom"), ("mirrored", "resnet_bn", "fit"), ("workers", "small_vgg", "custom")]
if LONG:
    CASES += [("mirrored", "small_vgg", "fit"), ("mirrored", "transformer", "custom"), ("workers", "resnet_bn", "custom")]


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]


def train(strategy, *arguments):
    """The records of all processes."""
    ports = free_ports(PROCESSES[strategy])
    environments = [{**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "1"} for _ in ports]
    if strategy == "workers":
        workers = [f"localhost:{port}" for port in ports]
        for index, environment in enumerate(environments):
            environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers},
                                                   "task": {"type": "worker", "index": index}})
    with concurrent.futures.ThreadPoolExecutor(len(ports)) as pool:
        processes = list(pool.map(lambda environment: forks.run(SCRIPT, strategy, *arguments, environment=environment,
                                                                timeout=SECONDS), environments))
    for process in processes:
        assert process.returncode == 0, "\n".join((process.stdout + process.stderr).splitlines()[-25:])
    return [json.loads(process.stdout.splitlines()[-1]) for process in processes]


@pytest.fixture(scope="module")
def plain():
    known = {}

    def losses_of(*case):
        if case not in known:
            strategy, model, loop = case
            known[case] = train(strategy, model, "--loop", loop)
        return known[case]

    return losses_of


@pytest.mark.parametrize("policy", ("lossless", slow("fp8")))
@pytest.mark.parametrize(("strategy", "model", "loop"), [CASES[0], *(slow(*case) for case in CASES[1:])])
def test_replicas(plain, strategy, model, loop, policy):
    records = train(strategy, model, "--loop", loop, "--policy", policy)
    hashes = {one for record in records for one in record["replicas"]}
    assert sum(len(record["replicas"]) for record in records) == 2
    assert all(record["in_sync"] == 2 and record["trained"] for record in records)
    for record in records:
        facts = record["stash"]
        assert facts["rewritten"] and sum(facts["executions"].values()) > 0, f"Stash did nothing: {facts}"
    assert len(hashes) == 1, "the replicas differ"
    expected = plain(strategy, model, loop)
    if policy == "lossless":
        assert hashes == {one for record in expected for one in record["replicas"]}
        assert [record["losses"] for record in records] == [record["losses"] for record in expected]
    else:
        assert hashes != {one for record in expected for one in record["replicas"]}, "a lossy policy lost nothing"
        for record, other in zip(records, expected):
            for one, two in zip(record["losses"], other["losses"]):
                assert float.fromhex(one) == pytest.approx(float.fromhex(two), rel=0.02)
