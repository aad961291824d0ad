# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: running `stash`, and what a refusal looks like."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

STASH = sys.argv.pop(1) if len(sys.argv) > 1 else "stash"


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *arguments, data=None):
        # Threads that wait without spinning, since tests share the machine with each other.
        environment = {k: v for k, v in os.environ.items() if k != "STASH_DATA"}
        environment["OMP_WAIT_POLICY"] = "passive"
        if data:
            environment["STASH_DATA"] = str(data)
        return subprocess.Popen([STASH, *map(str, arguments)], cwd=self.folder, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_stash(self, *arguments, data=None):
        """Returns (exit code, stdout, stderr)."""
        process = self.start(*arguments, data=data)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def done(self, *arguments, **options):
        """Runs a command that must succeed without a word on stderr; returns its output."""
        code, out, err = self.run_stash(*arguments, **options)
        self.assertEqual((code, err), (0, ""), arguments)
        return out

    def refused(self, *arguments, says=(), code=2, **options):
        """Runs a command that must be refused with one line on stderr and no file left over; returns the line."""
        before = sorted((p, p.lstat().st_size) for p in self.folder.rglob("*"))
        got, out, err = self.run_stash(*arguments, **options)
        self.assertEqual(got, code, (arguments, out, err))
        self.assertRegex(err, r"\Astash: [^\n]+\n\Z", arguments)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, err)
        after = sorted((p, p.lstat().st_size) for p in self.folder.rglob("*"))
        self.assertEqual(before, after, arguments)
        return err

    def read_json(self, name):
        return json.loads((self.folder / name).read_text())

    def write(self, name, content):
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(self.folder / name, mode) as f:
            f.write(content)
        return self.folder / name

    def smallest_budget(self, message):
        found = re.search(r"expected at least (\d+) bytes", message)
        self.assertIsNotNone(found, message)
        return int(found.group(1))


def catches_interrupts(process):
    """Whether it has a handler by now: a busy machine may take a while to get there."""
    with open(f"/proc/{process.pid}/status") as status:
        caught = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt:")]
    return bool(caught and caught[0] >> (signal.SIGINT - 1) & 1)


def interrupt(process):
    process.send_signal(signal.SIGINT)
