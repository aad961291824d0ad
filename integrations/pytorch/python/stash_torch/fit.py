# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a plan may stay as they are after all.

A plan that was just made keeps every storage in as few bytes as it can. Its first step is measured (watch.py). Then, as long
as that does not raise the peak above a bound: what was loaded or computed for one reader waits for the next; and what saves
the most time for its bytes stays raw. The next step is measured again. The bound is the budget, or without one the peak that
was measured.

With a budget, a plan begins at its first level (levels.py) and goes on to the next until one keeps the budget: policy "auto"
rounds to narrower formats, and storages move to the host. At such a level storages return first: the last that were saved stay on
the device, then what is rounded takes wider forms. What still moves begins to come back as early as the budget allows.
"""

import logging
import re

from . import needs
from .levels import Levels, raw
from .plan import NEAR, reads_of

log = logging.getLogger("stash_torch")
UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
PARTS = 64  # of the peak: how much more a plan without a budget may take for the time that it saves
ATTEMPTS = 3
LOOKS = 64  # steps that are watched while a plan waits to be measured


class BudgetError(RuntimeError):
    """No plan of the policy keeps the budget."""


def budget_bytes(budget):
    """None, or the bytes of a budget: a whole number, or a text as "6 GiB"."""
    if budget is None:
        return None
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMG]?i?B)?\s*", budget)
        unit = UNITS.get(match[2] or "B") if match else None
        number = int(float(match[1]) * unit) if unit else 0
    else:
        number = budget if type(budget) is int else 0
    if number < 1:
        raise ValueError(f'compress: budget: expected bytes, as a whole number or as in "6 GiB", got {budget!r}; units: '
                         + ", ".join(UNITS))
    return number


class Fit:
    """The choice for one plan."""

    def __init__(self, plan, budget, ahead=0):
        """ahead: how many groups may come back from the host at a time; 0: none moves."""
        self.plan, self.budget, self.ahead = plan, budget, ahead
        self.plain = None  # Timeline of the step that was recorded
        self.entry = None  # what such a step begins with (measure.py)
        self.levels = Levels(plan, ahead > 0 and budget is not None)
        self.timeline = None  # of the plan as it is now
        self.least = None  # bytes: the lowest peak that was measured
        self.expected = None  # bytes: the peak of the plan as it is now, by the peak of the smallest
        self.looks = 0
        self.settled = self.refused = False
        self._begin(0 if budget is not None else self.levels.narrowest)

    def _begin(self, level):
        """Keeps every storage in as few bytes as this level can."""
        self.level, self.chosen = level, self.levels.at(level)
        self.smallest = None  # Timeline of that
        self.bound = self.target = self.attempts = 0
        self.plan.sharing = NEAR[self.budget is None and self.levels.exact and level == 0]
        self._set(self.chosen)
        self.reads = reads_of(self.plan)

    @property
    def unsettled(self):
        """Whether steps are to be measured. Not forever: they may never follow this plan to its end."""
        return not self.settled and self.looks <= LOOKS

    def look(self, steps=1):
        """Steps were watched."""
        before, self.looks = self.looks, self.looks + steps
        if before <= LOOKS < self.looks and not self.settled and self.budget is not None:
            log.warning("no step of this kind could be measured: its budget is neither kept nor refused")

    def measured(self, timeline):
        """A step has followed the plan."""
        self.timeline = timeline
        self.least = min(timeline.peak, self.least if self.least is not None else timeline.peak)
        if self.smallest is None:
            self.smallest = timeline
            self.target = self.bound = self._bound()
            following = self.levels.next(self.level)
            if timeline.peak > self.target and following is not None:
                self._begin(following)
                return
            if timeline.peak > self.target:
                # What stays raw or is shared seldom lowers a peak, and is tried once. The budget does not say how: so the least
                # peak is the same whatever it is, and a budget of that peak is kept.
                self.bound, self.attempts = timeline.peak, ATTEMPTS - 1
            self._change()
            return
        excess = timeline.peak - self.target
        if excess <= 0:
            self.settled = True
        elif self.attempts < ATTEMPTS:
            self.bound -= excess
            self._change()
        else:
            self._settle_for_smallest()

    def word(self):
        """Why the budget is refused."""
        least = self.smallest.before + self.least
        return (f"stash_torch: budget: expected at least {least} bytes ({least / 2**20:.2f} MiB), which a step takes under "
                f"policy {self.plan.policy}, got {self.budget}")

    def _bound(self):
        if self.budget is not None:
            return self.budget - self.smallest.before
        return self.smallest.peak + self.smallest.peak // PARTS

    def _change(self):
        """What can stay on the device, be rounded less, come back early, be shared or stay raw below the bound."""
        self.attempts += 1
        live, choices = list(self.smallest.most), dict(self.chosen)
        self._bring_home(live, choices)
        self._widen(live, choices)
        back = self._back(live, choices)
        shared, waiting = self._sharing(live, choices)
        self._leave_raw(live, choices, waiting)
        if shared or back or choices != self.chosen:
            self.expected = max((bytes for moment, bytes in zip(self.smallest.moments, live)
                                if moment[0] not in self.smallest.without), default=0)
            self._set(self.levels.with_masks(choices), shared, back)
        else:
            self._settle_for_smallest()

    def _settle_for_smallest(self):
        self._set(self.chosen)
        self.timeline, self.settled, self.expected = self.smallest, True, self.smallest.peak
        self.refused = self.smallest.peak > self.target

    def _fits(self, live, more):
        """Whether no moment rises above the bound, or further above it."""
        return all(bytes <= 0 or live[moment] + bytes <= self.bound for moment, bytes in more.items())

    def _set(self, choices, shared=frozenset(), back=()):
        self.plan.shared, self.plan.back = shared, back
        for key, group in self.plan.groups.items():
            group.take(choices[key])
        self.plan.settle()

    def _bring_home(self, live, choices):
        """The oldest storages move: they wait longest for their readers."""
        moved = [group for key, group in self.plan.groups.items() if choices[key].host_bytes]
        for group in sorted(moved, key=lambda group: -group.first):
            self._try(live, choices, group, self.levels.choice(group.key, self.levels.narrowest))

    def _back(self, live, choices):
        """Where groups begin to come back: as early as that fits, and while at most `ahead` of them wait for their readers."""
        moved = [key for key in choices if choices[key].host_bytes and self._moment(self.reads[key][0][0]) is not None]
        moved.sort(key=lambda key: -self.reads[key][0][0])
        seen = sorted({slot.node for key, group in self.plan.groups.items() for slot in group.slots
                       if not choices[key].raw and self._moment(slot.node) is not None}, reverse=True)  # slots tell where it is
        back = []
        for place, key in enumerate(moved):
            reader = self.reads[key][0][0]
            earliest = self.reads[moved[place - self.ahead]][0][0] if place >= self.ahead else seen[0]
            for node in (each for each in seen if reader < each <= earliest):
                more = dict.fromkeys(range(self._moment(node), self._moment(reader)), choices[key].host_bytes)
                if self._fits(live, more):
                    _add(live, more)
                    back.append((node, key))
                    break
        return tuple(sorted(back, key=lambda each: -each[0]))

    def _moment(self, node):
        """At which the backward pass runs it."""
        return self.smallest.moment_of.get(("backward", node))

    def _widen(self, live, choices):
        """Rounds as few bytes as can be: to the narrowest format first, then to the next."""
        for level in reversed(range(min(self.level, self.levels.narrowest))):
            rounded = [group for key, group in self.plan.groups.items() if choices[key].narrow and not choices[key].host_bytes]
            for group in sorted(rounded, key=lambda group: -group.bytes):
                self._try(live, choices, group, self.levels.choice(group.key, level))

    def _sharing(self, live, choices):
        """Reads after which a row may wait for the next one, and {group: {moment: bytes}} of these rows, which is added to
        what lives in each moment."""
        shared, waiting = set(), {}
        for key, places in self.reads.items():
            if choices[key].raw:
                continue
            bytes = self.plan.groups[key].bytes
            for place, following in zip(places, places[1:]):
                begin, end = (self._moment(node) for node, _ in (place, following))
                if begin is None or end is None or end <= begin:
                    continue
                more = dict.fromkeys(range(begin, end), bytes)  # the first reader runs on when it has been read
                if self._fits(live, more):
                    shared.add((place, key))
                    _add(live, more)
                    _add(waiting.setdefault(key, {}), more)
        return frozenset(shared), waiting

    def _leave_raw(self, live, choices, waiting):
        """The most time for a byte first. Above the budget the latest storages: times differ from run to run, and so would the
        least peak."""
        def worth(group):
            if self.smallest.peak > self.target:
                return group.first
            choice = choices[group.key]
            return choice.seconds / (group.bytes - choice.kept_bytes or 1)

        groups = [group for key, group in self.plan.groups.items() if not choices[key].raw and not choices[key].host_bytes]
        for group in sorted(groups, key=worth, reverse=True):
            self._try(live, choices, group, raw(group, "it does not raise the peak"), waiting.get(group.key, {}))

    def _try(self, live, choices, group, wider, instead=None):
        """Keeps a storage in a form of more bytes if that fits. instead: {moment: bytes} that are no longer needed then."""
        if wider == choices[group.key]:
            return
        more = self._more(group, choices[group.key], wider)
        if more is None:
            return
        _add(more, {moment: -bytes for moment, bytes in (instead or {}).items()})
        if self._fits(live, more):
            choices[group.key] = wider
            _add(live, more)

    def _more(self, group, kept, wider):
        """{moment: bytes} that a storage takes in a wider form than it is kept in, or on the device instead of on the host; None
        if nobody saw it go."""
        line, block = self.smallest, self.smallest.blocks.get(group.key)
        # A reader of the shape alone holds a raw storage as well.
        readers = {slot.node for slot in group.slots} | {node for node, _ in self.reads.get(group.key, ())}
        moments = [self._moment(node) for node in readers]
        saved = line.moment_of.get(("forward", group.first))
        if block is None or saved is None or None in moments or not moments:
            return None
        if wider.raw and block.last is None:
            return {}  # the program holds it
        if kept.host_bytes:
            away = range(block.last + 1 if wider.raw else saved + 1, self._moment(self.reads[group.key][0][0]))
            return dict.fromkeys(away, wider.kept_bytes)
        if not wider.raw:
            return dict.fromkeys(range(saved + 1, max(moments) + 1), wider.kept_bytes - kept.kept_bytes)
        own = {line.moment_of["backward", slot.node] for slot in group.slots if slot.need != needs.SHAPE}
        more = {}
        for moment in range(block.last + 1, max(moments) + 1):
            bytes = 0 if moment in own else group.bytes
            more[moment] = bytes - (kept.kept_bytes if moment > saved else 0)
        return more


def _add(to, more):
    """to: bytes by moment, a list or {moment: bytes}."""
    for moment, bytes in more.items():
        to[moment] = (to.get(moment, 0) if isinstance(to, dict) else to[moment]) + bytes
