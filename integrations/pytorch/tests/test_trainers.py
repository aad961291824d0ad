# SPDX-License-Identifier: Apache-2.0
"""Trainers of others, unmodified: Hugging Face's and Lightning's by the examples, Keras on PyTorch."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
KERAS = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np, torch
import stash_torch

torch.set_num_threads(1)
keras.utils.set_random_seed(1)
model = keras.Sequential([
    keras.layers.Conv2D(16, 3, activation="silu"), keras.layers.BatchNormalization(), keras.layers.Conv2D(16, 3),
    keras.layers.ReLU(), keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
random = np.random.default_rng(0)
x, y = random.standard_normal((64, 24, 24, 3), dtype="float32"), random.integers(0, 10, 64)
model.build(x.shape)
def fit():
    return model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False).history["loss"]
if sys.argv[1] == "none":
    print("losses:", *fit())
else:
    with stash_torch.compress([layer for layer in model.layers if isinstance(layer, torch.nn.Module)]) as session:
        losses = fit()
    print(session.report())
    print("losses:", *losses)
"""


def run(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def same_losses(command, options):
    plain, ours = run(*command, *options("none")), run(*command, *options("lossless"))
    assert plain.splitlines()[-1].startswith("losses: ") and plain.splitlines()[-1] == ours.splitlines()[-1]
    assert "under this plan" in ours and "deviations" not in ours
    return ours


@pytest.mark.parametrize("example, package", [
    pytest.param("huggingface_trainer.py", "accelerate", marks=pytest.mark.slow), ("lightning_fit.py", "lightning")])
def test_an_example(example, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    same_losses([EXAMPLES / example], lambda policy: ["--policy", policy])


def test_keras_on_torch():
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    text = same_losses(["-c", KERAS], lambda policy: [policy])
    assert "recorded steps: 1," in text
