# SPDX-License-Identifier: Apache-2.0
"""Holds the shared library against docs/abi.md and the headers.

usage: abi.py LIBRARY SOURCE
"""

import os
import re
import subprocess
import sys


def exported(library):
    """Names of all symbols that the library defines for others, C++ names demangled."""
    listing = subprocess.run(["nm", "--dynamic", "--defined-only", "--demangle", library], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    return {line.split(maxsplit=2)[2] for line in listing.splitlines()}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main(library, source):
    faults = []
    symbols = exported(library)
    c_symbols = {name for name in symbols if re.fullmatch(r"stash_\w+", name)}
    header = read(f"{source}/include/stash/c_api.h")
    declared = set(re.findall(r"STASH_API [\w ]+?\**\s*\**(stash_\w+)\(", header))
    page = set(re.findall(r"^\| `(stash_\w+)` \|", read(f"{source}/docs/abi.md"), re.MULTILINE))
    for what, names in (("declared in c_api.h", declared), ("listed in docs/abi.md", page)):
        faults += [f"exported but not {what}: {name}" for name in sorted(c_symbols - names)]
        faults += [f"{what} but not exported: {name}" for name in sorted(names - c_symbols)]

    public = re.compile(r"(typeinfo for |typeinfo name for |vtable for )?stash::(?!\w+::\w+::|detail\b|runtime\b|planner\b)")
    for name in sorted(symbols - c_symbols):
        if not public.match(name):
            faults.append(f"exported but not public: {name}")

    # Every C++ function with STASH_API is there; overloads count once.
    for folder, _, files in os.walk(f"{source}/include/stash"):
        for file in files:
            for name in re.findall(r"^STASH_API [\w:<>&\s]*?[&\s](\w+)\(", read(os.path.join(folder, file)), re.MULTILINE):
                if name.startswith("stash_") or any(re.search(rf"\bstash::{name}[\[(]", s) for s in symbols):
                    continue
                faults.append(f"declared in {file} but not exported: {name}")
    if not declared or len(symbols) <= len(c_symbols):
        faults.append("nothing was compared: the lists are empty")
    print("\n".join(faults) or f"{len(c_symbols)} C functions and {len(symbols) - len(c_symbols)} C++ symbols: as listed")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
