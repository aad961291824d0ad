# SPDX-License-Identifier: Apache-2.0
"""stash_tf.nn, stash_tf.layers and the gradient registry, against plain TensorFlow and Keras."""

import pytest

from conftest import ALLOCATORS, MODES

GRADIENTS = """
def gradients(function, *inputs):
    "The function's value and its gradients, with something uneven coming back."
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
        weights = tf.sin(tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)), tf.float32))
        loss = tf.reduce_sum(tf.cast(y, tf.float32) * weights)
    return [y, *tape.gradient(loss, inputs)]

def same(ours, plain, *inputs):
    "Bit for bit, eagerly, in one tf.function, and with the tape outside of it."
    def equal(a, b):
        return all(p.dtype == q.dtype and p.shape == q.shape and p.numpy().tobytes() == q.numpy().tobytes()
                   for p, q in zip(a, b, strict=True))
    def inside(function):
        return tf.function(lambda *inputs: gradients(function, *inputs), autograph=False)
    def outside(function):
        return lambda *inputs: gradients(tf.function(function, autograph=False), *inputs)
    return [equal(gradients(ours, *inputs), gradients(plain, *inputs)),
            equal(inside(ours)(*inputs), inside(plain)(*inputs)),
            equal(outside(ours)(*inputs), outside(plain)(*inputs))]

nn = stash_tf.nn
rng = np.random.default_rng(2)
def normal(*shape, dtype=tf.float32):
    return tf.cast(tf.constant(rng.standard_normal(shape).astype("float32")), dtype)
"""

NETWORK = """
import keras
def network(L, seed=3, **conv):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([
        keras.Input((24, 24, 3)),
        L.Conv2D(8, 3, padding="same", name="c1", **conv), L.ReLU(name="r1"), L.MaxPool2D(name="p1"),
        L.Conv2D(8, 3, strides=2, padding="valid", use_bias=False, name="c2", **conv), L.ReLU(name="r2"),
        keras.layers.Flatten(), keras.layers.Dense(10)])

def fit(model, **options):
    data = np.random.default_rng(4)
    x, y = data.random((24, 24, 24, 3)).astype("float32") - 0.5, data.integers(0, 10, 24)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return b"".join(w.numpy().tobytes() for w in model.weights).hex()
"""

KEEPS_ALL = "bitmap"  # an encoding that loses nothing


@pytest.mark.parametrize("mode", MODES)
def test_functions_equal_tensorflow_bit_for_bit(python, mode):
    code = """
    found = {}
    for kind in (tf.float32, tf.bfloat16, tf.float16):
        x, w = normal(2, 9, 10, 6, dtype=kind), normal(3, 3, 6, 4, dtype=kind)
        found["relu " + kind.name] = same(nn.relu, tf.nn.relu, x)
        for padding in ("SAME", "VALID"):
            found[f"max_pool {kind.name} {padding}"] = same(
                lambda x: nn.max_pool(x, 2, 2, padding), lambda x: tf.nn.max_pool2d(x, 2, 2, padding), x)
            found[f"conv2d {kind.name} {padding}"] = same(
                lambda x, w: nn.conv2d(x, w, 2, padding, encoding="bitmap"),
                lambda x, w: tf.nn.conv2d(x, w, 2, padding), x, w)
    out(found)
    """
    found = python(GRADIENTS, code, **ALLOCATORS[mode])
    assert found and {name: value for name, value in found.items() if value != [True] * 3} == {}


def test_conv2d_reads_the_rounded_input(python):
    code = """
    x, w = normal(2, 8, 8, 4), normal(3, 3, 4, 4)
    y, dx, dw = gradients(lambda x, w: nn.conv2d(x, w, encoding="bf16"), x, w)
    rounded = tf.cast(tf.cast(x, tf.bfloat16), tf.float32)
    y0, dx0, _ = gradients(lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), x, w)
    _, _, dw0 = gradients(lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), rounded, w)
    out([bool(tf.reduce_all(a == b)) for a, b in ((y, y0), (dx, dx0), (dw, dw0))]
        + [refused(nn.conv2d, x, w, [1, 2, 3]), refused(nn.max_pool, x[0], 2, 2),
           refused(nn.dropout, x, 1.0, [1, 2])])
    """
    *equal, strides, rank, rate = python(GRADIENTS, code)
    assert equal == [True] * 3
    assert strides == "conv2d: strides: expected 1, 2 or 4 whole numbers, got [1, 2, 3]"
    assert rank.startswith("max_pool: x: expected 4 dimensions, as NHWC says")
    assert rate == "dropout: rate: expected a number in [0, 1), got 1.0"


def test_second_derivatives(python):
    """Those of ReLU and dropout are there; the others are refused, never wrong."""
    code = """
    import itertools
    x, w = normal(2, 8, 8, 4), normal(3, 3, 4, 4)
    def second(function, watched, plain_sum=False):
        "The gradient of a sum of squared gradients."
        with tf.GradientTape() as outer:
            outer.watch(watched)
            with tf.GradientTape() as inner:
                inner.watch([x, w])
                y = function(x, w)
                loss = tf.reduce_sum(y if plain_sum else y ** 3)
            norm = tf.add_n([tf.reduce_sum(g ** 2) for g in inner.gradient(loss, [x, w]) if g is not None])
        return outer.gradient(norm, watched)
    def relu(library):
        return lambda x, w: library.relu(tf.nn.conv2d(x, w, 1, "SAME"))
    def in_graph(*arguments):
        return tf.function(lambda: second(*arguments), autograph=False)()
    found = {"relu": [], "dropout": [], "conv2d": [], "max_pool": []}
    for run in (second, in_graph):
        ours, plain = run(relu(nn), [x, w]), run(relu(tf.nn), [x, w])
        found["relu"].append(all(bool(tf.reduce_all(a == b)) for a, b in zip(ours, plain)))
        dropped = run(lambda x, w: nn.dropout(x, 0.5, [1, 2]), [x])[0]
        mask = nn.dropout(tf.ones_like(x), 0.5, [1, 2])
        found["dropout"].append(bool(np.allclose(dropped, 36 * mask ** 6 * x ** 3, rtol=1e-5)))
        for watched, plain_sum in itertools.product(([x], [w], [x, w]), (True, False)):
            conv = lambda x, w: nn.conv2d(x, w, encoding="raw")
            found["conv2d"].append(refused(run, conv, watched, plain_sum))
        pool = lambda x, w: nn.max_pool(tf.nn.conv2d(x, w, 1, "SAME"), 2, 2)
        found["max_pool"].append(refused(run, pool, [x, w]))
    out(found)
    """
    found = python(GRADIENTS, code)
    assert found["relu"] == found["dropout"] == [True, True]
    for name in ("conv2d", "max_pool"):
        assert all(word and word.startswith(f"{name}: there is no second derivative") for word in found[name]), name


def test_arguments_of_functions(python):
    code = """
    x, w = normal(2, 8, 8, 4), normal(3, 3, 4, 4)
    found = {
        "relu double": refused(nn.relu, tf.cast(x, tf.float64)),
        "relu whole": refused(nn.relu, [1, 2]),
        "pool double": refused(nn.max_pool, tf.cast(x, tf.float64), 2, 2),
        "pool ksize": refused(nn.max_pool, x, [2.7, 2.2], 2),
        "pool bool": refused(nn.max_pool, x, True, 2),
        "pool three": refused(nn.max_pool, x, [2, 2, 2], 2),
        "pool padding": refused(nn.max_pool, x, 2, 2, [[0, 0], [1, 1], [1, 1], [0, 0]]),
        "pool full": refused(nn.max_pool, x, 2, 2, "FULL"),
        "pool layout": refused(nn.max_pool, x, 2, 2, "SAME", "NWC"),
        "conv padding": refused(nn.conv2d, x, w, padding=None),
        "dropout rate": refused(nn.dropout, x, True, [1, 2]),
    }
    for encoding in ("sign_mask", "range_mask", "shape_only", "window_index", "fp7", "bitmap_sign_mask", "", None):
        found[f"conv {encoding}"] = refused(nn.conv2d, x, w, encoding=encoding)
    fine = [bool(tf.reduce_all(nn.max_pool(x, np.int64(2), np.int32(2)) == tf.nn.max_pool(x, 2, 2, "VALID"))),
            bool(tf.reduce_all(nn.dropout(x, np.float32(0.5), [1, 2]) == nn.dropout(x, 0.5, [1, 2]))),
            nn.max_pool(x, np.array([2, 2]), (2, 2), "same").shape.as_list()]
    for encoding in ("raw", "fp16", "bf16", "fp10", "fp8", "fp8_e5m2", "bitmap", "csr", "bitmap_fp8", "csr_fp16",
                     "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e2m1"):
        fine.append(bool(np.isfinite(gradients(lambda x, w: nn.conv2d(x, w, encoding=encoding), x, w)[2]).all()))
    out([found, fine])
    """
    found, (pooled, dropped, shape, *encoded) = python(GRADIENTS, code)
    start = {"pool": "max_pool", "conv": "conv2d"}
    for name, word in found.items():
        function, what = name.split(" ", 1)
        assert word and word.startswith(start.get(function, function) + ": ") and "expected" in word, name
    assert "x: expected float32, float16 or bfloat16, got 'float64'" in found["relu double"]
    assert "ksize: expected 1, 2 or 4 whole numbers, got [2.7, 2.2]" in found["pool ksize"]
    assert "padding: expected one of SAME, VALID, got 'FULL'" in found["pool full"]
    assert "encoding: expected raw, a format" in found["conv sign_mask"]
    assert pooled and dropped and shape == [2, 4, 4, 4] and all(encoded) and len(encoded) == 15


def test_configurations_of_keras(python):
    code = """
    import keras
    from stash_tf import layers
    L = keras.layers
    plain = keras.Sequential([keras.Input((8, 8, 4)), L.Conv2D(4, 3), L.ReLU(), L.Dropout(0.5)])
    ours = keras.models.clone_model(plain, clone_function=lambda one: getattr(layers, type(one).__name__).from_config(
        one.get_config()))
    copy = keras.models.clone_model(ours)
    found = [[type(one).__module__ for one in model.layers] for model in (ours, copy)]
    same = layers.ReLU().get_config().keys() == L.ReLU().get_config().keys()
    x = tf.ones([4, 8])
    nothing = [layers.Dropout(1.0)(x, training=True).numpy().tolist(), L.Dropout(1.0)(x, training=True).numpy().tolist()]
    out([found, same, nothing[0] == nothing[1],
         [refused(layers.ReLU, **{name: 1.0}) for name in ("max_value", "negative_slope", "threshold")],
         refused(layers.Conv2D, 4, 3, encoding="sign_mask"), refused(layers.Conv2D, 4, 3, encoding="zip")])
    """
    found, same, nothing, relu, mask, unknown = python(code)
    assert found == [["stash_tf.layers"] * 3] * 2 and same and nothing
    assert relu[0] == "ReLU: max_value: expected None, or keras.layers.ReLU, got 1.0"
    assert all(word.startswith("ReLU: ") for word in relu)
    assert mask.startswith("Conv2D: encoding: expected raw") and unknown.endswith("got 'zip'")


def test_dropout_drops_and_scales(python):
    code = """
    x = tf.ones([64, 256])
    y, dx = gradients(lambda x: nn.dropout(x, 0.25, [1, 2]), x)
    again, _ = gradients(tf.function(lambda x: nn.dropout(x, 0.25, [1, 2])), x)
    other, _ = gradients(lambda x: nn.dropout(x, 0.25, [1, 3]), x)
    weights = tf.sin(tf.cast(tf.reshape(tf.range(64 * 256), x.shape), tf.float32))
    drop = lambda x: nn.dropout(x, 0.25, [1, 2])
    half, by_half = gradients(drop, tf.cast(x, tf.float16))
    graph = tf.function(drop).get_concrete_function(tf.TensorSpec([64, 256], tf.float16)).graph
    casts = [op.name for op in graph.get_operations() if op.type == "Cast" and op.inputs[0].dtype != tf.int32]
    out([np.unique(y).tolist(), float(tf.reduce_mean(tf.cast(y == 0, tf.float32))),
         bool(tf.reduce_all(again == y)), bool(tf.reduce_all(other == y)),
         bool(tf.reduce_all(dx == y * weights)), half.dtype.name, by_half.dtype.name, casts])
    """
    values, share, repeated, other, gradient, *half = python(GRADIENTS, code)
    assert values == [0, pytest.approx(1 / 0.75)]
    assert abs(share - 0.25) < 0.02
    assert repeated and not other and gradient and half == ["float16", "float16", []]


@pytest.mark.parametrize("mode", MODES)
def test_layers_train_as_keras_layers_do(python, mode):
    code = f"""
    from stash_tf import layers
    ours = lambda: network(layers, encoding="{KEEPS_ALL}")
    plain = fit(network(keras.layers))
    out([fit(ours()) == plain, stash_tf.report().total_stored_bytes > 0,
         fit(ours(), run_eagerly=True) == fit(network(keras.layers), run_eagerly=True),
         ours().jit_compile, str(stash_tf.report())])
    """
    graph, counted, eager, jit, text = python(NETWORK, code, **ALLOCATORS[mode])
    assert graph and counted and eager
    assert jit is False
    assert "r1" in text and "p1" in text and "c2" in text


def test_layers_are_saved_with_the_model(python):
    code = """
    from stash_tf import layers
    model = network(layers, encoding="fp10")
    model.add(layers.Dropout(0.5, seed=1, name="d"))
    path = os.environ["TMPDIR"] + "/m.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    x = np.random.default_rng(0).random((2, 24, 24, 3)).astype("float32")
    out([[type(layer).__module__ for layer in loaded.layers], loaded.get_layer("c1").encoding,
         bool(np.all(loaded.predict(x, verbose=0) == model.predict(x, verbose=0))), loaded.get_layer("d").rate,
         bool(np.any(loaded(x, training=True) != loaded(x, training=False)))])
    """
    modules, encoding, equal, rate, drops = python(NETWORK, code)
    assert modules.count("stash_tf.layers") == 6
    assert encoding == "fp10" and equal and rate == 0.5 and drops


MEMORY = """
weights = [tf.Variable(normal(3, 3, 16, 16) * 0.08) for _ in range(8)]
x = normal(8, 64, 64, 16)
def step(conv, relu):
    def run(x):
        with tf.GradientTape() as tape:
            y = x
            for w in weights:
                y = relu(conv(y, w))
            loss = tf.reduce_mean(y * y)
        return tape.gradient(loss, weights)
    return run
plain = step(lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), tf.nn.relu)
ours = step(lambda x, w: nn.conv2d(x, w, encoding="fp8"), nn.relu)
def peak(run):
    return stash_tf.peak_bytes(run, x)
graph = lambda run: tf.function(run, autograph=False)
"""


@pytest.mark.parametrize("mode", MODES)
def test_functions_take_less_memory(python, mode):
    """The maps of 8 convolutions are 2 MiB each; fp8 leaves a quarter of each, the sign of the ReLU is 1/32."""
    code = """
    with stash_tf.registry.gradients(conv2d="fp8") as built:
        traced = graph(plain)
        registry = peak(traced)
    out([peak(plain) - peak(ours), peak(graph(plain)) - peak(graph(ours)), registry - peak(graph(ours)), built])
    """
    eager, graph, registry, built = python(GRADIENTS, MEMORY, code, **ALLOCATORS[mode])
    assert eager > 4 * 2**21
    assert graph > 4 * 2**21
    assert abs(registry) < 2**21
    assert built == {"Relu": 8, "MaxPool": 0, "Conv2D": 7}


def test_inference_encodes_nothing(python):
    code = """
    run = tf.function(lambda x, w: nn.relu(nn.conv2d(x, w)))
    run(normal(2, 8, 8, 4), normal(3, 3, 4, 4))
    out(stash_tf.library.load().counters())
    """
    assert python(GRADIENTS, code) == []


@pytest.mark.parametrize("mode", MODES)
def test_registry_route_trains_as_plain(python, mode):
    code = f"""
    plain = fit(network(keras.layers))
    with stash_tf.registry.gradients(conv2d="{KEEPS_ALL}") as built:
        nested = refused(stash_tf.registry.gradients().__enter__)
        routed = fit(network(keras.layers))
    ran = sorted({{counter["op"] for counter in stash_tf.library.load().counters()}})
    stash_tf.library.load().reset_counters()
    after = fit(network(keras.layers))
    out([routed == plain, after == plain, built, ran, nested, stash_tf.library.load().counters()])
    """
    routed, after, built, ran, nested, left = python(NETWORK, code, **ALLOCATORS[mode])
    assert routed and after
    assert built["Relu"] == 2 * built["MaxPool"] == 2 * built["Conv2D"] > 0  # Keras traces more than once
    assert ran == ["StashDecode", "StashEncode", "StashMaxPool", "StashMaxPoolGrad", "StashReluGrad"]
    assert "in force already" in nested and left == []


def test_registry_leaves_eager_gradients_alone(python):
    code = """
    with stash_tf.registry.gradients() as built:
        gradients(tf.nn.relu, normal(4, 4))
    out(built)
    """
    assert python(GRADIENTS, code) == {"Relu": 0, "MaxPool": 0, "Conv2D": 0}
