# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the pages that say <!-- runnable --> above their block, in an empty folder: docs_test.py ROOT STASH.

A block is fenced or indented. In one with lines that begin with "$ ", only these are commands."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT, STASH = Path(sys.argv[1]), Path(sys.argv[2])
MARK = "<!-- runnable -->"
MOST_SECONDS = 300


def blocks(text):
    """Commands of each marked block, one string each."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.strip() != MARK:
            continue
        rest = lines[number + 1 :]
        while rest and not rest[0].strip():
            rest = rest[1:]
        if rest and rest[0].startswith("```"):
            rest = rest[1:]
            body = rest[: next(i for i, one in enumerate(rest) if one.startswith("```"))]
        else:
            end = next((i for i, one in enumerate(rest) if one.strip() and not one.startswith("    ")), len(rest))
            body = [one[4:] for one in rest[:end]]
        prompts = [one[2:] for one in body if one.startswith("$ ")]
        yield "\n".join(prompts or body).strip()


class Extraction(unittest.TestCase):
    def test_blocks(self):
        text = f"a\n{MARK}\n\n    one  # 1\n    two\n\nb\n    no\n{MARK}\n```sh\n$ three\noutput\n```\n{MARK}\n    last"
        self.assertEqual(list(blocks(text)), ["one  # 1\ntwo", "three", "last"])


class Pages(unittest.TestCase):
    def test_commands_run(self):
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        count = 0
        for page in pages:
            for commands in blocks(page.read_text(encoding="utf-8")):
                count += 1
                with self.subTest(page=page.name, commands=commands), tempfile.TemporaryDirectory() as folder:
                    script = re.sub(r"\bbuild/cpu/tools/stash\b", "stash", commands)
                    environment = {**os.environ, "PATH": f"{STASH.parent}:{os.environ['PATH']}"}
                    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=folder, env=environment,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MOST_SECONDS)
                    self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        self.assertGreaterEqual(count, 4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
