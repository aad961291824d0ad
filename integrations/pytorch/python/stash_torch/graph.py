# SPDX-License-Identifier: Apache-2.0
"""A recorded step as a training graph of generic ops (docs/graph.md), which the planner and the `stash` command read.

The batch is 1, and a "sample" is all that the step recorded. What an optimizer does is not recorded.
"""

import math

import torch

from . import forms, needs
from .graph_recipes import recipes_of
from .graph_storages import Storages, append, tensors
from .values import gradient_sharing, is_view, is_whole_view, sources_of

WORDS = {needs.SIGN: "sign", needs.RANGE: "range", needs.VALUE: "value", needs.FINE: "fine_value", needs.EXACT: "exact_value",
         needs.MASK: "exact_value"}  # where it turned out to be no mask


def graph_of(plan, name="recorded step"):
    """The graph as a dictionary, ready for JSON."""
    return _Builder(plan, name).build()


class _Builder:
    def __init__(self, plan, name):
        self.plan, self.nodes = plan, plan.nodes
        self.storages, self.ops = Storages(self.nodes, plan.protected), []
        self.graph = {"format": "stash.graph", "version": 1, "name": name, "batch": 1, "storages": self.storages.list,
                      "ops": self.ops}
        self.backward = gradient_sharing(self.nodes)
        self.weights = {self.backward.of(("leaf", leaf.storage)) for node in self.nodes for leaf in node.leaves.values()}
        self.gradient_of, self.weight_gradient_of = {}, {}  # by what gradient_sharing calls them
        self.op_of = {}  # node -> its forward op
        self.window_of = {}  # (node, slot) of positions -> the storage of their taps
        self.group_of = {(slot.node, slot.name): group for group in plan.groups.values() for slot in group.slots}
        self.made = set()

    def build(self):
        for index in range(len(self.nodes)):
            if not is_view(self.nodes[index]):
                self._forward(index)
        for group in self.plan.groups.values():
            if group.density < 1:
                self.storages.list[self._target(group)]["density"] = group.density
        for index in reversed(range(len(self.nodes))):
            if self.nodes[index].reached and not self._only_renames(index):
                self._backward(index)
        self.graph["recompute"] = recipes_of(self.plan, self.graph, self.op_of, self._target)
        self.graph["session"] = self._session()
        return self.graph

    # ---- the forward stage

    def _forward(self, index):
        node, name = self.nodes[index], self._name(index)
        inputs, parameters = self._read(index, name)
        outputs = []
        for output in range(len(node.outputs)):
            storage = self.storages.of((index, output), name if output == 0 else f"{name}.{output}", "feature_map")
            if storage is not None and not self.storages.has_fixed_size(storage):
                append(outputs, storage)
        statistics, optional = [], []
        for slot in node.slots:
            if slot.producer is None and slot.name.startswith("result"):
                self._result(index, slot, outputs, statistics, optional)
        self.op_of[index] = self._op(name, "forward", index, inputs=tensors(inputs), outputs=tensors(outputs),
                                     parameters=parameters, parameters_written=statistics, optional_outputs=optional)
        self.made.update(outputs)

    def _read(self, index, name):
        """Maps and parameters that an op reads; what was made without autograd, as dropout's mask, is made before it."""
        node, inputs, parameters = self.nodes[index], [], []
        for edge, value in sources_of(node):
            storage = self.storages.of(value, f"{name}.edge.{edge}", "image")
            if storage is not None:
                append(parameters if self.storages.has_fixed_size(storage) else inputs, storage)
        for slot in node.slots:
            if slot.producer is None and not slot.name.startswith("result") and slot.bytes:
                storage = self.storages.of(("slot", slot.storage), f"{name}.{slot.name}", self._role_of(slot))
                if self.storages.has_fixed_size(storage):
                    append(parameters, storage)
                    continue
                if self.storages.role(storage) == "feature_map" and storage not in self.made:
                    self._op(f"{name}.{slot.name}", "forward", index, "made without autograd", outputs=tensors([storage]))
                    self.made.add(storage)
                append(inputs, storage)
        return inputs, parameters

    def _role_of(self, slot):
        return "feature_map" if (slot.node, slot.name) in self.group_of else "image"

    def _result(self, index, slot, outputs, statistics, optional):
        """What an op made besides its value: positions of maxima, a mask, or the statistics of a norm."""
        if not slot.bytes:
            return
        name, value = f"{self._name(index)}.{slot.name}", ("slot", slot.storage)
        if "Norm" in self.nodes[index].name:
            append(statistics, self.storages.of(value, name, "saved_statistic"))
            return
        append(outputs, self.storages.of(value, name, "feature_map"))
        group = self.group_of.get((slot.node, slot.name))
        form = group and self.plan.chosen(group).form
        if isinstance(form, forms.WindowIndex):
            taps = form.window.kernel_d * form.window.kernel_h * form.window.kernel_w
            window = self.storages.add(f"{name}.window", "auxiliary", torch.uint8, math.prod(slot.shape), window_taps=taps)
            self.window_of[slot.node, slot.name] = window
            optional.append(window)

    # ---- the backward stage

    def _only_renames(self, index):
        """A view whose gradient is its base's."""
        value = next((value for _, value in sources_of(self.nodes[index])), None)
        return (value is not None and is_whole_view(self.nodes, self.nodes[index])
                and self.backward.of(value) == self.backward.of((index, 0)))

    def _backward(self, index):
        node, name = self.nodes[index], f"{self._name(index)}.backward"
        inputs, outputs, parts, read, written = [], [], [], [], []
        for output in range(len(node.outputs)):
            storage = self.gradient_of.get(self.backward.of((index, output)))
            if storage is not None:
                append(inputs, storage)
            leaf = self.weight_gradient_of.get(self.backward.of((index, output)))
            if leaf is not None:
                append(read, leaf)
        mine = self.backward.of((index, 0))
        for edge, value in sources_of(node):
            if self.backward.of(value) in self.weights:
                self._weight_gradient(value, written, read)
            elif self.backward.of(value) != mine:  # else it hands on its own gradient
                self._gradient(index, edge, value, outputs, parts)
        read += [each for each in self._parameters_of(node) if each not in read]
        self._op(name, "backward", index, inputs=tensors(inputs), outputs=tensors(outputs), parameters=read,
                 parameters_written=written, alternatives=self._alternatives(node))
        for number, (total, part) in enumerate(parts):
            self._op(f"{name}.sum.{number}", "backward", None, "accumulate", inputs=tensors([total, part]),
                     outputs=tensors([total]))

    def _gradient(self, index, edge, value, outputs, parts):
        node = self.nodes[value[0]]
        if not node.reached or value[1] >= len(node.outputs):
            return
        shape, dtype = node.outputs[value[1]]
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return
        known, name = self.backward.of(value), f"gradient of {self._name(value[0])}.{value[1]}"
        if known not in self.gradient_of:
            self.gradient_of[known] = self.storages.add(name, "gradient", dtype, size)
            append(outputs, self.gradient_of[known])
            return
        part = self.storages.add(f"{name} by {self._name(index)}.{edge}", "gradient", dtype, size)
        outputs.append(part)
        parts.append((self.gradient_of[known], part))

    def _weight_gradient(self, value, written, read):
        known = self.backward.of(value)
        if known not in self.weight_gradient_of:
            self.weight_gradient_of[known] = self.storages.add(f"gradient of weight {len(self.weight_gradient_of)}",
                                                               "weight_gradient", *self.storages.measure_of(value))
        elif self.weight_gradient_of[known] not in written:
            append(read, self.weight_gradient_of[known])
        append(written, self.weight_gradient_of[known])

    def _parameters_of(self, node):
        """Of what a backward op reads: weights and statistics of norms."""
        found = []
        for slot in node.slots:
            storage = self.storages.known(slot)
            if storage is not None and self.storages.has_fixed_size(storage):
                append(found, storage)
        return found

    def _alternatives(self, node):
        reads, tapped, has_window = [], [], False
        for slot in node.slots:
            storage = self.storages.known(slot)
            word = self._word(slot)
            if storage is None or word is None or self.storages.has_fixed_size(storage):
                continue
            read = {"storage": storage, "need": word}
            window = self.window_of.get((slot.node, slot.name))
            has_window = has_window or window is not None
            append(reads, read)
            append(tapped, read if window is None else {"storage": window, "need": "window"})
        found = [{"form": "as_recorded", "reads": reads}] if reads else []
        return found + ([{"form": "from_window", "reads": tapped}] if has_window else [])

    def _word(self, slot):
        """The need of a slot in words of docs/needs.md; None where only its shape is read."""
        group = self.group_of.get((slot.node, slot.name))
        if group is None:
            return "exact_value"
        if slot.need == needs.SHAPE:
            return None
        if isinstance(self.plan.chosen(group).form, (forms.Bits, forms.TwoValued)):
            return "mask"
        return WORDS[slot.need]

    # ---- ops

    def _name(self, index):
        return f"{self.nodes[index].name}.{index}"

    def _op(self, name, stage, index, label=None, **operands):
        op = {"name": name, "kind": "generic", "label": label or self.nodes[index].name, "stage": stage}
        if stage == "backward" and index in self.op_of:
            op["forward_op"] = self.op_of[index]
        op |= {key: value for key, value in operands.items() if value}
        seconds = self.plan.seconds_of(stage, index) if label is None else None
        if seconds is not None:
            op["seconds"] = seconds
        self.ops.append(op)
        return len(self.ops) - 1

    # ---- what the session itself does

    def _target(self, group):
        return self.storages.known(group.slots[0])

    def _session(self):
        """What stash_torch keeps of every group, for people and other programs; the planner does not read it."""
        kept = [{"storage": self._target(group), "how": group.how(), "bytes": group.bytes, "kept_bytes": group.kept_bytes}
                for group in self.plan.groups.values()]
        return {"policy": self.plan.policy, "kept": kept}
