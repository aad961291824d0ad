# SPDX-License-Identifier: Apache-2.0
"""What Stash did, told by the counters of the kernels that ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import diagnosis, in_force, library, memory
from .replanning import BATCH, ENCODERS, MOVE, SUM

BITS = ":bits"  # follows the name of a tensor whose bits are kept in addition to its values
RECOMPUTED = "recompute"  # the optimizer's choice for what the backward loop computes again
RAN, NOT_RUN, STAYS, DROPPED = "ran", "planned, not run", "stays as it is", "not needed any more"


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor. Bytes are those of one step, measured where `state` is "ran", else planned.

    `iterations`: of the loop that keeps one such tensor in each; 0: there is no loop; -1: nobody knows how many, and
    bytes are those of one iteration.
    """

    layer: str
    tensor: str
    op: str
    choice: str
    dense_bytes: int
    stored_bytes: int
    executions: int
    state: str
    reason: str = ""
    host_bytes: int = 0  # of the stored bytes, those that went to the host and came back
    iterations: int = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """str() is the table; the rest is for programs."""

    policy: str | None
    settings: dict[str, Any]
    rows: tuple[Row, ...]
    rewritten: bool
    total_dense_bytes: int  # of the function with the highest predicted peak, and of what was kept explicitly
    total_stored_bytes: int
    predicted_plain_bytes: int
    predicted_peak_bytes: int
    batch: int
    measured_plain_bytes: int
    measured_peak_bytes: int
    explanations: tuple[str, ...]
    graphs: tuple[Mapping[str, Any], ...]
    counters: tuple[Mapping[str, Any], ...]
    total_host_bytes: int = 0
    predicted_host_bytes: int = 0
    sums: int = 0  # of gradients, that were added up as they came
    summed_gradients: int = 0
    loops: int = 0  # of backward passes, whose iterations run one by one
    lists: int = 0  # of loops, that hold encoded tensors or are not filled any more
    ordered: bool = False  # all that was changed is when ops run, and which run again
    recomputed_maps: int = 0  # that the backward pass computes again instead of reading what was kept
    recomputed_ops: int = 0  # that run again for them
    recomputed_bytes: int = 0  # of these maps

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for json.dumps()."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [f'Stash, policy "{self.policy}"' if self.policy else "Stash"]
        lines += list(self.explanations)
        if needs := self.settings.get("needs"):
            names = ", ".join(dict(needs))
            lines.append(f"Kept in more bits than the policy asks for, because fewer did not suit the values: {names}")
        lines += _table([row for row in self.rows if row.state != STAYS])
        staying = sum(row.state == STAYS for row in self.rows)
        if staying:
            lines.append(f"{staying} other tensors stay as they are.")
        if self.sums:
            each = "is" if self.sums == 1 else "are"
            sums = f"{self.sums} sum{'s' * (self.sums > 1)} of {self.summed_gradients} gradients"
            lines.append(f"{sums} {each} added up term by term, as the gradients come.")
        if self.recomputed_maps:
            maps = f"{self.recomputed_maps} map{'s' * (self.recomputed_maps > 1)} ({size(self.recomputed_bytes)})"
            again = f"{self.recomputed_ops} op{'s run' if self.recomputed_ops > 1 else ' runs'} again"
            lines.append(f"{maps} not kept for the backward pass: {again} there.")
        if self.lists:
            many = "lists of loops hold" if self.lists > 1 else "list of loops holds"
            lines.append(f"{self.lists} {many} encoded tensors, or nothing any more.")
        if self.ordered:
            lines.append("No tensor is stored in another form: ops run in an order in which memory is freed earlier.")
        if self.loops:
            many = "loops wait" if self.loops > 1 else "loop waits"
            lines.append(f"{self.loops} {many} with each iteration until the gradients of the last are added up.")
        if self.total_dense_bytes:
            share = _share(self.total_dense_bytes, self.total_stored_bytes)
            moved = f"{size(self.total_dense_bytes)} -> {size(self.total_stored_bytes)}"
            lines.append(f"Kept for the backward pass, measured: {moved} ({share})")
        if self.total_host_bytes:
            moved = f"Of that to the host and back, measured: {size(self.total_host_bytes)}"
            lines.append(f"{moved}, {size(self.predicted_host_bytes)} of it there at a time")
        if self.predicted_peak_bytes:
            unit = "" if self.batch else " per sample"
            line = f"Peak of a step, predicted: {size(self.predicted_plain_bytes)}"
            lines.append(f"{line} -> {size(self.predicted_peak_bytes)}{unit}")
        if self.measured_plain_bytes:
            lines.append(f"Peak of a call without Stash, measured: {size(self.measured_plain_bytes)}")
        if self.measured_peak_bytes:
            lines.append(f"Peak of a call with Stash, measured: {size(self.measured_peak_bytes)}")
        return "\n".join(lines)


def report() -> Report:
    """What was done since enable(): per tensor what was chosen, and what the kernels that ran really stored.

    Peaks count as measured if stash_tf.peak_bytes(), timeline() or memory.record() ran in this process.
    """
    session = in_force.current()
    loaded = library.loaded()
    last = in_force.last()
    if last is not None:
        graphs, counters = last.facts()
    else:
        graphs, counters = [], loaded.counters() if loaded else []
    explanations = diagnosis.explain(
        policy=session.settings.policy if session else None,
        hook=session.hook if session else "config",
        calls=session.calls if session else 0,
        graphs=graphs,
        counters=counters,
    )
    plain, stashed = memory.last_peaks()
    settings = dataclasses.asdict(session.settings) if session else {}
    policy = session.settings.policy if session else None
    return build(graphs, counters, policy, settings, explanations, plain, stashed)


def build(
    graphs: Sequence[Mapping[str, Any]],
    counters: Sequence[Mapping[str, Any]],
    policy: str | None = None,
    settings: Mapping[str, Any] | None = None,
    explanations: Iterable[str] = (),
    measured_plain_bytes: int = 0,
    measured_peak_bytes: int = 0,
) -> Report:
    """The report from what the library says."""
    newest = [graph for graph in _newest(graphs) if diagnosis.trains(graph)]
    encoded: dict[str, list[Mapping[str, Any]]] = {}
    for counter in counters:
        if counter["op"] in ENCODERS and counter["executions"] > 0:
            encoded.setdefault(counter["tensor"], []).append(counter)
    rows = []
    named = set()
    for graph in newest:
        for tensor in graph.get("tensors", ()):
            if tensor["tensor"] not in named:
                named.add(tensor["tensor"])
                rows.append(_row(graph, tensor, encoded.get(tensor["tensor"], []), bool(encoded)))
    for name, found in encoded.items():
        if name not in named:
            rows.append(_explicit(name, found))
    worked = any(counter["executions"] for counter in counters if counter["op"] != BATCH)
    summed = [c["elements"] // c["executions"] for c in counters if c["op"] == SUM and c["executions"]]
    main = max(newest, key=lambda graph: graph.get("predicted_plain_bytes", 0), default={})
    changed = [graph for graph in newest if graph["rewritten"] and not graph.get("reason")]

    def total(name: str) -> int:
        return sum(graph.get(name, 0) for graph in changed)

    # Functions run one after the other: what each keeps does not add up. What no graph names was kept explicitly.
    elsewhere = named - {tensor["tensor"] for tensor in main.get("tensors", ())}
    ran = [row for row in rows if row.state == RAN and row.tensor not in elsewhere]
    return Report(
        policy=policy,
        settings=dict(settings or {}),
        rows=tuple(rows),
        rewritten=any(graph["rewritten"] for graph in newest) and (worked or diagnosis.only_ordered(newest)),
        total_dense_bytes=sum(row.dense_bytes for row in ran),
        total_stored_bytes=sum(row.stored_bytes for row in ran),
        predicted_plain_bytes=main.get("predicted_plain_bytes", 0),
        predicted_peak_bytes=main.get("predicted_peak_bytes", 0),
        total_host_bytes=sum(row.host_bytes for row in ran),
        predicted_host_bytes=main.get("predicted_host_bytes", 0),
        sums=len(summed),
        summed_gradients=sum(summed),
        loops=total("loops"),
        lists=total("lists"),
        ordered=diagnosis.only_ordered(newest),
        recomputed_maps=total("recomputed_maps"),
        recomputed_ops=total("recomputed_ops"),
        recomputed_bytes=total("recomputed_bytes"),
        batch=main.get("batch", 0),
        measured_plain_bytes=measured_plain_bytes,
        measured_peak_bytes=measured_peak_bytes,
        explanations=tuple(explanations),
        graphs=tuple(graphs),
        counters=tuple(counters),
    )


def size(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _newest(graphs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One entry per function: TensorFlow optimizes each twice or more, and each time that its plan changes. Of one plan
    a graph that was rewritten counts before others."""
    found: dict[str, Mapping[str, Any]] = {}
    for graph in graphs:
        last = found.get(graph["id"])
        if graph["rewritten"] or last is None or not last["rewritten"] or _plan(graph) != _plan(last):
            found[graph["id"]] = graph
    return list(found.values())


def _plan(graph: Mapping[str, Any]) -> tuple[Any, Any]:
    return graph.get("generation"), graph.get("batch")


def _row(
    graph: Mapping[str, Any], tensor: Mapping[str, Any], found: Sequence[Mapping[str, Any]], ran: bool
) -> Row:
    """`ran`: whether any of our kernels has; a tensor that nobody needs any more has none of its own."""
    dense, stored, runs, state = tensor["dense_bytes"], tensor["stored_bytes"], 0, NOT_RUN
    iterations = tensor.get("iterations", 0)
    host = tensor.get("host_bytes", 0)
    if found:
        dense, stored, runs, host = _measured(found)
        state = RAN
        if tensor["tensor"].endswith(BITS):
            dense = 0  # the values are in a row of their own
    elif tensor["choice"] in diagnosis.AS_IT_IS or not graph["rewritten"]:
        state = STAYS
    elif tensor["choice"] == RECOMPUTED or (tensor["choice"] == "not needed" and ran):
        state = DROPPED
    if iterations > 1:
        dense, stored, runs = dense * iterations, stored * iterations, runs // iterations
    return Row(
        layer=tensor.get("layer", ""),
        tensor=tensor["tensor"],
        op=tensor.get("op", ""),
        choice=tensor["choice"],
        dense_bytes=dense,
        stored_bytes=stored,
        executions=runs,
        state=state,
        reason=tensor.get("reason", ""),
        host_bytes=host,
        iterations=iterations,
    )


def _explicit(name: str, found: Sequence[Mapping[str, Any]]) -> Row:
    """A tensor that stash_tf.nn, a layer or the gradient registry handles: no optimizer has logged it."""
    ops = ", ".join(sorted({counter["op"] for counter in found}))
    dense, stored, runs, host = _measured(found)
    return Row(name.split(":")[0], name, ops, "explicit", dense, stored, runs, RAN, host_bytes=host)


def _measured(found: Sequence[Mapping[str, Any]]) -> tuple[int, int, int, int]:
    """Dense bytes, stored bytes, executions and bytes to the host of a step.

    Several encoders of one tensor store separate bytes. What moves to the host is what they have stored, or the
    tensor itself where there are none.
    """
    moves = [c for c in found if c["op"] == MOVE]
    encoders = [c for c in found if c["op"] != MOVE] or moves
    each = [(c["dense_bytes"] / c["executions"], c["stored_bytes"] / c["executions"]) for c in encoders]
    dense, stored = zip(*each, strict=True)
    host = sum(c["stored_bytes"] / c["executions"] for c in moves)
    return round(max(dense)), round(sum(stored)), max(c["executions"] for c in found), round(host)


def _share(dense: int, stored: int) -> str:
    return f"{dense / stored:.1f} times less" if stored else "nothing left"


def _table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    moved = any(row.host_bytes for row in rows)
    cells = [("layer", "tensor", "op", "kept as", "dense", "stored", *["on host"] * moved, "executions", "")]
    for row in rows:
        bytes_ = [row.dense_bytes, row.stored_bytes, *[row.host_bytes] * moved]
        note = "" if row.state == RAN else row.state
        if row.iterations > 1:
            note = f"in {row.iterations} iterations" + (", " if note else "") + note
        elif row.iterations < 0:
            note = "in each iteration" + (", " if note else "") + note
        sizes = [size(count) for count in bytes_]
        cells.append((row.layer, row.tensor, row.op, row.choice, *sizes, str(row.executions), note))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = []
    for line in cells:
        texts = [text.ljust(widths[i]) if i < 4 else text.rjust(widths[i]) for i, text in enumerate(line[:-1])]
        lines.append("  ".join([*texts, line[-1]]).rstrip())
    return lines
