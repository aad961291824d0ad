"""scripts/gpu_check with programs that only pretend: what it runs, records and returns. script_test.py SCRIPT"""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = sys.argv.pop()

PROGRAM = """#!{python}
import json, sys
arguments = sys.argv[1:]
if "--json" in arguments:
    record = {record!r}
    json.dump(record, open(arguments[arguments.index("--json") + 1], "w"))
print("ran", arguments)
sys.exit({status})
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def program(self, name, status=0, record=None, at=None):
        file = (at or self.path) / name
        file.write_text(PROGRAM.format(python=sys.executable, record=record or {}, status=status))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def gpu_programs(self, status, check_status=None):
        device = {"device": {"name": "pretended"}} if status == 0 else {}
        self.program("gpu_check", status if check_status is None else check_status,
                     {"commit": "abc", "checks": [{"name": "x", "result": "ok"}], **device})
        self.program("gpu_bench", status, {"rows": [{"name": "y"}]})

    def run_script(self, *arguments, path=""):
        environment = {**os.environ, "PATH": path + os.pathsep + os.environ["PATH"]}
        result = self.path / "result.json"
        done = subprocess.run([sys.executable, "-B", SCRIPT, "--prebuilt", str(self.path), "--json", str(result),
                               *arguments], capture_output=True, text=True, env=environment)
        record = json.loads(result.read_text()) if result.is_file() else None
        return done, record

    def results(self, record):
        return {step["name"]: step["result"] for step in record["steps"]}

    def test_with_a_gpu(self):
        self.gpu_programs(0)
        tools = self.path / "tools"
        tools.mkdir()
        self.program("compute-sanitizer", at=tools)
        done, record = self.run_script(path=str(tools))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.results(record),
                         {"checks": "passed", "memcheck": "passed", "racecheck": "passed", "speed": "passed"})
        self.assertEqual(record["device"], {"name": "pretended"})
        self.assertEqual(record["commit"], "abc")
        self.assertEqual(record["checks"], [{"name": "x", "result": "ok"}])
        self.assertEqual(record["rows"], [{"name": "y"}])
        self.assertNotIn(str(self.path), json.dumps(record))

    def test_what_a_sanitizer_finds_is_a_failure(self):
        self.gpu_programs(0)
        tools = self.path / "tools"
        tools.mkdir()
        self.program("compute-sanitizer", status=9, at=tools)
        done, record = self.run_script(path=str(tools))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.results(record)["racecheck"], "failed")

    def test_a_failed_check_is_a_failure_and_the_rest_runs(self):
        self.gpu_programs(0, check_status=1)
        done, record = self.run_script("--quick")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.results(record),
                         {"checks": "failed", "memcheck": "not run", "racecheck": "not run", "speed": "passed"})

    def test_without_a_gpu(self):
        self.gpu_programs(77)
        self.program("simt")
        done, record = self.run_script()
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("there is no GPU here", done.stdout)
        self.assertEqual(self.results(record),
                         {"checks": "not run", "memcheck": "not run", "racecheck": "not run", "speed": "not run",
                          "emulated/gpu_check_emulated": "not run", "emulated/simt": "passed",
                          "emulated/simt_random": "not run"})
        self.assertIsNone(record["device"])

    def test_a_failed_emulation_is_a_failure(self):
        self.gpu_programs(77)
        self.program("simt", status=1)
        done, _ = self.run_script()
        self.assertEqual(done.returncode, 1)

    def test_an_empty_folder_is_refused(self):
        done, record = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected a folder made by --pack", done.stderr)
        self.assertIsNone(record)


unittest.main()
