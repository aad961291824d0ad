"""Where branches of a network could run side by side, the forward pass keeps the order that was predicted as well."""

import pytest

from conftest import ALLOCATORS
from test_foretold import STEP, check

NEARLY = 0.06

BRANCHES = """
def branch(x):
    for _ in range(4):
        x = conv(x, 16)
    x = L.MaxPooling2D()(x)
    for _ in range(2):
        x = conv(x, 32)
    return L.Dense(10)(L.GlobalAveragePooling2D()(x))
"""

LOSSES = """
tf.config.threading.set_inter_op_parallelism_threads(int(os.environ["INTER"]))
tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(1)
kernels = [tf.Variable(rng.standard_normal((64, 512)).astype("float32") / 8) for _ in range(8)]

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        y = tf.tanh(x)
        loss = tf.add_n([tf.reduce_sum(tf.nn.relu(tf.matmul(y, kernel)) ** 2) for kernel in kernels])
    gradients = tape.gradient(loss, kernels)
    for kernel, gradient in zip(kernels, gradients):
        kernel.assign_sub(1e-6 * gradient)
    return loss

x = tf.constant(rng.standard_normal((4096, 64)).astype("float32"))
plain = min(stash_tf.peak_bytes(step, x) for _ in range(3))
with stash_tf.enabled("lossless"):
    peak = max(stash_tf.peak_bytes(step, x) for _ in range(3))
    predicted = stash_tf.report().predicted_peak_bytes
out([plain, peak, predicted])
"""


@pytest.mark.parametrize("inter", (1, 2))
def test_branches_run_one_behind_the_other(python, inter):
    """TensorFlow would run a layer of each, in an order that addresses decide: 30 to 50 MB for 29 here."""
    code = "out(peaks(lambda x: L.Average()([branch(x) for _ in range(8)]), 64, 16, 'fp8'))"
    check(python(STEP, BRANCHES, code, **ALLOCATORS["onednn"], INTER=str(inter)), "branches", NEARLY)


@pytest.mark.parametrize("inter", (1, 2))
def test_gradients_that_need_no_loss_come_with_their_branch(python, inter):
    """What begins the backward pass of a sum of squares is ready when the step begins: 18 or 35 MB for 14 here."""
    check(python(LOSSES, **ALLOCATORS["eigen"], INTER=str(inter)), "losses")
