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
from .compose import VALUES, Composer, short_name
from .grouping import Grouping
from .levels import NOT_ROUNDED, raw
from .plan import Choice, Plan, evaluate
from .recipes import OPS
from .step import setting_of

MOST_TRIALS = 64  # of settings that nodes do not keep


class Chooser:
    def __init__(self, recorder, protected, policy, formats, disabled, recompute="cheap"):
        """formats: to which values may be rounded (levels.formats_of)."""
        self.recorder, self.policy, self.formats, self.disabled = recorder, policy, formats, disabled
        self.nodes = recorder.nodes
        self.protected = frozenset(protected | recorder.leaves)
        self.grouping = Grouping(self.nodes, self.protected, disabled)
        self.groups = self.grouping.groups
        self.composer = Composer(self.nodes, self.grouping, recompute)
        self.refused = set()  # groups whose recipe did not give the saved bits
        self.verified = {}  # key -> (recipe, seconds)

    def plan(self):
        self.choose_recipes()
        for group in self.groups.values():
            if group.recipe is None:
                self.choose_form(group)
        rounding.widen(self)
        for group in self.groups.values():
            if self.composer.wants_values(group):
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
                      if group.key not in self.refused and self.composer.wants_values(group) and group.base is not None
                      and group.base.producer is not None and self.composer.is_as_made(group)]
        dropped = {}  # key -> recipe
        for group in sorted(candidates, key=lambda each: -each.first):
            trial = {**dropped, group.key: None}
            affected = [group, *(self.groups[key] for key, recipe in dropped.items() if group.key in recipe.groups)]
            changed = {each.key: self.composer.recipe_of(each, trial) for each in affected}
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
                                    self.composer.held)
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
        for call in recipe.calls:
            if OPS[self.nodes[call.node].name].trials and call.node not in self.composer.fixed:
                calls.setdefault(call.node, []).append(call)
            call.fixed |= self.composer.fixed.get(call.node, {})  # another recipe of this round may have found it
        choices = [[(node, *each) for each in self.settings_to_try(those[0])] for node, those in calls.items()]
        for combination in itertools.islice(itertools.product(*choices), MOST_TRIALS):
            for node, name, value in combination:
                for call in calls[node]:
                    call.fixed[name] = value
                self.composer.fixed[node] = {name: value}
            yield
        for node in calls:
            self.composer.fixed.pop(node, None)

    def settings_to_try(self, call):
        name, values = OPS[self.nodes[call.node].name].trials
        return [(name, None)] if name == "eps" and not call.pinned else [(name, value) for value in values]

    def run(self, node, inputs, settings, exact=True):
        return OPS[self.nodes[node].name].run(inputs, {"exact": exact, **settings})

    def recorded(self, group):
        return forms.row_of(self.recorder.tensor(group.slots[0]))

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
        made = f"made by {short_name(self.nodes[maker[0]].name)}; " if isinstance(maker, tuple) else ""
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


def _now(device):
    """Seconds, once the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _reads(group):
    return len({slot.node for slot in group.slots if slot.need != needs.SHAPE})
