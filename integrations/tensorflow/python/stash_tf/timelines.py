# SPDX-License-Identifier: Apache-2.0
"""Memory over time, and what is alive at its peak."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from .events import Event

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Live:
    """A tensor, or memory of a kernel's own ("temp"), that is alive at the peak."""

    op: str
    shape: str
    bytes: int
    kind: str
    since: float  # seconds after the first event


class Timeline:
    """Bytes allocated beyond what was there when the recording began. Releases of older memory count: an
    update that takes a new buffer for a variable gives the old one back.

    peak: bytes at the highest point; live: what is alive there, the largest first; times, bytes: the whole
    series, seconds after the first event and the sum from then on.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.fill(events)

    def fill(self, events: Iterable[Event]) -> None:
        """Counts anew, from events in order of time."""
        self.peak, self.peak_time = 0, 0.0
        self.live: list[Live] = []
        self.times: list[float] = []
        self.bytes: list[int] = []
        alive: dict[tuple[str, int], Event] = {}
        at_peak: list[Event] = []
        now, begin = 0, None
        for event in events:
            begin = event.time if begin is None else begin
            location = (event.allocator, event.address)
            old = alive.pop(location, None)  # an allocation finds something here only if its release got lost
            now -= old.bytes if old else 0
            if event.allocated:
                alive[location] = event
                now += event.bytes
            elif old is None:
                now -= event.bytes
            self.times.append(event.time - begin)
            self.bytes.append(now)
            if now > self.peak:
                self.peak, self.peak_time, at_peak = now, event.time - begin, list(alive.values())
        for event in sorted(at_peak, key=lambda event: -event.bytes):
            self.live.append(Live(event.op, event.shape, event.bytes, event.kind, event.time - (begin or 0.0)))

    def table(self, most: int = 30) -> str:
        """What is alive at the peak, the largest first."""
        lines = [f"peak {self.peak / MIB:.2f} MiB, {len(self.live)} allocations alive"]
        for one in self.live[:most]:
            lines.append(f"{one.bytes / MIB:10.3f} MiB  {one.kind:8s} {one.op} {one.shape}".rstrip())
        rest = self.live[most:]
        if rest:
            lines.append(f"{sum(one.bytes for one in rest) / MIB:10.3f} MiB  in {len(rest)} smaller ones")
        return "\n".join(lines)

    def svg(self, path: str | Path, title: str = "Allocated bytes") -> None:
        """Draws the series into a file."""
        Path(path).write_text(_svg(self, title), encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Timeline: peak {self.peak} bytes, {len(self.times)} events>"


def _svg(line: Timeline, title: str) -> str:
    width, height, left, top = 900, 360, 90, 40
    span = max(line.times[-1] if line.times else 0.0, 1e-9)
    most = max(line.peak, 1)

    def point(time: float, count: int) -> str:
        x = left + time / span * (width - left - 20)
        return f"{x:.2f},{top + (1 - count / most) * (height - top - 50):.2f}"

    corners = [point(0.0, 0)]
    level = 0
    for time, count in zip(line.times, line.bytes, strict=True):
        corners += [point(time, level), point(time, count)]
        level = count
    corners.append(point(span, 0))
    x, y = point(line.peak_time, line.peak).split(",")
    base = height - 50
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            'font-size="13">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{left}" y="22" font-size="15">{escape(title)}</text>',
            f'<polygon points="{" ".join(corners)}" fill="#9ecae1" stroke="#3182bd"/>',
            f'<line x1="{left}" y1="{base}" x2="{width - 20}" y2="{base}" stroke="black"/>',
            f'<line x1="{left}" y1="{top}" x2="{left}" y2="{base}" stroke="black"/>',
            f'<circle cx="{x}" cy="{y}" r="4" fill="#de2d26"/>',
            f'<text x="{left - 6}" y="{top + 5}" text-anchor="end">{line.peak / MIB:.1f} MiB</text>',
            f'<text x="{left - 6}" y="{base}" text-anchor="end">0</text>',
            f'<text x="{width - 20}" y="{base + 20}" text-anchor="end">{span * 1e3:.1f} ms</text>',
            "</svg>",
            "",
        )
    )
