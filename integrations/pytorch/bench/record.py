# SPDX-License-Identifier: Apache-2.0
"""Writes the rows of a benchmark as a record: with the command, the commit and the machine."""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
from provenance import ROOT, commit, processor  # noqa: E402

COMMIT = commit()  # when the program began


def write(path, rows, **more):
    """path: what the option --json gave; it is no part of the command. more: what all rows have in common."""
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    command = " ".join([str(script), *(each for each in sys.argv[1:] if each not in ("--json", str(path)))])
    path.write_text(json.dumps({"command": command, "commit": COMMIT, "processor": processor(), "torch": torch.__version__,
                                "threads": torch.get_num_threads(), **more, "rows": rows}, indent=1) + "\n")
