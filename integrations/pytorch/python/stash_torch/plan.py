# SPDX-License-Identifier: Apache-2.0
"""What a plan says: for every storage how it is kept, and for every node of autograd what a step that follows the plan
does there."""

import bisect
import collections
import dataclasses
import functools
from dataclasses import dataclass, field

import torch

from . import forms, needs
from .swap import SMALLEST

# Nodes between two readers that share one loaded storage, for lossless plans without a budget, and for the others. Sharing saves
# time and holds one more map, which is much of the peak where maps are kept in few bits.
NEAR = {True: 1, False: 0}


@dataclass(frozen=True)
class Choice:
    """How one storage is kept."""

    form: object = None  # forms.Form, or None: raw or recomputed
    recipe: object = None
    mask: object = None  # forms.Mask of a recomputed tensor whose source is rounded, for readers of signs or ranges
    kept_bytes: int = 0
    reason: str = ""  # why it stays raw
    seconds: float = 0.0  # what a step spends on the form or the recipe, measured once
    host_bytes: int = 0  # it moves to the host, where it takes so many bytes

    @property
    def narrow(self):
        return isinstance(self.form, forms.Narrow)

    @property
    def raw(self):
        """Whether the storage stays as it is."""
        return self.form is None and self.recipe is None


@dataclass
class Group:
    """One storage with everything that reads it in the backward pass."""

    key: tuple  # (node, slot) of its first saver
    slots: list
    bytes: int
    dtype: torch.dtype
    base: object  # the slot whose tensor covers the storage, or None
    needs: frozenset
    form: object = None  # these seven as in Choice
    recipe: object = None
    mask: object = None
    kept_bytes: int = 0
    reason: str = ""
    seconds: float = 0.0
    host_bytes: int = 0
    density: float = 1.0  # share of its values that are not zero, in the recorded step
    exact: bool = False  # a recomputed tensor with exact needs starts here
    fine: bool = False  # one that may be rounded to 16 bits starts here
    rounded: bool = False  # whether it is computed again from rounded values
    narrower: dict = field(default_factory=dict)  # format -> Choice, of a policy that chooses among formats
    own_mask: object = None  # (forms.Mask, bytes) to keep if the recipe's source is rounded, of such a policy

    @property
    def first(self):
        return self.key[0]

    def choice(self):
        return Choice(*(getattr(self, each.name) for each in dataclasses.fields(Choice)))

    def take(self, choice):
        for each in dataclasses.fields(Choice):
            setattr(self, each.name, getattr(choice, each.name))

    def gives(self, mask=False):
        """What readers are given in place of the saved bits (forms.Form.gives); None: those bits."""
        if self.recipe is not None and not mask:
            return id(self.recipe) if self.rounded else None
        form = self.mask if mask else self.form
        return form.gives if form is not None else None

    def how(self):
        if self.recipe is not None:
            return "computed again by " + ", ".join(self.recipe.names) + (f", and {self.mask.name}" if self.mask else "")
        if self.needs == {needs.SHAPE}:
            return "shape only"
        return (self.form.name if self.form is not None else "raw") + (", on the host" if self.host_bytes else "")


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
        return max((each.group[0] for each in self.sources), default=-1)

    @functools.cached_property
    def sources(self):
        """Every Source, as often as it is read."""
        return [each for call in self.calls for each in call.inputs if isinstance(each, Source)]

    @functools.cached_property
    def held(self):
        return {each for call in self.calls for each in call.inputs if isinstance(each, Held)}

    @functools.cached_property
    def reads(self):
        """How often each group is read."""
        return collections.Counter(each.group for each in self.sources)

    @functools.cached_property
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
    formats: tuple = ()  # to which values may be rounded, the most precise first
    untouched: dict = field(default_factory=dict)  # what no form or recipe is for: saver -> (number, bytes)
    steps: int = 0  # of this kind, recorded or followed

    def __post_init__(self):
        self.shared = frozenset()  # ((node, slot), group): reads after which the row waits for the next one
        self.back = ()  # (node, group): where the backward pass begins to bring a group back, in its order
        self.fit = None  # fit.Fit, once a session has learned the plan
        self.large = sorted(group.first for group in self.groups.values() if group.bytes >= SMALLEST)
        self.sizes = None  # what the planner says of the step, once somebody has asked (planner.py)
        self.sharing = NEAR[not self.formats]  # nodes
        self.settle()

    def settle(self):
        """Follows from what the groups have taken."""
        for group in self.groups.values():
            sources = group.recipe.groups if group.recipe is not None else ()
            group.rounded = any(isinstance(self.groups[key].form, forms.Narrow) for key in sources)
        self.after = self.before - sum(group.bytes - group.kept_bytes for group in self.groups.values())
        self.work = schedule(self)

    def until(self, group, ahead):
        """The node that saves the large group which is `ahead` after this one; past the end if there is none."""
        place = bisect.bisect_right(self.large, group.first) + ahead - 1
        return self.large[place] if place < len(self.large) else len(self.nodes)

    def chosen(self, group):
        """The Choice of a group, as it was before the plan was fitted to a peak."""
        return self.fit.chosen[group.key] if self.fit is not None else group.choice()

    def seconds_of(self, stage, node):
        """What an op took in the recorded step; None if that was not measured."""
        plain = self.fit.plain if self.fit is not None else None
        return plain.seconds_of((stage, node)) if plain is not None else None


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

    def settle(self):
        """Follows from the rest, once that is known. premises: what a step must have in common with the recorded one here, for
        recipes that run this op."""
        self.idle = not (self.slots or self.sources or self.held or self.settings or self.shape is not None)
        self.bounded = tuple(each for each in self.slots if each.bounds)
        self.declared = tuple(each.slot.name for each in self.slots if each.slot.declared)
        self.premises = self.settings, self.shape, self.dtype, self.pinned
        return self


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
    return [each.settle() for each in work]


def _schedule_recipe(plan, recipe, work):
    """What the nodes of a recipe's ops and sources have to give it."""
    for key in recipe.groups:
        source = plan.groups[key]
        if source.form is None and source.recipe is None:
            work[source.first].sources[key] = next(slot for slot in source.slots if (slot.node, slot.name) == key)
    for call in recipe.calls:
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
    keep = {}
    for key, places in reads_of(plan).items():
        for place, following in zip(places, places[1:]):
            if place[0] - following[0] <= plan.sharing or (place, key) in plan.shared:
                keep.setdefault(place, set()).add(key)
    return {place: frozenset(groups) for place, groups in keep.items()}
