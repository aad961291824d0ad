# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments, and bytes that no encoder wrote."""

import numpy as np
import pytest

from op_cases import FORMATS, SPARSE, ops, tf, values

X = tf.constant(np.random.default_rng(0).standard_normal((2, 6, 6, 3)), tf.float32)
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}


def encode(**more):
    return ops.stash_encode(**{"x": X, "encoding": "raw", **more})


def decode(**more):
    stored, dims = encode()
    return ops.stash_decode(**{"stored": stored, "dims": dims, "encoding": "raw", **more})


def dims(**more):
    stored, _ = encode(encoding="fp16")
    return ops.stash_dims(**{"stored": stored, "encoding": "fp16", "known": [-1, 6, 6, 3], "T": tf.float32, **more})


def relu_grad(**more):
    stored, _ = encode(encoding="sign_mask")
    return ops.stash_relu_grad(**{"gradients": X, "stored": stored, "encoding": "sign_mask", **more})


def relu6_grad(**more):
    stored, _ = encode(encoding="range_mask")
    return ops.stash_relu6_grad(**{"gradients": X, "stored": stored, **more})


def leaky_grad(**more):
    stored, _ = encode(encoding="sign_mask")
    return ops.stash_leaky_relu_grad(
        **{"gradients": X, "stored": stored, "encoding": "sign_mask", "alpha": 0.1, **more}
    )


def pool(**more):
    return ops.stash_max_pool(**{"x": X, **POOL, **more})


def pool_grad(**more):
    y, stored, dims = pool()
    return ops.stash_max_pool_grad(**{"gradients": y, "stored": stored, "dims": dims, **POOL, **more})


def dropout(**more):
    return ops.stash_dropout(**{"x": X, "seed": [1, 2], "rate": 0.5, **more})


def dropout_grad(**more):
    _, stored = dropout()
    return ops.stash_dropout_grad(**{"gradients": X, "stored": stored, "rate": 0.5, **more})


def zeros(*shape):
    return tf.zeros(shape, tf.uint8)


WRONG = [
    (encode, {"encoding": "zip"}, 'StashEncode: encoding: .*expected one of raw.*got "zip"'),
    (encode, {"encoding": ""}, "StashEncode: encoding"),
    (
        encode,
        {"encoding": "window_index"},
        "StashEncode: encoding: expected one of dense values, got window_index",
    ),
    (encode, {"encoding": "relu_pool"}, "StashEncode: encoding: expected one of dense values, got relu_pool"),
    (encode, {"x": tf.cast(X, tf.float16), "encoding": "fp16"}, "StashEncode: encoding: .*expected"),
    (encode, {"x": tf.cast(X, tf.bfloat16), "encoding": "bf16"}, "StashEncode: encoding: .*expected"),
    (encode, {"x": X > 0}, "StashEncode: encoding: expected sign_mask for bool, got raw"),
    (encode, {"x": tf.cast(X, tf.int32)}, "Value for attr 'T' of int32"),
    (
        encode,
        {"encoding": "range_mask", "lower": 1.0, "upper": 1.0},
        "StashEncode: lower: expected a number below",
    ),
    (
        encode,
        {"encoding": "range_mask", "lower": 0.0, "upper": 0.0},
        "StashEncode: lower: expected a number below",
    ),
    (encode, {"encoding": "range_mask", "lower": float("nan")}, "StashEncode: lower: expected a number below"),
    (decode, {"encoding": "zip"}, "StashDecode: encoding"),
    (decode, {"encoding": "sign_mask"}, "StashDecode: encoding: expected one whose values can be decoded"),
    (decode, {"encoding": "range_mask"}, "StashDecode: encoding: expected one whose values can be decoded"),
    (decode, {"encoding": "shape_only"}, "StashDecode: encoding: expected one whose values can be decoded"),
    (decode, {"T": tf.bool}, "StashDecode: encoding: expected sign_mask for bool, got raw"),
    (decode, {"stored": zeros(5)}, "StashDecode: stored: expected 864 bytes for 216 elements, got 5"),
    (decode, {"stored": zeros(880)}, "StashDecode: stored: expected 864 bytes for 216 elements, got 880"),
    (decode, {"stored": zeros(2, 432)}, "StashDecode: stored: expected a vector, got rank 2"),
    (
        decode,
        {"stored": zeros(16), "encoding": "bitmap"},
        "StashDecode: stored: expected 96 to 960 bytes for 216 elements, got 16",
    ),
    (decode, {"dims": tf.constant([2, -3], tf.int64)}, "StashDecode: dims: expected no negative size, got -3"),
    (decode, {"dims": tf.constant([[2], [3]], tf.int64)}, "StashDecode: dims: expected a vector, got rank 2"),
    (decode, {"dims": tf.constant([2**40, 2**40], tf.int64)}, "StashDecode: dims: expected a shape"),
    (decode, {"dims": tf.constant([2**40], tf.int64)}, "StashDecode: stored: expected 4398046511104 bytes"),
    (decode, {"dims": tf.constant([2**60], tf.int64)}, "StashDecode: "),
    (decode, {"dims": tf.ones(255, tf.int64)}, "StashDecode: dims: expected at most 254 dimensions, got 255"),
    (dims, {"encoding": "bitmap"}, "StashDims: encoding: expected one whose size does not depend on the values"),
    (dims, {"known": [-1, -1]}, "StashDims: known: expected dimensions, of which one may be -1, got -1"),
    (dims, {"known": [-2, 3]}, "StashDims: known: expected dimensions, of which one may be -1, got -2"),
    (dims, {"known": [2**30, 2**30]}, "StashDims: known: expected at most 1099511627776 elements, got more"),
    (dims, {"known": [-1, 1000]}, "StashDims: stored: expected bytes of whole slices of 1000 elements, which tell their number"),
    (dims, {"known": [-1, 3], "encoding": "sign_mask", "stored": zeros(16)}, "StashDims: stored: expected bytes of whole slices"),
    (dims, {"known": [0, -1]}, "StashDims: stored: expected bytes of whole slices of 0 elements"),
    (relu_grad, {"encoding": "zip"}, "StashReluGrad: encoding"),
    (
        relu_grad,
        {"encoding": "range_mask"},
        "StashReluGrad: encoding: expected one that keeps the sign, got range",
    ),
    (relu_grad, {"encoding": "shape_only"}, "StashReluGrad: encoding: expected one that keeps the sign"),
    (relu_grad, {"encoding": "relu_pool"}, "StashReluGrad: encoding: expected one that keeps the sign"),
    (relu_grad, {"stored": zeros(16)}, "StashReluGrad: stored: expected 32 bytes for 216 elements, got 16"),
    (relu_grad, {"stored": zeros(1, 32)}, "StashReluGrad: stored: expected a vector, got rank 2"),
    (relu_grad, {"gradients": X[:1]}, "StashReluGrad: stored: expected 16 bytes for 108 elements, got 32"),
    (relu6_grad, {"stored": zeros(16)}, "StashRelu6Grad: stored: expected 32 bytes for 216 elements, got 16"),
    (leaky_grad, {"alpha": float("inf")}, "StashLeakyReluGrad: alpha: expected a finite number, got inf"),
    (leaky_grad, {"alpha": float("nan")}, "StashLeakyReluGrad: alpha: expected a finite number, got nan"),
    (leaky_grad, {"encoding": "range_mask"}, "StashLeakyReluGrad: encoding: expected one that keeps the sign"),
    (
        leaky_grad,
        {"stored": zeros(48)},
        "StashLeakyReluGrad: stored: expected 32 bytes for 216 elements, got 48",
    ),
    (dropout, {"rate": 1.0}, "StashDropout: rate: expected 0 or more and less than 1, got 1"),
    (dropout, {"rate": -0.1}, "StashDropout: rate: expected 0 or more and less than 1, got -0.1"),
    (dropout, {"rate": float("nan")}, "StashDropout: rate: expected 0 or more and less than 1, got nan"),
    (dropout, {"seed": [1, 2, 3]}, r"StashDropout: seed: expected a vector of 2 numbers, got \[3\]"),
    (dropout, {"seed": [[1, 2]]}, r"StashDropout: seed: expected a vector of 2 numbers, got \[1,2\]"),
    (dropout_grad, {"rate": 2.0}, "StashDropoutGrad: rate"),
    (dropout_grad, {"stored": zeros(0)}, "StashDropoutGrad: stored: expected 32 bytes for 216 elements, got 0"),
]
for call, op in ((pool, "StashMaxPool"), (pool_grad, "StashMaxPoolGrad")):
    WRONG += [
        (call, {"ksize": [1, 2, 2, 1, 1]}, f"{op}: ksize: expected 4 numbers, got 5"),
        (call, {"ksize": [1, 2, 2, 2]}, f"{op}: ksize: expected 1 for batch and channels, got 2"),
        (call, {"ksize": [2, 2, 2, 1]}, f"{op}: ksize: expected 1 for batch and channels, got 2"),
        (call, {"ksize": [1, 0, 2, 1]}, f"{op}: ksize: expected positive numbers, got 0"),
        (call, {"ksize": [1, 2, -5, 1]}, f"{op}: ksize: expected positive numbers, got -5"),
        (call, {"ksize": [1, 2, 129, 1]}, f"{op}: ksize: expected at most 256 taps, got 258"),
        (call, {"ksize": [1, 2**31 - 1, 2**31 - 1, 1]}, f"{op}: ksize: expected at most 256 taps"),
        (
            call,
            {"ksize": [1, 4, 4, 1], "joint_relu": True},
            f"{op}: ksize: expected at most 15 taps with joint_relu",
        ),
        (call, {"strides": [1, 2, 2, 2]}, f"{op}: strides: expected 1 for batch and channels, got 2"),
        (call, {"strides": [1, 0, 2, 1]}, f"{op}: strides: expected positive numbers, got 0"),
        (call, {"strides": [1, 2, 2, 1, 1]}, f"{op}: strides: expected 4 numbers, got 5"),
        (call, {"padding": "FULL"}, "padding"),
        (call, {"data_format": "NWHC"}, "data_format"),
        (
            call,
            {"padding": "EXPLICIT"},
            f"{op}: explicit_paddings: expected 8 numbers for padding EXPLICIT, got 0",
        ),
        (
            call,
            {"explicit_paddings": [0] * 8},
            f"{op}: explicit_paddings: expected 0 numbers for padding SAME, got 8",
        ),
        (
            call,
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 2, 0, 0, 0, 0, 0]},
            f"{op}: explicit_paddings: expected 0 or more and less than the window, got 2",
        ),
        (
            call,
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 0, 0, 0, -1, 0, 0]},
            f"{op}: explicit_paddings: expected 0 or more and less than the window, got -1",
        ),
        (
            call,
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 0, 0, 0, 0, 1, 0]},
            f"{op}: explicit_paddings: expected 0 for batch and channels, got 1",
        ),
    ]
WRONG += [
    (pool, {"x": X[0]}, "StashMaxPool: x: expected 4 dimensions, got 3"),
    (
        pool,
        {"data_format": "NDHWC", "ksize": [1] * 5, "strides": [1] * 5},
        "StashMaxPool: x: expected 5 dimensions",
    ),
    (pool, {"padding": "VALID", "ksize": [1, 9, 9, 1]}, "StashMaxPool: x: expected a size of at least 9"),
    (
        pool_grad,
        {"gradients": X},
        r"StashMaxPoolGrad: gradients: expected the shape \[2,3,3,3\] .*got \[2,6,6,3\]",
    ),
    (pool_grad, {"stored": zeros(32)}, "StashMaxPoolGrad: stored: expected 16 bytes for 54 elements, got 32"),
    (
        pool_grad,
        {"dims": tf.constant([2, 6, 6], tf.int64)},
        "StashMaxPoolGrad: dims: expected 4 dimensions, got 3",
    ),
    (
        pool_grad,
        {"dims": tf.constant([2, -6, 6, 3], tf.int64)},
        "StashMaxPoolGrad: dims: expected no negative size",
    ),
    (
        pool_grad,
        {"dims": tf.constant([2, 6, 2**50, 3], tf.int64)},
        "StashMaxPoolGrad: gradients: expected the shape",
    ),
]


@pytest.mark.parametrize(
    "call,more,message", WRONG, ids=[f"{c.__name__}-{i}" for i, (c, _, _) in enumerate(WRONG)]
)
def test_wrong_argument(call, more, message):
    call()
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError), match=message):
        call(**more)


def test_wrong_ranks_are_seen_by_shape_functions():
    for call in (
        lambda: ops.stash_decode(stored=zeros(2, 2), dims=[1], encoding="raw"),
        lambda: ops.stash_relu_grad(gradients=X, stored=zeros(2, 2), encoding="raw"),
        lambda: ops.stash_max_pool(x=X[0], **POOL),
        lambda: ops.stash_max_pool_grad(gradients=X, stored=zeros(2, 2), dims=[1, 2, 3, 4], **POOL),
        lambda: ops.stash_dropout(x=X, seed=[1, 2, 3], rate=0.5),
    ):
        with pytest.raises(ValueError):
            tf.function(call).get_concrete_function()


VALUES = ("raw", *FORMATS, *SPARSE, *(f"{kind}_{name}" for kind in SPARSE for name in FORMATS))


def attempt(call, **arguments):
    """True if the bytes were refused; any other failure is the test's."""
    try:
        call(**arguments)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        return True
    return False


@pytest.mark.parametrize("name", VALUES)
def test_random_bytes(name):
    rng = np.random.default_rng(1)
    for _ in range(30):
        count = int(rng.choice([0, 1, 33, 1024, 2500]))
        x = values(tf.float32, (count,), int(rng.integers(1000)))
        stored, dims = ops.stash_encode(x=x, encoding=name)
        stored = stored.numpy()
        noise = rng.integers(0, 256, stored.size, np.uint8)
        # All of it; some of it; all but the trailer, so that it is believed.
        some = stored.copy()
        if stored.size:
            indices = rng.integers(0, stored.size, 1 + stored.size // 50)
            some[indices] = noise[indices]
        believed = np.concatenate([noise[:-48], stored[-48:]]) if stored.size >= 48 else noise
        for data in (noise, some, believed):
            attempt(ops.stash_decode, stored=data, dims=dims, encoding=name)
            attempt(ops.stash_relu_grad, gradients=x, stored=data, encoding=name)
            attempt(ops.stash_leaky_relu_grad, gradients=x, stored=data, encoding=name, alpha=0.1)


@pytest.mark.parametrize("name", VALUES)
def test_truncated_bytes(name):
    x = values(tf.float32, (1100,), 2)
    stored, dims = ops.stash_encode(x=x, encoding=name)
    for size in range(0, stored.shape[0], 7):
        assert attempt(ops.stash_decode, stored=stored[:size], dims=dims, encoding=name)
        assert attempt(ops.stash_relu_grad, gradients=x, stored=stored[:size], encoding=name)


@pytest.mark.parametrize("joint", (False, True), ids=("plain", "joint"))
@pytest.mark.parametrize("window", ((2, 2), (3, 3), (5, 3)))
def test_random_pool_bytes(window, joint):
    shape = {"ksize": [1, *window, 1], "strides": [1, 2, 2, 1], "padding": "SAME", "joint_relu": joint}
    y, stored, dims = ops.stash_max_pool(x=tf.nn.relu(X), **shape)
    refused = 0
    rng = np.random.default_rng(3)
    for _ in range(100):
        data = rng.integers(0, 256, stored.shape[0], np.uint8)
        refused += attempt(ops.stash_max_pool_grad, gradients=y, stored=data, dims=dims, **shape)
    # Every number of two bits is a tap of a window of four.
    assert refused > 50 or window == (2, 2)


def test_contradicting_bytes_are_data_loss():
    x = values(tf.float32, (3000,), 4)
    stored, dims = ops.stash_encode(x=x, encoding="bitmap")
    table = -(-3000 // 128) * 16
    wrong = stored.numpy()
    wrong[table : table + 4] = 255
    with pytest.raises(tf.errors.DataLossError, match="StashDecode: stored: expected"):
        ops.stash_decode(stored=wrong, dims=dims, encoding="bitmap")
    wrong = stored.numpy()
    wrong[-48] = 2
    with pytest.raises(tf.errors.DataLossError, match="StashReluGrad: stored: expected the report"):
        ops.stash_relu_grad(gradients=x, stored=wrong, encoding="bitmap")
    y, taps, shape = ops.stash_max_pool(x=X, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")
    with pytest.raises(tf.errors.DataLossError, match="StashMaxPoolGrad: stored: expected"):
        ops.stash_max_pool_grad(
            gradients=y,
            stored=np.full(taps.shape, 255, np.uint8),
            dims=shape,
            ksize=[1, 3, 3, 1],
            strides=[1, 2, 2, 1],
            padding="SAME",
        )


def test_bytes_of_any_alignment():
    """Foreign memory need not begin where TensorFlow's own does."""
    x = values(tf.float32, (3000,), 5)
    for name in ("bitmap", "fp10", "sign_mask"):
        stored, dims = ops.stash_encode(x=x, encoding=name, keep_nonzero=True)
        memory = np.empty(stored.shape[0] + 1, np.uint8)
        memory[1:] = stored
        try:
            shifted = tf.experimental.dlpack.from_dlpack(memory[1:].__dlpack__())
        except (tf.errors.InvalidArgumentError, TypeError, ValueError) as error:
            pytest.skip(f"no way to make one: {error}")
        dx = ops.stash_relu_grad(gradients=x, stored=shifted, encoding=name)
        np.testing.assert_array_equal(dx, ops.stash_relu_grad(gradients=x, stored=stored, encoding=name))
        if name != "sign_mask":
            (
                np.testing.assert_array_equal(
                    ops.stash_decode(stored=shifted, dims=dims, encoding=name),
                    ops.stash_decode(stored=stored, dims=dims, encoding=name),
                ),
                tf,
            )
