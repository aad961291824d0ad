# SPDX-License-Identifier: Apache-2.0
"""Graphs, tensors and counters as the library describes them to the package, and settings."""

from stash_tf import settings


def graph(**fields):
    return {
        "id": "f",
        "nodes": 9,
        "rewritten": True,
        "reason": "",
        "batch": 0,
        "left": [],
        "tensors": [],
        **fields,
    }


def tensor(name="a:0", choice="fp8", dense=400, stored=100, **fields):
    known = {"tensor": name, "layer": "a", "op": "Relu", "choice": choice, "reason": "r"}
    return {**known, "dense_bytes": dense, "stored_bytes": stored, "elements_per_sample": 100, **fields}


def counter(
    name="a:0", op="StashEncode", runs=2, elements=1600, dense=6400, stored=1600, nonzeros=None, **more
):
    moved = {**more, "elements": elements, "dense_bytes": dense, "stored_bytes": stored, "nonzeros": nonzeros}
    return {"op": op, "tensor": name, "executions": runs, "nanoseconds": 5, "batch": 8, **moved}


def wishes(policy="fp8", budget=None, batch=None):
    return settings.checked(policy, budget, batch, (), False, 4096)
