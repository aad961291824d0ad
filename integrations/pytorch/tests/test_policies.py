# SPDX-License-Identifier: Apache-2.0
"""Policies that round: the forward pass is untouched, gradients are near, and exact readers get exact values."""

import copy
from types import SimpleNamespace

import pytest
import torch

import models
import stash_torch
from stash_torch import forms, needs, norms
from training import classify

# Largest relative error of all gradients together, by policy.
LIMITS = {"fp16": 2e-3, "bf16": 1e-2, "fp10": 5e-2, "fp8": 1e-1, "auto": 1e-1}


def gradients(network, x, target, policy=None):
    """Loss and gradients of the second step, which follows the plan."""
    network = copy.deepcopy(network)
    if policy is None:
        loss = classify(network, x, target)
        loss.backward()
        return loss, torch.cat([each.grad.flatten() for each in network.parameters()]), None
    session = stash_torch.compress(network, policy)
    session.measures = False  # every form is wanted here
    with session:
        state = copy.deepcopy(network.state_dict())
        classify(network, x, target).backward()
        network.load_state_dict(state)
        network.zero_grad()
        loss = classify(network, x, target)
        loss.backward()
    assert session.counts["steps"] == 1
    return loss, torch.cat([each.grad.flatten() for each in network.parameters()]), session


def without_dropout(name):
    network, side = models.build(name)
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout"):
            module.dropout = 0.0
    return network, side


def error_of(name, policy):
    network, side = without_dropout(name)
    x, target = models.batch(8, side)
    loss, right, _ = gradients(network, x, target)
    other, rounded, session = gradients(network, x, target, policy)
    assert torch.equal(loss, other)
    return ((rounded - right).norm() / right.norm()).item(), session


@pytest.mark.parametrize("name", list(models.OWN))
@pytest.mark.parametrize("policy", list(LIMITS))
def test_gradients_are_near(name, policy):
    error, session = error_of(name, policy)
    assert 0 < error <= LIMITS[policy]
    rounded = [group for group in session.plans[0].groups.values() if isinstance(group.form, forms.Narrow)]
    assert rounded
    for group in rounded:
        assert needs.EXACT not in group.needs


@pytest.fixture
def faulty_rounding(monkeypatch):
    load = forms.Narrow.load
    monkeypatch.setattr(forms.Narrow, "load", lambda self, *what: load(self, *what).mul_(1.5))


def test_a_fault_of_the_rounding_is_seen(faulty_rounding, monkeypatch):
    for module in (forms, norms):
        monkeypatch.setattr(module, "COARSEST", 1.0)
    assert error_of("unet_silu", "fp8")[0] > LIMITS["fp8"]


def test_formats_that_are_too_coarse_are_refused(faulty_rounding):
    error, session = error_of("unet_silu", "fp8")
    assert error == 0
    assert not [group for group in session.plans[0].groups.values() if isinstance(group.form, forms.Narrow)]


def test_signs_are_kept_apart_from_rounded_sources():
    network = models.UNet(activation=torch.nn.ReLU)
    x, target = models.batch(8, 32)
    session = gradients(network, x, target, "fp8")[2]
    masked = [group for group in session.plans[0].groups.values() if group.mask is not None]
    assert masked
    for group in masked:
        for key in group.recipe.groups:
            source = session.plans[0].groups[key]
            assert isinstance(source.form, forms.Narrow) or source.recipe is not None or source.bytes < 65536


def test_what_is_too_large_for_the_format_is_kept_wider():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.SiLU(), torch.nn.Conv2d(16, 4, 3))
    x = torch.randn(4, 3, 32, 32)
    with stash_torch.compress(network, "fp8") as session:
        for scale in (1.0, 1.0, 1e4):
            network.zero_grad()
            network(x * scale).sum().backward()
        rounded = [each.grad.clone() for each in network.parameters()]
    assert session.counts["steps"] == 2
    assert session.counts["kept wider"] > 0
    network.zero_grad()
    network(x * 1e4).sum().backward()
    for a, each in zip(rounded, network.parameters()):
        assert (a - each.grad).norm() <= 0.1 * each.grad.norm()


def test_the_forward_pass_is_untouched():
    network, side = without_dropout("transformer_swiglu")
    x, target = models.batch(4, side)
    losses = {policy: gradients(network, x, target, policy)[0].item() for policy in ("lossless", *LIMITS)}
    assert len(set(losses.values())) == 1


def test_a_fused_rms_norm_is_asked_whether_an_error_is_too_large():
    """A GPU's node, which keeps its scales in another slot than other norms."""
    class Node:
        _saved_normalized_shape = (16,)
        _saved_result1 = torch.full((8, 1), 100.0)

    slot = SimpleNamespace(name="input", node=0, shape=(8, 16), stride=(16, 1), offset=0)
    nodes, group = [SimpleNamespace(name="FusedRmsNormBackward0", handle=Node())], SimpleNamespace(slots=[slot])
    assert norms.reads(nodes, group)
    small, large = torch.full((128,), 0.5e-3), torch.full((128,), 0.5e-3)
    large[16:32] = 0.01  # one row; scaled: an error of 1
    assert norms.bear(nodes, group, small) and not norms.bear(nodes, group, large)
