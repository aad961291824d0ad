# SPDX-License-Identifier: Apache-2.0
"""Programs that do something else than in the recorded step: no gradient may follow the old plan."""

import contextlib
import copy
import json

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import models
import stash_torch
from training import assert_same, classify


class Network(nn.Module):
    def __init__(self, norm=None):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3, padding=1), norm or nn.Identity(), nn.Conv2d(8, 4, 3, padding=1)


def moving_window(network, x, step):
    return functional.silu(network.first(x)[:, :, step % 4:step % 4 + 8])


def clipped(network, x, step):
    return functional.hardtanh(network.first(x), -0.1 * (step + 1), 0.1 * (step + 1))


def cast(network, x, step):
    half = torch.float16 if step < 3 else torch.bfloat16
    return functional.silu(network.first(x).to(half).float())


def padded(network, x, step):
    return functional.silu(functional.pad(network.first(x), (1, 1, 1, 1), value=0.0 if step < 3 else 1.0))


def pooled_otherwise(network, x, step):
    return functional.max_pool2d(network.first(x), *((2, 2) if step < 3 else (3, 2, 1)))


def frozen(network, x, step):
    if step == 3:
        network.eval()
    return functional.silu(network.norm(network.first(x)))


def bias_set(network, x, step):
    if step == 3:
        with torch.no_grad():
            network.norm.bias.fill_(0.5)
    return functional.silu(network.norm(network.first(x)))


def weight_set(network, x, step):
    if step == 3:
        with torch.no_grad():
            network.norm.weight.copy_(torch.linspace(0.5, 1.5, 8))
    return functional.silu(network.norm(network.first(x).transpose(2, 3)))


def written_without_gradients(network, x, step):
    value = network.norm(network.first(x))
    with torch.no_grad():
        value.clamp_(max=100.0 if step < 3 else 0.5)
    return functional.silu(value)


def frozen_bias(norm):
    norm.bias.requires_grad_(False)
    return norm


def gradients_of(network, used, x, session=None):
    found = []
    for step in range(6):
        network.zero_grad()
        if session is not None:
            session.__enter__()
        network.last(used(network, x, step)).square().mean().backward()
        if session is not None:
            session.close()
        found.append([each.grad.clone() for each in network.parameters() if each.grad is not None])
    return found


@pytest.mark.parametrize("used, norm", [
    (moving_window, None), (clipped, None), (cast, None), (padded, None), (pooled_otherwise, None), (frozen, nn.BatchNorm2d(8)),
    (bias_set, frozen_bias(nn.BatchNorm2d(8))), (bias_set, frozen_bias(nn.GroupNorm(2, 8))),
    (weight_set, nn.BatchNorm2d(8)), (written_without_gradients, nn.BatchNorm2d(8))])
def test_what_changes_is_noticed(used, norm):
    network = Network(norm)
    other, x = copy.deepcopy(network), torch.randn(4, 3, 16, 16)
    session = stash_torch.compress(other)
    session.measures = False
    plain, ours = gradients_of(network, used, x), gradients_of(other, used, x, session)
    for step, (first, second) in enumerate(zip(plain, ours, strict=True)):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)), f"step {step}"
    assert not session.counts["failures"] and not session.counts["steps that could not be planned"]


@pytest.mark.parametrize("norm", [nn.LayerNorm(16), nn.GroupNorm(2, 8)])
def test_another_epsilon_is_an_error_and_no_wrong_gradient(norm):
    network, x = Network(norm), torch.randn(4, 3, 16, 16)
    session = stash_torch.compress(network)
    session.measures = False
    with session:
        for step in range(4):
            network.norm.eps = 1e-5 if step < 3 else 0.1
            loss = network.last(functional.silu(network.norm(network.first(x)))).square().mean()
            if step == 3:
                with pytest.raises(RuntimeError, match="epsilon of a norm: expected"):
                    loss.backward()
            else:
                loss.backward()


def test_a_plan_that_takes_over_trusts_only_what_it_has_checked():
    """Two plans that begin alike but for a cast; a step casts as in the one and then goes on as in the other."""
    def loss_of(network, x, half, branch):
        base = network.norm(torch.relu(network.first(x)))
        value = base.to(half).float() + functional.silu(base)
        return network.last(torch.sigmoid(value) if branch else torch.tanh(value)).square().mean()

    network, x = Network(nn.Conv2d(8, 8, 1)), torch.randn(4, 3, 16, 16)
    kinds = [(torch.float16, False), (torch.bfloat16, True), (torch.bfloat16, True), (torch.float16, False),
             (torch.float16, True), (torch.bfloat16, False), (torch.float16, True)]
    session = stash_torch.compress(network)
    session.measures = False
    for half, branch in kinds:
        found = []
        for context in (contextlib.nullcontext(), session):
            network.zero_grad()
            with context:
                loss_of(network, x, half, branch).backward()
            found.append([each.grad.clone() for each in network.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)), (half, branch)
    assert session.counts["steps"] > 2


def test_a_mask_of_one_plan_is_no_value_of_another():
    """Of a ReLU's result one branch reads the sign alone, the other the values, too."""
    def loss_of(network, x, branch):
        value = torch.relu(network.first(x))
        return network.last(value if branch else torch.tanh(value)).square().mean()

    network, x = Network(), torch.randn(4, 3, 16, 16)
    session = stash_torch.compress(network)
    session.measures = False
    for branch in (False, True, True, False, True, False, False, True):
        found = []
        for context in (contextlib.nullcontext(), session):
            network.zero_grad()
            with context:
                loss_of(network, x, branch).backward()
            found.append([each.grad.clone() for each in network.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)), branch
    assert session.counts["steps"] > 2


class Varied(nn.Module):
    """A trunk that is always the same, and a head that never is: as of detectors, whose boxes differ from batch to batch."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.SiLU())
        self.head, self.count = nn.Linear(16, 10), 0

    def forward(self, x):
        self.count += 1
        x = self.trunk(x).flatten(2).transpose(1, 2)
        return self.head(functional.silu(x[:, :300 + self.count])).mean(1)


def test_programs_that_never_repeat_are_recorded_more_and_more_seldom():
    session = assert_same(Varied(), [models.batch(4, 32, seed) for seed in range(40)])
    assert session.counts["recorded steps"] <= 8
    assert session.counts["raw steps"] >= 32


def test_what_is_said_is_of_the_usual_step(tmp_path):
    """The last batch of an epoch is smaller, and tells nobody anything."""
    sizes = [4, 4, 4, 4, 1] * 2
    network = models.UNet()
    with stash_torch.compress(network) as session:
        for seed, count in enumerate(sizes):
            classify(network, *models.batch(count, 32, seed)).backward()
    usual, other = sorted(session.plans, key=lambda plan: -plan.before)
    assert (usual.steps, other.steps) == (8, 2)
    assert session.plans[0] is other
    report = session.report()
    assert f"saved for the backward pass: {usual.before / 2**20:.2f} MiB" in report
    assert "kinds of steps: 2; this is the one of which there were the most (8 of 10)" in report
    session.timeline(tmp_path / "memory.svg")
    session.save(tmp_path / "plan.json")
    graph = json.loads((tmp_path / "plan.graph.json").read_text())
    assert sum(each["bytes"] for each in graph["session"]["kept"]) == sum(group.bytes for group in usual.groups.values())


def test_the_report_names_what_it_does_not_touch_and_what_made_the_rest():
    network = nn.ModuleList([nn.Linear(16, 32), nn.LSTM(32, 64, batch_first=True)])
    x = torch.randn(8, 32, 16)
    with stash_torch.compress(network) as session:
        network[1](functional.silu(network[0](x.flatten(0, 1)).view(8, 32, 32)))[0].square().sum().backward()
    report = session.report()
    plan = session.plans[0]
    listed = sum(size for _, size in plan.untouched.values()) + sum(group.bytes for group in plan.groups.values())
    assert listed == plan.before
    assert "not touched; MkldnnRnnLayerBackward0.result3, torch.uint8" in report
    assert "made by mkldnn_rnn_layer; no form of the policy takes fewer bytes" in report
    assert "SiluBackward0.self (made by addmm; " in report
