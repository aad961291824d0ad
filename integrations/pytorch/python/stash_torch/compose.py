# SPDX-License-Identifier: Apache-2.0
"""How a value of a recorded step follows from others by ops that may run again."""

import torch

from . import needs
from .grouping import FLOATS
from .plan import Call, Held, Recipe, Source
from .recipes import IN_PLACE, OPS
from .step import PREFIX, held_tensor, saved, setting_of

VALUES = {needs.VALUE, needs.FINE, needs.EXACT, needs.MASK}  # needs of more than signs
# By what the user lets run again.
MOST_OPS = {"cheap": 6, "all": 24, "none": 0}  # that one recomputation runs
DEEPEST = {"cheap": 3, "all": 6, "none": 0}  # recomputed storages below a recomputed one


class Impossible(Exception):
    pass


class Composer:
    """fixed: node -> settings that it does not keep, as far as they are known. dropped: groups that are not kept."""

    def __init__(self, nodes, grouping, recompute):
        self.nodes, self.grouping, self.recompute = nodes, grouping, recompute
        self.fixed = {}

    def wants_values(self, group):
        return bool(group.needs & VALUES) and group.dtype in FLOATS

    def recipe_of(self, group, dropped):
        """How a storage is computed again, or None."""
        names, groups = [], set()
        try:
            call = self.call_of(self.made_as(group.base), group.first, dropped, DEEPEST[self.recompute], names, groups)
        except Impossible:
            return None
        return Recipe(call, tuple(names), frozenset(groups))

    def made_as(self, slot):
        """What made a value: modules with backward hooks only pass it on."""
        return list(self.grouping.names_of(slot.producer))[-1]

    def call_of(self, value, before, dropped, depth, names, groups):
        """The op that makes a value, of what is saved by the node `before` at the latest. depth: how many storages in turn may
        be computed again for it. Adds to names the ops that run, and to groups the storages that are read."""
        index, output = value
        node = self.nodes[index]
        op = OPS.get(node.name)
        if op is None or not self.may_run(op) or (output != 0 and op.outputs == "one") or node.handle is None:
            raise Impossible
        if not all(hasattr(node.handle, PREFIX + name) for name in op.settings):
            raise Impossible
        if "training" in op.settings and not setting_of(node.handle, "training"):
            raise Impossible
        arguments = self.tracked(node) if op.variadic else op.inputs
        if op.outputs == "of edges":
            arguments = [(output, None)]
        inputs = [self.input_of(index, edge, slot, before, dropped, depth, names, groups) for edge, slot in arguments]
        if op.indices:
            inputs += [each if each is None else Held(index, -1, f"indices.{place}")
                       for place, each in enumerate(saved(node.handle, "indices"))]
        if not op.view:
            names.append(short_name(node.name))
            if len(names) > MOST_OPS[self.recompute]:
                raise Impossible
        shape, dtype = node.outputs[output]
        fixed = {"shape": shape, "dtype": dtype, "output": output, "fresh": _fresh(inputs, self.nodes),
                 **self.fixed.get(index, {})}
        settings = {name: setting_of(node.handle, name) for name in op.settings}
        settings |= {name: None for edge, name in arguments if _is_left_out(node, edge, name)}
        return Call(index, inputs, settings, fixed, self.pins(op, index, inputs))

    def tracked(self, node):
        """Arguments that autograd knows. Others, as an empty cache, have no elements, or the result has another shape."""
        return [(edge, None) for edge, producer in enumerate(node.producers) if producer is not None]

    def may_run(self, op):
        return self.recompute == "all" or (self.recompute == "cheap" and not op.costly)

    def pins(self, op, index, inputs):
        """A norm's epsilon is not kept by autograd. It belongs to a module, which is known by its parameters. One without
        parameters is computed again without it."""
        if not op.trials or op.trials[0] != "eps" or inputs[1] is inputs[2] is None:
            return ()
        held = [each for each in inputs[1:] if isinstance(each, Held) and not each.slot.startswith("result")]
        if not held:
            raise Impossible
        return tuple((each.edge, each.slot, self.held(each).data_ptr()) for each in held)

    def input_of(self, index, edge, slot_name, before, dropped, depth, names, groups):
        node = self.nodes[index]
        if _is_left_out(node, edge, slot_name):
            return None
        slot = node.slot(slot_name) if slot_name else None
        if slot is not None:
            group = self.grouping.of_slot.get((index, slot_name))
            if group is None:
                return Held(index, -1, slot_name)
            return self.read(slot, group, before, dropped, depth, names, groups)
        producer = node.producers[edge] if 0 <= edge < len(node.producers) else None
        if producer == "leaf":
            if node.leaves[edge].version != held_tensor(node.handle, edge, "")._version:
                raise Impossible  # the forward pass has changed it since, as an embedding with max_norm does
            return Held(index, edge, "")
        if not isinstance(producer, tuple):
            if producer is None and edge in (1, 2) and self.is_absent(node, edge):
                return None
            raise Impossible
        known = self.grouping.value_of.get(producer)
        if known is not None:
            group = self.grouping.of_slot[known.node, known.name]
            return self.read(known, group, before, dropped, depth, names, groups)
        return self.call_of(producer, before, dropped, depth, names, groups)

    def is_absent(self, node, edge):
        """Whether an op has no such parameter. One that is not trained has no edge either; of a norm's bias that autograd does
        not save only a norm without a weight tells that there is none."""
        if node.name == "ConvolutionBackward0":
            return edge == 2 and saved(node.handle, "bias_sym_sizes_opt") in (None, (0,))
        if not node.name.startswith("Native"):
            return False
        known = "bias" if edge == 2 and hasattr(node.handle, PREFIX + "bias") else "weight"
        return saved(node.handle, known) is None

    def is_as_made(self, group):
        """Whether nothing but known ops wrote this storage: every write counts one version, and autograd does not see what is
        written without gradients."""
        writes, producer = 0, group.base.producer
        while isinstance(producer, tuple) and self.nodes[producer[0]].name in IN_PLACE:
            writes += 1
            producers = self.nodes[producer[0]].producers
            producer = producers[0] if producers else None
        return group.base.version <= writes

    def read(self, slot, group, before, dropped, depth, names, groups):
        """A value that some node saved: read where it is kept, or computed again in turn."""
        if group.first > before or not (self.wants_values(group) or group.dtype == torch.bool or group.key in dropped):
            # Saved later, or kept as a mask: its producer may be run.
            if slot.producer is None:
                raise Impossible
            known = len(names), set(groups)
            try:
                return self.call_of(self.made_as(slot), before, dropped, depth, names, groups)
            except Impossible:
                if not self.may_wait_for(group, dropped):
                    raise
                del names[known[0]:]
                groups.clear()
                groups |= known[1]
        if group.key in dropped:
            if depth == 0:
                raise Impossible
            counted = [] if group.key in groups else names  # what is read twice is computed once
            self.call_of(self.made_as(group.base), group.first, dropped, depth - 1, counted, groups)
        groups.add(group.key)
        return Source(group.key, slot.shape, slot.stride, slot.offset)

    def may_wait_for(self, group, dropped):
        """Whether what was made of a storage may stay as it is until a later node saves that storage."""
        return self.wants_values(group) and group.key not in dropped and group.base is not None and self.is_as_made(group)

    def held(self, each):
        return held_tensor(self.nodes[each.node].handle, each.edge, each.slot).detach()


def _is_left_out(node, edge, name):
    """Whether an optional tensor that an op would have saved was not given to it."""
    return edge < 0 and hasattr(node.handle, PREFIX + name) and saved(node.handle, name) is None


def _fresh(inputs, nodes):
    """Whether the first input is computed for this call alone: by an op, or by views of what an op computed."""
    first = inputs[0] if inputs else None
    while isinstance(first, Call) and OPS[nodes[first.node].name].view:
        first = first.inputs[0]
    return isinstance(first, Call)


def short_name(name):
    base = name.rstrip("0123456789").removesuffix("Backward")
    return "".join("_" + each.lower() if each.isupper() and place else each.lower() for place, each in enumerate(base))
