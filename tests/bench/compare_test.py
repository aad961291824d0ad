# SPDX-License-Identifier: Apache-2.0
"""bench/compare on small results of both kinds."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMPARE = sys.argv.pop(1)


def stash_line(name, seconds, share, **more):
    return {"name": name, "dense_bytes": 1 << 20, "seconds": seconds, "copy_share": share, "rounds": 3, **more}


def google_line(name, time, **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "real_time": time, "time_unit": "us", **more}


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content):
        (self.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))

    def stash(self, name, *lines):
        self.write(name, {"format": "stash.bench", "lines": lines})

    def google(self, name, *lines):
        self.write(name, {"context": {}, "benchmarks": lines})

    def run_compare(self, *arguments):
        return subprocess.run([sys.executable, "-B", COMPARE, *arguments], cwd=self.folder, capture_output=True, text=True,
                              check=False)

    def lines(self, *arguments):
        """Rows of the output by their first word, split into words."""
        result = self.run_compare(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.text = result.stdout
        return {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.strip()}

    def refused(self, *arguments, says):
        result = self.run_compare(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, r"\Acompare: [^\n]+\n\Z")
        for part in says:
            self.assertIn(part, result.stderr)

    def test_marks_what_differs_by_more_than_the_threshold(self):
        self.stash("a.json", *(stash_line(name, 1e-6, 0.5) for name in ["same", "noise", "faster", "slower"]))
        self.stash("b.json", stash_line("same", 1e-6, 0.5), stash_line("noise", 1e-6, 0.6), stash_line("faster", 1e-6, 1.0),
                   stash_line("slower", 1e-6, 0.25))
        rows = self.lines("a.json", "b.json")
        self.assertEqual(rows["same"], ["1.0", "1.0", "50", "%", "50", "%", "1.00"])
        self.assertEqual(rows["noise"][-1], "1.20")
        self.assertEqual(rows["faster"][-2:], ["2.00", "faster"])
        self.assertEqual(rows["slower"][-2:], ["0.50", "SLOWER"])
        self.assertIn("4 lines in both: 1 faster, 1 slower by more than 25 %", self.text)
        self.assertEqual(self.lines("a.json", "b.json", "--threshold", "0.1")["noise"][-2:], ["1.20", "faster"])
        self.assertEqual(self.lines("a.json", "b.json", "--threshold", "1.5")["slower"][-1], "0.50")

    def test_the_share_of_a_copy_counts_where_both_have_it_else_the_time(self):
        self.stash("a.json", stash_line("x", 1e-6, 0.5))
        self.stash("b.json", stash_line("x", 4e-6, 0.5))
        self.google("c.json", google_line("x", 4.0))
        self.assertEqual(self.lines("a.json", "b.json")["x"][-1], "1.00")
        self.assertEqual(self.lines("a.json", "c.json")["x"], ["1.0", "4.0", "50", "%", "-", "0.25", "SLOWER"])

    def test_names_of_both_formats_match(self):
        self.stash("a.json", stash_line("encode/bitmap/iid_0.5/64KiB", 3e-6, 0.5))
        self.google("b.json", google_line("encode/bitmap/iid_0.5/64KiB/min_time:0.050/manual_time", 3.0, copy_share=0.5))
        rows = self.lines("a.json", "b.json")
        self.assertEqual(rows["encode/bitmap/iid_0.5/64KiB"][-1], "1.00")
        self.assertNotIn("only in", self.text)

    def test_repetitions_give_their_median_and_aggregates_and_failures_are_left_out(self):
        name = "encode/csr/manual_time"
        self.google("a.json", google_line(name, 5.0), google_line(name, 1.0), google_line(name, 2.0),
                    {**google_line(name + "_mean", 9.0), "run_name": name, "run_type": "aggregate"},
                    {"name": "broken", "run_type": "iteration", "error_occurred": True})
        rows = self.lines("a.json", "a.json")
        self.assertEqual(rows["encode/csr"][:2], ["2.0", "2.0"])
        self.assertNotIn("broken", rows)

    def test_missing_lines_are_listed(self):
        self.stash("a.json", stash_line("both", 1e-6, 1), stash_line("gone", 1e-6, 1))
        self.stash("b.json", stash_line("new", 1e-6, 1), stash_line("both", 1e-6, 1))
        self.lines("a.json", "b.json")
        self.assertIn("only in A: 1\n  gone\nonly in B: 1\n  new\n", self.text)

    def test_another_encoded_ratio_is_pointed_out(self):
        self.stash("a.json", stash_line("x", 1e-6, 1, ratio=2.0))
        self.stash("b.json", stash_line("x", 1e-6, 1, ratio=1.9))
        self.lines("a.json", "b.json")
        self.assertIn("encoded ratio 2.000 -> 1.900", self.text)

    def test_refuses_what_is_no_result(self):
        self.stash("good.json", stash_line("x", 1e-6, 1))
        self.refused("good.json", "missing.json", says=["missing.json", "No such file"])
        for content, says in [("", "JSON"), ("{", "JSON"), ("[]", "other JSON"), ({"runs": []}, "other JSON"),
                              ({"benchmarks": []}, "at least one line"), ({"benchmarks": [{}]}, "name"),
                              ({"benchmarks": 5}, "lines of a result"), ({"benchmarks": [{"name": "x"}]}, "a time"),
                              ({"benchmarks": [google_line("x", "fast")]}, "real_time"),
                              ({"benchmarks": [{**google_line("x", 1.0), "time_unit": "days"}]}, "days"),
                              ({"format": "stash.bench", "lines": [stash_line("x", -1, 1)]}, "seconds"),
                              ({"format": "stash.bench", "lines": [stash_line("x", 1, True)]}, "copy_share"),
                              ({"format": "stash.bench", "lines": [1]}, "lines of a result")]:
            with self.subTest(content=content):
                self.write("bad.json", content)
                self.refused("bad.json", "good.json", says=["bad.json", says])
        result = self.run_compare("good.json", "good.json", "--threshold", "-1")
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main()
