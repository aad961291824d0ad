# SPDX-License-Identifier: Apache-2.0
"""Sums of many gradients of one tensor are split, so that each gradient dies as it is added: no bit changes."""

import pytest

from conftest import ALLOCATORS, INTERS, slow

# Terms by which AddN's kernel begins otherwise (its number modulo eight), and sums of several groups.
TERMS = (*range(3, 19), 24, 25, 26, 33)

SUM = """
import json

def shared(terms, dtype):
    "(step, x): one weight that is read so many times."
    weight = tf.Variable(tf.cast(np.random.default_rng(1).standard_normal((64, 256)) / 8, dtype))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(tf.cast(tf.tanh(tf.matmul(x[k], weight)), tf.float32)) for k in range(terms))
        return tape.gradient(loss, weight)

    values = np.random.default_rng(2).standard_normal((terms, 16, 64)) * np.logspace(-3, 3, terms)[:, None, None]
    return step, tf.cast(values, dtype)

def gradient_and_counters(policy, terms, dtype):
    step, x = shared(terms, dtype)
    if policy is None:
        return step(x).numpy().tobytes().hex(), None
    with stash_tf.enabled(policy, replan=False):
        stash_tf.library.load().reset_counters()
        gradient = step(x)
        counters = stash_tf.library.load().counters()
    return gradient.numpy().tobytes().hex(), [counter for counter in counters if counter["op"] == "StashSum"]
"""


@pytest.mark.parametrize("onednn", ("0", slow("1")))
@pytest.mark.parametrize("dtype", ("float32", slow("float16"), slow("bfloat16")))
def test_every_bit_of_a_sum_stays(python, dtype, onednn):
    code = """
    found = {}
    for terms in json.loads(TERMS):
        (plain, _), (stashed, counters) = (gradient_and_counters(policy, terms, DTYPE) for policy in (None, "lossless"))
        found[terms] = [plain == stashed, [(counter["executions"], counter["elements"]) for counter in counters]]
    out(found)
    """
    found = python(SUM, f"DTYPE, TERMS = tf.{dtype}, {str(list(TERMS))!r}", code, TF_ENABLE_ONEDNN_OPTS=onednn)
    assert found == {str(terms): [True, [[1, terms]]] for terms in TERMS}


def test_the_bits_depend_on_the_order_of_additions(python):
    """Or the test above could not fail."""
    code = """
    step, x = shared(12, tf.float32)
    gradient = step(x).numpy()
    singly = [shared(1, tf.float32)[0](x[k : k + 1]).numpy() for k in range(12)]
    out([np.array_equal(gradient, sum(singly[1:], singly[0])), np.array_equal(gradient, sum(singly[::-1][1:], singly[-1]))])
    """
    assert python(SUM, code, TF_ENABLE_ONEDNN_OPTS="0") == [False, False]


def test_a_sum_that_tensorflow_makes_of_two_keeps_every_bit(python):
    """As where the gradients of two batches are added up in one step. TensorFlow sorts its terms by name, late."""
    code = """
    def accumulated(terms, policy):
        weight = tf.Variable(tf.cast(np.random.default_rng(1).standard_normal((64, 256)) / 8, tf.float32))

        @tf.function
        def step(xs):
            gradients = []
            for x in tf.unstack(xs):
                with tf.GradientTape() as tape:
                    loss = sum(tf.reduce_sum(tf.tanh(tf.matmul(x[k], weight))) for k in range(terms))
                gradients.append(tf.convert_to_tensor(tape.gradient(loss, weight)))
            return gradients[0] + gradients[1]

        values = np.random.default_rng(2).standard_normal((2, terms, 16, 64)).astype("float32")
        xs = tf.constant(values * np.logspace(-3, 3, terms, dtype="float32")[:, None, None])
        if policy is None:
            return step(xs).numpy().tobytes().hex(), None
        with stash_tf.enabled(policy, replan=False):
            stash_tf.library.load().reset_counters()
            gradient = step(xs)
            counters = stash_tf.library.load().counters()
        return gradient.numpy().tobytes().hex(), [[c["executions"], c["elements"], c["tensor"]] for c in counters
                                                  if c["op"] == "StashSum"]

    out([[accumulated(terms, None)[0] == gradient, *counters]
         for terms in (5, 8, 12) for gradient, counters in [accumulated(terms, "lossless")]])
    """
    found = python(SUM, code, TF_ENABLE_ONEDNN_OPTS="0")
    assert [[same, *counted[:2]] for same, counted in found] == [[True, 1, 2 * terms] for terms in (5, 8, 12)]
    assert all("AddOpsRewrite" in tensor for _, (_, _, tensor) in found), found


def test_a_sum_whose_terms_others_read_stays(python):
    """Whose buffer AddN adds to, and so which term comes first, would depend on when the others have read it."""
    code = """
    def sums(others):
        library = stash_tf.library.load()
        library.reset_graphs()
        weights = [tf.Variable(tf.ones((64, 512))) for _ in range(8)]

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.tanh(x)
                each = [tf.identity(y) for _ in weights]
                loss = tf.add_n([tf.reduce_sum(tf.nn.relu(tf.matmul(*pair)) ** 2) for pair in zip(each, weights)])
            return tape.gradient(loss, [x, *each] if others else [x])

        with stash_tf.enabled("fp8", replan=False):
            step(tf.random.stateless_normal((64, 64), (1, 2)))
        return [graph["sums"] for graph in library.graphs() if graph["rewritten"]]

    out([sums(others=False), sums(others=True)])
    """
    assert python(code, TF_ENABLE_ONEDNN_OPTS="0") == [[1], [0]]


def test_terms_come_in_the_order_of_their_additions(python):
    """Where all could come: terms of later additions would lie there until the earlier ones are done. The sum, a term
    and maps are left."""
    code = """
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def peak_of(terms):
        step, x = shared(terms, tf.float32)
        step(x)
        return stash_tf.peak_bytes(lambda: step(x))

    found = {}
    for terms in (4, 10, 12):
        plain = peak_of(terms)
        with stash_tf.enabled("lossless", replan=False):
            found[terms] = [plain, peak_of(terms)]
    out(found)
    """
    found = python(SUM, code, **ALLOCATORS["eigen"])
    gradient, map_of_term = 64 * 256 * 4, 16 * 256 * 4
    for terms, (plain, stashed) in found.items():
        assert stashed <= 2 * gradient + (int(terms) + 1) * map_of_term, found
        assert stashed < 0.7 * plain, found


LSTM = """
import keras

def trained(policy):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((24, 32))
    x = keras.layers.LSTM(128, unroll=True, return_sequences=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(8)(keras.layers.LSTM(128, unroll=True)(x)))
    model.compile("adam", keras.losses.MeanSquaredError(), jit_compile=False)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((8, 24, 32)).astype("float32"), rng.standard_normal((8, 8)).astype("float32")
    if policy:
        stash_tf.enable(policy)
    losses = [float(model.train_on_batch(x, y)) for _ in range(3)]
    peak = stash_tf.peak_bytes(lambda: model.train_on_batch(x, y))
    return [losses, [w.tobytes().hex() for w in model.get_weights()]], peak

tf.config.threading.set_inter_op_parallelism_threads(int(os.environ["INTER"]))
(plain, before), (stashed, after) = trained(None), trained("lossless")
report = stash_tf.report()
out({"same": plain == stashed, "times": before / after, "predicted": report.predicted_peak_bytes, "peak": after,
     "rewritten": report.rewritten, "sums": report.sums, "gradients": report.summed_gradients, "text": str(report)})
"""


@pytest.mark.slow
@pytest.mark.parametrize("inter", INTERS)
def test_an_unrolled_lstm_takes_a_third(python, inter):
    """Its maps are small compared with the gradients of its weights, one for each step of the sequence."""
    found = python(LSTM, TF_ENABLE_ONEDNN_OPTS="0", TF_CPU_ALLOCATOR_USE_BFC="true", INTER=str(inter))
    assert found["same"] and found["rewritten"], found
    assert found["times"] >= 3 and abs(found["peak"] / found["predicted"] - 1) <= 0.1, found
    assert found["sums"] > 0 and found["gradients"] == 24 * found["sums"], found
    assert f"{found['sums']} sums of {found['gradients']} gradients are added up" in found["text"], found["text"]
    assert "budget" not in found["text"], found["text"]
