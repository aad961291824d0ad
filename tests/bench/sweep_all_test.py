# SPDX-License-Identifier: Apache-2.0
"""bench/sweep_all with a program in place of `stash` that answers from a file."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SWEEP_ALL = sys.argv.pop(1)
PROGRAM = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
arguments = sys.argv[1:]
if arguments[0] == "--version":
    print("stash 0")
else:
    rows = json.loads((Path(__file__).parent / "rows.json").read_text())
    Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps({"rows": rows[arguments[1]]}))
"""


def planned(share, ms, bound, **more):
    return {"budget_share": share, "feasible": True, "simulated_ms": ms, "bound_ms": bound, "gap": ms / bound - 1,
            "valid": True, "plan_seconds": 0.5, **more}


def refused(share, why="too small"):
    return {"budget_share": share, "feasible": False, "gap": None, "why": why, "plan_seconds": 0.1}


class SweepAll(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "stash"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def sweep(self, rows):
        (self.folder / "rows.json").write_text(json.dumps(rows))
        return subprocess.run([sys.executable, "-B", SWEEP_ALL, "--stash", self.program, "--networks", ",".join(rows),
                               "--machines", "m", "--budgets", "0.8,0.5,0.2", "--json", self.folder / "record.json"],
                              capture_output=True, text=True, check=False)

    def test_says_how_far_plans_are_from_their_bounds(self):
        found = self.sweep({"a": [planned(0.8, 10, 10), planned(0.5, 10.2, 10), refused(0.2)],
                            "b": [planned(0.8, 20, 20), planned(0.5, 21, 20), planned(0.2, 44, 40)]})
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("5 plans, 1 budgets refused; gap: median 2.00%, nine in ten at most 10.00%, worst 10.00%", found.stdout)
        self.assertRegex(found.stdout, r"a +m +0\.00% +2\.00% +-\n")
        record = json.loads((self.folder / "record.json").read_text())
        self.assertEqual([each["network"] for each in record["sweeps"]], ["a", "b"])
        self.assertAlmostEqual(record["summary"]["worst_gap"], 0.1)
        self.assertIn("commit", record)

    def test_names_what_no_plan_may_be(self):
        for name, rows, says in [
                ("below", [planned(0.8, 9, 10)], "a on m, 80%: below its bound"),
                ("invalid", [planned(0.8, 10, 10, valid=False)], "a on m, 80%: not valid"),
                ("slower", [planned(0.8, 12, 10), planned(0.5, 11, 10)], "a on m, 80%: slower than with less memory"),
                ("silent", [refused(0.2, why="")], "a on m, 20%: refused without a reason")]:
            with self.subTest(name):
                found = self.sweep({"a": rows})
                self.assertEqual(found.returncode, 1)
                self.assertIn(says, found.stderr)


if __name__ == "__main__":
    unittest.main()
