# SPDX-License-Identifier: Apache-2.0
"""What a session did, as text."""

from . import library
from .planner import sizes_of


def report_of(session):
    if not session.plans:
        return "stash_torch: no step has been recorded yet: run a forward and a backward pass within the session\n"
    plan = session.usual_plan()
    lines = [f"policy {plan.policy}; saved for the backward pass: {_mib(plan.before)} -> {_mib(plan.after)}"
             + (f" ({plan.before / plan.after:.2f} times less)" if plan.after else "")]
    if plan.policy == "auto":
        lines.append("rounded to " + (", ".join(f"{name}: {_mib(bytes)}" for name, bytes in _rounded(plan)) or "no format"))
    lines += _moved(session, plan)
    lines.append(", ".join(f"{name}: {count}" for name, count in sorted(session.counts.items())))
    if session.counts["slots with hooks of others"]:
        lines.append("what hooks of others have, as those of torch.utils.checkpoint and save_on_cpu, they keep")
    if len(session.plans) > 1:
        lines.append(f"kinds of steps: {len(session.plans)}; this is the one of which there were the most "
                     f"({plan.steps} of {sum(each.steps for each in session.plans)})")
    lines += _memory(plan.fit)
    lines += _planned(plan)
    if plan.disabled:
        lines.append("off, because this release of torch reads them in another way: "
                     + ", ".join(f"{name}.{slot}" for name, slot in sorted(plan.disabled)))
    rows = {}
    for group in plan.groups.values():
        savers = ", ".join(sorted({f"{plan.nodes[slot.node].name}.{slot.name}" for slot in group.slots}))
        row = rows.setdefault((savers, group.how(), group.reason), [0, 0, 0])
        row[0] += 1
        row[1] += group.bytes
        row[2] += group.kept_bytes
    lines.append(f"{'number':>6} {'before':>12} {'after':>12}  kept as; saved by")
    for (savers, how, reason), (count, before, after) in sorted(rows.items(), key=lambda row: -row[1][1]):
        lines.append(f"{count:6} {_mib(before):>12} {_mib(after):>12}  {how}; {savers}" + (f" ({reason})" if reason else ""))
    for saver, (count, size) in sorted(plan.untouched.items(), key=lambda row: -row[1][1]):
        lines.append(f"{count:6} {_mib(size):>12} {_mib(size):>12}  not touched; {saver}")
    return "\n".join(lines) + "\n"


def _rounded(plan):
    """(format, bytes before that), the most precise first."""
    return [(name, bytes) for name in plan.formats
            if (bytes := sum(group.bytes for group in plan.groups.values() if group.choice().narrow and group.form.name == name))]


def _moved(session, plan):
    if session.stays:
        return [f"nothing moves to the host: {session.stays}"]
    moved = [group.host_bytes for group in plan.groups.values() if group.host_bytes]
    return [f"on the host: {_mib(sum(moved))}, of {len(moved)} tensors"] if session.ahead else []


def _memory(fit):
    """What was measured of a step."""
    if fit.smallest is None:
        return ["peak of a step: not measured yet"]
    plain = f"{_mib(fit.plain.peak)} plain, " if fit.plain is not None else ""
    words = f"peak of a step: {plain}{_mib(fit.timeline.peak)} under this plan"
    if fit.least < fit.timeline.peak:
        words += f" ({_mib(fit.least)} at the least)"
    if fit.smallest.before:
        words += f", and {_mib(fit.smallest.before)} was there before it"
    if fit.budget is not None:
        words += f"; budget {_mib(fit.budget)}" + (": refused" if fit.refused else "")
    return [words]


def _planned(plan):
    """What the project's planner makes of the recorded step."""
    try:
        sizes = sizes_of(plan)
    except library.Error as error:
        return [f"the planner has no plan for this step: {error}"]
    return [f"feature maps and their gradients, by the project's planner: {_mib(sizes['baseline_peak'])} plain, "
            f"{_mib(sizes['planned_peak'])} planned; no plan is below {_mib(sizes['bound'])}; largest op (W) "
            f"{_mib(sizes['wall'])}, {sizes['wall_name']}"]


def _mib(count):
    return f"{count / 2**20:.2f} MiB"
