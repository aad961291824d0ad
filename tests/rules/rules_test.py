# SPDX-License-Identifier: Apache-2.0
"""The rules' own test: each planted violation is found, and what looks like one but is not passes."""

import os
import subprocess
import tempfile
import unittest

import rules
import words


def words_of(line):
    return [found for word in words.WORDS if not word.under[0] for found in word.found(line)]


class RulesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.paths = []
        self.add_licensed("include/stash/tensor.hpp", "#pragma once\n#include <cstdint>\n")
        self.add_licensed("src/encoders/bitmap.hpp", '#pragma once\n#include "stash/tensor.hpp"\n')
        self.add_licensed("src/planner/graph/network.hpp", "#pragma once\n")
        self.add_licensed("src/planner/graph/graph.hpp", '#pragma once\n#include "planner/graph/network.hpp"\n')
        self.add_licensed("src/planner/plan.hpp", "#pragma once\n")
        self.add_licensed("src/planner/layout/layout.hpp", "#pragma once\n")
        self.add_licensed("src/models/zoo.hpp", '#pragma once\n#include "planner/graph/graph.hpp"\n')
        self.add_licensed("src/runtime/memory/arena.hpp", '#pragma once\n#include "encoders/bitmap.hpp"\n')
        self.add_licensed("src/data/images.hpp", '#pragma once\n#include "runtime/memory/arena.hpp"\n')
        self.add_licensed("src/executor/runner.hpp", '#pragma once\n#include <dnnl.hpp>\n#include "planner/plan.hpp"\n')
        self.add_licensed("bench/cases/table.hpp", '#pragma once\n#include "encoders/bitmap.hpp"\n')
        self.add_licensed("tools/commands/main.cpp",
                          '#include <fmt/format.h>\n#include "models/zoo.hpp"\n#include "bench/cases/table.hpp"\n')
        self.add_licensed("tools/files/source.hpp", "#pragma once\n")
        self.add_licensed("tools/CMakeLists.txt", "add_executable(stash commands/main.cpp)\n")

    def add_licensed(self, path, content):
        comment = "//" if path.endswith(("pp", ".cu")) else "#"
        self.add(path, f"{comment} {rules.LICENCE}\n{content}")

    def add(self, path, content):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        self.paths.append(path)

    def run_rule(self, rule):
        return rule(rules.Tree(self.root, self.paths))

    def assert_found(self, rule, *beginnings):
        violations = self.run_rule(rule)
        self.assertEqual(len(violations), len(beginnings), violations)
        for violation, beginning in zip(violations, beginnings):
            self.assertTrue(violation.startswith(beginning), violation)

    def test_good_tree_passes_every_rule(self):
        for group in rules.RULES.values():
            for rule in group:
                self.assertEqual(self.run_rule(rule), [])

    def test_words_that_nobody_else_uses(self):
        for line in ("the C door", "c_door_test", "# no room for it", "has_room", "16-byte pieces", "lies behind x",
                     "beside_slot", "level one", "level_one_test", "given_back()", "tick_view", "plan_sweep", "readings",
                     "scratch_bytes", "the winner", "two apart", "channels last"):
            self.assertEqual(len(words_of(line)), 1, line)
        for line in ("outdoors", "mushroom headroom", "a masterpiece", "besides", "channels_last", "from scratch",
                     "a reading", "one part", "given it back"):
            self.assertEqual(words_of(line), [], line)
        self.add("docs/a.md", "one\nA band is behind.\n")
        self.assert_found(rules.unusual_words, "docs/a.md:2: 'behind': say after")
        self.paths.remove("docs/a.md")
        self.add_licensed("kernels/a.cuh", "int band_of;\n")
        self.assert_found(rules.unusual_words, "kernels/a.cuh:2: 'band': say tile")

    def test_public_functions_that_the_test_of_no_memory_leaves_out(self):
        self.add_licensed("include/stash/calls.hpp", """#pragma once
STASH_API bool is_quiet(int i) noexcept;
STASH_API std::size_t called(const shape& dims,
                             const options& o = {});
/// encode(): not a declaration.
STASH_API std::string left_out(int i);
class STASH_API handle final : public base {
 public:
  handle() noexcept = default;
  explicit handle(int i);
  handle(const handle&) = delete;
  ~handle();
  bool empty() const noexcept { return held_ == nullptr; }
  static handle reserve(int i = 0,
                        int j = 0);
  void* take();

 private:
  void hidden();
};
class STASH_API error : public std::runtime_error {
 public:
  error(errc code, const std::string& message);
};
""")
        self.add_licensed(rules.PUBLIC_CALLS_TEST, 'list = {{"called", [] { called({}); }}, {"handle::take", [] {}}};')
        self.assert_found(rules.public_calls, "include/stash/calls.hpp:1: handle is not called",
                          "include/stash/calls.hpp:1: handle::reserve is not called",
                          "include/stash/calls.hpp:1: left_out is not called")

    def test_value_formats_without_text_or_number(self):
        self.add(rules.FORMATS_TABLE, """  fp16 = 1,
  fp12 = 11,
    value_format_info{value_format::fp16, "fp16", "fp16", 16},
    value_format_info{value_format::fp12, "fp12", "fp12", 12},
""")
        self.add("docs/format.md", "## Narrow values\n\n| | fp16 (IEEE) |\n\n## cast\n\nfp12\n")
        self.add("include/stash/c_api.h", "STASH_VALUES_FP16 = 1,\nSTASH_VALUES_FP12 = 12\n")
        self.assert_found(rules.value_formats, "include/stash/value_format.hpp:1: fp12 has no column",
                          "include/stash/value_format.hpp:1: STASH_VALUES_FP12 is not in")

    def add_package(self, **modules):
        for name, content in modules.items():
            self.add_licensed(f"integrations/torch/python/made/{name}.py", content)

    def test_python_modules_in_layers_pass(self):
        self.add_package(__init__="from .top import run\n", top="import os\nfrom . import low\nfrom made import low\n",
                         low="def f():\n    import os\n")
        self.assert_found(rules.python_imports)

    def test_python_modules_in_a_circle(self):
        self.add_package(__init__="from .top import run\n", top="import made.low\n", low="from .top import f\n")
        self.assert_found(rules.python_imports,
                          "integrations/torch/python/made/__init__.py:1: modules import each other in a circle: ")

    def test_python_import_in_a_function(self):
        self.add_package(__init__="from .top import run\n", top="def f():\n    from . import low\n", low="")
        self.assert_found(rules.python_imports, "integrations/torch/python/made/top.py:3: imports a module")

    def test_python_imports_that_are_not_recognised(self):
        self.add_package(__init__="", top="", low="")
        self.assert_found(rules.python_imports, "integrations/torch/python/made/__init__.py:1: fewer imports than half")

    def test_includes_against_the_order_of_folders(self):
        for path, name in (
            ("include/stash/bad.hpp", "encoders/bitmap.hpp"),
            ("src/encoders/bad.cpp", "runtime/memory/arena.hpp"),
            ("src/encoders/bad.cpp", "planner/plan.hpp"),
            ("src/planner/bad.cpp", "encoders/bitmap.hpp"),
            ("src/planner/bad.cpp", "models/zoo.hpp"),
            ("src/models/bad.cpp", "planner/plan.hpp"),
            ("src/runtime/bad.cpp", "planner/graph/graph.hpp"),
            ("src/data/bad.cpp", "encoders/bitmap.hpp"),
            ("src/executor/bad.cpp", "models/zoo.hpp"),
            ("src/executor/bad.cpp", "data/images.hpp"),
            ("src/executor/bad.cpp", "bench/cases/table.hpp"),
            ("bench/bad.cpp", "files/source.hpp"),
            ("src/planner/graph/bad.cpp", "planner/layout/layout.hpp"),
            ("kernels/bad.cu", "encoders/bitmap.hpp"),
        ):
            with self.subTest(path=path, name=name):
                self.add(path, f'// first\n#include "{name}"\n')
                self.assert_found(rules.includes, f"{path}:2: ")
                self.paths.remove(path)

    def test_only_kernels_see_kernels(self):
        self.add("kernels/common/bitmap.cuh", "#pragma once\n")
        self.add("kernels/tiles/good.cu", '#include "common/bitmap.cuh"\n')
        self.add("src/runtime/bad.cpp", '#include "kernels/common/bitmap.cuh"\n')
        self.add("tools/commands/bad.cpp", '#include "kernels/common/bitmap.cuh"\n')
        self.assert_found(rules.includes, "src/runtime/bad.cpp:1: ", "tools/commands/bad.cpp:1: ")

    def test_a_folder_with_too_many_sources(self):
        for number in range(rules.MOST_SOURCES):
            self.add(f"src/models/network_{number}.cpp", "")
        self.assert_found(rules.few_sources, "src/models:1: 31 sources, expected at most 30")

    def test_links_that_lead_nowhere(self):
        self.add("docs/page.md", "[a](../src/planner/plan.hpp) [b](gone.md#part) [c](https://example.org/x) [d](#here) "
                                 "[e](../src)\n")
        self.assert_found(rules.links, "docs/page.md:1: there is no docs/gone.md")

    def test_a_table_that_is_another_one(self):
        self.add("ARCHITECTURE.md", f"<!-- folders -->\n{rules.folder_table()}<!-- /folders -->\n")
        self.assertFalse([found for found in self.run_rule(rules.documented_folders) if "table" in found])
        self.paths.remove("ARCHITECTURE.md")
        self.add("ARCHITECTURE.md", "<!-- folders -->\n| a |\n<!-- /folders -->\n")
        self.assertTrue(self.run_rule(rules.documented_folders)[0].startswith("ARCHITECTURE.md:1: its table"))

    def test_other_ways_to_write_a_forbidden_include(self):
        self.add("src/planner/a.cpp", "#include <encoders/bitmap.hpp>\n")
        self.add("src/planner/b.cpp", '#include "../encoders/bitmap.hpp"\n')
        self.add("src/planner/c.cpp", '  #  include "src/encoders/bitmap.hpp"\n')
        self.assert_found(rules.includes, "src/planner/a.cpp:1", "src/planner/b.cpp:1", "src/planner/c.cpp:1")

    def test_a_comment_is_not_an_include(self):
        self.add("src/planner/good.cpp", '// #include "encoders/bitmap.hpp"\n')
        self.assert_found(rules.includes)

    def test_external_headers(self):
        for name in ("cuda_runtime.h", "cudnn.h", "dnnl.hpp", "oneapi/dnnl/dnnl.hpp", "cub/cub.cuh"):
            for path in ("include/stash/bad.hpp", "src/planner/bad.cpp"):
                with self.subTest(name=name, path=path):
                    self.add(path, f"#include <{name}>\n")
                    self.assert_found(rules.includes, f"{path}:1: ")
                    self.paths.remove(path)
        for name in ("fmt/format.h", "nlohmann/json.hpp"):
            with self.subTest(name=name):
                self.add("include/stash/bad.hpp", f"#include <{name}>\n")
                self.assert_found(rules.includes, "include/stash/bad.hpp:1: ")
                self.paths.remove("include/stash/bad.hpp")
                self.add("src/planner/good.cpp", f"#include <{name}>\n")
                self.assert_found(rules.includes)

    def test_unknown_folder_and_unknown_file(self):
        self.add("src/attic/bad.cpp", "int x;\n")
        self.add("src/bad.cpp", "int y;\n")
        self.add("src/encoders/bad.cpp", '#include "encoders/gone.hpp"\n')
        self.assert_found(
            rules.includes, "src/attic/bad.cpp:1: folder", "src/bad.cpp:1: folder", "src/encoders/bad.cpp:1: "
        )

    def test_machine_paths_and_numbers_of_issues(self):
        self.add("a.md", "see ../work/x and $folder/root/y and network/work/z\nthe issue is 5 lines long\n")
        self.add("b.md", "fine\nrun /work/x\n")
        self.add("c.sh", "cd '/root/'\n")
        self.add("d.cpp", "// Fixes issue #12\n")
        self.add("e.cpp", "// Issue 3\n")
        self.add("f.bin", b"\0 /work/x")
        self.assert_found(rules.text, "b.md:2: ", "c.sh:1: ", "d.cpp:1: ", "e.cpp:1: ")

    def test_ascii_only_in_sources(self):
        self.add("README.md", "\u00b5s\n")
        self.add("src/planner/bad.cpp", "// ok\n// \u00b5s\n")
        self.add("scripts/bad", "# \u2014\n")
        self.add("src/planner/worse.cpp", b"\xff\n")
        self.add(".github/bad.yml", "name: \u00b5s\n")
        self.assert_found(rules.ascii_sources, ".github/bad.yml:1", "scripts/bad:1",
                          "src/planner/bad.cpp:2", "src/planner/worse.cpp:1")

    def test_source_without_licence(self):
        tag = f"# {rules.LICENCE}\n"
        self.add("README.md", "No source.\n")
        self.add("scripts/good", f"#!/usr/bin/env bash\n{tag}true\n")
        self.add("scripts/late", f"#!/usr/bin/env bash\ntrue\n{tag}")
        self.add("scripts/none", "#!/usr/bin/env bash\n")
        self.add("kernels/late.cu", f"#pragma once\n// {rules.LICENCE}\n")
        self.add("tools/good.py", tag)
        self.add("tools/empty.py", "")
        self.assert_found(rules.licences, "kernels/late.cu:1", "scripts/late:1", "scripts/none:1", "tools/empty.py:1")

    def test_settings_without_licence(self):
        names = (".clang-tidy", ".clangd", ".editorconfig", ".github/workflows/ci.yml", "hooks.yaml", "ruff.toml")
        for name in names:
            self.add(name, "on: push\n")
        self.add_licensed(".clang-format", "ColumnLimit: 110\n")
        self.add("CMakePresets.json", "{}\n")
        self.assert_found(rules.licences, *(f"{name}:1" for name in names))

    def test_workflow_that_calls_what_there_is_not(self):
        self.add("scripts/test", "usage: [--slow]\ncase $1 in\n  --all | -a) ;;\n  # --long) ;;\n  --quick-look) ;;\n"
                                 "esac\ntidy (--deep)\n[[ $2 == --one ]]\n")
        self.add("scripts/tidy", "add_argument('--jobs')\n")
        self.add(".github/workflows/good.yml", "- run: scripts/test\n- run: |\n    scripts/test -a --one # --long\n"
                                               "    scripts/tidy --jobs 2\n    docs/scripts/none\n    # scripts/none\n")
        self.assert_found(rules.workflow_commands)
        self.add(".github/workflows/bad.yml", "- command: scripts/none\n- run: true && scripts/test --long\n"
                                              "- run: scripts/test --all --quick; .ci/run\n"
                                              "- run: scripts/test --deep --slow\n")
        lines = (1, 2, 3, 3, 4, 4)
        self.assert_found(rules.workflow_commands, *(f".github/workflows/bad.yml:{line}: " for line in lines))

    def test_header_without_guard(self):
        self.add("include/stash/bad.hpp", "// #pragma once\n")
        self.add("include/stash/bad_guard.h", "#ifndef STASH_GUARD_H\n")
        self.add("include/stash/guard.h", "#ifndef STASH_GUARD_H\n#define STASH_GUARD_H\n#endif\n")
        self.add("src/encoders/loops-inl.hpp", "// once per instruction set\n")
        self.assert_found(rules.header_guards, "include/stash/bad.hpp:1", "include/stash/bad_guard.h:1")

    def test_stem_in_two_folders_or_twice_in_one(self):
        self.add("src/encoders/bitmap.cpp", "")
        self.assert_found(rules.unique_stems)
        self.add("src/encoders/cpu/bitmap.cpp", "")
        self.add("src/executor/plan.cpp", "")
        self.add("tools/arena.cpp", "")
        self.assert_found(
            rules.unique_stems, "src/encoders/cpu/bitmap.cpp:1", "src/planner/plan.hpp:1", "tools/arena.cpp:1"
        )

    def test_test_case_that_is_not_snake_case(self):
        self.add("tests/planner/layout_test.cpp",
                 "TEST(layout, is_tight) {\nTEST_P(Layout, is_tight) {\nTEST(layout, IsTight) {\n")
        self.assert_found(rules.test_case_names, "tests/planner/layout_test.cpp:2: 'Layout'",
                          "tests/planner/layout_test.cpp:3: 'IsTight'")

    def test_unit_that_is_not_built(self):
        self.add("src/planner/CMakeLists.txt", "stash_add_library(p SOURCES\n  good.cpp deep/good.cpp) # bad.cpp\n")
        self.add("src/planner/good.cpp", "")
        self.add("src/planner/deep/good.cpp", "")
        self.add("src/planner/bad.cpp", "")
        self.add("src/planner/deep/bad.cpp", "")
        self.add("src/runtime/lonely.cpp", "")
        self.add("tests/planner/CMakeLists.txt", "foreach(name a_test c)\n  add(${name} ${name}.cpp)\nendforeach()\n")
        self.add("tests/planner/a_test.cpp", "")
        self.add("tests/planner/c_test.cpp", "")
        self.add("tests/planner/b_test.cpp", "")
        self.assert_found(
            rules.listed_units,
            "src/planner/bad.cpp:1",
            "src/planner/deep/bad.cpp:1",
            "src/runtime/lonely.cpp:1",
            "tests/planner/b_test.cpp:1",
        )

    def test_checkout_lists_tracked_and_new_files_but_not_ignored_ones(self):
        self.add(".gitignore", "/build/\n")
        self.add("build/out.cpp", "")
        self.assertIsNone(rules.checkout(self.root))
        subprocess.run(["git", "init", "--quiet"], cwd=self.root, check=True)
        subprocess.run(["git", "add", "tools"], cwd=self.root, check=True)
        os.remove(os.path.join(self.root, "tools/commands/main.cpp"))
        listed = rules.checkout(self.root).paths
        self.assertIn("tools/CMakeLists.txt", listed)
        self.assertIn("src/planner/plan.hpp", listed)
        self.assertNotIn("build/out.cpp", listed)
        self.assertNotIn("tools/commands/main.cpp", listed)


if __name__ == "__main__":
    unittest.main()
