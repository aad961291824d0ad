#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small training steps in many shapes, each run plain and with Stash in this one process.

    TF_ENABLE_ONEDNN_OPTS=0 steps.py [NAME ...] [--policy lossless] [--peak] [--inter 1] [--steps 3]

prints a line of JSON for each: whether losses and weights are the same bit by bit, what Stash made of it, what
TensorFlow said on stderr meanwhile."""

import argparse
import collections
import contextlib
import json
import os
import re
import sys
import tempfile
import traceback
from typing import Any

import step_layers  # noqa: F401  (these three enter their steps)
import step_loops  # noqa: F401
import step_models  # noqa: F401
from step_parts import FORWARD, IDLE, LOOPS, STEPS, keras, np, tf

FALLEN_BACK = re.compile(r"meta_optimizer|Ignoring multi-device|in a cycle|Stash leaves")


@contextlib.contextmanager
def stderr_into(lines):
    """What the process writes to stderr in the meantime, line by line."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()


def bits(values):
    return [np.asarray(value).tobytes() for value in tf.nest.flatten(values)]


def ran(name, steps, peak):
    """(results, weights, peak of one more step or 0) of a fresh instance."""
    import stash_tf

    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    task = STEPS[name]()
    before = bits(task.variables())
    results = [bits(task.call(index)) for index in range(steps)]
    after = bits(task.variables())
    measured = stash_tf.peak_bytes(task.call, 0) if peak else 0
    return results, after, measured, before != after


def measure(name, policy="lossless", steps=3, peak=False, **options):
    """One step plain and with Stash: a record."""
    import stash_tf

    record: dict[str, Any] = {"step": name}
    said: list[str] = []
    try:
        plain = ran(name, steps, peak)
    except Exception:  # the step itself is wrong
        return record | {"broken": traceback.format_exc()[-1500:]}
    try:
        with stderr_into(said), stash_tf.enabled(policy, **options):
            stash = ran(name, steps, peak)
            report = stash_tf.report()
            graphs, counters = report.graphs, report.counters
    except Exception:
        return record | {"failed": traceback.format_exc()[-3000:], "stderr": said[-10:]}
    rewritten = [graph for graph in graphs if graph["rewritten"]]
    record |= {
        "nothing_to_do": IDLE.get(name, ""),
        "loops": name in LOOPS,
        "forward": name in FORWARD,
        "same_losses": plain[0] == stash[0],
        "same_weights": plain[1] == stash[1],
        "trained": plain[3],
        "rewritten": len(rewritten),
        "executions": sum(counter["executions"] for counter in counters),
        "idle": sorted({counter["op"] + " " + counter["tensor"] for counter in counters if not counter["executions"]}),
        "reasons": sorted({graph["reason"] for graph in graphs if graph["reason"]}),
        "choices": dict(collections.Counter(tensor["choice"] for graph in rewritten for tensor in graph["tensors"])),
        "raw": sorted({f"{tensor['op']}: {tensor['reason']}" for graph in rewritten for tensor in graph["tensors"]
                       if tensor["choice"] == "raw"}),
        "left": dict(collections.Counter(left["op"] + ": " + left["reason"] for graph in rewritten
                                         for left in graph["left"])),
        "stderr": [line for line in said if FALLEN_BACK.search(line)],
    }
    if peak:
        record |= {"plain_peak": plain[2], "peak": stash[2],
                   "predicted": max((graph["predicted_peak_bytes"] for graph in rewritten), default=0),
                   "predicted_plain": max((graph["predicted_plain_bytes"] for graph in rewritten), default=0)}
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them, if none is named")
    parser.add_argument("--list", action="store_true", help="the names")
    parser.add_argument("--policy", default="lossless")
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--inter", type=int, default=1)
    parser.add_argument("--intra", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(STEPS))
        return
    if unknown := [name for name in arguments.names if name not in STEPS]:
        parser.error(f"NAME: expected names that --list prints, got {', '.join(unknown)}")
    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.intra)
    for name in arguments.names or STEPS:
        print(json.dumps(measure(name, arguments.policy, arguments.steps, arguments.peak)), flush=True)


if __name__ == "__main__":
    main()
