# SPDX-License-Identifier: Apache-2.0
"""Keras models: what has to be switched off before Stash can see their training step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .errors import StashError


def prepare(model: Any) -> str:
    """Makes the training step of a Keras model one that graph optimizers see; returns what was done, "" if
    nothing.

    Keras compiles the step with XLA by itself where there is a GPU, and graph optimizers never see what XLA
    compiles. Before model.compile() this sets `supports_jit = False`, after it `jit_compile = False`. What the
    user decided otherwise is not overruled but raises StashError: run_eagerly=True, the global switch to eager
    functions, another backend of Keras than TensorFlow.
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
    done = []
    if getattr(model, "supports_jit", False):
        model.supports_jit = False
        done.append("supports_jit = False, so that compile() does not choose XLA by itself")
    if getattr(model, "compiled", False):
        if model.run_eagerly:
            raise StashError("prepare: the model is compiled with run_eagerly=True: compile it without")
        if model.jit_compile:
            model.jit_compile = False
            model.train_function = model.test_function = model.predict_function = None
            done.append("jit_compile = False: XLA would compile the step out of the graph optimizer's sight")
    return "; ".join(done)
