"""One enable(): its settings, and what is learned from the steps that run under it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator

from . import diagnosis, doors, replanning
from .errors import StashError
from .library import Library
from .settings import Settings

MOST_REPLANS = 3
EVIDENCE_CALLS = 5


class Session:
    """Settings in force. Any thread may call config_for_call()."""

    def __init__(
        self,
        library: Library,
        wishes: Settings,
        door: str,
        *,
        strict: bool,
        replan: bool,
        generations: Iterator[int],
    ) -> None:
        self.library = library
        self.wishes = wishes
        self.door = door
        self.strict = strict
        self.calls = 0
        self.replans_left = MOST_REPLANS if replan else 0
        self._generations = generations
        self._busy = threading.Lock()
        self._warned = False
        if door == "config":
            library.reset_graphs()
        library.reset_counters()
        self._put(wishes)

    @property
    def settings_json(self) -> str:
        """The settings as the optimizer gets them."""
        return self._plan[0]

    def config_for_call(self, config: bytes) -> bytes:
        """The hook of the config door: runs at each call of a function from Python, so it has to be quick."""
        self.calls += 1
        if _due(self.calls):
            self._inspect()
        text, cache = self._plan
        found = cache.get(config)
        if found is None:
            found = cache[config] = doors.merged(config, text)
        return found

    def _put(self, settings: Settings) -> None:
        self.settings = settings
        self._plan: tuple[str, dict[bytes, bytes]] = (settings.to_json(next(self._generations)), {})

    def _inspect(self) -> None:
        if not (self.strict or self.replans_left) or not self._busy.acquire(blocking=False):
            return
        try:
            graphs, counters = self.library.graphs(), self.library.counters()
            doubt = self.strict and self.calls >= EVIDENCE_CALLS and diagnosis.evidence(graphs, counters)
            if doubt:
                raise StashError(f"{doubt} (strict=True)")
            for word in diagnosis.over_budget(graphs)[: 0 if self._warned else 1]:
                self._warned = True
                warnings.warn(word, RuntimeWarning, stacklevel=2)
            if any(graph.get("seeded") for graph in graphs):
                self.replans_left = 0  # another instance of the function would draw the same numbers again
            better = replanning.better(self.wishes, self.settings, graphs, counters)
            if better is not None and self.replans_left > 0:
                self.replans_left -= 1
                self.library.reset_graphs()
                self.library.reset_counters()
                self._put(better)
                self.calls = 1
        finally:
            self._busy.release()


def _due(calls: int) -> bool:
    """Often at first, then at powers of two, then every thousandth call."""
    return calls <= 10 or (calls & (calls - 1)) == 0 or calls % 1000 == 0
