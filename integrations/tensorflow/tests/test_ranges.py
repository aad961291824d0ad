# SPDX-License-Identifier: Apache-2.0
"""Values that a narrow format is not made for: seen in samples while steps run, and kept in more bits from then on."""

import pytest

from conftest import slow
from stash_tf import diagnosis, replanning, session, settings

TINY, ORDINARY, LARGE, HUGE = 1e-4, 1.0, 1e4, 1e7
STEPS = """
import warnings
SHAPE = (64, 128)

def weights():
    rng = np.random.default_rng(1)
    return [tf.Variable((rng.standard_normal((128, 128)) * 0.1).astype("float32")) for _ in range(6)]

def layer(y, w):
    return tf.nn.relu(y @ w)

def loss_of(y):
    return tf.reduce_sum(y)

def make_step(matrices):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for w in matrices:
                y = layer(y, w)
            loss = loss_of(y)
        return tape.gradient(loss, matrices)
    return step

def inputs(scale):
    return tf.constant((np.random.default_rng(2).standard_normal(SHAPE) * scale).astype("float32"))

def error(found, exact):
    difference = sum(float(tf.reduce_sum((a - b) ** 2)) for a, b in zip(found, exact))
    return (difference / sum(float(tf.reduce_sum(b ** 2)) for b in exact)) ** 0.5

def train(scales, policy="fp8", **options):
    matrices = weights()
    exact = {scale: make_step(matrices)(inputs(scale)) for scale in set(scales)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # What others are made of would keep 16 bits, which suit most values.
        with stash_tf.enabled(policy, min_bytes=256, recompute=False, **options):
            step = make_step(matrices)
            errors = [error(step(inputs(scale)), exact[scale]) for scale in scales]
            report = stash_tf.report()
    return {"errors": errors, "words": [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)],
            "explanations": report.explanations, "needs": dict(report.settings["needs"]), "text": str(report),
            "choices": sorted({row.choice for row in report.rows if row.state == "ran"})}
"""


@pytest.mark.parametrize("scale", [TINY, LARGE])
def test_values_out_of_range_are_kept_in_16_bits_from_the_next_step_on(python, scale):
    found = python(STEPS, f"out(train([{scale}] * 4))")
    assert found["errors"][0] > 0.5  # what the format does to them
    assert max(found["errors"][1:]) < 0.005
    assert found["words"] == [] and found["explanations"] == []
    assert set(found["needs"].values()) == {"fine_value"}
    assert "because fewer did not suit the values" in found["text"]


def test_what_16_bits_do_not_suit_stays_exact(python):
    found = python(STEPS, f"out(train([{HUGE}] * 5))")
    assert found["errors"][0] > 0.5 and max(found["errors"][3:]) < 0.005
    assert "exact_value" in found["needs"].values() and found["words"] == []
    wide = python(STEPS, f"out(train([{HUGE}] * 3, 'fp16'))")
    assert wide["errors"][0] > 0.5 and max(wide["errors"][1:]) < 0.005


def test_values_in_range_are_left_to_the_policy(python):
    found = python(STEPS, f"out(train([{ORDINARY}] * 4))")
    assert found["needs"] == {} and found["words"] == [] and max(found["errors"]) < 0.1
    assert any("fp8" in choice for choice in found["choices"])
    assert not any("fp16" in choice for choice in found["choices"])


def test_values_that_leave_the_range_later_are_seen(python):
    """Between the calls at which steps are looked at anyway: samples say so themselves."""
    found = python(STEPS, f"out(train([{ORDINARY}] * 40 + [{TINY}] * 60))")
    assert max(found["errors"][:40]) < 0.1
    assert max(found["errors"][-20:]) < 0.005
    assert found["words"] == []


def test_a_few_values_of_many_are_seen(python):
    """One sample of the batch is large: among its 64 rows, and in a tensor of which a sample says little."""
    code = """
    rows = np.ones([64, 1], "float32")
    rows[41] = 1e4
    plain = inputs
    inputs = lambda scale: plain(scale) * rows
    out(train([1.0] * 4))
    """
    found = python(STEPS, code)
    assert found["errors"][0] > 0.5 and max(found["errors"][1:]) < 0.005 and found["words"] == []


@pytest.mark.parametrize("small", ["rows[::2]", slow("rows[:32]")], ids=["spread", "together"])
def test_small_samples_that_a_norm_brings_to_size_are_seen(python, small):
    """What they lose is nothing compared with the values of the others, but all the gradient sees of them."""
    code = f"""
    rows = np.ones([64, 1], "float32")
    {small} = 1e-4
    plain = inputs
    inputs = lambda scale: plain(scale) * rows

    def norm(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-20)

    def layer(y, w):
        return norm(tf.nn.relu(y @ w)) * rows

    LABELS = np.random.default_rng(3).standard_normal((64, 128)).astype("float32")
    def loss_of(y):
        return tf.reduce_sum(norm(y) * LABELS)

    out(train([1.0] * 4))
    """
    found = python(STEPS, code)
    assert found["errors"][0] > 0.3 and max(found["errors"][1:]) < 0.02 and found["words"] == []


@pytest.mark.parametrize("width", [slow(4), 8, slow(12)])
def test_small_samples_of_a_few_values_are_seen(python, width):
    """A tenth of the rows, none next to another: half a percent of what two rows together hold."""
    code = f"""
    WIDTH, SMALL = {width}, slice(None, None, 10)
    SHAPE = (512, WIDTH)
    rows = np.ones([512, 1], "float32")
    rows[SMALL] = 1e-4
    plain = inputs
    inputs = lambda scale: plain(scale) * rows

    def weights():
        rng = np.random.default_rng(1)
        return [tf.Variable((rng.standard_normal((WIDTH, WIDTH)) * WIDTH ** -0.5).astype("float32")) for _ in range(6)]

    def norm(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-20)

    def layer(y, w):
        return norm(tf.nn.tanh(y @ w)) * rows

    LABELS = np.random.default_rng(3).standard_normal(SHAPE).astype("float32")
    def loss_of(y):
        return tf.reduce_sum(norm(y) * LABELS)

    out(train([1.0] * 4))
    """
    found = python(STEPS, code)
    assert found["errors"][0] > 0.15 and max(found["errors"][1:]) < 0.02 and found["words"] == []


def test_a_loop_hides_nothing(python):
    """Encoders run 32 times in a call, and only values in the middle are out of range."""
    code = """
    matrices = weights()
    scales = tf.constant([1.0] * 4 + [1e4] * 20 + [1.0] * 8)
    x = inputs(1.0)

    def make():
        @tf.function
        def step():
            sums = [tf.zeros_like(w) for w in matrices]
            for scale in scales:
                with tf.GradientTape() as tape:
                    y = x * scale
                    for w in matrices:
                        y = tf.nn.relu(y @ w)
                    loss = tf.reduce_sum(y)
                sums = [s + g for s, g in zip(sums, tape.gradient(loss, matrices))]
            return sums
        return step

    exact = make()()
    with stash_tf.enabled("fp8", min_bytes=256):
        step = make()
        out([error(step(), exact) for _ in range(4)])
    """
    found = python(STEPS, code)
    assert max(found[1:]) < 0.05


def test_the_next_session_looks_anew(python):
    """Under the settings of the one before, whose functions it uses again."""
    code = f"""
    matrices = weights()
    step = make_step(matrices)
    found = []
    for scale in ({ORDINARY}, {TINY}, {TINY}):
        exact = make_step(matrices)(inputs(scale))
        with stash_tf.enabled("fp8", min_bytes=256):
            found.append([error(step(inputs(scale)), exact) for _ in range(6)])
    out(found)
    """
    ordinary, tiny, again = python(STEPS, code)
    assert max(ordinary) < 0.1 and max(tiny[1:]) < 0.005 and max(again) < 0.005


@pytest.mark.parametrize("options", ["replan=False", "hook='plugin'"])
def test_where_no_plan_is_made_again_a_warning_says_so(python, options):
    code = f"out(train([{TINY}] * 12, {options}))"
    found = python(STEPS, code)
    assert found["needs"] == {}
    texts = found["words"] if "replan" in options else found["explanations"]
    said = [text for text in texts if "do not suit fp8" in text]
    assert len(said) == 1 and "name the layers in keep=" in said[0]


def test_under_a_budget_wider_values_count(python):
    """What they take is planned for: the gradients that the step returns leave memory for some encodings only."""
    found = python(STEPS, f"out(train([{TINY}] * 4, 'fp8', budget='425 KiB'))")
    assert found["errors"][0] > 0.5 and max(found["errors"][2:]) < 0.005
    assert set(found["needs"].values()) == {"fine_value"} and found["words"] == []


# ---- without TensorFlow


def graph(*tensors):
    return {"rewritten": True, "batch": 8, "tensors": [{"tensor": name, "choice": choice} for name, choice in tensors]}


def counter(name, misfits=(), rounding=0.5, op="StashEncode", executions=2):
    return {"op": op, "tensor": name, "executions": executions, "elements": 8, "misfits": list(misfits),
            "rounding": dict.fromkeys(misfits, rounding)}


def test_the_next_wider_need():
    graphs = [graph(("a:0", "fp8"), ("b:0", "bitmap_fp8"), ("c:0", "fp16+swap"), ("d:0", "csr_fp16"), ("e:0", "fp8_e5m2"))]
    counters = [counter("a:0", ["fp8"]), counter("b:0", ["fp8"]), counter("c:0", ["fp16"]), counter("d:0", ["fp16"])]
    counters += [counter("e:0"), counter("elsewhere:0", ["fp8"]), counter("e:0", ["fp8_e5m2"], executions=0)]
    asked = settings.checked("fp8", None, None, (), False, 4096)
    found = replanning.better(asked, asked, graphs, counters)
    fine, exact = "fine_value", "exact_value"
    assert dict(found.needs) == {"a:0": fine, "b:0": fine, "c:0": exact, "d:0": exact}
    # What was learned stays.
    later = replanning.better(asked, found, graphs, [counter("e:0", ["fp8_e5m2"])])
    assert dict(later.needs) == dict(found.needs) | {"e:0": fine}
    assert replanning.better(asked, found, graphs, [counter("e:0")]) is None


def test_samples_of_an_earlier_plan_say_nothing_of_this_one():
    asked = settings.checked("fp8", None, None, (), False, 4096)
    used = asked.measured(0, {}, {"a:0": "fine_value"})
    now = [graph(("a:0", "fp16"))]
    assert replanning.better(asked, used, now, [counter("a:0", ["fp8"])]) is None
    assert dict(replanning.better(asked, used, now, [counter("a:0", ["fp8", "fp16"])]).needs) == {"a:0": "exact_value"}


def test_one_name_in_two_functions():
    """The one reads values, the other only signs, or in a format of its own."""
    asked = settings.checked("fp16", None, None, (), False, 4096)
    for other in ("sign_mask", "raw", "bitmap", "not needed", ""):
        for graphs in ([graph(("a:0", "fp16")), graph(("a:0", other))], [graph(("a:0", other)), graph(("a:0", "fp16"))]):
            found = replanning.better(asked, asked, graphs, [counter("a:0", ["fp16"])])
            assert dict(found.needs) == {"a:0": "exact_value"}
            (words,) = diagnosis.misfits(graphs, [counter("a:0", ["fp16"])])
            assert "do not suit fp16" in words
    both = [graph(("a:0", "fp8")), graph(("a:0", "fp16"))]
    fine = replanning.better(asked, asked, both, [counter("a:0", ["fp8"])])
    assert dict(fine.needs) == {"a:0": "fine_value"}
    assert dict(replanning.better(asked, fine, both, [counter("a:0", ["fp8"])]).needs) == {"a:0": "exact_value"}
    exact = asked.measured(0, {}, {"a:0": "exact_value"})
    assert replanning.better(asked, exact, both, [counter("a:0", ["fp8"])]) is None


def test_the_warning_names_the_worst():
    graphs = [graph(("a:0", "fp8"), ("b:0", "bitmap_fp10"), ("c:0", "fp8"))]
    counters = [counter("a:0", ["fp8"], 0.25), counter("b:0", ["fp10"], 0.8), counter("c:0")]
    (words,) = diagnosis.misfits(graphs, counters)
    assert words.startswith("Values of b:0 (and of 1 other tensor) do not suit fp10: storing them changes them by 80 %")
    (words,) = diagnosis.misfits(graphs, [counter("a:0", ["fp8"], 1e20)])
    assert "changes them by more than 10 times" in words
    assert diagnosis.misfits(graphs, [counter("c:0")]) == []


def test_repairs_do_not_use_up_the_other_plans():
    made = session.Session.__new__(session.Session)
    made.settings = settings.checked("fp8", None, None, (), False, 4096)
    made.replans_left, made.repairs_left = 1, 1
    repaired, denser = made.settings.measured(0, {}, {"a:0": "fine_value"}), made.settings.measured(8, {})
    repaired_and_denser = made.settings.measured(8, {}, {"a:0": "fine_value"})
    assert made._allowed(repaired) == repaired and made.repairs_left == 0
    assert made._allowed(repaired) == made.settings
    assert made._allowed(repaired_and_denser) == denser and made.replans_left == 0
    assert made._allowed(denser) == made.settings


def test_the_next_session_begins_with_what_did_not_suit():
    class Library:
        def graphs(self, generation):
            return []

    plans = session.Plans()
    asked = settings.checked("fp8", None, None, (), False, 4096)
    plans.use(asked, asked.measured(8, {"a:0": 0.5}, {"a:0": "fine_value"}))
    assert plans.begin(asked, Library()) == asked.measured(0, {}, {"a:0": "fine_value"})
