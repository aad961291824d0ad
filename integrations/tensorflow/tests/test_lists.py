# SPDX-License-Identifier: Apache-2.0
"""Loops that keep less in lists: encoded elements, elements computed again, and what is the same in every iteration."""

from pathlib import Path

import pytest

from conftest import ALLOCATORS, slow, slow_but
from step_lists import MODELS, NOTHING_TO_GAIN

EIGEN = ALLOCATORS["eigen"]

STEPS = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
import step_lists
"""
STEPS += """

tf.config.threading.set_intra_op_parallelism_threads(1)

def run(name, *inputs, policy=None, times=3, **options):
    "Losses, gradients and weights of some steps on each input, and the report."
    def steps():
        step, weights = step_lists.made(name)
        values = [[t.numpy() for t in step(x)] for x in inputs for _ in range(times)]
        return values, [w.numpy() for w in weights]
    if policy is None:
        return steps()
    with stash_tf.enabled(policy, min_bytes=256, strict=True, **options):
        return *steps(), stash_tf.report()

def equal(a, b):
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True))

def lists_of(report):
    return [t for g in report.graphs for t in g["tensors"] if t["iterations"]]

def choices(report):
    found = {}
    for t in lists_of(report):
        found[t["choice"]] = found.get(t["choice"], 0) + 1
    return found
"""


@pytest.mark.parametrize("name", slow_but(MODELS, ("lstm", "gru_reset_before", "recurrent_dropout", "luong")))
def test_lossless_keeps_every_bit(python, name):
    """Losses, gradients of each step, weights and states; the report says what became of the lists."""
    code = """
    x = step_lists.inputs_of(NAME)
    values, weights = run(NAME, x, times=10)
    found, after, report = run(NAME, x, policy="lossless", times=10)
    out({"same": equal(values, found) and equal(weights, after), "finite": bool(np.isfinite(values[-1][0])),
         "lists": sum(g["lists"] for g in report.graphs), "choices": choices(report),
         "reasons": [g["reason"] for g in report.graphs],
         "plain": report.predicted_plain_bytes, "peak": report.predicted_peak_bytes})
    """
    found = python(f"NAME = {name!r}", STEPS, code, **EIGEN)
    assert found["same"] and found["finite"], found
    assert not any("malformed" in reason or "failed" in reason for reason in found["reasons"]), found
    assert found["peak"] < found["plain"], found
    if name not in NOTHING_TO_GAIN:
        assert found["lists"] > 0, found


@pytest.mark.parametrize("policy", ("fp16", "fp8"))
@pytest.mark.parametrize("name", slow_but(MODELS, ("lstm", "conv_lstm_2d")))
def test_rounded_elements(python, name, policy):
    """Gradients stay within the gates of the policies, and every list is smaller or says why not."""
    code = """
    x = step_lists.inputs_of(NAME)
    values, _ = run(NAME, x)
    found, _, report = run(NAME, x, policy=POLICY)
    exact, got = (np.concatenate([g.ravel() for g in v[0][1:]]).astype("float64") for v in (values, found))
    out({"error": np.linalg.norm(got - exact) / np.linalg.norm(exact), "loss": [values[0][0], found[0][0]],
         "choices": choices(report), "raw": [t["reason"] for t in lists_of(report) if t["choice"] == "raw"],
         "plain": report.predicted_plain_bytes, "peak": report.predicted_peak_bytes})
    """
    found = python(f"NAME, POLICY = {name!r}, {policy!r}", STEPS, code, **EIGEN)
    assert found["loss"][0] == found["loss"][1], found
    assert found["error"] <= {"fp16": 1e-3, "fp8": 0.05}[policy], found
    assert name in NOTHING_TO_GAIN or any(choice.startswith("fp") for choice in found["choices"]), found
    assert found["peak"] < found["plain"], found


@pytest.mark.slow
@pytest.mark.parametrize("count", (100, 400))
@pytest.mark.parametrize("name", ("lstm", "gru", "gru_reset_before"))
def test_errors_over_many_steps(python, name, count):
    """Rounding errors of elements do not add up over time: the gates of the policies hold for long sequences."""
    code = """
    step_lists.STEPS = COUNT
    x = step_lists.inputs_of(NAME)
    def gradient(**options):
        values = run(NAME, x, times=1, **options)[0]
        return np.concatenate([g.ravel() for g in values[0][1:]]).astype("float64")
    exact = gradient()
    out({p: np.linalg.norm(gradient(policy=p) - exact) / np.linalg.norm(exact) for p in ("fp16", "fp10", "fp8")})
    """
    found = python(f"NAME, COUNT = {name!r}, {count}", STEPS, code, **EIGEN)
    assert 0 < found["fp16"] <= 1e-3 and 0 < found["fp10"] <= 0.03 and 0 < found["fp8"] <= 0.05, found


def test_batches_of_any_size(python):
    """Where the graph leaves the batch open, the bytes of an element tell it."""
    code = """
    def made(name):
        step, weights = plain(name)
        signature = [tf.TensorSpec((None, *step_lists.inputs_of(name).shape[1:]))]
        return tf.function(step.python_function, input_signature=signature), weights
    plain, step_lists.made = step_lists.made, made
    step_lists.STEPS = 40
    inputs = [step_lists.inputs_of("gru", batch) for batch in (32, 13, 1, 40)]
    values, weights = run("gru", *inputs)
    found, after, report = run("gru", *inputs, policy="lossless")
    rounded, _, _ = run("gru", *inputs, policy="fp8")
    out({"same": equal(values, found) and equal(weights, after), "choices": choices(report),
         "losses": [[v[0] for v in values], [v[0] for v in rounded]]})
    """
    found = python(STEPS, code, **EIGEN)
    assert found["same"] and found["choices"].get("recompute"), found
    assert found["losses"][0] == pytest.approx(found["losses"][1], rel=0.01), found


def test_variables_written_before_and_after_a_loop(python):
    """What is kept once is read when the loop begins: after what was written before, and before what is written later."""
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((64, 128)).astype("float32") / 8)
    first = w.numpy()

    @tf.function
    def step(x):
        w.assign_add(tf.ones_like(w) * 0.01)
        with tf.GradientTape() as tape:
            h = x
            for _ in tf.range(10):
                h = tf.tanh(h @ w[:, :64]) + tf.tanh(h @ w[:, 64:])
            loss = tf.reduce_mean(h * h)
        w.assign(w * 1.5)
        gradient = tape.gradient(loss, w)
        w.assign_sub(0.1 * gradient)
        return loss, gradient

    def steps():
        w.assign(first)
        return [[t.numpy() for t in step(x)] + [w.numpy()] for _ in range(4)]

    x = tf.constant(np.random.default_rng(2).standard_normal((8, 64)).astype("float32"))
    values = steps()
    with stash_tf.enabled("lossless", min_bytes=256):
        found = steps()
        report = stash_tf.report()
    out({"same": equal(values, found), "once": [t["iterations"] for t in lists_of(report)], "choices": choices(report)})
    """
    found = python(STEPS, code, **EIGEN)
    assert found["same"] and found["once"].count(1) == 2, found


def test_masks_take_a_bit(python):
    """Conditions that a loop keeps, and outputs of a ReLU of which only the sign is needed."""
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((64, 64)).astype("float32") / 8)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            h = x
            for _ in tf.range(16):
                y = h @ w
                h = tf.where(y > 0.1, y * 0.9, tf.nn.relu(x + 0.0 * y))
            loss = tf.reduce_mean(h * h)
        gradient = tape.gradient(loss, w)
        return loss, gradient

    x = tf.constant(np.random.default_rng(2).standard_normal((32, 64)).astype("float32"))
    values = [t.numpy() for t in step(x)]
    with stash_tf.enabled("lossless", min_bytes=256):
        found = [t.numpy() for t in step(x)]
        report = stash_tf.report()
    masks = [t for t in lists_of(report) if t["choice"] == "sign_mask"]
    out({"same": equal(values, found), "masks": [[t["type"], t["dense_bytes"], t["stored_bytes"]] for t in masks],
         "choices": choices(report)})
    """
    found = python(STEPS, code, **EIGEN)
    assert found["same"] and found["masks"], found
    for kind, dense, stored in found["masks"]:
        assert stored * (8 if kind == "DT_BOOL" else 32) == dense, found


def test_what_stays_as_it_is(python):
    """Lists that are results, that another list holds, that are read again outside; a second derivative is refused or right."""
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((64, 64)).astype("float32") / 8)

    def forward(x):
        h, kept = x, tf.TensorArray(tf.float32, 12)
        for k in tf.range(12):
            h = tf.tanh(h @ w)
            kept = kept.write(k, h)
        return h, kept.stack()

    forward = tf.autograph.to_graph(forward)

    @tf.function
    def result_too(x):
        with tf.GradientTape() as tape:
            h, all_of_them = forward(x)
            loss = tf.reduce_mean(h * h) + tf.reduce_mean(all_of_them)
        return tape.gradient(loss, w), all_of_them

    @tf.function
    def twice(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_mean(forward(x)[0] ** 2)
            gradient = inner.gradient(loss, x)
            penalty = tf.reduce_mean(gradient * gradient)
        return outer.gradient(penalty, w), gradient

    x = tf.constant(np.random.default_rng(2).standard_normal((8, 64)).astype("float32"))
    values = [[t.numpy() for t in step(x)] for step in (result_too, twice)]
    with stash_tf.enabled("lossless", min_bytes=256):
        found = [[t.numpy() for t in step(x)] for step in (result_too, twice)]
    with stash_tf.enabled("fp8", min_bytes=256):
        rounded = [[t.numpy() for t in step(x)] for step in (result_too, twice)]
    def error(a, b):
        return float(np.linalg.norm(a - b) / np.linalg.norm(a))
    out({"same": equal(values, found), "results": equal(values[0][1], rounded[0][1]),
         "errors": [error(values[0][0], rounded[0][0]), error(values[1][0], rounded[1][0])]})
    """
    found = python(STEPS, code, **EIGEN)
    assert found["same"] and found["results"], found
    assert max(found["errors"]) < 0.1, found


@pytest.mark.parametrize("policy", ("lossless", slow("fp8")))
def test_measured_peak(python, policy):
    """By the allocator, with one op at a time: lists and all."""
    code = """
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import keras
    def made():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((64, 32)), keras.layers.LSTM(128, return_sequences=True), keras.layers.LSTM(128)])
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x)))
            for w, g in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
                w.assign_sub(0.1 * g)
            return loss
        return step
    x = tf.constant(np.random.default_rng(1).standard_normal((16, 64, 32)).astype("float32"))
    plain = stash_tf.peak_bytes(made(), x)
    with stash_tf.enabled(POLICY):
        step = made()
        step(x)
        peak = stash_tf.peak_bytes(step, x)
        out([plain, peak, stash_tf.report().predicted_plain_bytes, stash_tf.report().predicted_peak_bytes])
    """
    plain, peak, predicted_plain, predicted = python(f"POLICY = {policy!r}", STEPS, code, **EIGEN)
    assert peak < {"lossless": 0.55, "fp8": 0.35}[policy] * plain, (plain, peak)
    assert abs(peak / predicted - 1) <= 0.1, (peak, predicted)
    assert abs(plain / predicted_plain - 1) <= 0.1, (plain, predicted_plain)


@pytest.mark.parametrize("kind", ("scatter", slow("slice"), slow("xla"), "nothing"))
def test_a_loop_that_writes_what_it_reads(python, kind):
    """By whatever op, or within a call that hides it: what it reads is not the same in every iteration."""
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((64, 128)).astype("float32") / 8)
    first = w.numpy()

    @tf.function(jit_compile=True)
    def compiled():
        w.assign(w * 1.2)

    @tf.autograph.experimental.do_not_convert
    def write(k):
        if KIND == "scatter":
            w.scatter_update(tf.IndexedSlices(tf.ones([1, 128]), [k]))
        if KIND == "slice":
            w[3:4, 5:9].assign(tf.fill([1, 4], tf.cast(k, tf.float32)))
        if KIND == "xla":
            compiled()

    def made():
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                h = x
                for k in tf.range(6):
                    h = tf.tanh(h @ tf.tanh(w[:, :64])) + tf.tanh(h @ tf.tanh(w[:, 64:]))
                    write(k)
                loss = tf.reduce_mean(h * h)
            return loss, tape.gradient(loss, w)
        return step

    def values(x):
        w.assign(first)
        return [t.numpy() for t in made()(x)]

    x = tf.constant(np.random.default_rng(2).standard_normal((8, 64)).astype("float32"))
    plain = values(x)
    with stash_tf.enabled("lossless", min_bytes=256):
        found = values(x)
        report = stash_tf.report()
    out({"same": equal(plain, found), "once": sum(t["iterations"] == 1 for t in lists_of(report))})
    """
    found = python(f"KIND = {kind!r}", STEPS, code, **EIGEN)
    assert found["same"] and (found["once"] > 0) == (kind == "nothing"), found


@pytest.mark.parametrize("width", (64, 127, 128, 130))
def test_masks_of_any_batch(python, width):
    """A mask's bytes grow in steps: where they would not tell the batch, it stays as it is."""
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype("float32") / 8)

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH])])
    def step(x):
        with tf.GradientTape() as tape:
            h = x
            for _ in tf.range(5):
                y = h @ w
                h = tf.where(y > 0.1, y * y, h)
            loss = tf.reduce_mean(h * h)
        return loss, tape.gradient(loss, w)

    def values():
        return [[t.numpy() for t in step(tf.ones([batch, WIDTH]))] for batch in (8, 1, 2, 3, 7, 33, 0)]

    plain = values()
    with stash_tf.enabled("lossless", min_bytes=256):
        found = values()
        report = stash_tf.report()
    out({"same": equal(plain, found), "choices": choices(report)})
    """
    found = python(f"WIDTH = {width}", STEPS, code, **EIGEN)
    assert found["same"], found
    assert ("sign_mask" in found["choices"]) == (width >= 128), found


def test_shapes_that_no_batch_tells(python):
    """A dimension that looks like a constant for two batches, and lists whose elements differ."""
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((64, 64)).astype("float32") / 8)

    @tf.function(input_signature=[tf.TensorSpec([None, 64])])
    def smaller(x):
        with tf.GradientTape() as tape:
            body = lambda h: (tf.tanh(h @ w) * tf.sigmoid(h) + tf.nn.relu(h) * 0.5,)
            h = x[:tf.minimum(tf.shape(x)[0], 4)]
            h, = tf.while_loop(lambda h: True, body, (h,), maximum_iterations=6, shape_invariants=(tf.TensorShape([None, 64]),))
            loss = tf.reduce_mean(h * h)
        return loss, tape.gradient(loss, w)

    @tf.function
    def differing(x):
        with tf.GradientTape() as tape:
            read = tf.TensorArray(tf.float32, 3, infer_shape=False, element_shape=tf.TensorShape(None))
            read = read.write(0, x).write(1, x[:1]).write(2, tf.concat([x, x], 0))
            body = lambda k, s: (k + 1, s + tf.reduce_mean(tf.tanh(read.read(k)) ** 2 * w[0]))
            loss = tf.while_loop(lambda k, s: k < 3, body, (0, 0.0))[1]
        return loss, tape.gradient(loss, w)

    def values():
        xs = [tf.constant(np.random.default_rng(b).standard_normal((b, 64)).astype("float32")) for b in (8, 3, 1, 33)]
        return [[t.numpy() for t in step(x)] for step in (smaller, differing) for x in xs]

    plain = values()
    with stash_tf.enabled("lossless", min_bytes=256):
        same = equal(plain, values())
    with stash_tf.enabled("fp8", min_bytes=256):
        rounded = values()
    out({"same": same, "errors": [float(np.linalg.norm(a[1] - b[1]) / np.linalg.norm(a[1])) for a, b in zip(plain, rounded)]})
    """
    found = python(STEPS, code, **EIGEN)
    assert found["same"] and max(found["errors"]) < 0.1, found
