# SPDX-License-Identifier: Apache-2.0
"""The rules of scripts/kernel_facts: kernels/limits.toml against what the compiler made of a kernel. docs/kernels.md
explains them."""

import re
from dataclasses import dataclass

import ptx

# The device that the budget is for: H200. The clock is the lower one that it keeps under load, the bandwidth what a copy
# reaches, and a multiprocessor issues four warp instructions in a clock.
MULTIPROCESSORS = 132
CLOCK = 1.755e9
LANES = 128
BANDWIDTH = 4.3e12
INSTRUCTIONS_PER_BYTE = MULTIPROCESSORS * LANES * CLOCK / BANDWIDTH

ACCESSES = ("wide_loads", "wide_stores", "narrow_loads", "narrow_stores")
SHARED_ACCESSES = ("shared_loads", "shared_stores", "shared_wide_loads", "shared_wide_stores")  # all of them, wide ones
LIMIT_KEYS = {"name", "registers", "shared", "later"}
OLDER_KEYS = {"instructions", *ACCESSES, *SHARED_ACCESSES}
PATH_KEYS = {"name", "elements", "narrow", "older", *OLDER_KEYS}


@dataclass(frozen=True)
class Main:
    """What was found out about the main path, for each element."""
    instructions: float
    at_most: float  # instructions where of two sides the dearer one is taken
    bytes: float

    @property
    def budget(self):
        """Instructions that fit into the time that the bytes take."""
        return self.bytes * INSTRUCTIONS_PER_BYTE


def check_table(table):
    """Faults of limits.toml itself."""
    faults = []
    for part, keys, needed in (("limits", LIMIT_KEYS, {"name", "registers"}), ("paths", PATH_KEYS, {"name", "elements"})):
        for entry in table[part]:
            for key in sorted(entry.keys() - keys):
                faults.append(f"{part}: '{entry.get('name')}': unknown key '{key}'")
            for key in sorted(needed - entry.keys() - ({"elements"} if entry.get("narrow") else set())):
                faults.append(f"{part}: '{entry.get('name')}': no '{key}'")
            if "later" in entry and entry["later"].keys() != {"from", "registers"}:
                faults.append(f"{part}: '{entry.get('name')}': 'later' is not 'from' and 'registers'")
            if "older" in entry and not {"before"} < entry["older"].keys() <= {"before"} | OLDER_KEYS:
                faults.append(f"{part}: '{entry.get('name')}': 'older' is not 'before' and what differs")
    if not faults and not re.fullmatch(table["limits"][-1]["name"], ""):
        faults.append("limits: the last entry does not take every kernel")
    return faults


def entry_of(entries, name):
    """The first entry for this kernel, or None."""
    return next((entry for entry in entries if re.fullmatch(entry["name"], name)), None)


def unused(table, names):
    """Entries that no kernel comes to."""
    return [f"{part}: '{entry['name']}' is the entry of no kernel" for part in ("limits", "paths")
            for entry in table[part][:-1 if part == "limits" else None]
            if not any(entry_of(table[part], name) is entry for name in names)]


def registers_on(limit, architecture):
    """How many an entry allows there."""
    later = limit.get("later", {"from": architecture + 1})
    return later["registers"] if architecture >= later["from"] else limit["registers"]


def path_on(entry, architecture):
    """What an entry of `paths`, or None, says of an architecture."""
    older = (entry or {}).get("older", {"before": 0})
    return entry if architecture >= older["before"] else {**entry, **older}


def check_resources(name, resources, limit, architecture):
    """Broken rules of one kernel on one architecture."""
    faults = []
    registers = registers_on(limit, architecture)
    if resources.spills:
        faults.append(f"spills {resources.spills} bytes of registers")
    if resources.stack:
        faults.append(f"has a stack frame of {resources.stack} bytes")
    if resources.registers > registers:
        faults.append(f"uses {resources.registers} registers, more than {registers}")
    if resources.shared > limit.get("shared", 0):
        faults.append(f"uses {resources.shared} bytes of shared memory, more than {limit.get('shared', 0)}")
    return [f"{name}: {fault}" for fault in faults]


def check_start(name, architecture, waits):
    """From sm_90 on kernels may begin before those in front of them have ended."""
    if waits or architecture < 90:
        return []
    return [f"{name}: touches memory before begin_kernel(), or does without it"]


def main_of(blocks, entry):
    """The main path that an entry describes, None if the kernel has none."""
    if entry.get("narrow"):
        return None
    accesses = {kind: entry.get(kind, 0) for kind in ACCESSES}
    accesses |= {kind: entry[kind] for kind in SHARED_ACCESSES if kind in entry}
    path = ptx.main_path(blocks, accesses)
    if path is None:
        return None
    # With dearer sides there may be no such way, or one that leaves a side out because it has become too long to be work
    # on one element.
    dearer = ptx.main_path(blocks, accesses, max)
    at_most = max(path.instructions, dearer.instructions if dearer else 0)
    return Main(path.instructions / entry["elements"], at_most / entry["elements"], path.bytes / entry["elements"])


def check_path(name, blocks, entry, main, more=0):
    """Broken rules of a kernel's main path; `entry` and `main` may be None. Instructions may be `more` by this share."""
    if entry is None:
        if any(block.accesses.get(kind) for block in blocks for kind in ("wide_loads", "wide_stores")):
            return []
        return [f"{name}: has no entry under 'paths' and no 16-byte access of global memory"]
    if entry.get("narrow"):
        return []
    if main is None:
        wanted = ", ".join(f"{entry.get(kind, 0)} {kind.replace('_', ' ')}" for kind in ACCESSES)
        wanted += "".join(f", {entry[kind]} {kind.replace('_', ' ')}" for kind in SHARED_ACCESSES if kind in entry)
        return [f"{name}: no way through it has exactly {wanted}"]
    limit = entry.get("instructions", main.budget)
    if main.instructions > limit * (1 + more):
        known = f"known {limit}" if "instructions" in entry else f"budget of {limit:.1f}"
        return [f"{name}: {main.instructions:.1f} instructions for an element, more than the {known}"]
    return []
