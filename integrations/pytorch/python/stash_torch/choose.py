# SPDX-License-Identifier: Apache-2.0
"""From a recorded step to a plan: which storages are computed again, and in which form the others are kept.

Everything that a lossless plan would do is done once here, on the data of the recorded step, and compared bit for bit
with what autograd saved. What differs stays as it is. Of policy "auto" a group has its lossless choice, and in addition one for
every format that takes fewer bytes than the more precise ones.
"""

import itertools
import time

import torch

from . import forms, library, needs, norms, pooling, rounding
from .grouping import FLOATS, Grouping
from .levels import NOT_ROUNDED, raw
from .plan import Call, Choice, Held, Plan, Recipe, Source, evaluate
from .recipes import IN_PLACE, OPS
from .step import PREFIX, held_tensor, saved, setting_of

VALUES = {needs.VALUE, needs.FINE, needs.EXACT, needs.MASK}  # needs of more than signs
MOST_OPS = {"none": 0, "cheap": 6, "all": 24}  # that one recomputation runs
DEEPEST = {"none": 0, "cheap": 3, "all": 6}  # recomputed storages below a recomputed one
MOST_TRIALS = 64  # of settings that nodes do not keep


class Impossible(Exception):
    pass


class Chooser:
    def __init__(self, recorder, protected, policy, formats, disabled, recompute="cheap"):
        """formats: to which values may be rounded (levels.formats_of)."""
        self.recorder, self.policy, self.formats, self.disabled = recorder, policy, formats, disabled
        self.recompute = recompute
        self.nodes = recorder.nodes
        self.protected = frozenset(protected | recorder.leaves)
        self.grouping = Grouping(self.nodes, self.protected, disabled)
        self.groups = self.grouping.groups
        self.fixed = {}  # node -> settings found by trial
        self.refused = set()  # groups whose recipe did not give the saved bits
        self.verified = {}  # key -> (recipe, seconds)

    def plan(self):
        self.choose_recipes()
        for group in self.groups.values():
            if group.recipe is None:
                self.choose_form(group)
        rounding.widen(self)
        for group in self.groups.values():
            if self.wants_values(group):
                row = self.recorded(group)
                group.density = torch.count_nonzero(row).item() / row.numel()
        plan = Plan(self.nodes, self.groups, self.policy, self.disabled, self.grouping.saved_bytes(), self.protected,
                    self.formats, self.grouping.untouched())
        for node in self.nodes:
            node.handle = None
        return plan

    # ---- recipes

    def choose_recipes(self):
        while True:
            self.drop_what_follows()
            failed = [group for group in self.groups.values()
                      if group.recipe is not None and not self.gives_saved_bits(group)]
            if not failed:
                return
            self.refused |= {group.key for group in failed}

    def drop_what_follows(self):
        """Latest storages first: what an op made from a kept storage goes, as long as all that went before can still
        be computed."""
        for group in self.groups.values():
            group.take(raw(group, ""))
            group.exact, group.fine, group.own_mask = False, False, None
        candidates = [group for group in self.groups.values()
                      if group.key not in self.refused and self.wants_values(group) and group.base is not None
                      and group.base.producer is not None and self.is_as_made(group)]
        dropped = {}  # key -> recipe
        for group in sorted(candidates, key=lambda each: -each.first):
            trial = {**dropped, group.key: None}
            affected = [group, *(self.groups[key] for key, recipe in dropped.items() if group.key in recipe.groups)]
            changed = {each.key: self.recipe_of(each, trial) for each in affected}
            if None not in changed.values():
                dropped |= changed
        for key, recipe in dropped.items():
            self.groups[key].recipe, self.groups[key].kept_bytes = recipe, 0
        for group in [self.groups[key] for key in dropped]:
            mask = self.mask_of(group)
            exact = group.needs & {needs.EXACT, needs.MASK} or (mask is None and group.needs & {needs.SIGN, needs.RANGE})
            for key in group.recipe.groups:
                self.groups[key].exact |= bool(exact)
                self.groups[key].fine |= needs.FINE in group.needs
            if mask is not None:
                self.keep_mask(group, mask)

    def keep_mask(self, group, mask):
        """A sign that is computed again from rounded values may flip."""
        bytes = library.bound_bytes(mask.how, group.dtype, group.bytes // group.dtype.itemsize)
        if self.policy == "auto":  # only where the source is rounded
            group.own_mask = (mask, bytes)
        else:
            group.mask, group.kept_bytes = mask, bytes

    def mask_of(self, group):
        if not self.formats or group.needs & VALUES - {needs.VALUE}:
            return None
        reading = [slot for slot in group.slots if slot.need in (needs.SIGN, needs.RANGE)]
        wanted = {slot.need for slot in reading}
        bounds = {self.bounds(slot) if slot.need == needs.RANGE else None for slot in reading}
        if len(wanted) != 1 or len(bounds) != 1:
            return None
        return self.mask(bounds.pop(), reading)

    def wants_values(self, group):
        return bool(group.needs & VALUES) and group.dtype in FLOATS

    def recipe_of(self, group, dropped):
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
            names.append(_short(node.name))
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

    def gives_saved_bits(self, group):
        known, seconds = self.verified.get(group.key, (None, 0.0))
        if known == repr(group.recipe):
            group.seconds = seconds
            return True
        saved = forms.row_of(self.recorder.tensor(group.base))
        for _ in self.trials(group.recipe):
            begin = _now(saved.device)
            try:
                computed = evaluate(group.recipe.call, self.run, lambda source: self.recorded(self.groups[source.group]),
                                    self.held)
            except RuntimeError:  # this setting does not fit the shapes
                continue
            if (computed.dtype == saved.dtype and computed.stride() == group.base.stride
                    and computed.untyped_storage().nbytes() == group.bytes
                    and forms.same_bits(forms.row_of(computed), saved)):
                group.seconds = (_now(saved.device) - begin) * _reads(group)
                self.verified[group.key] = repr(group.recipe), group.seconds
                return True
        return False

    def trials(self, recipe):
        """Sets what nodes do not keep, one combination after the other, until the caller is content."""
        calls = {}  # of each node: one for every way that leads to it
        for call in recipe.calls():
            if OPS[self.nodes[call.node].name].trials and call.node not in self.fixed:
                calls.setdefault(call.node, []).append(call)
            call.fixed |= self.fixed.get(call.node, {})  # another recipe of this round may have found it
        choices = [[(node, *each) for each in self.settings_to_try(those[0])] for node, those in calls.items()]
        for combination in itertools.islice(itertools.product(*choices), MOST_TRIALS):
            for node, name, value in combination:
                for call in calls[node]:
                    call.fixed[name] = value
                self.fixed[node] = {name: value}
            yield
        for node in calls:
            self.fixed.pop(node, None)

    def settings_to_try(self, call):
        name, values = OPS[self.nodes[call.node].name].trials
        return [(name, None)] if name == "eps" and not call.pinned else [(name, value) for value in values]

    def run(self, node, inputs, settings, exact=True):
        return OPS[self.nodes[node].name].run(inputs, {"exact": exact, **settings})

    def recorded(self, group):
        return forms.row_of(self.recorder.tensor(group.slots[0]))

    def held(self, each):
        return held_tensor(self.nodes[each.node].handle, each.edge, each.slot).detach()

    # ---- forms

    def choose_form(self, group):
        reading = group.needs - {needs.SHAPE}
        if not reading:
            group.kept_bytes = 0
            return
        those = self.forms_for(group, reading)
        if self.policy != "auto":
            group.take(self.choice_of(group, those))
            return
        group.take(self.choice_of(group, [each for each in those if not isinstance(each, forms.Narrow)]))
        fewest = group.kept_bytes
        for form in (each for each in those if isinstance(each, forms.Narrow)):
            choice = self.choice_of(group, [form])
            if choice.narrow and choice.kept_bytes < fewest:
                group.narrower[form.name], fewest = choice, choice.kept_bytes
        if group.narrower and group.form is None:
            group.reason = NOT_ROUNDED

    def choice_of(self, group, those):
        """The first of these forms that takes fewer bytes, and gives back what readers need."""
        maker = self.grouping.root_of(group.slots[0])
        made = f"made by {_short(self.nodes[maker[0]].name)}; " if isinstance(maker, tuple) else ""
        row, reason = self.recorded(group), made + "no form of the policy takes fewer bytes"
        for form in those:
            begin = _now(row.device)
            try:
                stored = form.store(row)
                if stored is None:
                    continue
                between = _now(row.device)
                loaded = form.load(stored, row.dtype, row.numel(), row.device)
                seconds = between - begin + (_now(row.device) - between) * _reads(group)
            except library.Error as error:
                reason = str(error)
                continue
            if not form.serves(row, loaded):
                reason = f"{form.name} did not give back what was saved"
            elif isinstance(form, forms.Narrow) and not norms.bear(self.nodes, group, loaded - row):
                reason = f"{form.name} is too coarse for what a norm scales up"
            elif stored.bytes < group.bytes:
                return Choice(form, kept_bytes=stored.bytes, seconds=seconds)
        return raw(group, reason)

    def forms_for(self, group, reading):
        slots = [slot for slot in group.slots if slot.need != needs.SHAPE]
        if group.dtype == torch.bool:
            return [forms.Bits()]
        if group.dtype == torch.int64:
            return pooling.forms_of(self.nodes[slots[0].node], slots) if len(slots) == 1 else []
        if reading == {needs.SIGN}:
            return [self.mask(None, slots)]
        if reading == {needs.RANGE}:
            bounds = {self.bounds(slot) for slot in slots}
            if len(bounds) == 1:
                return [self.mask(bounds.pop(), slots)]
        made_apart = any(slot.producer is None and not slot.name.startswith("result") and slot.declared is None
                         for slot in slots)
        if made_apart or reading == {needs.MASK}:
            return [forms.TwoValued()]
        return [*map(forms.Narrow, self.narrow_formats(group, reading)), forms.Sparse()]

    def mask(self, bounds, slots):
        names = {self.nodes[slot.node].name for slot in slots if slot.declared is None}
        return forms.Mask(bounds, takes_nan=names <= needs.TAKE_NAN)

    def narrow_formats(self, group, reading):
        """The formats to which the values may be rounded, the most precise first. A policy that has one falls back to fp16."""
        if group.exact or not reading <= {needs.VALUE, needs.FINE, needs.SIGN}:
            return []
        fine = {"fp10": "fp16", "fp8": "fp16"} if group.fine or needs.FINE in reading else {}
        wanted = dict.fromkeys(fine.get(each, each) for each in self.formats)
        if self.policy in ("fp8", "fp10"):
            wanted["fp16"] = None
        return [each for each in wanted if group.dtype == torch.float32 or each in ("fp8", "fp10")]

    def bounds(self, slot):
        if slot.declared is not None:
            return slot.declared.bounds
        node = self.nodes[slot.node]
        return tuple(float(setting_of(node.handle, each)) for each in needs.RANGES[node.name, slot.name])


def _is_left_out(node, edge, name):
    """Whether an optional tensor that an op would have saved was not given to it."""
    return edge < 0 and hasattr(node.handle, PREFIX + name) and saved(node.handle, name) is None


def _now(device):
    """Seconds, once the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _reads(group):
    return len({slot.node for slot in group.slots if slot.need != needs.SHAPE})


def _fresh(inputs, nodes):
    """Whether the first input is computed for this call alone: by an op, or by views of what an op computed."""
    first = inputs[0] if inputs else None
    while isinstance(first, Call) and OPS[nodes[first.node].name].view:
        first = first.inputs[0]
    return isinstance(first, Call)


def _short(name):
    base = name.rstrip("0123456789").removesuffix("Backward")
    return "".join("_" + each.lower() if each.isupper() and place else each.lower() for place, each in enumerate(base))
