# SPDX-License-Identifier: Apache-2.0
"""The storages of a training graph that is made of a recorded step."""

import math

from .values import forward_sharing, sized, value_of

FIXED = ("weight", "weight_gradient", "statistic", "saved_statistic")


class Storages:
    """list: as training graphs have it; a storage is known by its place there."""

    def __init__(self, nodes, protected):
        self.list, self.place_of = [], {}
        self.shared = forward_sharing(nodes)
        self.measures = {}  # value -> (type, bytes) of its storage
        self.weights = {self.shared.of(("leaf", leaf.storage)) for node in nodes for leaf in node.leaves.values()}
        self.weights |= {self.shared.of(value_of(slot)) for node in nodes for slot in node.slots if slot.storage in protected}
        for index, node in enumerate(nodes):
            for output, (shape, dtype) in enumerate(node.outputs):
                self._at_least((index, output), dtype, math.prod(shape) * dtype.itemsize)
            for leaf in node.leaves.values():
                self._at_least(("leaf", leaf.storage), leaf.dtype, math.prod(leaf.shape) * leaf.dtype.itemsize)
        for node in nodes:
            for slot in node.slots:
                if slot.bytes:  # what a slot tells of its storage counts
                    self.measures[self.shared.of(value_of(slot))] = (slot.dtype, slot.bytes)

    def _at_least(self, value, dtype, size):
        value = self.shared.of(value)
        if size > self.measures.get(value, (None, 0))[1]:
            self.measures[value] = (dtype, size)

    def measure_of(self, value):
        return self.measures[self.shared.of(value)]

    def add(self, name, role, dtype, size, **more):
        kind, shape = sized(dtype, size)
        self.list.append({"name": name, "role": role, "type": kind, "shape": shape,
                          "fixed_bytes" if role in FIXED else "bytes_per_sample": size, **more})
        return len(self.list) - 1

    def of(self, value, name, role):
        """The storage of a value, made in this role if need be (a weight is one); None for a value without elements."""
        known = self.shared.of(value)
        if known not in self.place_of:
            role = "weight" if known in self.weights else role
            self.place_of[known] = self.add(name, role, *self.measures[known]) if known in self.measures else None
        return self.place_of[known]

    def known(self, slot):
        """The storage of what a slot holds; None if the graph has none."""
        return self.place_of.get(self.shared.of(value_of(slot)))

    def role(self, place):
        return self.list[place]["role"]

    def has_fixed_size(self, place):
        return "fixed_bytes" in self.list[place]


def append(those, one):
    if one is not None and one not in those:
        those.append(one)


def tensors(places):
    return [{"storage": each} for each in places]


def places(operands):
    return [each["storage"] for each in operands]
