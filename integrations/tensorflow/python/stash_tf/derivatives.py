# SPDX-License-Identifier: Apache-2.0
"""Derivatives of our backward ops: what a tape around a tape asks for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .errors import StashError

NONE = (
    "{name}: there is no second derivative, because the backward pass reads stored forms of tensors; "
    "take TensorFlow's own op where gradients of gradients are wanted"
)


def register(ops: Any) -> None:
    """Once per process, with the ops of the library."""

    @tf.RegisterGradient("StashReluGrad")
    def _relu(op: Any, dy: Any) -> list[Any]:
        encoding = _text(op.get_attr("encoding"))
        return [ops.stash_relu_grad(gradients=dy, stored=op.inputs[1], encoding=encoding), None]

    @tf.RegisterGradient("StashDropoutGrad")
    def _dropout(op: Any, dy: Any) -> list[Any]:
        return [ops.stash_dropout_grad(gradients=dy, stored=op.inputs[1], rate=op.get_attr("rate")), None]

    @tf.RegisterGradient("StashMaxPoolGrad")
    def _max_pool(op: Any, dy: Any) -> list[Any]:
        return refuse("max_pool")


def refuse(name: str) -> Any:
    """Raises the error of a second derivative that is not there."""
    raise StashError(NONE.format(name=name))


def only_once(name: str, *tensors: Any) -> list[Any]:
    """The same tensors, but no tape gets a gradient through them."""

    @tf.custom_gradient
    def same(*tensors: Any) -> tuple[Any, Any]:
        return [tf.identity(tensor) for tensor in tensors], lambda *dy: refuse(name)

    return same(*tensors)


def _text(attribute: Any) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else attribute
