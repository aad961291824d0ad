# SPDX-License-Identifier: Apache-2.0
"""Keras layers on stash_tf.nn; weights and configurations are those of Keras' layers of the same names."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from . import nn
from .errors import StashError, expected

if keras.backend.backend() != "tensorflow":
    raise StashError(
        f"stash_tf.layers: Keras runs on {keras.backend.backend()!r}; they need the backend 'tensorflow'"
    )

_registered = keras.saving.register_keras_serializable(package="stash_tf")


@_registered
class ReLU(keras.layers.Layer):
    """max(x, 0), of which the backward pass reads one bit per element.

    Keras' other arguments are there for its configurations: only the values that change nothing are accepted.
    """

    def __init__(
        self, max_value: Any = None, negative_slope: Any = 0.0, threshold: Any = 0.0, **arguments: Any
    ) -> None:
        for name, value, neutral in (
            ("max_value", max_value, None),
            ("negative_slope", negative_slope, 0.0),
            ("threshold", threshold, 0.0),
        ):
            if value is not None and value != neutral:
                raise expected("ReLU", name, f"{neutral}, or keras.layers.ReLU", value)
        super().__init__(**arguments)
        self.supports_masking = True
        self.supports_jit = False

    def call(self, inputs: Any) -> Any:
        """The layer's function."""
        return nn.relu(inputs, name=self.name)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """That of keras.layers.ReLU."""
        return {**super().get_config(), "max_value": None, "negative_slope": 0.0, "threshold": 0.0}


@_registered
class MaxPool2D(keras.layers.MaxPooling2D):
    """Max-pooling of which the backward pass reads the argmax."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.supports_jit = False

    def call(self, inputs: Any) -> Any:
        """The layer's function."""
        layout = "NHWC" if self.data_format == "channels_last" else "NCHW"
        return nn.max_pool(inputs, self.pool_size, self.strides, self.padding, layout, name=self.name)


@_registered
class Conv2D(keras.layers.Conv2D):
    """Convolution whose input the backward pass reads as `encoding` keeps it (see stash_tf.nn.conv2d)."""

    def __init__(self, *arguments: Any, encoding: str = "fp8", **options: Any) -> None:
        nn.check_encoding("Conv2D", encoding)
        super().__init__(*arguments, **options)
        self.encoding = encoding
        self.supports_jit = False
        if self.groups != 1:
            raise StashError(f"Conv2D: groups: expected 1, got {self.groups}")

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        """The convolution itself; bias and activation stay with Keras."""
        layout = "NHWC" if self.data_format == "channels_last" else "NCHW"
        return nn.conv2d(
            inputs,
            kernel,
            strides=self.strides,
            padding=self.padding,
            data_format=layout,
            dilations=self.dilation_rate,
            encoding=self.encoding,
            name=self.name,
        )

    def get_config(self) -> dict[str, Any]:
        """That of keras.layers.Conv2D and the encoding."""
        return {**super().get_config(), "encoding": self.encoding}


@_registered
class Dropout(keras.layers.Dropout):
    """Dropout of which the backward pass reads one bit per element."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.supports_jit = False
        if self.noise_shape is not None:
            raise StashError(f"Dropout: noise_shape: expected None, got {self.noise_shape}")

    def call(self, inputs: Any, training: bool = False) -> Any:
        """The layer's function."""
        if not training or self.rate == 0:
            return inputs
        seed = self.seed_generator.next()
        if self.rate == 1:
            return tf.where(tf.zeros_like(inputs, tf.bool), inputs, tf.zeros_like(inputs))
        return nn.dropout(inputs, self.rate, seed, name=self.name)
