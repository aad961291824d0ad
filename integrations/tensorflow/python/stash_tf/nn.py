# SPDX-License-Identifier: Apache-2.0
"""Functions with a gradient that reads an encoded tensor: Stash by hand, without the graph optimizer.

They run in tf.function and eagerly, and save memory in both. `name` is the tensor's name in stash_tf.report().
Second derivatives: relu and dropout have them, max_pool and conv2d raise StashError.
"""

from __future__ import annotations

import numbers
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

from . import derivatives, gates
from .errors import expected
from .library import load

Tensor = Any
Gradient = Callable[..., Any]

TYPES = (tf.float32, tf.float16, tf.bfloat16)


@tf.autograph.experimental.do_not_convert
def relu(x: Tensor, name: str = "relu") -> Tensor:
    """tf.nn.relu; the backward pass reads one bit per element. Bit for bit the same."""
    ops = load().ops

    def forward(x: Tensor) -> tuple[Tensor, Gradient]:
        y = tf.nn.relu(x)
        encoded = _Encoded(y, "sign_mask", name)

        def gradient(dy: Tensor) -> Tensor:
            encoded.early()
            return ops.stash_relu_grad(gradients=dy, stored=encoded.stored, encoding="sign_mask", tensor=name)

        return y, gradient

    return _differentiable(forward, _floats("relu", x))


@tf.autograph.experimental.do_not_convert
def max_pool(
    x: Tensor,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str = "VALID",
    data_format: str = "NHWC",
    name: str = "max_pool",
) -> Tensor:
    """tf.nn.max_pool; the backward pass reads the argmax of each window, a few bits."""
    ops = load().ops
    _one_of("max_pool", "data_format", data_format, ("NHWC", "NCHW", "NDHWC", "NCDHW"))
    rank = len(data_format)
    shape = {
        "ksize": _window("max_pool", "ksize", ksize, data_format),
        "strides": _window("max_pool", "strides", strides, data_format),
        "padding": _padding("max_pool", padding),
        "data_format": data_format,
        "tensor": name,
    }

    def forward(x: Tensor) -> tuple[Tensor, Gradient]:
        static = x.shape
        y, stored, dims = ops.stash_max_pool(x=x, **shape)

        def gradient(dy: Tensor) -> Tensor:
            dx = ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, **shape)
            dx.set_shape(static)
            return dx

        return y, gradient

    x = _floats("max_pool", x)
    if x.shape.rank not in (None, rank):
        raise expected("max_pool", "x", f"{rank} dimensions, as {data_format} says", x.shape)
    return _differentiable(forward, x)


@tf.autograph.experimental.do_not_convert
def conv2d(
    x: Tensor,
    filters: Tensor,
    strides: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    dilations: int | Sequence[int] = 1,
    encoding: str = "fp8",
    name: str = "conv2d",
) -> Tensor:
    """tf.nn.conv2d; the gradient of the filters reads x as `encoding` keeps it.

    encoding: "fp16", "bf16", "fp10", "fp8", "bitmap" or "csr" (lossless, for many zeros), "bitmap_fp8" and so
        on.
    """
    ops = load().ops
    check_encoding("conv2d", encoding)
    _one_of("conv2d", "data_format", data_format, ("NHWC", "NCHW"))
    shape = {
        "strides": _window("conv2d", "strides", strides, data_format),
        "padding": _padding("conv2d", padding),
        "data_format": data_format,
        "dilations": _window("conv2d", "dilations", dilations, data_format),
    }

    def forward(x: Tensor, filters: Tensor) -> tuple[Tensor, Gradient]:
        static, size, of_filters, kind = x.shape, tf.shape(x), tf.shape(filters), x.dtype
        encoded = _Encoded(x, encoding, name)

        def gradient(dy: Tensor) -> tuple[Tensor, Tensor]:
            encoded.early()
            dy, weights, _ = derivatives.only_once("conv2d", dy, filters, of_x)
            with gates.decode_late(dy):
                kept = ops.stash_decode(
                    stored=encoded.stored, dims=encoded.dims, T=kind, encoding=encoding, tensor=name
                )
            kept.set_shape(static)
            dw = tf.raw_ops.Conv2DBackpropFilter(input=kept, filter_sizes=of_filters, out_backprop=dy, **shape)
            with tf.control_dependencies([dw]):  # the decoded tensor is dead before dx comes
                dx = tf.raw_ops.Conv2DBackpropInput(input_sizes=size, filter=weights, out_backprop=dy, **shape)
            return dx, dw

        return tf.raw_ops.Conv2D(input=x, filter=filters, **shape), gradient

    x = _floats("conv2d", x)
    # Tapes do not see that the gradient of the filters is a function of x: they follow no bytes. They follow this zero.
    of_x = _differentiable(lambda x: (tf.zeros([], x.dtype), lambda dy: derivatives.refuse("conv2d")), x)
    return _differentiable(forward, x, tf.convert_to_tensor(filters, dtype=x.dtype))


@tf.autograph.experimental.do_not_convert
def dropout(x: Tensor, rate: float, seed: Tensor, name: str = "dropout") -> Tensor:
    """Dropout whose backward pass reads one bit per element. seed: two whole numbers; the same ones, the same
    bits.

    The numbers are not those of tf.nn.dropout.
    """
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 <= rate < 1:
        raise expected("dropout", "rate", "a number in [0, 1)", rate)
    rate = float(rate)
    ops = load().ops
    x = tf.convert_to_tensor(x)
    seed = tf.cast(seed, tf.int64)

    def forward(x: Tensor) -> tuple[Tensor, Gradient]:
        y, stored = ops.stash_dropout(x=x, seed=seed, rate=rate, tensor=name)

        def gradient(dy: Tensor) -> Tensor:
            return ops.stash_dropout_grad(gradients=dy, stored=stored, rate=rate, tensor=name)

        return y, gradient

    if x.dtype not in TYPES:
        return tf.cast(_differentiable(forward, tf.cast(x, tf.float32)), x.dtype)
    return _differentiable(forward, x)


def check_encoding(where: str, encoding: object) -> None:
    """Raises StashError if this is not an encoding that gives values back."""
    formats = "|".join(load().formats)
    if not isinstance(encoding, str) or not re.fullmatch(f"raw|(bitmap_|csr_)?({formats})|bitmap|csr", encoding):
        what = "raw, a format of values (fp16, bf16, fp10, fp8, ...), bitmap or csr, or one of these two with a format"
        raise expected(where, "encoding", f"{what} (bitmap_fp8)", encoding)


class _Encoded:
    """An encoded tensor. While a graph is traced it knows the dense one too, for the edges of gates.py."""

    def __init__(self, dense: Tensor, encoding: str, name: str) -> None:
        self.stored, self.dims = load().ops.stash_encode(x=dense, encoding=encoding, tensor=name)
        self._dense = None if tf.executing_eagerly() else dense

    def early(self) -> None:
        """The encoder runs before other readers of the tensor."""
        if self._dense is not None:
            gates.encode_early(self.stored, self._dense)


def _differentiable(forward: Callable[..., tuple[Tensor, Gradient]], *inputs: Tensor) -> Tensor:
    """forward(*inputs) with the gradient that it returns.

    tf.custom_gradient would keep the result, and what the ops inside keep, alive when it runs eagerly.
    """
    inputs = tuple(tf.convert_to_tensor(one) for one in inputs)
    if not tf.executing_eagerly():
        return tf.custom_gradient(forward)(*inputs)
    with record.stop_recording():
        result, gradient = forward(*inputs)
    record.record_operation("Stash", [result], list(inputs), lambda dy: tf.nest.flatten(gradient(dy)))
    return result


def _window(where: str, name: str, value: int | Sequence[int], data_format: str) -> list[int]:
    """One number per dimension, from one for all, one per spatial dimension, or all of them."""
    spatial = len(data_format) - 2
    what = f"1, {spatial} or {spatial + 2} whole numbers"
    try:
        listed = [value] * spatial if not hasattr(value, "__len__") else list(value)
        if any(isinstance(number, bool) for number in listed):
            raise TypeError
        sizes = [operator.index(number) for number in listed]
    except TypeError as error:
        raise expected(where, name, what, value) from error
    if len(sizes) == spatial:
        sizes = [1, 1, *sizes] if data_format.startswith("NC") else [1, *sizes, 1]
    if len(sizes) != spatial + 2:
        raise expected(where, name, what, value)
    return sizes


def _floats(where: str, x: Tensor) -> Tensor:
    x = tf.convert_to_tensor(x)
    if x.dtype not in TYPES:
        raise expected(where, "x", "float32, float16 or bfloat16", x.dtype.name)
    return x


def _padding(where: str, padding: object) -> str:
    upper = padding.upper() if isinstance(padding, str) else padding
    _one_of(where, "padding", upper, ("SAME", "VALID"))
    return str(upper)


def _one_of(where: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise expected(where, name, "one of " + ", ".join(choices), value)
