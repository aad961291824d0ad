# SPDX-License-Identifier: Apache-2.0
"""Tries, on tiny ops, that a mask or a shape may stand in for a saved tensor in this release of torch."""

import concurrent.futures
import functools
import logging

import torch
import torch.nn.functional as functional

from . import forms, needs
from .observe import observer
from .step import saved

log = logging.getLogger("stash_torch")

_MAPS = {
    "AdaptiveAvgPool2DBackward0": (4, lambda x: functional.adaptive_avg_pool2d(x, (2, 3))),
    "AdaptiveAvgPool3DBackward0": (5, lambda x: functional.adaptive_avg_pool3d(x, (2, 3, 2))),
    "AvgPool2DBackward0": (4, lambda x: functional.avg_pool2d(x, 3, 2, 1)),
    "AvgPool3DBackward0": (5, lambda x: functional.avg_pool3d(x, 3, 2, 1)),
    "GatherBackward0": (4, lambda x: x.gather(1, torch.tensor([2, 0]).view(1, 2, 1, 1).expand(2, 2, 6, 7))),
    "IndexAddBackward0": (4, lambda x: torch.ones(2, 4, 6, 7).index_add(1, torch.tensor([3, 0, 3]), x, alpha=2)),
    "LeakyReluBackward0": (4, functional.leaky_relu),
    "LeakyReluBackward1": (4, lambda x: functional.leaky_relu_(x, 0.1)),
    "MaxPool2DWithIndicesBackward0": (4, lambda x: functional.max_pool2d(x, 3, 2, 1)),
    "MaxPool3DWithIndicesBackward0": (5, lambda x: functional.max_pool3d(x, 3, 2, 1)),
    "ReflectionPad1DBackward0": (3, lambda x: functional.pad(x, (1, 2), mode="reflect")),
    "ReflectionPad2DBackward0": (4, lambda x: functional.pad(x, (1, 2, 3, 0), mode="reflect")),
    "ReflectionPad3DBackward0": (5, lambda x: functional.pad(x, (1, 2, 3, 0, 1, 1), mode="reflect")),
    "ReluBackward0": (4, torch.relu),
    "ReplicationPad1DBackward0": (3, lambda x: functional.pad(x, (1, 2), mode="replicate")),
    "ReplicationPad2DBackward0": (4, lambda x: functional.pad(x, (1, 2, 3, 0), mode="replicate")),
    "ReplicationPad3DBackward0": (5, lambda x: functional.pad(x, (1, 2, 3, 0, 1, 1), mode="replicate")),
    "HardtanhBackward0": (4, functional.relu6),
}


@functools.cache
def disabled():
    """Entries (node class, slot) of needs.SHAPES, SIGNS and RANGES whose gradient changes when they are used. Tried in a
    thread of their own, to which no mode, hook or default device of the program reaches."""
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        return other.submit(_failing).result()


def _failing():
    entries = {*needs.SHAPES, *needs.SIGNS, *needs.RANGES}
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(1)
        failed = frozenset(entry for entry in entries if not _holds(*entry))
    for name, slot in sorted(failed):
        log.warning("%s.%s reads more than its %s: kept as it is", name, slot, needs.need_of(name, slot))
    return failed


def _holds(name, slot):
    if name not in _MAPS:
        return False
    rank, op = _MAPS[name]
    x = torch.randn((2, 3, 6, 7, 6)[:rank]) * 4
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank, torch.contiguous_format)
    return all(_same_gradient(name, slot, op, each) for each in (x, x.contiguous(memory_format=last)))


def _same_gradient(name, slot, op, x):
    plain = x.clone().requires_grad_()
    op(plain * 1).square().sum().backward()
    seen = []

    def replace(node):
        if type(node).__name__ == name:
            tensor = saved(node, slot).detach()
            other = _stand_in(node, name, slot, tensor)
            getattr(node, "_raw_saved_" + slot).register_hooks(lambda _: None, lambda _: other)
            seen.append(name)

    replaced = x.clone().requires_grad_()
    try:
        with observer(replace):
            y = op(replaced * 1)
        y.square().sum().backward()
    except (AttributeError, RuntimeError):
        return False
    return seen == [name] and torch.equal(plain.grad, replaced.grad)


def _stand_in(node, name, slot, tensor):
    if (name, slot) in needs.SHAPES:
        return forms.without_memory(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
    if (name, slot) in needs.SIGNS:
        return (~(tensor <= 0)).to(tensor.dtype)
    lower, upper = (saved(node, each) for each in needs.RANGES[name, slot])
    inside = (tensor > lower) & (tensor < upper)
    return torch.where(inside, torch.full_like(tensor, (lower + upper) / 2), torch.full_like(tensor, upper))
