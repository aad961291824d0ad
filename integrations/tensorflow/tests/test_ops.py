# SPDX-License-Identifier: Apache-2.0
"""Encoding, decoding, the gradients of ReLUs, dropout, swapping and counters."""

import ml_dtypes
import numpy as np
import pytest

import forks
import op_cases
from op_cases import (
    DENORMALS,
    EDGES,
    FLOATS,
    FORMATS,
    SIZES,
    SPARSE,
    assert_bits,
    assert_same,
    counters,
    extension,
    narrow,
    ops,
    tf,
    values,
)

LOSSLESS = ("raw", *SPARSE)
ALL = (*EDGES, *DENORMALS)
SIGNED = ("sign_mask", *LOSSLESS, *(f"{kind}_{value}" for kind in SPARSE for value in FORMATS))


def ids(v):
    return getattr(v, "name", None) or str(v)


def legal(name, dtype):
    """A cast of 16 bits goes to fewer bits."""
    return dtype == tf.float32 or name not in ("fp16", "bf16")


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_comes_back_bit_by_bit(name, dtype):
    for seed, size in enumerate(SIZES):
        for zeros in (0.0, 0.5, 1.0):
            x = values(dtype, (size,), seed, zeros, ALL)
            stored, dims = ops.stash_encode(x=x, encoding=name)
            assert_bits(ops.stash_decode(stored=stored, dims=dims, encoding=name, T=dtype), x)
    nothing = tf.zeros((5, 2, 0, 3), dtype)
    stored, dims = ops.stash_encode(x=nothing, encoding=name)
    assert stored.shape == (0,)
    assert ops.stash_decode(stored=stored, dims=dims, encoding=name, T=dtype).shape == (5, 2, 0, 3)


def test_any_rank():
    for shape in ((), (3,), (2, 3), (1,) * 12 + (5,)):
        x = values(tf.float32, shape)
        stored, dims = ops.stash_encode(x=x, encoding="bitmap")
        assert list(dims.numpy()) == list(shape)
        assert_bits(ops.stash_decode(stored=stored, dims=dims, encoding="bitmap"), x)


def test_sparse_takes_what_it_needs():
    for zeros, size in ((1.0, 4096), (0.9, 5000), (0.5, 5000)):
        x = values(tf.float32, (size,), 3, zeros, edges=())
        nonzeros = np.count_nonzero(x)
        tiles = -(-size // 1024)
        stored, _ = ops.stash_encode(x=x, encoding="bitmap")
        fixed = -(-size // 128) * 16 + -(-tiles // 4) * 16 + 48
        assert fixed + 4 * nonzeros <= stored.shape[0] <= fixed + 4 * nonzeros + 12 * tiles


@pytest.mark.parametrize("name", (*SPARSE, "bitmap_fp8"))
def test_sizes_that_change_from_execution_to_execution(name):
    """Sizes are guessed from the execution before: too small, too large or of another tensor, the bytes are the same."""

    def encode(x, tensor):
        return ops.stash_encode(x=x, encoding=name, tensor=tensor)

    for k, (size, zeros) in enumerate(
        ((5000, 0.5), (5000, 0.5), (5000, 0.51), (5000, 0.49), (5000, 0.1), (5000, 0.9), (5000, 1.0), (5000, 0.0),
         (70000, 0.3), (1, 0.0), (0, 0.0), (70000, 0.0), (70000, 0.99), (70000, 0.3))
    ):
        x = values(tf.float32, (size,), k, zeros, edges=())
        one, other = encode(x, "guessed"), encode(x, f"counted {k}")
        assert_bits(one[0], other[0])
        assert list(one[1]) == [size]
        assert_same(*(ops.stash_decode(stored=stored, dims=dims, encoding=name) for stored, dims in (one, other)))


@pytest.mark.parametrize("keep", (False, True), ids=("to_zero", "keep_nonzero"))
@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
@pytest.mark.parametrize("name", FORMATS)
def test_narrow_values(name, dtype, keep):
    if not legal(name, dtype):
        pytest.skip("as wide as the tensor")
    for seed, size in enumerate(SIZES):
        x = values(dtype, (size,), seed, edges=ALL)
        stored, dims = ops.stash_encode(x=x, encoding=name, keep_nonzero=keep)
        y = ops.stash_decode(stored=stored, dims=dims, encoding=name, keep_nonzero=keep, T=dtype)
        # MX may give a value that is beyond the tensor's type: then it saturates, or is rounded.
        with np.errstate(all="ignore"):
            expected = narrow(name, x, keep)
            limit = float(dtype.max)
            finite = np.isfinite(expected)
            expected[finite] = np.clip(expected[finite], -limit, limit)
            assert_same(y, expected.astype(np.float32).astype(dtype.as_numpy_dtype))


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("name", FORMATS)
def test_sparse_narrow_values(name, kind):
    for seed, size in enumerate(SIZES):
        x = values(tf.float32, (size,), seed, 0.6, ALL).numpy()
        stored, dims = ops.stash_encode(x=x, encoding=f"{kind}_{name}")
        y = ops.stash_decode(stored=stored, dims=dims, encoding=f"{kind}_{name}")
        expected = np.zeros(size, np.float32)
        for first in range(0, size, 1024):
            tile = x[first : first + 1024]
            there = tile.view(np.uint32) != 0
            with np.errstate(all="ignore"):
                expected[first : first + 1024][there] = narrow(name, tile[there], False)
        assert_same(y, expected)


def test_casts_against_ml_dtypes():
    """A second opinion about the reference of the tests above."""
    x = values(tf.float32, (20000,), 5).numpy()
    x = x[np.isfinite(x)]
    for name, dtype, largest in (
        ("fp16", np.float16, 65504),
        ("bf16", ml_dtypes.bfloat16, 3e38),
        ("fp8", ml_dtypes.float8_e4m3fn, 448),
        ("fp8_e5m2", ml_dtypes.float8_e5m2, 57344),
    ):
        some = x[np.abs(x) <= largest]
        stored, dims = ops.stash_encode(x=some, encoding=name)
        assert_bits(
            ops.stash_decode(stored=stored, dims=dims, encoding=name), some.astype(dtype).astype(np.float32)
        )


def test_bool_mask():
    for seed, size in enumerate(SIZES):
        x = np.random.default_rng(seed).random(size) < 0.5
        stored, dims = ops.stash_encode(x=x, encoding="sign_mask")
        assert stored.shape[0] == -(-size // 128) * 16
        y = ops.stash_decode(stored=stored, dims=dims, encoding="sign_mask", T=tf.bool)
        np.testing.assert_array_equal(y, x)


def test_shape_only_takes_nothing():
    stored, dims = ops.stash_encode(x=tf.ones((2, 3)), encoding="shape_only")
    assert stored.shape == (0,) and list(dims.numpy()) == [2, 3]


def gradients(dtype, shape, seed):
    return values(dtype, shape, seed + 1000)


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
@pytest.mark.parametrize("name", (*SIGNED, *FORMATS))
def test_relu_gradient(name, dtype):
    if not legal(name, dtype):
        pytest.skip("as wide as the tensor")
    # In these a NaN takes its group along.
    edges = [e for e in EDGES if not (np.isnan(e) and ("mxfp6" in name or "mxfp4" in name))]
    for seed, size in enumerate(SIZES):
        # With and without negative values: a ReLU has none, and sparse forms then read the mask alone.
        for x in (
            values(dtype, (size,), seed, edges=edges),
            tf.nn.relu(values(dtype, (size,), seed, edges=())),
        ):
            dy = gradients(dtype, (size,), seed)
            stored, _ = ops.stash_encode(x=x, encoding=name, keep_nonzero=True)
            dx = ops.stash_relu_grad(gradients=dy, stored=stored, encoding=name)
            assert_same(dx, tf.raw_ops.ReluGrad(gradients=dy, features=x))


@pytest.mark.parametrize("dtype", (tf.float32, tf.bfloat16), ids=ids)
def test_denormals_are_numbers(dtype):
    """Other than in TensorFlow's kernels, which take them for zeros."""
    x = tf.cast([1e-40, -1e-40, 1.0, 1.0], dtype)
    dy = tf.cast([1.0, 1.0, 1e-40, -1e-40], dtype)
    for name in ("sign_mask", "raw", "bitmap", "csr", "fp8"):
        stored, _ = ops.stash_encode(x=x, encoding=name, keep_nonzero=True)
        dx = ops.stash_relu_grad(gradients=dy, stored=stored, encoding=name)
        assert_bits(dx, dy.numpy() * np.array([1, 0, 1, 1], dy.dtype.as_numpy_dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_relu6_gradient(dtype):
    for seed, size in enumerate(SIZES):
        x = values(dtype, (size,), seed)
        dy = gradients(dtype, (size,), seed)
        stored, _ = ops.stash_encode(x=x, encoding="range_mask", lower=0, upper=6)
        assert_same(
            ops.stash_relu6_grad(gradients=dy, stored=stored), tf.raw_ops.Relu6Grad(gradients=dy, features=x)
        )


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
@pytest.mark.parametrize("name", ("sign_mask", "raw", "bitmap", "csr", "fp8", "bitmap_fp8", "csr_fp10"))
def test_leaky_relu_gradient(name, dtype):
    for seed, size in enumerate(SIZES):
        x = values(dtype, (size,), seed)
        dy = gradients(dtype, (size,), seed)
        stored, _ = ops.stash_encode(x=x, encoding=name, keep_nonzero=True)
        for alpha in (0.2, 0.3, 1e-3, 1.0, 0.0, -0.5, 1.5, -300.0, 65504.0):
            dx = ops.stash_leaky_relu_grad(gradients=dy, stored=stored, encoding=name, alpha=alpha)
            assert_same(dx, tf.raw_ops.LeakyReluGrad(gradients=dy, features=x, alpha=alpha))


def test_range_mask_with_other_bounds():
    x = tf.constant(EDGES, tf.float32)
    stored, _ = ops.stash_encode(x=x, encoding="range_mask", lower=-1, upper=0.75)
    passed = ops.stash_relu6_grad(gradients=tf.ones_like(x), stored=stored)
    np.testing.assert_array_equal(passed.numpy() == 1, (x.numpy() > -1) & (x.numpy() < 0.75))


def test_gradients_of_shaped_tensors_and_shared_buffers():
    """The gradient may be written over its input, but not where somebody else reads that."""
    x = values(tf.float32, (3, 5, 7, 11))

    @tf.function
    def both(dy):
        stored, _ = ops.stash_encode(x=x, encoding="bitmap")
        scaled = dy * 2
        once = ops.stash_relu_grad(gradients=scaled, stored=stored, encoding="bitmap")
        return once, scaled + 0

    dy = gradients(tf.float32, x.shape, 0)
    dx, scaled = both(dy)
    assert_same(dx, tf.raw_ops.ReluGrad(gradients=dy * 2, features=x))
    assert_same(scaled, dy * 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_dropout(dtype):
    def scaled(numbers, kept, scale):
        """Products of 32 bits, rounded to the type; infinite where it has no number as large."""
        with np.errstate(all="ignore"):
            wide = numbers.numpy().astype(np.float32)
            return np.where(kept, wide * scale, np.float32(0)).astype(dtype.as_numpy_dtype)

    for size in SIZES:
        x = tf.cast(np.random.default_rng(size).random(size) + 1, dtype)
        for rate in (0.0, 0.25, 0.5, 0.9):
            y, stored = ops.stash_dropout(x=x, seed=[7, 3], rate=rate)
            kept = y.numpy() != 0
            scale = np.float32(1 / (1 - np.float64(np.float32(rate))))
            assert_bits(y, scaled(x, kept, scale))
            mask, _ = ops.stash_encode(x=kept, encoding="sign_mask")
            assert_bits(stored, mask)
            dy = gradients(dtype, (size,), 1)
            assert_same(ops.stash_dropout_grad(gradients=dy, stored=stored, rate=rate), scaled(dy, kept, scale))
            assert rate > 0 or kept.all()
    again, _ = ops.stash_dropout(x=x, seed=[7, 3], rate=0.9)
    assert_bits(again, y)
    wide, _ = ops.stash_dropout(x=tf.cast(x, tf.float32), seed=[7, 3], rate=0.9)
    assert np.array_equal(wide.numpy() != 0, kept)
    for seed in ([7, 4], [8, 3], [7 + 2**40, 3], [7, 3 + 2**40]):
        other, _ = ops.stash_dropout(x=x, seed=seed, rate=0.9)
        assert not np.array_equal(other, y)
    assert abs(np.mean(kept) - 0.1) < 0.02


def test_dropout_example_of_the_format():
    y, stored = ops.stash_dropout(x=tf.ones(20), seed=[0, 0], rate=0.5)
    assert stored.numpy().tobytes() == bytes.fromhex("5e500f") + bytes(13)
    assert y.numpy()[0] == 0 and y.numpy()[1] == 2


def test_swap_keeps_tensors():
    for dtype in (*FLOATS, tf.bool, tf.uint8):
        x = tf.cast(values(tf.float32, (3, 70), edges=()), dtype)
        y = ops.stash_swap_in(host=ops.stash_swap_out(x=x))
        np.testing.assert_array_equal(y, x)


def test_shapes_inside_functions():
    @tf.function(input_signature=[tf.TensorSpec((None, 5, 3), tf.float32)])
    def step(x):
        stored, dims = ops.stash_encode(x=x, encoding="bitmap")
        y = ops.stash_decode(stored=stored, dims=dims, encoding="bitmap")
        dx = ops.stash_relu_grad(gradients=x, stored=stored, encoding="bitmap")
        shapes.append((stored.shape.as_list(), dims.shape.as_list(), y.shape.as_list(), dx.shape.as_list()))
        fixed = ops.stash_decode(stored=stored, dims=tf.constant([2, 15], tf.int64), encoding="bitmap")
        shapes.append(fixed.shape.as_list())
        dropped, mask = ops.stash_dropout(x=x, seed=[1, 2], rate=0.5)
        shapes.append((dropped.shape.as_list(), mask.shape.as_list()))
        shapes.append(ops.stash_swap_in(host=ops.stash_swap_out(x=x)).shape.as_list())
        return y, fixed

    shapes = []
    x = values(tf.float32, (2, 5, 3))
    y, fixed = step(x)
    assert_bits(y, x)
    assert_bits(fixed, tf.reshape(x, (2, 15)))
    assert shapes == [
        ([None], [3], [None, None, None], [None, 5, 3]),
        [2, 15],
        ([None, 5, 3], [None]),
        [None, 5, 3],
    ]


def test_counters():
    extension.stash_tf_reset_counters()
    assert counters() == []
    x = tf.nn.relu(values(tf.float32, (4, 1000), edges=()))
    nonzeros = int(np.count_nonzero(x))
    odd = 'a/"b"\\:0\n'
    for _ in range(3):
        stored, dims = ops.stash_encode(x=x, encoding="bitmap", tensor="r:0")
    mask, _ = ops.stash_encode(x=x, encoding="sign_mask", tensor=odd)
    ops.stash_decode(stored=stored, dims=dims, encoding="bitmap", tensor="r:0")
    found = {(c["op"], c["tensor"]): c for c in counters()}
    assert set(found) == {("StashEncode", "r:0"), ("StashEncode", odd), ("StashDecode", "r:0")}
    size = int(stored.shape[0])
    encoded = found["StashEncode", "r:0"]
    assert encoded.pop("nanoseconds") > 0
    assert encoded == {
        "op": "StashEncode",
        "tensor": "r:0",
        "executions": 3,
        "elements": 12000,
        "most_elements": 4000,
        "dense_bytes": 48000,
        "stored_bytes": 3 * size,
        "nonzeros": 3 * nonzeros,
        "batch": 4,
        "rounding": {},
        "misfits": [],
    }
    assert found["StashEncode", odd]["nonzeros"] is None
    assert found["StashEncode", odd]["stored_bytes"] == mask.shape[0]
    assert found["StashDecode", "r:0"]["executions"] == 1
    extension.stash_tf_reset_counters()
    assert counters() == []
    ops.stash_encode(x=x, encoding="bitmap", tensor="r:0")
    assert [c["executions"] for c in counters()] == [1]


def relative_error(values, back):
    """Of all values or on the mean of their rows, whichever is larger; a row is the last dimension, or several of them
    where that is three values or less."""
    last = values.shape[-1] if len(values.shape) else 1
    row = min(1024, last) if last >= 4 else 16 // last * last
    exact = np.asarray(tf.cast(values, tf.float64)).ravel()
    squares = np.stack([exact, np.asarray(tf.cast(back, tf.float64)).ravel() - exact]) ** 2
    squares = np.pad(squares, ((0, 0), (0, -exact.size % row))).reshape(2, -1, row).sum(-1)
    exact, lost = squares[:, squares[0] > 0]
    return max(lost.sum() / exact.sum(), np.minimum(lost / exact, 1).mean()) ** 0.5


SHAPES = [(), *[(size,) for size in (1, 2, 15, 1023, 1024, 1025, 1039, 2047, 65536, 100003)], (3000, 1), (31, 5, 7),
          (9, 1000), (70, 16), (5, 2000), (500, 3), (500, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)) or "scalar")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_encoders_look_at_their_values(shape, dtype):
    x = np.random.default_rng(len(shape)).uniform(0.5, 8, shape).astype("float32")
    for encoding, scale, suits in (("fp8", 1, True), ("bitmap_fp8", 1, True), ("fp8", 1e-4, False),
                                   ("fp10", 1e-4, True), ("csr_fp8", 7e3, False)):
        extension.stash_tf_reset_counters()
        values = tf.cast(x * scale, dtype)
        name = f"{encoding} {scale} {dtype} {shape}"  # a kernel of its own
        stored, dims = ops.stash_encode(x=values, encoding=encoding, tensor=name)
        (found,) = counters()
        (form,) = found["rounding"]
        assert encoding.endswith(form) and found["misfits"] == ([] if suits else [form])
        assert found["rounding"][form] <= 0.05 if suits else found["rounding"][form] > 0.1
        back = ops.stash_decode(stored=stored, dims=dims, encoding=encoding, T=dtype)
        assert found["rounding"][form] == pytest.approx(relative_error(values, back), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("shape", [(200, 64), (1000, 20), (100, 3, 3, 16), (40, 3000), (2000, 8)])
def test_small_rows_count_as_large_ones_do(shape):
    x = np.random.default_rng(1).uniform(0.5, 8, shape).astype("float32")
    x[1::20] *= 1e-5
    extension.stash_tf_reset_counters()
    stored, dims = ops.stash_encode(x=x, encoding="fp8", tensor=f"small rows {shape}")
    (found,) = counters()
    back = ops.stash_decode(stored=stored, dims=dims, encoding="fp8", T="float32")
    assert np.linalg.norm(back - x) < 0.05 * np.linalg.norm(x) and found["misfits"] == ["fp8"]
    assert found["rounding"]["fp8"] == pytest.approx(relative_error(x, back), rel=1e-6)


def test_what_a_sample_cannot_tell():
    nothing = {"zeros": np.zeros(5000), "empty": np.zeros(0), "not finite": np.full(5000, np.inf),
               "no number": np.full(5000, np.nan)}
    for name, numbers in nothing.items():
        extension.stash_tf_reset_counters()
        ops.stash_encode(x=tf.constant(numbers, tf.float32), encoding="fp8", tensor=name)
        assert [(c["rounding"], c["misfits"]) for c in counters()] == [({}, [])], name
    extension.stash_tf_reset_counters()
    for encoding in ("raw", "sign_mask", "bitmap", "csr"):
        ops.stash_encode(x=tf.ones(5000), encoding=encoding, tensor=encoding)
    assert [c["rounding"] for c in counters()] == [{}] * 4


def test_overflows_to_infinity_do_not_suit():
    extension.stash_tf_reset_counters()
    ops.stash_encode(x=tf.fill([5000], 1e6), encoding="fp16", tensor="overflow:0")
    (found,) = counters()
    assert found["misfits"] == ["fp16"] and 0.9 < found["rounding"]["fp16"] <= 1


def test_values_are_looked_at_now_and_then():
    good, bad = tf.ones(5000), tf.fill([5000], 1e-5)
    one = tf.concat([tf.ones(4321), [1e9], tf.ones(5000)], 0)  # only a look at all of them is sure to find it

    @tf.function(reduce_retracing=True)
    def encode(x):
        return ops.stash_encode(x=x, encoding="fp8", tensor="r:0")

    def first_misfit(inputs):
        extension.stash_tf_reset_counters()
        for k, x in enumerate(inputs):
            encode(x)
            if counters()[0]["misfits"]:
                return k
        return None

    before = extension.stash_tf_surprises()
    # Kernels from before a reset begin anew, and what was seen is not forgotten before the next.
    assert first_misfit([good] * 100) is None
    assert first_misfit([bad]) == 0
    assert first_misfit([good, bad]) == 1
    assert extension.stash_tf_surprises() >= before + 2
    later = first_misfit([good] * 6 + [bad] * 60)
    assert 6 <= later < 60
    encode(good)
    assert counters()[0]["misfits"] == ["fp8"]
    assert first_misfit([one]) == 0
    assert first_misfit([good] + [one] * 128) <= 128


def test_failed_executions_are_not_counted():
    extension.stash_tf_reset_counters()
    with pytest.raises(tf.errors.InvalidArgumentError):
        ops.stash_decode(stored=tf.zeros(3, tf.uint8), dims=[5], encoding="raw")
    assert counters() == []


def test_counters_are_exact_in_many_threads():
    extension.stash_tf_reset_counters()

    @tf.function
    def many(x):
        return [ops.stash_encode(x=x + i, encoding="sign_mask", tensor="many")[0] for i in range(50)]

    for _ in range(20):
        many(tf.ones((3, 100)))
    (counter,) = counters()
    assert counter["executions"] == 1000 and counter["elements"] == 300_000 and counter["batch"] == 3


@pytest.mark.parametrize("encoding", ("fp16", "bf16", "fp10", "fp8", "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1", "sign_mask"))
def test_bytes_tell_a_dimension(encoding):
    """Also of nothing, and where the unknown dimension is the last one."""
    for shape in ((0, 128), (1, 128), (7, 16, 8), (33, 129), (1000, 256)):
        stored, dims = ops.stash_encode(x=tf.ones(shape), encoding=encoding)
        for known in ([-1, *shape[1:]], [*shape]):
            found = ops.stash_dims(stored=stored, encoding=encoding, known=known, T=tf.float32)
            assert found.dtype == tf.int64 and found.numpy().tolist() == dims.numpy().tolist() == list(shape)
    stored, _ = ops.stash_encode(x=tf.ones((128, 5)), encoding=encoding)
    assert ops.stash_dims(stored=stored, encoding=encoding, known=[128, -1], T=tf.float32).numpy().tolist() == [128, 5]


def test_every_op_has_kernels_for_both_devices():
    from tensorflow.python.framework import kernels

    from check_gpu_kernels import OPS

    for name in OPS:
        found = kernels.get_registered_kernels_for_op(name).kernel
        assert sorted(kernel.device_type for kernel in found) == ["CPU", "GPU"], name


def test_versions():
    assert extension.stash_tf_built_for().decode() == tf.__version__
    assert extension.stash_tf_core_version().decode().count(".") == 2


THREADS = """
import concurrent.futures, hashlib, sys
sys.path.insert(0, sys.argv[3])
from op_cases import *
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
x = values(tf.float32, (16, 64, 64, 33), 1, 0.5, edges=())
dy = values(tf.float32, x.shape, 2, edges=())

def all_ops():
    digest = hashlib.sha256()
    add = lambda *tensors: [digest.update(t.numpy().tobytes()) for t in tensors]
    for name in ("raw", "sign_mask", "bitmap", "csr", "fp16", "fp10", "fp8", "mxfp4_e2m1", "csr_fp8"):
        stored, dims = ops.stash_encode(x=x, encoding=name, keep_nonzero=True)
        add(stored, ops.stash_relu_grad(gradients=dy, stored=stored, encoding=name))
        if name != "sign_mask":
            add(ops.stash_decode(stored=stored, dims=dims, encoding=name))
    for joint in (False, True):
        shape = dict(ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME", joint_relu=joint)
        y, stored, dims = ops.stash_max_pool(x=tf.nn.relu(x), **shape)
        add(y, stored, ops.stash_max_pool_grad(gradients=y * 0.1, stored=stored, dims=dims, **shape))
    y, stored = ops.stash_dropout(x=x, seed=[1, 2], rate=0.5)
    add(y, stored, ops.stash_dropout_grad(gradients=dy, stored=stored, rate=0.5))
    return digest.hexdigest()

callers = int(sys.argv[2])
with concurrent.futures.ThreadPoolExecutor(callers) as pool:
    print(*sorted(set(pool.map(lambda _: all_ops(), range(callers)))))
"""


def test_threads_change_nothing(tmp_path):
    script = tmp_path / "threads.py"
    script.write_text(THREADS, encoding="utf-8")
    folder = str(op_cases.pathlib.Path(op_cases.__file__).parent)
    digests = set()
    for threads, callers in ((1, 1), (4, 1), (3, 5)):  # with more callers than cores, helpers come late
        finished = forks.run(script, threads, callers, folder, timeout=600)
        assert finished.returncode == 0, finished.stderr[-2000:]
        digests.add(finished.stdout)
    assert len(digests) == 1 and len(digests.pop().split()) == 1
