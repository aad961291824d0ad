# SPDX-License-Identifier: Apache-2.0
"""One enable(): its settings, and what is learned from the steps that run under it."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from typing import Any

from . import diagnosis, hooks, replanning
from .errors import StashError
from .library import Library
from .settings import EXACT_POLICIES, Settings

MOST_REPLANS = 3  # for batch and densities, and as many for formats that do not suit the values; again for new functions
EVIDENCE_CALLS = 5


class Plans:
    """The settings that were in force in this process.

    Each has a generation. Equal settings share theirs, so TensorFlow finds the functions that it has optimized under
    them: every other form of a function stays in memory for as long as the function does.
    """

    def __init__(self) -> None:
        self._generations: dict[Settings, int] = {}
        self._ended: dict[Settings, Settings] = {}

    def generation(self, settings: Settings) -> int:
        """The same for equal settings, from 1 on."""
        return self._generations.setdefault(settings, len(self._generations) + 1)

    def like(self, settings: Settings) -> Settings:
        """Settings from before that say as much; these if there are none."""
        found = (known for known in self._generations if replanning.alike(known, settings))
        return next(found, settings)

    def begin(self, wishes: Settings, library: Library) -> Settings:
        """What a session with these wishes starts with.

        That is its wishes, and what the last such session has learned of values that do not suit a format. Where
        seeded random kernels have run under what that session has learned, it is all of that: in other forms of
        their functions their sequences start over.
        """
        ended = self._ended.get(wishes, wishes)
        if ended != wishes and replanning.seeded(library.graphs(self.generation(ended))):
            return ended
        return dataclasses.replace(wishes, needs=ended.needs)

    def use(self, wishes: Settings, settings: Settings) -> int:
        """The generation of the settings that a session uses from now on."""
        self._ended[wishes] = settings
        return self.generation(settings)


class Session:
    """Settings in force. Any thread may call config_for_call()."""

    def __init__(
        self,
        library: Library,
        wishes: Settings,
        hook: str,
        *,
        strict: bool,
        replan: bool,
        plans: Plans,
    ) -> None:
        self.library = library
        self.wishes = wishes
        self.hook = hook
        self.strict = strict
        self._most_replans = MOST_REPLANS if replan else 0
        self.replans_left = self.repairs_left = self._most_replans
        self._functions: set[str] = set()
        self._plans = plans
        self._busy = threading.Lock()
        self._warned: set[str] = set()
        self._surprises = 0
        self._begin(plans.begin(wishes, library) if hook == "config" else wishes)

    @property
    def settings_json(self) -> str:
        """The settings as the optimizer gets them."""
        return self._plan[0]

    def config_for_call(self, config: bytes) -> bytes:
        """What the config hook calls: it runs at each call of a function from Python, so it has to be quick."""
        self.calls += 1
        if _due(self.calls) or (self._watches() and self.library.surprises() != self._surprises):
            self._inspect()
        text, cache = self._plan
        found = cache.get(config)
        if found is None:
            found = cache[config] = hooks.merged(config, text)
        return found

    def facts(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The graphs that this session has optimized or run, and the counters.

        Functions that were optimized under equal settings before are not optimized again. That they ran is known if
        their kernels have counted; where nothing else is known all may have run.
        """
        known, counters = self._known(), self.library.counters()
        found = self._certain(known, counters)
        return found or (known if self.calls else []), counters

    def _known(self) -> list[dict[str, Any]]:
        return self.library.graphs(self._generation if self.hook == "config" else 0)

    def _certain(self, known: list[dict[str, Any]], counters: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return known if self.hook == "plugin" else replanning.seen(known, self._since, counters)

    def _begin(self, settings: Settings) -> None:
        self._since = self.library.last_serial()
        self.library.reset_counters()
        self.settings = settings
        self._generation = self._plans.use(self.wishes, settings)
        self._plan: tuple[str, dict[bytes, bytes]] = (settings.to_json(self._generation), {})
        self.calls = 0

    def _watches(self) -> bool:
        """Whether a larger batch matters, one that the budget was not planned for, or values out of range."""
        rounds = self.wishes.policy not in EXACT_POLICIES
        budget = self.wishes.budget_bytes > 0
        return (budget and "batch" not in self._warned) or (rounds and "values" not in self._warned)

    def _inspect(self) -> None:
        watching = self.strict or self._most_replans or self._watches()
        if not watching or not self._busy.acquire(blocking=False):
            return
        try:
            self._surprises = self.library.surprises()
            known, counters = self._known(), self.library.counters()
            certain = self._certain(known, counters)
            doubt = self.strict and self.calls >= EVIDENCE_CALLS and diagnosis.evidence(certain, counters)
            if doubt:
                raise StashError(f"{doubt} (strict=True)")
            self._warn("budget", diagnosis.over_budget(certain))
            self._warn("loops", diagnosis.lists_in_loops(certain))
            self._warn("sizes", diagnosis.unknown_sizes(certain))
            self._meet(known)
            if replanning.seeded(known):
                # Another form of the function would draw the same numbers again.
                self.replans_left = self.repairs_left = 0
            better = replanning.better(self.wishes, self.settings, certain or known, counters)
            allowed = self._allowed(better) if better is not None else self.settings
            if allowed != self.settings:
                self._begin(self._plans.like(allowed))
                self.calls = 1
            else:
                self._warn("batch", diagnosis.budget_doubts(certain or known, counters))
                self._warn("values", diagnosis.misfits(certain or known, counters))
        finally:
            self._busy.release()

    def _meet(self, known: list[dict[str, Any]]) -> None:
        """Functions that come later, such as those of another model, have their plans made again as often."""
        met = {graph["id"] for graph in known if graph.get("rewritten")}
        if not met <= self._functions:
            self._functions |= met
            self.replans_left = self.repairs_left = self._most_replans

    def _allowed(self, better: Settings) -> Settings:
        """Of what would be better, what the plan may still be made again for; counts that it is."""
        if better.needs != self.settings.needs and self.repairs_left == 0:
            better = dataclasses.replace(better, needs=self.settings.needs)
        if better.needs != self.settings.needs:
            self.repairs_left -= 1
        elif better != self.settings and self.replans_left > 0:
            self.replans_left -= 1
        else:
            return self.settings
        return better

    def _warn(self, kind: str, words: list[str]) -> None:
        """Once for each kind."""
        if words and kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(words[0], RuntimeWarning, stacklevel=3)


def _due(calls: int) -> bool:
    """Often at first, then at powers of two, then every thousandth call."""
    return calls <= 10 or (calls & (calls - 1)) == 0 or calls % 1000 == 0
