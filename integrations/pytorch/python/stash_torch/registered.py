# SPDX-License-Identifier: Apache-2.0
"""What users say of their own autograd functions: the need of every tensor that one saves for its backward pass."""

from dataclasses import dataclass

import torch

from . import needs

PREFIX = "tensors["

WORDS = {"shape": needs.SHAPE, "sign": needs.SIGN, "range": needs.RANGE, "mask": needs.MASK, "value": needs.VALUE,
         "fine_value": needs.FINE, "exact_value": needs.EXACT}
_of_class = {}  # class of the nodes -> {position in save_for_backward, or None for every other: Declared}


@dataclass(frozen=True)
class Declared:
    need: str
    bounds: tuple = None  # of a range


def register_need(function, need):
    """Says what the backward pass of a custom torch.autograd.Function reads of the tensors that its forward pass saves.

    need: a word for all of them, or {position in save_for_backward: word}; the others stay as they are. Words
    (docs/needs.md): "shape" (not even the values), "sign" (only whether t <= 0), ("range", lower, upper) (only whether
    lower < t < upper), "mask" (zeros, and one other value), "value" (a policy may round it to its format), "fine_value"
    (rounded to 16 bits at least), "exact_value" (every bit; it may still be kept without zeros, or computed again).

    Holds for steps that are recorded from now on, in every session. "shape", "sign" and "range" are tried: in the first
    recorded step the function's backward pass runs a second time, with other values that mean the same. If that gives other
    bits, these tensors stay as they are, with a warning; else the next step is recorded again, and planned with them. A
    second call for a function replaces the first. Raises TypeError or ValueError that name the argument; nothing has changed
    then.
    """
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise TypeError(f"register_need: function: expected a subclass of torch.autograd.Function, got {function!r}")
    if isinstance(need, dict):
        for position in need:
            if type(position) is not int or position < 0:
                raise ValueError(f"register_need: need: expected positions in save_for_backward, 0 or more, got {position!r}")
        if not need:
            raise ValueError("register_need: need: expected at least one position, got {}")
        declared = {position: _declared(each) for position, each in need.items()}
    else:
        declared = {None: _declared(need)}
    _of_class[function._backward_cls] = declared


def _declared(need):
    if type(need) is tuple and len(need) == 3 and need[0] == "range":
        lower, upper = need[1:]
        if all(type(each) in (int, float) for each in (lower, upper)) and lower < upper:
            return Declared(needs.RANGE, (float(lower), float(upper)))
        raise ValueError(f'register_need: need: expected ("range", lower, upper) with lower < upper, got {need!r}')
    if type(need) is str and need in WORDS and need != "range":
        return Declared(WORDS[need])
    words = ", ".join(each for each in WORDS if each != "range")
    raise ValueError(f'register_need: need: expected one of {words} or ("range", lower, upper), got {need!r}')


def slots_of(node):
    """Names of the slots of a registered function's node, {name: Declared}; empty for every other node."""
    declared = _of_class.get(type(node))
    if not declared:
        return {}
    count = len(node._raw_saved_tensors)
    known = {place: declared.get(place, declared.get(None)) for place in range(count)}
    return {f"{PREFIX}{place}]": each for place, each in known.items() if each is not None}


def position_of(slot):
    """The position in save_for_backward that a slot's name tells; None for slots of torch's own nodes."""
    return int(slot[len(PREFIX):-1]) if slot.startswith(PREFIX) else None
