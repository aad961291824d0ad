#!/usr/bin/env python3
"""Small training steps in many shapes, each run plain and with Stash in this one process.

    TF_ENABLE_ONEDNN_OPTS=0 steps.py [NAME ...] [--policy lossless] [--peak] [--inter 1] [--steps 3]

prints a line of JSON for each: whether losses and weights are the same bit by bit, what Stash made of it, what
TensorFlow said on stderr meanwhile. STEPS[name]() builds a step anew from the same seed: a Task."""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import re
import sys
import tempfile
import traceback
from typing import Any, Callable

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
if os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0":
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"  # or it does not tell of its memory

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

L = keras.layers
BATCH, CLASSES = 8, 10
SIZE = int(os.environ.get("STEPS_SIZE", "24"))  # of the pictures; larger ones for peaks
STEPS: dict[str, Callable[[], "Task"]] = {}
IDLE: dict[str, str] = {}  # steps in which there is nothing to do, and why
LOOPS: list[str] = []  # steps in which there is at most the order of loops to change
FORWARD = ("only_forward",)  # steps that do not train


@dataclasses.dataclass
class Task:
    call: Callable[[int], Any]  # the k-th step: its losses
    variables: Callable[[], list[Any]]


def step(function=None, *, idle="", loops=False):
    """Enters a function that returns a Task under its name."""
    if function is None:
        return lambda function: step(function, idle=idle, loops=loops)
    STEPS[function.__name__] = function
    if loops:
        LOOPS.append(function.__name__)
    if idle:
        IDLE[function.__name__] = idle
    return function


def rng(*key):
    return np.random.default_rng((7, *key))


def pictures(index=0, batch=BATCH, size=SIZE, channels=3):
    data = rng(index)
    return (data.standard_normal((batch, size, size, channels)).astype("float32"),
            data.integers(0, CLASSES, batch).astype("int32"))


def crossed():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def built(model, name="sgd"):
    """The optimizer of a model, with its variables."""
    optimizer = optimizer_of(name)
    optimizer.build(model.trainable_variables)
    return optimizer


def optimizer_of(name="sgd"):
    if name == "momentum":
        return keras.optimizers.SGD(0.01, momentum=0.9)
    return {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}[name](0.01)


def fitted(model, batch_of=pictures, loss=None, optimizer="sgd", batches=2, batch_size=BATCH, **compiled):
    """Keras' own loop; a call is an epoch of some batches."""
    model.compile(optimizer_of(optimizer) if isinstance(optimizer, str) else optimizer, loss or crossed(), **compiled)
    each = [batch_of(index) for index in range(batches)]
    x, y = keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *each)

    def call(_):
        return model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0).history["loss"]

    return Task(call, lambda: model.variables + model.optimizer.variables)


def looped(function, batch_of=pictures, variables=lambda: []):
    """A tf.function that is called with one batch after another."""

    def call(index):
        return function(*keras.tree.map_structure(tf.constant, batch_of(index)))

    return Task(call, variables)


def network(body, shape=(SIZE, SIZE, 3), dtype="float32", head=True):
    inputs = keras.Input(shape, dtype=dtype)
    x = body(inputs)
    if head:
        while len(x.shape) > 2:
            x = keras.ops.mean(x, axis=1)
        x = L.Dense(CLASSES, dtype="float32", name="head")(x)
    return keras.Model(inputs, x)


def conv(x, channels=8, kernel=3, activation="relu", **options):
    return L.Conv2D(channels, kernel, padding="same", activation=activation, **options)(x)


def plain_network(**options):
    return network(lambda x: conv(conv(L.MaxPooling2D(2)(conv(conv(x, **options), **options)), **options), **options))


def weights(*shapes):
    data = rng(99)
    return [tf.Variable((data.standard_normal(shape) * 0.1).astype("float32")) for shape in shapes]


# ---- Layers and functions between convolutions ----------------------------------------------------------------------

MIDDLES: dict[str, Callable[[Any], Any]] = {
    "separable": lambda x: L.SeparableConv2D(8, 3, padding="same", activation="relu")(x),
    "depthwise": lambda x: L.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="relu")(x),
    "grouped": lambda x: L.Conv2D(8, 3, padding="same", groups=4, activation="relu")(x),
    "dilated": lambda x: L.Conv2D(8, 3, padding="same", dilation_rate=2, activation="relu")(x),
    "strided_valid": lambda x: L.Conv2D(8, 3, strides=2, padding="valid", activation="relu")(x),
    "no_bias": lambda x: L.Conv2D(8, 3, padding="same", use_bias=False, activation="relu")(x),
    "one_by_one": lambda x: L.Conv2D(8, 1, activation="relu")(x),
    "transposed": lambda x: L.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu")(x),
    "upsampling_bilinear": lambda x: L.UpSampling2D(2, interpolation="bilinear")(x),
    "upsampling_nearest": lambda x: L.UpSampling2D(2)(x),
    "resizing": lambda x: L.Resizing(17, 19)(x),
    "padding": lambda x: L.ZeroPadding2D(2)(x),
    "cropping": lambda x: L.Cropping2D(3)(x),
    "layer_norm": lambda x: L.LayerNormalization()(x),
    "group_norm": lambda x: L.GroupNormalization(4)(x),
    "unit_norm": lambda x: L.UnitNormalization()(x),
    "batch_norm": lambda x: L.ReLU()(L.BatchNormalization()(x)),
    "batch_norm_off": lambda x: L.ReLU()(L.BatchNormalization()(x, training=False)),
    "batch_norm_raw": lambda x: tf_batch_norm(x),
    "lrn": lambda x: Function(lambda x: tf.nn.local_response_normalization(x, 2))(x),
    "dropout": lambda x: L.Dropout(0.3)(x),
    "spatial_dropout": lambda x: L.SpatialDropout2D(0.3)(x),
    "gaussian_noise": lambda x: L.GaussianNoise(0.3)(x),
    "gaussian_dropout": lambda x: L.GaussianDropout(0.3)(x),
    "alpha_dropout": lambda x: L.AlphaDropout(0.3)(x),
    "prelu": lambda x: L.PReLU(shared_axes=[1, 2])(conv(x, activation=None)),
    "relu6": lambda x: L.ReLU(max_value=6)(conv(x, activation=None)),
    "relu6_flatten": lambda x: L.Reshape((4, 4, 4))(L.Dense(64)(L.Flatten()(L.ReLU(6)(conv(x, activation=None))))),
    "relu6_dense_on_maps": lambda x: L.Dense(8)(L.ReLU(max_value=6)(conv(x, activation=None))),
    "relu6_reshape": lambda x: conv(L.Reshape((8, -1, 8))(L.ReLU(max_value=6)(conv(x, activation=None)))),
    "relu6_slope": lambda x: L.ReLU(max_value=6, negative_slope=0.1)(conv(x, activation=None)),
    "relu_threshold": lambda x: L.ReLU(threshold=0.2)(conv(x, activation=None)),
    "relu_of_relu": lambda x: L.ReLU()(L.ReLU()(conv(x, activation=None))),
    "leaky_relu": lambda x: L.LeakyReLU(0.3)(conv(x, activation=None)),
    "softmax": lambda x: L.Softmax()(conv(x, activation=None)),
    **{name: (lambda name: lambda x: L.Activation(name)(conv(x, activation=None)))(name)
       for name in ("elu", "selu", "gelu", "silu", "mish", "sigmoid", "tanh", "softplus", "softsign", "exponential",
                    "hard_sigmoid", "hard_silu", "log_softmax", "relu", "celu", "hard_tanh", "squareplus",
                    "sparse_plus", "tanh_shrink", "hard_shrink")},
    "gelu_tanh": lambda x: Function(lambda x: tf.nn.gelu(x, approximate=True))(conv(x, activation=None)),
    "crelu": lambda x: Function(tf.nn.crelu)(conv(x, activation=None)),
    "max_pool_same": lambda x: L.MaxPooling2D(3, strides=2, padding="same")(x),
    "max_pool_overlap": lambda x: L.MaxPooling2D(3, strides=1, padding="valid")(x),
    "max_pool_twice": lambda x: L.MaxPooling2D(2)(L.MaxPooling2D(2)(x)),
    "max_pool_two_readers": lambda x: L.Concatenate()([L.MaxPooling2D(2)(x), L.MaxPooling2D(2)(x)]),
    "max_pool_and_skip": lambda x: L.Concatenate()([L.UpSampling2D(2)(L.MaxPooling2D(2)(x)), x]),
    "max_pool_of_sum": lambda x: L.MaxPooling2D(2)(x + conv(x)),
    "max_pool_large": lambda x: L.MaxPooling2D(8)(x),
    "max_pool_one": lambda x: L.MaxPooling2D(1)(x),
    "max_pool_no_relu": lambda x: L.MaxPooling2D(2)(conv(x, activation=None)),
    "average_pool": lambda x: L.AveragePooling2D(3, strides=2, padding="same")(x),
    "global_max": lambda x: x * L.GlobalMaxPooling2D(keepdims=True)(x),
    "squeeze_excite": lambda x: x * conv(L.GlobalAveragePooling2D(keepdims=True)(x), kernel=1, activation="sigmoid"),
    "add_itself": lambda x: x + x,
    "multiply_itself": lambda x: x * x,
    "concatenate_itself": lambda x: L.Concatenate()([x, x]),
    "residual": lambda x: L.ReLU()(conv(conv(x), activation=None) + x),
    "dense_block": lambda x: (lambda y: L.Concatenate()([x, y, conv(L.Concatenate()([x, y]))]))(conv(x)),
    "activity_regularizer": lambda x: conv(x, activity_regularizer="l2"),
    "activity_l1": lambda x: conv(x, activity_regularizer="l1"),
    "kernel_regularizer": lambda x: conv(x, kernel_regularizer="l2"),
    "permute": lambda x: L.Permute((3, 1, 2))(x),
    "reshape": lambda x: L.Reshape((-1, 16, 1))(x),
    "flatten_dense": lambda x: L.Reshape((4, 4, 4))(L.Dense(64, activation="relu")(L.Flatten()(x))),
    "dense_on_maps": lambda x: L.Dense(8, activation="gelu")(x),
    "einsum_dense": lambda x: L.EinsumDense("bhwc,cd->bhwd", (SIZE, SIZE, 8), activation="relu")(x),
    "time_distributed": lambda x: L.TimeDistributed(L.Conv1D(8, 3, padding="same", activation="relu"))(x),
    "abs": lambda x: keras.ops.abs(x),
    "clip": lambda x: keras.ops.clip(x, 0.1, 0.7),
    "maximum": lambda x: keras.ops.maximum(x, conv(x)),
    "minimum": lambda x: keras.ops.minimum(x, conv(x)),
    "where_positive": lambda x: keras.ops.where(x > 0.2, x, 0.5 * x),
    "sqrt": lambda x: keras.ops.sqrt(x + 1),
    "log": lambda x: keras.ops.log(x + 1),
    "divide": lambda x: x / (1 + conv(x)),
    "power": lambda x: keras.ops.power(x + 1, 1.7),
    "rsqrt": lambda x: keras.ops.rsqrt(x + 1),
    "sin_cos": lambda x: keras.ops.sin(x) * keras.ops.cos(x),
    "reduce_max": lambda x: x - keras.ops.max(x, axis=-1, keepdims=True),
    "logsumexp": lambda x: x - keras.ops.logsumexp(x, axis=-1, keepdims=True),
    "cumsum": lambda x: keras.ops.cumsum(x, axis=1) * 0.1,
    "sort": lambda x: keras.ops.sort(x, axis=-1),
    "top_k": lambda x: keras.ops.top_k(x, 4)[0],
    "gather_argmax": lambda x: keras.ops.take_along_axis(x, keras.ops.argsort(x, axis=-1), axis=-1),
    "one_hot_argmax": lambda x: x * keras.ops.one_hot(keras.ops.argmax(x, axis=-1), 8),
    "round_straight": lambda x: x + keras.ops.stop_gradient(keras.ops.round(x * 4) / 4 - x),
    "stop_gradient": lambda x: conv(keras.ops.stop_gradient(x)) + x,
    "split": lambda x: (lambda a, b: a * keras.ops.sigmoid(b))(*keras.ops.split(x, 2, axis=-1)),
    "stack_unstack": lambda x: sum(keras.ops.unstack(keras.ops.stack([x, 2 * x, x], axis=1), axis=1)),
    "roll": lambda x: keras.ops.roll(x, 3, axis=1),
    "flip": lambda x: keras.ops.flip(x, axis=2),
    "space_to_depth": lambda x: Function(lambda x: tf.nn.space_to_depth(x, 2))(x),
    "depth_to_space": lambda x: Function(lambda x: tf.nn.depth_to_space(x, 2))(x),
    "mirror_pad": lambda x: Function(lambda x: tf.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]], "REFLECT"))(x),
    "strided_slice": lambda x: x[:, ::2, 1::2],
    "fft": lambda x: Function(lambda x: tf.math.real(tf.signal.ifft2d(tf.signal.fft2d(tf.cast(x, tf.complex64)))))(x),
    "double": lambda x: keras.ops.cast(keras.ops.cast(x, "float64") * 2, "float32"),
    "half_inside": lambda x: keras.ops.cast(keras.ops.relu(keras.ops.cast(x, "float16") * 2), "float32"),
    "bfloat_inside": lambda x: keras.ops.cast(keras.ops.tanh(keras.ops.cast(x, "bfloat16") * 2), "float32"),
    "fake_quant": lambda x: Function(lambda x: tf.quantization.fake_quant_with_min_max_args(x, 0, 2))(x),
    "check_numerics": lambda x: Function(lambda x: tf.debugging.check_numerics(x, "maps"))(x),
    "attention": lambda x: L.MultiHeadAttention(2, 4, attention_axes=(1,))(x, x),
    "device": lambda x: Function(on_device)(x),
    "function": lambda x: Function(tf.function(lambda x: tf.nn.relu(x * 2) * x))(x),
    "function_twice": lambda x: Function(twice)(x),
    "cond_always": lambda x: Function(conditional)(x),
    "cond_on_data": lambda x: Function(lambda x: conditional(x, tf.reduce_mean(x) > 0.1))(x),
    "cond_with_conv": lambda x: Convolution(conditional=True)(x),
    "while_steps": lambda x: Function(repeated)(x),
    "while_with_conv": lambda x: Convolution(loop=True)(x),
    "custom_gradient": lambda x: Function(clipped_gradient)(x),
    "custom_gradient_maps": lambda x: Function(own_swish)(x),
    "recomputed": lambda x: Function(tf.recompute_grad(lambda x: tf.nn.relu(x * 2) * tf.nn.tanh(x)))(x),
    "recomputed_conv": lambda x: Convolution(recompute=True)(x),
    "py_function": lambda x: Function(python_inside)(x),
    "print": lambda x: Function(lambda x: with_assertion(x))(x),
    "nothing_left": lambda x: L.Concatenate()([x, x[..., :0]]),
    "one_channel": lambda x: conv(conv(x, 1), 8),
    "conv_lstm": lambda x: L.ConvLSTM2D(4, 3, padding="same")(L.Reshape((4, SIZE // 4, SIZE, 8))(x)),
    "rows_lstm": lambda x: L.TimeDistributed(L.LSTM(8, return_sequences=True))(x),
}


class Function(L.Layer):
    """Any function of tensors as a layer."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, x):
        return self.function(x)

    def compute_output_spec(self, x):
        shape = tf.TensorSpec([BATCH, *x.shape[1:]], x.dtype)
        result = tf.function(lambda x: self.function(x)).get_concrete_function(shape).outputs[0]
        return keras.KerasTensor((x.shape[0], *result.shape[1:]), result.dtype.name)


class Convolution(L.Layer):
    """Two convolutions within a conditional, a loop, or recomputed."""

    def __init__(self, conditional=False, loop=False, recompute=False):
        super().__init__()
        self.conditional, self.loop, self.recompute = conditional, loop, recompute

    def build(self, shape):
        self.kernels = [self.add_weight(shape=(3, 3, shape[-1], shape[-1]), name=f"kernel{k}") for k in range(2)]

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        first, second = (tf.convert_to_tensor(kernel) for kernel in self.kernels)

        def twice(x):
            for kernel in (first, second):
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
            return x

        if self.conditional:
            return tf.cond(tf.reduce_mean(x) > -1, lambda: twice(x), lambda: x)
        if self.loop:
            return tf.while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, twice(x)), (0, x),
                                 shape_invariants=(tf.TensorShape([]), x.shape))[1]
        return tf.recompute_grad(twice)(x)


def tf_batch_norm(x):
    scale = tf.ones([8])
    return Function(lambda x: tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(x, scale, 0 * scale)[0]))(x)


def on_device(x):
    with tf.device("/CPU:0"):
        return tf.nn.relu(x * 2) * x


def twice(x):
    inner = tf.function(lambda x: tf.nn.relu(x * 2 - 1) * x)
    return tf.function(lambda x: inner(inner(x)))(x)


def conditional(x, condition=None):
    if condition is None:
        condition = tf.shape(x)[0] > 0
    return tf.cond(condition, lambda: tf.nn.relu(x * 2) * x, lambda: tf.nn.tanh(x))


def repeated(x):
    return tf.while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, tf.nn.relu(x * 2) * tf.nn.tanh(x)), (0, x))[1]


@tf.custom_gradient
def clipped_gradient(x):
    return tf.identity(x), lambda dy: tf.clip_by_value(dy, -1e-3, 1e-3)


@tf.custom_gradient
def own_swish(x):
    y = tf.sigmoid(x)
    return x * y, lambda dy: dy * (y + x * y * (1 - y)) * tf.cast(x > 0.1, x.dtype)


def python_inside(x):
    y = tf.numpy_function(lambda x: np.maximum(x, 0.1), [x], tf.float32)
    y.set_shape(x.shape)
    return x * tf.stop_gradient(y)


def with_assertion(x):
    with tf.control_dependencies([tf.debugging.assert_greater_equal(x, -1e9)]):
        return tf.nn.relu(x - 0.1)


def enter_middles():
    for name, middle in MIDDLES.items():
        def build(middle=middle):
            return fitted(network(lambda x: conv(middle(conv(conv(x))))))

        STEPS[f"middle_{name}"] = build


enter_middles()


# ---- Whole models ---------------------------------------------------------------------------------------------------


@step
def sequence_conv():
    return fitted(network(sequence_body, (64,), "int32"), tokens(64))


def sequence_body(x):
    x = L.Embedding(50, 32)(x)
    x = L.Conv1D(32, 5, padding="same", activation="relu")(x)
    x = L.MaxPooling1D(2)(x)
    x = L.SeparableConv1D(32, 3, padding="same", activation="relu")(x)
    x = L.Conv1DTranspose(16, 4, strides=2, padding="same", activation="relu")(x)
    x = L.SpatialDropout1D(0.2)(L.UpSampling1D(2)(x))
    x = L.Conv1D(16, 3, padding="causal", dilation_rate=2, activation="relu")(x)
    return L.GlobalMaxPooling1D()(x)


def tokens(length, many=50):
    def batch(index):
        data = rng(3, index)
        return (data.integers(0, many, (BATCH, length)).astype("int32"),
                data.integers(0, CLASSES, BATCH).astype("int32"))

    return batch


def recurrent(layer, **options):
    def body(x):
        return layer(L.Embedding(50, 32, **options)(x))

    return fitted(network(body, (32,), "int32"), tokens(32))


@step(loops=True)
def lstm_loop():
    return recurrent(L.LSTM(32, return_sequences=True))


@step(loops=True)
def gru_loop():
    return recurrent(L.GRU(32, return_sequences=True))


@step(loops=True)
def lstm_both_ways_masked():
    return recurrent(L.Bidirectional(L.LSTM(24, return_sequences=True)), mask_zero=True)


@step(idle="maps are too small")
def lstm_unrolled():
    return recurrent(L.LSTM(32, unroll=True, return_sequences=True))


@step(loops=True)
def frames_and_lstms():
    """The weights of the first ones are updated when their loops have ended, not when the layer behind goes back."""
    def body(x):
        x = L.Flatten()(L.MaxPooling2D(2)(conv(x)))
        x = L.Reshape((4, -1))(x)
        return L.Bidirectional(L.GRU(16))(L.Bidirectional(L.LSTM(16, return_sequences=True))(x))

    return fitted(network(body), batch_size=6)


class Windows(L.Layer):
    """Attention within windows of 4 x 4, whose shapes are computed from the batch."""

    def __init__(self):
        super().__init__()
        self.attention = L.MultiHeadAttention(2, 8)

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        batch, side, channels = tf.shape(x)[0], x.shape[1] // 4, x.shape[-1]
        x = tf.transpose(tf.reshape(x, (batch, side, 4, side, 4, channels)), (0, 1, 3, 2, 4, 5))
        x = tf.reshape(x, (-1, 16, channels))
        x = tf.reshape(self.attention(x, x), (-1, side, side, 4, 4, channels))
        return tf.reshape(tf.transpose(x, (0, 1, 3, 2, 4, 5)), (batch, 4 * side, 4 * side, channels))


@step
def windows_of_open_batch():
    return fitted(network(lambda x: conv(Windows()(conv(x, 16)))), batch_size=6)


@step
def noise_of_open_batch():
    """A generator that draws as many pictures as it is given."""
    generator = keras.Sequential([
        keras.Input((12,)), L.Dense(6 * 6 * 16, activation="relu"), L.Reshape((6, 6, 16)), L.UpSampling2D(4),
        L.Conv2D(8, 3, padding="same", activation="relu"), L.Conv2D(3, 3, padding="same"),
    ])

    class Drawing(keras.Model):
        def train_step(self, data):
            count = tf.shape(data[0])[0]
            noise = tf.random.stateless_normal((count, 12), (1, 2))
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(generator(noise) - tf.image.resize(data[0], (24, 24))))
            gradients = tape.gradient(loss, generator.trainable_variables)
            self.optimizer.apply(gradients, generator.trainable_variables)
            return {"loss": loss}

    model = Drawing(generator.inputs, generator.outputs)
    return fitted(model, batch_size=6)


@step
def attention_masked():
    def body(x):
        embedded = L.Embedding(50, 32, mask_zero=True)(x)
        y = L.MultiHeadAttention(4, 8, dropout=0.1)(embedded, embedded, use_causal_mask=True)
        y = L.LayerNormalization()(embedded + y)
        return L.LayerNormalization()(y + L.Dense(32)(L.Dense(64, activation="gelu")(y)))

    return fitted(network(body, (32,), "int32"), tokens(32), optimizer="adam")


@step
def volumes():
    def body(x):
        x = L.Conv3D(4, 3, padding="same", activation="relu")(x)
        x = L.MaxPooling3D(2)(x)
        x = L.Conv3DTranspose(4, 2, strides=2, activation="relu")(x)
        return L.AveragePooling3D(2)(L.Conv3D(4, 3, padding="same", activation="relu")(x))

    def batch(index):
        return rng(4, index).standard_normal((BATCH, 12, 12, 12, 1)).astype("float32"), pictures(index)[1]

    return fitted(network(body, (12, 12, 12, 1)), batch)


@step
def bytes_and_augmentation():
    def body(x):
        x = L.Rescaling(1 / 255)(x)
        for layer in (L.RandomFlip(), L.RandomRotation(0.1), L.RandomZoom(0.1), L.RandomTranslation(0.1, 0.1),
                      L.RandomContrast(0.1)):
            x = layer(x)
        return conv(L.MaxPooling2D(2)(conv(x)))

    def batch(index):
        return rng(5, index).integers(0, 256, (BATCH, SIZE, SIZE, 3)).astype("uint8"), pictures(index)[1]

    return fitted(network(body, dtype="uint8"), batch)


@step
def shared_layers():
    def body(x):
        shared = L.Conv2D(8, 3, padding="same", activation="relu")
        pool, norm = L.MaxPooling2D(2), L.BatchNormalization()
        x = conv(x)
        return norm(pool(shared(norm(shared(shared(x)))))) + pool(shared(x))

    return fitted(network(body))


@step
def frozen_layers():
    model = plain_network()
    for layer in model.layers[:3]:
        layer.trainable = False
    return fitted(model)


@step
def names_lie():
    def body(x):
        x = L.Conv2D(8, 3, padding="same", activation="relu", name="gradients")(x)
        x = L.Conv2D(8, 3, padding="same", activation="relu", name="gradient_tape")(x)
        x = L.MaxPooling2D(2, name="gradient_tape.gradients")(x)
        x = L.Conv2D(8, 3, padding="same", activation="gelu", name="stash_encode")(x)
        return L.BatchNormalization(name="x.y-z_9")(x) * 2

    return fitted(network(body))


@step
def scope_of_gradients():
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            with tf.name_scope("gradients"):
                for kernel in kernels[:2]:
                    x = tf.nn.tanh(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME")) * 1.5)
            loss = crossed()(y, tf.reduce_mean(x, [1, 2]) @ kernels[2])
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
            kernel.assign_sub(gradient)
        return loss

    return looped(train, variables=lambda: kernels)


def one_function(model, apply, loss=None, optimizer="sgd", batch_of=pictures, **options):
    """A step of one's own: apply(optimizer, gradients, variables, loss) does what it likes with the gradients."""
    optimizer = optimizer_of(optimizer) if isinstance(optimizer, str) else optimizer
    optimizer.build(model.trainable_variables)
    compute = loss or crossed()

    @tf.function(**options)
    def train(x, y):
        with tf.GradientTape() as tape:
            value = compute(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        extra = apply(optimizer, gradients, model.trainable_variables, value)
        return value if extra is None else extra

    return looped(train, batch_of, lambda: model.variables + optimizer.variables)


def simply(optimizer, gradients, variables, loss):
    optimizer.apply(gradients, variables)


@step
def clipped_by_global_norm():
    def apply(optimizer, gradients, variables, loss):
        clipped, norm = tf.clip_by_global_norm(gradients, 0.05)
        optimizer.apply(clipped, variables)
        return tf.stack([loss, norm])

    return one_function(plain_network(), apply, optimizer="adam")


@step
def clipped_by_optimizer():
    return fitted(plain_network(), optimizer=keras.optimizers.Adam(0.01, global_clipnorm=0.1))


@step
def clipped_by_value():
    return fitted(plain_network(), optimizer=keras.optimizers.SGD(0.01, clipvalue=0.001, momentum=0.9))


@step
def accumulated_by_optimizer():
    return fitted(plain_network(), optimizer=keras.optimizers.SGD(0.01, gradient_accumulation_steps=2), batches=4)


@step
def moving_average_of_weights():
    return fitted(plain_network(), optimizer=keras.optimizers.AdamW(0.01, use_ema=True))


@step
def applied_every_second_step():
    counter = tf.Variable(0)
    sums = []

    def apply(optimizer, gradients, variables, loss):
        if not sums:
            raise AssertionError
        for total, gradient in zip(sums, gradients):
            total.assign_add(gradient)
        counter.assign_add(1)

        def update():
            optimizer.apply([tf.convert_to_tensor(total) for total in sums], variables)
            for total in sums:
                total.assign(tf.zeros_like(total))
            return 0

        tf.cond(counter % 2 == 0, update, lambda: 0)

    model = plain_network()
    sums += [tf.Variable(tf.zeros(variable.shape)) for variable in model.trainable_variables]
    return one_function(model, apply)


@step
def applied_if_finite():
    def apply(optimizer, gradients, variables, loss):
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        tf.cond(finite, lambda: (optimizer.apply(gradients, variables), 0)[1], lambda: 0)

    return one_function(plain_network(), apply)


@step
def whole_step_in_cond():
    model = plain_network()
    optimizer = built(model)

    @tf.function
    def train(x, y):
        def really():
            with tf.GradientTape() as tape:
                loss = crossed()(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        return tf.cond(tf.reduce_sum(x) > -1e9, really, lambda: 0.0)

    return looped(train, variables=lambda: model.variables)


@step(idle="the backward pass reads through a branch")
def backward_in_cond():
    model = plain_network()
    optimizer = built(model)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = crossed()(y, model(x, training=True))

        def update():
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return 0

        tf.cond(loss > 0.0, update, lambda: 0)
        return loss

    return looped(train, variables=lambda: model.variables)


@step
def another_model_in_branch():
    """A second model is trained in a branch that is not taken."""
    models = [plain_network(), plain_network()]
    optimizers = [built(model) for model in models]

    def one(model, optimizer, x, y):
        with tf.GradientTape() as tape:
            loss = crossed()(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def train(x, y):
        first = one(models[0], optimizers[0], x, y)
        return first + tf.cond(first > 1e9, lambda: one(models[1], optimizers[1], x, y), lambda: 0.0)

    return looped(train, variables=lambda: models[0].variables + models[1].variables)


@step
def steps_in_while():
    model = plain_network()
    optimizer = built(model, "adam")

    @tf.function
    def train(x, y):
        total = 0.0
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                loss = crossed()(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            total += loss
        return total

    return looped(train, variables=lambda: model.variables)


@step(idle="a dataset loop is a function of its own")
def dataset_in_function():
    model = plain_network()
    optimizer = built(model)
    data = tf.data.Dataset.from_tensor_slices(pictures(batch=20)).batch(BATCH)

    @tf.function
    def train(dataset):
        total = 0.0
        for x, y in dataset:
            with tf.GradientTape() as tape:
                loss = crossed()(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            total += loss
        return total

    return Task(lambda _: train(data), lambda: model.variables)


@step
def functions_in_functions():
    model = plain_network()
    optimizer = built(model, "momentum")
    forward = tf.function(lambda x: model(x, training=True))
    loss_of = tf.function(lambda x, y: crossed()(y, forward(x)))

    @tf.function
    def gradients_of(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(x, y)
        return loss, tape.gradient(loss, model.trainable_variables)

    @tf.function
    def train(x, y):
        loss, gradients = gradients_of(x, y)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return looped(train, variables=lambda: model.variables)


@step(idle="graph optimizers see no function that is not inlined")
def function_not_inlined():
    model = plain_network()
    optimizer = built(model)

    @tf.function(experimental_attributes={"_noinline": True}, autograph=False)
    def gradients_of(x, y):
        with tf.GradientTape() as tape:
            loss = crossed()(y, model(x, training=True))
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    @tf.function
    def train(x, y):
        loss, *gradients = gradients_of(x, y)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return looped(train, variables=lambda: model.variables)


@step(idle="forward and backward are functions of their own")
def tape_outside():
    model = plain_network()
    optimizer = built(model)
    forward = tf.function(lambda x: model(x, training=True))

    def train(x, y):
        with tf.GradientTape() as tape:
            loss = crossed()(y, forward(x))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return looped(train, variables=lambda: model.variables)


@step
def adversarial():
    """A generator and a discriminator, two tapes in one function."""
    make = keras.Sequential([keras.Input((16,)), L.Dense(6 * 6 * 8, activation="relu"), L.Reshape((6, 6, 8)),
                             L.Conv2DTranspose(8, 4, strides=2, padding="same", activation="relu"),
                             L.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh")])
    judge = keras.Sequential([keras.Input((SIZE, SIZE, 3)), L.Conv2D(8, 3, padding="same"), L.LeakyReLU(),
                              L.Conv2D(8, 3, strides=2, padding="same"), L.LeakyReLU(), L.Dropout(0.2), L.Flatten(),
                              L.Dense(1)])
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
    optimizers = [optimizer_of("adam"), optimizer_of("adam")]
    for optimizer, model in zip(optimizers, (make, judge)):
        optimizer.build(model.trainable_variables)

    @tf.function
    def train(x, noise):
        with tf.GradientTape() as first, tf.GradientTape() as second:
            made = make(noise, training=True)
            real, fake = judge(x, training=True), judge(made, training=True)
            loss_make = loss_of(tf.ones_like(fake), fake)
            loss_judge = loss_of(tf.ones_like(real), real) + loss_of(tf.zeros_like(fake), fake)
        optimizers[0].apply(first.gradient(loss_make, make.trainable_variables), make.trainable_variables)
        optimizers[1].apply(second.gradient(loss_judge, judge.trainable_variables), judge.trainable_variables)
        return tf.stack([loss_make, loss_judge])

    return looped(train, lambda k: (pictures(k)[0], rng(6, k).standard_normal((BATCH, 16)).astype("float32")),
                  lambda: make.variables + judge.variables)


def penalised(activation):
    model = network(lambda x: conv(conv(x, activation=activation), activation=activation))
    optimizer = optimizer_of()
    optimizer.build(model.trainable_variables)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = crossed()(y, model(x, training=True))
            slope = inner.gradient(loss, x)
            loss += 100 * tf.reduce_mean(tf.square(tf.norm(tf.reshape(slope, [BATCH, -1]), axis=1) - 0.1))
        optimizer.apply(outer.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return looped(train, variables=lambda: model.variables)


@step
def gradient_penalty_relu():
    return penalised("relu")


@step(idle="only dense values")
def gradient_penalty_tanh():
    return penalised("tanh")


@step(idle="only dense values")
def gradient_penalty_gelu():
    return penalised("gelu")


@step
def sharpness_aware():
    """Two forward and backward passes per step, at two places in the weights."""
    model = plain_network()
    optimizer = built(model, "momentum")

    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = crossed()(y, model(x, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    @tf.function
    def train(x, y):
        loss, first = gradients(x, y)
        for variable, gradient in zip(model.trainable_variables, first):
            variable.assign_add(0.05 * gradient)
        _, second = gradients(x, y)
        for variable, gradient in zip(model.trainable_variables, first):
            variable.assign_sub(0.05 * gradient)
        optimizer.apply(second, model.trainable_variables)
        return loss

    return looped(train, variables=lambda: model.variables)


@step
def accumulated_in_function():
    model = plain_network()
    optimizer = built(model)

    @tf.function
    def train(x, y):
        total = [tf.zeros(variable.shape) for variable in model.trainable_variables]
        losses = 0.0
        for part in tf.range(4):
            with tf.GradientTape() as tape:
                loss = crossed()(y[2 * part:2 * part + 2], model(x[2 * part:2 * part + 2], training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            total = [a + b for a, b in zip(total, gradients)]
            losses += loss
        optimizer.apply(total, model.trainable_variables)
        return losses

    return looped(train, variables=lambda: model.variables)


@step
def maps_are_results():
    model = plain_network()
    tapped = keras.Model(model.input, [model.output, *[layer.output for layer in model.layers[1:4]]])
    optimizer = optimizer_of()
    optimizer.build(model.trainable_variables)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            logits, *maps = tapped(x, training=True)
            loss = crossed()(y, logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss, maps, gradients

    task = looped(train, variables=lambda: model.variables)
    return Task(lambda k: [tf.reduce_sum(tf.abs(part)) for part in tf.nest.flatten(task.call(k))], task.variables)


@step
def gradients_of_maps_are_results():
    kernels = weights(*[(64, 512)] * 8)

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(x)
            each = [tf.identity(y) for _ in kernels]
            loss = tf.add_n([tf.reduce_sum(tf.nn.relu(tf.matmul(*pair)) ** 2) for pair in zip(each, kernels)])
        *gradients, of_last = tape.gradient(loss, [x, y, *each, kernels[-1]])
        kernels[-1].assign_sub(0.01 * of_last)
        return loss, *gradients

    def call(k):
        loss, *gradients = train(tf.constant(rng(5, k).standard_normal((64, 64)).astype("float32")))
        return [loss, *[tf.reduce_sum(tf.abs(gradient)) for gradient in gradients]]

    return Task(call, lambda: kernels)


@step(idle="the maps are not read")
def per_example_gradients():
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            for kernel in kernels[:2]:
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.reduce_mean(x, [1, 2]) @ kernels[2])
        rows = tape.jacobian(loss, kernels[2])
        kernels[2].assign_sub(tf.reduce_mean(rows, 0))
        return tf.reduce_mean(loss)

    return looped(train, variables=lambda: kernels)


@step
def jacobian_of_maps():
    kernels = weights((3, 3, 3, 4), (3, 3, 4, 4))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            for kernel in kernels:
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
            means = tf.reduce_mean(x, [0, 1, 2])
        rows = tape.jacobian(means, kernels)
        for kernel, row in zip(kernels, rows):
            kernel.assign_sub(tf.reduce_sum(row, 0))
        return tf.reduce_sum(means)

    return looped(train, variables=lambda: kernels)


@step(idle="only dense values")
def forward_mode():
    """Forward accumulation within a backward pass: a product with the Hessian."""
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function
    def train(x, y):
        with tf.autodiff.ForwardAccumulator(kernels, [tf.ones_like(kernel) for kernel in kernels]) as accumulator:
            with tf.GradientTape() as tape:
                for kernel in kernels[:2]:
                    x = tf.nn.tanh(tf.nn.conv2d(x, kernel, 1, "SAME"))
                loss = crossed()(y, tf.reduce_mean(x, [1, 2]) @ kernels[2])
            gradients = tape.gradient(loss, kernels)
        for kernel, gradient in zip(kernels, gradients):
            kernel.assign_sub(0.1 * gradient + 0.01 * accumulator.jvp(gradient))
        return loss

    return looped(train, variables=lambda: kernels)


@step
def two_losses():
    def body(x):
        x = conv(conv(x))
        return x

    inputs = keras.Input((SIZE, SIZE, 3))
    x = body(inputs)
    classes = L.Dense(CLASSES, name="classes")(L.GlobalAveragePooling2D()(conv(x)))
    model = keras.Model(inputs, {"classes": classes, "picture": L.Conv2D(3, 3, padding="same", name="picture")(x)})

    def batch(index):
        x, y = pictures(index)
        return x, {"classes": y, "picture": x}

    return fitted(model, batch, {"classes": crossed(), "picture": "mse"}, metrics={"classes": ["accuracy"]})


@step
def metrics_of_all_sorts():
    return fitted(plain_network(), metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3)],
                  weighted_metrics=["accuracy"])


@step
def dense_targets():
    model = network(lambda x: L.Conv2D(CLASSES, 1)(conv(conv(x))), head=False)
    return fitted(model, lambda k: (pictures(k)[0], rng(8, k).integers(0, CLASSES, (BATCH, SIZE, SIZE))))


@step
def contrastive():
    """A loss that compares each sample with each other one."""
    model = network(lambda x: L.MaxPooling2D(2)(conv(conv(x))))

    def loss(y, features):
        features = tf.math.l2_normalize(features, 1)
        near = tf.cast(y[:, None] == y[None, :], tf.float32)
        return tf.reduce_mean(tf.square(features @ tf.transpose(features) - near))

    return one_function(model, simply, loss)


@step
def several_steps_per_execution():
    return fitted(plain_network(), batches=7, steps_per_execution=3, optimizer="adam")


@step
def several_steps_unrolled():
    return fitted(network(lambda x: conv(L.Dropout(0.2)(conv(x)))), batches=6, steps_per_execution=2,
                  optimizer="momentum")


@step
def last_batch_smaller():
    return fitted(plain_network(), batches=2, batch_size=6)


@step
def batch_unknown():
    signature = [tf.TensorSpec([None, SIZE, SIZE, 3]), tf.TensorSpec([None], tf.int32)]
    return one_function(plain_network(), simply, input_signature=signature,
                        batch_of=lambda k: pictures(k, BATCH - k))


@step(idle="sizes are not known")
def sides_unknown():
    signature = [tf.TensorSpec([None, None, None, 3]), tf.TensorSpec([None], tf.int32)]
    inputs = keras.Input((None, None, 3))
    model = keras.Model(inputs, L.Dense(CLASSES)(L.GlobalAveragePooling2D()(conv(L.MaxPooling2D(2)(conv(inputs))))))
    return one_function(model, simply, input_signature=signature, batch_of=lambda k: pictures(k, size=SIZE - 2 * k))


@step(idle="sizes are not known")
def rank_unknown():
    signature = [tf.TensorSpec(None), tf.TensorSpec(None, tf.int32)]
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function(input_signature=signature)
    def train(x, y):
        with tf.GradientTape() as tape:
            for kernel in kernels[:2]:
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
            loss = crossed()(tf.reshape(y, [-1]), tf.reduce_mean(x, [1, 2]) @ kernels[2])
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
            kernel.assign_sub(gradient)
        return loss

    return looped(train, variables=lambda: kernels)


@step
def batch_of_one():
    return fitted(plain_network(), lambda k: pictures(k, 1), batch_size=1)


@step
def empty_batch():
    signature = [tf.TensorSpec([None, SIZE, SIZE, 3]), tf.TensorSpec([None], tf.int32)]

    def total(y, logits):
        return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    return one_function(plain_network(), simply, total, input_signature=signature,
                        batch_of=lambda k: pictures(k, BATCH * (k % 2)))


@step
def unbalanced_scales():
    """Infinities and NaN on the way: they must come out as they do without Stash (but for a ReLU with its pooling)."""
    model = network(lambda x: conv(conv(conv(x))))
    return fitted(model, lambda k: (pictures(k)[0] * np.float32(1e30), pictures(k)[1]), batches=1)


@step
def weights_read_twice():
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            x = tf.nn.relu(tf.nn.conv2d(x, kernels[0], 1, "SAME"))
            kernels[1].assign(kernels[1] * 0.99)
            x = tf.nn.relu(tf.nn.conv2d(x, kernels[1], 1, "SAME"))
            x = x + tf.nn.conv2d_transpose(x, kernels[1], tf.shape(x), 1, "SAME")
            loss = crossed()(y, tf.reduce_mean(x, [1, 2]) @ kernels[2]) + 0.01 * tf.nn.l2_loss(kernels[1])
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
            kernel.assign_sub(gradient)
        return loss

    return looped(train, variables=lambda: kernels)


@step
def tensor_arrays():
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            maps = tf.TensorArray(tf.float32, 2)
            for k, kernel in enumerate(kernels[:2]):
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
                maps = maps.write(k, x)
            loss = crossed()(y, tf.reduce_mean(maps.stack(), [0, 2, 3]) @ kernels[2])
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
            kernel.assign_sub(gradient)
        return loss

    return looped(train, variables=lambda: kernels)


@step
def saliency_and_training():
    """Gradients for the inputs as a result beside those for the weights."""
    model = plain_network()
    optimizer = built(model)

    @tf.function
    def train(x, y):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            loss = crossed()(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss, tape.gradient(loss, x)

    task = looped(train, variables=lambda: model.variables)
    return Task(lambda k: [tf.reduce_sum(part) for part in task.call(k)], task.variables)


@step
def teacher_and_student():
    """A second model that only runs forward, beside the one that is trained."""
    teacher, model, optimizer = plain_network(), plain_network(), optimizer_of()
    optimizer.build(model.trainable_variables)

    @tf.function
    def train(x, y):
        wanted = tf.nn.softmax(teacher(x, training=False))
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = crossed()(y, logits) + tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(wanted, logits))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        for mine, its in zip(teacher.weights, model.weights):
            mine.assign(0.9 * tf.convert_to_tensor(mine) + 0.1 * tf.convert_to_tensor(its))
        return loss

    return looped(train, variables=lambda: model.variables + teacher.variables)


@step
def evaluated_in_the_step():
    """The new weights are tried at once: a forward pass behind the backward pass."""
    model = plain_network()
    optimizer = built(model)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = crossed()(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return tf.stack([loss, crossed()(y, model(x, training=False))])

    return looped(train, variables=lambda: model.variables)


@step
def line_search():
    """As many forward passes behind the backward pass as a loop on the loss decides."""
    model = plain_network()

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = crossed()(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        for _ in tf.range(3):
            for variable, gradient in zip(model.trainable_variables, gradients):
                variable.assign_sub(0.1 * gradient)
            loss = crossed()(y, model(x, training=True))
            if loss < 0.5:
                break
        return loss

    return looped(train, variables=lambda: model.variables)


def mixed(policy, optimizer):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = network(lambda x: conv(L.Dropout(0.2)(L.MaxPooling2D(2)(conv(L.ReLU()(L.BatchNormalization()(conv(
            x, activation=None))))))))
        return fitted(model, optimizer=optimizer)
    finally:
        keras.config.set_dtype_policy(before)


@step
def half_sgd():
    return mixed("mixed_float16", "sgd")


@step
def half_adam_scaled():
    return mixed("mixed_float16", keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=2**20,
                                                                       dynamic_growth_steps=2))


@step
def bfloat_sgd():
    return mixed("mixed_bfloat16", "sgd")


@step
def bfloat_adam():
    return mixed("mixed_bfloat16", "adam")


@step
def application_inception():
    model = keras.applications.InceptionV3(weights=None, input_shape=(75, 75, 3), classes=CLASSES,
                                           classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 75), batch_size=2, batches=1)


@step
def application_xception():
    model = keras.applications.Xception(weights=None, input_shape=(71, 71, 3), classes=CLASSES,
                                        classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 71), batch_size=2, batches=1)


@step(idle="only dense values")
def application_convnext():
    model = keras.applications.ConvNeXtTiny(weights=None, input_shape=(64, 64, 3), classes=CLASSES,
                                            classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 64), batch_size=2, batches=1)


@step
def application_nasnet():
    model = keras.applications.NASNetMobile(weights=None, input_shape=(64, 64, 3), classes=CLASSES)
    return fitted(model, lambda k: pictures(k, 2, 64), batch_size=2, batches=1,
                  loss=keras.losses.SparseCategoricalCrossentropy())


@step(idle="only dense values")
def application_efficientnet_v2():
    model = keras.applications.EfficientNetV2B0(weights=None, input_shape=(64, 64, 3), classes=CLASSES,
                                                classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 64), batch_size=2, batches=1)


@step(idle="no training")
def only_forward():
    model = plain_network()
    return looped(tf.function(lambda x, y: crossed()(y, model(x, training=False))))


@step(idle="maps are too small")
def tiny():
    return fitted(network(lambda x: L.Dense(4, activation="relu")(L.Flatten()(x)), (4, 4, 1)),
                  lambda k: pictures(k, BATCH, 4, 1))


# ---- Running them ---------------------------------------------------------------------------------------------------

FALLEN_BACK = re.compile(r"meta_optimizer|Ignoring multi-device|in a cycle|Stash leaves")


@contextlib.contextmanager
def stderr_into(lines):
    """What the process writes to stderr in the meantime, line by line."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()


def bits(values):
    return [np.asarray(value).tobytes() for value in tf.nest.flatten(values)]


def ran(name, steps, peak):
    """(results, weights, peak of one more step or 0) of a fresh instance."""
    import stash_tf

    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    task = STEPS[name]()
    before = bits(task.variables())
    results = [bits(task.call(index)) for index in range(steps)]
    after = bits(task.variables())
    measured = stash_tf.peak_bytes(task.call, 0) if peak else 0
    return results, after, measured, before != after


def measure(name, policy="lossless", steps=3, peak=False, **options):
    """One step plain and with Stash: a record."""
    import stash_tf

    record: dict[str, Any] = {"step": name}
    said: list[str] = []
    try:
        plain = ran(name, steps, peak)
    except Exception:  # the step itself is wrong
        return record | {"broken": traceback.format_exc()[-1500:]}
    try:
        with stderr_into(said), stash_tf.enabled(policy, **options):
            stash = ran(name, steps, peak)
            report = stash_tf.report()
            graphs, counters = report.graphs, report.counters
    except Exception:
        return record | {"failed": traceback.format_exc()[-3000:], "stderr": said[-10:]}
    rewritten = [graph for graph in graphs if graph["rewritten"]]
    record |= {
        "nothing_to_do": IDLE.get(name, ""),
        "loops": name in LOOPS,
        "forward": name in FORWARD,
        "same_losses": plain[0] == stash[0],
        "same_weights": plain[1] == stash[1],
        "trained": plain[3],
        "rewritten": len(rewritten),
        "executions": sum(counter["executions"] for counter in counters),
        "idle": sorted({counter["op"] + " " + counter["tensor"] for counter in counters if not counter["executions"]}),
        "reasons": sorted({graph["reason"] for graph in graphs if graph["reason"]}),
        "choices": dict(collections.Counter(tensor["choice"] for graph in rewritten for tensor in graph["tensors"])),
        "raw": sorted({f"{tensor['op']}: {tensor['reason']}" for graph in rewritten for tensor in graph["tensors"]
                       if tensor["choice"] == "raw"}),
        "left": dict(collections.Counter(left["op"] + ": " + left["reason"] for graph in rewritten
                                         for left in graph["left"])),
        "stderr": [line for line in said if FALLEN_BACK.search(line)],
    }
    if peak:
        record |= {"plain_peak": plain[2], "peak": stash[2],
                   "predicted": max((graph["predicted_peak_bytes"] for graph in rewritten), default=0),
                   "predicted_plain": max((graph["predicted_plain_bytes"] for graph in rewritten), default=0)}
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them, if none is named")
    parser.add_argument("--list", action="store_true", help="the names")
    parser.add_argument("--policy", default="lossless")
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--inter", type=int, default=1)
    parser.add_argument("--intra", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(STEPS))
        return
    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.intra)
    for name in arguments.names or STEPS:
        print(json.dumps(measure(name, arguments.policy, arguments.steps, arguments.peak)), flush=True)


if __name__ == "__main__":
    main()
