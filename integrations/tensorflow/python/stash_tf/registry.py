# SPDX-License-Identifier: Apache-2.0
"""Stash through TensorFlow's registry of gradients, as a cross-check of the graph optimizer.

    with stash_tf.registry.gradients(conv2d="fp8"):
        step(x, y)        # traced in here: its ReLUs, max-poolings and convolutions get our gradients

What is traced inside the block has our gradients for ever; what was traced before, and eager execution, has
TensorFlow's. Other ops, fused ones among them, are not covered: this is no way to train, it shows by another
route what the graph optimizer should reach. It uses private parts of TensorFlow's Python.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from . import gates
from .errors import StashError
from .library import load

_lock = threading.Lock()


@contextlib.contextmanager
def gradients(
    *, relu: bool = True, max_pool: bool = True, conv2d: str | None = None
) -> Iterator[dict[str, int]]:
    """Gradients of Relu, MaxPool and, kept in the encoding `conv2d`, of the input of Conv2D; for the whole
    process.

    Yields how many gradients of each were built.
    """
    built = {"Relu": 0, "MaxPool": 0, "Conv2D": 0}
    ours: dict[str, Callable[..., Any]] = {}
    if relu:
        ours["Relu"] = _relu
    if max_pool:
        ours["MaxPool"] = _max_pool
    if conv2d is not None:
        ours["Conv2D"] = lambda op, dy: _conv2d(op, dy, conv2d)
    if not _lock.acquire(blocking=False):
        raise StashError("registry.gradients: it is in force already")
    try:
        load()
        entries = _entries()
        before = {op: entries[op]["type"] for op in ours}
        for op, gradient in ours.items():
            entries[op]["type"] = _tracing_only(op, gradient, before[op], built)
        try:
            yield built
        finally:
            for op, gradient in before.items():
                entries[op]["type"] = gradient
    finally:
        _lock.release()


def _entries() -> dict[str, dict[str, Any]]:
    from tensorflow.python.framework import ops

    try:
        entries = ops.gradient_registry._registry
        if all(callable(entries[op]["type"]) for op in ("Relu", "MaxPool", "Conv2D")):
            return entries
    except (AttributeError, KeyError):
        pass
    raise StashError(f"registry.gradients: TensorFlow {tf.__version__} keeps its gradients in another way")


def _tracing_only(
    name: str, ours: Callable[..., Any], plain: Callable[..., Any], built: dict[str, int]
) -> Callable[..., Any]:
    def gradient(op: Any, dy: Any) -> Any:
        if not tf.inside_function():
            return plain(op, dy)
        found = ours(op, dy)
        if found is None:
            return plain(op, dy)
        built[name] += 1
        return found

    return gradient


def _relu(op: Any, dy: Any) -> Any:
    y = op.outputs[0]
    stored, _ = load().ops.stash_encode(x=y, encoding="sign_mask", tensor=y.name)
    gates.encode_early(stored, y)
    return load().ops.stash_relu_grad(gradients=dy, stored=stored, encoding="sign_mask", tensor=y.name)


def _max_pool(op: Any, dy: Any) -> Any:
    """The pooling has run without argmax: a second one, whose values nobody reads, finds them."""
    x = op.inputs[0]
    shape = {
        "ksize": op.get_attr("ksize"),
        "strides": op.get_attr("strides"),
        "padding": op.get_attr("padding").decode(),
        "explicit_paddings": op.get_attr("explicit_paddings"),
        "data_format": op.get_attr("data_format").decode(),
        "tensor": op.outputs[0].name,
    }
    if shape["data_format"] not in ("NHWC", "NCHW"):
        return None
    _, stored, dims = load().ops.stash_max_pool(x=x, **shape)
    gates.encode_early(stored, x)
    dx = load().ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, **shape)
    dx.set_shape(x.shape)
    return dx


def _conv2d(op: Any, dy: Any, encoding: str) -> Any:
    x, filters = op.inputs
    if x.op.type == "Placeholder":  # the batch itself: it stays alive anyway
        return None
    shape = {
        "strides": op.get_attr("strides"),
        "padding": op.get_attr("padding").decode(),
        "explicit_paddings": op.get_attr("explicit_paddings"),
        "dilations": op.get_attr("dilations"),
        "data_format": op.get_attr("data_format").decode(),
    }
    of_x, of_filters = tf.shape(x), tf.shape(filters)
    stored, dims = load().ops.stash_encode(x=x, encoding=encoding, tensor=x.name)
    gates.encode_early(stored, x)
    with gates.decode_late(dy):
        kept = load().ops.stash_decode(stored=stored, dims=dims, T=x.dtype, encoding=encoding, tensor=x.name)
    kept.set_shape(x.shape)
    dw = tf.raw_ops.Conv2DBackpropFilter(input=kept, filter_sizes=of_filters, out_backprop=dy, **shape)
    with tf.control_dependencies([dw]):
        dx = tf.raw_ops.Conv2DBackpropInput(input_sizes=of_x, filter=filters, out_backprop=dy, **shape)
    return [dx, dw]
