# SPDX-License-Identifier: Apache-2.0
"""The manual page: it names every command and option that --help names, and troff has no complaint."""

import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from command import STASH, CommandTest

SCRIPT = Path(__file__).resolve().parents[2] / "tools/man_page.py"


def options(text):
    return set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.MULTILINE)) - {"--help-all"}


class ManPage(CommandTest):
    def made(self, name):
        path = self.folder / name
        subprocess.run([sys.executable, "-B", SCRIPT, STASH, path], check=True)
        return path

    def test_says_what_help_says(self):
        text = Path(self.made("stash.1")).read_text(encoding="ascii")
        commands = re.findall(r"^  ([a-z-]+) ", self.done("--help").split("Subcommands:")[1], re.MULTILINE)
        self.assertIn("plan", commands)
        sections = dict(re.findall(r'^\.SH "STASH ([A-Z\\-]+)"\n(.*?)(?=^\.SH )', text, re.MULTILINE | re.DOTALL))
        self.assertEqual([name.replace("\\", "").lower() for name in sections], commands)
        for command, section in zip(commands, sections.values()):
            help_text = self.done(command, "--help")
            self.assertEqual(options(help_text) - {"--help"},
                             options(re.sub(r"^\.B (\S*, )?", "  ", section.replace("\\-", "-"), flags=re.MULTILINE)))
            about = help_text.splitlines()[0]
            self.assertIn(about, section.replace("\\-", "-"))
        self.assertIn(f'"stash {self.done("--version").strip()}"', text.splitlines()[0])

    def test_no_time_in_it(self):
        first = Path(self.made("stash.1.gz")).read_bytes()
        self.assertEqual(first[:2], b"\x1f\x8b")
        self.assertEqual(first, Path(self.made("again.gz")).read_bytes())

    @unittest.skipUnless(shutil.which("groff"), "groff is not there")
    def test_troff_has_no_complaint(self):
        done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", self.made("stash.1")], text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
