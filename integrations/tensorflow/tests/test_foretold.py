# SPDX-License-Identifier: Apache-2.0
"""Peaks are as predicted where the executor would leave the order to chance, and not above plain TensorFlow's."""

from pathlib import Path

import pytest

from conftest import ALLOCATORS, INTERS, MODES

HERE = Path(__file__).resolve().parent
FORETOLD = 0.1
ABOVE_PLAIN = 1.02

STEP = """
import keras
L = keras.layers
INTER = int(os.environ["INTER"])
tf.config.threading.set_inter_op_parallelism_threads(INTER)
tf.config.threading.set_intra_op_parallelism_threads(1)

def conv(x, channels=8):
    return L.Conv2D(channels, 3, padding="same", activation="relu")(x)

def peaks(body, size=64, batch=8, policy="lossless"):
    "Plain TensorFlow's peak, that with Stash, and what was predicted."
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    start = keras.Input((size, size, 3))
    model = keras.Model(start, L.Dense(4)(body(start)))
    optimizer = keras.optimizers.SGD(0.001)
    optimizer.build(model.trainable_variables)
    x = tf.random.stateless_normal((batch, size, size, 3), (1, 2))
    y = tf.one_hot(tf.range(batch) % 4, 4)
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss
    plain = min(stash_tf.peak_bytes(step, x, y) for _ in range(3))
    with stash_tf.enabled(policy):
        peak = max(stash_tf.peak_bytes(step, x, y) for _ in range(3))
        predicted = stash_tf.report().predicted_peak_bytes
    return plain, peak, predicted
"""

DENSE = "lambda x: L.Dense(256, activation='relu')(L.Dense(256, activation='relu')(L.Flatten()(L.MaxPooling2D(2)(conv(x)))))"
BETWEEN = "lambda x: L.GlobalAveragePooling2D()(conv(conv({middle}(conv(conv(x, 32), 32)), 32), 32))"
MIDDLES = {
    "clip": "(lambda x: keras.ops.clip(x, 0.1, 0.2))",
    "hard_tanh": "keras.activations.hard_tanh",
    "maximum": "(lambda x: keras.ops.maximum(x, 0.5 - x))",
    "mirror_pad": "(lambda x: keras.ops.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)), mode='reflect'))",
    "clip_twice": "(lambda x: keras.ops.clip(keras.ops.clip(x, 0.1, 0.5) * 2, 0.3, 0.9))",
}


WINDOWS = """
sys.path.insert(0, os.environ["TESTS"])
from step_models import Windows
around = lambda x: x + Windows()(x)
"""
AROUND = "lambda x: L.GlobalAveragePooling2D()(conv(around(conv(conv(conv(x)), 16))))"


def check(result, name, foretold=FORETOLD):
    plain, peak, predicted = result
    print(f"{name}: plain {plain / 1e6:.1f} MB, with Stash {peak / 1e6:.1f} MB, predicted {predicted / 1e6:.1f} MB")  # -rP
    assert peak <= ABOVE_PLAIN * plain, (name, result)
    assert abs(peak - predicted) <= foretold * predicted, (name, result)


@pytest.mark.parametrize("inter", INTERS)
@pytest.mark.parametrize("mode", MODES)
def test_weights_of_dense_layers_are_updated_in_place(python, mode, inter):
    """An update before the last reader of the old value copies the variable: 38 MB for 27 here."""
    check(python(STEP, f"out(peaks({DENSE}, 96))", **ALLOCATORS[mode], INTER=str(inter)), "dense")


@pytest.mark.parametrize("mode", MODES)
def test_an_update_that_copies_its_variable_is_foretold(python, mode):
    """Of the step without Stash, in which some weights are updated too early in nearly every process."""
    code = f"""
    with stash_tf.enabled("lossless"):
        peaks({DENSE}, 96)
        out([[graph[key] for key in ("predicted_plain_bytes", "predicted_peak_bytes")]
             for graph in stash_tf.report().graphs if graph["rewritten"]])
    """
    found = python(STEP, code, **ALLOCATORS[mode], INTER="1")
    assert found and all(plain > 1.4 * with_stash for plain, with_stash in found), found


PRODUCTS = """
tf.config.threading.set_inter_op_parallelism_threads(int(os.environ["INTER"]))
tf.config.threading.set_intra_op_parallelism_threads(1)

def product(activation, layers, width=64, batch=512):
    "(step, x): the loss's Hessian times a vector, of dense layers with biases."
    rng = np.random.default_rng(1)
    kernels = [tf.Variable(rng.standard_normal((width, width)).astype("float32") / 8) for _ in range(layers)]
    variables = [*kernels, *(tf.Variable(tf.zeros(width)) for _ in kernels)]
    vector = [tf.constant(rng.standard_normal(v.shape), tf.float32) for v in variables]

    @tf.function
    def step(x):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                for kernel, bias in zip(kernels, variables[layers:]):
                    x = activation(tf.matmul(x, kernel) + bias)
                loss = tf.reduce_mean(x * x)
            gradients = inner.gradient(loss, variables)
        return outer.gradient(gradients, variables, output_gradients=vector)

    return step, tf.constant(rng.standard_normal((batch, width)), tf.float32)

def peaks_of_product(*form):
    step, x = product(*form)
    plain = min(stash_tf.peak_bytes(step, x) for _ in range(3))
    with stash_tf.enabled("lossless", replan=False):
        step, x = product(*form)
        peak = max(stash_tf.peak_bytes(step, x) for _ in range(3))
        return plain, peak, stash_tf.report().predicted_peak_bytes
"""


@pytest.mark.slow
@pytest.mark.parametrize("inter", INTERS)
def test_products_with_a_hessian(python, inter):
    """Gradients that are differentiated again: TensorFlow did better than the order that was simulated for it, and such
    steps took up to 1.5 times as much with Stash."""
    code = """
    forms = [(activation, layers) for activation in ("relu", "tanh", "softplus") for layers in (4, 6)]
    out([[f"{layers} layers, {name}", peaks_of_product(getattr(tf.nn, name), layers)] for name, layers in forms])
    """
    for name, result in python(PRODUCTS, code, **ALLOCATORS["eigen"], INTER=str(inter)):
        # A second thread may encode a ReLU while the first one is ahead: in one of ten processes 12 % more.
        check(result, name, FORETOLD * inter)


DEEP = """
def deep(blocks=24, width=128, batch=256):
    keras.utils.set_random_seed(1)
    inputs = x = keras.Input((width,))
    for _ in range(blocks):
        y = L.LayerNormalization()(L.Dense(width, activation="relu")(x))
        x = L.Add()([x, L.Dense(width)(y)])
    model = keras.Model(inputs, L.Dense(4)(x))
    weights = model.trainable_variables
    x = tf.random.stateless_normal((batch, width), (1, 2))
    y = tf.one_hot(tf.range(batch) % 4, 4)
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(1e-5 * gradient)
        return loss
    # What the model's making left is freed within the first step.
    plain = [stash_tf.peak_bytes(step, x, y) for _ in range(3)]
    with stash_tf.enabled("lossless"):
        peaks = [stash_tf.peak_bytes(step, x, y) for _ in range(3)]
        predicted = stash_tf.report().predicted_peak_bytes
    return min(plain[1:]), max(peaks[1:]), predicted
"""


@pytest.mark.slow
@pytest.mark.parametrize("inter", INTERS)
def test_small_ops_keep_their_order_where_they_are_many(python, inter):
    """Maps are less than a 64th of the peak: gradients that ran ahead of each other made it 15 MB for 12 here."""
    check(python(STEP + DEEP, "out(deep())", **ALLOCATORS["eigen"], INTER=str(inter)), "deep")


@pytest.mark.parametrize("inter", INTERS)
@pytest.mark.parametrize("mode", MODES)
def test_comparisons_of_gradients_do_not_hold_maps(python, mode, inter):
    """They need tensors of the forward pass alone, and made these wait for the backward pass."""
    names = ", ".join(f"{name!r}: peaks({BETWEEN.format(middle=middle)}, 32)" for name, middle in MIDDLES.items())
    for name, result in python(STEP, f"out({{{names}}})", **ALLOCATORS[mode], INTER=str(inter)).items():
        check(result, name)


BRANCH = """
class Branch(L.Layer):
    def __init__(self, many):
        super().__init__()
        self.many = many
    def build(self, shape):
        self.kernels = [self.add_weight(shape=(3, 3, shape[-1], shape[-1]), name=f"k{i}") for i in range(self.many)]
    def compute_output_shape(self, shape):
        return shape
    def call(self, x):
        kernels = [tf.convert_to_tensor(k) for k in self.kernels]
        def deep():
            y = x
            for kernel in kernels:
                y = tf.nn.relu(tf.nn.conv2d(y, kernel, 1, "SAME"))
            return y
        return tf.cond(tf.reduce_mean(x) > -1, deep, lambda: x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_a_branch_keeps_for_its_gradient_counts(python, mode):
    """It travels in optionals, which counted nothing: with eight convolutions 12 MB for 4.8 with oneDNN."""
    body = "lambda x: L.GlobalAveragePooling2D()(conv(Branch({many})(conv(x))))"
    names = ", ".join(f"{many}: (*peaks({body.format(many=many)}), stash_tf.report().rewritten)" for many in (1, 8))
    for many, found in python(STEP, BRANCH, f"out({{{names}}})", **ALLOCATORS[mode], INTER="1").items():
        *result, rewritten = found
        if rewritten:
            check(result, f"{many} convolutions in a branch")
        else:
            # Its order is left to chance: once in thirty times one more map lies there.
            least, predicted = min(result[:2]), result[2]
            assert abs(least - predicted) <= FORETOLD * predicted, (many, result)


def test_order_alone_is_worth_a_rewrite(python):
    """Nothing here can be stored in another form; updates in place and early gradients are most of the peak."""
    body = ("lambda x: L.Dense(256, activation='tanh')(L.Dense(256, activation='tanh')(L.Flatten()("
            "L.AveragePooling2D(2)(L.Conv2D(8, 3, padding='same', activation='gelu')(x)))))")
    code = f"result = peaks({body}); found = stash_tf.report(); out([result, found.rewritten, found.ordered, str(found)])"
    result, rewritten, ordered, text = python(STEP, code, **ALLOCATORS["onednn"], INTER="1")
    check(result, "dense layers with tanh")
    assert result[1] < 9e6, result  # plain TensorFlow takes 20, 13 or as little, by process
    assert rewritten and ordered and "ops run in an order in which memory is freed earlier" in text, text


NOISES = ("GaussianNoise", "GaussianDropout")


@pytest.mark.parametrize("inter", INTERS)
@pytest.mark.parametrize("mode", MODES)
def test_random_numbers_wait_for_what_they_are_joined_with(python, mode, inter):
    """They need nothing of the step, and lay there from its beginning: 3.7 MB for 2.7 in the report."""
    body = "lambda x: L.GlobalAveragePooling2D()(conv({noise}(0.1)(conv(conv(x)))))"
    names = ", ".join(f"{noise!r}: peaks({body.format(noise='L.' + noise)})" for noise in NOISES)
    code = f"out([{{{names}}}, stash_tf.report().rewritten])"
    results, rewritten = python(STEP, code, **ALLOCATORS[mode], INTER=str(inter))
    assert rewritten
    for name, result in results.items():
        check(result, name)


@pytest.mark.parametrize("inter", INTERS)
def test_operands_that_products_copy_are_counted(python, inter):
    """An Einsum brings them into the order of a product of matrices: 28.5 MB here that were 24.5 in the report."""
    code = f"out(peaks({AROUND}))"
    check(python(STEP, WINDOWS, code, **ALLOCATORS["onednn"], INTER=str(inter), TESTS=str(HERE)), "windows")


def test_what_is_decided_with_all_sizes_known_stands(python):
    """TensorFlow goes through its optimizers twice. The second time a peak of 36.7 MB was taken for 41.3, and maps were
    stored for nothing; policy auto rounded them to keep a budget of 38 MB, which leaves little in reserve."""
    code = """
    import keras
    L = keras.layers
    tf.config.threading.set_inter_op_parallelism_threads(1)
    x, y = tf.random.stateless_normal((8, 64, 64, 3), (1, 2)), tf.range(8)
    def step_of_its_own():
        start = keras.Input((64, 64, 3), batch_size=8)
        maps = L.Conv2D(32, 3, activation="relu")(L.Conv2D(32, 3, activation="relu")(start))
        model = keras.Model(start, L.Dense(10)(L.Flatten()(maps)))
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss
        return step
    plain = stash_tf.peak_bytes(step_of_its_own(), x, y)
    found = []
    for options in ({"policy": "lossless"}, {"policy": "auto", "budget": 38_000_000}):
        with stash_tf.enabled(**options):
            peak = stash_tf.peak_bytes(step_of_its_own(), x, y)
            graphs = stash_tf.report().graphs
        found.append([peak, graphs[-1]["predicted_plain_bytes"], graphs[-1]["predicted_peak_bytes"],
                      [tensor["choice"] for tensor in graphs[-1]["tensors"]]])
    out([plain, found])
    """
    plain, found = python(code, **ALLOCATORS["eigen"])
    for peak, predicted_plain, predicted, choices in found:
        # TensorFlow alone takes 36.7 MB in most graphs, and 41.3 in the others: without Stash and where nothing is stored.
        more = 0 if choices else 4.6e6
        assert 0.88 * plain < predicted_plain < 1.02 * plain, (plain, found)
        assert min(abs(predicted - peak), abs(predicted + more - peak)) < 0.02 * plain, (plain, found)
        assert peak < ABOVE_PLAIN * plain + more and not any("fp" in choice for choice in choices), (plain, found)


@pytest.mark.slow
def test_gradients_of_filters_wait_for_memory(python):
    """Those that unfold images for 30 MB ran before gradients of inputs, at the peak: 49.7 MB. Plain TensorFlow takes
    40.9 or 56.9 by process."""
    result = python(STEP, WINDOWS, f"out(peaks({AROUND}))", **ALLOCATORS["eigen"], INTER="1", TESTS=str(HERE))
    check(result, "windows")
    assert result[1] < 40e6, result


@pytest.mark.parametrize("inter", INTERS)
def test_gradients_of_inputs_unfold_one_image(python, inter):
    """They do where an image is work enough for every thread: 6.6 MB for 32.6 in the report when they counted as many
    images as gradients of filters unfold, which frozen layers do not have."""
    frozen = """
    def frozen(x):
        return L.Conv2D(16, 3, padding="same", activation="relu", trainable=False)(x)
    """
    body = "lambda x: L.GlobalAveragePooling2D()(frozen(frozen(L.Dense(16)(x))))"
    check(python(STEP, frozen, f"out(peaks({body}))", **ALLOCATORS["eigen"], INTER=str(inter)), "frozen")


OPEN = """
class Rows(L.Layer):
    "Attention over rows, whose shapes are computed from the batch."
    def __init__(self):
        super().__init__()
        self.attention = L.MultiHeadAttention(2, 16)
    def compute_output_shape(self, shape):
        return shape
    def call(self, x):
        rows = tf.reshape(x, (-1, 32, 32))
        rows = self.attention(rows, rows)
        return tf.nn.relu(tf.reshape(rows, (tf.shape(x)[0], 32, 32, 32)))

class Positive(L.Layer):
    "Its values are as many as the data say."
    def compute_output_shape(self, shape):
        return (None,)
    def call(self, x):
        return tf.nn.relu(tf.boolean_mask(x, x > 0) * 2 - 0.1)

def fitted(layer, head, **options):
    "Reports and warnings of an epoch whose last batch is smaller, and the peak of a step."
    import warnings
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    start = keras.Input((32, 32, 3))
    x = layer()(conv(start, 32))
    model = keras.Model(start, head(x))
    model.compile("sgd", "mse")
    pictures, targets = np.random.default_rng(1).random((20, 32, 32, 3), "float32"), np.ones((20, 1), "float32")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with stash_tf.enabled("lossless", **options):
            try:
                for _ in range(4):
                    model.fit(pictures, targets, batch_size=8, verbose=0)
                peak = stash_tf.peak_bytes(model.train_on_batch, pictures[:8], targets[:8])
            except tf.errors.ResourceExhaustedError as error:
                return "is too small for this step" in str(error)
            report = stash_tf.report()
    words = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    return {"words": words, "peak": peak, "predicted": report.predicted_peak_bytes, "rewritten": report.rewritten,
            "explanations": report.explanations,
            "unknown": [node["op"] for graph in report.graphs for node in graph["left"] if "is not known" in node["reason"]]}

ROWS = Rows, lambda x: L.Dense(1)(L.GlobalAveragePooling2D()(conv(x, 32)))
GROUPED = lambda: L.Conv2D(16, 3, groups=4, padding="same", activation="relu"), ROWS[1]
POSITIVE = Positive, lambda x: L.Lambda(lambda v: tf.reshape(tf.reduce_mean(v), (1, 1)), output_shape=(1,))(x)
"""


@pytest.mark.slow
def test_shapes_computed_from_the_batch_are_known(python):
    """A batch that the graph leaves open: without these tensors the plan knew half of the peak and kept any budget."""
    fits, tight = python(STEP, OPEN, "out([fitted(*ROWS, budget='64 MB'), fitted(*ROWS, budget='1 MB')])",
                         **ALLOCATORS["eigen"], INTER="1")
    assert fits["rewritten"] and not fits["words"] and set(fits["unknown"]) <= {"Sum"}, fits
    assert abs(fits["peak"] - fits["predicted"]) <= FORETOLD * fits["predicted"], fits
    assert tight is True, tight


@pytest.mark.slow
@pytest.mark.parametrize("model", ("POSITIVE", "GROUPED"))
def test_sizes_that_only_data_or_a_compiler_tell_are_doubted_under_a_budget(python, model):
    """How many values are positive, and what XLA takes for a grouped convolution, which Keras compiles on CPUs."""
    code = f"out([fitted(*{model}, budget='64 MB'), fitted(*{model}), fitted(*{model}, budget='1 MB')])"
    limited, free, tight = python(STEP, OPEN, code, **ALLOCATORS["eigen"], INTER="1")
    assert len(limited["words"]) == 1 and "is not known before the step runs" in limited["words"][0], limited
    assert "is not known before the step runs" in limited["explanations"][0], limited
    assert not free["words"] and not any("is not known before" in word for word in free["explanations"]), free
    assert tight is True, tight  # what is known of the step is too much already


def test_lossless_plans_are_made_again_with_the_batch(python):
    """Where the first steps show densities, another plan is made, and what it takes is told for the whole step."""
    code = """
    start = keras.Input((32, 32, 3))
    model = keras.Model(start, L.Dense(1)(L.GlobalAveragePooling2D()(conv(conv(conv(start, 16), 16), 16))))
    model.compile("sgd", "mse")
    pictures, targets = np.random.default_rng(1).random((20, 32, 32, 3), "float32"), np.ones((20, 1), "float32")
    with stash_tf.enabled("lossless"):
        for _ in range(4):
            model.fit(pictures, targets, batch_size=8, verbose=0)
        report = stash_tf.report()
        peak = stash_tf.peak_bytes(model.train_on_batch, pictures[:8], targets[:8])
    out({"peak": peak, "predicted": report.predicted_peak_bytes,
         "batches": [g["batch"] for g in report.graphs if g["rewritten"]]})
    """
    found = python(STEP, code, **ALLOCATORS["eigen"], INTER="1")
    assert found["batches"][-1] == 8, found
    assert abs(found["peak"] - found["predicted"]) <= FORETOLD * found["predicted"], found
