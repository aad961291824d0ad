# SPDX-License-Identifier: Apache-2.0
"""Lossless training is plain training bit by bit: the losses of all steps, the weights and the optimizers' variables.

oneDNN is off: with it, a changed graph is fused in another way and adds up in another order."""

import itertools
import os

import pytest

from conftest import slow_but
from run_pool import Pool, at_once

LONG = os.environ.get("STASH_TF_LONG") == "1"
SMALL = ("small_flat", "small_vgg", "resnet_bn", "unet2d", "unet3d", "seq2seq", "seq2seq_unrolled", "transformer",
         "activation_zoo", "pooling_zoo")
LARGE = ("MobileNetV2", "EfficientNetB0", "ResNet50", "DenseNet121", "VGG16")
LOOPS = ("fit", "custom", "spe3", "while", "accumulate", "nested", "two_optimizers")


def case(model, loop="fit", mixed=None, steps=6, **options):
    return {"model": model, "loop": loop, "mixed": mixed, "steps": steps, **options}


# TensorFlow has no kernel for 3-D pooling of half on CPUs.
NOT_OF_TENSORFLOW = [("unet3d", "mixed_float16")]

QUICK = [
    case("small_vgg", steps=50),
    *(case("small_vgg", loop) for loop in LOOPS[1:]),
    case("small_flat", "accumulate"),
    case("small_vgg", mixed="mixed_float16"),
    case("seq2seq_unrolled", "accumulate"),
    case("resnet_bn", mixed="mixed_bfloat16"),
    case("resnet_bn", optimizer="Adam"),
    case("pooling_zoo", mixed="mixed_float16"),
    *(case(model) for model in SMALL if model not in ("small_vgg", "resnet_bn", "small_flat")),
]
ALL = QUICK + [one for one in (
    *(case(*choice) for choice in itertools.product(SMALL, LOOPS, (None, "mixed_float16", "mixed_bfloat16"))),
    *(case(model, mixed=mixed, steps=50) for model in (*SMALL, "MobileNetV2", "EfficientNetB0")
      for mixed in (None, "mixed_float16")),
    case("unet3d", mixed="mixed_bfloat16", steps=50),
    *(case(model, loop, steps=3) for model in LARGE for loop in ("fit", "custom")),
    *(case("ResNet50", mixed=mixed, steps=3) for mixed in ("mixed_float16", "mixed_bfloat16")),
    *(case(model, inter=2, intra=2) for model in SMALL),
) if one not in QUICK and (one["model"], one["mixed"]) not in NOT_OF_TENSORFLOW]
CASES = ALL if LONG else QUICK
CORE = [case("small_vgg", steps=50), case("small_vgg", "while"), case("resnet_bn", optimizer="Adam"),
        case("pooling_zoo", mixed="mixed_float16")]

# Sigmoids, tanhs and products: no form of theirs is smaller and keeps every bit.
NOTHING_SMALLER = ("seq2seq",)
# Accumulated gradients and unfolded maps are all that there is at the peak.
ORDER_ALONE = (("small_vgg", "accumulate"),)
BITS = ("losses", "weights", "optimizers")


def name(one):
    return "-".join(str(value) for value in one.values() if value)


@pytest.fixture(scope="module")
def pool(request):
    pool = Pool()
    for one in at_once(request, "one"):
        both(pool, one)
    yield pool
    pool.close()


def both(pool, one):
    return [pool.start(onednn=False, policy=policy, **one) for policy in ("none", "lossless")]


@pytest.mark.parametrize("one", slow_but(CASES, CORE), ids=name)
def test_lossless_is_identical(pool, one):
    plain, stash = (future.result() for future in both(pool, one))
    assert plain["trained"], "the weights did not change: nothing is compared"
    assert len(set(plain["losses"])) > 1
    facts = stash["stash"]
    if one["model"] not in NOTHING_SMALLER:
        encoded = sum(facts["executions"].values()) > 0 or (one["model"], one["loop"]) in ORDER_ALONE
        assert facts["rewritten"] and encoded, f"Stash did nothing: {facts}"
    assert {key: stash[key] for key in BITS} == {key: plain[key] for key in BITS}


def test_the_comparison_sees_one_more_sample():
    """Another batch size is another training: the three records must not be equal then."""
    pool = Pool()
    first, second = (pool.start("small_vgg", onednn=False, batch=batch, steps=2) for batch in (8, 9))
    for key in BITS[:2]:
        assert first.result()[key] != second.result()[key]
    pool.close()
