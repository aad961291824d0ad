# SPDX-License-Identifier: Apache-2.0
"""The repository's rules that a compiler does not check.

Each rule takes a Tree and returns its violations as strings 'path:line: what is wrong'.
"""

import os
import re
import subprocess

ROOMS = ("encoders", "planner", "models", "runtime", "c_api", "data", "executor")

# Who may include what: rooms, or single files where only part of a room is open.
MAY_INCLUDE = {
    "include": {"include"},
    # Conversions and sizes are the CPU's; device.hpp is the door that the kernels stand behind; simt.hpp is what they
    # are compiled against where there is no nvcc.
    "kernels": {"include", "kernels", "src/encoders/convert.hpp", "src/encoders/mx.hpp", "src/encoders/philox.hpp",
                "src/encoders/value_codec.hpp", "src/encoders/device.hpp", "src/encoders/device_memory.hpp",
                "tests/simt/simt.hpp"},
    "encoders": {"include", "encoders", "kernels"},
    # The doors of the library treat what comes out of it alike.
    "planner": {"include", "planner", "src/encoders/public_call.hpp"},
    "models": {"include", "models", "src/planner/network.hpp", "src/planner/graph.hpp"},
    "runtime": {"include", "encoders", "runtime"},
    "c_api": {"include", "c_api"},
    "data": {"include", "runtime", "data"},
    "executor": {"include", "encoders", "planner", "runtime", "executor"},
    "bench": {"include", "bench", *ROOMS},
    "tools": {"include", "tools", "bench", *ROOMS},
}

GPU_OR_ONEDNN = r"(.*/)?(cuda|cudnn|cublas|cub/|thrust/|nv|dnnl|oneapi/|CL/)"
FORBIDDEN_EXTERNAL = {
    "include": re.compile(rf"{GPU_OR_ONEDNN}|fmt/|nlohmann/|(.*/)?json"),
    "planner": re.compile(GPU_OR_ONEDNN),
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


def room_of(path):
    """'include', 'bench', 'tools', 'kernels' or the name of a folder of src/; None where the rules do not reach."""
    parts = path.split("/")
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else "src"
    return parts[0] if parts[0] in MAY_INCLUDE else None


def resolve(tree, including, name):
    """The project file that an include line names, or None."""
    beside = os.path.normpath(os.path.join(os.path.dirname(including), name))
    for candidate in (beside, f"include/{name}", f"src/{name}", f"kernels/{name}", f"tests/{name}", name):
        if candidate in tree.paths:
            return candidate
    return None


def includes(tree):
    """Rooms include only the rooms below them, and the public headers stay free of other libraries."""
    found = []
    for path in tree.paths:
        room = room_of(path)
        if room is None or not path.endswith(CPLUSPLUS_SUFFIXES):
            continue
        if room not in MAY_INCLUDE:
            found.append(f"{path}:1: room '{room}' has no entry in MAY_INCLUDE")
            continue
        for number, line in tree.lines(path):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, name = match.groups()
            target = resolve(tree, path, name)
            if target is not None:
                if room_of(target) not in MAY_INCLUDE[room] and target not in MAY_INCLUDE[room]:
                    found.append(f"{path}:{number}: {room} must not include {target}")
            elif quote == '"':
                found.append(f"{path}:{number}: \"{name}\" names no file of the project")
            elif room in FORBIDDEN_EXTERNAL and FORBIDDEN_EXTERNAL[room].match(name):
                found.append(f"{path}:{number}: {room} must not include <{name}>")
    return found


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
        wanted = "#pragma once"
        if path.endswith(".h"):
            wanted = "#ifndef STASH_" + os.path.basename(path).replace(".", "_").upper()
        if not any(line == wanted for _, line in tree.lines(path)):
            found.append(f"{path}:1: no '{wanted}'")
    return found


def unique_stems(tree):
    """A stem names one thing: within src/ and tools/ it is used in one room, once per kind of file."""
    found, first = [], {}
    for path in tree.paths:
        if not path.startswith(("src/", "tools/")) or not path.endswith(CPLUSPLUS_SUFFIXES):
            continue
        stem, suffix = os.path.splitext(os.path.basename(path))
        for other in first.get(stem, []):
            if room_of(other) != room_of(path) or other.endswith(suffix):
                found.append(f"{path}:1: the stem '{stem}' is taken by {other}")
                break
        first.setdefault(stem, []).append(path)
    return found


def listed_units(tree):
    """Every source file is built: the nearest CMakeLists.txt above it names it."""
    found = []
    for path in tree.paths:
        if not path.startswith(("src/", "tools/", "tests/", "bench/")) or not path.endswith(UNIT_SUFFIXES):
            continue
        folder = os.path.dirname(path)
        while folder and f"{folder}/CMakeLists.txt" not in tree.paths:
            folder = os.path.dirname(folder)
        name = os.path.relpath(path, folder or ".")
        names = [name]
        if path.startswith(("tests/", "bench/")):
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


RULES = {
    "includes": (includes,),
    "text": (text,),
    "sources": (ascii_sources, header_guards, unique_stems, listed_units, licences, public_calls),
    "workflows": (workflow_commands,),
}
