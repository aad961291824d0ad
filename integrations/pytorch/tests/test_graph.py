# SPDX-License-Identifier: Apache-2.0
"""A recorded step as a training graph: what the project's planner and its commands read."""

import ctypes
import json
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import models
import stash_torch
from stash_torch import library, planner
from stash_torch.graph import graph_of
from training import classify

COMMAND = Path(stash_torch.__file__).parents[3] / "tools" / "stash"


def recorded(network, batches, policy="lossless", loss_of=classify):
    session = stash_torch.compress(network, policy)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    with session:
        for x, target in batches:
            optimizer.zero_grad()
            loss_of(network, x, target).backward()
            optimizer.step()
    return session


def findings(planned):
    text = ctypes.c_char_p()
    try:
        library.api.verify_plan(planned.encode(), text)
    except library.Error:
        return text.value.decode()
    return ""


def planned_and_verified(plan):
    planned = planner.plan_of(json.dumps(graph_of(plan)), plan.policy, plan.formats, lay_out=False)
    assert findings(planned) == ""
    return json.loads(planned)


def read_by_backward(graph):
    """Bytes of what the forward stage made and the backward stage reads."""
    made = {place for op in graph["ops"] if op["stage"] == "forward"
            for place in [*(each["storage"] for each in op.get("outputs", ())), *op.get("parameters_written", ())]}
    read = {each["storage"] for op in graph["ops"] for each in op.get("alternatives", [{"reads": ()}])[0]["reads"]}
    read |= {place for op in graph["ops"] if op["stage"] == "backward" for place in op.get("parameters", ())}
    sizes = [graph["storages"][place] for place in made & read]
    return sum(each.get("fixed_bytes", 0) + each.get("bytes_per_sample", 0) for each in sizes)


SLOW = ["resnet50", "vgg16_bn", "densenet121", "efficientnet_b0", "convnext_tiny", "swin_t", "vit_b_16", "googlenet"]
CASES = [(name, policy) for name in models.OWN for policy in stash_torch.levels.POLICIES]
CASES += [pytest.param(name, policy, marks=() if name == "mobilenet_v2" else pytest.mark.slow)
          for name in ["mobilenet_v2", *SLOW] for policy in ("lossless", "fp8")]


@pytest.mark.parametrize("name, policy", CASES)
def test_the_planner_plans_what_was_recorded(name, policy):
    if name not in models.OWN:
        pytest.importorskip("torchvision")
    network, side = models.build(name)
    plan = recorded(network, [models.batch(2, side, seed) for seed in range(2)], policy).plans[0]
    sizes = planned_and_verified(plan)["sizes"]
    assert 0 < sizes["wall"] <= sizes["bound"] <= sizes["planned_peak"] < sizes["baseline_peak"]
    assert sizes["planned_peak"] < 1.05 * sizes["bound"]


@pytest.mark.parametrize("name", list(models.OWN))
def test_a_graph_has_what_the_step_saved(name):
    """But for what only gives its shape."""
    network, side = models.build(name)
    plan = recorded(network, [models.batch(2, side)]).plans[0]
    hollow = {group.key: group.bytes for group in plan.groups.values() if group.how() == "shape only"}
    assert read_by_backward(graph_of(plan)) + sum(hollow.values()) == plan.before


def test_seconds_and_densities_are_measured():
    network, side = models.build("small_vgg")
    graph = graph_of(recorded(network, [models.batch(4, side, seed) for seed in range(2)]).plans[0])
    densities = [each["density"] for each in graph["storages"] if "density" in each]
    assert densities and all(0 < each < 1 for each in densities)
    timed = [op for op in graph["ops"] if op.get("seconds", 0) > 0]
    assert len(timed) > 0.8 * len(graph["ops"])


def test_a_pooling_may_be_read_by_taps():
    network, side = models.build("unet_silu")
    plan = recorded(network, [models.batch(4, side)]).plans[0]
    pools = [op["alternatives"] for op in graph_of(plan)["ops"] if op["name"].startswith("MaxPool") and "alternatives" in op]
    assert [[each["form"] for each in pool] for pool in pools] == 2 * [["as_recorded", "from_window"]]
    kept = {each["stored"]["kind"] for each in planned_and_verified(plan)["choices"] if each["kind"] == "encoded"}
    assert "window_index" in kept


class Shared(nn.Module):
    """Residuals, an op in place, tied weights, slices, a cast, dropout, and a value that is made without gradients."""

    def __init__(self):
        super().__init__()
        self.cut, self.first = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(256, 256)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        y = self.cut(x)
        y = functional.relu_(y + y.sigmoid()).flatten(2)[..., :256].contiguous()
        z = self.first(y) + functional.linear(y, self.first.weight.T)
        with torch.no_grad():
            scale = z.abs() + 1
        z = functional.dropout(z * scale, 0.3)
        left, right = z.split(8, 1)
        return self.head((left.double().float() * right.expand(left.shape)).mean(1))


def test_values_that_share_memory():
    plan = recorded(Shared(), [models.batch(4, 32, seed) for seed in range(2)]).plans[0]
    assert planned_and_verified(plan)["sizes"]["planned_peak"] > 0
    graph = graph_of(plan)
    writers = {}
    for op in graph["ops"]:
        if op["stage"] == "forward":
            for each in op.get("outputs", ()):
                writers.setdefault(each["storage"], []).append(op["label"])
    assert ["AddBackward0", "ReluBackward0"] in writers.values()
    weights = [each for each in graph["storages"] if each["role"] == "weight"]
    assert len(weights) == len(list(Shared().parameters()))
    assert len([each for each in graph["storages"] if each["role"] == "weight_gradient"]) == len(weights)


def test_autocast_and_a_second_backward_pass():
    def loss_of(network, x, target):
        with torch.autocast("cpu", torch.bfloat16):
            loss = classify(network, x, target)
        loss.backward(retain_graph=True)
        return loss

    network, side = models.build("unet_silu")
    planned_and_verified(recorded(network, [models.batch(2, side, seed) for seed in range(3)], loss_of=loss_of).plans[0])


def test_the_commands_read_what_a_session_saves(tmp_path):
    if not COMMAND.is_file():
        pytest.skip(f"{COMMAND} was not built")
    network, side = models.build("unet_silu")
    session = recorded(network, [models.batch(2, side, seed) for seed in range(3)])
    session.save(tmp_path / "plan.json")

    def run(*arguments):
        done = subprocess.run([COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "valid" in run("verify", "plan.json")
    assert "SiluBackward0" in run("explain", "plan.json") and "recompute" in run("explain", "plan.json")
    run("report", "plan.json", "--html", "page.html", "--memory-viz", "memory.json")
    assert "ConvolutionBackward0" in (tmp_path / "page.html").read_text()
    assert "lower bound" in run("plan", "plan.graph.json", "--budget", "70%", "-o", "laid_out.json")
    assert "valid" in run("verify", "laid_out.json")
    assert "overhead" in run("sweep", "plan.graph.json", "--machine", "h200")
    sizes = planner.sizes_of(session.plans[0])
    assert f"{sizes['wall'] / 2**20:.2f} MiB, {sizes['wall_name']}" in session.report()
    assert json.loads((tmp_path / "plan.json").read_text())["sizes"]["bound"] == sizes["bound"]
    assert json.loads((tmp_path / "plan.graph.json").read_text())["session"]["policy"] == "lossless"


def test_nothing_to_save():
    with pytest.raises(ValueError, match="save: expected a session in which a step was recorded"):
        stash_torch.compress(models.UNet()).save("plan.json")


def test_a_file_that_cannot_be_written(tmp_path):
    network, side = models.build("unet_silu")
    session = recorded(network, [models.batch(2, side)])
    with pytest.raises(OSError):
        session.save(tmp_path / "missing" / "plan.json")
