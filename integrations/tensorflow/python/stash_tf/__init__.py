# SPDX-License-Identifier: Apache-2.0
"""Keeps only what the backward pass needs of feature maps.

import stash_tf
stash_tf.enable(policy="lossless")
model.fit(...)
print(stash_tf.report())
"""

from __future__ import annotations

import importlib
from typing import Any

from . import keras_jit, memory
from .control import check, disable, enable, enabled, is_enabled
from .errors import StashError
from .memory import peak_bytes, timeline
from .models import prepare
from .reporting import report

__version__ = "0.1.0"

__all__ = [
    "StashError",
    "check",
    "disable",
    "enable",
    "enabled",
    "is_enabled",
    "layers",
    "memory",
    "nn",
    "peak_bytes",
    "prepare",
    "registry",
    "report",
    "timeline",
]

keras_jit.watch()

_LAZY = ("layers", "nn", "registry")


def __getattr__(name: str) -> Any:
    """`nn`, `layers` and `registry` need the shared library or Keras, so they come when first used."""
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
