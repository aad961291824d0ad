"""Steps with loops, whose values lie in lists until the backward pass takes them out: predicted peaks, the order in which
iterations run, and bits that stay."""

import pytest
from conftest import ALLOCATORS

EIGEN = ALLOCATORS["eigen"]
FORETOLD = 0.1

LOOPS = """
import itertools
import keras

L = keras.layers

def stepped(forward, weights, loss=lambda y: tf.reduce_mean(y * y)):
    "(step, weights): gradient descent on the mean square of what forward(x) returns."
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            value = loss(forward(x))
        for w, g in zip(weights, tape.gradient(value, weights)):
            w.assign_sub(0.1 * tf.convert_to_tensor(g))
        return value
    return step

def recurrent(layer, steps, width, layers=1):
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((steps, 32))
    for k in range(layers):
        x = layer(width, return_sequences=k < layers - 1)(x)
    model = keras.Model(inputs, L.Dense(10)(L.Dense(256, activation="relu")(x)))
    return stepped(model, model.trainable_variables), model.trainable_variables

def random(*shape):
    return tf.constant(np.random.default_rng(3).standard_normal(shape).astype("float32"))

def variable(*shape):
    return tf.Variable(random(*shape) / shape[0] ** 0.5)

def trained(make, *inputs, policy="lossless", warm=3, **options):
    "Whether training stays the same bit by bit, and what the report and the profiler say."
    def bits(weights):
        return [w.numpy().tobytes() for w in weights]
    step, weights = make()
    plain = [step(x).numpy().tobytes() for x in inputs for _ in range(warm)], bits(weights)
    plain_peak = stash_tf.peak_bytes(step, inputs[-1])
    with stash_tf.enabled(policy, **options):
        step, weights = make()
        same = ([step(x).numpy().tobytes() for x in inputs for _ in range(warm)], bits(weights)) == plain
        peak = stash_tf.peak_bytes(step, inputs[-1])
        report = stash_tf.report()
        graphs = [g for g in report.graphs if g["rewritten"]] or [g for g in report.graphs if g["predicted_peak_bytes"]]
        return {"same": same, "plain_peak": plain_peak, "peak": peak, "predicted": report.predicted_peak_bytes,
                "rewritten": report.rewritten, "loops": report.loops, "unknown": any(g["lists_in_loops"] for g in graphs),
                "explanations": report.explanations, "text": str(report)}
"""


@pytest.mark.parametrize("inter", (1, 2))
@pytest.mark.parametrize("layer", ("LSTM", "GRU"))
def test_recurrent_layers(python, layer, inter):
    code = """
    tf.config.threading.set_inter_op_parallelism_threads(INTER)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    out(trained(lambda: recurrent(getattr(L, LAYER), 128, 96, layers=2), random(16, 128, 32), strict=True))
    """
    found = python(f"INTER, LAYER = {inter}, {layer!r}", LOOPS, code, **EIGEN)
    assert found["same"] and found["rewritten"] and found["loops"] == 2 and not found["unknown"], found
    assert "2 loops wait" in found["text"] and found["explanations"] == [], found
    assert abs(found["peak"] / found["predicted"] - 1) <= FORETOLD, found
    assert found["peak"] < 1.02 * found["plain_peak"], found
