# SPDX-License-Identifier: Apache-2.0
"""The repository's rules that a compiler does not check.

Each rule takes a Tree and returns its violations as strings 'path:line: what is wrong'.
"""

import os
import re
import subprocess
from pathlib import PurePosixPath

from folders import FOLDERS
from python_imports import python_imports
from words import unusual_words

GPU_OR_ONEDNN = r"(.*/)?(cuda|cudnn|cublas|cub/|thrust/|nv|dnnl|oneapi/|CL/)"
FORBIDDEN_EXTERNAL = {
    "include": re.compile(rf"{GPU_OR_ONEDNN}|fmt/|nlohmann/|(.*/)?json"),
    "src/planner": re.compile(GPU_OR_ONEDNN),
}

SOURCE_SUFFIXES = (".hpp", ".h", ".cuh", ".cpp", ".cc", ".c", ".cu", ".py", ".cmake", ".sh")
HEADER_SUFFIXES = (".hpp", ".h", ".cuh")
UNIT_SUFFIXES = (".cpp", ".cc", ".c", ".cu")
CPLUSPLUS_SUFFIXES = HEADER_SUFFIXES + UNIT_SUFFIXES
SETTINGS_ENDINGS = ("CMakeLists.txt", ".yml", ".yaml", ".toml", ".clang-format", ".clang-tidy", ".clangd", ".editorconfig")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
FORBIDDEN_TEXT = (
    # Only where an absolute path can start, so that ../work/ or $folder/root/ pass.
    (re.compile(r"(?<![\w./$})\]])/(work|root|home)/"), "absolute path of a machine"),
    (re.compile(r"\bissue #?[0-9]+", re.IGNORECASE), "number of an issue"),
)


class Tree:
    """The files of one checkout, by their path from its root."""

    def __init__(self, root, paths):
        self.root = root
        self.paths = sorted(path for path in paths if os.path.isfile(os.path.join(root, path)))

    def text(self, path):
        """The file's text, or None if it is binary."""
        with open(os.path.join(self.root, path), "rb") as file:
            data = file.read()
        try:
            return None if b"\0" in data else data.decode("utf-8")
        except UnicodeDecodeError:
            return None

    def lines(self, path):
        return list(enumerate((self.text(path) or "").splitlines(), start=1))


def checkout(root):
    """The Tree of what git tracks or would track; None if root is not a git checkout."""
    # safe.directory: the checkout may belong to another user than the one who runs the tests.
    command = ["git", "-c", f"safe.directory={root}", "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return Tree(root, os.fsdecode(listing).split("\0"))


# Where sources follow the rows of folders.py; elsewhere (tests, formats of other languages) a file may see what it likes.
LAYERED = ("include/", "src/", "kernels/", "emulator/", "bench/", "tools/", "integrations/", "examples/")


def module_of(path):
    """The first folder, of src/ the first two."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "src" else 1])


def resolve(tree, including, name):
    """The project file that an include line names, or None."""
    roots = ("include", "src", "kernels", "emulator", "tests", "tools", "integrations/tensorflow/cc", "")
    for root in (os.path.dirname(including), *roots):
        candidate = os.path.normpath(os.path.join(root, name))
        if candidate in tree.paths:
            return candidate
    return None


def may_include(folder, target):
    own = os.path.dirname(target)
    for entry in FOLDERS[folder].includes:
        if entry in (target, own) or (entry.endswith("/**") and f"{own}/".startswith(entry[:-2])):
            return True
    return own == folder


def includes(tree):
    """Folders include only those below them, and the public headers stay free of other libraries."""
    found = []
    for path in tree.paths:
        if not path.startswith(LAYERED) or not path.endswith(CPLUSPLUS_SUFFIXES):
            continue
        folder = os.path.dirname(path)
        is_test = folder.startswith("emulator/") and path.endswith("_test.cpp")
        if "/tests" in folder or "/cuda_model" in folder or is_test:
            continue
        if folder not in FOLDERS:
            found.append(f"{path}:1: folder '{folder}' has no row in folders.py")
            continue
        for number, line in tree.lines(path):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, name = match.groups()
            target = resolve(tree, path, name)
            if target is not None:
                if not may_include(folder, target):
                    found.append(f"{path}:{number}: {folder} must not include {target}")
            elif quote == '"' and not (path.startswith("integrations/") and "/" in name):
                found.append(f"{path}:{number}: \"{name}\" names no file of the project")
            else:
                for part, forbidden in FORBIDDEN_EXTERNAL.items():
                    if path.startswith(f"{part}/") and forbidden.match(name):
                        found.append(f"{path}:{number}: {part} must not include <{name}>")
    return found


MOST_SOURCES = 30
TABLE = re.compile(r"<!-- folders -->\n(.*?)<!-- /folders -->", re.DOTALL)


def few_sources(tree):
    """No folder is so full that nobody finds anything in it."""
    count = {}
    for path in tree.paths:
        if path.startswith((*LAYERED, "tests/")) and path.endswith(CPLUSPLUS_SUFFIXES):
            count[os.path.dirname(path)] = count.get(os.path.dirname(path), 0) + 1
    return [f"{folder}:1: {number} sources, expected at most {MOST_SOURCES}" for folder, number in sorted(count.items())
            if number > MOST_SOURCES]


def folder_table():
    """The rows of folders.py as a table in Markdown. What begins as the folder itself is shortened to .. or ./"""
    lines = ["| folder | holds | may include |", "|---|---|---|"]
    for name, row in FOLDERS.items():
        seen = ", ".join(f"`{short(entry, name)}`" for entry in row.includes) or "nothing else"
        lines.append(f"| `{name}/` | {row.holds} | {seen} |")
    return "\n".join(lines) + "\n"


def short(entry, folder):
    """As seen from the folder above this one, or from the folder itself."""
    above = os.path.dirname(folder)
    for base, prefix in ((folder, "./"), (above, "../")):
        if base and entry.startswith(f"{base}/"):
            return prefix + entry[len(base) + 1 :]
    return entry


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def links(tree):
    """Links of pages lead to files and folders that there are."""
    found = []
    folders = {str(folder) for path in tree.paths for folder in PurePosixPath(path).parents}
    for path in tree.paths:
        if not path.endswith(".md"):
            continue
        for number, line in tree.lines(path):
            for target in LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                to = os.path.normpath(os.path.join(os.path.dirname(path), target))
                if to not in tree.paths and to not in folders:
                    found.append(f"{path}:{number}: there is no {to}")
    return found


def documented_folders(tree):
    """The page on folders shows the rows of folders.py; each row names a folder that there is."""
    page = "ARCHITECTURE.md"
    if page not in tree.paths:
        return []
    found = []
    match = TABLE.search(tree.text(page))
    if match is None or match.group(1) != folder_table():
        found.append(f"{page}:1: its table is not that of tests/rules/folders.py: check_rules.py --folders .")
    there = {os.path.dirname(path) for path in tree.paths}
    return found + [f"tests/rules/folders.py:1: there is no folder {name}" for name in FOLDERS if name not in there]


def text(tree):
    """No file speaks of one machine's folders or of numbered issues."""
    found = []
    for path in tree.paths:
        if path.startswith("tests/rules/"):
            continue
        for number, line in tree.lines(path):
            for pattern, what in FORBIDDEN_TEXT:
                match = pattern.search(line)
                if match:
                    found.append(f"{path}:{number}: {what}: '{match.group()}'")
    return found


def ascii_sources(tree):
    found = []
    for path in tree.paths:
        if not path.endswith(SOURCE_SUFFIXES + SETTINGS_ENDINGS) and not path.startswith("scripts/"):
            continue
        if tree.text(path) is None:
            found.append(f"{path}:1: not text")
        found += [f"{path}:{number}: not ASCII" for number, line in tree.lines(path) if not line.isascii()]
    return found


def header_guards(tree):
    """A name that ends in -inl is for headers that are included once per instruction set; headers for C keep to
    what its standard has."""
    found = []
    for path in tree.paths:
        if not path.endswith(HEADER_SUFFIXES) or path.endswith("-inl.hpp"):
            continue
        guard = "#pragma once"
        if path.endswith(".h"):
            guard = "#ifndef STASH_" + os.path.basename(path).replace(".", "_").upper()
        if not any(line == guard for _, line in tree.lines(path)):
            found.append(f"{path}:1: no '{guard}'")
    return found


def unique_stems(tree):
    """A stem names one thing: within src/ and tools/ it is used in one module, once per kind of file."""
    found, first = [], {}
    for path in tree.paths:
        if not path.startswith(("src/", "tools/")) or not path.endswith(CPLUSPLUS_SUFFIXES):
            continue
        stem, suffix = os.path.splitext(os.path.basename(path))
        for other in first.get(stem, []):
            if module_of(other) != module_of(path) or other.endswith(suffix):
                found.append(f"{path}:1: the stem '{stem}' is taken by {other}")
                break
        first.setdefault(stem, []).append(path)
    return found


TEST_CASE = re.compile(r"TEST(?:_[FP])?\((\w+), *(\w+)\)")


def test_case_names(tree):
    """Names of test suites and cases are snake_case, as every other name."""
    return [f"{path}:{number}: '{name}' is not snake_case"
            for path in tree.paths if path.startswith(("tests/", "emulator/")) and path.endswith(CPLUSPLUS_SUFFIXES)
            for number, line in tree.lines(path) for case in [TEST_CASE.match(line)] if case
            for name in case.groups() if name != name.lower()]


def listed_units(tree):
    """Every source file is built: the nearest CMakeLists.txt above it names it."""
    found = []
    for path in tree.paths:
        if not path.startswith(("src/", "tools/", "tests/", "emulator/", "bench/")) or not path.endswith(UNIT_SUFFIXES):
            continue
        folder = os.path.dirname(path)
        while folder and f"{folder}/CMakeLists.txt" not in tree.paths:
            folder = os.path.dirname(folder)
        name = os.path.relpath(path, folder or ".")
        names = [name]
        if path.startswith(("tests/", "emulator/", "bench/")):
            # One program per file: these folders may loop over the stems, with or without their common ending.
            stem = os.path.splitext(name)[0]
            names += [stem, re.sub(r"_(test|bench)$", "", stem)]
        listing = re.sub(r"#.*", "", tree.text(f"{folder}/CMakeLists.txt") or "") if folder else ""
        if not set(names) & set(re.split(r'[\s()"]+', listing)):
            found.append(f"{path}:1: not listed in {folder or '.'}/CMakeLists.txt")
    return found


LICENCE = "SPDX-License-Identifier: Apache-2.0"


def licences(tree):
    """Every source and every file of settings that has comments says its licence in its first line, or in the second one
    where the first names an interpreter."""
    found = []
    for path in tree.paths:
        head = (tree.text(path) or "").splitlines()[:2]
        script = bool(head) and head[0].startswith("#!")
        if script or path.endswith(SOURCE_SUFFIXES + SETTINGS_ENDINGS):
            if not any(line in (f"// {LICENCE}", f"# {LICENCE}") for line in head[script : script + 1]):
                found.append(f"{path}:1: no line '{LICENCE}'")
    return found


SCRIPT_CALL = re.compile(r"(?<![\w./-])((?:\.ci|bench|scripts)/[\w.-]+)((?: +--?[\w-]+)*)")


def parses(script, option):
    """Whether the script's text looks at the option: as a label of case or compared in a shell, quoted in Python."""
    label = rf"^\s*(-[\w-]+ *\| *)*{option}( *\| *-[\w-]+)*\)"
    return re.search(rf"{label}|== {option}(?![\w-])|([\"']){option}\3", script, re.MULTILINE) is not None


def workflow_commands(tree):
    """Workflows call scripts that a user has, with options that these know."""
    found = []
    for path in tree.paths:
        if not path.startswith(".github/workflows/"):
            continue
        for number, line in tree.lines(path):
            for script, options in SCRIPT_CALL.findall(line.split("#")[0]):
                if script not in tree.paths:
                    found.append(f"{path}:{number}: there is no {script}")
                    continue
                found += [f"{path}:{number}: {script} has no option {option}" for option in options.split()
                          if not parses(tree.text(script), option)]
    return found


PUBLIC_CALLS_TEST = "tests/c_api/no_memory_test.cpp"
FREE_FUNCTION = re.compile(r"^STASH_API (?:[\w:<>&*]+[ &*])+(\w+)\(([^;]*);", re.MULTILINE)
PUBLIC_CLASS = re.compile(r"^class STASH_API (\w+)[^;{]*\{(.*?)^\};", re.MULTILINE | re.DOTALL)
MEMBER_FUNCTION = re.compile(r"^  (?:[\w:<>&*]+[ &*])*(\w+)\(([^;]*?);", re.MULTILINE)
# Of errors themselves: whoever makes one gives it a text that is copied.
MAKES_NO_ERRORS = {"error"}


def throwing_functions(header):
    """Names of the functions of a public header that may throw, those of classes with their class."""
    header = re.sub(r"//.*", "", header)
    found = {name for name, rest in FREE_FUNCTION.findall(header) if "noexcept" not in rest}
    for name, body in PUBLIC_CLASS.findall(header):
        parts = re.split(r"^ (public|private|protected):\n", body, flags=re.MULTILINE)
        public = "".join(part for access, part in zip(parts[1::2], parts[2::2]) if access == "public")
        for member, rest in MEMBER_FUNCTION.findall(public):
            if not re.search(r"\bnoexcept\b|= (default|delete)$", rest):
                found.add(name if member == name else f"{name}::{member}")
    return found - MAKES_NO_ERRORS


def public_calls(tree):
    """Every public C++ function that may throw is called by the test of running out of memory."""
    test = tree.text(PUBLIC_CALLS_TEST) if PUBLIC_CALLS_TEST in tree.paths else ""
    called = set(re.findall(r'\{"([\w:]+)",', test))
    found = []
    for path in tree.paths:
        if re.fullmatch(r"include/stash/\w+\.hpp", path):
            found += [f"{path}:1: {name} is not called in {PUBLIC_CALLS_TEST}"
                      for name in sorted(throwing_functions(tree.text(path)) - called)]
    return found


FORMATS_TABLE = "include/stash/value_format.hpp"
FORMAT_ROW = re.compile(r'value_format_info\{value_format::(\w+), "(\w+)",')


def value_formats(tree):
    """Every row of the table of value formats has its text in docs/format.md and its number in the C API."""
    if FORMATS_TABLE not in tree.paths:
        return []
    table, header = tree.text(FORMATS_TABLE), tree.text("include/stash/c_api.h")
    page = tree.text("docs/format.md").partition("## Narrow values")[2].partition("## cast")[0]
    numbers = dict(re.findall(r"^  (\w+) = (\d+),", table, flags=re.MULTILINE))
    found = []
    for enumerator, name in FORMAT_ROW.findall(table):
        if not re.search(rf"^\|.*(?<!\w){name}(?!\w)", page, flags=re.MULTILINE):
            found.append(f"{FORMATS_TABLE}:1: {name} has no column or row in docs/format.md, Narrow values")
        if not re.search(rf"\bSTASH_VALUES_{enumerator.upper()} = {numbers.get(enumerator)}\b", header):
            found.append(f"{FORMATS_TABLE}:1: STASH_VALUES_{enumerator.upper()} is not in include/stash/c_api.h")
    return found


RULES = {
    "includes": (includes, few_sources, documented_folders, python_imports),
    "text": (text, links, unusual_words, value_formats),
    "sources": (ascii_sources, header_guards, unique_stems, test_case_names, listed_units, licences, public_calls),
    "workflows": (workflow_commands,),
}
