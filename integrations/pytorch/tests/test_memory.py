# SPDX-License-Identifier: Apache-2.0
"""Budgets, measured peaks and the picture of a step's memory."""

import contextlib
import xml.etree.ElementTree as xml

import pytest
import torch
import torch.nn.functional as functional

import memory
import models
import stash_torch
from training import assert_same


def stepper(network, count=8, side=32, updates=True):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    x, target = models.batch(count, side)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(network(x), target)
        loss.backward()
        if updates:
            optimizer.step()
        return loss.detach()

    return step


def run(network, steps=7, policy="lossless", budget=None, swap=False, **options):
    """(session, peak of a step in it)."""
    step = stepper(network, **options)
    with stash_torch.compress(network, policy, budget, swap=swap) as session:
        for _ in range(steps):
            step()
        return session, memory.peak_of(step)[0]


def least(network, policy="lossless"):
    """Bytes of the smallest peak: what the refusal of a budget says."""
    step = stepper(network)
    with stash_torch.compress(network, policy, 1) as session:
        with contextlib.suppress(stash_torch.BudgetError):
            for _ in range(8):
                step()
    return session.plans[0].fit.least


@pytest.mark.parametrize("updates", [True, False])
def test_peaks_are_those_of_the_allocator(updates):
    network = models.UNet()
    plain = stepper(network, updates=updates)
    plain()
    plain_peak = memory.peak_of(plain)[0]
    session, peak = run(network, updates=updates)
    fit = session.plans[0].fit
    assert fit.settled
    assert abs(fit.timeline.peak - peak) <= 0.01 * peak
    assert abs(fit.plain.peak - plain_peak) <= 0.02 * plain_peak
    assert f"{plain_peak / 2**20:.0f}" in session.report() and "under this plan" in session.report()


def test_a_peak_does_not_fall_with_blocks_from_before():
    """Torch's profiler tells that a block goes which it saw in an earlier step."""
    size, held = 1 << 20, []
    assert memory.peak_of(lambda: held.append(torch.empty(size, dtype=torch.uint8)))[0] == size
    peak, _ = memory.peak_of(lambda: (held.clear(), torch.empty(size // 4, dtype=torch.uint8)))
    assert peak == size // 4


@pytest.mark.parametrize("policy", ["lossless", "fp8"])
@pytest.mark.parametrize("build", [models.UNet, models.SmallVgg, lambda: models.Transformer(dropout=0)])
def test_a_budget_is_kept_and_used(build, policy):
    network = build()
    free, smallest = run(network, policy=policy)
    plain = free.plans[0].fit.plain.peak
    raw = []
    for share in (0.25, 0.5, 0.75):
        budget = int(smallest + share * (plain - smallest))
        session, peak = run(network, policy=policy, budget=budget)
        assert peak <= 1.01 * budget
        raw.append(session.plans[0].after)
    assert raw == sorted(raw) and raw[-1] > raw[0]


def test_a_budget_changes_no_bit():
    batches = [models.batch(8, 32, seed) for seed in range(6)]
    free, _ = run(models.UNet())
    session = assert_same(models.UNet(), batches, budget=int(1.3 * free.plans[0].fit.timeline.peak))
    kept = {group.how() for group in session.plans[0].groups.values()}
    assert "raw" in kept and any("computed again" in how for how in kept)
    assert session.counts["steps"] == len(batches) - 1


def test_a_budget_that_is_too_small_is_refused_with_one_that_does():
    network = models.UNet()
    step = stepper(network)
    session = stash_torch.compress(network, budget="1 MiB")
    with session, pytest.raises(stash_torch.BudgetError, match="at least") as caught:
        for _ in range(4):
            step()
    smallest = int(str(caught.value).split("at least ")[1].split()[0])
    assert "refused" in session.report()
    step()  # outside, it is a plain step
    _, peak = run(network, budget=smallest)
    assert peak <= 1.01 * smallest


@pytest.mark.parametrize("build, policy", [
    (lambda: models.UNet(activation=torch.nn.ReLU), "lossless"), (models.UNet, "auto"),
    (lambda: models.Transformer(gated=True, dropout=0), "fp8"), (models.SmallVgg, "lossless")])
def test_the_budget_that_a_refusal_names_is_the_smallest(build, policy):
    network = build()
    step = stepper(network)
    with stash_torch.compress(network, policy, "1 KiB"), pytest.raises(stash_torch.BudgetError) as caught:
        for _ in range(8):
            step()
    named = int(str(caught.value).split("at least ")[1].split()[0])
    session, _ = run(network, 14, policy, named)
    fit = session.plans[0].fit
    assert fit.settled and not fit.refused and 0.97 * named <= fit.timeline.peak <= named


def test_a_refused_step_runs_nothing_and_a_smaller_one_trains():
    """The first op updates its statistics: it must not have run. Another batch size is another step."""
    network = torch.nn.Sequential(torch.nn.BatchNorm2d(3), models.UNet())
    large, small = stepper(network, 8), stepper(network, 2)
    free, needed = run(network, count=2)
    with stash_torch.compress(network, budget=int(1.2 * needed)) as session:
        with pytest.raises(stash_torch.BudgetError):
            for _ in range(4):
                large()
        seen, state = network[0].num_batches_tracked.item(), network[0].running_mean.clone()
        with pytest.raises(stash_torch.BudgetError):
            large()
        assert network[0].num_batches_tracked.item() == seen and torch.equal(network[0].running_mean, state)
        for _ in range(8):
            small()
        peak = memory.peak_of(small)[0]
    assert peak <= 1.01 * 1.2 * needed
    assert sorted(plan.fit.refused for plan in session.plans) == [False, True]


@pytest.mark.parametrize("steps", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_steps_without_an_optimizer_and_with_two_backward_passes(steps):
    """Torch's profiler was once ended within an op, which crashed one process in two."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    x, found = torch.rand(4, 3, 32, 32), []
    for session in (None, stash_torch.compress(network)):
        with session or contextlib.nullcontext():
            for _ in range(steps):
                loss = network(x).square().mean()
                first = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
                second = torch.autograd.grad(sum(each.square().sum() for each in first), list(network.parameters()),
                                             allow_unused=True)
            found.append([each for each in (*first, *second) if each is not None])
    assert all(torch.equal(plain, ours) for plain, ours in zip(*found, strict=True))


def test_steps_that_cannot_be_measured_are_not_watched_for_long(caplog):
    """A gradient penalty: what is made after the first backward pass looks like another step."""
    network = models.UNet()
    x, target = models.batch(2, 32)
    optimizer, watched = torch.optim.SGD(network.parameters(), lr=0.01), 0
    with stash_torch.compress(network, budget="1 MiB"):
        for _ in range(16):
            optimizer.zero_grad()
            inputs = x.clone().requires_grad_()
            loss = functional.cross_entropy(network(inputs), target)
            watched += torch.autograd._profiler_enabled()
            gradient, = torch.autograd.grad(loss, inputs, create_graph=True)
            (loss + gradient.square().sum()).backward()
            optimizer.step()
    assert 0 < watched < 12 and "neither kept nor refused" in caplog.text


def test_a_program_without_modules_is_not_measured():
    weight = torch.randn(16, 3, 3, 3, requires_grad=True)
    x = torch.randn(8, 3, 32, 32)
    with stash_torch.compress(torch.nn.Linear(1, 1), budget="1 MiB") as session:
        for _ in range(4):
            torch.nn.functional.silu(torch.nn.functional.conv2d(x, weight)).sum().backward()
    assert session.counts["steps"] == 3 and session.counts["steps that were not measured"] == 4
    assert "not measured" in session.report() and not torch.autograd._profiler_enabled()


def test_what_the_program_holds_is_not_encoded_for_nothing():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 16, 3)

        def forward(self, x):
            self.map = functional.silu(self.one(x))
            return self.two(self.map).mean((2, 3))

    session, _ = run(Holding())
    groups = session.plans[0].groups.values()
    assert any(group.reason == "it does not raise the peak" for group in groups if "ConvolutionBackward0" in
               {session.plans[0].nodes[slot.node].name for slot in group.slots})


def test_steps_of_two_kinds_are_measured_apart():
    network = models.UNet()
    steps = [stepper(network, count) for count in (8, 4)]
    with stash_torch.compress(network, budget="1 GiB") as session:
        for number in range(16):
            steps[number % 2]()
    peaks = sorted(plan.fit.timeline.peak for plan in session.plans)
    assert len(peaks) == 2 and all(plan.fit.settled for plan in session.plans)
    assert 1.7 < peaks[1] / peaks[0] < 2.3


def test_the_profiler_of_the_user_goes_first():
    network = models.UNet()
    step = stepper(network)
    with stash_torch.compress(network) as session:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(3):
                step()
        assert session.counts["steps that were not measured"] == 3
        assert "not measured" in session.report()
        for _ in range(3):
            step()
    assert session.plans[0].fit.settled and len(profile.events()) > 100
    assert not torch.autograd._profiler_enabled()


def test_an_exception_in_a_measured_step_stops_the_profiler():
    network = models.UNet()
    step, x = stepper(network), models.batch(8, 32)[0]
    with pytest.raises(KeyError), stash_torch.compress(network):
        step()
        network(x)
        raise KeyError
    assert not torch.autograd._profiler_enabled()
    with stash_torch.compress(network) as session:
        step()
        network(x)  # whose backward never comes
        for _ in range(12):
            step()
    assert session.plans[0].fit.settled


def test_a_timeline_is_drawn(tmp_path):
    network = models.UNet()
    session, _ = run(network)
    session.timeline(tmp_path / "memory.svg")
    drawn = xml.parse(tmp_path / "memory.svg").getroot()
    areas = [each for each in drawn if each.tag.endswith("polygon")]
    assert [each.get("class") for each in areas] == ["plain", "stash"]
    tops = [min(float(point.split(",")[1]) for point in each.get("points").split()) for each in areas]
    assert tops[0] < tops[1]
    with pytest.raises(ValueError, match="timeline: expected"):
        stash_torch.compress(network).timeline(tmp_path / "none.svg")


@pytest.mark.parametrize("budget", [0, -1, 1.5, "", "5 apples", "12 KB/s", True])
def test_wrong_budgets_are_refused(budget):
    with pytest.raises(ValueError, match="compress: budget: expected bytes"):
        stash_torch.compress(torch.nn.Linear(1, 1), budget=budget)


@pytest.mark.parametrize("budget, bytes", [("6 GiB", 6 * 2**30), ("1.5 MB", 1_500_000), ("512", 512), (7, 7)])
def test_budgets_are_read(budget, bytes):
    assert stash_torch.compress(torch.nn.Linear(1, 1), budget=budget).budget == bytes
