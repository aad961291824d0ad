# SPDX-License-Identifier: Apache-2.0
"""What is learned from running steps: batches, densities, and plans made again."""

import pytest

from conftest import ALLOCATORS
from session_records import counter, graph, tensor, wishes
from stash_tf import diagnosis, replanning, reporting, session


def test_batch_is_measured_where_it_matters():
    graphs, counters = [graph(tensors=[tensor()])], [counter()]
    for asked, batch in (
        (wishes(budget=9), 8),
        (wishes("auto"), 8),
        (wishes(), None),
        (wishes(budget=9, batch=4), None),
    ):
        found = replanning.better(asked, asked, graphs, counters)
        assert (found and found.batch) == batch
    known = [graph(tensors=[tensor()], batch=8)]
    assert replanning.better(wishes(budget=9), wishes(budget=9), known, counters) is None
    again = wishes(budget=9).measured(8, {})
    assert replanning.better(wishes(budget=9), again, graphs, [counter(runs=3, elements=1700)]) is None


def test_only_stash_encode_tells_the_batch():
    pooled = counter("p:taps", "StashMaxPool", elements=6400)
    graphs = [graph(tensors=[tensor(), tensor("p:taps", "window_index")])]
    assert replanning.measured_batch(graphs, [pooled, counter()]) == 8


def test_a_step_without_encoders_tells_the_batch():
    seen = counter("b:0", "StashBatch", runs=3, elements=48)
    unseen = counter("c:0", "StashBatch", runs=0, elements=0)
    graphs = [graph(tensors=[tensor(choice="raw")])]
    asked = wishes(budget=9)
    assert replanning.better(asked, asked, graphs, [unseen, seen]).batch == 16
    assert not reporting.build(graphs, [seen], "fp8").rewritten


def test_a_clearly_larger_batch_is_planned_for():
    used = wishes(budget=9).measured(8, {})
    graphs = [graph(tensors=[tensor()], batch=8, batch_open=True, budget_bytes=9)]
    for elements, batch in ((800, None), (840, None), (1700, 17)):
        counters = [counter(runs=9, elements=7200, most_elements=elements)]
        found = replanning.better(wishes(budget=9), used, graphs, counters)
        assert (found and (found.batch, found.accepted)) == (batch and (batch, True))
        assert bool(diagnosis.budget_doubts(graphs, counters)) == bool(batch)
    assert replanning.better(wishes("auto"), wishes("auto").measured(8, {}), graphs, counters) is None
    assert replanning.better(wishes(budget=9, batch=8), wishes(budget=9, batch=8), graphs, counters) is None


DENSE = """
def dense_step(width=256, layers=8, scope="dense"):
    rng = np.random.default_rng(0)
    weights = [tf.Variable((rng.standard_normal((width, width)) * 0.1).astype("float32")) for _ in range(layers)]
    @tf.function(input_signature=[tf.TensorSpec([None, width])])
    def step(x):
        with tf.GradientTape() as tape, tf.name_scope(scope):
            y = x
            for w in weights:
                y = tf.nn.relu(y @ w)
            loss = tf.reduce_mean(y * y)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(1e-3 * g)
        return loss
    return step
"""


def test_functions_keep_their_own_batches():
    used = wishes(budget=9).measured(8, {})
    plan = {"batch_open": True, "budget_bytes": 9}
    small = graph(id="small", tensors=[tensor()], batch=8, **plan)

    def seen(small_batch, large_batch):
        return [counter(most_elements=100 * small_batch), counter("b:0", most_elements=100 * large_batch)]

    graphs = [small, graph(id="large", tensors=[tensor("b:0")], batch=8, **plan)]
    found = replanning.better(wishes(budget=9), used, graphs, seen(8, 30))
    assert (found.batch, found.batches) == (30, (("small", 8),))
    graphs[1]["batch"] = 30
    assert replanning.better(wishes(budget=9), found, graphs, seen(8, 30)) is None
    assert diagnosis.budget_doubts(graphs, seen(8, 30)) == []
    assert diagnosis.budget_doubts(graphs, seen(20, 30))
    grown = replanning.better(wishes(budget=9), found, graphs, seen(20, 30))
    assert (grown.batch, grown.batches) == (30, ())
    # Where both go by one name, nobody knows whose samples were counted.
    graphs = [small, graph(id="large", tensors=[tensor()], batch=8, **plan)]
    found = replanning.better(wishes(budget=9), used, graphs, [counter(most_elements=3000)])
    assert (found.batch, found.batches) == (30, ())


def test_a_function_with_large_batches_leaves_others_alone(python):
    """64 samples keep the budget as they are, whatever another function needs for 1024."""
    code = """
    small, large = dense_step(scope="small"), dense_step(scope="large")
    with stash_tf.enabled("auto", budget="6 MiB"):
        for _ in range(4):
            small(tf.ones([64, 256]))
        for _ in range(8):
            large(tf.ones([1024, 256]))
            small(tf.ones([64, 256]))
        graphs = stash_tf.report().graphs
    newest = {}
    for graph in graphs:
        newest[graph["tensors"][0]["tensor"].split("/")[0]] = [
            graph["batch"], sorted({tensor["choice"] for tensor in graph["tensors"]})]
    out([newest["small"], newest["large"]])
    """
    small, large = python(DENSE, code)
    assert small == [64, ["raw"]]
    assert large[0] == 1024 and large[1] != ["raw"]


def test_functions_that_come_later_are_planned_again_too(python):
    """Each model of a search has a batch larger than that of the one before, and a plan for it."""
    code = """
    def trained(size):
        step = dense_step(layers=4, scope=f"of_{size}")
        for _ in range(4):
            step(tf.ones([size, 256]))
    with stash_tf.enabled("auto", budget="8 MiB"):
        for k in range(1, 7):
            trained(128 * k)
        graphs = stash_tf.report().graphs
    out([graph["batch"] for graph in graphs if graph["tensors"][0]["tensor"].startswith("of_768")][-1])
    """
    assert python(DENSE, code) == 768


OPEN = """
import warnings
def run(sizes, policy="fp8", **options):
    step = dense_step()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with stash_tf.enabled(policy, min_bytes=256, **options):
            for size in sizes:
                step(tf.ones([size, 256]))
            report = stash_tf.report()
    words = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    return [words, report.explanations, report.batch, report.predicted_peak_bytes]
"""


def test_budgets_where_a_later_batch_is_larger(python):
    """The plan for 64 samples keeps everything as it is; 1024 samples take more than the budget without encodings."""
    code = """
    sizes, budget = [64] * 12 + [1024] * 4, 6 << 20
    found = {"planned again": run(sizes, budget=budget), "given": run(sizes, budget=budget, batch=64),
             "off": run(sizes, budget=budget, replan=False), "as given": run([64] * 16, budget=budget, batch=64)}
    stash_tf.session.MOST_REPLANS = 1
    found["used up"] = run(sizes, budget=budget)
    out(found)
    """
    found = python(DENSE, OPEN, code)
    words, explanations, batch, peak = found["planned again"]
    assert words == [] and batch == 1024 and peak <= 6 << 20 and explanations == []
    for name in ("given", "used up"):
        words, explanations, batch, _ = found[name]
        assert batch == 64 and len(words) == 1 and words == explanations
        assert words[0].startswith("A step had 1024 samples, and the plan is for 64: the budget of 6291456 bytes may not be kept")
    words, explanations, batch, _ = found["off"]
    assert batch == 0 and len(words) == 1 and words[0] in explanations and "was not known when it was planned" in words[0]
    words, explanations, _, _ = found["as given"]
    assert words == [] and explanations == [diagnosis.WITHIN]


def test_densities_that_differ_little_make_no_other_plan():
    plans, asked = session.Plans(), wishes("lossless")
    first = asked.measured(0, {"a:0": 0.25, "b:0": 0.5})
    generations = [plans.generation(asked), plans.generation(first), plans.generation(wishes("lossless"))]
    assert generations == [1, 2, 1]
    assert plans.like(asked.measured(0, {"a:0": 0.27, "b:0": 0.46})) == first
    for other in (
        asked.measured(0, {"a:0": 0.35, "b:0": 0.5}),
        asked.measured(0, {"a:0": 0.25}),
        asked.measured(8, {"a:0": 0.25, "b:0": 0.5}),
    ):
        assert plans.like(other) == other


def test_densities_are_measured_where_encoders_count():
    graphs = [graph(tensors=[tensor(), tensor("b:0")])]
    counters = [counter(nonzeros=400), counter("b:0")]
    found = replanning.better(wishes("lossless"), wishes("lossless"), graphs, counters)
    assert dict(found.densities) == {"a:0": 0.25}
    assert replanning.better(wishes("lossless"), found, graphs, [counter(nonzeros=430)]) is None
    assert replanning.better(wishes("fp8"), wishes("fp8"), graphs, counters) is None
    assert replanning.better(wishes("lossless"), wishes("lossless"), [graph(rewritten=False)], counters) is None


def test_planned_again_with_the_measured_batch(python):
    code = """
    import keras
    L, found = keras.layers, []
    def fit(**options):
        stash_tf.enable("auto", **options)
        model = keras.Sequential([keras.Input((16, 16, 3)), L.Conv2D(16, 3), L.ReLU(), L.Conv2D(16, 3),
                                  L.GlobalAveragePooling2D(), L.Dense(4)])
        model.compile("sgd", "mse")
        samples = np.ones((28, 16, 16, 3), "float32"), np.zeros((28, 4), "float32")
        model.fit(tf.data.Dataset.from_tensor_slices(samples).batch(8), epochs=4, verbose=0)
        report = stash_tf.report()
        found.append([report.batch, report.settings["batch"], report.rewritten])
    fit()
    fit(replan=False)
    fit(batch=16)
    out(found)
    """
    measured, not_again, with_batch = python(code)
    assert measured == [8, 8, True]
    assert not_again == [0, 0, True]
    assert with_batch == [16, 16, True]


@pytest.mark.slow
def test_small_samples_of_large_batches(python):
    """A sample of 1 KiB is small, 1024 of them are not, whether the batch is given, measured or open; and a budget
    holds where all tensors of 32 samples are small."""
    code = """
    tf.config.threading.set_inter_op_parallelism_threads(1)
    def peaks(width, size, policy="lossless", **options):
        step = dense_step(width)
        x = tf.constant(np.random.default_rng(1).standard_normal((size, width)).astype("float32"))
        with stash_tf.enabled(policy, **options):
            try:
                peak = stash_tf.peak_bytes(step, x)
            except tf.errors.ResourceExhaustedError as error:
                return [str(error), "refused"]
            report = stash_tf.report()
        return [peak, report.rewritten, report.batch, report.explanations]
    found = {"plain": peaks(256, 1024, "none")}
    for name, options in (("open", {}), ("given", {"batch": 1024})):
        found[name] = peaks(256, 1024, **options)
        found[name + " with budget"] = peaks(256, 1024, "auto", budget="6 MiB", **options)
    found["narrow"] = peaks(16, 1 << 15, "none")
    found["narrow with budget"] = peaks(16, 1 << 15, "auto", budget="12 MiB")
    found["too small"] = peaks(16, 64, budget=5000, batch=64)
    out(found)
    """
    found = python(DENSE, code, **ALLOCATORS["eigen"])
    plain, narrow = found["plain"][0], found["narrow"][0]
    assert plain > 8 << 20 and narrow > 16 << 20
    for name in ("open", "given"):
        peak, rewritten, batch, explanations = found[name]
        assert peak < 0.9 * plain and rewritten and batch == 1024 and explanations == []
        peak, rewritten, batch, explanations = found[name + " with budget"]
        assert peak <= 6 << 20 and rewritten and batch == 1024 and explanations == []
    peak, rewritten, batch, explanations = found["narrow with budget"]
    assert peak <= 12 << 20 and rewritten and batch == 1 << 15 and explanations == []
    assert "the budget of 5000 bytes is too small for this step" in found["too small"][0]


def test_inputs_of_unknown_batch_have_one_batch(python):
    """Two inputs have a symbol each for their samples; their maps are kept alike."""
    code = """
    weights = [tf.Variable((np.random.default_rng(k).standard_normal((3, 3, 8, 8)) * 0.1).astype("float32"))
               for k in range(3)]
    def tower(y):
        for w in weights:
            y = tf.nn.relu(tf.nn.conv2d(y, w, 1, "SAME"))
        return y
    samples = tf.TensorSpec([None, 32, 32, 8])
    @tf.function(input_signature=[samples, samples])
    def step(a, b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tower(a) ** 2) - tf.reduce_mean(tower(b) ** 2)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(g)
        return loss
    stash_tf.enable("auto")
    for _ in range(3):
        step(images(6), images(6))
    report = stash_tf.report()
    kept = {row.tensor.split(":")[0] for row in report.rows if row.choice != "raw"}
    out([report.batch, len(kept)])
    """
    batch, stored = python(code)
    assert batch == 6 and stored == 6


RANDOM = """
def sequence(draws, policy="", **options):
    "What a step with seeded random ops draws in six calls; its maps have fewer zeros than the planner assumes."
    tf.random.set_seed(1)
    weights = training().weights
    @tf.function
    def inner():
        return tf.random.uniform([4], seed=4)
    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for w in weights:
                y = tf.nn.relu(tf.nn.conv2d(y, w, 1, "SAME") - 0.5)
            loss = tf.reduce_mean(y * y)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(g)
        return draws(inner)
    def run():
        return [float(tf.reduce_sum(step(images()))) for _ in range(6)]
    if not policy:
        return run()
    with stash_tf.enabled(policy, **options):
        found = run()
        assert stash_tf.report().rewritten or options.get("budget")
        return found

@tf.function(jit_compile=True)
def compiled():
    return tf.random.uniform([4], seed=4)
"""


@pytest.mark.slow
def test_seeded_random_ops_go_on_as_without_stash(python):
    """A function that is planned again is another instance, in which such ops start over."""
    code = """
    found = {}
    for name, draws in {"op": lambda inner: tf.random.uniform([4], seed=4), "nested": lambda inner: inner(),
                        "global seed": lambda inner: tf.random.normal([4]),
                        "dropout": lambda inner: tf.nn.dropout(tf.range(64.0), 0.5, seed=4)}.items():
        plain = sequence(draws)
        found[name] = [len(set(plain)) > 3] + [sequence(draws, policy, budget=budget) == plain
                                               for policy, budget in (("lossless", None), ("auto", "100 MiB"))]
    found["alone"] = []
    for enabled in (False, True):
        tf.random.set_seed(1)
        alone, step = tf.function(lambda: tf.random.uniform([4], seed=4)), training()
        if enabled:
            stash_tf.enable("lossless")
        found["alone"].append([(float(tf.reduce_sum(alone())), step(images()))[0] for _ in range(6)])
    out(found)
    """
    found = python(RANDOM, code)
    first, second = found.pop("alone")
    assert first == second
    assert found == dict.fromkeys(found, [True, True, True])


def test_functions_that_are_called_are_searched_for_seeds(python):
    """A function that XLA compiles is not inlined: its body is in the library of the graph."""
    code = """
    def logged(draws):
        library = stash_tf.library.load()
        library.reset_graphs()
        try:
            sequence(draws, "lossless", replan=False)
        except tf.errors.OpError:
            pass
        return [graph["seeded"] for graph in library.graphs() if graph["rewritten"]]
    out([logged(lambda inner: tf.zeros([])), logged(lambda inner: tf.random.uniform([4])),
         logged(lambda inner: compiled())])
    """
    none, unseeded, called = python(RANDOM.replace("tf.random.set_seed(1)", ""), code)
    assert none and not any(none) and unseeded and not any(unseeded)
    assert called and all(called)


@pytest.mark.slow
def test_budgets_of_steps_with_lists_in_loops(python):
    """What a recurrent layer that is not unrolled keeps is in lists. How long these get is known with the steps."""
    code = """
    import warnings
    import keras
    L = keras.layers
    def fit(steps, unroll, **options):
        model = keras.Sequential([keras.Input((steps, 16)), L.LSTM(32, unroll=unroll), L.Dense(512, "relu"), L.Dense(4)])
        signature = tf.TensorSpec((8, steps, 16)), tf.TensorSpec((8, 4))
        batches = [(np.ones((8, 12, 16), "float32"), np.ones((8, 4), "float32"))] * 5
        data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
        model.compile("sgd", "mse")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with stash_tf.enabled("lossless", min_bytes=256, **options):
                model.fit(data, verbose=0)
                report = stash_tf.report()
        words = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
        return [words, report.explanations, [graph["lists_in_loops"] for graph in report.graphs if graph["rewritten"]]]
    out([fit(None, False, budget="1 GiB"), fit(None, False), fit(12, False, budget="1 GiB"), fit(12, True, budget="1 GiB")])
    """
    limited, free, *known = python(code)
    words, explanations, _ = limited
    assert len(words) == 1 and list(explanations) == words and "loops that keep tensors in lists" in words[0]
    assert free[0] == [] and not any("lists" in word for word in free[1])
    for words, explanations, lists in known:
        assert words == [] and explanations == [diagnosis.WITHIN] and lists and not any(lists)


def test_a_batch_beyond_all_sizes_is_named(python):
    code = """
    out([run([64], batch=10**18, budget="1 GiB")[1], run([64], batch=10**18)[1], run([64], batch=10**6)[1]])
    """
    *large, fine = python(DENSE, OPEN, code)
    for explanations in large:
        assert len(explanations) == 1
        assert "with a batch of 1000000000000000000 samples its tensors are larger than any memory" in explanations[0]
    assert fine == []


def test_batches_are_measured_where_tensors_have_them_twice(python):
    """Their elements grow with the square of the batch; the peak of this step is 5.1 MiB with 64 samples."""
    code = """
    rng = np.random.default_rng(0)
    weights = [tf.Variable((rng.standard_normal(shape) * 0.2).astype("float32")) for shape in ((32, 64), (32, 64), (64,))]
    @tf.function(input_signature=[tf.TensorSpec([None, 32])])
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.nn.relu(tf.expand_dims(x @ weights[0], 1) + tf.expand_dims(x @ weights[1], 0))
            y = tf.nn.relu(y * weights[2] - 0.1)
            y = tf.nn.relu(y * weights[2] + 0.1)
            loss = tf.reduce_mean(y ** 2)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(0.01 * g)
        return loss
    found = []
    for policy, budget in (("auto", "8 MiB"), ("fp8", "5 MiB")):
        stash_tf.enable(policy, budget=budget)
        for _ in range(4):
            step(tf.constant(rng.standard_normal((64, 32)).astype("float32")))
        found.append(stash_tf.report().batch)
    out(found)
    """
    assert python(code) == [64, 64]
