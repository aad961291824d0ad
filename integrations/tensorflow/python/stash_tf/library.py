# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libstash_tf.so, once per process, and says clearly why it cannot."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
from pathlib import Path
from typing import Any

import tensorflow as tf

from . import derivatives
from .errors import StashError

NAME = "libstash_tf.so"
VERSION_FILE = "built_for.txt"

_lock = threading.Lock()
_loaded: Library | None = None


class Library:
    """The loaded library: its TensorFlow ops, and the functions of cc/extension_api.hpp."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ops: Any = tf.load_op_library(str(path))
        functions = ctypes.CDLL(str(path))
        message = ctypes.POINTER(ctypes.c_void_p)
        functions.stash_tf_built_for.restype = ctypes.c_char_p
        functions.stash_tf_core_version.restype = ctypes.c_char_p
        functions.stash_tf_formats.restype = ctypes.c_void_p
        functions.stash_tf_graphs.restype = functions.stash_tf_counters.restype = ctypes.c_void_p
        functions.stash_tf_graphs.argtypes = [ctypes.c_int64]
        functions.stash_tf_last_serial.restype = functions.stash_tf_surprises.restype = ctypes.c_int64
        functions.stash_tf_reset_graphs.restype = functions.stash_tf_reset_counters.restype = None
        functions.stash_tf_free.argtypes, functions.stash_tf_free.restype = [ctypes.c_void_p], None
        for call in (functions.stash_tf_configure, functions.stash_tf_register_plugin):
            call.argtypes, call.restype = [ctypes.c_char_p, message], ctypes.c_int32
        self._functions = functions
        self.core_version: str = functions.stash_tf_core_version().decode()

    @functools.cached_property
    def formats(self) -> dict[str, bool]:
        """The value formats by name, and whether groups of values share a scale."""
        listed = json.loads(self._text(self._functions.stash_tf_formats()))
        return {each["name"]: each["scaled"] for each in listed}

    def graphs(self, generation: int = 0) -> list[dict[str, Any]]:
        """What the graph optimizer did with each graph since the last reset, under settings of this generation
        (0: of any)."""
        return json.loads(self._text(self._functions.stash_tf_graphs(generation)))

    def last_serial(self) -> int:
        """The number of the newest graph."""
        return self._functions.stash_tf_last_serial()

    def surprises(self) -> int:
        """A number that changes when a batch may have grown, or values no longer suit their format. Quick."""
        return self._functions.stash_tf_surprises()

    def counters(self) -> list[dict[str, Any]]:
        """How often each kernel ran since the last reset, on which tensor, and what it moved."""
        return json.loads(self._text(self._functions.stash_tf_counters()))

    def reset_graphs(self) -> None:
        """Forgets what graphs() says."""
        self._functions.stash_tf_reset_graphs()

    def reset_counters(self) -> None:
        """Sets all counters to zero."""
        self._functions.stash_tf_reset_counters()

    def configure(self, settings: str) -> None:
        """Settings of the plugin hook."""
        self._call("stash_tf_configure", settings)

    def register_plugin(self, device_type: str) -> None:
        """Opens the plugin hook for a device type, for the rest of the process."""
        self._call("stash_tf_register_plugin", device_type)

    def _call(self, name: str, argument: str) -> None:
        message = ctypes.c_void_p()
        code = getattr(self._functions, name)(argument.encode(), ctypes.byref(message))
        text = self._text(message.value) if message.value else ""
        if code != 0:
            raise StashError(f"{name}: {text or f'error {code}'}")

    def _text(self, address: int | None) -> str:
        if not address:
            raise StashError(f"{self.path}: out of memory")
        try:
            return ctypes.string_at(address).decode("utf-8", "replace")
        finally:
            self._functions.stash_tf_free(address)


def load() -> Library:
    """The library; loaded by the first call. Raises StashError if this process cannot have it."""
    global _loaded
    with _lock:
        if _loaded is None:
            path = find()
            _check_version(path)
            _check_copies(path)
            try:
                _loaded = Library(path)
                derivatives.register(_loaded.ops)
            except (tf.errors.OpError, OSError, AttributeError) as error:
                raise StashError(f"{path}: cannot be loaded: {error}") from error
        return _loaded


def loaded() -> Library | None:
    """The library if this process has it already."""
    return _loaded


def find() -> Path:
    """Where the library is: STASH_TF_LIBRARY, else next to the package."""
    named = os.environ.get("STASH_TF_LIBRARY")
    path = Path(named) if named else Path(__file__).parent / NAME
    if not path.is_file():
        source = "STASH_TF_LIBRARY names no file" if named else "the shared library is not there"
        raise StashError(
            f"{path}: {source}; build it with `cmake --build BUILD --target stash_tf` and put "
            "BUILD/integrations/tensorflow on PYTHONPATH, or install the package: "
            "`pip install ./integrations/tensorflow`"
        )
    return path.absolute()


def _check_version(path: Path) -> None:
    """TensorFlow's C++ interface changes with each version: a library for another one has unknown symbols."""
    note = path.parent / VERSION_FILE
    try:
        built_for = note.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StashError(f"{note}: cannot be read, so it is unknown which TensorFlow {NAME} is for") from error
    if built_for != tf.__version__:
        raise StashError(
            f"{path}: built for TensorFlow {built_for}, but this is TensorFlow {tf.__version__}; "
            "build it again with this one"
        )


def _check_copies(path: Path) -> None:
    """A second copy would register its optimizer twice, and TensorFlow ends the process for that."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    mapped = {line.split(maxsplit=5)[5].removesuffix(" (deleted)") for line in lines if line.count("/")}
    for other in sorted(mapped):
        if os.path.basename(other) in (NAME, path.name) and os.path.realpath(path) != other:
            raise StashError(
                f"{path}: another copy is already loaded in this process, {other}; "
                "a process can have only one: use that one, or start a new process"
            )
