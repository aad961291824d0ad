# SPDX-License-Identifier: Apache-2.0
"""What backward passes read of a tensor: shapes and signs that stand in for values, and where policies round to which format."""

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import stash_torch
from stash_torch import checks, forms, needs, norms, recipes
from training import assert_same, classify

INDEX = torch.tensor([5, 0, 5, 2, 1, 7, 3, 3])

SHAPE_READERS = {
    "GatherBackward0": lambda x: x.gather(1, INDEX[:3].view(1, 3, 1, 1).expand(x.shape[0], 3, 16, 16)),
    "IndexAddBackward0": lambda x: torch.zeros_like(x).index_add(1, INDEX, x),
    "ReflectionPad2DBackward0": lambda x: functional.pad(x, (1, 2, 0, 1), mode="reflect"),
    "ReplicationPad2DBackward0": lambda x: functional.pad(x, (1, 2, 0, 1), mode="replicate"),
}


class Between(nn.Module):
    """An op on what a convolution has made, before another one."""

    def __init__(self, op, channels=8):
        super().__init__()
        self.first, self.op, self.second = nn.Conv2d(3, 8, 3, padding=1), op, nn.LazyConv2d(10, 1)

    def forward(self, x):
        return self.second(self.op(self.first(x))).mean((2, 3))


def batches(scale=1.0, steps=3):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(4, 3, 16, 16, generator=generator) * scale, torch.arange(4)) for _ in range(steps)]


def between(op):
    network = Between(op)
    network(batches()[0][0])  # makes what is lazy
    return network


def slots_of(session, name, slot):
    plan = session.plans[0]
    return [(each, group) for group in plan.groups.values() for each in group.slots
            if plan.nodes[each.node].name == name and each.name == slot]


def nodes_of_tables():
    """Node class -> what tables say that it keeps."""
    kept = {}
    for name, op in recipes.OPS.items():
        kept.setdefault(name, set()).update(op.settings, (slot for _, slot in op.inputs if slot is not None))
    tables = (needs.SHAPES, needs.SIGNS, needs.RANGES, needs.VALUES, needs.VALUES_WHERE, needs.FINES, needs.POOL_INDICES)
    for name, slot in (entry for table in tables for entry in table):
        kept.setdefault(name, set()).add(slot)
    del kept[recipes.BACKWARD_HOOKS]  # written in Python
    return kept


@pytest.mark.parametrize("name", sorted(nodes_of_tables()))
def test_nodes_keep_what_tables_name(name):
    """Also those that only a GPU has."""
    kind = getattr(torch._C._functions, name, None)
    if kind is None:
        pytest.skip(f"torch {torch.__version__} has no {name}")
    assert {each for each in nodes_of_tables()[name] if not hasattr(kind, "_saved_" + each)} == set()


@pytest.mark.parametrize("eps", [1e-6, torch.finfo(torch.float32).eps])
def test_a_fused_rms_norm_gives_its_result_again(eps):
    x, weight = torch.randn(4, 16), torch.randn(16)
    result, scale = torch.ops.aten._fused_rms_norm(x, [16], weight, eps)
    settings = {"normalized_shape": (16,), "exact": True}
    assert torch.equal(norms.rms_norm((x, weight, scale), {**settings, "eps": eps}), result)
    assert eps in norms.RMS_EPSILONS[1]
    with pytest.raises(RuntimeError, match="epsilon"):
        norms.rms_norm((x, weight, scale), {**settings, "eps": 1e-2})


def test_every_entry_that_stands_in_for_values_holds_here():
    assert checks.disabled() == frozenset()


@pytest.mark.parametrize("name", list(SHAPE_READERS))
def test_only_the_shape_is_kept(name):
    session = assert_same(between(SHAPE_READERS[name]), batches())
    slot = "source" if name == "IndexAddBackward0" else "self"
    ((_, group),) = slots_of(session, name, slot)
    assert group.needs == {needs.SHAPE} and group.kept_bytes == 0


@pytest.mark.parametrize("name, slot, op", [
    ("LeakyReluBackward0", "self", lambda x: functional.leaky_relu(x, 0.2)),
    ("LeakyReluBackward1", "result", lambda x: functional.avg_pool2d(functional.leaky_relu_(x * 1, 0.2), 2)),
])
def test_of_leaky_relu_a_sign_is_kept(name, slot, op):
    session = assert_same(between(op), batches())
    ((_, group),) = slots_of(session, name, slot)
    assert group.how() == "sign_mask"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -0.0])
@pytest.mark.parametrize("in_place", [False, True])
def test_leaky_relu_of_special_values(in_place, value):
    """Its reader takes a NaN for a value below 0; a mask of signs does not."""
    network = nn.Conv2d(3, 8, 3)

    def gradients(step):
        x = network(batches()[0][0])
        with torch.no_grad():
            x.view(-1)[::7] = value if step else 1.0  # the step that is recorded has no special value
        return torch.autograd.grad(functional.leaky_relu(x, 0.2, inplace=in_place).sum(), list(network.parameters()))

    plain = [gradients(step) for step in range(3)]
    with stash_torch.compress(network) as session:
        session.measures = False
        ours = [gradients(step) for step in range(3)]
    assert session.counts["steps"] == 2
    for a, b in zip(plain, ours):
        assert all(torch.equal(one, other) and not one.isnan().any() for one, other in zip(a, b))


def gradients_of(network, x, target):
    network.zero_grad()
    classify(network, x, target).backward()
    return torch.cat([each.grad.flatten() for each in network.parameters()])


def test_attention_is_rounded_to_sixteen_bits_where_e_is_raised_to_it():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inputs, self.head = nn.ModuleList(nn.Linear(12, 64) for _ in range(3)), nn.Linear(64, 10)

        def forward(self, x):
            query, key, value = (each(x.flatten(2).view(4, 64, 12)).view(4, 64, 4, 16).transpose(1, 2) for each in self.inputs)
            return self.head(functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2).mean(1))

    session, error = rounded(Attention())
    name = "ScaledDotProductFlashAttentionForCpuBackward0"
    hows = {slot: slots_of(session, name, slot)[0][1].how() for slot in ("query", "key", "value")}
    assert hows == {"query": "fp16", "key": "fp16", "value": "fp8"}
    assert error < 0.05


def rounded(network, scale=1.0):
    """The session, and the relative error of a step that follows a plan of fp8."""
    x, target = batches(scale)[0]
    right = gradients_of(network, x, target)
    with stash_torch.compress(network, "fp8") as session:
        session.measures = False
        gradients_of(network, x, target)
        ours = gradients_of(network, x, target)
    assert session.counts["steps"] == 1
    return session, ((ours - right).norm() / right.norm()).item()


@pytest.mark.parametrize("op, name, how", [
    (lambda x: x.pow(2), "PowBackward0", "fp8"),
    (lambda x: (x + 9).pow(0.5), "PowBackward0", "raw"),
    (functional.elu, "EluBackward0", "fp8"),
    (functional.selu, "EluBackward0", "raw"),
    (torch.tanh, "TanhBackward0", "fp16"),
])
def test_where_the_setting_of_an_op_decides(op, name, how):
    session, error = rounded(between(op))
    slot = "result" if name == "TanhBackward0" else "self"
    assert slots_of(session, name, slot)[0][1].how() == how
    assert error < 0.1


def test_rows_that_a_norm_scales_up_are_not_rounded_coarsely():
    """As the token of a class that starts near zero: fp8 has no bits for it."""
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.norm, self.head = nn.Conv2d(3, 64, 4, 4), nn.LayerNorm(64), nn.Linear(64, 10)
            self.token = nn.Parameter(torch.randn(1, 1, 64) * 1e-6)

        def forward(self, x):
            x = self.cut(x).flatten(2).transpose(1, 2)
            return self.head(self.norm(torch.cat([self.token.expand(len(x), -1, -1), x], 1))[:, 0])

    session, error = rounded(Token())
    assert slots_of(session, "NativeLayerNormBackward0", "input")[0][1].how() == "fp16"
    assert error < 0.01


@pytest.mark.parametrize("spread, mean, how", [(0.5, 1.0, "fp8"), (2e-2, 5.3, "fp16"), (2e-2, 50.0, "raw")])
def test_what_a_norm_computes_again_from_rounded_values_is_not_off(spread, mean, how):
    """Its input is near a constant: what is small next to that is all that the norm leaves."""
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.head = nn.Linear(12, 64), nn.LayerNorm(64), nn.Linear(64, 10)
            nn.init.normal_(self.first.weight, std=spread / 12 ** 0.5)
            nn.init.constant_(self.first.bias, mean)

        def forward(self, x):
            x = self.first(x.flatten(2).view(4, -1, 12))
            return self.head(self.norm(x * 0.5) + functional.silu(x)).mean(1)

    session, error = rounded(Scaled())
    assert slots_of(session, "NativeLayerNormBackward0", "input")[0][1].how() == "computed again by mul"
    assert slots_of(session, "SiluBackward0", "self")[0][1].how() == how
    assert error < 0.1


def test_what_is_small_throughout_is_not_rounded_coarsely():
    session, error = rounded(between(lambda x: x * 1e-5))
    assert isinstance(slots_of(session, "ConvolutionBackward0", "input")[0][1].form, forms.Narrow)
    assert slots_of(session, "ConvolutionBackward0", "input")[0][1].how() == "fp16"
    assert error < 0.01
