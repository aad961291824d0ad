# SPDX-License-Identifier: Apache-2.0
"""Runs Python scripts in processes of their own: TensorFlow's options and Stash's library are per process.

Expects the package on PYTHONPATH:
PYTHONPATH=build/ci/integrations/tensorflow pytest integrations/tensorflow/tests
"""

import json
import os
import textwrap

import pytest

import forks

# TensorFlow asks the processor where nobody says it. Set before any test module imports it. The others are what most
# processes are begun with: all of these are copies of one then.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

# Files whose tests run a process for each case, longest cases first: workers take these before the others.
LONG_CASES = ("test_peaks.py", "test_identity.py", "test_swap.py")
# A file whose functions share what their fixture runs.
ONE_FIXTURE = ("test_gradients.py",)

MARK = "RESULT "
MALFORMED = "what it made would be malformed"
ALLOCATORS = {
    "onednn": {"TF_ENABLE_ONEDNN_OPTS": "1"},
    "eigen": {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPU_ALLOCATOR_USE_BFC": "true"},
}



def slow(*values):
    """A case that is left out where there is no time."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(cases, quick):
    """Cases of one value, slow but for these."""
    return [case if case in quick else slow(case) for case in cases]


INTERS = (1, slow(2))  # inter-op threads
MODES = slow_but(ALLOCATORS, ("eigen",))

PRELUDE = """
import json, os, sys, threading
import numpy as np
import tensorflow as tf
import stash_tf

def out(value):
    print("RESULT " + json.dumps(value, default=lambda v: v.item() if hasattr(v, "item") else str(v)))

def refused(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except stash_tf.StashError as error:
        return str(error)
    return None

def training(seed=0, jit=False):
    "A training step whose feature maps are worth storing."
    rng = np.random.default_rng(seed)
    weights = [tf.Variable((rng.standard_normal((3, 3, 8, 8)) * 0.1).astype("float32")) for _ in range(3)]
    @tf.function(jit_compile=jit)
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for w in weights:
                y = tf.nn.relu(tf.nn.conv2d(y, w, 1, "SAME"))
            loss = tf.reduce_mean(y * y)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(g)
        return loss
    step.weights = weights
    return step

def images(count=4):
    return tf.constant(np.random.default_rng(1).random((count, 32, 32, 8)).astype("float32"))

def asked(call, *arguments):
    "How often the graph optimizer was asked while this ran."
    library = stash_tf.library.load()
    library.reset_graphs()
    call(*arguments)
    return len(library.graphs())

def stored():
    "Whether one of our kernels has run since this was last called."
    library = stash_tf.library.load()
    ran = sum(counter["executions"] for counter in library.counters())
    library.reset_counters()
    return ran > 0
"""


class Process:
    """What a finished process has left: the last value passed to out(), and its texts."""

    def __init__(self, finished):
        self.status, self.stdout, self.stderr = finished.returncode, finished.stdout, finished.stderr
        results = [line for line in self.stdout.splitlines() if line.startswith(MARK)]
        self.value = json.loads(results[-1][len(MARK) :]) if results else None


@pytest.fixture
def python(tmp_path):
    """python(*parts, **environment) runs the parts after PRELUDE and returns the value of the last out()."""

    def run(*parts, status=0, whole=False, prelude=PRELUDE, **environment):
        chosen = {"TF_CPP_MIN_LOG_LEVEL": "1", "KERAS_BACKEND": "tensorflow", "TMPDIR": str(tmp_path)}
        script = tmp_path / "script.py"
        script.write_text("\n".join(textwrap.dedent(part) for part in (prelude, *parts)), encoding="utf-8")
        finished = forks.run(script, environment={**os.environ, **chosen, **environment}, timeout=600)
        assert finished.returncode == status, finished.stdout[-2000:] + finished.stderr[-6000:]
        assert MALFORMED not in finished.stderr, finished.stderr[-6000:]  # what we make and must throw away is a fault
        process = Process(finished)
        return process if whole else process.value

    return run


def pytest_configure(config):
    config.addinivalue_line("markers", 'slow: more of what other cases show already; -m "not slow" leaves it out')


def unit_of(nodeid):
    """What one of several workers runs in one go: the cases of a test, which may share a fixture."""
    file = nodeid.split("::")[0]
    if file.endswith(LONG_CASES):
        return nodeid
    return file if file.endswith(ONE_FIXTURE) else nodeid.split("[")[0]


def pytest_collection_modifyitems(items):
    """Long tests first, so that no worker is left with one at the end."""
    items.sort(key=lambda item: not item.path.name.endswith(LONG_CASES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Whatever --dist says, workers take units."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid)

    return Units(config, log)
