# SPDX-License-Identifier: Apache-2.0
"""Policy "auto": only as much rounding as the budget requires."""

import copy

import pytest
import torch

import memory
import models
import stash_torch
from stash_torch import forms
from test_memory import least, run, stepper
from training import assert_same, classify

STEPS = 14  # each level and each correction takes one


def rounded(session):
    """{format: bytes that were rounded to it} of the last plan."""
    found = {}
    for group in session.plans[0].groups.values():
        if isinstance(group.form, forms.Narrow):
            found[group.form.name] = found.get(group.form.name, 0) + group.bytes
    return found


@pytest.fixture(scope="module")
def peaks():
    """Smallest peaks of a U-Net by policy."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return {policy: least(models.UNet(), policy) for policy in ("lossless", "fp16", "fp10", "fp8")}


def test_a_budget_that_lossless_keeps_rounds_nothing(peaks):
    batches = [models.batch(8, 32, seed) for seed in range(STEPS)]
    session = assert_same(models.UNet(), batches, policy="auto", budget=int(1.02 * peaks["lossless"]))
    assert not rounded(session) and session.plans[0].fit.settled
    assert "rounded to no format" in session.report()


@pytest.mark.parametrize("wider, narrow", [("lossless", "fp16"), ("fp16", "fp10"), ("fp10", "fp8")])
def test_a_smaller_one_rounds_to_the_widest_format_that_does(peaks, wider, narrow):
    budget = (peaks[wider] + peaks[narrow]) // 2
    session, peak = run(models.UNet(), STEPS, "auto", budget)
    assert session.plans[0].fit.settled and peak <= 1.01 * budget
    formats = ("fp16", "fp10", "fp8")
    allowed = formats[:formats.index(narrow) + 1]
    assert narrow in rounded(session) and set(rounded(session)) <= set(allowed)
    everything = sum(group.bytes for group in session.plans[0].groups.values() if group.narrower)
    assert sum(rounded(session).values()) < everything


def test_a_larger_budget_rounds_fewer_bytes(peaks):
    found = []
    for share in (0.9, 0.5, 0.1):
        budget = int(peaks["fp16"] + share * (peaks["lossless"] - peaks["fp16"]))
        found.append(sum(rounded(run(models.UNet(), STEPS, "auto", budget)[0]).values()))
    assert 0 < found[0] < found[1] < found[2]


def test_only_the_formats_that_the_user_names(peaks):
    budget = (peaks["lossless"] + peaks["fp16"]) // 2
    network = models.UNet()
    step = stepper(network)
    with stash_torch.compress(network, "auto", budget, values=("fp8",)) as session:
        for _ in range(STEPS):
            step()
    assert set(rounded(session)) == {"fp8"}


def test_a_budget_that_the_narrowest_format_does_not_keep_is_refused(peaks):
    network = models.UNet()
    step = stepper(network)
    session = stash_torch.compress(network, "auto", "1 MiB")
    with session, pytest.raises(stash_torch.BudgetError, match="policy auto") as caught:
        for _ in range(STEPS):
            step()
    smallest = int(str(caught.value).split("at least ")[1].split()[0])
    assert smallest <= 1.01 * peaks["fp8"]
    _, peak = run(network, STEPS, "auto", smallest)
    assert peak <= 1.01 * smallest


def test_without_a_budget_it_is_the_smallest(peaks):
    network = models.UNet()
    session, peak = run(network, STEPS, "auto")
    assert peak <= 1.02 * peaks["fp8"]
    assert session.plans[0].fit.least <= 1.01 * peaks["fp8"]


def test_kinds_of_steps_are_rounded_apart(peaks):
    """The budget rounds steps of eight images, and not those of two, whose gradients keep their bits."""
    network = models.UNet()
    large, x, target = stepper(network), *models.batch(2, 32)
    found = []
    with stash_torch.compress(network, "auto", (peaks["lossless"] + peaks["fp16"]) // 2) as session:
        for _ in range(STEPS):
            large()
            other = copy.deepcopy(network)
            for each in (network, other):
                each.zero_grad()
                if each is other:
                    session.close()
                classify(each, x, target).backward()
                found.append([parameter.grad.clone() for parameter in each.parameters()])
            session.__enter__()
    for ours, plain in zip(found[::2], found[1::2]):
        assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))
    assert sorted(bool(plan.fit.level) for plan in session.plans) == [False, True]
    assert all(plan.fit.settled for plan in session.plans)


def test_the_report_says_what_is_kept(peaks):
    network = models.UNet()
    session, _ = run(network, STEPS, "auto", (peaks["fp16"] + peaks["fp10"]) // 2)
    text = session.report()
    for name, bytes in rounded(session).items():
        assert f"{name}: {bytes / 2**20:.2f} MiB" in text
    raw = [group for group in session.plans[0].groups.values() if group.how() == "raw" and group.narrower]
    assert {group.reason for group in raw} <= {"the budget does not require to round it", "it does not raise the peak"}
    x, target = models.batch(8, 32)
    with session:
        loss = classify(network, x, target)
        kept = [entry.stored.bytes for entry in session.replay.entries.values() if hasattr(entry, "stored")]
        loss.backward()
    said = sum(group.kept_bytes for group in session.plans[0].groups.values() if group.how() != "raw")
    assert 0 < sum(kept) == said


def test_a_step_that_deviates_goes_on(peaks):
    class Branching(models.UNet):
        other = False

        def forward(self, x):
            y = super().forward(x)
            return torch.tanh(y) * 2 if self.other else y

    network = Branching()
    step = stepper(network)
    budget = (peaks["lossless"] + peaks["fp16"]) // 2
    with stash_torch.compress(network, "auto", budget) as session:
        for number in range(2 * STEPS):
            network.other = number in (2, STEPS)
            step()
        assert memory.peak_of(step)[0] <= 1.01 * budget
    assert not session.counts["failures"] and session.counts["deviations"] == 2
    assert set(rounded(session)) == {"fp16"}


@pytest.mark.parametrize("values", [(), "fp16", ("fp8", "fp16"), ("fp16", "fp16"), ("int8",), None])
def test_wrong_formats_are_refused(values):
    with pytest.raises(ValueError, match="compress: values: expected formats of"):
        stash_torch.compress(torch.nn.Linear(1, 1), "auto", values=values)
