# SPDX-License-Identifier: Apache-2.0
"""Adds the licences of the libraries inside a wheel to it, and names them in its metadata.

usage: bundled_licences.py BEFORE AFTER FOLDER [NOTICES]

BEFORE is the wheel before `auditwheel repair` and AFTER the one after it. The wheel with the texts goes to FOLDER. The
texts are those of the Debian packages that the libraries come from; so this runs where AFTER was made. NOTICES is the
file with those of TensorFlow's headers, for a wheel that was compiled with them.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMON = "/usr/share/common-licenses"

# What a wheel may hold: Debian's package, and the licence in SPDX's words.
LICENCES = {
    "coinor-libclp1": "EPL-1.0",
    "coinor-libcoinutils3v5": "EPL-1.0",
    "libblas3": "BSD-3-Clause",
    "libbz2-1.0": "bzip2-1.0.6",
    "libfmt9": "MIT",
    "libgfortran5": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libhwy1": "Apache-2.0",
    "liblapack3": "BSD-3-Clause",
    "libquadmath0": "LGPL-2.1-or-later",
    "nlohmann-json3-dev": "MIT",
}
HEADERS_ONLY = ["nlohmann-json3-dev"]


def run(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def unpack(wheel, folder):
    run(sys.executable, "-m", "wheel", "unpack", "--dest", str(folder), wheel)
    return next(folder.iterdir())


def needed(tree):
    """Files that the libraries of this wheel are linked with on this machine, by each of their names."""
    files = {}
    for library in sorted(tree.glob("stash_*/**/*.so")):
        for path in re.findall(r" => (/\S+) \(", run("ldd", str(library))):
            files[Path(path).name] = files[Path(path).resolve().name] = path
    return files


def package_of(path):
    """Debian's package of this file. Its list may name it with or without the /usr in front of /lib."""
    names = {path, str(Path(path).resolve())}
    names |= {name.removeprefix("/usr") for name in names} | {f"/usr{name}" for name in names if name.startswith("/lib")}
    for name in sorted(names):
        found = subprocess.run(["dpkg-query", "--search", name], text=True, capture_output=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    sys.exit(f"bundled_licences: no Debian package holds {path}")


def bundled(before, after):
    """Packages of what is inside."""
    files, packages = needed(before), set(HEADERS_ONLY)
    for library in sorted(after.glob("*.libs/*")):
        name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library.name)
        if name not in files:
            sys.exit(f"bundled_licences: {library.name}: no library of this machine has this name")
        packages.add(package_of(files[name]))
    unknown = sorted(packages - set(LICENCES))
    if unknown:
        sys.exit(f"bundled_licences: the wheel holds a part of {', '.join(unknown)}: add its licence to the list here")
    return sorted(packages)


def copy_texts(packages, folder):
    """The texts, and those of Debian's common ones that they name."""
    common, added = set(), []
    for package in packages:
        text = Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8")
        common |= set(re.findall(rf"{COMMON}/([\w.-]*\w)", text))
        added.append(folder / f"{package}.txt")
        added[-1].write_text(text, encoding="utf-8")
    for name in sorted(common):
        added.append(folder / f"{name}.txt")
        shutil.copyfile(f"{COMMON}/{name}", added[-1])
    return added


def describe(metadata, packages, files):
    """Names the licences and files in the metadata, next to the wheel's own."""
    head, body = metadata.read_text(encoding="utf-8").split("\n\n", 1)
    lines = head.split("\n")
    own = lines.index("License-Expression: Apache-2.0")
    others = {LICENCES[package] for package in packages} - {"Apache-2.0"}
    lines[own] = " AND ".join([lines[own], *sorted(others, key=str.lower)])
    last = max(i for i, line in enumerate(lines) if line.startswith("License-File: "))
    lines[last + 1 : last + 1] = [f"License-File: {name}" for name in files]
    metadata.write_text("\n".join(lines) + "\n\n" + body, encoding="utf-8")


def main(before, after, folder, notices=None):
    with tempfile.TemporaryDirectory() as work:
        trees = [unpack(wheel, Path(work, name)) for name, wheel in (("before", before), ("after", after))]
        packages = bundled(*trees)
        information = next(trees[1].glob("*.dist-info"))
        texts = information / "licenses/bundled"
        texts.mkdir(parents=True)
        added = copy_texts(packages, texts)
        if notices:
            added.append(texts / "tensorflow.txt")
            shutil.copyfile(notices, added[-1])
        names = [file.relative_to(information / "licenses").as_posix() for file in added]
        describe(information / "METADATA", packages, names)
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", folder, str(trees[1]))
    print(f"bundled_licences: {len(packages)} packages, {len(added)} texts")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
