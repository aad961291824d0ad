# SPDX-License-Identifier: Apache-2.0
"""Tensors that are computed again from what a later node saves: they stay as they are until it has."""

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import stash_torch
from training import assert_same

GATES = {
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "swish": lambda x: x * torch.sigmoid(x),
    "gate_first": lambda x: torch.sigmoid(x) * x,
    "both": lambda x: torch.tanh(x * 0.5) * torch.sigmoid(x) * x,
}


class Gated(nn.Module):
    """What the gate reads is saved by the product, after the gate has saved its result."""

    def __init__(self, gate):
        super().__init__()
        self.first, self.gate, self.second = nn.Linear(12, 64), gate, nn.Linear(64, 10)

    def forward(self, x):
        return self.second(self.gate(self.first(x.flatten(2).view(len(x), -1, 12)))).mean(1)


class Sometimes(nn.Module):
    """A gate whose product is left out in every other step."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return torch.sigmoid(x) * (x if self.count % 2 else 3.0)


def batches(steps=5):
    return [(torch.randn(4, 3, 16, 16), torch.arange(4)) for _ in range(steps)]


def gates_of(session):
    plan = session.plans[-1]
    return [group for group in plan.groups.values() if plan.nodes[group.first].name in ("SigmoidBackward0", "TanhBackward0")]


@pytest.mark.parametrize("gate", list(GATES))
def test_a_gate_is_computed_again_from_what_the_product_saves(gate):
    session = assert_same(Gated(GATES[gate]), batches())
    gates = gates_of(session)
    assert gates and all(each.recipe is not None for each in gates)
    assert session.counts["steps"] == 4


@pytest.mark.parametrize("policy", ["fp16", "fp8"])
def test_under_policies_that_round(policy):
    network, ((x, target), *_) = Gated(GATES["quick_gelu"]), batches()
    plain = torch.autograd.grad(functional.cross_entropy(network(x), target), list(network.parameters()))
    with stash_torch.compress(network, policy) as session:
        session.measures = False
        for _ in range(2):
            ours = torch.autograd.grad(functional.cross_entropy(network(x), target), list(network.parameters()))
    assert session.counts["steps"] == 1
    plan = session.plans[0]
    read = {plan.nodes[each.first].name: each.how() for each in plan.groups.values()}
    assert read["MulBackward0"] == "fp16", read  # e is raised to it
    assert 0 < sum((a - b).norm() for a, b in zip(plain, ours)) <= 0.01 * sum(a.norm() for a in plain)


def test_a_step_that_never_saves_it():
    session = assert_same(Gated(Sometimes()), batches(8))
    assert session.counts["steps"] + session.counts["raw steps"] + session.counts["recorded steps"] == 8
    assert session.counts["steps"] >= 3


def test_a_change_in_place_in_between():
    """What the product saves is not what the gate has read."""
    def gate(x):
        opened = torch.sigmoid(x)
        with torch.no_grad():
            x.mul_(2)
        return opened * x

    session = assert_same(Gated(gate), batches())
    assert all(each.recipe is None for each in gates_of(session))


def test_the_tensor_goes_as_soon_as_it_can_be_computed_again():
    seen = []

    def gate(x):
        opened = torch.sigmoid(x)
        seen.append(torch.multiprocessing.reductions.StorageWeakRef(opened.untyped_storage()))
        y = opened * x
        del opened
        seen[-1] = seen[-1].expired()
        return y

    network = Gated(gate)
    with stash_torch.compress(network) as session:
        session.measures = False
        for x, target in batches(2):
            functional.cross_entropy(network(x), target).backward()
    assert seen == [False, True]


def test_what_a_module_with_backward_hooks_saves_later():
    """The module has another name for what the gate reads."""
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(64)
            self.norm.register_full_backward_hook(lambda *_: None)

        def forward(self, x):
            return torch.sigmoid(x) * self.norm(x)

    session = assert_same(Gated(Hooked()), batches())
    assert [each.how() for each in gates_of(session)] == ["computed again by sigmoid"]
