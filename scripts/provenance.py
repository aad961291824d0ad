# SPDX-License-Identifier: Apache-2.0
"""Where a published figure comes from: machine, compiler, commit, versions, command. No names of hosts or users, no
paths, so that records of different machines can lie side by side."""

import os
import platform
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_stash(given=None):
    """The `stash` program: the one given, else the newest of the usual build folders."""
    if given:
        candidates = [Path(given)]
    else:
        candidates = [ROOT / "build" / preset / "tools" / "stash" for preset in ("cpu", "ci")]
    built = [path for path in candidates if path.is_file()]
    if not built:
        raise SystemExit("no stash program found; build it (cmake --preset cpu && cmake --build --preset cpu) "
                         "or name it with --stash")
    return max(built, key=lambda path: path.stat().st_mtime)


def output(*command):
    """What a program prints, None where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def first_line(*command):
    return (output(*command) or "unknown").splitlines()[0]


def processor():
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    match = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1) if match else platform.machine()


def build_facts(stash):
    """Compiler and build type from the cache of the build folder that holds the program."""
    for folder in stash.resolve().parents:
        cache = folder / "CMakeCache.txt"
        if cache.is_file():
            entries = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.MULTILINE))
            return {"compiler": first_line(entries.get("CMAKE_CXX_COMPILER", "c++"), "--version"),
                    "build_type": entries.get("CMAKE_BUILD_TYPE", "unknown")}
    return {"compiler": "unknown", "build_type": "unknown"}


def commit():
    """The commit of the sources, and whether programs or libraries differed from it."""
    git = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT))
    changed = output(*git, "status", "--porcelain", "--untracked-files=no", "--", "include", "kernels", "src", "tools")
    return first_line(*git, "rev-parse", "--short=12", "HEAD") + (" and changes" if changed else "")


def package_version(name):
    """Debian's version of a package, "unknown" elsewhere."""
    return first_line("dpkg-query", "--show", "--showformat=${Version}", name)


def command_line(program, words):
    """A command for a record: files that were named by absolute paths keep only their names."""
    return shlex.join([program, *(re.sub(r"(^|=)/(?:.*/)?([^/]+)/*$", r"\1\2", word) for word in words)])


def provenance(stash, command):
    return {
        "command": command,
        "commit": commit(),
        "stash": first_line(str(stash), "--version"),
        **build_facts(stash),
        "onednn": package_version("libdnnl-dev"),
        "processor": processor(),
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
