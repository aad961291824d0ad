# SPDX-License-Identifier: Apache-2.0
"""Networks that the tests and benchmarks train.

MODELS[name] is an Entry: build() returns (model, loss, batch), where batch(index, size) returns the inputs and targets
of one step as numpy arrays, the same at every call. Weights come from keras.utils.set_random_seed. Only the last layer
leaves the dtype policy that is set when build() is called: logits are float32.
"""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np

L = keras.layers
CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Entry:
    build: Callable
    batch: int  # samples per step unless the caller says otherwise


def images(shape, classes=CLASSES, dense=False):
    """batch() of images in [0, 1) with one class each, or with one class per pixel."""

    def batch(index, size):
        rng = np.random.default_rng((17, index))
        targets = (size, *shape[:-1]) if dense else (size,)
        return rng.random((size, *shape), dtype=np.float32), rng.integers(0, classes, targets).astype(np.int32)

    return batch


def cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def classify(shape, body):
    """(model, loss, batch) of a classifier: body maps the input to a map or a vector."""
    inputs = keras.Input(shape)
    x = body(inputs)
    if len(x.shape) > 2:
        x = {4: L.GlobalAveragePooling2D, 5: L.GlobalAveragePooling3D}[len(x.shape)]()(x)
    return keras.Model(inputs, L.Dense(CLASSES, dtype="float32")(x)), cross_entropy(), images(shape)


def conv_relu(x, channels, **arguments):
    return L.ReLU()(L.Conv2D(channels, 3, padding="same", **arguments)(x))


def conv_bn(x, channels, relu=True, **arguments):
    x = L.BatchNormalization()(L.Conv2D(channels, 3, padding="same", use_bias=False, **arguments)(x))
    return L.ReLU()(x) if relu else x


def flat(size=128):
    """Twelve equal convolutions: all of the peak is stashed maps of one size."""

    def body(x):
        for _ in range(12):
            x = conv_relu(x, 16)
        return L.MaxPooling2D(2)(x)

    return classify((size, size, 3), body)


def vgg(size=256):
    """Eight convolutions, four poolings: the first two maps dominate."""

    def body(x):
        for channels in (16, 32, 64, 64):
            x = L.MaxPooling2D(2)(conv_relu(conv_relu(x, channels), channels))
        return x

    return classify((size, size, 3), body)


def resnet_bn(size=32):
    def body(x):
        x = conv_bn(x, 16)
        for channels, strides in ((16, 1), (32, 2), (64, 2)):
            shortcut = x
            if strides > 1:
                shortcut = L.BatchNormalization()(L.Conv2D(channels, 1, strides=strides, use_bias=False)(x))
            y = conv_bn(conv_bn(x, channels, strides=strides), channels, relu=False)
            x = L.ReLU()(L.Add()([y, shortcut]))
        return x

    return classify((size, size, 3), body)


def unet(dimensions, size, channels):
    """One class per pixel; the way up is a transposed convolution, then an upsampling."""
    convolution = {2: L.Conv2D, 3: L.Conv3D}[dimensions]
    transposed = {2: L.Conv2DTranspose, 3: L.Conv3DTranspose}[dimensions]
    upsampling = {2: L.UpSampling2D, 3: L.UpSampling3D}[dimensions]
    pooling = {2: L.MaxPooling2D, 3: L.MaxPooling3D}[dimensions]

    def block(x, width):
        for _ in range(2):
            x = convolution(width, 3, padding="same", activation="relu")(x)
        return x

    shape = (*[size] * dimensions, 1)
    inputs = keras.Input(shape)
    first = block(inputs, channels)
    second = block(pooling(2)(first), 2 * channels)
    x = block(pooling(2)(second), 4 * channels)
    x = transposed(2 * channels, 2, strides=2, activation="relu")(x)
    x = block(L.Concatenate()([second, x]), 2 * channels)
    x = block(L.Concatenate()([first, upsampling(2)(x)]), channels)
    logits = convolution(3, 1, dtype="float32")(x)
    return keras.Model(inputs, logits), cross_entropy(), images(shape, classes=3, dense=True)


def volumes(size=16):
    """Convolutions over three dimensions, the last one transposed."""

    def body(x):
        x = L.MaxPooling3D(2)(L.Conv3D(8, 3, padding="same", activation="relu")(x))
        x = L.LeakyReLU()(L.BatchNormalization()(L.Conv3D(8, 3, padding="same")(x)))
        return L.Conv3DTranspose(8, 2, strides=2, activation="relu")(x)

    return classify((size, size, size, 1), body)


def seq2seq(unroll=False, steps=24, tokens=60, width=48, attention=L.AdditiveAttention):
    """LSTM encoder and decoder with attention; unroll=False leaves Keras its loop."""
    source, target = keras.Input((steps,), dtype="int32"), keras.Input((steps,), dtype="int32")
    encoded, *state = L.LSTM(width, return_sequences=True, return_state=True, unroll=unroll)(
        L.Embedding(tokens, width)(source))
    decoded = L.LSTM(width, return_sequences=True, unroll=unroll)(L.Embedding(tokens, width)(target),
                                                                  initial_state=state)
    context = attention()([decoded, encoded])
    hidden = L.Dense(width, activation="tanh")(L.Concatenate()([decoded, context]))
    model = keras.Model([source, target], L.Dense(tokens, dtype="float32")(hidden))

    def batch(index, size):
        source, target = np.random.default_rng((19, index)).integers(1, tokens, (2, size, steps), dtype=np.int32)
        return (source, np.pad(target[:, :-1], ((0, 0), (1, 0)))), target

    return model, cross_entropy(), batch


def lstm_unrolled():
    """Two layers over 40 steps: the weights have a gradient for each step, far larger than the maps."""
    steps, features, width = 40, 64, 256
    inputs = keras.Input((steps, features))
    x = L.LSTM(width, unroll=True, return_sequences=True)(inputs)
    model = keras.Model(inputs, L.Dense(CLASSES, dtype="float32")(L.LSTM(width, unroll=True)(x)))
    return model, cross_entropy(), images((steps, features))


def recurrent(layer, steps=96, features=32, width=96):
    """Two layers in loops, whose steps are kept in lists, and one between them that is not."""
    inputs = keras.Input((steps, features))
    x = L.Dense(width, activation="relu")(layer(width, return_sequences=True)(inputs))
    model = keras.Model(inputs, L.Dense(CLASSES, dtype="float32")(layer(width)(x)))
    return model, cross_entropy(), images((steps, features))


def recurrent_stack(layer, **named):
    """Two recurrent layers as people train them: 256 units, 100 steps."""
    steps, features, width = 100, 64, 256
    inputs = keras.Input((steps, features))
    x = layer(width, **named)(layer(width, return_sequences=True, **named)(inputs))
    return keras.Model(inputs, L.Dense(CLASSES, dtype="float32")(x)), cross_entropy(), images((steps, features))


def conv_lstm():
    """Two convolutional LSTMs over ten pictures."""
    inputs = keras.Input((10, 32, 32, 8))
    x = L.ConvLSTM2D(32, 3, padding="same")(L.ConvLSTM2D(32, 3, padding="same", return_sequences=True)(inputs))
    model = keras.Model(inputs, L.Dense(CLASSES, dtype="float32")(L.GlobalAveragePooling2D()(x)))
    return model, cross_entropy(), images((10, 32, 32, 8))


def transformer(dropout=0.1):
    tokens, steps, width = 60, 48, 48
    inputs = keras.Input((steps,), dtype="int32")
    x = L.Embedding(tokens, width)(inputs)
    for _ in range(2):
        y = L.LayerNormalization()(x)
        x = L.Add()([x, L.Dropout(dropout)(L.MultiHeadAttention(4, width // 4)(y, y))])
        y = L.Dense(4 * width, activation="gelu")(L.LayerNormalization()(x))
        x = L.Add()([x, L.Dropout(dropout)(L.Dense(width)(y))])
    x = L.GlobalAveragePooling1D()(L.LayerNormalization()(x))
    model = keras.Model(inputs, L.Dense(CLASSES, dtype="float32")(x))

    def batch(index, size):
        rng = np.random.default_rng((23, index))
        return rng.integers(0, tokens, (size, steps), dtype=np.int32), rng.integers(0, CLASSES, size, dtype=np.int32)

    return model, cross_entropy(), batch


ACTIVATIONS = ("relu6", "leaky_relu", "elu", "sigmoid", "tanh", "swish", "gelu", "softplus")


def activation_zoo(size=32):
    """Every activation between two convolutions, and a dropout."""

    def body(x):
        for activation in ACTIVATIONS:
            x = L.Conv2D(12, 3, padding="same", activation=activation)(x)
        return L.Dropout(0.25)(L.AveragePooling2D(2)(x))

    return classify((size, size, 3), body)


def pooling_zoo(size=36):
    """Poolings with overlapping and uneven windows, with and without padding."""

    def body(x):
        x = L.MaxPooling2D(3, strides=2, padding="same")(conv_relu(x, 12))
        x = L.MaxPooling2D((2, 3), strides=(2, 1), padding="valid")(conv_relu(x, 12))
        return L.MaxPooling2D(3, strides=1, padding="same")(L.Conv2D(12, 3, padding="same")(x))

    return classify((size, size, 3), body)


def application(name, size=96):
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=CLASSES,
                                              classifier_activation=None)
    if model.outputs[0].dtype != "float32":
        model = keras.Model(model.inputs, L.Activation("linear", dtype="float32")(model.outputs[0]))
    return model, cross_entropy(), images((size, size, 3))


MODELS = {
    "flat": Entry(flat, 16),
    "small_flat": Entry(functools.partial(flat, 32), 8),
    "vgg": Entry(vgg, 8),
    "small_vgg": Entry(functools.partial(vgg, 32), 8),
    "resnet_bn": Entry(resnet_bn, 8),
    "unet2d": Entry(functools.partial(unet, 2, 64, 8), 4),
    "unet3d": Entry(functools.partial(unet, 3, 16, 6), 2),
    "volumes": Entry(volumes, 8),
    "seq2seq": Entry(seq2seq, 8),
    "seq2seq_unrolled": Entry(functools.partial(seq2seq, True), 8),
    "lstm_unrolled": Entry(lstm_unrolled, 16),
    "lstm": Entry(functools.partial(recurrent, L.LSTM), 32),
    "gru": Entry(functools.partial(recurrent, L.GRU), 32),
    "lstm_stack": Entry(functools.partial(recurrent_stack, L.LSTM), 32),
    "gru_stack": Entry(functools.partial(recurrent_stack, L.GRU), 32),
    "gru_reset_before": Entry(functools.partial(recurrent_stack, L.GRU, reset_after=False), 32),
    "lstm_dropout": Entry(functools.partial(recurrent_stack, L.LSTM, dropout=0.2, recurrent_dropout=0.2), 32),
    "conv_lstm": Entry(conv_lstm, 8),
    # Luong's attention, and logits that are larger than all else.
    "attention": Entry(functools.partial(seq2seq, steps=100, tokens=2000, width=256, attention=L.Attention), 32),
    "transformer": Entry(transformer, 8),
    "activation_zoo": Entry(activation_zoo, 8),
    "pooling_zoo": Entry(pooling_zoo, 8),
    **{name: Entry(functools.partial(application, name), 8)
       for name in ("MobileNetV2", "EfficientNetB0", "ResNet50", "DenseNet121", "VGG16")},
}
