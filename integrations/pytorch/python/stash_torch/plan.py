# SPDX-License-Identifier: Apache-2.0
"""What a plan says: for every storage how it is kept, and for every node of autograd what a step that follows the plan
does there."""

import functools
from dataclasses import dataclass, field

import torch

from . import forms, needs

# Nodes between two readers that share one loaded storage, for lossless plans and for those that round. Sharing saves time
# and holds one more map, which is much of the peak where maps are kept in few bits.
NEAR = {True: 1, False: 0}


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
    density: float = 1.0  # share of its values that are not zero, in the recorded step
    seconds: float = 0.0  # what a step spends on the form or the recipe, measured once
    exact: bool = False  # a recomputed tensor with exact needs starts here
    fine: bool = False  # one that may be rounded to 16 bits starts here
    mask: object = None  # forms.Mask of a recomputed tensor whose source is rounded, for readers of signs or ranges

    @property
    def first(self):
        return self.key[0]

    def gives(self, policy, mask=False):
        """What readers are given in place of the saved bits (forms.Form.gives); None: those bits."""
        if self.recipe is not None and not mask:
            return None if policy == "lossless" else id(self.recipe)
        form = self.mask if mask else self.form
        return form.gives if form is not None else None

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
    inputs: list
    settings: dict  # by name: what the node kept besides tensors (`_saved_*`); every step that follows the plan has it
    fixed: dict  # settings that are the same in every step
    pinned: tuple = ()  # what tells the module whose settings were found by trial: (edge, slot, address)


@dataclass
class Recipe:
    call: Call
    names: tuple  # ops, in the order they run
    groups: frozenset  # all storages that it reads

    @functools.cached_property
    def ready_at(self):
        """The node at which all storages that it reads itself have been saved."""
        return max((each.group[0] for call in self.calls() for each in call.inputs if isinstance(each, Source)), default=-1)

    def calls(self):
        found = []

        def walk(each):
            if isinstance(each, Call):
                for one in each.inputs:
                    walk(one)
                found.append(each)

        walk(self.call)
        return found


def evaluate(each, run, source, held):
    """The value of a Call, Source, Held or None (an argument that is left out).

    run: (node, inputs, settings) -> tensor. source, held: what these are read from.
    """
    if each is None:
        return None
    if isinstance(each, Source):
        return source(each).as_strided(each.shape, each.stride, each.offset)
    if isinstance(each, Held):
        return held(each)
    inputs = [evaluate(one, run, source, held) for one in each.inputs]
    return run(each.node, inputs, {**each.fixed, **each.settings})


@dataclass
class Plan:
    nodes: list  # step.Node without handles
    groups: dict  # key -> Group
    policy: str
    disabled: frozenset  # entries of the needs that this release of torch does not honour
    before: int  # bytes that the step saved
    protected: frozenset = frozenset()  # storages of parameters and buffers, as the slots name them
    untouched: dict = field(default_factory=dict)  # what no form or recipe is for: saver -> (number, bytes)
    steps: int = 0  # of this kind, recorded or followed

    def __post_init__(self):
        self.shared = frozenset()  # ((node, slot), group): reads after which the row waits for the next one
        self.fit = None  # fit.Fit, once a session has learned the plan
        self.sizes = None  # what the planner says of the step, once somebody has asked (planner.py)
        self.count()
        self.work = schedule(self)

    def chosen(self, group):
        """Form and recipe of a group, as they were before the plan was fitted to a peak."""
        return self.fit.chosen[group.key][:2] if self.fit is not None else (group.form, group.recipe)

    def seconds_of(self, stage, node):
        """What an op took in the recorded step; None if that was not measured."""
        plain = self.fit.plain if self.fit is not None else None
        return plain.seconds_of((stage, node)) if plain is not None else None

    def count(self):
        self.after = self.before - sum(group.bytes - group.kept_bytes for group in self.groups.values())


@dataclass
class SlotWork:
    slot: object  # step.Slot
    group: tuple
    hollow: bool  # only the shape is read
    mask: bool  # only signs or ranges are read, and are kept apart
    bounds: tuple  # of the range that a mask tells of, or None
    keep: frozenset  # groups that the next readers share


@dataclass
class Work:
    name: str
    edges: tuple
    slots: tuple = ()
    sources: dict = field(default_factory=dict)  # group -> step.Slot: raw storages that recipes start from
    held: tuple = ()  # (edge, slot) of tensors that recipes read where they are
    settings: dict = field(default_factory=dict)  # of an op that a recipe runs (Call)
    shape: tuple = None  # of its result
    dtype: object = None
    pinned: tuple = ()  # (edge, slot, address): parameters that tell which module this is

    def premises(self):
        """What a step must have in common with the recorded one here, for recipes that run this op."""
        return self.settings, self.shape, self.dtype, self.pinned

    def idle(self):
        return not (self.slots or self.sources or self.held or self.settings or self.shape is not None)


def schedule(plan):
    work = [Work(node.name, node.edges) for node in plan.nodes]
    keep = _shared_rows(plan)
    for group in plan.groups.values():
        for slot in group.slots:
            hollow, mask = slot.need == needs.SHAPE, group.mask is not None and slot.need in (needs.SIGN, needs.RANGE)
            if hollow or group.form is not None or group.recipe is not None:
                shared = keep.get((slot.node, slot.name), frozenset())
                if isinstance(group.form, forms.WindowIndex) and not hollow:
                    work[slot.node].settings = group.form.settings
                work[slot.node].slots += (SlotWork(slot, group.key, hollow, mask, _bounds(group, hollow, mask), shared),)
    for group in plan.groups.values():
        if group.recipe is not None:
            _schedule_recipe(plan, group.recipe, work)
    return work


def _schedule_recipe(plan, recipe, work):
    """What the nodes of a recipe's ops and sources have to give it."""
    for key in recipe.groups:
        source = plan.groups[key]
        if source.form is None and source.recipe is None:
            work[source.first].sources[key] = next(slot for slot in source.slots if (slot.node, slot.name) == key)
    for call in recipe.calls():
        mine = work[call.node]
        mine.settings = call.settings
        mine.shape, mine.dtype = tuple(plan.nodes[call.node].shape), plan.nodes[call.node].dtype
        mine.pinned = call.pinned
        for each in call.inputs:
            if isinstance(each, Held):
                work[each.node].held = _with(work[each.node].held, (each.edge, each.slot))


def _bounds(group, hollow, mask):
    return None if hollow else getattr(group.mask if mask else group.form, "bounds", None)


def _with(those, *more):
    return tuple(sorted({*those, *more}))


def reads_of(plan):
    """key -> every (node, slot) whose reading takes the values of this storage, in the order in which backward runs them:
    the reverse of that of the nodes."""
    reads = {}
    for group in plan.groups.values():
        for slot in group.slots:
            if slot.need == needs.SHAPE:
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
    return {key: sorted(set(places), key=lambda place: -place[0]) for key, places in reads.items()}


def _shared_rows(plan):
    """(node, slot) -> groups that are read again within NEAR nodes after it, or by what the plan shares, so that their
    rows are kept till then."""
    keep, near = {}, NEAR[plan.policy == "lossless"]
    for key, places in reads_of(plan).items():
        for place, following in zip(places, places[1:]):
            if place[0] - following[0] <= near or (place, key) in plan.shared:
                keep.setdefault(place, set()).add(key)
    return {place: frozenset(groups) for place, groups in keep.items()}
