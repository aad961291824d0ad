# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel: the package's modules, the shared library that CMake has built, and its built_for.txt.

STASH_TF_LIBRARY, or the setting `library`, names the library. No other package is needed to build. The wheel
depends on neither tensorflow nor tensorflow-cpu, for either will do: the library checks the version when it is
loaded.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import sys
import zipfile
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

HERE = Path(__file__).resolve().parent
FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is built


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    library = _library(config_settings or {})
    stem = f"{project['name']}-{project['version']}"
    tag = f"py3-none-{sys.platform}_{platform.machine()}"
    files = {f"stash_tf/{module.name}": module.read_bytes() for module in sorted(HERE.glob("stash_tf/*.py"))}
    for file in (library, library.parent / "built_for.txt"):
        files[f"stash_tf/{file.name}"] = file.read_bytes()
    information = f"{stem}.dist-info"
    files[f"{information}/METADATA"] = _metadata(project).encode()
    files[f"{information}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: stash\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    licence = HERE.parents[2] / "LICENSE"
    files[f"{information}/licenses/LICENSE"] = licence.read_bytes()
    files[f"{information}/RECORD"] = _record(files, f"{information}/RECORD").encode()
    name = f"{stem}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            wheel.writestr(entry, content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517; the sources of the library are those of the whole repository."""
    raise NotImplementedError("stash_tf: there is no sdist of the package alone")


def _library(settings):
    named = settings.get("library") or os.environ.get("STASH_TF_LIBRARY")
    if not named or not Path(named).is_file():
        raise SystemExit(
            f"STASH_TF_LIBRARY: expected the path of libstash_tf.so, got {named!r}; "
            "integrations/tensorflow/build_wheel builds it first"
        )
    return Path(named)


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    return "\n".join(lines) + "\n"


def _record(files, own_name):
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{own_name},,"]) + "\n"
