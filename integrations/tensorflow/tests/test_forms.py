# SPDX-License-Identifier: Apache-2.0
"""What the gradients of common layers read is kept in the form that the policy allows, and not dense."""

import pytest

from conftest import ALLOCATORS, INTERS, slow_but
from test_foretold import STEP, check

MOST_OFF = 0.03  # of all gradients of the first step, in fp8

MODEL = """
import keras
L = keras.layers
tf.config.threading.set_inter_op_parallelism_threads(1)

def step_of(start, outputs, samples=8):
    "A function of the model's input that gives its gradients, and an input."
    model = keras.Model(start, outputs)
    x = tf.random.stateless_normal((samples, *start.shape[1:]), (1, 2))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - 0.3))
        return tape.gradient(loss, model.trainable_variables)

    return step, x

def flat(gradients):
    return np.concatenate([gradient.numpy().ravel() for gradient in gradients])

def kept(build, policy):
    "How far gradients are off, and of every tensor of 16 KiB and more: op, form, dense and stored bytes, and why."
    keras.utils.set_random_seed(1)
    step, x = build()
    plain = flat(step(x))
    with stash_tf.enabled(policy):
        for _ in range(3):
            stashed = flat(step(x))
        rows = [[row.op, row.choice, row.dense_bytes, row.stored_bytes, row.reason]
                for row in stash_tf.report().rows if row.dense_bytes >= 16384]
    return [float(np.linalg.norm(stashed - plain) / np.linalg.norm(plain)), rows]
"""

END = "L.Dense(2)(L.GlobalAveragePooling2D()(L.Conv2D(16, 3, padding='same')({})))"
CONV = "L.Conv2D(16, 3, padding='same')(start)"
BODIES = {
    # The gradient of x * sigmoid(x) computes the sigmoid again, when the gradient from above is there.
    "silu": END.format(f"L.Activation('silu')(L.Conv2D(16, 1)(L.Activation('silu')({CONV})))"),
    # That of erf makes one op of a square, a negation and an exponential.
    "gelu": END.format(f"L.Activation('gelu')({CONV})"),
    # A map that a norm reads in groups, and the branch around it as it is.
    "views": END.format("(lambda x: L.Conv2D(16, 1)(x) + L.Conv2D(16, 3, padding='same')(L.GroupNormalization(4)(x)))"
                        f"(L.Concatenate()([{CONV}, {CONV}]))"),
}


@pytest.mark.parametrize("body", slow_but(BODIES, ("silu",)))
def test_maps_are_kept_in_the_format_of_the_policy(python, body):
    code = f"""
    def build():
        start = keras.Input((32, 32, 3))
        return step_of(start, {BODIES[body]})
    out([kept(build, policy) for policy in ("fp8", "lossless")])
    """
    (off, rows), (lossless_off, _) = python(MODEL, code, **ALLOCATORS["eigen"])
    assert 0 < off < MOST_OFF and lossless_off == 0, (off, lossless_off, rows)
    assert rows and all(stored < dense for _, _, dense, stored, _ in rows), rows


def test_a_decoder_gives_each_reader_its_own_shape(python):
    """A product reads the same values twice, as rows and as columns."""
    code = """
    def build():
        start = keras.Input((64,))
        y = L.Dense(64, activation="tanh")(start)
        rows, columns = L.Reshape((8, 8))(y), L.Reshape((2, 32))(y)
        product = keras.ops.reshape(rows, (-1, 64)) * keras.ops.reshape(columns, (-1, 64))
        return step_of(start, L.Dense(1)(L.Dense(8)(L.Flatten()(keras.ops.matmul(columns, keras.ops.transpose(
            columns, (0, 2, 1)))) + L.Dense(4)(product))), 256)
    out(kept(build, "fp16"))
    """
    off, rows = python(MODEL, code, **ALLOCATORS["eigen"])
    assert 0 < off < MOST_OFF and "Tanh" in [op for op, *_ in rows], (off, rows)
    assert all(stored < dense for _, _, dense, stored, _ in rows), rows


def test_comparisons_take_one_bit_whoever_reads_them(python):
    """Where the largest values were is read by a cast, not by a choice between two."""
    code = """
    def build():
        start = keras.Input((64, 32))
        y = L.Conv1D(64, 3, padding="same")(start)
        y = L.Concatenate()([y, L.RepeatVector(64)(L.GlobalMaxPooling1D()(y))])
        return step_of(start, L.Dense(2)(L.GlobalAveragePooling1D()(L.Conv1D(16, 1)(y))), 16)
    out(kept(build, "lossless"))
    """
    off, rows = python(MODEL, code, **ALLOCATORS["eigen"])
    found = [(dense, stored) for op, _, dense, stored, _ in rows if op == "Equal"]
    assert off == 0 and len(found) == 1 and found[0][1] < found[0][0] / 4, rows


@pytest.mark.parametrize("inter", INTERS)
def test_weights_that_a_loop_splits_are_no_batch(python, inter):
    """TensorFlow's inference loses the shape of variables that a loop reads and splits, as a ConvLSTM does; their
    dimensions were taken for the number of samples, and the peak was foretold per sample."""
    code = """
    body = lambda x: L.GlobalAveragePooling2D()(L.ConvLSTM2D(16, 3, padding="same", return_sequences=False)(
        L.Reshape((4, 16, 64, 3))(x)))
    out(peaks(body, 64, 4, "fp8"))
    """
    check(python(STEP, code, **ALLOCATORS["eigen"], INTER=str(inter)), "conv_lstm")
