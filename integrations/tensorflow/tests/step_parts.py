# SPDX-License-Identifier: Apache-2.0
"""What the small training steps of steps.py are made of: data, models, optimizers and loops.

STEPS[name]() builds a step anew from the same seed: a Task."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

# Read when Keras and TensorFlow are imported; so those who need these have them from here.
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


def descend(variables, gradients):
    """Plain descent, as a part of a step's function."""
    for variable, gradient in zip(variables, gradients):
        variable.assign_sub(gradient)


def tokens(length, many=50):
    def batch(index):
        data = rng(3, index)
        return (data.integers(0, many, (BATCH, length)).astype("int32"),
                data.integers(0, CLASSES, BATCH).astype("int32"))

    return batch


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
