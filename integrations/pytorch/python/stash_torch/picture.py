# SPDX-License-Identifier: Apache-2.0
"""Memory over one step, plain and under a plan, as an SVG."""

from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BELOW = 860, 330, 64, 46, 180, 40
STYLE = """
text { font: 13px sans-serif; fill: #24292f } .title { font-size: 15px }
.axis { stroke: #57606a; fill: none } .plain { fill: #8c959f; opacity: .45 } .stash { fill: #0969da; opacity: .55 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .axis { stroke: #8b949e } .plain { fill: #8b949e } .stash { fill: #58a6ff }
}
"""


def draw(path, plain, planned, policy):
    """plain, planned: Timelines. Both have the same moments, but for those of the planning."""
    lines = [("plain", "without Stash", plain), ("stash", policy, planned)]
    most = max(line.peak for _, _, line in lines) or 1
    base, end = HEIGHT - BELOW, WIDTH - RIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">', f"<style>{STYLE}</style>",
             f'<text class="title" x="{LEFT}" y="24">Memory over one training step, PyTorch with stash_torch</text>']
    for kind, label, line in lines:
        parts.append(_area(line, most, kind))
        y = TOP + (1 - line.peak / most) * (base - TOP)
        parts += [f'<rect class="{kind}" x="{end + 8}" y="{y - 6:.1f}" width="12" height="12"/>',
                  f'<text x="{end + 26}" y="{y + 4:.1f}">{escape(label)}: {line.peak / 2**20:.1f} MiB</text>']
    parts += [f'<path class="axis" d="M{LEFT} {TOP}V{base}H{end}"/>', f'<text x="{LEFT}" y="{base + 22}">forward</text>',
              f'<text x="{(LEFT + end) / 2}" y="{base + 22}" text-anchor="middle">nodes of autograd, one after the other</text>',
              f'<text x="{end}" y="{base + 22}" text-anchor="end">backward</text>',
              f'<text x="{LEFT - 8}" y="{base}" text-anchor="end">0</text>', "</svg>", ""]
    Path(path).write_text("\n".join(parts), encoding="utf-8")


def _area(line, most, kind):
    """Every moment has the same width, whatever time it takes."""
    levels = [live for moment, live in zip(line.moments, line.most) if moment[0] not in (*line.without, "planned")]
    base, points = HEIGHT - BELOW, []
    for index, live in enumerate(levels):
        y = TOP + (1 - max(live, 0) / most) * (base - TOP)
        points += [f"{LEFT + place / len(levels) * (WIDTH - LEFT - RIGHT):.1f},{y:.1f}" for place in (index, index + 1)]
    return f'<polygon class="{kind}" points="{LEFT},{base} {" ".join(points)} {WIDTH - RIGHT},{base}"/>'
