# SPDX-License-Identifier: Apache-2.0
"""Makes stubs of the CUDA libraries that an installed torch is linked with and does not find: every symbol that torch
wants of them is a function that reports an error. Where PyTorch has no GPU it calls none but the question for devices.

Run by the Python whose torch it is for. Needs nm and gcc. The stubs go to the folder that torch's own search path names.
"""

import re
import subprocess
import sysconfig
import tempfile
from pathlib import Path

SITE = Path(sysconfig.get_paths()["purelib"])
FOLDER = SITE / "nvidia/cu13/lib"
# Libraries whose symbols have no version: how their names begin.
PREFIXES = {"libcufile": "cuFile", "libcusparseLt": "cusparseLt", "libnccl": "p?nccl", "libnvshmem_host": "nvshmem"}
TEXTS = re.compile(r"Get(Last)?Error(String|Name)?$|GetStatusString$|GetErrorString$")


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def wanted():
    """(libraries that cannot be found, {version: symbols}, symbols without a version)."""
    libraries, versions, plain = set(), {}, set()
    for path in (SITE / "torch/lib").glob("*.so*"):
        for line in lines_of("readelf", "--dynamic", path):
            needed = re.search(r"\(NEEDED\).*\[(lib(?:cu|nccl|nv)[\w.]+)\]", line)
            if needed:
                libraries.add(needed[1])
        for line in lines_of("nm", "--dynamic", "--undefined-only", path):
            name, _, version = line.split()[-1].partition("@")
            if version:
                versions.setdefault(version.lstrip("@"), set()).add(name)
            else:
                plain.add(name)
    return sorted(libraries), versions, plain


def body(library, symbol):
    if TEXTS.search(symbol):
        return f'const char *{symbol}(void) {{ return "no device: a stub"; }}'
    if symbol.startswith("__cuda"):  # what nvcc's start-up code calls: hands out a handle that is never used
        return f"void *{symbol}(void) {{ static char handle[64]; return handle; }}"
    no_device = 100 if library.startswith("libcudart") else 1
    return f"int {symbol}(void) {{ return {no_device}; }}"


def make(library, versions, plain):
    stem = library.partition(".so")[0]
    version = "NVSHMEM" if stem == "libnvshmem_host" else library
    versioned = versions.get(version, set())
    prefix = PREFIXES.get(stem)
    others = {name for name in plain if prefix and re.match(prefix, name)} - versioned
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "stub.c"
        source.write_text("\n".join(body(library, name) for name in sorted(versioned | others)) + "\n")
        command = ["gcc", "-shared", "-fPIC", "-Os", "-w", "-nostdlib", f"-Wl,-soname,{library}", "-o",
                   str(FOLDER / library), str(source)]
        if versioned:
            script = Path(folder) / "versions"
            script.write_text(f"{version} {{ global: {' '.join(name + ';' for name in sorted(versioned))} }};\n")
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    libraries, versions, plain = wanted()
    for library in libraries:
        if library != "libcuda.so.1" and not (FOLDER / library).exists():
            make(library, versions, plain)
    print(f"torch_stubs: {len(libraries)} libraries in {FOLDER}")


if __name__ == "__main__":
    main()
