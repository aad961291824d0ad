# SPDX-License-Identifier: Apache-2.0
"""What steps show about the data, and whether a plan made with it could be another one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from .settings import Settings

BATCH = "StashBatch"
SUM = "StashSum"
ENCODERS = frozenset({"StashEncode", "StashMaxPool", "StashDropout", "StashSwapOut"})
MOVE = "StashSwapOut"
CHANGE = 0.05
WIDE = ("fp16", "bf16")  # nothing with 16 bits would do better


def better(
    wishes: Settings,
    used: Settings,
    graphs: Iterable[Mapping[str, Any]],
    counters: Iterable[Mapping[str, Any]],
) -> Settings | None:
    """Settings with the measured batch and densities, and without formats that do not suit the values.

    None if that does not matter or is in use already.
    """
    rewritten = [graph for graph in graphs if graph.get("rewritten")]
    if not rewritten or wishes.policy == "none":
        return None
    counters = list(counters)
    encoded = [counter for counter in counters if counter["op"] in ENCODERS and counter["executions"] > 0]
    shares = dict(used.densities)
    if _densities_matter(wishes):
        for tensor, share in measured_densities(encoded).items():
            if abs(shares.get(tensor, 2.0) - share) > CHANGE:
                shares[tensor] = share
    needs = needs_of_misfits(dict(used.needs), rewritten, encoded)
    # A plan that is made again anyway is made with the batch: its predicted peak is that of a step then.
    again = used.measured(used.batch, shares, needs) != used
    matters = again or _batch_matters(wishes) or any(graph.get("loops") for graph in rewritten)
    batch, batches = used.batch, dict(used.batches)
    if wishes.batch == 0 and matters:
        unknown = [graph for graph in rewritten if not graph.get("batch")]
        batch = max(measured_batch(unknown, counters), used.batch)
        if batch > 0 and (wishes.budget_bytes > 0 or wishes.swap):
            larger = larger_batches(rewritten, counters)
            batch = max(batch, *larger.values(), 0)
            # The functions other than those whose batch has grown keep their own.
            if batch > used.batch > 0:
                batches = planned_batches(rewritten) | batches
            batches = {name: own for name, own in batches.items() if name not in larger}
    found = dataclasses.replace(used.measured(batch, shares, needs), batches=tuple(sorted(batches.items())))
    if found == used:
        return None
    # Whether the budget is enough was decided with an assumption about densities: that stands.
    accepted = used.budget_bytes > 0 and all(graph.get("batch") for graph in rewritten)
    return dataclasses.replace(found, accepted=used.accepted or accepted)


def alike(one: Settings, other: Settings) -> bool:
    """Whether they differ in nothing but densities, and in these by less than is worth another plan."""
    first, second = dict(one.densities), dict(other.densities)
    if dataclasses.replace(one, densities=other.densities) != other or first.keys() != second.keys():
        return False
    return all(abs(first[tensor] - second[tensor]) <= CHANGE for tensor in first)


def seeded(graphs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether random kernels with a seed run in one of them: they count their calls."""
    return any(graph.get("seeded") for graph in graphs)


def seen(
    graphs: Iterable[dict[str, Any]], since: int, counters: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Of these graphs those with a higher number than `since`, and those before whose tensors were counted."""
    graphs = list(graphs)
    new = [graph for graph in graphs if graph["serial"] > since]
    ran = {counter["tensor"] for counter in counters if counter["executions"] > 0} - _tensors(new)
    return [graph for graph in graphs if graph["serial"] > since or ran & _tensors([graph])]


def larger_batch(graphs: Iterable[Mapping[str, Any]], counters: Iterable[Mapping[str, Any]]) -> int:
    """Samples of an execution if these are clearly more than what its function was planned for; else 0."""
    return max(larger_batches(graphs, counters).values(), default=0)


def larger_batches(
    graphs: Iterable[Mapping[str, Any]], counters: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Functions that had clearly more samples in an execution than they were planned for, and how many."""
    graphs, counters, found = list(graphs), list(counters), {}
    for name, planned in planned_batches(graphs).items():
        own = [graph for graph in graphs if graph["id"] == name and graph.get("batch")]
        others = _tensors(graph for graph in graphs if graph["id"] != name) - _tensors(own)
        seen = measured_batch(own, [counter for counter in counters if counter["tensor"] not in others])
        if seen > planned * (1 + CHANGE):
            found[name] = seen
    return found


def planned_batches(graphs: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """What functions whose batch is open were planned for."""
    found: dict[str, int] = {}
    for graph in graphs:
        if graph.get("batch_open") and graph.get("batch"):
            found[graph["id"]] = max(graph["batch"], found.get(graph["id"], 0))
    return found


def measured_batch(graphs: Iterable[Mapping[str, Any]], counters: Iterable[Mapping[str, Any]]) -> int:
    """The most samples of an execution, by StashBatch or the elements that went through StashEncode; 0: unknown."""
    graphs = list(graphs)
    per_sample: dict[str, int] = {}
    for graph in graphs:
        for tensor in graph.get("tensors", ()):
            name, elements = tensor["tensor"], tensor.get("elements_per_sample") or 0
            per_sample[name] = max(elements, per_sample.get(name, 0))
    if not graphs:
        return 0
    found = 0
    for counter in counters:
        if counter["op"] not in (BATCH, "StashEncode"):
            continue  # the others count what they read
        unit = 1 if counter["op"] == BATCH else per_sample.get(counter["tensor"], 0)
        if counter["executions"] > 0 and unit > 0:
            elements = counter.get("most_elements") or counter["elements"] / counter["executions"]
            found = max(found, round(elements / unit))
    return found


def measured_densities(encoded: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Shares of non-zeros of the tensors where encoders counted them."""
    nonzeros: dict[str, int] = {}
    elements: dict[str, int] = {}
    for counter in encoded:
        if (counter.get("nonzeros") or 0) > 0:
            name = counter["tensor"]
            nonzeros[name] = nonzeros.get(name, 0) + counter["nonzeros"]
            elements[name] = elements.get(name, 0) + counter["elements"]
    return {name: round(nonzeros[name] / elements[name], 3) for name in nonzeros}


def misfits(
    graphs: Iterable[Mapping[str, Any]], encoded: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[str, float]]:
    """Tensors whose values are too large or too small for a format that they are kept in: it, and the error.

    Several functions may keep what goes by one name, each in a format of its own; and those of an earlier plan may
    still be running.
    """
    chosen: dict[str, set[str]] = {}
    for graph in graphs:
        for tensor in graph.get("tensors", ()):
            kept = tensor["choice"].removesuffix("+swap")
            chosen.setdefault(tensor["tensor"], set()).add(kept.removeprefix("bitmap_").removeprefix("csr_"))
    found: dict[str, tuple[str, float]] = {}
    for counter in encoded:
        name = counter["tensor"]
        for form in chosen.get(name, set()) & set(counter.get("misfits", ())):
            error = counter["rounding"][form]
            if error > found.get(name, ("", 0.0))[1]:
                found[name] = (form, error)
    return found


def needs_of_misfits(
    known: Mapping[str, str], graphs: Iterable[Mapping[str, Any]], encoded: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """What the readers of tensors need, if what is known of them did not do."""
    needs = dict(known)
    for name, (form, _) in misfits(graphs, encoded).items():
        needs[name] = "exact_value" if form in WIDE or name in known else "fine_value"
    return needs


def _tensors(graphs: Iterable[Mapping[str, Any]]) -> set[str]:
    return {tensor["tensor"] for graph in graphs for tensor in graph.get("tensors", ())}


def _batch_matters(wishes: Settings) -> bool:
    return wishes.budget_bytes > 0 or wishes.policy == "auto" or wishes.swap


def _densities_matter(wishes: Settings) -> bool:
    return _batch_matters(wishes) or wishes.policy == "lossless"
