# SPDX-License-Identifier: Apache-2.0
"""Which values of a recorded step share memory: autograd's graph names values, the project's training graphs storages.

A value is (node, output), ("leaf", storage) or ("slot", storage). Values share a storage where one is a view of the other,
where their slots say so, and where an op has written over its input, which autograd's version counters tell.
"""

import math

import torch

from .recipes import BACKWARD_HOOKS, IN_PLACE, VIEWS

# Ops of which recipes ask no memory of their own, but which have one in the forward pass.
COPIES = frozenset({"CloneBackward0", "ToCopyBackward0"})
MEMORY_VIEWS = (VIEWS | {BACKWARD_HOOKS}) - COPIES


class Sharing:
    """Classes of values, each known by one of its members."""

    def __init__(self):
        self.above = {}

    def of(self, value):
        while (up := self.above.get(value, value)) != value:
            self.above[value] = self.above.get(up, up)
            value = up
        return value

    def join(self, first, second):
        first, second = self.of(first), self.of(second)
        if first != second:
            self.above[second] = first


def sources_of(node):
    """(edge, value) of every input that autograd knows."""
    for edge, producer in enumerate(node.producers):
        if isinstance(producer, tuple):
            yield edge, producer
        elif producer == "leaf":
            yield edge, ("leaf", node.leaves[edge].storage)


def is_view(node):
    return node.name in MEMORY_VIEWS


def is_whole_view(nodes, node):
    """Whether the gradient of a view is that of its base in another shape."""
    if not is_view(node) or len(node.outputs) != 1 or node.name == "ExpandBackward0":
        return False
    _, value = next(sources_of(node), (0, None))
    if value is None:
        return False
    if value[0] == "leaf":
        shape = node.leaves[0].shape
    else:
        made = nodes[value[0]].outputs
        shape = made[value[1]][0] if value[1] < len(made) else None
    return shape is not None and math.prod(shape) == math.prod(node.outputs[0][0])


def value_of(slot):
    return slot.producer if slot.producer is not None else ("slot", slot.storage)


def forward_sharing(nodes):
    shared, of_storage = Sharing(), {}
    for index, node in enumerate(nodes):
        if is_view(node):
            for edge, value in sources_of(node):
                for output in range(max(1, len(node.outputs))):
                    if node.name != BACKWARD_HOOKS or output == edge:
                        shared.join(value, (index, output))
        for leaf in node.leaves.values():
            shared.join(of_storage.setdefault(leaf.storage, ("leaf", leaf.storage)), ("leaf", leaf.storage))
        for slot in node.slots:
            value = value_of(slot)
            shared.join(of_storage.setdefault(slot.storage, value), value)
            if slot.producer is not None:
                _join_overwritten(nodes, shared, slot)
    return shared


def _join_overwritten(nodes, shared, slot):
    """Every version is one write in place of the ops that made the value."""
    value = slot.producer
    for _ in range(slot.version):
        node = nodes[value[0]]
        if node.name not in IN_PLACE or not node.producers or not isinstance(node.producers[0], tuple):
            return
        shared.join(value, node.producers[0])
        value = node.producers[0]


def gradient_sharing(nodes):
    """Of gradients: views have that of their base, and a sum hands its own on to inputs that nothing else reads."""
    shared, readers = Sharing(), {}
    for node in nodes:
        if node.reached:
            for _, value in sources_of(node):
                readers[value] = readers.get(value, 0) + 1
    for index, node in enumerate(nodes):
        if not node.reached or len(node.outputs) != 1:
            continue
        for edge, value in sources_of(node):
            whole = is_whole_view(nodes, node) or _hands_on(nodes, node, edge, value)
            if whole and readers[value] == 1:
                shared.join(value, (index, 0))
    return shared


def _hands_on(nodes, node, edge, value):
    if node.name != "AddBackward0" and not (node.name == "SubBackward0" and edge == 0):
        return False
    if value[0] == "leaf" or value[1] >= len(nodes[value[0]].outputs):
        return False
    return nodes[value[0]].outputs[value[1]] == node.outputs[0]


TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.uint8: "u8", torch.int32: "s32"}


def sized(dtype, size):
    """Type and flat shape of so many bytes; elements of types that training graphs lack count as bytes."""
    kind = TYPES.get(dtype, "u8")
    width = dtype.itemsize if dtype in TYPES else 1
    if size % width:
        kind, width = "u8", 1
    return kind, [size // width]
