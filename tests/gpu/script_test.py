# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check with programs that only pretend: what it runs, records and returns. script_test.py SCRIPT"""

import importlib.machinery
import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SCRIPT = sys.argv.pop()

PROGRAM = """#!{python}
import json, os, sys
arguments, parent = sys.argv[1:], os.getppid()
if "--json" in arguments:
    record = {record!r}
    with open(arguments[arguments.index("--json") + 1], "w") as file:
        json.dump(record, file)
print("ran", arguments)
while {hangs} and os.getppid() == parent:
    pass
sys.exit({status})
"""


def load_script():
    """As a module, for what would take minutes through its command line."""
    sys.path.insert(0, str(Path(SCRIPT).parent))
    loader = importlib.machinery.SourceFileLoader("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def program(self, name, status=0, record=None, at=None, hangs=False):
        file = (at or self.path) / name
        file.write_text(PROGRAM.format(python=sys.executable, record=record or {}, status=status, hangs=hangs))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def gpu_programs(self, status, check_status=None, check_state=None, rows=None, device="pretended", properties=None):
        check_state = check_state or {"complete": True}
        rows = rows or [{"name": "y"}]
        device = {"device": {"name": device}} if status == 0 else {}
        self.program("gpu_check", status if check_status is None else check_status,
                     {"commit": "abc", "checks": [{"name": "x", "result": "ok"}], **device, **check_state})
        self.program("gpu_bench", status, {"complete": True, **(properties or {}), "rows": rows})
        self.program("custom_layer_cuda", status)

    def run_script(self, *arguments, path=""):
        environment = {**os.environ, "PATH": path + os.pathsep + os.environ["PATH"]}
        result = self.path / "result.json"
        done = subprocess.run([sys.executable, "-B", SCRIPT, "--prebuilt", str(self.path), "--json", str(result),
                               *arguments], capture_output=True, text=True, env=environment)
        record = json.loads(result.read_text()) if result.is_file() else None
        return done, record

    def results(self, record):
        return {step["name"]: step["result"] for step in record["steps"]}

    def test_pytorch_is_packed(self):
        script = load_script()
        package = self.path / "build" / "integrations" / "pytorch" / "stash_torch"
        package.mkdir(parents=True)
        (package / "libstash.so").write_bytes(b"0" * 1000)
        (package / "__init__.py").write_text("")
        to = self.path / "packed"
        size = script.gpu_pytorch.pack(self.path / "build", to)
        self.assertLess(1000, size)
        for path in script.gpu_pytorch.CARRIED:
            self.assertTrue((to / path).is_file(), path)
        self.assertTrue(os.access(to / "gpu_pytorch", os.X_OK))
        script.gpu_pytorch.MOST_BYTES = size - 1
        with self.assertRaisesRegex(SystemExit, "expected at most"):
            script.gpu_pytorch.pack(self.path / "build", to)
        with self.assertRaisesRegex(SystemExit, "expected a build of the target stash_torch"):
            script.gpu_pytorch.pack(self.path / "nothing", to)

    def test_pytorch_takes_no_prebuilt_programs(self):
        done, _ = self.run_script("--pytorch")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--pytorch: expected no --prebuilt", done.stderr)

    def test_with_a_gpu(self):
        self.gpu_programs(0)
        tools = self.path / "tools"
        tools.mkdir()
        self.program("compute-sanitizer", at=tools)
        done, record = self.run_script(path=str(tools))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.results(record),
                         {"checks": "passed", "custom_layer": "passed", "speed": "passed", "memcheck": "passed",
                          "racecheck": "passed"})
        for step in record["steps"]:  # errors that checks provoke on purpose are no findings
            self.assertEqual("--report-api-errors no" in step["command"], step["name"] in ("memcheck", "racecheck"), step)
        self.assertTrue(record["complete"])
        self.assertEqual([path.name for path in self.path.glob("result.json*")], ["result.json"])
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

    def test_a_sanitizer_that_does_not_know_the_gpu_is_not_a_failure(self):
        self.gpu_programs(0)
        tools = self.path / "tools"
        tools.mkdir()
        tool = tools / "compute-sanitizer"
        tool.write_text("#!/bin/sh\necho '========= Device not supported'\nexit 9\n")
        tool.chmod(0o755)
        done, record = self.run_script(path=str(tools))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([(step["result"], step["why"]) for step in record["steps"][-2:]],
                         [("not run", "Device not supported")] * 2)

    def test_what_a_stopped_program_started_is_stopped_too(self):
        child = self.path / "child"
        program = self.path / "gpu_check"
        program.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {child}\nwait\n")
        program.chmod(0o755)
        load_script().Run({}).step("checks", [program], 1)
        number = child.read_text().strip()
        for _ in range(1000):
            try:
                state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return
            if state == "Z":
                return
            time.sleep(0.01)
        self.fail(f"process {number} goes on: {state}")

    def test_a_packed_folder_is_all_that_is_needed(self):
        self.gpu_programs(0)
        script = load_script()
        packed = self.path / "packed"
        script.pack({name: self.path / name for name in script.GPU_PROGRAMS}, packed)
        done = subprocess.run([sys.executable, "-B", packed / "gpu_check.py", "--quick"],
                              capture_output=True, text=True, cwd="/")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(json.loads((packed / "gpu_check.json").read_text())["rows"], [{"name": "y"}])

    def test_programs_for_the_emulator_are_packed_on_demand(self):
        script = load_script()
        for name in script.PROGRAMS:
            self.program(name)
        programs = {name: self.path / name for name in script.PROGRAMS}
        for emulated, names in ((False, script.GPU_PROGRAMS), (True, script.PROGRAMS)):
            packed = self.path / f"packed_{emulated}"
            script.pack(programs, packed, emulated)
            self.assertEqual({path.name for path in packed.iterdir()} & script.PROGRAMS.keys(), set(names))

    def test_what_was_found_is_there_when_the_script_is_killed(self):
        self.gpu_programs(0)
        self.program("gpu_bench", record={"complete": False, "running": "r", "rows": [{"name": "y"}]}, hangs=True)
        result = self.path / "result.json"
        part = self.path / "result.json.parts" / "bench.json"
        running = subprocess.Popen([sys.executable, "-B", SCRIPT, "--prebuilt", self.path, "--json", result, "--quick"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(6000):
            if part.is_file() and part.read_text().endswith("}"):
                break
            time.sleep(0.01)
        running.kill()
        running.wait()
        record = json.loads(result.read_text())
        self.assertFalse(record["complete"])
        self.assertEqual(self.results(record), {"checks": "passed", "custom_layer": "passed"})
        self.assertEqual(record["checks"], [{"name": "x", "result": "ok"}])
        self.assertEqual(json.loads(part.read_text())["rows"], [{"name": "y"}])

    def test_targets(self):
        rows = [{"name": f"encode/sign_mask/{kind}/iid_0.5/256MiB", "dense_bytes": 1 << 28, "seconds": {"median": 1e-4},
                 "copy_share": share} for kind, share in (("f32", 0.98), ("f16", 0.96), ("bf16", 0.96))]
        rows += [{"name": f"{way}/fp10/{kind}/iid_0.5/256MiB", "dense_bytes": 1 << 28, "seconds": {"median": 1e-4},
                  "copy_share": 0.8} for kind in ("f32", "f16", "bf16") for way in ("encode", "decode")]
        self.gpu_programs(0, rows=rows, device="NVIDIA H200")
        done, record = self.run_script("--quick")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)  # slow is not wrong
        targets = {target["name"]: target for target in record["targets"]}
        self.assertEqual(targets["sign mask, encode"]["result"], "met")
        self.assertEqual((targets["sign mask, encode"]["least"], targets["sign mask, encode"]["most"]), (0.96, 0.98))
        self.assertEqual(targets["fp10, encode and decode"]["result"], "missed")
        self.assertEqual(targets["bitmap, decode"]["result"], "not run")
        self.assertIn("decode/bitmap/f32/iid_0.2/256MiB: there is no such row", targets["bitmap, decode"]["why"])
        self.assertRegex(done.stdout, r"sign mask, encode +>= 95.0 % +96.0 % +98.0 %  met\n")

    def test_properties_of_the_device_are_kept(self):
        found = {"cudnn_device_properties": {"deviceVer": 900}}
        missing = {"cudnn_device_properties": None, "why_no_cudnn_device_properties": "library not found"}
        lost = {"cudnn_device_properties": None, "why_no_cudnn_device_properties": "gpu_bench has no record"}
        for properties, kept in ((found, found), (missing, missing), ({}, lost)):
            self.gpu_programs(0, properties=properties)
            _, record = self.run_script("--quick")
            self.assertEqual({name: value for name, value in record.items() if "cudnn" in name}, kept)

    def test_a_failed_check_is_a_failure_and_the_rest_runs(self):
        self.gpu_programs(0, check_status=1)
        done, record = self.run_script("--quick")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.results(record),
                         {"checks": "failed", "custom_layer": "passed", "speed": "passed", "memcheck": "not run",
                          "racecheck": "not run"})

    def test_a_failed_example_is_a_failure(self):
        self.gpu_programs(0)
        self.program("custom_layer_cuda", status=1)
        done, record = self.run_script("--quick")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.results(record)["custom_layer"], "failed")

    def test_what_was_found_before_a_crash_is_kept(self):
        for status in (-11, 0):  # 0: whatever the status, an incomplete record has not passed
            self.gpu_programs(0, check_status=status, check_state={"complete": False, "running": "z"})
            done, record = self.run_script("--quick")
            self.assertEqual(done.returncode, 1)
            step = record["steps"][0]
            self.assertEqual((step["name"], step["result"]), ("checks", "interrupted"))
            self.assertTrue(step["why"].endswith(", in z"), step["why"])
            self.assertEqual(record["device"], {"name": "pretended"})
            self.assertEqual(record["checks"],
                             [{"name": "x", "result": "ok"}, {"name": "z", "result": "interrupted"}])
            self.assertEqual(record["rows"], [{"name": "y"}])

    def test_what_was_found_before_a_hang_is_kept(self):
        self.program("gpu_check", record={"complete": False, "running": "z", "checks": [1]}, hangs=True)
        script = load_script()
        run = script.Run({})
        record = self.path / "checks.json"
        status = run.step("checks", [self.path / "gpu_check", "--json", record], 3, record=record)
        self.assertIsNone(status)
        self.assertEqual((run.steps[0]["result"], run.steps[0]["why"]), ("interrupted", "not finished after 3 s, in z"))
        self.assertEqual(script.results_of(run.records["checks"], "checks"), [1, {"name": "z", "result": "interrupted"}])

    def test_fewer_seconds(self):
        self.gpu_programs(0)
        done, record = self.run_script("--quick", "--seconds", "180")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(record["command"], "scripts/gpu_check --quick --seconds 180")
        self.assertLessEqual(load_script().Run({}, seconds=180).left(), 180)
        done, record = self.run_script("--seconds", "179")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--seconds: expected at least 180, got 179", done.stderr)

    def test_a_hang_without_a_record_is_a_failure(self):
        self.program("gpu_check", hangs=True)
        run = load_script().Run({})
        run.step("checks", [self.path / "gpu_check"], 1, record=self.path / "none.json")
        self.assertEqual((run.steps[0]["result"], run.steps[0]["why"]), ("failed", "not finished after 1 s"))

    def test_without_a_gpu(self):
        self.gpu_programs(77)
        script = load_script()
        emulated = set(script.EMULATED_PROGRAMS) - {"simt_random"}
        for name in emulated:
            self.program(name)
        done, record = self.run_script()
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("there is no GPU here", done.stdout)
        self.assertIn("ran ['--lines', 'smoke']", done.stdout)
        self.assertEqual(self.results(record),
                         {**dict.fromkeys(script.GPU_STEPS, "not run"), "emulated/simt_random": "not run",
                          **{f"emulated/{name}": "passed" for name in emulated}})
        self.assertIsNone(record["device"])
        self.assertEqual({(target["result"], target["why"]) for target in record["targets"]}, {("not run", "no device")})
        self.assertIn("sign mask, encode", done.stdout)

    def test_a_gpu_that_cannot_be_used_is_not_a_missing_one(self):
        why = "built for sm_90, the device has compute capability 8.0"
        self.gpu_programs(77)
        self.program("gpu_check", 77, {"complete": True, "checks": [{"name": "x", "result": "not run", "why": why}]})
        done, record = self.run_script()
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertEqual(record["steps"][0]["why"], why)

    def test_a_failed_emulation_is_a_failure(self):
        self.gpu_programs(77)
        self.program("simt", status=1)
        done, _ = self.run_script()
        self.assertEqual(done.returncode, 1)

    def pretended_cmake(self, status=0):
        """Logs how it was called, and "builds" programs that do nothing. Returns its folder."""
        tools = self.path / "tools"
        tools.mkdir()
        programs = {name: str(self.path / "build" / part / name) for name, part in load_script().PROGRAMS.items()}
        tool = tools / "cmake"
        tool.write_text(f"""#!{sys.executable}
import pathlib, sys
with open({str(self.path / "calls")!r}, "a") as log:
    print(*sys.argv[1:], file=log)
if "--target" in sys.argv:
    for name in sys.argv[sys.argv.index("--target") + 1:]:
        path = pathlib.Path({programs!r}[name])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\\n")
        path.chmod(0o755)
sys.exit({status})
""")
        tool.chmod(0o755)
        return tools

    def run_without_nvcc(self, tools, *arguments):
        environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "CUDACXX": "/nonexistent/nvcc"}
        return subprocess.run([sys.executable, "-B", SCRIPT, "--build", self.path / "build", *arguments],
                              capture_output=True, text=True, env=environment)

    def test_without_nvcc_the_emulator_runs(self):
        script = load_script()
        done = self.run_without_nvcc(self.pretended_cmake())
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("there is no nvcc here", done.stdout)
        record = json.loads((self.path / "build" / "gpu_check.json").read_text())
        self.assertEqual([(step["name"], step["result"], step["why"]) for step in record["steps"][:5]],
                         [(name, "not run", "no nvcc") for name in script.GPU_STEPS])
        self.assertEqual({step["name"]: step["result"] for step in record["steps"][5:]},
                         {f"emulated/{name}": "passed" for name in script.EMULATED_PROGRAMS})
        self.assertEqual({target["why"] for target in record["targets"]}, {"no nvcc"})
        configured, built = (self.path / "calls").read_text().splitlines()
        self.assertIn("--preset ci", configured)
        self.assertFalse(script.GPU_PROGRAMS.keys() & set(built.split()), built)

    def test_without_nvcc_nothing_is_packed(self):
        done = self.run_without_nvcc(self.pretended_cmake(), "--pack", self.path / "packed")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "gpu_check: --pack: expected an nvcc that works, got none\n")

    def test_a_build_that_fails_is_said_in_a_line(self):
        done = self.run_without_nvcc(self.pretended_cmake(status=1))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Agpu_check: failed: cmake --preset ci .*\n\Z")

    def test_an_empty_folder_is_refused(self):
        done, record = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected a folder made by --pack", done.stderr)
        self.assertIsNone(record)


unittest.main()
