# SPDX-License-Identifier: Apache-2.0
"""What the records of these benchmarks have in common: where they come from and where they go."""

import json
import platform
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "integrations/tensorflow/tests"), str(ROOT / "scripts")]

import provenance  # noqa: E402


def facts(program, words):
    """Command, versions and machine, without names of hosts, users or folders."""
    return {"command": provenance.command_line(program, words), "commit": provenance.commit(),
            "processor": provenance.processor(), "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(), **{name: version(name) for name in ("tensorflow", "keras", "numpy")}}


def version(name):
    for package in (name, f"{name}-cpu"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return "unknown"


def save(path, record):
    """As a whole, so that a run that is cut short leaves a whole file."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.replace(path)
