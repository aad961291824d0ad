# SPDX-License-Identifier: Apache-2.0
"""Policies, and the formats that each rounds to.

A plan has levels, of which each keeps every storage in as few bytes as it can. Of policy "auto" level 0 rounds nothing, and
every further level rounds to one narrower format more. The other policies have one level. Where storages may move to the host,
there is one level more, at which all of them do that are large enough.
"""

import dataclasses

from .forms import AsIs
from .plan import Choice
from .swap import SMALLEST

POLICIES = ("lossless", "fp16", "bf16", "fp10", "fp8", "auto")
FORMATS = ("fp16", "fp10", "fp8")  # what "auto" rounds to unless it is told
KNOWN = ("fp16", "bf16", "fp10", "fp8")
NOT_ROUNDED = "the budget does not require to round it"


def formats_of(policy, values):
    """The formats to which a policy may round, the most precise first. Raises ValueError for wrong arguments."""
    if policy not in POLICIES:
        raise ValueError(f"compress: policy: expected one of {', '.join(POLICIES)}, got {policy!r}")
    formats = tuple(values) if isinstance(values, (tuple, list)) else ()
    order = [KNOWN.index(each) for each in formats if each in KNOWN]
    if not formats or len(order) != len(formats) or order != sorted(set(order)):
        raise ValueError(f"compress: values: expected formats of {', '.join(KNOWN)}, in this order, got {values!r}")
    return formats if policy == "auto" else () if policy == "lossless" else (policy,)


class Levels:
    """The choices at every level of a plan that was just made."""

    def __init__(self, plan, moves=False):
        self.groups = plan.groups
        self.first = {key: group.choice() for key, group in plan.groups.items()}
        self.formats = plan.formats if plan.policy == "auto" else ()
        self.narrowest = self.last = len(self.formats)
        self.away = {}
        if moves:
            self.last += 1
            self.away = {key: _away(self.choice(key, self.narrowest)) for key in self.groups}
        self.exact = plan.policy in ("lossless", "auto")  # level 0

    def choice(self, key, level):
        """Of one group. The masks that rounding asks for are not in it (with_masks)."""
        if level > self.narrowest:
            return self.away[key]
        narrower = self.groups[key].narrower
        return next((narrower[each] for each in reversed(self.formats[:level]) if each in narrower), self.first[key])

    def at(self, level):
        return self.with_masks({key: self.choice(key, level) for key in self.groups})

    def next(self, level):
        """The next level at which something is kept in fewer bytes; None if there is none."""
        return next((each for each in range(level + 1, self.last + 1)
                     if any(self.choice(key, each) != self.choice(key, level) for key in self.groups)), None)

    def with_masks(self, choices):
        """A sign that is computed again from rounded values may flip: then it is kept."""
        found = dict(choices)
        for key, choice in choices.items():
            own = self.groups[key].own_mask
            if own is not None and choice.recipe is not None:
                rounded = any(choices[source].narrow for source in choice.recipe.groups)
                mask, bytes = own if rounded else (None, 0)
                found[key] = dataclasses.replace(choice, mask=mask, kept_bytes=bytes)
        return found


def _away(choice):
    if choice.recipe is not None or choice.kept_bytes < SMALLEST:
        return choice
    return dataclasses.replace(choice, form=choice.form or AsIs(), kept_bytes=0, host_bytes=choice.kept_bytes, reason="")


def raw(group, reason):
    return Choice(kept_bytes=group.bytes, reason=reason)
