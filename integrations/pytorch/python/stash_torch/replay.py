# SPDX-License-Identifier: Apache-2.0
"""A step that follows a plan: autograd's slots give what they saved to entries, and get it back when backward reads."""

import collections
import weakref

import torch

from . import forms, library, needs
from .entries import Computed, Encoded, Raw, Waiting
from .plan import evaluate
from .recipes import OPS
from .step import edges_of, held_tensor, hooked_by_others, raw_slot, saved, setting_of, slots_of


class Deviation(Exception):
    """The step does something else than the plan."""


class Replay:
    """The state of one forward pass. Entries are found by the first saver of their storage, which two plans that begin
    alike have in common; so a step may go from one plan to another."""

    def __init__(self, session):
        self.session, self.forward = session, session.forward
        self.entries = {}
        self.premises = {}  # by position: what was found to be as in the recorded step
        self.held = {}
        self.waiting = {}  # by the position at which they settle: (plan, group, entry)
        self.away = {}  # group -> weakly, what of it is on the host
        self.back = collections.deque()  # what begins to come back (plan.Plan)
        self.touched = False  # whether a slot has been replaced

    def node(self, position, node, work):
        """Does what the plan says of this node. Raises Deviation before anything is changed."""
        if type(node).__name__ != work.name or edges_of(node, position) != work.edges:
            raise Deviation
        if self.session.mover is not None:
            self.session.mover.passed(position)
        if work.idle:
            return
        if hooked_by_others() or not _has_premises(node, work):
            raise Deviation
        if work.bounded and any(_bounds_of(node, each.slot) != each.bounds for each in work.bounded):
            raise Deviation
        if work.declared and not set(work.declared) <= set(slots_of(node)):
            raise Deviation  # another function of that name
        tensors = [self._saved(node, each.slot) for each in work.slots]
        sources = {group: self._saved(node, slot) for group, slot in work.sources.items()}
        if work.shape is not None:
            self.premises[position] = work.premises
        for edge, slot in work.held:
            tensor = held_tensor(node, edge, slot)
            if tensor is None:
                raise Deviation
            tensor = tensor.detach()
            self.held[position, edge, slot] = (tensor, tensor._version)
        for group, tensor in sources.items():
            self.entries[group] = Raw(group, tensor)
        for each, tensor in zip(work.slots, tensors):
            self._take(node, each, tensor, position)
        for plan, group, entry in self.waiting.pop(position, ()):
            made = self._recipe(group.recipe, exact=not group.rounded) if plan is self.session.active else None
            if made is not None:
                entry.settle(made)

    def fits(self, begun, plan, position):
        """Whether what was done for one plan up to here may go on under another: the same ops, and storages of the same
        shapes."""
        if len(plan.work) <= position:
            return False
        if any(a.name != b.name or a.edges != b.edges for a, b in zip(begun.work[:position], plan.work[:position])):
            return False
        return all(_shapes(begun.groups.get(key[:2])) == _shapes(plan.groups.get(key[:2])) for key in self.entries
                   if key[:2] in plan.groups)

    def let_go(self):
        """From here on only autograd's slots hold entries, so that these go when their readers have run."""
        self.entries, self.held, self.premises, self.waiting = {}, {}, {}, {}
        self.back = collections.deque(self.session.active.back)

    def reached(self, position):
        """The backward pass reads a slot of this node."""
        while self.back and self.back[0][0] >= position:
            away = self.away.get(self.back.popleft()[1], _nothing)()
            if away is not None:
                away.begin()

    def _saved(self, node, slot):
        tensor = saved(node, slot.name).detach()
        if (tensor.shape != slot.shape or tensor.stride() != slot.stride or tensor.dtype != slot.dtype
                or tensor.storage_offset() != slot.offset or tensor._version != slot.version):
            raise Deviation
        return tensor

    def _take(self, node, each, tensor, position):
        if each.hollow:
            payload = Hollow(self, each, tensor.device)
        else:
            entry = self._entry(each, tensor, position)
            if entry is None:
                return
            payload = View(self, entry, each)
        self.touched = True
        try:
            raw_slot(node, each.slot.name).register_hooks(lambda _: payload, unpack)
        except RuntimeError:  # hooks of somebody else have it
            self.session.counts["slots with hooks of others"] += 1

    def _entry(self, each, tensor, position):
        key = (*each.group, "mask") if each.mask else each.group
        group = self.session.active.groups[each.group]
        gives = group.gives(each.mask)
        entry = self.entries.get(key)
        if entry is not None:
            return entry if entry.stands_for(tensor) and _serves(entry, gives) and not isinstance(entry, Raw) else None
        self.session.measure.see(each.group, tensor)
        if group.recipe is not None and not each.mask:
            entry = self._computed(group, tensor, position)
            if entry is None:
                return None
        else:
            form = group.mask if each.mask else group.form
            try:
                stored = form.store(forms.row_of(tensor))
            except library.Error:
                stored = None
            if stored is None:
                self.session.counts["kept wider"] += 1
                return None
            if group.host_bytes and not each.mask:
                stored = self._send(group, form, stored, tensor)
            if stored is None:
                return None
            entry = Encoded(key, tensor, form, stored)
        entry.gives = gives
        self.entries[key] = entry
        return entry

    def _computed(self, group, tensor, position):
        settles = group.recipe.ready_at
        if settles > position:
            entry = Waiting(group.key, tensor)
            self.waiting.setdefault(settles, []).append((self.session.active, group, entry))
            return entry
        recipe = self._recipe(group.recipe, exact=not group.rounded)
        return Computed(group.key, tensor, recipe) if recipe is not None else None

    def _send(self, group, form, stored, tensor):
        """To the host; what stays on the device if that fails, or None where it is the tensor itself."""
        own, mover = isinstance(form, forms.AsIs), self.session.mover
        away = mover.take(stored, self.session.active.until(group, mover.ahead), tensor if own else None)
        if away is None:
            self.session.counts["no memory on the host"] += 1
            return None if own else stored
        self.away[group.key] = weakref.ref(away)
        return away

    def _recipe(self, recipe, exact):
        """A call that holds all that the recipe reads, or None if something was not kept."""
        nodes, work, groups = self.session.active.nodes, self.session.active.work, self.session.active.groups
        read = recipe.reads
        entries = {group: self.entries.get(group) for group in read}
        held = {each: self.held.get((each.node, each.edge, each.slot)) for each in recipe.held}
        # Another plan may have been followed up to here, which asked for something else.
        premised = all(self.premises.get(call.node) == work[call.node].premises for call in recipe.calls)
        if not premised or None in [*entries.values(), *held.values()]:
            return None
        if not all(_serves(entry, groups[key].gives()) for key, entry in entries.items()):
            return None

        def run(node, values, chosen):
            return OPS[nodes[node].name].run(values, {"exact": exact, **chosen})

        def compute(keep):
            rows = {}

            def row(source):
                if read[source.group] == 1:
                    return entries[source.group].row(keep)
                if source.group not in rows:
                    rows[source.group] = entries[source.group].row(keep)
                return rows[source.group]

            return evaluate(recipe.call, run, row, lambda each: _unchanged(*held[each]))

        return compute


def _nothing():
    return None


def _serves(entry, gives):
    """Whether an entry, which another plan may have made, does where a plan reads what `gives` says."""
    return entry.gives is None or entry.gives == gives


def _has_premises(node, work):
    if work.shape is not None:
        made = node._input_metadata[0]
        if tuple(made.shape) != work.shape or made.dtype != work.dtype:
            return False
    for edge, slot, address in work.pinned:
        if held_tensor(node, edge, slot).data_ptr() != address:
            return False
    return not work.settings or all(_is_set(node, name, value) for name, value in work.settings.items())


def _is_set(node, name, value):
    found = setting_of(node, name)
    return found is None if value is None else found == value


def _bounds_of(node, slot):
    if slot.declared is not None:
        return slot.declared.bounds
    return tuple(float(setting_of(node, name)) for name in needs.RANGES[type(node).__name__, slot.name])


def _unchanged(tensor, version):
    if tensor._version != version:
        raise forms.Moved("parameter or small tensor of a recomputation")
    return tensor


def _shapes(group):
    """Of the storage's first saver; later savers are checked one by one."""
    slot = group.slots[0] if group is not None else None
    return slot and (slot.shape, slot.stride, slot.offset, slot.dtype, slot.bytes)


class View:
    """A slot's tensor, as a view of what its entry gives back."""

    __slots__ = ("reader", "device", "entry", "work")

    def __init__(self, replay, entry, work):
        self.reader, self.device = weakref.ref(replay), entry.device
        self.entry, self.work = entry, work

    def tensor(self):
        slot = self.work.slot
        return self.entry.row(self.work.keep).as_strided(slot.shape, slot.stride, slot.offset)


class Hollow:
    """A slot of which only shape, strides and type are read."""

    __slots__ = ("reader", "device", "work")

    def __init__(self, replay, work, device):
        self.reader, self.device = weakref.ref(replay), device
        self.work = work

    def tensor(self):
        slot = self.work.slot
        return forms.without_memory(slot.shape, slot.stride, slot.dtype, self.device)


def unpack(payload):
    replay = payload.reader()
    if replay is not None:
        replay.session.begin_backward(replay.forward)
        replay.reached(payload.work.slot.node)
    if not torch.is_grad_enabled():
        return _read(payload)
    with torch.no_grad():
        return _read(payload)


def _read(payload):
    """Not under autocast: an op runs again in the types in which it ran."""
    if torch.is_autocast_enabled(payload.device.type):
        with torch.autocast(payload.device.type, enabled=False):
            return payload.tensor()
    return payload.tensor()
