# SPDX-License-Identifier: Apache-2.0
"""Where branches of a network could run in parallel, the forward pass keeps the order that was predicted as well."""

import pytest

from conftest import ALLOCATORS, INTERS, slow
from test_foretold import STEP, check

NEARLY = 0.06

BRANCHES = """
def branch(x):
    for _ in range(4):
        x = conv(x, 16)
    x = L.MaxPooling2D()(x)
    for _ in range(2):
        x = conv(x, 32)
    return L.Dense(10)(L.GlobalAveragePooling2D()(x))
"""

LOSSES = """
tf.config.threading.set_inter_op_parallelism_threads(int(os.environ["INTER"]))
tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(1)
kernels = [tf.Variable(rng.standard_normal((64, 512)).astype("float32") / 8) for _ in range(8)]

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        y = tf.tanh(x)
        loss = tf.add_n([tf.reduce_sum(tf.nn.relu(tf.matmul(y, kernel)) ** 2) for kernel in kernels])
    gradients = tape.gradient(loss, kernels)
    for kernel, gradient in zip(kernels, gradients):
        kernel.assign_sub(1e-6 * gradient)
    return loss

x = tf.constant(rng.standard_normal((int(os.environ["ROWS"]), 64)).astype("float32"))
plain = min(stash_tf.peak_bytes(step, x) for _ in range(3))
with stash_tf.enabled("lossless"):
    peak = max(stash_tf.peak_bytes(step, x) for _ in range(3))
    predicted = stash_tf.report().predicted_peak_bytes
out([plain, peak, predicted])
"""

TEACHER = """
tf.config.threading.set_inter_op_parallelism_threads(int(os.environ["INTER"]))
tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(1)
kernels = [tf.Variable((rng.standard_normal((3, 3, 64, 64)) * 0.06).astype("float32")) for _ in range(5)]
teacher = [tf.Variable(kernel) for kernel in kernels]

def network(x, kernels):
    for kernel in kernels:
        x = tf.tanh(tf.nn.conv2d(x, kernel, 1, "SAME"))
    return tf.reduce_mean(x, (1, 2))

@tf.function
def step(x):
    target = network(x, teacher)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((network(x * 0.9, kernels) - target) ** 2) + tf.reduce_mean(network(x, kernels) ** 2)
    for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
        kernel.assign_sub(0.01 * gradient)
    for average, kernel in zip(teacher, kernels):
        average.assign(0.99 * average + 0.01 * kernel)
    return loss

x = tf.constant(rng.standard_normal((8, 32, 32, 64)).astype("float32"))
plain = min(stash_tf.peak_bytes(step, x) for _ in range(3))
with stash_tf.enabled("lossless"):
    peak = max(stash_tf.peak_bytes(step, x) for _ in range(3))
    predicted = stash_tf.report().predicted_peak_bytes
out([plain, peak, predicted])
"""

DISTILLED = """
def network(channels):
    start = x = keras.Input((64, 64, 3))
    def layer(x):
        return L.BatchNormalization()(L.Conv2D(channels, 3, padding="same", use_bias=False)(x))
    x = L.ReLU()(layer(x))
    for _ in range(3):
        x = L.ReLU()(x + layer(L.ReLU()(layer(x))))
    return keras.Model(start, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

student, teacher = network(16), network(32)
variables = student.trainable_variables

@tf.function
def step(x):
    targets = tf.nn.softmax(teacher(x, training=False))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(keras.losses.kl_divergence(targets, tf.nn.softmax(student(x, training=True))))
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(0.01 * gradient)
    return loss

x = tf.random.stateless_normal((8, 64, 64, 3), (1, 2))
plain = min(stash_tf.peak_bytes(step, x) for _ in range(3))
with stash_tf.enabled("fp8"):
    peak = max(stash_tf.peak_bytes(step, x) for _ in range(3))
    predicted = stash_tf.report().predicted_peak_bytes
out([plain, peak, predicted])
"""


@pytest.mark.slow
@pytest.mark.parametrize("inter", INTERS)
def test_branches_run_one_after_the_other(python, inter):
    """TensorFlow would run a layer of each, in an order that addresses decide."""
    code = "out(peaks(lambda x: L.Average()([branch(x) for _ in range(8)]), 64, 16, 'fp8'))"
    check(python(STEP, BRANCHES, code, **ALLOCATORS["onednn"], INTER=str(inter)), "branches", NEARLY)


@pytest.mark.parametrize("rows", (4096, slow(8192)))
@pytest.mark.parametrize("inter", INTERS)
def test_gradients_that_need_no_loss_come_with_their_branch(python, inter, rows):
    """What begins the backward pass of a sum of squares is ready when the step begins: of 4096 rows it is a constant
    of 8 MiB, which TensorFlow folds, of 8192 it is too large for that."""
    check(python(LOSSES, **ALLOCATORS["eigen"], INTER=str(inter), ROWS=str(rows)), "losses")


@pytest.mark.parametrize("inter", INTERS)
def test_updates_that_need_both_branches_hold_neither_up(python, inter):
    """The gradient of a layer that is called twice is there when both backward passes have come to it: if they waited
    for its update, they would go down the layers together. TensorFlow's own peak is anything from 15 to 29 MB."""
    map_bytes, layers = 8 * 32 * 32 * 64 * 4, 5
    _, peak, _ = result = python(TEACHER, **ALLOCATORS["onednn"], INTER=str(inter))
    check(result, "teacher")
    assert peak < 2 * layers * map_bytes, "the maps of both passes were there at a time"


@pytest.mark.parametrize("inter", INTERS)
def test_what_keeps_nothing_in_memory_goes_first(python, inter):
    """The maps of a network that only tells another one what to say are not in memory together with kept ones."""
    map_bytes = 8 * 64 * 64 * 32 * 4
    _, peak, _ = result = python(STEP, DISTILLED, **ALLOCATORS["onednn"], INTER=str(inter))
    check(result, "distilled")
    assert peak < 4 * map_bytes, "the maps of both were there at a time"


@pytest.mark.parametrize("inter", INTERS)
def test_bias_gradients_of_transposed_convolutions_come_first(python, inter):
    """Otherwise they wait for the end of the step, and the gradients of all maps with them."""
    code = """
    def up(x, channels):
        return L.Conv2DTranspose(channels, 3, strides=2, padding="same", activation="relu")(x)
    body = lambda x: L.GlobalAveragePooling2D()(conv(up(up(up(L.AveragePooling2D(8)(conv(x, 32)), 64), 48), 32)))
    out(peaks(body, 64, 16, "fp8"))
    """
    check(python(STEP, code, **ALLOCATORS["onednn"], INTER=str(inter)), "transposed", NEARLY)
