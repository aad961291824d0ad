# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check --pytorch: stash_torch on a GPU. Packs what a machine without a compiler and without a network needs next to
its own torch, or runs it here (integrations/pytorch/bench/gpu.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from provenance import ROOT, commit

MOST_BYTES = 60 << 20
PROGRAM = Path("integrations/pytorch/bench/gpu.py")
# Modules that the program imports, and those that they import.
CARRIED = [PROGRAM, *(Path("integrations/pytorch") / name for name in (
    "bench/memory.py", "bench/models.py", "bench/record.py", "bench/rivals.py", "tests/training.py")),
    Path("scripts/provenance.py")]
START = """#!/bin/sh
# PYTHON names the Python that has torch. Arguments go to the program; see its --help.
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH=$here exec "${PYTHON:-python3}" -B "$here/%s" --json "$here/gpu_pytorch.json" "$@"
"""


def package_of(build):
    """The package stash_torch of a build folder, whose target was built."""
    package = build / "integrations" / "pytorch" / "stash_torch"
    if not (package / "libstash.so").is_file():
        raise SystemExit(f"gpu_check: --pytorch: expected a build of the target stash_torch, got {build} without one")
    return package


def pack(build, folder):
    """Copies the package, the program and a start script. Returns the bytes of all files."""
    package = package_of(build)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(package, folder / "stash_torch", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in CARRIED:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, folder / path)
    (folder / "commit").write_text(commit() + "\n", encoding="utf-8")
    start = folder / "gpu_pytorch"
    start.write_text(START % PROGRAM.as_posix(), encoding="utf-8")
    start.chmod(0o755)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise SystemExit(f"gpu_check: --pack: expected at most {MOST_BYTES} bytes, got {size}")
    print(f"packed {size / 1e6:.1f} MB in {folder}; there: {start.name} (PYTHON=python3 of the environment with torch)")
    return size


def run(build, record, seconds):
    """The exit status: 0, 1 if something failed, 77 if there is no GPU."""
    python = os.environ.get("PYTHON", sys.executable)
    environment = {**os.environ, "PYTHONPATH": str(package_of(build).parent)}
    return subprocess.run([python, "-B", ROOT / PROGRAM, "--json", record, "--seconds", str(seconds)],
                          env=environment).returncode
