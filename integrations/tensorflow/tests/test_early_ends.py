# SPDX-License-Identifier: Apache-2.0
"""A large step that ends early, in whatever way, leaves TensorFlow able to go on, with Stash and without."""

import pytest

from conftest import ALLOCATORS, slow

STEP = """
from tensorflow.python.eager import cancellation

rng = np.random.default_rng(6)
parts = [tf.constant(rng.standard_normal((16384, 256)).astype("float32")) for _ in range(12)]
bad = tf.fill(parts[0].shape, float("nan"))
raises = False

def look(loss):
    if raises:
        raise ValueError("a fault in Python")
    return loss

def step_of(end):
    "Twelve losses of one layer, 250 MB: at its peak TensorFlow makes temporary variables for the sums of gradients."
    made = np.random.default_rng(7)
    weights = [tf.Variable(made.standard_normal(shape).astype("float32") * 0.05) for shape in ((256, 256), (256, 1))]
    @tf.function(autograph=False)
    def step(first, *rest):
        if end == "out_of_range":
            first = first.get_next()
        with tf.GradientTape() as tape:
            loss = 0.0
            for part in (first, *rest):
                loss += tf.reduce_mean(tf.square(tf.nn.relu(part @ weights[0]) @ weights[1] - 0.5))
        gradients = tape.gradient(loss, weights)
        if end == "nan":
            loss = tf.debugging.check_numerics(loss, "the loss")
            gradients = [tf.debugging.check_numerics(g, "a gradient") for g in gradients]
        if end == "python":
            loss = tf.ensure_shape(tf.py_function(look, [loss], tf.float32), [])
            with tf.control_dependencies([loss]):
                gradients = [tf.identity(g) for g in gradients]
        for w, g in zip(weights, gradients):
            w.assign_sub(1e-4 * g)
        return loss
    step.weights = weights
    return step

def iterator(times):
    return iter(tf.data.Dataset.from_tensors(parts[0]).repeat(times))

def end_early(end, step):
    "The name of the error by which a call of the step ends."
    global raises
    try:
        if end == "out_of_range":
            step(iterator(0), *parts[1:])
        elif end == "nan":
            step(bad, *parts[1:])
        elif end == "python":
            raises = True
            step(*parts)
        elif end == "cancelled":
            manager = cancellation.CancellationManager()
            call = manager.get_cancelable_function(step.get_concrete_function(*parts))
            timer = threading.Timer(0.05, manager.start_cancel)
            timer.start()
            for _ in range(100):
                call(*parts)
        elif end == "refused":
            with stash_tf.enabled("lossless", budget="8 MiB"):
                step(*parts)
    except tf.errors.OpError as error:
        return type(error).__name__
    finally:
        raises = False
    return None

def goes_on(end, step):
    "Whether two steps run and change the weights."
    before = step.weights[0].numpy()
    first = iterator(2) if end == "out_of_range" else parts[0]
    try:
        losses = [float(step(first, *parts[1:])) for _ in range(2)]
    except tf.errors.OpError as error:
        return str(error)[:300]
    return bool(np.isfinite(losses).all() and (step.weights[0].numpy() != before).any())

def run(end, policy):
    step = step_of(end)
    found = []
    with (stash_tf.enabled(policy) if policy != "none" and end != "refused" else contextlib.nullcontext()):
        if end != "refused":
            found.append(goes_on(end, step))
        found.append(end_early(end, step))
        found.append(goes_on(end, step))
    if end == "refused":
        with stash_tf.enabled(policy, budget="400 MiB"):
            found.append(goes_on(end, step))
    found += [goes_on(end, step), goes_on(end, step_of(end))]
    return found
"""


@pytest.mark.parametrize(("end", "error"), [
    ("refused", "ResourceExhaustedError"), slow("out_of_range", "OutOfRangeError"), ("nan", "InvalidArgumentError"),
    slow("python", "InvalidArgumentError"), slow("cancelled", "CancelledError")])
def test_steps_run_after_one_that_ended_early(python, end, error):
    found = python("import contextlib", STEP, f"out(run({end!r}, 'lossless'))", **ALLOCATORS["eigen"])
    assert error in found
    found.remove(error)
    assert all(went_on is True for went_on in found), found
