# SPDX-License-Identifier: Apache-2.0
"""What a user says of the tensors that a custom autograd.Function saves."""

import logging

import pytest
import torch
from torch import nn

import models
import stash_torch
from stash_torch import registered
from training import assert_same


@pytest.fixture(autouse=True)
def nothing_registered():
    registered._of_class.clear()
    yield
    registered._of_class.clear()


class Gate(torch.autograd.Function):
    """Passes what is above zero; saves its result, of which the backward pass reads the sign."""

    @staticmethod
    def forward(ctx, x):
        y = x.clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ~(ctx.saved_tensors[0] <= 0)


class Cut(torch.autograd.Function):
    """Clips to 0 and 6, and drops what a mask says; also saves a tensor of which it reads the shape."""

    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.25).to(x.dtype) / 0.75
        ctx.save_for_backward(x, mask, x * 2)
        return x.clamp(0, 6) * mask

    @staticmethod
    def backward(ctx, gradient):
        x, mask, other = ctx.saved_tensors
        return (gradient * mask * ((x > 0) & (x < 6))).view(other.shape)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient * ctx.saved_tensors[0].square()


class Network(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 10, 3)
        self.function = function

    def forward(self, x):
        return self.last(self.function.apply(self.first(x)) * 2).mean((2, 3))


def kept(function, need, policy="lossless", steps=5):
    """How each saved tensor of the function is kept, once steps have had the bits of plain ones."""
    if need is not None:
        stash_torch.register_need(function, need)
    batches = [models.batch(4, 32, seed) for seed in range(steps)]
    if policy == "lossless":
        session = assert_same(Network(function), batches, policy)
    else:
        network = Network(function)
        session = stash_torch.compress(network, policy)
        session.measures = False
        with session:
            for x, _ in batches:
                network(x).square().mean().backward()
    found = {slot.name: group.how() for group in session.plans[0].groups.values() for slot in group.slots
             if session.plans[0].nodes[slot.node].name == function._backward_cls.__name__}
    assert session.counts["steps"] >= steps - 2
    return found, session


def test_what_is_not_registered_stays():
    assert kept(Gate, None)[0] == {}


@pytest.mark.parametrize("function, need, ways", [
    (Gate, "sign", {"tensors[0]": "sign_mask"}),
    (Gate, {0: "sign"}, {"tensors[0]": "sign_mask"}),
    (Gate, "exact_value", {"tensors[0]": "bitmap"}),
    (Cut, {0: ("range", 0, 6), 1: "mask", 2: "shape"},
     {"tensors[0]": "range_mask", "tensors[1]": "bits and a scale", "tensors[2]": "shape only"}),
    (Cut, {1: "mask"}, {"tensors[1]": "bits and a scale"}),
])
def test_lossless_forms(function, need, ways):
    found, session = kept(function, need)
    assert found == ways
    assert session.counts["recorded steps"] <= 2


@pytest.mark.parametrize("need, policy, way", [
    ("value", "fp8", "fp8"), ("value", "bf16", "bf16"), ("fine_value", "fp8", "fp16"), ("fine_value", "fp10", "fp16"),
    ("fine_value", "bf16", "bf16"), ("exact_value", "fp8", "raw"), ("value", "lossless", "raw")])
def test_values_may_be_rounded(need, policy, way):
    assert kept(Cube, need, policy)[0] == {"tensors[0]": way}


@pytest.mark.parametrize("need", ["sign", "shape", ("range", -1, 1)])
def test_what_is_wrong_is_found_in_the_recorded_step(need, caplog):
    """Cube reads values. Every step still has the bits of a plain one."""
    with caplog.at_level(logging.WARNING, "stash_torch"):
        found, _ = kept(Cube, need)
    assert found == {"tensors[0]": "raw"}
    assert len([each for each in caplog.messages if "what was registered for tensors[0] is wrong" in each]) == 1


def test_a_mask_that_is_none_stays_as_it_is():
    assert kept(Cube, "mask")[0] == {"tensors[0]": "raw"}


def test_a_backward_pass_that_fails_on_other_values(caplog):
    class Careful(Gate):
        @staticmethod
        def backward(ctx, gradient):
            if ctx.saved_tensors[0].max() == 1:
                raise ValueError("made to fail")
            return Gate.backward(ctx, gradient)

    assert kept(Careful, "sign")[0] == {"tensors[0]": "bitmap"}
    assert any("failed on other values" in each for each in caplog.messages)


def test_a_random_backward_pass_is_left_alone_and_draws_the_same_numbers():
    class Noisy(Gate):
        @staticmethod
        def backward(ctx, gradient):
            return Gate.backward(ctx, gradient) * torch.rand_like(gradient)

    assert kept(Noisy, "sign")[0] == {"tensors[0]": "bitmap"}


def test_another_function_of_the_same_name_is_not_touched():
    def same_name():
        class Gate(Cube):
            pass
        return Gate

    stash_torch.register_need(Gate, "sign")
    assert kept(same_name(), None)[0] == {}


def test_the_need_of_the_second_call_counts():
    stash_torch.register_need(Gate, "exact_value")
    assert kept(Gate, "sign")[0] == {"tensors[0]": "sign_mask"}


@pytest.mark.parametrize("function, need, error, text", [
    (3, "sign", TypeError, "function: expected a subclass of torch.autograd.Function, got 3"),
    (nn.ReLU, "sign", TypeError, "function: expected a subclass"),
    (Gate, "signs", ValueError, "need: expected one of shape, sign, mask, .* got 'signs'"),
    (Gate, "range", ValueError, r'or \("range", lower, upper\), got'),
    (Gate, ("range", 6, 0), ValueError, "with lower < upper"),
    (Gate, ("range", 0, float("nan")), ValueError, "with lower < upper"),
    (Gate, None, ValueError, "got None"),
    (Gate, {}, ValueError, "at least one position"),
    (Gate, {-1: "sign"}, ValueError, "0 or more, got -1"),
    (Gate, {"y": "sign"}, ValueError, "0 or more, got 'y'"),
    (Gate, {0: "sign", 1: "signs"}, ValueError, "got 'signs'"),
])
def test_wrong_arguments(function, need, error, text):
    with pytest.raises(error, match=text):
        stash_torch.register_need(function, need)
    assert not registered._of_class
