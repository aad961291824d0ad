# SPDX-License-Identifier: Apache-2.0
"""Where memory for a tensor runs out within a kernel of Stash, the step is refused, and later ones train as if nothing
had happened."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

STEP = """
import ctypes

rng = np.random.default_rng(3)
start = [(rng.standard_normal(shape) * 0.2).astype("float32") for shape in ((3, 3, 8, 8), (3, 3, 8, 8), (2048, 4))]
weights = [tf.Variable(w) for w in start]
x = images()

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        y = tf.nn.relu(tf.nn.conv2d(x, weights[0], 1, "SAME"))
        y = tf.nn.max_pool2d(y, 2, 2, "VALID")
        y = tf.nn.relu(tf.nn.conv2d(y, weights[1], 1, "SAME"))
        y = tf.nn.experimental.stateless_dropout(y, 0.25, seed=(1, 2))
        loss = tf.reduce_mean(tf.square(tf.reshape(y, (4, -1)) @ weights[2]))
    for w, g in zip(weights, tape.gradient(loss, weights)):
        w.assign_sub(g)
    return loss

def trained():
    "Bits of the loss and of the weights of one step from the start."
    for w, value in zip(weights, start):
        w.assign(value)
    return [step(x).numpy().tobytes().hex(), *(w.numpy().tobytes().hex() for w in weights)]
"""

ATTEMPTS = """
plain = trained()
stash_tf.enable(os.environ["POLICY"], replan=False)
trained()
expected = trained()  # sizes of sparse tensors are known from the step before
shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
shim.tensors_seen.restype, shim.fail_tensor.argtypes = ctypes.c_longlong, [ctypes.c_longlong]
shim.fail_tensor(-1)
trained()
count = shim.tensors_seen()
refused, others = 0, []
for which in range(count):
    shim.fail_tensor(which)
    try:
        trained()
    except tf.errors.ResourceExhaustedError:
        refused += 1
    except Exception as error:
        others.append(repr(error))
    shim.tensors_seen()
    if trained() != expected:
        others.append(f"after allocation {which} another result")
out([plain == expected, count, refused, others, sorted({c["op"] for c in stash_tf.library.load().counters()})])
"""


@pytest.fixture(scope="module")
def failing_tensor(tmp_path_factory):
    """failing_tensor.c, built for LD_PRELOAD."""
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("shim") / "failing_tensor.so"
    source = Path(__file__).with_name("failing_tensor.c")
    subprocess.run([compiler, "-std=c11", "-O2", "-shared", "-fPIC", source, "-o", path, "-ldl"], check=True)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lossless", "fp8"])
def test_every_allocation_of_a_tensor_may_fail(python, failing_tensor, policy):
    same, count, refused, others, ops = python(STEP, ATTEMPTS, POLICY=policy, LD_PRELOAD=str(failing_tensor))
    assert same or policy != "lossless"
    assert count > 5 and refused == count and not others, (count, refused, others, ops)
