# SPDX-License-Identifier: Apache-2.0
"""The path to a device, with the emulator as the device. Its memory is the host's, so CPU tensors stand for those of a GPU:
calls, addresses, sizes, reports and kernels are those of a GPU; streams and torch's own kernels are not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stash_torch

EMULATED = Path(stash_torch.__file__).parents[1] / "libstash_emulated.so"
TESTS = Path(__file__).resolve().parent

START = f"""
import json, sys
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent / "bench")!r}]
import torch
from torch import nn
import models, stash_torch, training
from stash_torch import forms, library

library.api.load({str(EMULATED)!r})
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
"""
DEVICE = "library.on_device = lambda tensor: True\n"


@pytest.fixture(scope="module")
def python():
    if not EMULATED.is_file():
        pytest.skip(f"{EMULATED} was not built")

    def run(text):
        """What the last line prints, as JSON."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KINETO_LOG_LEVEL": "99"}
        done = subprocess.run([sys.executable, "-B", "-c", START + text], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
    return run


TRAIN = """
network, side = models.build({name!r})
if {last}:
    network = network.to(memory_format=torch.channels_last)
data = [models.batch(2, side, seed) for seed in range(3)]
if {last}:
    data = [(x.contiguous(memory_format=torch.channels_last), target) for x, target in data]
session = training.assert_same(network, data)
ways = sorted({{group.how() for group in session.plans[0].groups.values()}})
print(json.dumps([session.counts["steps"], session.counts["kept wider"], session.plans[0].after, ways]))
"""


@pytest.mark.parametrize("name, last", [("small_vgg", False), *(pytest.param(*each, marks=pytest.mark.slow) for each in (
    ("small_vgg", True), ("unet_silu", False), ("transformer_gelu", False)))])
def test_steps_have_the_bits_of_plain_ones(python, name, last):
    """And keep what they keep on a CPU."""
    on_device = python(DEVICE + TRAIN.format(name=name, last=last))
    assert on_device == python(TRAIN.format(name=name, last=last))
    assert on_device[:2] == [2, 0]


def test_rounded_values_are_those_of_the_host(python):
    text = """
network, side = models.build("unet_silu")
found = []
for policy in ("fp16", "bf16", "fp10", "fp8"):
    row = torch.randn(5000) * 3
    form = forms.Narrow(policy)
    loaded = []
    for there in (False, True):
        library.on_device = lambda tensor: there
        loaded.append(form.load(form.store(row), row.dtype, row.numel(), row.device))
    found.append(torch.equal(*loaded))
print(json.dumps(found))
"""
    assert python(text) == [True] * 4


def test_reports_are_read_together(python):
    text = DEVICE + """
row = torch.randn(3000).relu()
form, mask = forms.Sparse(), forms.Mask()
for _ in range(1500):  # more than one block of reports
    mask.store(row)
library.check_reports()
stored = form.store(row)
stored.buffers[0].fill_(255)  # no encoder has written that
form.load(stored, row.dtype, row.numel(), row.device)
found = []
for _ in range(2):
    try:
        library.check_reports()
        found.append("fine")
    except library.Error as error:
        found.append(str(error))
print(json.dumps(found))
"""
    first, second = python(text)
    assert "check_reports: reports on cpu: expected status 0" in first and second == "fine"


def test_what_a_step_stored_wrongly_is_said_at_the_end(python):
    text = DEVICE + """
network, side = models.build("small_vgg")
session = stash_torch.compress(network)
session.measures = False
said = []
try:
    with session:
        for step in range(3):
            loss = training.classify(network, *models.batch(2, side, step))
            if step == 2:
                for entry in list(session.replay.entries.values()):
                    if getattr(getattr(entry, "form", None), "name", "") == "bitmap":
                        entry.stored.buffers[0].fill_(255)
            loss.backward()
except library.Error as error:
    said.append(str(error))
print(json.dumps(said))
"""
    (said,) = python(text)
    assert said.startswith("check_reports")


MOVES = """
from stash_torch import fit, session, swapper

engine = swapper.Engine(torch.device("cpu"))  # whose memory is the device's here
session.engine_of = lambda device: engine

class Moving(fit.Fit):
    "Everything moves, and begins to come back where its predecessor is read."
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._begin(self.levels.last)
        moved = sorted((key for key in self.chosen if self.chosen[key].host_bytes), key=lambda key: -self.reads[key][0][0])
        self._set(self.chosen, back=tuple((self.reads[before][0][0], key) for before, key in zip(moved, moved[1:])))

session.Fit = Moving
network, side = models.build({name!r})
data = [models.batch(4, side, seed) for seed in range(4)]
found = training.assert_same(network, data, budget="1024 GiB", swap=True, measures=False)
sent = sum(group.host_bytes for group in found.plans[0].groups.values())
statistics = library.api.SwapStatistics()
library.api.swapper_statistics(engine.swapper, statistics)
print(json.dumps([found.counts["steps"], sent, statistics.bytes_out, statistics.bytes_in, statistics.host_peak_bytes,
                  engine.tickets, statistics.failures]))
"""


@pytest.mark.parametrize("name", ["small_vgg", "unet_silu", pytest.param("transformer_gelu", marks=pytest.mark.slow)])
def test_moves_by_the_swapper_of_the_library(python, name):
    steps, sent, out, back, most, tickets, failures = python(DEVICE + MOVES.format(name=name))
    assert steps == 3 and sent > 0
    assert out == back == 3 * sent and (tickets, failures) == (0, 0)
    assert most <= 2 * sent  # steps take the same blocks


def test_no_memory_on_the_host(python):
    text = """
from stash_torch import swapper
found = []
row = torch.randn(1 << 18)
engine = swapper.Engine(torch.device("cpu"))
options = library.api.SwapperOptions(space=library.api.SPACE_DEVICE, host_limit_bytes=1000)
library.api.swapper_create(options, engine.swapper)  # the first one goes with the process
try:
    engine.out(row)
except library.Error as error:
    found.append(error.code == library.api.OUT_OF_MEMORY)
print(json.dumps([found, engine.tickets]))
"""
    assert python(DEVICE + text) == [[True], 0]


def test_the_run_on_a_gpu_says_what_was_not_run(tmp_path):
    """The program of `scripts/gpu_check --pytorch`, packed, where there is no GPU."""
    sys.path.insert(0, str(TESTS.parents[2] / "scripts"))
    import gpu_pytorch

    build = Path(stash_torch.__file__).parents[3]
    gpu_pytorch.pack(build, tmp_path)
    done = subprocess.run([tmp_path / "gpu_pytorch", "small_vgg", "resnet18"], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": sys.executable})
    assert done.returncode == 77, done.stderr
    record = json.loads((tmp_path / "gpu_pytorch.json").read_text())
    assert record["complete"] and record["device"] is None
    names = [f"{part}/{name}" for part in ("bits", "bits_all_again", "swap", "speed") for name in ("small_vgg", "resnet18")]
    assert sorted(row["name"] for row in record["rows"]) == sorted(names)
    assert {(row["result"], row["why"]) for row in record["rows"]} == {("not run", "no device")}
