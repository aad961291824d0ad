# SPDX-License-Identifier: Apache-2.0
"""What a user asks for, checked, and as the JSON that the graph optimizer reads."""

from __future__ import annotations

import dataclasses
import json
import operator
import re
from collections.abc import Mapping, Sequence

from .errors import expected
from .library import load

POLICIES = ("none", "lossless", "fp16", "fp10", "fp8", "auto")
EXACT_POLICIES = ("none", "lossless")
HOOKS = ("config", "plugin")
VALUES = ("fp16", "fp10", "fp8")
UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the optimizer; field by field those of its contract, but for `generation`."""

    policy: str = "lossless"
    budget_bytes: int = 0
    batch: int = 0
    batches: tuple[tuple[str, int], ...] = ()
    """Functions that have a smaller batch than `batch`, by their graphs' "id"."""
    keep: tuple[str, ...] = ()
    swap: bool = False
    recompute: str = "cheap"
    min_bytes: int = 4096
    densities: tuple[tuple[str, float], ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    """Tensors whose values a narrower format did not suit, and what their readers need instead."""
    values: tuple[str, ...] = VALUES
    accepted: bool = False
    """Steps have run under the budget: no later one is refused."""
    device_bytes: int = 0
    """For tests: CPUs count as a device of so many bytes, separate from the memory of the host."""

    def to_json(self, generation: int) -> str:
        """The settings as the optimizer reads them; another generation makes TensorFlow optimize again."""
        fields = dataclasses.asdict(self)
        fields["keep"] = list(self.keep)
        fields["values"] = list(self.values)
        fields["densities"] = dict(self.densities)
        fields["needs"] = dict(self.needs)
        fields["batches"] = dict(self.batches)
        fields["generation"] = generation
        return json.dumps(fields, sort_keys=True)

    def measured(
        self, batch: int, densities: Mapping[str, float], needs: Mapping[str, str] | None = None
    ) -> Settings:
        """The same wishes, with what a run has shown about the data."""
        known = {"densities": tuple(sorted(densities.items())), "needs": tuple(sorted((needs or {}).items()))}
        return dataclasses.replace(self, batch=batch, **known)


def checked(
    policy: object,
    budget: object,
    batch: object,
    keep: object,
    swap: object,
    min_bytes: object,
    values: object = VALUES,
    recompute: object = True,
) -> Settings:
    """Settings from the arguments of enable(); raises StashError at the first that is wrong."""
    if policy not in POLICIES:
        raise expected("enable", "policy", "one of " + ", ".join(POLICIES), policy)
    if not isinstance(swap, bool):
        raise expected("enable", "swap", "True or False", swap)
    if recompute != "all" and not isinstance(recompute, bool):
        raise expected("enable", "recompute", "True, False or 'all'", recompute)
    return Settings(
        policy=str(policy),
        budget_bytes=_budget(budget),
        batch=_count("batch", batch, "samples, 0 or None where the graph or the first step says"),
        keep=_names("keep", "layer names", keep),
        swap=swap,
        recompute="all" if recompute == "all" else "cheap" if recompute else "none",
        min_bytes=_bytes("min_bytes", min_bytes),
        values=_formats(values),
    )


def _bytes(name: str, value: object) -> int:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMG]?i?B)?\s*", value)
        unit = UNITS.get(match[2] or "B") if match else None
        if match is None or unit is None:
            raise expected("enable", name, 'bytes, as a whole number or as in "400 MiB"', value)
        value = int(float(match[1]) * unit)
    return _count(name, value, 'bytes, or a text as "400 MiB"')


def _budget(value: object) -> int:
    number = _bytes("budget", value)
    if number == 0 and value is not None:
        raise expected("enable", "budget", "1 byte or more, or None for no budget", value)
    return number


def _count(name: str, value: object, what: str) -> int:
    """A whole number from 0 on; None is 0."""
    if value is None:
        return 0
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number < 2**63:
        raise expected("enable", name, f"a whole number of {what}", value)
    return number


def _formats(values: object) -> tuple[str, ...]:
    names = _names("values", "formats", values)
    # The planner's lists hold no formats whose groups of values share a scale.
    known = [name for name, scaled in load().formats.items() if not scaled] if names else []
    for name in names:
        if name not in known:
            raise expected("enable", "values", "formats of " + ", ".join(known), values)
    return names


def _names(field: str, what: str, keep: object) -> tuple[str, ...]:
    listed = isinstance(keep, Sequence | set | frozenset) and not isinstance(keep, str | bytes)
    if keep is None:
        return ()
    if not listed or not all(isinstance(name, str) and name for name in keep):  # type: ignore[attr-defined]
        raise expected("enable", field, f"a list of {what}", keep)
    try:
        "".join(keep).encode()  # type: ignore[arg-type]
    except UnicodeEncodeError as error:
        raise expected("enable", field, f"a list of {what} in Unicode", keep) from error
    return tuple(sorted(keep)) if isinstance(keep, set | frozenset) else tuple(keep)  # type: ignore[arg-type]
