#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two threads that train at the same time: with a session each, and under one session. Losses and gradients must have the
bits of plain steps. The leg `tsan` of scripts/test runs it with a library under the thread sanitizer.

    PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/tests/two_threads.py [--race]

--race: writes one buffer from two threads, which the sanitizer must report (it ends the program with its exit code).
"""

import contextlib
import sys
import threading
from pathlib import Path

import torch
import torch.nn.functional as functional

import stash_torch
from stash_torch import library

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import models  # noqa: E402

STEPS = 4
POLICIES = ("lossless", "fp8")


def together(*calls):
    """Runs them at the same time, and returns what they return."""
    results, errors, start = [None] * len(calls), [], threading.Barrier(len(calls))

    def run(place, call):
        try:
            start.wait()
            results[place] = call()
        except BaseException as error:  # it is the caller's
            errors.append(error)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]
    return results


def network(seed=3):
    torch.manual_seed(seed)
    return models.UNet()


def gradients_of(net, at_once=False):
    """Of two losses with one graph. at_once: each by a thread of its own."""
    found = net(models.batch(2, 32, 1)[0])
    losses = [found.square().mean(), found.exp().mean()]
    weights = list(net.parameters())

    def read(loss):
        return torch.autograd.grad(loss, weights, retain_graph=True)

    calls = [lambda loss=loss: read(loss) for loss in losses]
    return together(*calls) if at_once else [each() for each in calls]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def trained(net, session):
    """Losses of some steps."""
    losses = []
    with session:
        for step in range(STEPS):
            net.zero_grad()
            x, target = models.batch(2, 32, step)
            loss = functional.cross_entropy(net(x), target)
            loss.backward()
            losses.append(loss.item())
    return losses, [each.grad for each in net.parameters()]


def own_sessions():
    """A thread for every policy."""
    nets = [network() for _ in POLICIES]
    losses, gradients = trained(network(), contextlib.nullcontext())
    sessions = [stash_torch.compress(net, policy) for net, policy in zip(nets, POLICIES)]
    found = together(*(lambda net=net, session=session: trained(net, session) for net, session in zip(nets, sessions)))
    assert all(ours == losses for ours, _ in found), "a loss differs"
    assert same(found[0][1], gradients), "a gradient under lossless differs"
    for session in sessions:
        assert session.counts["steps"] == STEPS - 1 and not session.counts["failures"], session.counts


def one_session():
    """One forward pass that is read by two threads, and replicas that train meanwhile as those of nn.DataParallel do."""
    plain, net = network(), network()
    expected = gradients_of(plain)
    session = stash_torch.compress(net)
    session.measures = False
    with session:
        for _ in range(STEPS):
            found = gradients_of(net, at_once=True)
            assert all(same(a, b) for a, b in zip(expected, found)), "a gradient of two readers differs"
        assert session.counts["steps"] == STEPS - 1 and session.plans[0].after < session.plans[0].before
        losses, gradients = trained(network(), contextlib.nullcontext())
        for ours, mine in together(*(lambda: trained(network_of(plain), contextlib.nullcontext()) for _ in range(2))):
            assert ours == losses and same(mine, gradients), "a replica differs"
    assert not session.counts["failures"], session.counts


def network_of(other):
    net = models.UNet()
    net.load_state_dict(other.state_dict())
    return net


def race():
    """The sanitizer sees the library: two threads decode into one buffer."""
    how, row = library.encoding("sign_mask"), torch.randn(1 << 16)
    stored = library.encode_all(how, row)
    together(*(lambda: [library.decode(how, stored, row) for _ in range(200)] for _ in range(2)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for each in [race] if sys.argv[1:] == ["--race"] else [own_sessions, one_session]:
        each()
        print(f"two_threads: {each.__name__} passed", flush=True)
