# SPDX-License-Identifier: Apache-2.0
"""The storages that a recorded step saved, with all their readers; which of them may be kept in another form."""

import functools
import math
from dataclasses import replace

import torch

from . import forms, needs
from .plan import Group
from .recipes import BACKWARD_HOOKS, VIEWS
from .step import setting_of
from .values import MEMORY_VIEWS

SMALLEST = 4096  # bytes; less is not worth a call
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class Grouping:
    """groups: by the key of each. of_slot: (node, slot) -> group. value_of: (node, output) -> a slot that saves it."""

    def __init__(self, nodes, protected, disabled):
        self.nodes, self.protected, self.disabled = nodes, protected, disabled
        self.groups, self.of_slot, self.value_of = {}, {}, {}
        self.find()

    def find(self):
        storages = {}
        for node in self.nodes:
            for slot in node.slots:
                if slot.bytes >= SMALLEST and slot.storage not in self.protected:
                    storages.setdefault((slot.storage, slot.version), []).append(slot)
        for slots in storages.values():
            if not all(self.is_map(slot) for slot in slots) or len({slot.dtype for slot in slots}) > 1:
                continue
            if len({self.root_of(slot) for slot in slots}) > 1:
                continue
            group = self.group_of(slots)
            self.groups[group.key] = group
            for slot in slots:
                self.of_slot[slot.node, slot.name] = group
                for value in self.names_of(slot.producer):
                    self.value_of.setdefault(value, slot)

    def root_of(self, slot):
        """The value of which a slot holds a view. Two of them share a storage where parts have version counters of their own
        (unsafe_chunk, as in the cells of LSTMs): one part may be written after another has been saved."""
        value = slot.producer
        while isinstance(value, tuple) and self.nodes[value[0]].name in MEMORY_VIEWS:
            node = self.nodes[value[0]]
            value = node.producers[value[1] if node.name == BACKWARD_HOOKS else 0]
        return value

    def names_of(self, value):
        """A value, and what it is called outside of modules with backward hooks."""
        while isinstance(value, tuple):
            yield value
            node = self.nodes[value[0]]
            value = node.producers[value[1]] if node.name == BACKWARD_HOOKS else None

    def is_map(self, slot):
        """Made in this forward pass, from more than parameters, and of a type that forms take."""
        if (self.nodes[slot.node].name, slot.name) in needs.POOL_INDICES:
            return True
        if slot.dtype not in FLOATS and slot.dtype != torch.bool:
            return False
        if slot.declared is not None and slot.producer is None:
            return True
        factor = self.nodes[slot.node].name == "MulBackward0" and slot.name == "other" and not slot.tracked
        return factor or self.is_made_here(slot)

    def is_made_here(self, slot):
        return slot.name.startswith("result") if slot.producer is None else not self.from_parameter(slot.producer[0])

    def from_parameter(self, index):
        node = self.nodes[index]
        while node.name in VIEWS:
            producer = node.producers[0]
            if not isinstance(producer, tuple):  # a parameter, or something from outside of this forward pass
                return True
            node = self.nodes[producer[0]]
        return False

    def group_of(self, slots):
        first = min(slots, key=lambda slot: slot.node)
        size = first.dtype.itemsize
        base = next((slot for slot in slots if slot.offset == 0 and math.prod(slot.shape) * size == slot.bytes
                     and _dense(slot)), None) or self.whole(first)
        for slot in slots:
            node = self.nodes[slot.node]
            known = needs.need_of(node.name, slot.name, self.disabled, functools.partial(setting_of, node.handle))
            slot.need = slot.declared.need if slot.declared is not None else known
        return Group((first.node, first.name), slots, first.bytes, first.dtype, base,
                     frozenset(slot.need for slot in slots), kept_bytes=first.bytes)

    def whole(self, slot):
        """A slot as it would be if somebody saved all of the storage of which this one has a part; None if no op made it, or
        not in this order."""
        value = self.root_of(slot)
        outputs = self.nodes[value[0]].outputs if isinstance(value, tuple) else ()
        shape = outputs[value[1]][0] if outputs and value[1] < len(outputs) else ()
        if math.prod(shape) * slot.dtype.itemsize != slot.bytes:
            return None
        return replace(slot, shape=shape, stride=forms.strides_of(shape), offset=0, producer=value)

    def untouched(self):
        """What the step saved besides groups: {saver: (number of storages, bytes)}."""
        seen = {(slot.storage, slot.version) for group in self.groups.values() for slot in group.slots}
        found = {}
        for node in self.nodes:
            for slot in node.slots:
                key = slot.storage, slot.version
                if key in seen or slot.storage in self.protected or not self.is_made_here(slot):
                    continue
                seen.add(key)
                small = slot.bytes < SMALLEST
                saver = f"less than {SMALLEST} bytes" if small else f"{node.name}.{slot.name}, {slot.dtype}"
                number, size = found.get(saver, (0, 0))
                found[saver] = number + 1, size + slot.bytes
        return found

    def saved_bytes(self):
        """All that the step saved, without parameters and what came in from outside."""
        sizes = {(slot.storage, slot.version): slot.bytes for node in self.nodes for slot in node.slots
                 if slot.storage not in self.protected and self.is_made_here(slot)}
        for group in self.groups.values():
            sizes[group.slots[0].storage, group.slots[0].version] = group.bytes
        return sum(sizes.values())


def _dense(slot):
    """Whether the strides visit every element of the storage once."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(slot.stride, slot.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True
