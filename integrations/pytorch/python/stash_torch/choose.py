# SPDX-License-Identifier: Apache-2.0
"""From a recorded step to a plan: which storages are computed again, and in which form the others are kept.

Everything that a lossless plan would do is done once here, on the data of the recorded step, and compared bit for bit
with what autograd saved. What differs stays as it is.
"""

import itertools
from dataclasses import dataclass, field

import torch

from . import forms, needs, pooling
from .recipes import OPS, VIEWS
from .step import setting_of

SMALLEST = 4096  # bytes; less is not worth a call
MOST_OPS = 6  # that one recomputation runs
DEEPEST = 3  # recomputed storages below a recomputed one
MOST_TRIALS = 64  # of settings that nodes do not keep
NEAR = 4  # nodes between two readers that share one loaded storage
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass
class Group:
    """One storage with everything that reads it in the backward pass."""

    key: tuple  # (node, slot) of its first saver
    slots: list
    bytes: int
    dtype: torch.dtype
    base: object  # the slot whose tensor covers the storage, or None
    needs: frozenset
    form: object = None  # forms.Form, or None: raw or recomputed
    recipe: object = None
    kept_bytes: int = 0
    reason: str = ""  # why it stays raw
    exact: bool = False  # a recomputed tensor with exact needs starts here
    mask: object = None  # forms.Mask of a recomputed tensor whose source is rounded, for readers of signs or ranges

    @property
    def first(self):
        return self.key[0]

    def how(self):
        if self.recipe is not None:
            return "computed again by " + ", ".join(self.recipe.names) + (f", and {self.mask.name}" if self.mask else "")
        if self.needs == {needs.SHAPE}:
            return "shape only"
        return self.form.name if self.form is not None else "raw"


@dataclass(frozen=True)
class Source:
    """A value that a recipe reads: a view of a kept or recomputed storage."""

    group: tuple
    shape: tuple
    stride: tuple
    offset: int


@dataclass(frozen=True)
class Held:
    """A tensor that is read where it is: a parameter (edge) or something small (slot) of a node."""

    node: int
    edge: int
    slot: str


@dataclass
class Call:
    node: int
    output: int
    inputs: list
    settings: tuple  # names of `_saved_*`
    fixed: dict  # settings that are the same in every step
    pinned: tuple = ()  # what tells the module whose settings were found by trial: (edge, slot, address)


@dataclass
class Recipe:
    call: Call
    names: tuple  # ops, in the order they run
    groups: frozenset  # all storages that it reads

    def calls(self):
        found = []

        def walk(each):
            if isinstance(each, Call):
                for one in each.inputs:
                    walk(one)
                found.append(each)

        walk(self.call)
        return found


class Impossible(Exception):
    pass


@dataclass
class Plan:
    nodes: list  # step.Node without handles
    groups: dict  # key -> Group
    policy: str
    disabled: frozenset
    before: int = 0
    after: int = 0
    held: set = field(default_factory=set)

    def __post_init__(self):
        self.work = schedule(self)


class Chooser:
    def __init__(self, recorder, protected, policy, disabled):
        self.recorder, self.policy, self.disabled = recorder, policy, disabled
        self.nodes = recorder.nodes
        self.protected = protected | recorder.leaves
        self.groups, self.of_slot, self.value_of = {}, {}, {}
        self.fixed = {}  # node -> settings found by trial
        self.refused = set()  # groups whose recipe did not give the saved bits
        self.verified = {}

    def plan(self):
        self.find_groups()
        self.choose_recipes()
        for group in self.groups.values():
            if group.recipe is None:
                self.choose_form(group)
        plan = Plan(self.nodes, self.groups, self.policy, self.disabled)
        sizes = {(slot.storage, slot.version): slot.bytes for node in self.nodes for slot in node.slots
                 if slot.storage not in self.protected and self.is_made_here(slot)}
        for group in self.groups.values():
            sizes[(group.slots[0].storage, group.slots[0].version)] = group.bytes
        plan.before = sum(sizes.values())
        plan.after = plan.before - sum(group.bytes - group.kept_bytes for group in self.groups.values())
        for node in self.nodes:
            node.handle = None
        return plan

    # ---- storages

    def find_groups(self):
        storages = {}
        for node in self.nodes:
            for slot in node.slots:
                if slot.bytes >= SMALLEST and slot.storage not in self.protected:
                    storages.setdefault((slot.storage, slot.version), []).append(slot)
        for slots in storages.values():
            if not all(self.is_map(slot) for slot in slots) or len({slot.dtype for slot in slots}) > 1:
                continue
            group = self.group_of(slots)
            self.groups[group.key] = group
            for slot in slots:
                self.of_slot[slot.node, slot.name] = group
                if slot.producer is not None:
                    self.value_of.setdefault(slot.producer, slot)

    def is_map(self, slot):
        """Made in this forward pass, from more than parameters, and of a type that forms take."""
        if (self.nodes[slot.node].name, slot.name) in needs.POOL_INDICES:
            return True
        if slot.dtype not in FLOATS and slot.dtype != torch.bool:
            return False
        if slot.producer is None:
            own = slot.name.startswith("result")
            factor = self.nodes[slot.node].name == "MulBackward0" and slot.name == "other" and not slot.tracked
            return own or factor
        return not self.from_parameter(slot.producer[0])

    def is_made_here(self, slot):
        return slot.name.startswith("result") if slot.producer is None else not self.from_parameter(slot.producer[0])

    def from_parameter(self, index):
        node = self.nodes[index]
        while node.name in VIEWS or node.name == "ToCopyBackward0":
            producer = node.producers[0]
            if producer == "leaf":
                return True
            if not isinstance(producer, tuple):
                return True
            node = self.nodes[producer[0]]
        return False

    def group_of(self, slots):
        first = min(slots, key=lambda slot: slot.node)
        size = first.dtype.itemsize
        base = next((slot for slot in slots if slot.offset == 0 and _elements(slot.shape) * size == slot.bytes
                     and _dense(slot)), None)
        found = frozenset(needs.need_of(self.nodes[slot.node].name, slot.name, self.disabled) for slot in slots)
        return Group((first.node, first.name), slots, first.bytes, first.dtype, base, found, kept_bytes=first.bytes)

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
            group.recipe, group.mask, group.exact, group.kept_bytes = None, None, False, group.bytes
        candidates = [group for group in self.groups.values()
                      if group.key not in self.refused and self.wants_values(group) and group.base is not None
                      and group.base.producer is not None]
        dropped = {}
        for group in sorted(candidates, key=lambda each: -each.first):
            trial = {**dropped, group.key: group}
            if all(self.recipe_of(each, trial) is not None for each in self.affected(group, dropped)):
                dropped = trial
        for group in dropped.values():
            group.recipe = self.recipe_of(group, dropped)
            group.kept_bytes = 0
        for group in dropped.values():
            group.mask = self.mask_of(group)
            if needs.EXACT in group.needs or (group.mask is None and group.needs & {needs.SIGN, needs.RANGE}):
                for key in group.recipe.groups:
                    self.groups[key].exact = True

    def mask_of(self, group):
        """A sign that is computed again from rounded values may flip: policies that round keep it."""
        if self.policy == "lossless" or needs.EXACT in group.needs:
            return None
        reading = [slot for slot in group.slots if self.need(slot) in (needs.SIGN, needs.RANGE)]
        wanted = {self.need(slot) for slot in reading}
        bounds = {self.bounds(slot) if self.need(slot) == needs.RANGE else None for slot in reading}
        if len(wanted) != 1 or len(bounds) != 1:
            return None
        mask = forms.Mask(bounds.pop())
        group.kept_bytes = forms.library.bound_bytes(mask.how, group.dtype, group.bytes // group.dtype.itemsize)
        return mask

    def affected(self, group, dropped):
        return [group, *(each for each in dropped.values() if each.first >= group.first)]

    def wants_values(self, group):
        return bool(group.needs & {needs.VALUE, needs.EXACT}) and group.dtype in FLOATS

    def recipe_of(self, group, dropped):
        names, groups = [], set()
        try:
            call = self.call_of(group.base.producer, group.first, dropped, DEEPEST, names, groups)
        except Impossible:
            return None
        return Recipe(call, tuple(names), frozenset(groups))

    def call_of(self, value, before, dropped, depth, names, groups):
        index, output = value
        node = self.nodes[index]
        op = OPS.get(node.name)
        if op is None or (node.name == "NativeBatchNormBackward0" and not node.handle._saved_training):
            raise Impossible
        if not all(hasattr(node.handle, "_saved_" + name) for name in op.settings):
            raise Impossible
        arguments = [(edge, None) for edge in range(len(node.edges))] if op.variadic else op.inputs
        inputs = [self.input_of(index, edge, slot, before, dropped, depth, names, groups) for edge, slot in arguments]
        if not op.view:
            names.append(_short(node.name))
            if sum(1 for _ in names) > MOST_OPS:
                raise Impossible
        fixed = {"shape": node.shape, "dtype": node.dtype, "fresh": _fresh(inputs, self.nodes),
                 **self.fixed.get(index, {})}
        return Call(index, output, inputs, op.settings, fixed, self.pins(op, index, inputs))

    def pins(self, op, index, inputs):
        """A norm's epsilon is not kept by autograd. It belongs to a module, which is known by its parameters."""
        if not op.trials or op.trials[0] != "eps":
            return ()
        held = [each for each in inputs[1:] if isinstance(each, Held)]
        if not held:
            raise Impossible
        return tuple((each.edge, each.slot, self.run(each).data_ptr()) for each in held)

    def input_of(self, index, edge, slot_name, before, dropped, depth, names, groups):
        node = self.nodes[index]
        slot = node.slot(slot_name) if slot_name else None
        if slot is not None:
            group = self.of_slot.get((index, slot_name))
            if group is None:
                return Held(index, -1, slot_name)
            return self.read(slot, group, before, dropped, depth, names, groups)
        producer = node.producers[edge] if edge < len(node.producers) else None
        if producer == "leaf":
            return Held(index, edge, "")
        if not isinstance(producer, tuple):
            if producer is None and edge == 2 and node.name.startswith("Native"):
                return None  # a norm without a bias
            raise Impossible
        known = self.value_of.get(producer)
        if known is not None:
            group = self.of_slot[known.node, known.name]
            return self.read(known, group, before, dropped, depth, names, groups)
        return self.call_of(producer, before, dropped, depth, names, groups)

    def read(self, slot, group, before, dropped, depth, names, groups):
        """A value that some node saved: read where it is kept, or computed again in turn."""
        if group.first > before or not (self.wants_values(group) or group.key in dropped):
            # Saved too late, or kept as a mask: its producer may still be run.
            if slot.producer is None:
                raise Impossible
            return self.call_of(slot.producer, before, dropped, depth, names, groups)
        if group.key in dropped:
            if depth == 0:
                raise Impossible
            self.call_of(group.base.producer, group.first, dropped, depth - 1, names, groups)
        groups.add(group.key)
        return Source(group.key, slot.shape, slot.stride, slot.offset)

    def gives_saved_bits(self, group):
        saved = forms.row_of(self.recorder.tensor(group.base))
        verified = self.verified.get(group.key)
        if verified == repr(group.recipe):
            return True
        for _ in self.trials(group.recipe):
            try:
                computed = self.run(group.recipe.call)
            except RuntimeError:  # this setting does not fit the shapes
                continue
            if (computed.dtype == saved.dtype and computed.stride() == group.base.stride
                    and computed.untyped_storage().nbytes() == group.bytes
                    and forms.same_bits(forms.row_of(computed), saved)):
                self.verified[group.key] = repr(group.recipe)
                return True
        return False

    def trials(self, recipe):
        """Sets what nodes do not keep, one combination after the other, until the caller is content."""
        calls = {call.node: call for call in recipe.calls()
                 if OPS[self.nodes[call.node].name].trials and call.node not in self.fixed}
        choices = [[(node, name, value) for value in values] for node, (name, values) in
                   ((node, OPS[self.nodes[node].name].trials) for node in calls)]
        for combination in itertools.islice(itertools.product(*choices), MOST_TRIALS):
            for node, name, value in combination:
                calls[node].fixed[name] = value
                self.fixed[node] = {name: value}
            yield
        for node in calls:
            self.fixed.pop(node, None)

    def run(self, each):
        if each is None:
            return None
        if isinstance(each, Held):
            handle = self.nodes[each.node].handle
            if each.edge >= 0:
                return handle.next_functions[each.edge][0].variable.detach()
            return getattr(handle, "_saved_" + each.slot).detach()
        if isinstance(each, Source):
            return self.recorded(each)
        handle = self.nodes[each.node].handle
        settings = {**each.fixed, **{name: setting_of(handle, name) for name in each.settings}}
        return OPS[self.nodes[each.node].name].run([self.run(one) for one in each.inputs], settings)

    def recorded(self, source):
        row = forms.row_of(self.recorder.tensor(self.groups[source.group].slots[0]))
        return row.as_strided(source.shape, source.stride, source.offset)

    # ---- forms

    def choose_form(self, group):
        row = forms.row_of(self.recorder.tensor(group.slots[0]))
        reading = group.needs - {needs.SHAPE}
        if not reading:
            group.kept_bytes = 0
            return
        group.reason = "no form of the policy takes fewer bytes"
        for form in self.forms_for(group, reading):
            try:
                stored = form.store(row)
                if stored is None:
                    continue
                loaded = form.load(stored, row.dtype, row.numel(), row.device)
            except forms.library.Error as error:
                group.reason = str(error)
                continue
            faithful = form.serves(row, loaded) if isinstance(form, forms.Mask) else (
                isinstance(form, forms.Narrow) or not form.lossless or forms.same_bits(row, loaded))
            if not faithful:
                group.reason = f"{form.name} did not give back what was saved"
            elif stored.bytes < group.bytes:
                group.form, group.kept_bytes, group.reason = form, stored.bytes, ""
                return

    def forms_for(self, group, reading):
        slots = [slot for slot in group.slots if self.need(slot) != needs.SHAPE]
        if group.dtype == torch.bool:
            return [forms.Bits()]
        if group.dtype == torch.int64:
            return pooling.forms_of(self.nodes[slots[0].node], slots) if len(slots) == 1 else []
        if reading == {needs.SIGN}:
            return [forms.Mask()]
        if reading == {needs.RANGE}:
            bounds = {self.bounds(slot) for slot in slots}
            if len(bounds) == 1:
                return [forms.Mask(bounds.pop())]
        if any(slot.producer is None and not slot.name.startswith("result") for slot in slots):
            return [forms.TwoValued()]
        narrow = self.policy != "lossless" and not group.exact and reading <= {needs.VALUE, needs.SIGN}
        if narrow and (group.dtype == torch.float32 or self.policy in ("fp8", "fp10")):
            return [forms.Narrow(self.policy), forms.Sparse()]
        return [forms.Sparse()]

    def need(self, slot):
        return needs.need_of(self.nodes[slot.node].name, slot.name, self.disabled)

    def bounds(self, slot):
        name = self.nodes[slot.node].name
        return tuple(float(getattr(self.nodes[slot.node].handle, "_saved_" + each))
                     for each in needs.RANGES[name, slot.name])


def _fresh(inputs, nodes):
    """Whether the first input is computed for this call alone: by an op, or by views of what an op computed."""
    first = inputs[0] if inputs else None
    while isinstance(first, Call) and OPS[nodes[first.node].name].view:
        first = first.inputs[0]
    return isinstance(first, Call)


def _elements(shape):
    count = 1
    for each in shape:
        count *= each
    return count


def _dense(slot):
    """Whether the strides visit every element of the storage once."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(slot.stride, slot.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _short(name):
    base = name.rstrip("0123456789").removesuffix("Backward")
    return "".join("_" + each.lower() if each.isupper() and place else each.lower() for place, each in enumerate(base))


# ---- what replay does at each node


@dataclass
class SlotWork:
    name: str
    group: tuple
    shape: tuple
    stride: tuple
    offset: int
    dtype: torch.dtype
    hollow: bool  # only the shape is read
    mask: bool  # only signs or ranges are read, and are kept apart
    keep: frozenset  # groups that the next readers share


@dataclass
class Work:
    name: str
    edges: tuple
    slots: tuple = ()
    sources: tuple = ()  # (slot name, group): raw storages that recipes start from
    held: tuple = ()  # (edge, slot) of tensors that recipes read where they are
    settings: tuple = ()
    shape: tuple = None  # of the result of an op that a recipe runs
    pinned: tuple = ()  # (edge, slot, address): parameters that tell which module this is

    def idle(self):
        return not (self.slots or self.sources or self.held or self.settings or self.shape is not None)


def schedule(plan):
    work = [Work(node.name, node.edges) for node in plan.nodes]
    keep = _shared_rows(plan)
    for group in plan.groups.values():
        if group.key in plan.held:
            continue
        for slot in group.slots:
            node = plan.nodes[slot.node]
            need = needs.need_of(node.name, slot.name, plan.disabled)
            hollow, mask = need == needs.SHAPE, group.mask is not None and need in (needs.SIGN, needs.RANGE)
            if hollow or group.form is not None or group.recipe is not None:
                work[slot.node].slots += (SlotWork(slot.name, group.key, slot.shape, slot.stride, slot.offset,
                                                   slot.dtype, hollow, mask, keep.get((slot.node, slot.name), frozenset())),)
    for group in plan.groups.values():
        if group.recipe is None or group.key in plan.held:
            continue
        for key in group.recipe.groups:
            source = plan.groups[key]
            if (source.form is None and source.recipe is None) or key in plan.held:
                work[key[0]].sources += ((key[1], key),) if (key[1], key) not in work[key[0]].sources else ()
        for call in group.recipe.calls():
            mine = work[call.node]
            mine.settings = tuple(sorted({*mine.settings, *call.settings}))
            mine.shape = tuple(plan.nodes[call.node].shape)
            mine.pinned = call.pinned
            for each in call.inputs:
                if isinstance(each, Held):
                    held = (each.edge, each.slot)
                    work[each.node].held = tuple(sorted({*work[each.node].held, held}))
    return work


def _shared_rows(plan):
    """(node, slot) -> groups that are read again within NEAR nodes after it, so that their rows are kept till then.
    Backward runs nodes in the reverse of their order."""
    reads = {}
    for group in plan.groups.values():
        for slot in group.slots:
            if needs.need_of(plan.nodes[slot.node].name, slot.name, plan.disabled) == needs.SHAPE:
                continue
            seen, stack = set(), [group.key]
            while stack:
                key = stack.pop()
                if key in seen:
                    continue
                seen.add(key)
                reads.setdefault(key, []).append((slot.node, slot.name))
                if plan.groups[key].recipe is not None:
                    stack.extend(plan.groups[key].recipe.groups)
    keep = {}
    for key, places in reads.items():
        places = sorted(set(places), key=lambda place: -place[0])
        for place, following in zip(places, places[1:]):
            if place[0] - following[0] <= NEAR:
                keep.setdefault(place, set()).add(key)
    return {place: frozenset(groups) for place, groups in keep.items()}
