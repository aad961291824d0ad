# SPDX-License-Identifier: Apache-2.0
"""The ops of the library, and what the tests of ops share. Import it before tensorflow."""

import ctypes
import importlib.util
import json
import os
import pathlib

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

# With oneDNN TensorFlow's own sums over overlapping windows have another order.
EXACT = os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0"


def library_path():
    named = os.environ.get("STASH_TF_LIBRARY")
    if named:
        return named
    package = importlib.util.find_spec("stash_tf").submodule_search_locations[0]
    return str(pathlib.Path(package, "libstash_tf.so"))


ops = tf.load_op_library(library_path())
extension = ctypes.CDLL(library_path())
extension.stash_tf_counters.restype = extension.stash_tf_formats.restype = ctypes.c_void_p
extension.stash_tf_free.argtypes = [ctypes.c_void_p]
extension.stash_tf_free.restype = extension.stash_tf_reset_counters.restype = None
extension.stash_tf_built_for.restype = extension.stash_tf_core_version.restype = ctypes.c_char_p


def text_of(call):
    """What a function of the extension returns as JSON."""
    text = call()
    try:
        return json.loads(ctypes.string_at(text).decode("utf-8"))
    finally:
        extension.stash_tf_free(text)


def counters():
    return text_of(extension.stash_tf_counters)


FLOATS = (tf.float32, tf.float16, tf.bfloat16)
SIZES = (0, 1, 7, 8, 9, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 4099)
SPARSE = ("bitmap", "csr")
FORMATS = tuple(row["name"] for row in text_of(extension.stash_tf_formats))
EDGES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    6.0,
    5.999,
    6.001,
    1e-30,
    1e-4,
    -1e-4,
    448.0,
    465.0,
    1e5,
    -1e5,
    3e38,
    65519.0,
    65520.0,
    2.0**-10,
    2.0**-25,
    0.5,
    2.5,
)
# TensorFlow's threads take these for zeros, the core does not.
DENORMALS = (1e-40, -1e-40)


def values(dtype, shape, seed=0, zeros=0.3, edges=EDGES):
    """Numbers of all kinds, a share of them zero."""
    rng = np.random.default_rng(seed)
    x = np.array(rng.standard_normal(shape) * 3, np.float32)
    x[rng.random(shape) < zeros] = 0
    if len(edges) and x.size:
        flat = x.reshape(-1)
        indices = rng.permutation(flat.size)[: max(1, flat.size // 4)]
        flat[indices] = np.resize(np.array(edges, np.float32), indices.size)
    return tf.cast(tf.constant(x), dtype)


def bits(tensor):
    array = np.asarray(tensor)
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[array.dtype.itemsize])


def assert_same(got, expected):
    """The same bits; of NaN only that it is one."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(bits(got)[~nan], bits(expected)[~nan])


def assert_bits(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(bits(got), bits(expected))


# From docs/format.md: exponent of the smallest normal number, mantissa bits, largest number, infinity kept.
NARROW = {
    "fp16": (-14, 10, 65504.0, True),
    "bf16": (-126, 7, float(np.uint32(0x7F7F0000).view(np.float32)), True),
    "fp10": (-14, 4, 63488.0, True),
    "fp8": (-6, 3, 448.0, False),
    "fp8_e5m2": (-14, 2, 57344.0, False),
    "mxfp8_e4m3": (-6, 3, 448.0, False),
    "mxfp8_e5m2": (-14, 2, 57344.0, False),
    "mxfp6_e2m3": (0, 3, 7.5, False),
    "mxfp6_e3m2": (-2, 2, 28.0, False),
    "mxfp4_e2m1": (0, 1, 6.0, False),
}


def round_to(name, x, keep_nonzero):
    """Doubles rounded to a format: nearest, ties to even, saturating."""
    smallest_normal, mantissa, largest, keeps_infinity = NARROW[name]
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(np.where(np.isfinite(x), x, 1))[1] - 1, smallest_normal)
        quantum = np.ldexp(1.0, exponent - mantissa)
        y = np.where(np.isfinite(x), np.clip(np.rint(x / quantum) * quantum, -largest, largest), x)
        if not keeps_infinity:
            y = np.where(np.isinf(x), np.copysign(largest, x), y)
        if keep_nonzero:
            smallest = np.ldexp(1.0, smallest_normal - mantissa)
            y = np.where((y == 0) & (x != 0), np.copysign(smallest, x), y)
    return np.copysign(y, x)


def round_groups(name, x, keep_nonzero):
    """Microscaling: 32 values share a power of two."""
    largest = NARROW[name][2]
    result = np.empty(x.size)
    for first in range(0, x.size, 32):
        group = x[first : first + 32]
        finite = np.abs(group[np.isfinite(group)])
        most = finite.max(initial=0.0)
        exponent = -127
        if most > 0:
            exponent = max(-127, int(np.frexp(most)[1]) - 1 - (int(np.frexp(largest)[1]) - 1))
        scaled = round_to(name, np.ldexp(group, -exponent), keep_nonzero)
        back = np.ldexp(scaled, exponent)
        if np.isnan(group).any() and "mxfp8" not in name:
            back = np.full(group.size, np.nan)
        result[first : first + 32] = back
    return result


def narrow(name, x, keep_nonzero):
    """What a format makes of a row of numbers, as doubles."""
    wide = np.asarray(x).astype(np.float32).astype(np.float64)
    return (round_groups if name.startswith("mx") else round_to)(name, wide, keep_nonzero)
