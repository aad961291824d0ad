# SPDX-License-Identifier: Apache-2.0
"""Programs that do more than one forward and one backward pass a step."""

import contextlib
import copy
import gc
import pickle

import pytest
import torch
import torch.nn.functional as functional
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

import models
import stash_torch
from training import assert_same, classify


def batches(steps=4, count=4, side=32):
    return [models.batch(count, side, seed) for seed in range(steps)]


def test_gradient_accumulation():
    def loss_of(network, x, target):
        classify(network, x[:2], target[:2]).backward()
        return classify(network, x[2:], target[2:])

    session = assert_same(models.UNet(), batches(), loss_of=loss_of)
    assert session.counts["steps"] == 7


def test_a_smaller_last_batch_and_many_sizes():
    data = [models.batch(count, 32, count) for count in (4, 4, 3, 4, 3, 2, 4, 2)]
    session = assert_same(models.UNet(), data)
    assert len(session.plans) == 3
    assert session.counts["steps"] >= 2


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.left, self.right = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.first(x)
        x = functional.silu(self.left(x)) if self.count % 2 else functional.gelu(self.right(x)) * 2
        self.count += 1
        return self.head(x.mean((2, 3)))


def test_branches_that_change_from_step_to_step():
    network = Branches()
    network.count = 0
    session = assert_same(network, batches(9))
    assert len(session.plans) == 2
    assert session.counts["steps"] >= 4


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_inside_is_left_alone(reentrant):
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.first = models.UNet(), nn.Conv2d(3, 3, 1)
            self.block = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.SiLU())

        def forward(self, x):
            return self.net(checkpoint(self.block, self.first(x) if reentrant else x, use_reentrant=reentrant))

    session = assert_same(Network(), batches())
    assert session.counts["steps"] == 3


def test_other_hooks_inside_are_left_alone():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = models.UNet()

        def forward(self, x):
            with torch.autograd.graph.save_on_cpu():
                return self.net(x)

    session = assert_same(Network(), batches())
    assert session.counts["slots with hooks of others"] > 0
    assert "what hooks of others have, as those of torch.utils.checkpoint" in session.report()


def test_second_backward_of_one_graph():
    def loss_of(network, x, target):
        loss = classify(network, x, target)
        loss.backward(retain_graph=True)
        return loss

    session = assert_same(models.UNet(), batches(), loss_of=loss_of)
    assert session.counts["steps"] == 3


def test_gradient_penalty():
    def loss_of(network, x, target):
        x = x.clone().requires_grad_()
        loss = classify(network, x, target)
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + gradient.square().sum()

    session = assert_same(models.UNet(), batches(), loss_of=loss_of)
    assert session.counts["steps"] == 6  # two passes a step


def test_backward_hooks_of_modules():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 10, 1)
            self.join = Join()
            for each in (self.norm, self.join):
                each.register_full_backward_hook(lambda module, before, after: None)

        def forward(self, x):
            x = self.first(x)
            return self.last(self.join(self.norm(x), x)).mean((2, 3))

    plan = assert_same(Network(), batches()).plans[0]
    assert any("silu" in group.recipe.names for group in plan.groups.values() if group.recipe)


class Join(nn.Module):
    def forward(self, x, y):
        return functional.silu(x) + y


def test_transforms_of_torch_func():
    """Their graphs are their own. Those around them follow plans."""
    def loss_of(network, x, target):
        values = dict(network.named_parameters())
        one = torch.func.grad(lambda values, x: torch.func.functional_call(network, values, (x[None],)).square().sum())
        each = torch.func.vmap(one, (None, 0))({name: value.detach() for name, value in values.items()}, x)
        return classify(network, x, target) + sum(value.square().sum() for value in each.values())

    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(6272, 10))
    session = assert_same(network, batches(), loss_of=loss_of)
    assert session.counts["steps"] == 3


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.saved_tensors[0]


def test_custom_function_keeps_its_own():
    session = assert_same(models.UNet(), batches(), loss_of=lambda n, x, t: functional.cross_entropy(Square.apply(n(x)), t))
    assert session.counts["steps"] == 3


def test_two_networks_two_optimizers():
    torch.manual_seed(0)
    maker, judge = nn.Sequential(nn.Linear(16, 3 * 32 * 32), nn.Unflatten(1, (3, 32, 32))), models.UNet(classes=1)

    def run(maker, judge, context):
        torch.manual_seed(1)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (maker, judge)]
        with context:
            for step in range(6):
                x, _ = models.batch(4, 32, step)
                optimizers[1].zero_grad()
                real = functional.softplus(-judge(x)).mean()
                fake = functional.softplus(judge(maker(torch.randn(4, 16)).detach())).mean()
                (real + fake).backward()
                optimizers[1].step()
                optimizers[0].zero_grad()
                functional.softplus(-judge(maker(torch.randn(4, 16)))).mean().backward()
                optimizers[0].step()

    ours = copy.deepcopy((maker, judge))
    run(maker, judge, contextlib.nullcontext())
    session = stash_torch.compress(ours)
    run(*ours, session)
    for plain, other in zip((maker, judge), ours):
        for a, b in zip(plain.state_dict().values(), other.state_dict().values()):
            assert torch.equal(a, b)
    assert session.counts["steps"] >= 8


def test_evaluation_between_steps_with_and_without_gradients():
    def loss_of(network, x, target):
        network.eval()
        with torch.no_grad():
            network(x)
        network(x[:1])  # builds a graph that nobody walks
        network.train()
        return classify(network, x, target)

    session = assert_same(models.UNet(), batches(6), loss_of=loss_of)
    assert session.counts["steps"] >= 4


def test_graphs_that_nobody_walks_are_not_held():
    network = models.UNet()
    x, target = models.batch(2, 32)
    with stash_torch.compress(network) as session:
        references = []
        for _ in range(5):
            y = network(x)
            references.append(StorageWeakRef(y.grad_fn._saved_self.untyped_storage()
                                             if hasattr(y.grad_fn, "_saved_self") else
                                             y.grad_fn.next_functions[0][0]._saved_input.untyped_storage()))
            del y
            assert references[-1].expired()
        for _ in range(3):
            classify(network, x, target).backward()
    assert session.counts["steps"] >= 1
    assert not session.counts["failures"]


def test_an_exception_in_the_middle_of_a_step():
    class Stop(Exception):
        pass

    def loss_of(network, x, target):
        handle = network.join1.register_forward_hook(lambda *_: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            network(x)
        handle.remove()
        return classify(network, x, target)

    session = assert_same(models.UNet(), batches(6), loss_of=loss_of)
    assert session.counts["steps"] >= 3


def test_what_the_user_changes_in_place_is_noticed():
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 3))
    x = torch.randn(2, 3, 32, 32)
    kept = []
    network[0].register_forward_hook(lambda module, inputs, output: kept.append(output))
    with stash_torch.compress(network) as session:
        network(x).sum().backward()
        network(x).sum().backward()
        assert session.counts["steps"] == 1
        y = network(x)
        with torch.no_grad():
            kept[-1].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_nothing_stays_after_the_last_step():
    from stash_torch.entries import Entry

    network = models.UNet()
    with stash_torch.compress(network) as session:
        for x, target in batches(5):
            classify(network, x, target).backward()
        assert session.counts["steps"] == 4
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Entry)]


def test_entries_go_with_the_slots_and_not_with_the_next_step():
    from stash_torch.entries import Entry

    network = models.UNet()
    with stash_torch.compress(network):
        for x, target in batches(3):
            classify(network, x, target).backward()
            gc.collect()
            assert not [each for each in gc.get_objects() if isinstance(each, Entry)]


def test_models_stay_what_they_are():
    network = models.UNet()
    with stash_torch.compress(network):
        x, target = models.batch(2, 32)
        classify(network, x, target).backward()
        copy.deepcopy(network)
        pickle.loads(pickle.dumps(network))


def test_enable_and_close_and_enter_again():
    network = models.UNet()
    x, target = models.batch(2, 32)
    session = stash_torch.enable(network)
    with pytest.raises(RuntimeError, match="expected a session that is not entered"):
        session.__enter__()
    for _ in range(2):
        classify(network, x, target).backward()
    session.close()
    session.close()
    classify(network, x, target).backward()
    assert session.counts["steps"] == 1
    with session:
        classify(network, x, target).backward()
    assert session.counts["steps"] == 2


def test_report_names_savers_and_forms():
    network = models.SmallVgg()
    x, target = models.batch(2, 32)
    session = stash_torch.compress(network)
    assert "no step has been recorded" in session.report()
    with session:
        for _ in range(2):
            classify(network, x, target).backward()
    text = session.report()
    for word in ("lossless", "sign_mask", "ReluBackward0.result", "MiB", "steps: 1"):
        assert word in text


@pytest.mark.parametrize("arguments, error, text", [
    ((3,), TypeError, "model: expected a torch.nn.Module"),
    ((nn.ReLU(), "fp7"), ValueError, "policy: expected one of lossless"),
])
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        stash_torch.compress(*arguments)


def test_backward_after_the_block():
    """In a recorded step, and in one that follows the plan."""
    network, plain = models.UNet(), models.UNet()
    plain.load_state_dict(network.state_dict())
    x, target = models.batch(2, 32)
    session = stash_torch.compress(network)
    for _ in range(2):
        for each in (network, plain):
            each.zero_grad()
        with session:
            loss = classify(network, x, target)
        loss.backward()
        with session:
            classify(network, x, target).backward()
        for _ in range(2):
            classify(plain, x, target).backward()
        for a, b in zip(network.parameters(), plain.parameters()):
            assert torch.equal(a.grad, b.grad)
    assert not session.counts["failures"]


@pytest.mark.parametrize("name, part", [("stash_torch.step.Recorder", "add"), ("stash_torch.replay.Replay", "node"),
                                        ("stash_torch.choose.Chooser", "plan")])
def test_a_failure_of_ours_is_not_one_of_the_step(monkeypatch, name, part):
    def fails(*_):
        raise ValueError("made to fail")

    network, plain = models.UNet(), models.UNet()
    plain.load_state_dict(network.state_dict())
    x, target = models.batch(2, 32)
    with stash_torch.compress(network) as session:
        if part == "node":  # there has to be a plan to follow
            classify(network, x, target).backward()
        monkeypatch.setattr(f"{name}.{part}", fails)
        classify(network, x, target).backward()
        monkeypatch.undo()
        classify(network, x, target).backward()
    for _ in range(3 if part == "node" else 2):
        classify(plain, x, target).backward()
    for a, b in zip(network.parameters(), plain.parameters()):
        assert torch.equal(a.grad, b.grad)
    assert session.counts["failures"] + session.counts["steps that could not be planned"] == 1


@pytest.mark.parametrize("around", [torch.inference_mode, lambda: torch.device("meta"), torch.autograd.graph.save_on_cpu])
def test_what_is_tried_at_first_is_tried_apart(around):
    """No mode or hook of the program changes what tiny ops say of this release of torch."""
    from stash_torch import checks

    checks.disabled.cache_clear()
    with around():
        session = stash_torch.enable(models.UNet())
        session.close()
    assert not session.disabled


def test_a_graph_from_before_the_session_is_left_alone():
    """Nodes of it may be freed, or have inputs that were written over."""
    weight = torch.randn(8, requires_grad=True)
    loss = functional.silu(weight * 2).sum()
    loss.backward()
    session = stash_torch.compress(models.UNet())
    with session:
        assert (loss + 1).requires_grad
    assert not session.counts["failures"]
