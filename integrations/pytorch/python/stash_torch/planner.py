# SPDX-License-Identifier: Apache-2.0
"""What the project's planner says of a recorded step, and the files that its commands read."""

import ctypes
import json
from pathlib import Path

from .graph import graph_of
from .library import api

OWN_POLICIES = ("lossless", "fp16", "fp10", "fp8")  # the planner has these names, too


def plan_of(graph, policy, formats, lay_out):
    """The planner's plan of a training graph, as JSON: the smallest peak that it finds under a policy of this package, which
    may round to these formats. Without a layout its peak is the largest sum of what lives at once, wherever torch places it.
    Raises library.Error."""
    options = api.PlanOptions(policy=b"auto", values=",".join(formats).encode())
    if policy in OWN_POLICIES:
        options = api.PlanOptions(policy=policy.encode())
    options.no_layout = 0 if lay_out else 1
    text = ctypes.c_char_p()
    api.plan(graph.encode(), options, text)
    try:
        return text.value.decode()
    finally:
        api.free_text(text)


def sizes_of(plan):
    """The planner's "sizes" of a recorded step (docs/plan.md), in bytes; and the name of the largest op."""
    if plan.sizes is None:
        planned = json.loads(plan_of(json.dumps(graph_of(plan)), plan.policy, plan.formats, lay_out=False))
        sizes = planned["sizes"]
        plan.sizes = {**sizes, "wall_name": planned["network"]["ops"][sizes["wall_op"]]["name"]}
    return plan.sizes


def save(plan, path):
    """Writes the recorded step as a training graph next to `path` (plan.json: plan.graph.json), and the planner's plan of
    it to `path`."""
    path = Path(path)
    graph = json.dumps(graph_of(plan))
    planned = plan_of(graph, plan.policy, plan.formats, lay_out=True)
    path.with_suffix(".graph.json").write_text(graph + "\n", encoding="utf-8")
    path.write_text(planned + "\n", encoding="utf-8")
