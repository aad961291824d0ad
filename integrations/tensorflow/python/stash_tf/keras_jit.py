# SPDX-License-Identifier: Apache-2.0
"""Keras' choice of XLA: where there is a GPU, `jit_compile="auto"` has XLA compile the training step, out of sight of
every graph optimizer. While Stash is on, "auto" means no for training; evaluation and prediction keep XLA.

Keras' Trainer.compile() is replaced by one that remembers what it was given, and make_train_function() by one that
builds the function without XLA while Stash is on, and again with it afterwards.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
import weakref
from typing import Any

AUTO = "auto"

_given: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # what compile() got, by model
_without_xla: weakref.WeakSet[Any] = weakref.WeakSet()  # models whose training function was built so by us
_warned: weakref.WeakSet[Any] = weakref.WeakSet()
_watching = False
_on = False


def watch() -> None:
    """From now on models that are compiled are remembered. Does nothing unless Keras is loaded and runs on TensorFlow."""
    global _watching
    if _watching or "keras" not in sys.modules:
        return
    import keras

    if keras.backend.backend() != "tensorflow":
        return
    trainer = keras.Model.__mro__[[kind.__name__ for kind in keras.Model.__mro__].index("TensorFlowTrainer")]
    base = next(kind for kind in trainer.__mro__[1:] if "compile" in vars(kind))
    base.compile = _remembering(base.compile)
    base.compile_from_config = _forgetting(base.compile_from_config)
    trainer.make_train_function = _choosing(trainer.make_train_function)
    _watching = True


def set_on(on: bool) -> None:
    """Whether "auto" means no. Loads Keras to be sure of models that are made later."""
    global _on
    _on = on
    if on:
        try:
            import keras  # noqa: F401
        except ImportError:
            return
        watch()


def chooses_xla(model: Any) -> bool:
    """Whether XLA is what Keras chose for a compiled model, and not its user."""
    if not model.jit_compile:
        return False
    if model in _given:
        return _given[model] == AUTO
    # Compiled before anyone watched. On a CPU "auto" is no.
    return bool(model._resolve_auto_jit_compile())


def _remembering(compile_model: Any) -> Any:
    @functools.wraps(compile_model)
    def compile(self: Any, *arguments: Any, **named: Any) -> Any:
        given = signature.bind(self, *arguments, **named).arguments.get("jit_compile", AUTO)
        result = compile_model(self, *arguments, **named)
        _given[self] = given
        return result

    signature = inspect.signature(compile_model)
    return compile


def _forgetting(compile_from_config: Any) -> Any:
    # A saved model holds what "auto" was taken for.
    @functools.wraps(compile_from_config)
    def compile(self: Any, config: Any) -> Any:
        result = compile_from_config(self, config)
        _given.pop(self, None)
        return result

    return compile


def _choosing(make_train_function: Any) -> Any:
    @functools.wraps(make_train_function)
    def choose(self: Any, force: bool = False) -> Any:
        xla = self.jit_compile and not self.run_eagerly
        avoids = _on and xla and chooses_xla(self)
        if _on and xla and not avoids:
            _warn(self)
        if avoids != (self in _without_xla):
            force = True
        if not avoids:
            _without_xla.discard(self)
            return make_train_function(self, force)
        _without_xla.add(self)
        self._jit_compile = False
        try:
            return make_train_function(self, force)
        finally:
            self._jit_compile = True

    return choose


def _warn(model: Any) -> None:
    if model in _warned:
        return
    _warned.add(model)
    warnings.warn(
        f"Stash does nothing for the model {model.name!r}: it is compiled with jit_compile=True, and graph optimizers "
        "never see what XLA compiles. Compile it without.",
        RuntimeWarning,
        stacklevel=4,
    )
