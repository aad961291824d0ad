# SPDX-License-Identifier: Apache-2.0
"""Moves to the host, with a stand-in for a device: memory of a CPU, and copies that are made as late as they may be.

A copy to the host is made when the session says that it waits for it, and the memory is filled with other bytes then. A copy
back is made when the session waits for it; before that there are other bytes, too. So a wait that is missing, and memory that
is let go too early, show as wrong bits or as an error.
"""

import collections
import copy
import ctypes
import gc

import pytest
import torch
import torch.nn.functional as functional
from torch.multiprocessing.reductions import StorageWeakRef

import gpu
import memory
import models
import stash_torch
from stash_torch import fit, library, session, swap
from test_memory import least, run, stepper
from training import assert_same, bits, classify

STEPS = 10
POISON = 0x7B


class LateEngine:
    """See the top; it has the calls of swapper.Engine."""

    def __init__(self):
        self.live, self.counts = set(), collections.Counter()
        self.coming = self.most_coming = 0  # on their way back

    def out(self, tensor):
        ticket = LateTicket(tensor)
        self.live.add(ticket)
        self.counts["out"] += 1
        return ticket

    def release(self, ticket, tensor):
        ticket.copy_out()
        if tensor.dtype == torch.uint8:  # else it is memory that the program may still read
            ctypes.memset(tensor.data_ptr(), POISON, tensor.nbytes)

    def back(self, ticket, tensor):
        assert ticket.bytes is not None, "comes back before it has left"
        ctypes.memset(tensor.data_ptr(), POISON, tensor.nbytes)
        ticket.target = tensor.data_ptr(), tensor.nbytes, StorageWeakRef(tensor.untyped_storage())
        self.counts["back"] += 1
        self.coming += 1
        self.most_coming = max(self.most_coming, self.coming)

    def wait(self, ticket, tensor):
        ticket.copy_back()
        self.coming -= 1
        self.counts["waits"] += 1

    def drop(self, ticket):
        """What was not waited for does not come."""
        self.live.remove(ticket)


class LateTicket:
    def __init__(self, tensor):
        self.source = tensor.data_ptr(), tensor.nbytes, StorageWeakRef(tensor.untyped_storage())
        self.bytes = self.target = None

    def copy_out(self):
        address, size, storage = self.source
        assert not storage.expired(), "freed before its copy to the host has ended"
        self.bytes, self.source = ctypes.string_at(address, size), None

    def copy_back(self):
        address, size, storage = self.target
        assert not storage.expired(), "freed before its copy back has ended"
        ctypes.memmove(address, self.bytes, size)
        self.target = None


@pytest.fixture
def device(monkeypatch):
    """The engine of every session."""
    engine = LateEngine()
    monkeypatch.setattr(session, "engine_of", lambda device: engine)
    yield engine
    gc.collect()
    assert not engine.live  # nothing stays on the host


@pytest.fixture
def everything_moves(monkeypatch, device):
    """From the second step on, whatever the budget is; groups come back early where `early` says so."""
    def build(early):
        class Moving(fit.Fit):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                self._begin(self.levels.last)
                if early:
                    self._set(self.chosen, back=self.all_back())

            def all_back(self):
                """Each begins to come back where its predecessor is read."""
                moved = [key for key in self.chosen if self.chosen[key].host_bytes]
                moved.sort(key=lambda key: -self.reads[key][0][0])
                return tuple((self.reads[before][0][0], key) for before, key in zip(moved, moved[1:]))

        monkeypatch.setattr(session, "Fit", Moving)
        return device

    return build


def trained_same(network, side, policy="lossless", count=2, steps=STEPS, budget="1024 GiB", swap=True, measures=False):
    """assert_same() with moves."""
    batches = [models.batch(count, side, seed) for seed in range(steps)]
    return assert_same(network, batches, policy, budget=budget, swap=swap, measures=measures)


def moved(found):
    return [group for group in found.plans[0].groups.values() if group.host_bytes]


# ---- as a user does it


def test_a_budget_that_forms_alone_do_not_keep(device):
    network = models.UNet()
    budget, step = int(0.9 * least(copy.deepcopy(network))), stepper(network)
    with stash_torch.compress(network, budget=budget), pytest.raises(stash_torch.BudgetError):
        for _ in range(6):
            step()
    with stash_torch.compress(network, budget=budget, swap=True) as found:
        for _ in range(STEPS):
            step()
        assert memory.peak_of(step)[0] <= 1.01 * budget
    assert found.plans[0].fit.settled and device.counts["back"] and moved(found)
    assert "on the host" in found.report()


@pytest.mark.parametrize("share, ahead", [(0.95, 2), (0.88, 1), (0.88, 4)])
def test_a_budget_changes_no_bit(device, share, ahead):
    network = models.UNet()
    budget = int(share * least(copy.deepcopy(network)))
    found = trained_same(network, 32, count=8, budget=budget, swap=ahead, measures=True)
    assert found.plans[0].fit.settled and moved(found) and found.counts["steps"] == STEPS - 1
    assert found.plans[0].back and device.most_coming <= ahead + 1  # the one that is read, and those after it


def test_the_oldest_move_and_no_more_than_needed(device):
    network, sums = models.UNet(), []
    smallest = least(copy.deepcopy(network))
    for share in (0.97, 0.92, 0.87):
        found, peak = run(copy.deepcopy(network), STEPS, budget=int(share * smallest), swap=True)
        assert peak <= 1.01 * share * smallest
        sums.append(sum(group.host_bytes for group in moved(found)))
    assert 0 < sums[0] <= sums[1] <= sums[2] and sums[0] < sums[2]
    groups = found.plans[0].groups.values()
    stays = [group.first for group in groups if not group.host_bytes and group.kept_bytes >= swap.SMALLEST]
    assert min(group.first for group in moved(found)) < max(stays)


def test_a_budget_that_moves_do_not_keep_is_refused(device):
    network = models.UNet()
    step, smallest = stepper(network), None
    with stash_torch.compress(network, budget="1 MiB", swap=True), pytest.raises(stash_torch.BudgetError) as caught:
        for _ in range(8):
            step()
    smallest = int(str(caught.value).split("at least ")[1].split()[0])
    assert smallest < 0.9 * least(copy.deepcopy(network))
    assert run(network, STEPS, budget=smallest, swap=True)[1] <= 1.01 * smallest


def test_auto_rounds_before_anything_moves(device):
    network = models.UNet()
    narrow = least(copy.deepcopy(network), "fp8")
    found, _ = run(copy.deepcopy(network), 14, "auto", int(1.02 * narrow), swap=True)
    assert not moved(found) and found.plans[0].fit.level == 3
    found, peak = run(network, 14, "auto", int(0.97 * narrow), swap=True)
    assert moved(found) and peak <= 1.01 * 0.97 * narrow


@pytest.mark.parametrize("options, text", [
    ({"budget": None}, "there is no budget"), ({}, "tensors are in the host's memory already")])
def test_when_nothing_moves(options, text):
    found, _ = run(models.UNet(), 3, **{"budget": "1 GiB", **options}, swap=True)
    assert f"nothing moves to the host: {text}" in found.report() and not moved(found)


@pytest.mark.parametrize("value", [0, -1, 1.5, "yes", None])
def test_wrong_arguments(value):
    with pytest.raises(ValueError, match="compress: swap: expected True, False, or"):
        stash_torch.compress(torch.nn.Linear(1, 1), swap=value)


def test_the_program_for_a_gpu(device):
    """Its part for moves, with the stand-in."""
    found = gpu.moves_of("unet_silu", 8, 1, "cpu")
    assert found["tensors"] > 0 and found["settled"] and found["counts"]["steps"] == 9
    assert found["peak_bytes"] <= 1.01 * found["wanted_peak"] < found["least_without_moves"] < found["plain_peak_bytes"]


# ---- bits


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("name", list(models.OWN))
def test_bits_over_ten_steps(everything_moves, name, early):
    device = everything_moves(early)
    network, side = models.build(name)
    found = trained_same(network, side, count=8)
    sent = len(moved(found))
    assert sent > 2 and device.counts["back"] == device.counts["waits"] == sent * (STEPS - 1)
    assert found.counts["steps"] == STEPS - 1


@pytest.mark.parametrize("name", ["resnet18", *(pytest.param(name, marks=pytest.mark.slow) for name in (
    "vgg16_bn", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "densenet121", "vit_b_16"))])
def test_bits_of_known_networks_over_ten_steps(everything_moves, name):
    pytest.importorskip("torchvision")
    device = everything_moves(True)
    network, side = models.build(name)
    found = trained_same(network, side)
    assert found.counts["steps"] == STEPS - 1 and device.counts["back"] == len(moved(found)) * (STEPS - 1)


@pytest.mark.parametrize("policy", ["fp8", "auto"])
def test_rounded_values_move(everything_moves, policy):
    """With the same bits as those that stay."""
    network, found = models.UNet(), []
    data = models.batch(8, 32)
    for swaps in (False, True):
        if swaps:
            everything_moves(True)
        other = copy.deepcopy(network)
        policies = {"policy": policy, "values": ("fp8",)}
        context = stash_torch.compress(other, **policies, budget="1024 GiB" if swaps or policy == "fp8" else None, swap=swaps)
        context.measures = False
        with context:
            for _ in range(2):
                other.zero_grad()
                classify(other, *data).backward()
        found.append([each.grad for each in other.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert any(group.form.name == "fp8" for group in moved(context))


def broken(monkeypatch, name, function):
    monkeypatch.setattr(LateEngine, name, function)
    with pytest.raises(AssertionError):
        trained_same(models.UNet(), 32, count=8, steps=3)


def test_a_missing_wait_is_seen(everything_moves, monkeypatch):
    everything_moves(True)
    broken(monkeypatch, "wait", lambda self, ticket, tensor: None)


def test_memory_that_is_let_go_too_early_is_seen(everything_moves, monkeypatch):
    everything_moves(True)
    monkeypatch.setattr(swap.Part, "release", lambda self: setattr(self, "buffer", None))
    with pytest.raises(AssertionError):
        trained_same(models.UNet(), 32, count=8, steps=3)
    gc.collect()


# ---- what goes wrong


def test_exceptions_lose_nothing(everything_moves):
    device = everything_moves(True)
    network, (x, target) = models.UNet(), models.batch(8, 32)
    expected = plain_gradients(network, x, target)
    found = moving(network)
    with found:
        classify(network, x, target).backward()
        for fails in ("forward", "backward", "never walked", None):
            handle = failing(network, fails)
            network.zero_grad()
            try:
                loss = classify(network, x, target)  # noqa: F841 (it holds the graph)
                if fails != "never walked":
                    loss.backward()
            except KeyError:
                pass
            handle.remove()
            loss = None
    assert same_gradients(network, expected) and not found.counts["failures"]
    assert device.counts["out"] > device.counts["waits"]


def failing(network, when):
    """A hook that raises KeyError in the middle of a pass."""
    def fail(*_):
        raise KeyError

    if when == "forward":
        return network.join2.register_forward_hook(fail)
    if when == "backward":
        return network.up2.register_full_backward_hook(fail)
    return network.register_forward_hook(lambda *_: None)


def plain_gradients(network, x, target):
    other = copy.deepcopy(network)
    classify(other, x, target).backward()
    return [each.grad for each in other.parameters()]


def moving(network, **options):
    found = stash_torch.compress(network, budget="1024 GiB", swap=True, **options)
    found.measures = False
    return found


def same_gradients(network, expected):
    return all(torch.equal(bits(each.grad), bits(right)) for each, right in zip(network.parameters(), expected, strict=True))


def test_a_step_that_deviates(everything_moves):
    everything_moves(True)

    class Branching(models.UNet):
        other = False

        def forward(self, x):
            y = super().forward(x)
            return torch.tanh(y) * 2 if self.other else y

    network, (x, target) = Branching(), models.batch(8, 32)
    found = moving(network)
    for step in range(8):
        network.other = step % 3 == 2
        expected = plain_gradients(network, x, target)
        network.zero_grad()
        with found:
            classify(network, x, target).backward()
        assert same_gradients(network, expected), step
    assert found.counts["deviations"] and not found.counts["failures"]


def test_two_backward_passes_of_one_step(everything_moves):
    everything_moves(True)
    network, (x, target) = models.UNet(), models.batch(8, 32)
    expected = plain_gradients(network, x, target)
    with moving(network) as found:
        classify(network, x, target).backward()
        loss = classify(network, x, target)
        for _ in range(2):
            network.zero_grad()
            loss.backward(retain_graph=True)
            assert same_gradients(network, expected)
        del loss
    assert found.counts["steps"] == 1


def test_a_graph_outlives_its_session(everything_moves):
    device = everything_moves(True)
    network, (x, target) = models.UNet(), models.batch(8, 32)
    expected = plain_gradients(network, x, target)
    with moving(network):
        classify(network, x, target).backward()
        loss = classify(network, x, target)
    network.zero_grad()
    assert device.live
    loss.backward()
    assert same_gradients(network, expected)


def test_two_steps_at_a_time(everything_moves):
    """The backward pass of the first begins when the forward pass of the second has ended."""
    everything_moves(True)
    network, first, second = models.UNet(), models.batch(8, 32, 1), models.batch(8, 32, 2)
    network.eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.train()
    expected = plain_gradients(network, *first)
    with moving(network):
        classify(network, *first).backward()
        losses = [classify(network, *each) for each in (first, second)]
        network.zero_grad()
        losses[0].backward()
    assert same_gradients(network, expected)


def test_no_memory_on_the_host(everything_moves, monkeypatch):
    everything_moves(True)
    out, count = LateEngine.out, iter(range(10**6))

    def sometimes(self, tensor):
        if next(count) % 3 == 1:
            raise library.Error(library.api.OUT_OF_MEMORY, "out: no memory on the host")
        return out(self, tensor)

    monkeypatch.setattr(LateEngine, "out", sometimes)
    found = trained_same(models.UNet(), 32, count=8, steps=4)
    assert found.counts["no memory on the host"] > 0


def test_a_copy_that_fails_leaves_its_tensor_on_the_device(everything_moves, monkeypatch):
    everything_moves(True)
    release, count = LateEngine.release, iter(range(10**6))

    def sometimes(self, ticket, tensor):
        if next(count) % 3 == 1:
            raise library.Error(library.api.DEVICE_FAILURE, "release: the copy failed")
        release(self, ticket, tensor)

    monkeypatch.setattr(LateEngine, "release", sometimes)
    trained_same(models.UNet(), 32, count=8, steps=4)


def test_no_memory_on_the_device_for_what_comes_back_early(everything_moves, monkeypatch):
    """The reader brings it back."""
    everything_moves(True)
    back, count = LateEngine.back, iter(range(10**6))

    def sometimes(self, ticket, tensor):
        if next(count) % 2 == 0:
            raise RuntimeError("out of memory")
        back(self, ticket, tensor)

    monkeypatch.setattr(swap.Part, "begin", once_again(swap.Part.begin))
    monkeypatch.setattr(LateEngine, "back", sometimes)
    trained_same(models.UNet(), 32, count=8, steps=4)


def once_again(begin):
    """Part.begin, whose second call within get() goes well."""
    def tried(self):
        try:
            begin(self)
        except RuntimeError:
            if not getattr(self, "failed", False):
                self.failed = True
                raise
            begin(self)
    return tried


def test_a_tensor_that_is_written_on_its_way_is_an_error(everything_moves):
    everything_moves(True)

    class Writing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.three = (torch.nn.Conv2d(3 if place == 0 else 16, 16, 3) for place in range(3))
            self.writes = False

        def forward(self, x):
            map = self.two(torch.sigmoid(self.one(x)))
            y = functional.gelu(self.three(map))
            if self.writes:
                with torch.no_grad():
                    map.add_(1)
            return y.mean((2, 3))

    network, (x, target) = Writing(), models.batch(8, 32)
    with moving(network) as found:
        for _ in range(2):
            classify(network, x, target).backward()
        assert any("raw, on the host" in group.how() for group in moved(found))
        network.writes = True
        with pytest.raises(RuntimeError, match="inplace operation"):
            classify(network, x, target).backward()
        network.writes = False
        expected = plain_gradients(network, x, target)
        network.zero_grad()
        classify(network, x, target).backward()
        assert same_gradients(network, expected)
