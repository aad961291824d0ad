# SPDX-License-Identifier: Apache-2.0
"""Keras models: what has to be switched off before Stash can see their training step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from . import keras_jit
from .errors import StashError

NOTHING = (
    'nothing to do: while Stash is on, jit_compile="auto" has Keras build training steps without XLA, which graph '
    "optimizers see"
)


def prepare(model: Any) -> str:
    """Changes nothing, and says so: while Stash is on, Keras does not choose XLA for a training step by itself.

    Kept for programs that call it. Raises StashError for what keeps Stash from seeing the model's training step: the
    argument jit_compile=True or run_eagerly=True of model.compile(), the global switch to eager functions, another
    backend of Keras than TensorFlow.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise StashError(f"prepare: model: expected a keras.Model, got {type(model).__name__}")
    if keras.backend.backend() != "tensorflow":
        raise StashError(
            f"prepare: Keras runs on {keras.backend.backend()!r}; Stash needs the backend 'tensorflow'"
        )
    if tf.config.functions_run_eagerly():
        raise StashError("prepare: tf.config.run_functions_eagerly(True) is set: there is no graph to rewrite")
    if getattr(model, "compiled", False):
        if model.run_eagerly:
            raise StashError("prepare: the model is compiled with run_eagerly=True: compile it without")
        if model.jit_compile and not keras_jit.chooses_xla(model):
            raise StashError("prepare: the model is compiled with jit_compile=True: compile it without")
    return NOTHING
