# SPDX-License-Identifier: Apache-2.0
"""Gradients under the lossy policies, against exact ones: all weights of a Keras model after the same step."""

import os
import statistics

import numpy as np
import pytest

from conftest import slow
from run_pool import Pool

LONG = os.environ.get("STASH_TF_LONG") == "1"
# Relative error of the whole gradient; its cosine to the exact one.
GATES = {"fp16": (1e-3, 0.999999), "fp10": (0.03, 0.999), "fp8": (0.05, 0.999), "lossless": (0.0, 1.0)}
QUICK = [("small_vgg", "fp16"), ("small_vgg", "fp10"), ("small_vgg", "fp8"), ("resnet_bn", "fp8"), ("unet2d", "fp8"),
         ("small_vgg", "lossless")]
MODELS = ("small_flat", "small_vgg", "resnet_bn", "unet2d", "unet3d", "seq2seq_unrolled", "transformer", "activation_zoo",
          "pooling_zoo", "MobileNetV2", "ResNet50", "DenseNet121")
CASES = QUICK + [case for case in ((model, policy) for model in MODELS for policy in GATES)
                 if LONG and case not in QUICK]


def error(exact, got):
    """|got - exact| / |exact|, in double precision; what is exactly right has no error even if it is zero."""
    difference = np.linalg.norm((got - exact).astype(np.float64))
    return float(difference / np.linalg.norm(exact.astype(np.float64))) if difference else 0.0


def cosine(exact, got):
    exact, got = exact.astype(np.float64), got.astype(np.float64)
    return float(exact @ got / (np.linalg.norm(exact) * np.linalg.norm(got))) if np.any(exact != got) else 1.0


def whole(gradients):
    return np.concatenate([gradient.reshape(-1) for gradient in gradients.values()])


def complaints(policy, exact, got):
    """What is wrong with the gradients `got`, with the error of every weight; an empty text if nothing is."""
    most, least = GATES[policy]
    if list(exact) != list(got) or any(exact[name].shape != got[name].shape for name in exact):
        return "other weights"
    if not all(np.isfinite(gradient).all() for gradient in got.values()):
        return "not finite"
    found = error(whole(exact), whole(got)), cosine(whole(exact), whole(got))
    if found[0] <= most and found[1] >= least:
        return ""
    layers = "\n".join(f"{error(exact[name].reshape(-1), got[name].reshape(-1)):10.3e}  {name}" for name in exact)
    return f"relative error {found[0]:.3e} (at most {most}), cosine {found[1]:.6f} (at least {least})\n{layers}"


@pytest.fixture(scope="module")
def gradients(tmp_path_factory):
    """gradients(model, policy): by weight, of the first batch; every configuration runs once."""
    pool, folder, known = Pool(), tmp_path_factory.mktemp("gradients"), {}
    cases = {*CASES, *((model, "none") for model, _ in CASES)}

    def begin(model, policy):
        file = folder / f"{model}_{policy}.npz"
        return file, pool.start(model, policy=policy, onednn=False, steps=1, gradients=str(file), measure="losses,counters")

    for case in sorted(cases):
        begin(*case)

    def gradients_of(model, policy):
        if (model, policy) not in known:
            file, future = begin(model, policy)
            record = future.result()
            if policy != "none":
                facts = record["stash"]
                assert facts["rewritten"] and sum(facts["executions"].values()) > 0, f"Stash did nothing: {facts}"
                # The next step would keep them in more bits, and need the memory for it.
                assert not facts["misfits"], "values of an ordinary network that do not suit the policy"
            with np.load(file) as arrays:
                known[model, policy] = {name: arrays[name] for name in arrays.files if name != "loss"}
        return known[model, policy]

    yield gradients_of
    pool.close()


@pytest.mark.parametrize(("model", "policy"), [case if case[0] == "small_vgg" else slow(*case) for case in CASES])
def test_gate(gradients, model, policy):
    exact, got = gradients(model, "none"), gradients(model, policy)
    print(f"{model} {policy}: error {error(whole(exact), whole(got)):.3e}, cosine {cosine(whole(exact), whole(got)):.6f}, "
          f"median over the weights {statistics.median(error(exact[n].ravel(), got[n].ravel()) for n in exact):.3e}")
    assert not complaints(policy, exact, got)


def faults(exact):
    """Gradients with one mistake each, of the kinds that a wrong stash makes."""
    rng = np.random.default_rng(3)
    largest = max(exact, key=lambda name: np.linalg.norm(exact[name]))
    yield "one gradient is missing", {**exact, largest: np.zeros_like(exact[largest])}
    yield "one gradient has the wrong sign", {**exact, largest: -exact[largest]}
    yield "one gradient is 15 percent too large", {**exact, largest: exact[largest] * np.float32(1.15)}
    yield "noise of 6 percent", {name: value + np.float32(0.06) * np.linalg.norm(value) / np.sqrt(value.size)
                                 * rng.standard_normal(value.shape, dtype=np.float32)
                                 for name, value in exact.items()}
    yield "all a tenth too small", {name: value * np.float32(0.9) for name, value in exact.items()}
    yield "not finite", {**exact, largest: exact[largest] * np.float32(np.nan)}


def test_the_gate_catches_faults(gradients):
    exact = gradients("small_vgg", "none")
    assert not complaints("fp8", exact, exact)
    for what, faulty in faults(exact):
        assert complaints("fp8", exact, faulty), what


def test_the_gate_distinguishes_policies(gradients):
    """fp8 is lossy: it must not pass for fp16, nor fp16 for lossless."""
    exact = gradients("small_vgg", "none")
    assert complaints("fp16", exact, gradients("small_vgg", "fp8"))
    assert complaints("lossless", exact, gradients("small_vgg", "fp16"))
