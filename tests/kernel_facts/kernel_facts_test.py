# SPDX-License-Identifier: Apache-2.0
"""The checker of scripts/kernel_facts on small made-up texts: each rule is broken once and kept once."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SCRIPTS = sys.argv.pop(1)
sys.path.insert(0, SCRIPTS)

import kernel_rules  # noqa: E402
import ptx  # noqa: E402

COPY = "_ZN5stash7kernels10each_groupINS0_9copy_bodyIjEEEEvT_"
LOG = f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{COPY}' for 'sm_90'
ptxas info    : Function properties for {COPY}
    STACK bytes stack frame, STORES bytes spill stores, LOADS bytes spill loads
ptxas info    : Used 48 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 12.345 ms
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""

WIDE = """
	ld.global.L1::no_allocate.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
	st.global.cs.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};
"""
NARROW = """
	ld.global.u32 %r1, [%rd1];
	st.global.u32 [%rd2], %r1;
"""
COMPUTE = "\tadd.s32 %r1, %r1, 1;\n"


def kernel(body, name="kernel"):
    return f""".version 9.0
.target sm_90

.visible .entry {name}(
	.param .u64 {name}_param_0
)
.maxntid 256, 1, 1
{{
	.reg .b32 %r<5>; // declarations are no instructions
	ld.param.u64 %rd1, [{name}_param_0];
{body}
}}
"""


def blocks(body):
    return ptx.kernels(kernel(body))["kernel"]


class LogTest(unittest.TestCase):
    def resources(self, stack=0, stores=0, loads=0):
        text = LOG.replace("STACK", str(stack)).replace("STORES", str(stores)).replace("LOADS", str(loads))
        return ptx.resources(text)

    def check(self, limit, architecture=90, **numbers):
        return kernel_rules.check_resources("k", self.resources(**numbers)[COPY]["sm_90"], limit, architecture)

    def test_every_kernel_of_a_log_is_read(self):
        found = self.resources()
        self.assertEqual(found[COPY], {"sm_90": ptx.Resources(48, 0, 0, 1024)})
        self.assertEqual(found["other"], {"sm_90": ptx.Resources(255, 0, 0, 0)})

    def test_a_kernel_within_its_limits(self):
        self.assertEqual(self.check({"registers": 48, "shared": 1024}), [])

    def test_spills(self):
        self.assertEqual(self.check({"registers": 48, "shared": 1024}, stores=4, loads=8),
                         ["k: spills 12 bytes of registers"])

    def test_stack_frame(self):
        self.assertEqual(self.check({"registers": 48, "shared": 1024}, stack=16), ["k: has a stack frame of 16 bytes"])

    def test_registers(self):
        self.assertEqual(self.check({"registers": 47, "shared": 1024}), ["k: uses 48 registers, more than 47"])

    def test_registers_of_later_architectures(self):
        limit = {"registers": 40, "shared": 1024, "later": {"from": 100, "registers": 48}}
        self.assertEqual(self.check(limit, 90), ["k: uses 48 registers, more than 40"])
        self.assertEqual(self.check(limit, 100), [])
        limit["later"]["registers"] = 47
        self.assertEqual(self.check(limit, 120), ["k: uses 48 registers, more than 47"])

    def test_shared_memory(self):
        self.assertEqual(self.check({"registers": 48}), ["k: uses 1024 bytes of shared memory, more than 0"])

    def test_names(self):
        for demangled, plain in (
            ("void stash::kernels::each_group<stash::kernels::copy_body<unsigned int> >(stash::kernels::copy_body<unsigned int>)",
             "each_group<copy_body<u32>>"),
            ("void stash::kernels::each_group<"
             "stash::kernels::gradient_body<unsigned short, stash::kernels::cast_bits<8u, true> > >(int)",
             "each_group<gradient_body<u16,cast_bits<8,true>>>"),
            ("void stash::kernels::(anonymous namespace)::fill<(unsigned int)4, unsigned char>(unsigned char*)",
             "fill<(u32)4,u8>"),
        ):
            with self.subTest(demangled=demangled):
                self.assertEqual(ptx.plain_name(demangled), plain)


class AccessTest(unittest.TestCase):
    def test_kinds(self):
        for opcode, expected in (
            ("ld.global.v4.u32", ("wide_loads", 16)),
            ("ld.global.nc.v4.f32", ("wide_loads", 16)),
            ("ld.global.L1::no_allocate.L2::256B.v2.u64", ("wide_loads", 16)),
            ("st.global.cs.v4.b32", ("wide_stores", 16)),
            ("ld.global.v2.u32", ("narrow_loads", 8)),
            ("ld.global.u8", ("narrow_loads", 1)),
            ("st.global.u16", ("narrow_stores", 2)),
            ("ld.volatile.global.u32", ("narrow_loads", 4)),
            ("ld.shared.v4.u32", ("shared_loads", 16)),
            ("st.shared.u8", ("shared_stores", 1)),
            ("ld.shared::cta.u32", ("shared_loads", 4)),
            ("st.v4.u32", ("wide_stores", 16)),
            ("ld.u8", ("narrow_loads", 1)),
            ("ld.param.v4.u32", None),
            ("ld.local.u32", None),
            ("ld.const.v4.u32", None),
            ("atom.global.add.u64", None),
            ("add.s32", None),
        ):
            with self.subTest(opcode=opcode):
                self.assertEqual(ptx.access_of(opcode), expected)


class PathTest(unittest.TestCase):
    """The entry is for a thread that reads and writes four elements in one access each."""

    entry = {"name": "kernel", "elements": 4, "wide_loads": 1, "wide_stores": 1}

    def check(self, body, **entry):
        entry = self.entry | entry
        found = blocks(body)
        main = kernel_rules.main_of(found, entry)
        return main, kernel_rules.check_path("kernel", found, entry, main)

    def test_straight_line(self):
        main, faults = self.check(WIDE + "ret;")
        self.assertEqual(faults, [])
        self.assertEqual((main.instructions, main.bytes), (1, 8))

    def test_small_accesses(self):
        main, faults = self.check(4 * NARROW + "ret;")
        self.assertIsNone(main)
        self.assertEqual(faults, ["kernel: no way through it has exactly 1 wide loads, 1 wide stores, 0 narrow loads, "
                                  "0 narrow stores"])

    def test_one_small_store_next_to_the_wide_ones(self):
        self.assertIsNone(self.check(WIDE + NARROW + "ret;")[0])

    def test_small_accesses_only_at_the_border(self):
        main, faults = self.check(f"@%p1 bra $border;\n{WIDE}bra.uni $end;\n$border:\n{4 * NARROW}\n$end:\nret;")
        self.assertEqual(faults, [])
        self.assertEqual(main.instructions, 6 / 4)

    def test_the_cheapest_way_counts(self):
        body = f"@%p1 bra $slow;\n{WIDE}ret;\n$slow:\n{20 * COMPUTE}{WIDE}ret;"
        self.assertEqual(self.check(body)[0].instructions, 5 / 4)

    def test_work_that_a_lane_may_skip_counts(self):
        main, _ = self.check(f"{WIDE}@%p1 bra $on;\n{10 * COMPUTE}$on:\nret;")
        self.assertEqual(main.instructions, 15 / 4)

    def test_predicated_work_counts(self):
        # By nvcc's predicates and by those of inline assembly.
        main, _ = self.check(f"{WIDE}@!%p1 st.shared.u16 [%r1], %r2;\n@there add.u32 %r1, %r1, 2;\nret;", shared_stores=1)
        self.assertEqual(main.instructions, 6 / 4)

    def test_an_early_begin_does_not_count(self):
        begin = "\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n"
        self.assertEqual(self.check(begin + WIDE + "ret;")[0].instructions, self.check(WIDE + "ret;")[0].instructions)

    def test_what_only_ptx_moves_does_not_count(self):
        # A constant, and bits that become those of a float; but a copy, a special register, and halves of a register do.
        free = "\tmov.u32 %r3, -559038737;\n\tmov.b32 %f1, %r3;\n\tmov.b32 %r4, %f1;\n\tmov.f32 %f2, 0f3F800000;\n"
        main, _ = self.check(f"{WIDE}{free}ret;")
        self.assertEqual(main.instructions, 1)
        real = "\tmov.u32 %r3, %r2;\n\tmov.u32 %r4, %tid.x;\n\tmov.b32 {lower, upper}, %r3;\n"
        main, _ = self.check(f"{WIDE}{real}ret;")
        self.assertEqual(main.instructions, 7 / 4)

    def test_work_inside_of_skipped_work_counts(self):
        main, _ = self.check(f"{WIDE}@%p1 bra $on;\n{COMPUTE}@!%p2 bra $in;\n{COMPUTE}$in:\n{COMPUTE}$on:\nret;")
        self.assertEqual(main.instructions, 9 / 4)

    def test_of_two_sides_the_cheaper_one_counts(self):
        main, _ = self.check(
            f"{WIDE}@%p1 bra $two;\n{10 * COMPUTE}bra.uni $on;\n$two:\n{3 * COMPUTE}$on:\nret;")
        self.assertEqual(main.instructions, 8 / 4)
        self.assertEqual(main.at_most, 16 / 4)

    def test_a_long_side_is_no_work_on_an_element_but_one_of_two(self):
        main, _ = self.check(f"{WIDE}@%p1 bra $on;\n{200 * COMPUTE}$on:\nret;")
        self.assertEqual((main.instructions, main.at_most), (5 / 4, 5 / 4))
        main, _ = self.check(
            f"{WIDE}@%p1 bra $two;\n{200 * COMPUTE}bra.uni $on;\n$two:\n{3 * COMPUTE}$on:\nret;")
        self.assertEqual((main.instructions, main.at_most), (8 / 4, 206 / 4))

    def test_the_dearer_way_is_never_the_cheaper_one(self):
        # Two sides in a side that may be skipped: with the dearer of them it is too long to be work on an element.
        main, _ = self.check(f"{WIDE}@%p1 bra $on;\n{20 * COMPUTE}@%p2 bra $two;\n{120 * COMPUTE}bra.uni $in;\n"
                             f"$two:\n{5 * COMPUTE}$in:\n{COMPUTE}$on:\nret;")
        self.assertGreater(main.instructions, 30 / 4)
        self.assertEqual(main.at_most, main.instructions)

    def test_dearer_sides_with_other_accesses_are_no_way(self):
        main, faults = self.check(f"{WIDE}@%p1 bra $two;\nld.shared.u32 %r1, [%r5];\nbra.uni $on;\n$two:\n{5 * COMPUTE}"
                                  "$on:\nret;", shared_loads=1)
        self.assertEqual(faults, [])
        self.assertEqual(main.at_most, main.instructions)

    def test_wide_accesses_of_shared_memory_distinguish_loops(self):
        loops = "".join(f"${name}:\n{access}{work * COMPUTE}@%p1 bra ${name};\n" for name, access, work in (
            ("one", "st.shared.u32 [%r5], %r1;\n", 1), ("four", "st.shared.v4.u32 [%r5], {%r1, %r2, %r3, %r4};\n", 2)))
        body = f"{loops}{WIDE}ret;"
        self.assertEqual(self.check(body, shared_stores=5)[0].instructions, (4 * 3 + 4 + 4) / 4)
        self.assertEqual(self.check(body, shared_stores=5, shared_wide_stores=4)[0].instructions, (3 + 4 * 4 + 4) / 4)

    def test_what_only_some_warps_do_does_not_count(self):
        for rare in ("atom.global.add.u64 %rd3, [%rd4], 1;", "div.u64 %rd3, %rd4, %rd5;",
                     "shfl.sync.up.b32 %r1|%p2, %r2, 1, 0, -1;", (ptx.SIDE + 1) * COMPUTE):
            with self.subTest(rare=rare[:10]):
                main, _ = self.check(f"{WIDE}@%p1 bra $on;\n{rare}\n$on:\nret;")
                self.assertEqual(main.instructions, 5 / 4)

    def test_loops_run_as_often_as_the_accesses_say(self):
        body = f"$again:\nst.shared.u32 [%r5], %r1;\n{COMPUTE}@%p1 bra $again;\n{WIDE}ret;"
        main, faults = self.check(body, shared_stores=5)
        self.assertEqual(faults, [])
        self.assertEqual(main.instructions, (1 + 5 * 3 + 3) / 4)
        self.assertIn("7 shared loads", self.check(body, shared_loads=7)[1][0])

    def test_budget(self):
        # 8 bytes for each element.
        budget = 4 * 8 * kernel_rules.INSTRUCTIONS_PER_BYTE
        within, above = int(budget) - 4, int(budget) - 3
        self.assertEqual(self.check(WIDE + within * COMPUTE + "ret;")[1], [])
        faults = self.check(WIDE + above * COMPUTE + "ret;")[1]
        self.assertEqual(len(faults), 1)
        self.assertIn("more than the budget of 55.2", faults[0])
        self.assertEqual(self.check(WIDE + above * COMPUTE + "ret;", instructions=56)[1], [])
        self.assertIn("more than the known 56", self.check(WIDE + 230 * COMPUTE + "ret;", instructions=56)[1][0])

    def test_older_architectures_may_take_another_path(self):
        entry = self.entry | {"instructions": 2, "older": {"before": 89, "shared_loads": 1, "instructions": 20}}
        older = WIDE + "ld.shared.u32 %r1, [%r5];\n" + 40 * COMPUTE + "ret;"
        for architecture, body, faults in ((80, older, 0), (80, WIDE + "ret;", 1), (90, WIDE + "ret;", 0), (89, older, 1)):
            with self.subTest(architecture=architecture, body=body[-40:]):
                on = kernel_rules.path_on(entry, architecture)
                found = blocks(body)
                self.assertEqual(len(kernel_rules.check_path("kernel", found, on, kernel_rules.main_of(found, on))), faults)
        self.assertIsNone(kernel_rules.path_on(None, 80))

    def test_architectures_besides_those_of_the_table_may_need_a_little_more(self):
        body = WIDE + 36 * COMPUTE + "ret;"
        main, faults = self.check(body, instructions=9)
        self.assertEqual(len(faults), 1)
        entry = self.entry | {"instructions": 9}
        self.assertEqual(kernel_rules.check_path("kernel", blocks(body), entry, main, 1 / 8), [])
        self.assertEqual(len(kernel_rules.check_path("kernel", blocks(body), entry, main, 1 / 16)), 1)

    def test_kernels_without_an_entry_need_a_wide_access(self):
        self.assertEqual(kernel_rules.check_path("new", blocks(WIDE + "ret;"), None, None), [])
        self.assertEqual(kernel_rules.check_path("new", blocks(NARROW + "ret;"), None, None),
                         ["new: has no entry under 'paths' and no 16-byte access of global memory"])

    def test_kernels_wait_before_they_touch_memory(self):
        wait = "\tgriddepcontrol.wait;\n"
        early = "\tld.relaxed.gpu.global.u32 %r1, [%rd1];\n\tcp.async.bulk.prefetch.L2.global [%rd1], %r1;\n"
        good = "\tld.param.u64 %rd1, [a];\n" + early + wait + WIDE + "\tret;\n"
        bad = {"late": WIDE + wait, "atomic": "\t@%p1 atom.global.add.u32 %r1, [%rd1], 1;\n" + wait, "never": WIDE,
               "now_and_then": "\t@%p1 griddepcontrol.wait;\n" + WIDE, "ends": "\t@%p1 ret;\n" + wait,
               "texture": "\ttex.1d.v4.f32.f32 {a}, [t, {b}];\n" + wait, "inline": "\t{ ld.global.u32 %r1, [%rd1]; }\n" + wait,
               "movable": wait + "\tld.global.nc.u32 %r1, [%rd1];\n"}
        found = ptx.waiting(kernel(good, "good") + "".join(kernel(body, name) for name, body in bad.items()))
        self.assertEqual(found, {"good"})
        self.assertEqual(kernel_rules.check_start("good", 90, True), [])
        self.assertEqual(kernel_rules.check_start("old", 80, False), [])
        self.assertEqual(kernel_rules.check_start("never", 90, False),
                         ["never: touches memory before begin_kernel(), or does without it"])

    def test_each_kernel_of_a_file_has_its_own_blocks(self):
        found = ptx.kernels(kernel(WIDE + "ret;", "one") + kernel(NARROW + "ret;", "two"))
        self.assertEqual(list(found), ["one", "two"])
        self.assertEqual(found["one"][0].accesses, {"wide_loads": 1, "wide_stores": 1})
        self.assertEqual(found["two"][0].accesses, {"narrow_loads": 1, "narrow_stores": 1})

    def test_calls_are_refused(self):
        with self.assertRaises(SystemExit):
            blocks("call.uni (retval0), helper, (param0);\nret;")


class TableTest(unittest.TestCase):
    def table(self, limits=(), paths=()):
        return {"limits": [*limits, {"name": ".*", "registers": 80}], "paths": list(paths)}

    def test_the_first_entry_that_is_the_whole_name(self):
        entries = self.table([{"name": "a", "registers": 1}, {"name": "a.*", "registers": 2}])["limits"]
        self.assertEqual([kernel_rules.entry_of(entries, name)["registers"] for name in ("a", "ab", "ba")], [1, 2, 80])
        self.assertIsNone(kernel_rules.entry_of(entries[:1], "aa"))

    def test_a_good_table(self):
        self.assertEqual(kernel_rules.check_table(self.table(paths=[{"name": "a", "elements": 4}])), [])

    def test_mistyped_and_missing_keys(self):
        faults = kernel_rules.check_table(self.table([{"name": "a", "register": 1}], [{"name": "b", "wide_load": 1}]))
        self.assertEqual(faults, ["limits: 'a': unknown key 'register'", "limits: 'a': no 'registers'",
                                  "paths: 'b': unknown key 'wide_load'", "paths: 'b': no 'elements'"])

    def test_what_differs_on_older_architectures(self):
        entry = {"name": "a", "elements": 4}
        for older, good in (({"before": 89, "instructions": 3}, True), ({"before": 89, "shared_loads": 3}, True),
                            ({"before": 89}, False), ({"instructions": 3}, False), ({"before": 89, "elements": 3}, False)):
            with self.subTest(older=older):
                faults = kernel_rules.check_table(self.table(paths=[entry | {"older": older}]))
                self.assertEqual(faults, [] if good else ["paths: 'a': 'older' is not 'before' and what differs"])

    def test_a_table_without_a_default(self):
        table = {"limits": [{"name": "a", "registers": 1}], "paths": []}
        self.assertEqual(kernel_rules.check_table(table), ["limits: the last entry does not take every kernel"])

    def test_entries_of_no_kernel(self):
        table = self.table([{"name": "gone", "registers": 1}], [{"name": "a", "elements": 4}, {"name": "a.*", "elements": 4}])
        self.assertEqual(kernel_rules.unused(table, {"a"}), ["limits: 'gone' is the entry of no kernel",
                                                             "paths: 'a.*' is the entry of no kernel"])


class CommandTest(unittest.TestCase):
    """scripts/kernel_facts with a compiler that is not there, or prints what it is told to."""

    def run_facts(self, *arguments, **environment):
        return subprocess.run([sys.executable, "-B", os.path.join(SCRIPTS, "kernel_facts"), *arguments],
                              capture_output=True, text=True, check=False, env={**os.environ, **environment})

    def test_the_compiler_that_cmake_would_take_comes_first(self):
        with tempfile.TemporaryDirectory() as folder:
            named, on_path = (os.path.join(folder, name) for name in ("other_nvcc", "nvcc"))
            for path in (named, on_path):
                with open(path, "w", encoding="ascii"):
                    os.chmod(path, 0o755)
            path = folder + os.pathsep + os.environ["PATH"]
            found = [self.run_facts("--find-nvcc", PATH=path, CUDACXX=name).stdout for name in (named, "")]
        self.assertEqual(found, [named + "\n", on_path + "\n"])

    def test_a_named_compiler_that_is_not_there_is_an_error(self):
        # A test run that skipped its kernels then would look like one on a machine without nvcc.
        result = self.run_facts("--find-nvcc", CUDACXX="/nowhere/nvcc")
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (1, "", "kernel_facts: CUDACXX names '/nowhere/nvcc', which is no program\n"))

    def test_skips_visibly_without_nvcc(self):
        result = self.run_facts("--nvcc", "nvcc_that_is_not_there")
        self.assertEqual((result.returncode, result.stdout),
                         (77, "kernel_facts: skipped: there is no nvcc 'nvcc_that_is_not_there'\n"))

    def test_a_unit_that_does_not_compile_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            nvcc = os.path.join(folder, "nvcc")
            with open(nvcc, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\necho 'error: no such type' >&2\nexit 1\n")
            os.chmod(nvcc, 0o755)
            result = self.run_facts("--nvcc", nvcc, "--jobs", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("does not compile for sm_90:\nerror: no such type", result.stderr)


class KnownTest(unittest.TestCase):
    """Units are compiled once for the same sources."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.nvcc = os.path.join(self.folder, "nvcc")
        with open(self.nvcc, "w", encoding="ascii") as file:
            file.write(f"""#!/bin/sh
echo run >> {self.folder}/runs
while [ "$1" != --keep-dir ]; do shift; done
echo "ptx $(wc -l < {self.folder}/runs)" > "$2/cast.ptx"
echo log >&2
test ! -e {self.folder}/broken
""")
        os.chmod(self.nvcc, 0o755)
        cache = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=self.folder)
        cache.start()
        self.addCleanup(cache.stop)
        loader = importlib.machinery.SourceFileLoader("kernel_facts", os.path.join(SCRIPTS, "kernel_facts"))
        self.facts = importlib.util.module_from_spec(importlib.util.spec_from_loader("kernel_facts", loader))
        loader.exec_module(self.facts)

    def compiled(self, sources, architecture=90):
        return tuple(self.facts.compiled(self.nvcc, ["-w"], "cast.cu", architecture, True, sources))

    def test_the_same_sources_are_compiled_once(self):
        self.assertEqual(self.compiled("a"), ("log\n", "ptx 1\n"))
        self.assertEqual(self.compiled("a"), ("log\n", "ptx 1\n"))
        self.assertEqual(self.compiled("b"), ("log\n", "ptx 2\n"))
        self.assertEqual(self.compiled("a", 80), ("log\n", "ptx 3\n"))
        self.assertEqual(self.compiled(None), ("log\n", "ptx 4\n"))
        self.assertEqual(self.compiled("a"), ("log\n", "ptx 1\n"))

    def test_what_fails_is_not_remembered(self):
        with open(os.path.join(self.folder, "broken"), "w", encoding="ascii"):
            pass
        with self.assertRaises(SystemExit):
            self.compiled("a")
        os.remove(os.path.join(self.folder, "broken"))
        self.assertEqual(self.compiled("a"), ("log\n", "ptx 2\n"))

    def test_sources_are_what_units_may_include(self):
        key = self.facts.sources_key(self.nvcc)
        self.assertEqual(key, self.facts.sources_key(self.nvcc))
        self.facts.ROOT = self.facts.Path(self.folder)
        self.assertNotEqual(key, self.facts.sources_key(self.nvcc))


if __name__ == "__main__":
    unittest.main()
