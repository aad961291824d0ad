# SPDX-License-Identifier: Apache-2.0
"""Trains twice from the same start, with and without Stash, and compares bit by bit."""

import contextlib
import copy

import torch
import torch.nn.functional as functional

import stash_torch


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def classify(network, x, target):
    return functional.cross_entropy(network(x), target)


def train(network, batches, context, loss_of=classify, after=None):
    """Losses, and the gradients of the last step."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    losses = []
    torch.manual_seed(5)
    with context:
        for x, target in batches:
            optimizer.zero_grad()
            loss = loss_of(network, x, target)
            loss.backward()
            if after is not None:
                after(network)
            optimizer.step()
            losses.append(loss.detach())
    return losses, [each.grad for each in network.parameters() if each.grad is not None]


def assert_same(network, batches, policy="lossless", loss_of=classify, budget=None, measures=None, **options):
    """Returns the session. Losses, gradients, buffers and weights must have the same bits. measures: as the session has it;
    unless said, with a budget only: else much of a small network stays raw, and is not tested. options: of compress()."""
    other = copy.deepcopy(network)
    plain = train(network, batches, contextlib.nullcontext(), loss_of)
    session = stash_torch.compress(other, policy, budget, **options)
    session.measures = budget is not None if measures is None else measures
    ours = train(other, batches, session, loss_of)
    assert not session.counts["failures"] and not session.counts["steps that could not be planned"]
    for what, first, second in [("loss", plain[0], ours[0]), ("gradient", plain[1], ours[1]),
                                ("state", network.state_dict().values(), other.state_dict().values())]:
        first, second = list(first), list(second)
        assert len(first) == len(second)
        for place, (a, b) in enumerate(zip(first, second)):
            assert torch.equal(bits(a), bits(b)), f"{what} {place} differs"
    return session
