# SPDX-License-Identifier: Apache-2.0
"""Ops run again in the backward pass instead of keeping the maps that they made: under lossless no bit changes, under
the policies that round gradients stay within their gates."""

import pytest

from conftest import slow

TRAIN = """
import hashlib
import keras
from keras import layers as L

def conv_norm_silu(activation="silu", blocks=6):
    x = image = keras.Input((32, 32, 3))
    for _ in range(blocks):
        x = L.Conv2D(16, 1, use_bias=False)(x)  # larger kernels take more workspace than a map has bytes
        x = L.Activation(activation)(L.BatchNormalization()(x))
    return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

def inverted_residuals():
    x = image = keras.Input((32, 32, 3))
    x = L.Conv2D(16, 3, padding="same", use_bias=False)(x)
    for _ in range(3):
        y = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(48, 1, use_bias=False)(x)))
        y = L.ReLU(6.0)(L.BatchNormalization()(L.DepthwiseConv2D(3, padding="same", use_bias=False)(y)))
        x = L.Add()([x, L.BatchNormalization()(L.Conv2D(16, 1, use_bias=False)(y))])
    return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

def transformer():
    x = words = keras.Input((32, 64))
    for _ in range(4):
        x = x + L.MultiHeadAttention(4, 16)(L.LayerNormalization()(x), L.LayerNormalization()(x))
        y = L.Dense(256, activation="gelu")(L.LayerNormalization()(x))
        x = x + L.Dropout(0.1, seed=7)(L.Dense(64)(y))
    return keras.Model(words, L.Dense(10)(L.GlobalAveragePooling1D()(x)))

def gated():
    x = words = keras.Input((32, 64))
    for _ in range(2):
        x = x + L.Dense(64)(L.Activation("silu")(L.Dense(128)(x)) * L.Dense(128)(x))
    return keras.Model(words, L.Dense(10)(L.GlobalAveragePooling1D()(x)))

def padded_and_squeezed():
    x = image = keras.Input((32, 32, 3))
    x = L.Conv2D(16, 3, padding="same", use_bias=False)(x)
    for _ in range(2):
        x = L.Activation("silu")(L.BatchNormalization()(L.Conv2D(48, 1, use_bias=False)(x)))
        x = L.DepthwiseConv2D(3, strides=2, use_bias=False)(L.ZeroPadding2D(((0, 1), (0, 1)))(x))
        x = L.Activation("silu")(L.BatchNormalization()(x))
        weights = L.Dense(48, activation="sigmoid")(L.Dense(4, activation="silu")(L.GlobalAveragePooling2D(keepdims=True)(x)))
        x = L.BatchNormalization()(L.Conv2D(16, 1, use_bias=False)(x * weights))
    return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

def residuals():
    x = image = keras.Input((32, 32, 3))
    x = L.Conv2D(32, 1)(x)
    for _ in range(3):
        y = L.ReLU()(L.BatchNormalization()(L.Conv2D(16, 1)(x)))
        x = L.ReLU()(L.Add()([x, L.BatchNormalization()(L.Conv2D(32, 1)(y))]))
    return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

def convnext():
    x = image = keras.Input((32, 32, 3))
    x = L.LayerNormalization(epsilon=1e-6)(L.Conv2D(32, 2, strides=2)(x))
    for _ in range(3):
        y = L.LayerNormalization(epsilon=1e-6)(L.DepthwiseConv2D(7, padding="same")(x))
        y = L.Dense(32)(L.Dense(128, activation="gelu")(y))
        x = x + L.Rescaling(0.5)(y)
    return keras.Model(image, L.Dense(10)(L.LayerNormalization()(L.GlobalAveragePooling2D()(x))))

def vision_transformer():
    x = image = keras.Input((32, 32, 3))
    x = L.Reshape((64, 64))(L.Conv2D(64, 4, strides=4)(x))
    x = x + L.Embedding(64, 64)(keras.ops.arange(64))
    for _ in range(3):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(4, 16)(y, y)
        y = L.Dense(256, activation="gelu")(L.LayerNormalization()(x))
        x = x + L.Dense(64)(L.Dropout(0.1, seed=7)(y))
    return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling1D()(L.LayerNormalization()(x))))

def densely_connected():
    x = image = keras.Input((32, 32, 3))
    x = L.Conv2D(16, 1)(x)
    for _ in range(4):
        y = L.Conv2D(16, 1)(L.Activation("silu")(L.BatchNormalization()(x)))
        x = L.Concatenate()([x, L.Activation("silu")(L.BatchNormalization()(y))])
    return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

def trained(build, recompute, steps=6):
    "Losses and weights bit by bit, and the report; recompute None: without Stash."
    keras.backend.clear_session()  # names begin anew: TensorFlow sorts the terms of some sums by them
    keras.utils.set_random_seed(1)
    model = build()
    shape = (16, *model.input_shape[1:])
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    y = np.arange(16) % 10
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    stash_tf.disable()
    if recompute is not None:
        stash_tf.enable("lossless", recompute=recompute)
    losses = [float(model.train_on_batch(x, y)) for _ in range(steps)]
    report = None if recompute is None else stash_tf.report()
    stash_tf.disable()
    weights = b"".join(np.asarray(weight).tobytes() for weight in model.weights)
    return losses, hashlib.sha256(weights).hexdigest(), report
"""
MODELS = ("conv_norm_silu", "padded_and_squeezed", slow("inverted_residuals"), slow("residuals"), slow("convnext"),
          slow("vision_transformer"), slow("densely_connected"), slow("transformer"), slow("gated"))


@pytest.mark.parametrize("onednn", ("0", slow("1")))
@pytest.mark.parametrize("model", MODELS)
def test_every_bit_of_training_stays(python, model, onednn):
    code = """
    plain, kept, again = (trained(MODEL, recompute) for recompute in (None, False, True))
    out([plain[:2] == kept[:2] == again[:2], len(set(plain[0])), again[2].recomputed_maps, kept[2].recomputed_maps,
         again[2].predicted_peak_bytes, kept[2].predicted_peak_bytes, again[2].rewritten, str(again[2])])
    """
    same, losses, maps, none, peak, peak_kept, rewritten, text = python(
        TRAIN, f"MODEL = {model}", code, TF_ENABLE_ONEDNN_OPTS=onednn)
    assert same and losses > 1 and rewritten
    assert maps > 0 and none == 0 and f"{maps} map{'s' if maps > 1 else ''} (" in text
    assert peak < peak_kept


@pytest.mark.parametrize("onednn", ("0", slow("1")))
@pytest.mark.parametrize("model", ("conv_norm_silu", "vision_transformer", slow("inverted_residuals"), slow("residuals"),
                                   slow("convnext"), slow("padded_and_squeezed"), slow("densely_connected"), slow("transformer"),
                                   slow("gated")))
def test_every_bit_stays_where_products_run_again(python, model, onednn):
    code = """
    plain, cheap, again = (trained(MODEL, recompute) for recompute in (None, True, "all"))
    out([plain[:2] == cheap[:2] == again[:2], len(set(plain[0])), again[2].predicted_peak_bytes, cheap[2].predicted_peak_bytes,
         again[2].recomputed_ops, cheap[2].recomputed_ops])
    """
    same, losses, peak, before, ops, ops_before = python(TRAIN, code.replace("MODEL", model), TF_ENABLE_ONEDNN_OPTS=onednn)
    assert same and losses == 6
    assert peak <= before
    if model in ("conv_norm_silu", "vision_transformer"):
        assert peak < 0.9 * before and ops > ops_before


def test_a_budget_that_cheap_ops_keep_runs_no_product_again(python):
    code = """
    peaks = {recompute: trained(conv_norm_silu, recompute)[2].predicted_peak_bytes for recompute in (True, "all")}
    found = {}
    for name, budget in (("between", (peaks[True] + peaks["all"]) // 2), ("cheap", peaks[True] + 1000)):
        for recompute in (True, "all"):
            stash_tf.disable()
            stash_tf.enable("lossless", budget=budget, recompute=recompute, replan=False, batch=16)
            keras.backend.clear_session()
            model = conv_norm_silu()
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
            try:
                model.train_on_batch(np.zeros((16, 32, 32, 3), np.float32), np.arange(16) % 10)
                found[f"{name} {recompute}"] = stash_tf.report().recomputed_ops
            except Exception as error:
                found[f"{name} {recompute}"] = str(error)
    out(found)
    """
    found = python(TRAIN, code)
    assert found["cheap True"] == found["cheap all"] > 0, found
    assert "budget" in str(found["between True"]), found
    assert found["between all"] > found["cheap all"], found


@pytest.mark.parametrize("activation", ("relu", "hard_swish", slow("gelu"), slow("elu"), slow("tanh"), slow("mish"),
                                        slow("softplus"), slow("leaky_relu"), slow("selu"), slow("hard_sigmoid")))
def test_every_bit_stays_with_any_activation(python, activation):
    code = """
    build = lambda: conv_norm_silu(ACTIVATION)
    plain, again = (trained(build, recompute) for recompute in (None, True))
    out([plain[:2] == again[:2], again[2].recomputed_maps])
    """
    same, maps = python(TRAIN, f"ACTIVATION = {activation!r}", code)
    assert same and maps > 0


def test_a_mixed_step_stays_the_same(python):
    code = """
    keras.config.set_dtype_policy("mixed_bfloat16")
    plain, again = (trained(conv_norm_silu, recompute) for recompute in (None, True))
    out([plain[:2] == again[:2], again[2].recomputed_maps])
    """
    same, maps = python(TRAIN, code)
    assert same and maps > 0


def test_the_peak_is_the_predicted_one(python):
    code = """
    x = np.random.default_rng(1).standard_normal((16, 32, 32, 3)).astype(np.float32)
    y = np.arange(16) % 10
    peaks = []
    for recompute in (None, True):
        keras.utils.set_random_seed(1)
        model = conv_norm_silu()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        if recompute:
            stash_tf.enable("lossless", recompute=True)
        for _ in range(6):
            model.train_on_batch(x, y)
        peaks.append(stash_tf.peak_bytes(model.train_on_batch, x, y))
    out([*peaks, stash_tf.report().predicted_peak_bytes])
    """
    plain, peak, predicted = python(TRAIN, code, TF_CPU_ALLOCATOR_USE_BFC="true")
    assert plain > 1.6 * peak
    assert abs(predicted / peak - 1) < 0.1


FUNCTION = """
def maps_and_gradient(made, recompute):
    "(maps computed again, gradient) of a step whose forward pass is `made` of two maps that are kept."
    x = tf.constant(np.random.default_rng(3).standard_normal((4096, 64)), tf.float32)
    weights = [tf.Variable(np.random.default_rng(k).standard_normal((64, 64)) / 10, dtype=tf.float32) for k in (1, 2)]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for _ in range(4):
                a = tf.matmul(y, weights[0])
                b = tf.matmul(tf.tanh(a), weights[1])
                y = made(a, b)
            loss = tf.reduce_mean(tf.matmul(y, weights[0]) ** 2)
        return tape.gradient(loss, weights), loss

    stash_tf.disable()
    if recompute:
        stash_tf.enable("lossless", replan=False, recompute=True)
    gradients, loss = step(x)
    maps = stash_tf.report().recomputed_maps if recompute else 0
    stash_tf.disable()
    return maps, [gradient.numpy().tobytes().hex() for gradient in gradients if gradient is not None]
"""
# From a and b, maps whose values the backward pass reads anyway.
OPS = ("a + b", "a - b", "a * b", "a / (b * b + 1.0)", "tf.maximum(a, b)", "tf.minimum(a, b)", "tf.sigmoid(a)", "tf.tanh(a)",
       "tf.exp(-a * a)", "tf.math.erf(a)", "tf.math.erfc(a)", "tf.math.log1p(a * a)", "tf.sqrt(a * a + 1.0)",
       "tf.math.rsqrt(a * a + 1.0)", "tf.nn.softplus(a)", "tf.nn.softsign(a)", "tf.nn.elu(a)", "tf.nn.selu(a)", "tf.abs(a)",
       "tf.where(a > b, a, b)", "tf.math.squared_difference(a, b)", "tf.math.divide_no_nan(a, b)", "tf.math.expm1(-a * a)",
       "tf.add_n([a * a, b * b, a * b])", "tf.pad(a * a, [[0, 64], [0, 0]])", "tf.pad(a * a, [[64, 0], [0, 0]], 'REFLECT')",
       "tf.pad(tf.tanh(a), [[0, 64], [0, 0]], constant_values=1.5)", "tf.concat([a * a, b * b], 0)",
       "tf.reshape(tf.transpose(tf.reshape(a * a, (-1, 64, 64)), (0, 2, 1)), (-1, 64))")
MOVES = tuple(text for text in OPS if any(word in text for word in ("add_n", "pad", "concat", "transpose")))


def test_every_op_gives_the_same_bits_again(python):
    code = """
    import json
    found = {}
    for text in json.loads(OPS):
        made = eval("lambda a, b: " + text)
        (_, plain), (maps, again) = (maps_and_gradient(made, recompute) for recompute in (False, True))
        found[text] = [plain == again, maps > 0]
    out(found)
    """
    import json

    found = python(FUNCTION, f"OPS = {json.dumps(OPS)!r}", code)
    assert [text for text, (same, _) in found.items() if not same] == []
    assert sum(copied for _, copied in found.values()) >= len(OPS) // 2
    assert all(found[text][1] for text in MOVES)


def test_what_is_random_or_costs_more_is_kept(python):
    """At most the tanh of each block runs again."""
    code = """
    made = (lambda a, b: b, lambda a, b: tf.matmul(b, tf.ones((64, 64))), lambda a, b: tf.cumsum(b, axis=1),
            lambda a, b: b + tf.random.uniform(tf.shape(a), seed=5))
    out([maps_and_gradient(each, True)[0] for each in made])
    """
    assert all(maps <= 4 for maps in python(FUNCTION, code))


ROUNDED = """
def gradient(build, policy, recompute=True):
    "(gradient of the first step, report) under a policy; None: without Stash."
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = build()
    shape = (16, *model.input_shape[1:])
    x = tf.constant(np.random.default_rng(1).standard_normal(shape), tf.float32)
    y = tf.constant(np.arange(16) % 10)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        return tape.gradient(value, model.trainable_variables)

    stash_tf.disable()
    if policy is not None:
        stash_tf.enable(policy, recompute=recompute, replan=False)
    found = np.concatenate([each.numpy().ravel().astype(np.float64) for each in step(x, y)])
    report = None if policy is None else stash_tf.report()
    stash_tf.disable()
    return found, report

def off(exact, got):
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))
"""
GATES = {"fp16": 1e-3, "fp10": 0.03, "fp8": 0.05, "auto": 0.05}  # as in test_gradients.py


@pytest.mark.parametrize("policy", ("fp16", "fp8", slow("fp10"), slow("auto")))
@pytest.mark.parametrize("model", ("conv_norm_silu", slow("padded_and_squeezed"), slow("convnext"),
                                   slow("vision_transformer"), slow("transformer"), slow("densely_connected"),
                                   slow("residuals"), slow("inverted_residuals"), slow("gated")))
def test_rounded_sources_keep_the_gate(python, model, policy):
    code = """
    exact, _ = gradient(MODEL, None)
    again, report = gradient(MODEL, POLICY)
    kept, without = gradient(MODEL, POLICY, recompute=False)
    _, lossless = gradient(MODEL, "lossless")
    out([off(exact, again), off(exact, kept), report.recomputed_maps, without.recomputed_maps,
         report.predicted_peak_bytes, without.predicted_peak_bytes, lossless.predicted_peak_bytes, str(report)])
    """
    error, error_kept, maps, none, peak, peak_kept, lossless, text = python(
        TRAIN, ROUNDED, f"MODEL, POLICY = {model}, {policy!r}", code)
    print(f"{model} {policy}: {maps} maps again, error {error:.2e}, without {error_kept:.2e}, "
          f"peak {peak}, without {peak_kept}, lossless {lossless}")
    assert error <= GATES[policy]
    assert none == 0 and peak <= peak_kept and peak <= lossless
    if model == "conv_norm_silu":
        assert maps > 0 and peak < 0.96 * peak_kept
        assert f"{maps} maps (" in text


def test_what_others_are_made_of_keeps_16_bits(python):
    """A norm takes off a mean here that is several times the deviation: of what is left, fp8 would not leave much."""
    code = """
    def far_from_zero():
        x = image = keras.Input((32, 32, 3))
        for _ in range(4):
            x = L.Conv2D(16, 1, use_bias=False)(x)
            x = L.Activation("silu")(L.BatchNormalization()(x + 4.0 * keras.ops.std(x)))
        return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

    exact, _ = gradient(far_from_zero, None)
    again, report = gradient(far_from_zero, "fp8")
    kept, _ = gradient(far_from_zero, "fp8", recompute=False)
    read = [tensor for graph in report.graphs for tensor in graph["tensors"]
            if any("stash_again" in reader for reader in tensor["readers"])]
    out([report.recomputed_maps, off(exact, again), off(exact, kept),
         sorted({tensor["choice"] for tensor in read if tensor["elements"] >= 16 * 32 * 32 * 16})])
    """
    maps, error, error_kept, forms = python(TRAIN, ROUNDED, code)
    assert maps > 0 and set(forms) <= {"fp16", "raw"}
    assert error < error_kept


def test_a_silu_needs_no_exact_values(python):
    """Where the step updates the weights, TensorFlow leaves a view that waits for the gradient, and which the sigmoid of the
    SiLU's gradient reads."""
    code = """
    stash_tf.enable("fp8", recompute=False, replan=False)
    model = conv_norm_silu()
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)

    step(tf.zeros((16, 32, 32, 3)), tf.zeros(16, tf.int32))
    out([tensor["needs"] for graph in stash_tf.report().graphs for tensor in graph["tensors"]
         if tensor["elements"] == 16 * 32 * 32 * 16])
    """
    needs = python(TRAIN, code)
    assert needs and not any("exact_value" in each for each in needs)


def test_a_sign_is_that_of_the_exact_map(python):
    """A ReLU that is computed again of rounded values may have other zeros than the one of the forward pass: its gradient
    reads one bit for each value of the latter, the product that it goes into reads the copy."""
    code = """
    def relu_and_silu():
        x = image = keras.Input((32, 32, 3))
        for _ in range(4):
            y = L.BatchNormalization()(L.Conv2D(16, 1, use_bias=False)(x))
            x = L.ReLU()(y) * L.Activation("silu")(y)
        return keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

    exact, _ = gradient(relu_and_silu, None)
    again, report = gradient(relu_and_silu, "fp16")
    kept = [(tensor["choice"], tensor["needs"]) for graph in report.graphs for tensor in graph["tensors"]
            if any("ReluGrad" in name for name in tensor["readers"])]
    out([report.recomputed_maps, off(exact, again), kept])
    """
    maps, error, kept = python(TRAIN, ROUNDED, code)
    assert maps > 0 and error < GATES["fp16"]
    assert ["sign_mask", ["sign"]] in kept


def test_exact_needs_are_no_reason_to_keep_a_map_exactly(python):
    """tf.math.log magnifies what is rounded; under fp8 nothing that leads to one runs again."""
    code = """
    maps = {}
    for policy in ("lossless", "fp8"):
        stash_tf.disable()
        stash_tf.enable(policy, replan=False)
        weights = [tf.Variable(np.random.default_rng(k).standard_normal((64, 64)) / 10, dtype=tf.float32) for k in (1, 2)]

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                y = x
                for _ in range(4):
                    a = tf.matmul(y, weights[0])
                    y = tf.matmul(tf.math.log(a * a + 1.0), weights[1])
                loss = tf.reduce_mean(tf.square(y))
            return tape.gradient(loss, weights)

        step(tf.constant(np.random.default_rng(3).standard_normal((4096, 64)), tf.float32))
        maps[policy] = stash_tf.report().recomputed_maps
    out(maps)
    """
    maps = python(code)
    assert maps["lossless"] > 0 and maps["fp8"] == 0


def test_a_budget_is_kept_exactly_before_anything_is_rounded(python):
    """Policy auto computes again before it rounds."""
    code = """
    _, kept = gradient(conv_norm_silu, "lossless", recompute=False)
    _, again = gradient(conv_norm_silu, "lossless")
    budget = (kept.predicted_peak_bytes + again.predicted_peak_bytes) // 2
    choices = []
    for recompute in (False, True):
        keras.backend.clear_session()
        stash_tf.enable("auto", budget=budget, batch=16, recompute=recompute, replan=False)
        keras.utils.set_random_seed(1)
        model = conv_norm_silu()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        model.train_on_batch(np.zeros((16, 32, 32, 3), np.float32), np.zeros(16, int))
        report = stash_tf.report()
        choices.append(sorted({tensor["choice"] for graph in report.graphs if graph["rewritten"]
                               for tensor in graph["tensors"]}))
        stash_tf.disable()
    out(choices)
    """
    rounded, exact = python(TRAIN, ROUNDED, code)
    assert any("fp" in choice for choice in rounded)
    assert not any("fp" in choice for choice in exact)
