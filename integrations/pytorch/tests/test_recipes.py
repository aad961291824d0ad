# SPDX-License-Identifier: Apache-2.0
"""Ops that are run again: each gives the saved bits, is found by its node's name, and a wrong one is refused."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import stash_torch
from stash_torch import recipes
from training import assert_same, classify

ACTIVATIONS = {
    "relu": torch.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "hardtanh": lambda x: functional.hardtanh(x, -0.5, 0.75),
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "softplus": functional.softplus,
    "mish": functional.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "square": lambda x: x.pow(2),
    "scaled": lambda x: (x * 0.3 - x / 7) * x,
    "rolled": lambda x: torch.roll(x, (1, -2), (2, 3)).relu(),
    "negated": lambda x: (-x).relu(),
    "sliced": lambda x: torch.cat([x[:, :4], x[:, 4:]], 1).relu(),
    "dropped": lambda x: torch.native_dropout(x, 0.3, True)[0],  # as a GPU has it
    "transposed": lambda x: functional.silu(x.transpose(2, 3).contiguous()),
    "leaky_relu_in_place": lambda x: functional.leaky_relu_(x * 1.5, 0.1),
    "elu_in_place": lambda x: functional.elu_(x * 1.5),
    "celu": lambda x: functional.celu(x, 0.5),
    "celu_in_place": lambda x: functional.celu_(x * 1.5),
    "selu": functional.selu,
    "glu": lambda x: functional.glu(torch.cat([x, x], 1), 1),
    "log_sigmoid": functional.logsigmoid,
    "prelu": lambda x: functional.prelu(x, torch.full((8,), 0.2).requires_grad_() * 1),
    "sine": lambda x: torch.sin(x * 3),
    "cosine": lambda x: torch.cos(x * 3),
    "root": lambda x: torch.sqrt(x.abs() + x.pow(2)),
    "logarithm": lambda x: torch.log(torch.exp(x)) + torch.log1p(x.pow(2)),
    "reciprocal": lambda x: torch.reciprocal(torch.exp(x)),
    "erf": torch.erf,
    "clamped": lambda x: x.clamp(-0.5, 0.75),
    "clamped_below": lambda x: x.clamp(min=0.1),
    "larger": lambda x: torch.maximum(x, x.sigmoid()),
    "smaller": lambda x: torch.minimum(x, x.sigmoid()),
    "flipped": lambda x: x.flip(3).relu(),
    "repeated": lambda x: x[:, :4].repeat(1, 2, 1, 1).relu(),
    "shuffled": lambda x: functional.pixel_unshuffle(functional.pixel_shuffle(x, 2), 2).relu(),
    "chosen_channels": lambda x: x.index_select(1, torch.arange(7, -1, -1)).relu(),
    "rows": lambda x: x[torch.tensor([3, 1, 1, 0])].relu(),
    "rows_of_the_second": lambda x: x[:, torch.arange(7, -1, -1)].relu(),
    "two_indices": lambda x: x[torch.arange(4)[:, None], torch.arange(7, -1, -1)].relu(),
    "gathered": lambda x: x.gather(1, torch.arange(7, -1, -1).view(1, 8, 1, 1).expand(x.shape)).relu(),
    "cropped": lambda x: functional.pad(x, (0, -2, -1, 0)).relu(),
    "not_padded": lambda x: functional.pad(x, (0, 0, 0, 0)).relu(),
    "nearest": lambda x: functional.interpolate(x, scale_factor=2).relu(),
    "nearest_exact": lambda x: functional.interpolate(x, size=(20, 24), mode="nearest-exact").relu(),
    "bilinear": lambda x: functional.interpolate(x, scale_factor=1.5, mode="bilinear").relu(),
    "bilinear_corners": lambda x: functional.interpolate(x, size=(20, 24), mode="bilinear", align_corners=True).relu(),
    "second_half": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1).relu(),
    "uneven_parts": lambda x: torch.cat(x.split([3, 5], 1)[::-1], 1).relu(),
    "unbound": lambda x: torch.stack(x.unbind(0)[::-1], 0).relu(),
    "unfolded": lambda x: x.unfold(2, 4, 4).flatten(2, 3).contiguous().relu(),
    "squeezed": lambda x: x[:, :, None, None].squeeze((2, 3)).relu(),
}

# Without parameters an epsilon belongs to nobody: the saved statistics have it.
BARE_NORMS = {
    "group": lambda: nn.GroupNorm(2, 8, eps=1e-3, affine=False),
    "layer": lambda: nn.LayerNorm([16, 16], eps=1e-6, elementwise_affine=False),
}

NORMS = {
    "batch": lambda: nn.BatchNorm2d(8),
    "group": lambda: nn.GroupNorm(2, 8, eps=1e-3),
    "layer": lambda: nn.LayerNorm([8, 16, 16], eps=1e-6),
}


class Stack(nn.Module):
    """Convolution, norm, activation, convolution: what stands between the two convolutions can be computed again."""

    def __init__(self, norm, activation):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3, padding=1), norm, nn.Conv2d(8, 4, 1)
        self.activation, self.head = activation, nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.second(self.activation(self.norm(self.first(x)))).mean((2, 3)))


def run(norm, activation):
    network = Stack(norm, activation)
    batches = [(torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))) for _ in range(3)]
    return assert_same(network, batches)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_activation_after_a_norm(activation):
    plan = run(nn.BatchNorm2d(8), ACTIVATIONS[activation]).plans[0]
    second = next(group for group in plan.groups.values()
                  if any(plan.nodes[slot.node].name == "ConvolutionBackward0" for slot in group.slots))
    assert second.recipe is not None, second


@pytest.mark.parametrize("norm", list(NORMS))
def test_a_norm_that_two_ways_lead_to(norm):
    plan = run(NORMS[norm](), ACTIVATIONS["sliced"]).plans[0]
    assert any("cat" in group.recipe.names for group in plan.groups.values() if group.recipe)


@pytest.mark.parametrize("norm", list(NORMS))
def test_a_norm_that_two_tensors_are_made_of(norm):
    """Both keep their results, so that nobody saves that of the norm."""
    plan = run(NORMS[norm](), lambda x: torch.sigmoid(x) + torch.tanh(x)).plans[0]
    names = [group.recipe.names for group in plan.groups.values() if group.recipe]
    assert sum(len(each) == 2 and "norm" in each[0] for each in names) == 2, names


def test_the_mask_of_a_dropout_is_kept_as_bits():
    plan = run(nn.BatchNorm2d(8), ACTIVATIONS["dropped"]).plans[0]
    (mask,) = (group for group in plan.groups.values() if group.dtype == torch.bool)
    assert mask.how() == "bits" and mask.kept_bytes <= mask.bytes // 8 + 64


def test_a_batch_norm_without_parameters_is_computed_again():
    plan = run(nn.BatchNorm2d(8, affine=False), functional.silu).plans[0]
    calls = [call for group in plan.groups.values() if group.recipe for call in group.recipe.calls]
    assert "statistics" in {call.fixed.get("way") for call in calls}


@pytest.mark.parametrize("norm", list(NORMS))
def test_norms_whose_epsilon_is_not_kept(norm):
    plan = run(NORMS[norm](), nn.SiLU(inplace=True)).plans[0]
    names = {name for group in plan.groups.values() if group.recipe for name in group.recipe.names}
    assert any("norm" in name for name in names), names


@pytest.mark.parametrize("norm", list(BARE_NORMS))
def test_norms_without_parameters(norm):
    plan = run(BARE_NORMS[norm](), nn.SiLU()).plans[0]
    names = {name for group in plan.groups.values() if group.recipe for name in group.recipe.names}
    assert any("norm" in name for name in names), names


def test_other_indices_in_the_same_place():
    """Of other values, or of another dimension with a result of the same shape."""
    class Turns(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.second, self.count = nn.Linear(32, 16), nn.LayerNorm(16), nn.Linear(16, 10), 0

        def forward(self, x):
            x = self.norm(self.first(x.flatten(1)[:, :2048].reshape(16, 16, 32)))
            other = torch.randperm(16)
            x = x[[(other,), (slice(None), other), (other[:, None], other)][[1, 1, 0, 2, 0, 2, 1, 0][self.count]]]
            self.count += 1
            return self.second(functional.silu(x)).mean((0, 1))[None].expand(4, -1)

    session = assert_same(Turns(), [(torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))) for _ in range(8)])
    assert any("index" in group.recipe.names for plan in session.plans for group in plan.groups.values() if group.recipe)


def test_another_epsilon_of_a_norm_without_parameters():
    """No parameter tells such norms apart, and none has to."""
    class Turns(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = [nn.LayerNorm((16, 16), eps=eps, elementwise_affine=False) for eps in (1e-5, 1e-1, 1.0)]
            self.net, self.count = Stack(nn.Identity(), nn.SiLU()), 0

        def forward(self, x):
            self.net.norm = self.norms[self.count % 3]
            self.count += 1
            return self.net(x)

    batches = [(torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))) for _ in range(6)]
    assert assert_same(Turns(), batches).counts["steps"] == 5


def test_a_norm_that_several_maps_are_made_of():
    """Each of them finds the norm's epsilon."""
    class Fan(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.head = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(8, 10)
            self.ways = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            parts = self.norm(self.first(x)).view(x.shape[0], x.shape[1], 4, 8)
            return self.head(sum(way(parts[:, :, place].contiguous()) for place, way in enumerate(self.ways)).mean(1))

    batches = [(torch.randn(8, 32, 16), torch.randint(0, 10, (8,))) for _ in range(3)]
    plan = assert_same(Fan(), batches).plans[0]
    assert sum(group.recipe is not None for group in plan.groups.values()) >= 4


def test_an_op_that_writes_a_value_which_autograd_does_not_keep_is_not_run_again():
    plan = run(nn.BatchNorm2d(8), lambda x: functional.silu(functional.pad(x, (1, 1, 1, 1), value=0.5))).plans[0]
    assert not any("constant_pad_nd" in group.recipe.names for group in plan.groups.values() if group.recipe)


@pytest.mark.parametrize("change", [lambda x, number: x * number, lambda x, number: x / number, lambda x, number: x + number,
                                    lambda x, number: number - x])
def test_a_plain_number_that_changes_from_step_to_step(change):
    """Autograd keeps a factor and a divisor; what adds a number is not run again. Gradients have eager's bits either way."""
    class Schedule(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head, self.count = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10), 0

        def forward(self, x):
            self.count += 1
            return self.head(functional.silu(change(self.second(functional.silu(self.first(x))), self.count / 7)))

    batches = [(torch.randn(64, 64), torch.randint(0, 10, (64,))) for _ in range(4)]
    plan = assert_same(Schedule(), batches).plans[0]
    names = {name for group in plan.groups.values() if group.recipe for name in group.recipe.names}
    assert names & {"silu", "mul", "div"} and not names & {"add", "sub", "rsub"}


def test_another_epsilon_in_the_same_place_is_a_deviation():
    """Two norms with equal parameters but unequal epsilon take turns; autograd does not tell them apart."""
    class Turns(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Stack(nn.GroupNorm(2, 8, eps=1e-5), nn.SiLU())
            self.norms = nn.ModuleList([nn.GroupNorm(2, 8, eps=1e-5), nn.GroupNorm(2, 8, eps=1e-1)])
            self.count = 0

        def forward(self, x):
            self.net.norm = self.norms[self.count % 2]
            self.count += 1
            return self.net(x)

    batches = [(torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))) for _ in range(6)]
    assert_same(Turns(), batches)


@pytest.mark.parametrize("fault", [1e-6, float("nan")])
def test_a_recipe_that_gives_other_bits_is_refused(monkeypatch, fault):
    right = recipes.OPS["SiluBackward0"]
    wrong = replace(right, run=lambda x, s: right.run(x, {**s, "fresh": False}) + fault)
    monkeypatch.setitem(recipes.OPS, "SiluBackward0", wrong)
    plan = run(nn.BatchNorm2d(8), nn.SiLU()).plans[0]
    assert not any("silu" in group.recipe.names for group in plan.groups.values() if group.recipe)


def test_parameters_are_never_kept_in_another_form():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 256), nn.ReLU(), nn.Linear(256, 10))
    x, target = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
    with stash_torch.compress(network, "fp8") as session:
        classify(network, x, target).backward()
    plan = session.plans[0]
    owned = {each.untyped_storage()._cdata for each in network.parameters()} | {x.untyped_storage()._cdata}
    assert not [slot for group in plan.groups.values() for slot in group.slots if slot.storage in owned]
