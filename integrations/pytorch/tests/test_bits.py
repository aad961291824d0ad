# SPDX-License-Identifier: Apache-2.0
"""Lossless steps give the losses, gradients, buffers and weights of plain ones, bit for bit."""

import pytest
import torch

import models
import stash_torch
from stash_torch import library
from training import assert_same, classify

TORCHVISION = ["resnet18", "vgg11", "mobilenet_v2", "efficientnet_b0", "convnext_tiny"]
SLOW = ["resnet50", "vgg16", "vgg16_bn", "densenet121", "mobilenet_v3_large", "vit_b_16", "swin_t", "googlenet"]


def batches(side, steps=4, count=2):
    return [models.batch(count, side, seed) for seed in range(steps)]


@pytest.mark.parametrize("name", list(models.OWN))
def test_own_networks(name):
    network, side = models.build(name)
    session = assert_same(network, batches(side, steps=10, count=4))
    assert session.counts["recorded steps"] == 1
    assert session.counts["steps"] == 9
    assert session.plans[0].after < 0.8 * session.plans[0].before


@pytest.mark.parametrize("name", TORCHVISION + [pytest.param(name, marks=pytest.mark.slow) for name in SLOW])
def test_torchvision(name):
    pytest.importorskip("torchvision")
    network, side = models.build(name)
    session = assert_same(network, batches(side))
    assert session.counts["steps"] == 3


@pytest.mark.parametrize("name", list(models.OWN))
def test_bf16_autocast(name):
    def loss_of(network, x, target):
        with torch.autocast("cpu", torch.bfloat16):
            return classify(network, x, target)

    network, side = models.build(name)
    session = assert_same(network, batches(side), loss_of=loss_of)
    assert session.counts["steps"] == 3
    assert session.plans[0].after < 0.8 * session.plans[0].before


def test_backward_within_autocast():
    def loss_of(network, x, target):
        with torch.autocast("cpu", torch.bfloat16):
            loss = classify(network, x, target)
            loss.backward(retain_graph=True)
        return loss

    network, side = models.build("transformer_gelu")
    session = assert_same(network, batches(side), loss_of=loss_of)
    assert session.counts["steps"] == 3


def test_autocast_around_all_steps():
    network, side = models.build("unet_silu")
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(network, batches(side))


@pytest.mark.parametrize("name", ["small_vgg", "unet_silu"])
def test_channels_last(name):
    network, side = models.build(name)
    network = network.to(memory_format=torch.channels_last)
    data = [(x.contiguous(memory_format=torch.channels_last), target) for x, target in batches(side)]
    session = assert_same(network, data)
    assert session.counts["steps"] == 3
    assert session.plans[0].after < 0.8 * session.plans[0].before


def test_values_that_are_no_ordinary_numbers():
    network, side = models.build("small_vgg")
    data = batches(side)
    for x, _ in data:
        x[0, 0, 0, :6] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-42, 3e38])
    session = assert_same(network, data)
    assert session.counts["steps"] == 3


def test_one_bit_of_what_is_kept_tells():
    """Flips one bit of every kept buffer in turn: a gradient must change, or the buffer was not read."""
    torch.manual_seed(0)
    network, side = models.build("small_vgg")
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    x, target = models.batch(4, side)
    session = stash_torch.compress(network)
    session.measures = False  # every form is wanted here
    with session:
        classify(network, x, target).backward()
        network.zero_grad()
        classify(network, x, target).backward()
        right = [each.grad.clone() for each in network.parameters()]
        kept = [group for group in session.plans[0].groups.values() if group.form is not None]
        assert len(kept) >= 3
        for group in kept:
            store = group.form.store

            def flipped(row, store=store, sparse=group.form.name == "bitmap"):
                stored = store(row)
                size = stored.buffers[0].numel()
                place = size - 16 if sparse else size // 2  # values, not counts
                stored.buffers[0][place:place + 8] ^= 0x55
                return stored

            group.form.store = flipped
            network.zero_grad()
            try:
                classify(network, x, target).backward()
            except library.Error:  # a tap that its window does not have
                continue
            finally:
                del group.form.store
            same = all(torch.equal(a, each.grad) for a, each in zip(right, network.parameters()))
            assert not same, f"{group.how()} of {group.key} was not read"


class Cells(torch.nn.Module):
    """Their gates are parts of one tensor, each with a version counter of its own: one is written when another is saved."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.head = cell, torch.nn.Linear(64, 10)

    def forward(self, x):
        state = None
        for each in x.flatten(1).view(len(x), -1, 16)[:, :4].unbind(1):
            state = self.cell(each, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 256)

    def forward(self, x, state):
        a, b, c, d = (each.relu_() for each in self.first(x).unsafe_chunk(4, 1))
        return a * b + c * d


@pytest.mark.parametrize("cell", [lambda: torch.nn.LSTMCell(16, 64), lambda: torch.nn.GRUCell(16, 64), Parts])
@pytest.mark.parametrize("policy", ["lossless", "fp16"])
def test_parts_that_are_written_after_others_are_saved(cell, policy):
    network = Cells(cell())
    batches = [models.batch(64, 32, seed) for seed in range(3)]
    if policy == "lossless":
        assert_same(network, batches)
        return
    x, target = batches[0]
    with stash_torch.compress(network, policy) as session:
        session.measures = False
        first, second = (torch.autograd.grad(torch.nn.functional.cross_entropy(network(x), target),
                                             list(network.parameters())) for _ in range(2))
    assert session.counts["steps"] == 1
    for a, b in zip(first, second):
        assert (a - b).norm() <= 2e-3 * a.norm()
