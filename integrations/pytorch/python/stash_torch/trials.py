# SPDX-License-Identifier: Apache-2.0
"""Tries what users said of their functions: runs a backward pass again, with other values that mean the same."""

import logging

import torch

from . import needs, registered
from .step import raw_slot

log = logging.getLogger("stash_torch")
TRIED = (needs.SHAPE, needs.SIGN, needs.RANGE)


class Trials:
    """Of one session. Entries are (node class, slot)."""

    def __init__(self, changed):
        """changed: called with an entry that has just passed for the first time, or has failed."""
        self.passed, self.failed, self.changed = set(), set(), changed

    def declared_of(self, node, slot):
        """What may be relied on: what was not tried with success is read exactly. None for slots of torch's own nodes."""
        declared = registered.slots_of(node).get(slot)
        entry = (type(node).__name__, slot)
        if declared is None or declared.need not in TRIED:
            return declared
        return declared if entry in self.passed - self.failed else registered.Declared(needs.EXACT)

    def watch(self, node):
        """Tries a node of a recorded step when its backward pass has run."""
        slots = {name: each for name, each in registered.slots_of(node).items() if each.need in TRIED}
        if not slots:
            return
        replaced = []  # whether slots give other values now
        try:
            for name, declared in slots.items():
                raw_slot(node, name).register_hooks(lambda tensor: tensor, _Unpack(declared, replaced))
        except RuntimeError:  # hooks of somebody else have it
            return
        node.register_hook(lambda inputs, outputs: self._try(node, slots, replaced, inputs, outputs))

    def _try(self, node, slots, replaced, inputs, outputs):
        replaced.append(True)
        try:
            same = _run_again(node, inputs, outputs)
        finally:
            replaced.clear()
        for slot in slots:
            entry = (type(node).__name__, slot)
            if not same and entry not in self.failed:
                log.warning("%s: what was registered for %s is wrong, or its gradient differs from run to run: its tensors stay "
                            "as they are", *entry)
                self.failed.add(entry)
                self.changed(entry)
            elif same and entry not in self.passed:
                self.passed.add(entry)
                self.changed(entry)


class _Unpack:
    def __init__(self, declared, replaced):
        self.declared, self.replaced = declared, replaced

    def __call__(self, tensor):
        return _stand_in(tensor, self.declared) if self.replaced else tensor


def _stand_in(tensor, declared):
    if declared.need == needs.SHAPE:
        return torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else ~tensor
    if declared.need == needs.SIGN:
        return (~(tensor <= 0)).to(tensor.dtype)
    lower, upper = declared.bounds
    inside = (tensor > lower) & (tensor < upper)
    return torch.where(inside, torch.full_like(tensor, (lower + upper) / 2), torch.full_like(tensor, upper))


def _run_again(node, inputs, outputs):
    """Whether the backward pass gives the same bits once more."""
    devices = {each.device.index for each in outputs if each is not None and each.is_cuda}
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            again = node.apply(*outputs)
    except Exception:  # the user's own code, on values that it has never seen
        log.warning("%s: its backward pass failed on other values that mean the same", type(node).__name__, exc_info=True)
        return False
    again = again if isinstance(again, tuple) else (again,)
    return len(again) == len(inputs) and all(_same(a, b) for a, b in zip(inputs, again))


def _same(a, b):
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(_bits(a), _bits(b))


def _bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)
