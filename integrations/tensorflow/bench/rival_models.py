# SPDX-License-Identifier: Apache-2.0
"""Networks whose blocks can be wrapped in keras.remat, for rivals.py.

MODELS[name](remat) returns (model, batch) where batch() gives the inputs and targets of a step, the same at every call.
With `remat` the backward pass runs each block again (keras.remat, which is tf.recompute_grad here). All start from the
same weights."""

import functools

import keras
import numpy as np

L = keras.layers
CLASSES = 10


class Block(keras.layers.Layer):
    """A functional model as one layer. keras.remat takes functions whose variables exist, and the functional API has none
    to wrap; the phase is given by hand, because the second run happens outside of the model's call."""

    def __init__(self, inner, remat):
        super().__init__()
        self.inner, self.remat = inner, remat

    def call(self, x, training=False):
        if not (self.remat and training):
            return self.inner(x, training=training)
        return keras.remat(lambda x: self.inner(x, training=True))(x)


def block(x, body, remat):
    """What a block of these layers makes of x."""
    inputs = keras.Input(x.shape[1:])
    return Block(keras.Model(inputs, body(inputs)), remat)(x)


def images(batch, shape):
    def made():
        rng = np.random.default_rng(17)
        return rng.random((batch, *shape), dtype=np.float32), rng.integers(0, CLASSES, batch).astype(np.int32)

    return made


def classified(inputs, x, batch):
    if len(x.shape) == 4:
        x = L.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, L.Dense(CLASSES)(x)), images(batch, inputs.shape[1:])


def conv_norm_silu(remat, batch=16, size=64, channels=32, blocks=6):
    """Six times convolution, batch norm and SiLU."""
    x = inputs = keras.Input((size, size, 3))
    for _ in range(blocks):
        x = block(x, lambda x: L.Activation("silu")(
            L.BatchNormalization()(L.Conv2D(channels, 3, padding="same", use_bias=False)(x))), remat)
    return classified(inputs, x, batch)


def inverted_residual(x, channels, stride, activation, squeeze):
    """The block of MobileNetV2; with `squeeze`, that of EfficientNet."""
    wide = 6 * x.shape[-1]
    y = L.BatchNormalization()(L.Conv2D(wide, 1, use_bias=False)(x))
    y = L.BatchNormalization()(L.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(activation(y)))
    y = activation(y)
    if squeeze:
        gate = L.Conv2D(x.shape[-1] // 4, 1, activation="silu")(L.GlobalAveragePooling2D(keepdims=True)(y))
        y = L.Multiply()([y, L.Conv2D(wide, 1, activation="sigmoid")(gate)])
    y = L.BatchNormalization()(L.Conv2D(channels, 1, use_bias=False)(y))
    return L.Add()([x, y]) if stride == 1 and x.shape[-1] == channels else y


def inverted_residuals(remat, activation, squeeze, batch=8, size=96):
    x = inputs = keras.Input((size, size, 3))
    x = block(x, lambda x: activation(L.BatchNormalization()(
        L.Conv2D(16, 3, 2, padding="same", use_bias=False)(x))), remat)
    for channels, stride, repeats in ((24, 2, 2), (40, 2, 3), (80, 2, 3), (112, 1, 3), (192, 2, 2)):
        for index in range(repeats):
            x = block(x, functools.partial(inverted_residual, channels=channels, stride=1 if index else stride,
                                           activation=activation, squeeze=squeeze), remat)
    return classified(inputs, x, batch)


def mobilenet_like(remat):
    return inverted_residuals(remat, lambda x: L.ReLU(6.0)(x), False)


def efficientnet_like(remat):
    return inverted_residuals(remat, lambda x: L.Activation("silu")(x), True)


def attention_block(x, heads=4):
    width = x.shape[-1]
    y = L.LayerNormalization()(x)
    x = L.Add()([x, L.MultiHeadAttention(heads, width // heads)(y, y)])
    y = L.Dense(4 * width, activation="gelu")(L.LayerNormalization()(x))
    return L.Add()([x, L.Dense(width)(y)])


def vit_like(remat, batch=8, size=96, patch=8, width=128, blocks=6):
    inputs = keras.Input((size, size, 3))
    x = L.Reshape(((size // patch) ** 2, width))(L.Conv2D(width, patch, patch)(inputs))
    for _ in range(blocks):
        x = block(x, attention_block, remat)
    return classified(inputs, L.GlobalAveragePooling1D()(L.LayerNormalization()(x)), batch)


def lstm(remat, batch=32, steps=100, features=64, width=256):
    """Two layers, each a block of its own. Keras asks tf.while_loop for swap_memory in any case."""
    x = inputs = keras.Input((steps, features))
    for sequences in (True, False):
        x = block(x, lambda x: L.LSTM(width, return_sequences=sequences)(x), remat)  # noqa: B023 (called at once)
    return classified(inputs, x, batch)


MODELS = {"conv_norm_silu": conv_norm_silu, "mobilenet_like": mobilenet_like, "efficientnet_like": efficientnet_like,
          "vit_like": vit_like, "lstm": lstm}
