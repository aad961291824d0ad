# SPDX-License-Identifier: Apache-2.0
"""The graph optimizer on steps of many shapes (steps.py): lossless training is plain training bit by bit, and where
something can be stored in another form, it is."""

import json
import os
from pathlib import Path

import pytest

import forks
from conftest import slow, slow_but
from run_pool import selected

LONG = os.environ.get("STASH_TF_LONG") == "1"
HERE = Path(__file__).resolve().parent
SECONDS = 3600
ONEDNN_OFF = {"TF_ENABLE_ONEDNN_OPTS": "0"}

QUICK = (
    "middle_grouped", "middle_relu6_flatten", "middle_maximum", "middle_gelu", "middle_cond_on_data", "middle_recomputed_conv",
    "applied_every_second_step", "gradients_of_maps_are_results", "adversarial", "saliency_and_training", "half_adam_scaled",
    "batch_unknown", "empty_batch", "tiny",
)
CORE = ("middle_relu6_flatten", "middle_gelu", "adversarial", "batch_unknown", "empty_batch", "tiny")


def records(names=(), *options, environment=()):
    """What steps.py prints, by step."""
    finished = forks.run(HERE / "steps.py", *names, *options, environment={**os.environ, **ONEDNN_OFF, **dict(environment)},
                         timeout=SECONDS)
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    found = (json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{"))
    return {record["step"]: record for record in found}


@pytest.fixture(scope="module")
def of_step(request):
    return records(selected(request, "name"))


def names():
    listed = forks.run(HERE / "steps.py", "--list", timeout=SECONDS)
    assert listed.returncode == 0, listed.stderr
    return listed.stdout.split()


@pytest.mark.parametrize("name", slow_but(names() if LONG else QUICK, CORE))
def test_lossless_is_identical(of_step, name):
    record = of_step[name]
    assert "broken" not in record and "failed" not in record, record
    assert record["trained"] or record["forward"], "the weights did not change: nothing is compared"
    assert record["same_losses"] and record["same_weights"], record
    assert not record["stderr"], record["stderr"]
    if record["nothing_to_do"]:
        assert not record["rewritten"] and not record["executions"] and record["reasons"], record
    elif record["loops"]:
        assert not record["executions"] and (record["rewritten"] or record["reasons"]), record
    else:
        assert record["rewritten"] and record["executions"] > 0, record


BUDGETS = """
import re, sys
sys.path.insert(0, os.environ["TESTS"])
import keras, steps

def state(task):
    return steps.bits(task.variables())

found = {}
for name in os.environ["NAMES"].split():
    keras.utils.set_random_seed(1)
    task = steps.STEPS[name]()
    before = state(task)
    with stash_tf.enabled("lossless", budget=1000):
        try:
            task.call(0)
            message = "no error"
        except tf.errors.ResourceExhaustedError as error:
            message = str(error)
    smallest = re.search(r"the budget of 1000 bytes is too small for this step; (\\d+) would do", message)
    found[name] = {"message": message[:300], "untouched": state(task) == before}
    if smallest:
        with stash_tf.enabled("lossless", budget=int(smallest[1])):
            task.call(0)
            graphs = [graph for graph in stash_tf.report().graphs if graph["rewritten"]]
            found[name]["trained"] = state(task) != before
            found[name]["predicted"] = max(graph["predicted_peak_bytes"] for graph in graphs) <= int(smallest[1])
            found[name]["reasons"] = [graph["reason"] for graph in graphs]
out(found)
"""


def test_budgets_are_refused_before_anything_is_written(python):
    steps = ("functions_in_functions", "whole_step_in_cond", "another_model_in_branch", "steps_in_while")
    found = python(BUDGETS, NAMES=" ".join(steps), TESTS=str(HERE), **ONEDNN_OFF)
    assert list(found) == list(steps)
    for name, record in found.items():
        assert record["untouched"], name
        assert record["trained"] and record["predicted"] and record["reasons"] == [""], (name, record)


DENSE = """
import warnings
import keras

keras.utils.set_random_seed(1)
layers = [keras.layers.Conv2D(16, 3, padding="same", activation="relu", bias_initializer="ones") for _ in range(8)]
model = keras.Sequential([keras.Input((64, 64, 3)), *layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(4)])

@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True)))
    for w, g in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
        w.assign_sub(1e-3 * g)
    return loss

x = np.random.default_rng(0).standard_normal((16, 64, 64, 3)).astype("float32")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with stash_tf.enabled("lossless", budget="54 MiB", keep=["nosuch", "conv2d"]):
        losses = [float(train(x)) for _ in range(8)]
        report = str(stash_tf.report())
words = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
out({"losses": losses, "words": words, "report": report})
"""


def test_a_budget_that_was_accepted_never_stops_training(python):
    found = python(DENSE, **ONEDNN_OFF)
    assert len(found["losses"]) == 8
    assert len(found["words"]) == 1 and "the budget of 56623104 bytes is too small" in found["words"][0]
    assert "would do under policy lossless" in found["report"]
    assert "keep: no layer of the steps seen is called nosuch." in found["report"]


BITS = """
import keras

def step_of(activation):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        keras.Input((64, 64, 8)), keras.layers.Conv2D(16, 3, padding="same"), keras.layers.Activation(activation),
        keras.layers.Conv2D(16, 3, padding="same"), keras.layers.Activation(activation),
        keras.layers.Conv2D(4, 3, strides=4)])
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        for w, g in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
            w.assign_sub(0.01 * g)
        return loss
    step.model = model
    return step

def trained(policy):
    step = step_of(os.environ["ACTIVATION"])
    losses = [float(step(x)) for _ in range(4)]
    return step, [losses, [w.numpy().tolist() for w in step.model.trainable_variables]]

x = np.random.default_rng(0).standard_normal((8, 64, 64, 8)).astype("float32")
plain = trained("none")[1]
with stash_tf.enabled(os.environ["POLICY"]):
    step, found = trained(os.environ["POLICY"])
    rows = {row.tensor: [row.choice, row.state, row.dense_bytes, row.stored_bytes] for row in stash_tf.report().rows}
    graphs = [graph for graph in stash_tf.report().graphs if graph["rewritten"]]
    peak = stash_tf.peak_bytes(step, x)
furthest = max(np.abs(np.subtract(a, b)).max() for a, b in zip(plain[1], found[1]))
out({"same": plain == found, "furthest": furthest, "rows": rows, "peak": peak,
     "predicted": graphs[-1]["predicted_peak_bytes"]})
"""


@pytest.mark.parametrize(("activation", "policy", "bits", "values"), [
    ("relu6", "fp8", "range_mask", "bitmap_fp8"),  # which a ReLU6's gradient could not be read from
    ("relu", "lossless", "sign_mask", "bitmap"),
    ("relu", "fp8", "sign_mask", "bitmap_fp8"),
])
def test_bits_are_kept_in_addition_where_that_lowers_the_peak(python, activation, policy, bits, values):
    environment = {**ONEDNN_OFF, "TF_CPU_ALLOCATOR_USE_BFC": "true", "ACTIVATION": activation, "POLICY": policy}
    found = python(BITS, **environment)
    assert found["same"] == (policy == "lossless") and found["furthest"] < 1e-3, found
    bits_rows = {name: row for name, row in found["rows"].items() if name.endswith(":bits")}
    elements = 8 * 64 * 64 * 16
    assert bits_rows and all(row == [bits, "ran", 0, elements // 8] for row in bits_rows.values()), found["rows"]
    for name in bits_rows:
        choice, state, dense, stored = found["rows"][name.removesuffix(":bits")]
        assert (choice, state, dense) == (values, "ran", 4 * elements) and stored < dense * 0.6, found["rows"]
    assert abs(found["peak"] - found["predicted"]) < 0.1 * found["peak"], found


def test_kept_layers_stay_as_they_are(python):
    code = """
    step, x = training(), images()
    def choices(**options):
        with stash_tf.enabled("lossless", **options):
            step(x)
            graphs = [graph for graph in stash_tf.report().graphs if graph["rewritten"]]
        return [[tensor["tensor"], tensor["choice"], tensor["reason"]] for graph in graphs for tensor in graph["tensors"]]
    everything = choices()
    kept = next(row[0] for row in everything if row[1] != "raw").split(":")[0].split("/")[-1]
    out([everything, kept, choices(keep=[kept])])
    """
    everything, kept, rest = python(code, **ONEDNN_OFF)
    assert any(choice != "raw" for _, choice, _ in everything)
    mine = [row for row in rest if row[0].split(":")[0].split("/")[-1] == kept]
    assert mine and all(row[1:] == ["raw", "the user keeps this layer"] for row in mine)


def test_a_rewritten_graph_is_not_rewritten_again(python):
    code = """
    step, x = training(), images()
    library = stash_tf.library.load()
    with stash_tf.enabled("lossless", replan=False):
        for _ in range(3):
            step(x)
        found = library.graphs()
    out([len(found), [graph["rewritten"] for graph in found]])
    """
    count, rewritten = python(code, **ONEDNN_OFF)
    assert count == 1 and rewritten == [True]


def test_onednn_joins_what_it_joins_without_stash(python):
    """The gradients of a filter and its bias, where filters are larger than maps and layers run in parallel:
    control edges that keep the order of the backward pass must not keep the two from being joined."""
    code = """
    stash_tf.enable(policy) if policy else None
    rng = np.random.default_rng(1)
    filters = [tf.Variable(rng.standard_normal((3, 3, 128, 128)).astype("float32") / 40) for _ in range(6)]
    biases = [tf.Variable(tf.zeros(128)) for _ in filters]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            layers = [lambda y, w=w, b=b: tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(y, w, 1, "SAME"), b))
                      for w, b in zip(filters, biases)]
            for left, right in zip(layers[::2], layers[1::2]):
                y = left(y) * right(y)
            loss = tf.reduce_sum(y * y)
        variables = filters + biases
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(1e-6 * gradient)
        return loss

    step(tf.constant(rng.standard_normal((2, 16, 16, 128)).astype("float32")))
    out([bool(stash_tf.report().rows)] if policy else [False])
    """

    def joined(policy):
        process = python(f"policy = {policy!r}", code, whole=True, TF_ENABLE_ONEDNN_OPTS="1", TF_CPP_MIN_LOG_LEVEL="0",
                         TF_CPP_VMODULE="mkl_layout_pass=1")
        assert process.value == [policy is not None], process.stderr[-2000:]
        return process.stderr.count("Merged nodes")

    assert joined(None) == 6 and joined("fp8") == 6


@pytest.mark.parametrize(("function", "most_off"), [
    ("(1 + y) / d", 0.1),
    ("tf.math.divide_no_nan(1 + y, d)", 0.1),
    slow("tf.pow(d + 1e-6, -2 - y)", 1.0),  # the softmax itself is rounded, coarsely
    # What is compared or divided by is computed again from what was kept.
    ("tf.reduce_max(tf.reshape(tf.nn.elu(x @ weight), (128, 64, 4)), -1) * tf.tanh(y)[:, :64]", 0.3),
    ("y / (1e-3 + tf.square(d)) * tf.tanh(y)", 0.1),
    slow("tf.atan2(y, 1e-3 + y * y)", 0.1),
    slow("tf.acos(0.99 * tf.tanh(y))", 0.5),
    slow("tf.recompute_grad(lambda v: v / tf.norm(v, axis=-1, keepdims=True))(d) * y", 0.1),
    ("tf.recompute_grad(lambda v: v * tf.math.log(2.0 * v))(d + 1e-6) * y", 0.1),
    slow("tf.recompute_grad(lambda v: v * tf.math.rsqrt(2.0 * v))(d + 1e-6)", 0.1),
    ("tf.recompute_grad(lambda v: tf.nn.relu(tf.sigmoid(v) - 0.501))(d) * tf.square(y)", 0.02),
])
def test_what_makes_infinities_of_zeros_is_not_rounded(python, function, most_off):
    """Under fp8 most of these divisors would be zero."""
    code = f"""
    weight = tf.Variable(np.random.default_rng(1).standard_normal((64, 256)).astype("float32"))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.nn.relu(x @ weight)
            d = tf.nn.softmax(y)
            loss = tf.reduce_mean({function})
        return tape.gradient(loss, weight)

    x = tf.constant(np.random.default_rng(2).standard_normal((128, 64)).astype("float32") / 3)
    plain = step(x).numpy()
    with stash_tf.enabled("fp8"):
        stashed = step(x).numpy()
        rewritten = any(graph["rewritten"] for graph in stash_tf.report().graphs)
    off = np.linalg.norm(stashed - plain) / np.linalg.norm(plain)
    out([bool(np.isfinite(plain).all()), rewritten, bool(np.isfinite(stashed).all()), float(off)])
    """
    plain, rewritten, stashed, off = python(code, **ONEDNN_OFF)
    assert plain and rewritten and stashed and off < most_off, off


def test_a_gradient_that_a_forward_op_waits_for_is_not_rounded(python):
    """The gradient of swish runs a sigmoid that waits for the gradient it will be multiplied with. With a squared error
    nothing but its name says that the mean's gradient is one; in fp8 all of it would be zero."""
    code = """
    import keras
    from keras import layers as L
    x = tf.constant(np.random.default_rng(2).random((16, 128, 128, 8)).astype("float32"))
    labels = [tf.zeros((16, 3)), tf.zeros((16, 2))]

    def trained():
        keras.utils.set_random_seed(1)
        image = L.Input((128, 128, 8))
        y = L.Conv2D(8, 3, padding="same", activation="swish")(image)
        y = L.Conv2D(8, 3, padding="same", activation="softplus")(y)
        mean = L.Dense(3)(L.GlobalAveragePooling2D()(y))
        largest = L.Dense(2)(L.Flatten()(L.MaxPooling2D(8)(y)))
        model = keras.Model(image, [mean, largest])
        model.compile(keras.optimizers.SGD(1.0), loss=["mse", "mse"], loss_weights=[1.0, 0.0], jit_compile=False)
        before = model.get_weights()
        model.train_on_batch(x, labels)
        return [new - old for new, old in zip(model.get_weights(), before)][:4]

    plain = trained()
    with stash_tf.enabled("fp8"):
        stashed = trained()
        rows = [row.tensor for row in stash_tf.report().rows if row.stored_bytes < row.dense_bytes]
    off = [float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in zip(plain, stashed)]
    out([rows, off])
    """
    rows, off = python(code, **ONEDNN_OFF)
    assert rows and not any("truediv" in row for row in rows) and max(off) < 0.1, (rows, off)


@pytest.mark.parametrize("loss", ["mse", slow("huber"), slow("log_cosh"), slow("weighted")])
def test_what_the_gradient_of_a_loss_begins_with_is_exact(python, loss):
    """A model that is nearly as good as its labels: fp8 has no numbers as small as what is left between them."""
    code = f"""
    loss = {loss!r}
    import keras
    from keras import layers as L
    keras.utils.set_random_seed(1)
    image = L.Input((64, 64, 3))
    y = L.Conv2D(8, 3, padding="same", activation="relu")(image)
    y = L.Conv2D(8, 3, padding="same", activation="relu")(y)
    model = keras.Model(image, L.Conv2D(3, 3, padding="same")(y))
    rng = np.random.default_rng(2)
    x = tf.constant(rng.random((8, 64, 64, 3)).astype("float32"))
    labels = model(x) * (1 + 0.001 * tf.constant(rng.standard_normal((8, 64, 64, 3)).astype("float32")))
    weights = tf.constant(rng.random((8, 64, 64)).astype("float32")) if loss == "weighted" else None
    begin = model.get_weights()

    def trained():
        model.set_weights(begin)
        model.compile(keras.optimizers.SGD(1.0), "mse" if loss == "weighted" else loss, jit_compile=False)
        model.train_on_batch(x, labels, sample_weight=weights)
        return [new - old for new, old in zip(model.get_weights(), begin)]

    plain = trained()
    with stash_tf.enabled("fp8"):
        stashed = trained()
        rows = len(stash_tf.report().rows)
    out([rows, [float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in zip(plain, stashed)]])
    """
    rows, off = python(code, **ONEDNN_OFF)
    assert rows and max(off) < 0.2, (rows, off)


@pytest.mark.parametrize("function", [
    slow("tf.sqrt(tf.reduce_mean(tf.math.squared_difference(y, z)))"),
    "tf.reduce_mean(tf.sqrt(tf.square(y - z) + 1e-6))",
    slow("tf.nn.relu(tf.reduce_mean(tf.square(y - z)) - 1e-9)"),
    slow("tf.reduce_mean(tf.square(tf.nn.avg_pool2d(y, 2, 2, 'VALID') - tf.nn.avg_pool2d(z, 2, 2, 'VALID')))"),
    "1 - tf.reduce_mean(tf.image.ssim(y, z, 1.0))",
    "tf.reduce_mean(tf.exp(y) - 1 - y) + tf.reduce_mean(y * y)",  # the divergence of a VAE
    slow("-tf.reduce_mean(tf.math.log(1.0001 - tf.sigmoid(y + 8)))"),
    "tf.reduce_mean(tf.square(tf.tanh(y + 3) + z))",
    # A loss on a map that another layer reads as well.
    "tf.reduce_mean(tf.square(y - z)) + 1e-5 * tf.reduce_mean(tf.nn.conv2d(y, filters, 1, 'SAME') ** 2)",
])
def test_losses_of_many_steps_begin_with_exact_values(python, function):
    """Whatever stands between the loss and the last weights: roots, pooling, filters, saturated activations."""
    code = f"""
    rng = np.random.default_rng(2)
    weights = [tf.Variable(rng.standard_normal(shape).astype("float32") / 5) for shape in ((3, 3, 3, 8), (3, 3, 8, 3))]
    filters = rng.standard_normal((3, 3, 3, 3)).astype("float32")
    x = tf.constant(rng.random((8, 32, 32, 3)).astype("float32"))
    noise = tf.constant(1 + 0.005 * rng.standard_normal((8, 32, 32, 3)).astype("float32"))
    small = 0.01 if "exp" in {function!r} else 1.0

    def outputs():
        return small * tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, weights[0], 1, "SAME")), weights[1], 1, "SAME")

    z = outputs() * noise

    def gradient():
        @tf.function
        def step():
            with tf.GradientTape() as tape:
                y = outputs()
                loss = {function}
            return tape.gradient(loss, weights)
        return [g.numpy() for g in step()]

    plain = gradient()
    with stash_tf.enabled("fp8"):
        stashed = gradient()
        rewritten = any(graph["rewritten"] for graph in stash_tf.report().graphs)
    off = [float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in zip(plain, stashed)]
    out([rewritten, off])
    """
    rewritten, off = python(code, **ONEDNN_OFF)
    assert rewritten and max(off) < 0.2, off


@pytest.mark.parametrize("function", [
    "y * tf.sigmoid(tf.nn.conv2d(y, gate, 1, 'SAME') + 4)",
    slow("y * tf.tanh(tf.nn.conv2d(y, gate, 1, 'SAME') + 3)"),
    "y * tf.nn.elu(tf.nn.conv2d(y, gate, 1, 'SAME') - 4)",
    slow("y * tf.nn.selu(tf.nn.conv2d(y, gate, 1, 'SAME') - 4)"),
    "y * tf.reshape(tf.nn.softmax(tf.reshape(tf.nn.conv2d(y, gate, 1, 'SAME'), (8, 1024, 8)), 1), y.shape)",
])
def test_saturated_activations_keep_derivatives(python, function):
    """Near one, and in thousands of shares that add up to one, fp8 has no numbers."""
    code = f"""
    rng = np.random.default_rng(2)
    gate = tf.Variable(rng.standard_normal((3, 3, 8, 8)).astype("float32") / 100)
    inner = tf.Variable(rng.standard_normal((3, 3, 3, 8)).astype("float32") / 3)
    last = tf.constant(rng.standard_normal((3, 3, 8, 8)).astype("float32"))
    x = tf.constant(rng.random((8, 32, 32, 3)).astype("float32"))

    def gradient():
        @tf.function
        def step():
            with tf.GradientTape() as tape:
                y = tf.nn.conv2d(x, inner, 1, "SAME")
                loss = tf.reduce_mean(tf.nn.relu(tf.nn.conv2d({function}, last, 1, "SAME")))
            return tape.gradient(loss, gate)
        return step().numpy()

    plain = gradient()
    with stash_tf.enabled("fp8"):
        stashed = gradient()
        kept = sorted(row.choice for row in stash_tf.report().rows)
    out([kept, float(np.linalg.norm(plain - stashed) / np.linalg.norm(plain))])
    """
    kept, off = python(code, **ONEDNN_OFF)
    assert "fp16" in kept and "fp8" in kept and off < 0.2, (kept, off)


@pytest.mark.parametrize("mean", [slow(False), True], ids=["no_mean", "mean"])
@pytest.mark.parametrize("axis", [slow(0), 1], ids=["channels", "rows"])
def test_what_is_spread_over_a_gradient_is_not_rounded(python, axis, mean):
    """As norms have a mean and a factor for each channel or row: what it is rounded by, all of that is off by."""
    code = f"""
    rng = np.random.default_rng(2)
    rows, width = (2048, 256) if {axis} else (256, 2048)  # a factor has 2048 values
    inner = [tf.Variable(rng.standard_normal((width, width)).astype("float32") / width ** 0.5) for _ in range(6)]
    gain = tf.Variable(rng.random((rows, 1) if {axis} else width).astype("float32") + 0.5)
    x = tf.constant(rng.standard_normal((rows, width)).astype("float32"))

    def gradient():
        @tf.function
        def step():
            with tf.GradientTape() as tape:
                y = x
                for w in inner:
                    y = tf.nn.relu(y @ w)
                    if {mean}:
                        average, variance = tf.nn.moments(y, [{axis}], keepdims={axis} == 1)
                        y = (y - average) * (gain * tf.math.rsqrt(variance + 1e-6))
                    else:
                        y = y * (gain * tf.math.rsqrt(tf.reduce_mean(y * y, {axis}, keepdims={axis} == 1) + 1e-6))
                loss = tf.reduce_sum(y @ tf.ones((width, 1)))
            return tape.gradient(loss, inner[0])
        return step().numpy()

    plain = gradient()
    with stash_tf.enabled("fp8", replan=False, recompute=False):
        stashed = gradient()
        rows = [(row.dense_bytes, row.choice) for row in stash_tf.report().rows]
    out([sorted(rows), float(np.linalg.norm(plain - stashed) / np.linalg.norm(plain))])
    """
    rows, off = python(code, **ONEDNN_OFF)
    assert any("fp8" in choice for _, choice in rows), rows
    assert {choice for size, choice in rows if size == 4 * 2048} == {"raw"}, (rows, off)
    assert off < 0.05, off


@pytest.mark.parametrize("kind", [slow("given"), slow("bytes"), "dataset"])
def test_inputs_keep_16_bits(python, kind):
    """Pictures differ by less than what fp8 rounds their mean by, and the first layer is trained by how they differ."""
    code = f"""
    kind = {kind!r}
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 256, (16, 32, 32, 3)).astype("uint8")
    kernels = [tf.Variable(rng.standard_normal(shape).astype("float32") / 8) for shape in ((3, 3, 3, 16), (3, 3, 16, 16))]
    inputs = tf.constant(pixels) if kind != "given" else tf.constant(pixels / 255, tf.float32)

    def gradients():
        def of_one(x):
            with tf.GradientTape() as tape:
                y = tf.pad(x if kind == "given" else tf.cast(x, tf.float32) / 255, [[0, 0], [1, 1], [1, 1], [0, 0]])
                for kernel in kernels:
                    y = tf.nn.relu(tf.nn.conv2d(y, kernel, 1, "SAME"))
                    y = y - tf.reduce_mean(y, [0, 1, 2])
                loss = tf.reduce_mean(y ** 3)
            return tape.gradient(loss, kernels)
        if kind != "dataset":
            return tf.function(of_one)(inputs)
        iterator = iter(tf.data.Dataset.from_tensors(pixels))
        return tf.function(lambda: of_one(next(iterator)))()

    with stash_tf.enabled("fp8", replan=False):
        gradients()
        out([(row.dense_bytes, row.choice) for row in stash_tf.report().rows])
    """
    rows = python(code, **ONEDNN_OFF)
    assert [choice for size, choice in rows if size == 4 * 16 * 34 * 34 * 3] == ["fp16"], rows
    assert any("fp8" in choice for _, choice in rows), rows


def test_an_alpha_that_is_no_number_is_left_to_tensorflow(python):
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((3, 3, 8, 8)).astype("float32"))
    x = tf.constant(np.random.default_rng(2).standard_normal((4, 32, 32, 8)).astype("float32"))

    def gradient(alpha):
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                y = tf.nn.leaky_relu(tf.nn.conv2d(x, w, 1, "SAME"), alpha)
                loss = tf.reduce_sum(tf.nn.relu(tf.nn.conv2d(y, w, 1, "SAME")))
            return tape.gradient(loss, w)
        return step(x).numpy()

    same = []
    for alpha in (float("inf"), float("nan")):
        plain = gradient(alpha)
        with stash_tf.enabled("lossless"):
            same.append(np.array_equal(plain, gradient(alpha), equal_nan=True))
    out(same)
    """
    assert python(code, **ONEDNN_OFF) == [True, True]


def test_pooling_of_something_else_than_a_relu(python):
    """A ReLU's gradient may follow a pooling whose input can be negative: guided backpropagation."""
    code = """
    w = tf.Variable(np.random.default_rng(1).standard_normal((3, 3, 8, 8)).astype("float32"))
    x = tf.constant(np.random.default_rng(2).standard_normal((4, 32, 32, 8)).astype("float32"))

    @tf.custom_gradient
    def guided(y):
        return tf.identity(y), lambda dy: tf.raw_ops.ReluGrad(gradients=dy, features=y)

    def run():
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                y = tf.nn.max_pool2d(guided(tf.nn.conv2d(x, w, 1, "SAME") - 9.0), 2, 2, "VALID")
                loss = tf.reduce_sum(tf.square(tf.nn.conv2d(y, w, 1, "SAME")))
            return loss, tape.gradient(loss, w)
        loss, gradient = step(x)
        return loss.numpy(), gradient.numpy()

    plain = run()
    with stash_tf.enabled("lossless"):
        stash = run()
        ran = stash_tf.report().rewritten
    out([ran, bool(plain[0] == stash[0]), bool((plain[1] == stash[1]).all())])
    """
    assert python(code, **ONEDNN_OFF) == [True, True, True]


def test_an_infinite_gradient_that_passes_nowhere_is_seen(python):
    """Loss scaling looks for it: TensorFlow's product of it with the zero of a ReLU is NaN."""
    code = """
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 64, 64, 8)).astype("float16")
    x[0, :2, :2, 0] = -1
    scale = np.ones((2, 32, 32, 8), "float16")
    scale[0, 0, 0, 0] = np.inf
    def gradient():
        @tf.function
        def step(x, scale):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.nn.relu(x * tf.constant(1.5, "float16"))
                loss = tf.reduce_sum(tf.nn.max_pool2d(y, 2, 2, "VALID") * scale)
            return tape.gradient(loss, x)
        return step(x, scale).numpy()
    plain = gradient()
    with stash_tf.enabled("lossless"):
        stash = gradient()
        ran = stash_tf.report().rewritten
    out({"ran": ran, "nans": int(np.isnan(plain).sum()), "same": plain.tobytes() == stash.tobytes(),
         "nans_with_stash": int(np.isnan(stash).sum())})
    """
    found = python(code, TF_ENABLE_ONEDNN_OPTS="0")
    assert found["nans"] > 0 and found["ran"]
    assert found["nans_with_stash"] == found["nans"] and found["same"]
