# SPDX-License-Identifier: Apache-2.0
"""recompute="all": convolutions, matrix products and attention run again, too, with the same bits."""

import contextlib
import copy

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import memory
import models
import stash_torch
from test_memory import stepper
from training import assert_same, classify


class Convolutions(nn.Sequential):
    """Transposed, grouped, with and without bias."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU(),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4), nn.GELU(), nn.MaxPool2d(3, 2, 1),
            nn.AvgPool2d(2, ceil_mode=True), nn.ConvTranspose2d(8, 8, 3, 2, output_padding=1, bias=False),
            nn.SiLU(), nn.Conv2d(8, 8, 1), nn.Tanh(),
            nn.Flatten(), nn.LazyLinear(10))


class Attention(nn.Module):
    """query: how it comes about: three views of one product, or products of their own."""

    def __init__(self, kind, width=32, heads=4):
        super().__init__()
        self.kind, self.heads = kind, heads
        self.embed, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        self.products = nn.ModuleList(nn.Linear(width, width, bias=bias) for bias in (False, True, False))
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 10)

    def heads_of(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, query, key, value):
        if self.kind == "explicit":
            return torch.softmax(query @ key.transpose(-2, -1) * query.shape[-1]**-0.5, -1) @ value
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril() if self.kind == "masked" else None
        return functional.scaled_dot_product_attention(query, key, value, mask, is_causal=self.kind == "causal")

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        y = self.norm(x)
        parts = self.joined(y).chunk(3, -1) if self.kind == "joined" else [each(y) for each in self.products]
        if self.kind == "cached":  # an empty cache, as of Hugging Face
            parts[1:] = [torch.cat([torch.empty(0), each], 1) for each in parts[1:]]
        y = self.attend(*map(self.heads_of, parts)).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        x = x + self.mlp(x)
        return self.head(x.mean(1))


KINDS = ["joined", "apart", "masked", "causal", "explicit", "cached"]
NETWORKS = {"convolutions": Convolutions, "small_vgg": models.SmallVgg, "unet": models.UNet,
            "transformer": lambda: models.Transformer(dropout=0),
            **{f"attention, {kind}": lambda kind=kind: Attention(kind) for kind in KINDS}}


def names_in(session):
    return {name for group in session.plans[0].groups.values() if group.recipe for name in group.recipe.names}


def raw_bytes(session):
    return sum(group.kept_bytes for group in session.plans[0].groups.values())


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_same_bits(name):
    network = NETWORKS[name]()
    batches = [models.batch(4, 32, seed) for seed in range(4)]
    network(batches[0][0])  # lazy layers
    session = assert_same(network, batches, recompute="all")
    assert session.counts["steps"] == len(batches) - 1
    assert names_in(session) & {"convolution", "addmm", "mm", "bmm"}
    cheap = assert_same(network, batches)
    assert not names_in(cheap) & {"convolution", "addmm", "mm", "bmm"}
    assert raw_bytes(session) < raw_bytes(cheap)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "explicit"])
def test_queries_keys_and_values_are_computed_again(kind):
    session = assert_same(Attention(kind), [models.batch(4, 32, seed) for seed in range(3)], recompute="all")
    plan = session.plans[0]
    node = next(index for index, each in enumerate(plan.nodes) if each.name.startswith("ScaledDotProduct"))
    read = [group for group in plan.groups.values()
            if any(slot.node == node and slot.name in ("query", "key", "value") for slot in group.slots)]
    assert read and all(group.recipe is not None for group in read)


@pytest.mark.parametrize("policy", ["fp16", "fp8"])
def test_under_policies_that_round(policy):
    network = models.UNet()
    step = stepper(network)
    with stash_torch.compress(network, policy, recompute="all") as session:
        losses = [step() for _ in range(5)]
    assert all(torch.isfinite(loss) for loss in losses) and session.counts["steps"] == 4


def test_none_runs_nothing_again():
    session = assert_same(models.UNet(), [models.batch(4, 32, seed) for seed in range(3)], recompute="none")
    assert not names_in(session)


def test_a_budget_that_only_all_keeps():
    network = models.UNet()
    step = stepper(network)

    def peak(**options):
        with stash_torch.compress(network, **options) as session:
            for _ in range(9):
                step()
            return session, memory.peak_of(step)[0]

    cheap, least = peak()[1], peak(recompute="all")[1]
    assert least < 0.9 * cheap
    budget = (cheap + least) // 2
    with pytest.raises(stash_torch.BudgetError):
        peak(budget=budget)
    session, found = peak(budget=budget, recompute="all")
    assert found <= 1.01 * budget
    assert "convolution" in session.report()


def test_attention_with_dropout_is_not_computed_again():
    class Dropping(Attention):
        def attend(self, query, key, value):
            return functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)

    session = assert_same(Dropping("apart"), [models.batch(4, 32, seed) for seed in range(3)], recompute="all")
    assert not any("attention" in name for name in names_in(session))


def test_a_mask_that_comes_later_is_a_deviation():
    """Without it the recomputation would not know of it."""
    class Later(Attention):
        def attend(self, query, key, value):
            self.kind = "apart" if self.calls < 3 else "masked"
            self.calls += 1
            return super().attend(query, key, value)

    network = Later("apart")
    network.calls, network.mlp = 0, nn.Tanh()
    session = assert_same(network, [models.batch(4, 32, seed) for seed in range(6)], recompute="all")
    assert any("attention" in name for plan in session.plans for group in plan.groups.values() if group.recipe
               for name in group.recipe.names)
    assert session.counts["deviations"] + session.counts["recorded steps"] > 1


def test_a_weight_that_changes_in_between_is_an_error():
    """The first convolution's weight is not saved by autograd: a plain step takes the change."""
    network = models.UNet()
    x, target = models.batch(4, 32)
    with stash_torch.compress(network, recompute="all") as session:
        session.measures = False
        for _ in range(2):
            functional.cross_entropy(network(x), target).backward()
        loss = functional.cross_entropy(network(x), target)
        with torch.no_grad():
            network.down1[0].weight.mul_(2)
        with pytest.raises(RuntimeError, match="in-place|changed|moved|modified"):
            loss.backward()


@pytest.mark.parametrize("name", ["unet", "attention, joined", "convolutions"])
def test_under_autocast(name):
    def loss_of(network, x, target):
        with torch.autocast("cpu", torch.bfloat16):
            return functional.cross_entropy(network(x), target)

    network = NETWORKS[name]()
    batches = [models.batch(4, 32, seed) for seed in range(3)]
    network(batches[0][0])
    session = assert_same(network, batches, loss_of=loss_of, recompute="all")
    assert names_in(session) & {"convolution", "addmm", "mm", "bmm"}


def test_channels_last():
    network = models.UNet().to(memory_format=torch.channels_last)
    batches = [(x.to(memory_format=torch.channels_last), y) for x, y in (models.batch(4, 32, seed) for seed in range(3))]
    assert "convolution" in names_in(assert_same(network, batches, recompute="all"))


def test_gradients_of_gradients():
    def loss_of(network, x, target):
        loss = classify(network, x, target)
        gradients = torch.autograd.grad(loss, list(network.parameters()), create_graph=True, allow_unused=True)
        return loss + sum(each.square().sum() for each in gradients if each is not None)

    assert_same(Attention("explicit"), [models.batch(4, 32, seed) for seed in range(3)], loss_of=loss_of, recompute="all")


@pytest.mark.parametrize("recompute", ["cheap", "all"])
def test_weights_that_the_forward_pass_changes(recompute):
    """An embedding with max_norm scales its rows before it reads them, and plain torch does not mind in the backward pass."""
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.head = nn.Embedding(50, 64, max_norm=1.0), nn.LayerNorm(64), nn.Linear(64, 10)

        def forward(self, x):
            words = (x.flatten(1)[:, :64] * 49).long()
            y = self.norm(torch.tanh(self.embed(words))) + self.norm(torch.sigmoid(self.embed(words.flip(1))))
            return self.head(functional.gelu(y).mean(1))

    batches = [(torch.rand(8, 3, 32, 32), torch.randint(0, 10, (8,))) for _ in range(4)]
    assert_same(Words(), batches, recompute=recompute)


def test_weights_that_are_updated_in_the_backward_pass():
    def step(network, context):
        def update(parameter):
            parameter.data.add_(parameter.grad, alpha=-0.1)
            parameter.grad = None

        for each in network.parameters():
            each.register_post_accumulate_grad_hook(update)
        with context:
            for seed in range(4):
                classify(network, *models.batch(4, 32, seed)).backward()
        return [each.detach() for each in network.parameters()]

    network = models.UNet()
    session = stash_torch.compress(other := copy.deepcopy(network), recompute="all")
    session.measures = False
    plain, ours = step(network, contextlib.nullcontext()), step(other, session)
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))
    assert session.counts["steps"] == 3 and "convolution" in names_in(session)


def test_wrong_words_are_refused():
    with pytest.raises(ValueError, match="recompute: expected one of cheap, all, none, got 'some'"):
        stash_torch.compress(models.UNet(), recompute="some")
