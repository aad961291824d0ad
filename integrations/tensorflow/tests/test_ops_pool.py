# SPDX-License-Identifier: Apache-2.0
"""Max pooling that keeps the argmaxes, against TensorFlow's."""

import numpy as np
import pytest

from op_cases import EXACT, FLOATS, assert_bits, assert_same, ops, tf, values

# Windows and strides of height and width.
WINDOWS = (
    ((2, 2), (2, 2)),
    ((3, 3), (2, 2)),
    ((3, 3), (1, 1)),
    ((1, 1), (1, 1)),
    ((1, 4), (3, 2)),
    ((5, 3), (2, 3)),
    ((2, 2), (3, 3)),
    ((7, 7), (3, 3)),
    ((16, 16), (4, 4)),
)
SPACES = ((1, 1), (2, 3), (5, 7), (9, 8), (17, 16))


def ids(v):
    return getattr(v, "name", None) or str(v)


def attributes(window, strides, padding, **more):
    return {"ksize": [1, *window, 1], "strides": [1, *strides, 1], "padding": padding, **more}


def fits(window, space, padding):
    return padding == "SAME" or all(w <= s for w, s in zip(window, space))


def assert_gradient(got, expected, overlap, exact=EXACT):
    if not overlap:
        np.testing.assert_array_equal(got, expected)
        return
    if exact and got.dtype == tf.float32:
        assert_bits(got, expected)
        return
    # Of 16 bits TensorFlow rounds every sum, ours rounds once.
    tolerance = {tf.float32: 1e-5, tf.float16: 4e-3, tf.bfloat16: 3e-2}[got.dtype]
    np.testing.assert_allclose(np.float32(got), np.float32(expected), rtol=tolerance, atol=8 * tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
@pytest.mark.parametrize("padding", ("SAME", "VALID"))
@pytest.mark.parametrize("window,strides", WINDOWS, ids=ids)
def test_against_tensorflow(window, strides, padding, dtype):
    for seed, (space, channels, batch) in enumerate(
        (s, c, b) for s in SPACES for c in (1, 3, 17) for b in (1, 3)
    ):
        if not fits(window, space, padding):
            continue
        shape = attributes(window, strides, padding)
        overlap = any(w > s for w, s in zip(window, strides))
        # Many ties, and zeros of both signs.
        x = tf.cast(np.round(values(tf.float32, (batch, *space, channels), seed, edges=()) * 2) / 2, dtype)
        y, stored, dims = ops.stash_max_pool(x=x, **shape)
        expected = tf.raw_ops.MaxPool(input=x, **shape)
        assert_bits(y, expected)
        assert list(dims.numpy()) == list(x.shape)
        dy = values(dtype, y.shape, seed + 50, edges=())
        dx = ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, **shape)
        assert_gradient(
            dx, tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=expected, grad=dy, **shape), overlap
        )


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_not_finite(dtype):
    for channels in (1, 2, 19):
        for seed in range(10):
            x = values(dtype, (2, 9, 10, channels), seed).numpy()
            x[0, :4, :4] = np.nan
            x[1, :4, :4] = -np.inf
            x[1, 4:8, 4] = np.nan
            x = tf.constant(x)
            for window, strides in (((2, 2), (2, 2)), ((1, 1), (1, 1)), ((4, 2), (4, 2))):
                shape = attributes(window, strides, "SAME")
                y, stored, dims = ops.stash_max_pool(x=x, **shape)
                expected = tf.raw_ops.MaxPool(input=x, **shape).numpy()
                # Over nothing above it TensorFlow's own kernels give the lowest number, oneDNN's the infinity.
                if not EXACT:
                    expected[expected == -np.inf] = dtype.min
                assert_same(y, expected)
                dy = values(dtype, y.shape, seed + 50, edges=())
                dx = ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, **shape)
                plain = tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=expected, grad=dy, **shape)
                np.testing.assert_array_equal(dx, plain)


def test_explicit_padding():
    x = values(tf.float32, (2, 8, 9, 5), edges=())
    for numbers in ([0, 0, 1, 0, 2, 1, 0, 0], [0, 0, 2, 2, 0, 2, 0, 0], [0] * 8):
        shape = attributes((3, 3), (2, 2), "EXPLICIT", explicit_paddings=numbers)
        y, stored, dims = ops.stash_max_pool(x=x, **shape)
        expected = tf.raw_ops.MaxPool(input=x, **shape)
        assert_bits(y, expected)
        dy = values(tf.float32, y.shape, 1, edges=())
        dx = ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, **shape)
        assert_gradient(dx, tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=expected, grad=dy, **shape), True)


def channels_first(list_or_tensor):
    if isinstance(list_or_tensor, list):
        return [list_or_tensor[0], list_or_tensor[-1], *list_or_tensor[1:-1]]
    rank = len(list_or_tensor.shape)
    return tf.transpose(list_or_tensor, [0, rank - 1, *range(1, rank - 1)])


@pytest.mark.parametrize("joint", (False, True), ids=("plain", "joint"))
@pytest.mark.parametrize(
    "ksize,strides,last,first",
    (([1, 3, 3, 1], [1, 2, 2, 1], "NHWC", "NCHW"), ([1, 2, 3, 2, 1], [1, 2, 1, 2, 1], "NDHWC", "NCDHW")),
    ids=ids,
)
def test_layouts_agree(ksize, strides, last, first, joint):
    x = tf.nn.relu(values(tf.float32, (2, 5, 6, 7, 3)[: len(ksize) - 1] + (4,), edges=()))
    for padding in ("SAME", "VALID"):
        results = []
        for order, turn in ((last, lambda v: v), (first, channels_first)):
            shape = {
                "ksize": turn(ksize),
                "strides": turn(strides),
                "padding": padding,
                "data_format": order,
                "joint_relu": joint,
            }
            y, stored, dims = ops.stash_max_pool(x=turn(x), **shape)
            dy = turn(values(tf.float32, results[0][0].shape if results else y.shape, 4, edges=()))
            results.append((y, ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, **shape)))
        assert_bits(channels_first(results[0][0]), results[1][0])
        assert_bits(channels_first(results[0][1]), results[1][1])


@pytest.mark.parametrize("dtype", (tf.float32, tf.bfloat16), ids=ids)
def test_three_dimensions(dtype):
    """Without ties: of equal taps TensorFlow's gradient on the CPU goes to all, ours to the first. Its sums
    over overlapping windows have another order."""
    rng = np.random.default_rng(0)
    for space in ((1, 1, 1), (2, 3, 4), (5, 4, 3)):
        count = int(np.prod(space))
        one = rng.permutation(count).astype(np.float32) - count / 2 + 0.25
        x = tf.cast(np.stack([one, one[::-1], -one]).reshape(3, *space, 1) * [1, -1], dtype)
        for window, strides in (((2, 2, 2), (2, 2, 2)), ((1, 3, 2), (1, 1, 1)), ((3, 3, 3), (2, 1, 2))):
            for padding in ("SAME", "VALID"):
                if not fits(window, space, padding):
                    continue
                shape = attributes(window, strides, padding, data_format="NDHWC")
                y, stored, dims = ops.stash_max_pool(x=x, **shape)
                expected = tf.raw_ops.MaxPool3D(input=x, **shape)
                assert_bits(y, expected)
                dy = values(dtype, y.shape, 5, edges=())
                dx = ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, **shape)
                plain = tf.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=expected, grad=dy, **shape)
                assert_gradient(dx, plain, any(w > s for w, s in zip(window, strides)), exact=False)


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
@pytest.mark.parametrize("window,strides", [w for w in WINDOWS if np.prod(w[0]) <= 15], ids=ids)
def test_joint_relu(window, strides, dtype):
    overlap = any(w > s for w, s in zip(window, strides))
    for seed, space in enumerate(SPACES):
        before = tf.cast(np.round(values(tf.float32, (2, *space, 5), seed, edges=()) * 2) / 2, dtype)
        x = tf.nn.relu(before)
        shape = attributes(window, strides, "SAME")
        y, stored, dims = ops.stash_max_pool(x=x, joint_relu=True, **shape)
        expected = tf.raw_ops.MaxPool(input=x, **shape)
        np.testing.assert_array_equal(y, expected)
        dy = values(dtype, y.shape, seed + 50, edges=())
        dx = ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, joint_relu=True, **shape)
        pooled = tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=expected, grad=dy, **shape)
        # TensorFlow's has -0 where a negative gradient does not pass the ReLU.
        assert_gradient(dx, tf.raw_ops.ReluGrad(gradients=pooled, features=x) + 0.0, overlap)


def test_joint_relu_in_three_dimensions_with_ties():
    """Ties of a ReLU's zeros get no gradient, so that TensorFlow's rule for ties does not matter."""
    x = tf.nn.relu(values(tf.float32, (2, 4, 6, 6, 3), zeros=0, edges=()) - 2)
    assert np.mean(x.numpy() == 0) > 0.5
    shape = attributes((2, 2, 2), (2, 2, 2), "VALID", data_format="NDHWC")
    y, stored, dims = ops.stash_max_pool(x=x, joint_relu=True, **shape)
    expected = tf.raw_ops.MaxPool3D(input=x, **shape)
    np.testing.assert_array_equal(y, expected)
    dy = values(tf.float32, y.shape, 5, edges=())
    dx = ops.stash_max_pool_grad(gradients=dy, stored=stored, dims=dims, joint_relu=True, **shape)
    pooled = tf.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=expected, grad=dy, **shape)
    np.testing.assert_array_equal(dx, tf.raw_ops.ReluGrad(gradients=pooled, features=x))


def test_nothing_to_pool():
    for shape_of_x, shape_of_y in (
        ((0, 4, 4, 3), (0, 3, 3, 3)),
        ((2, 4, 4, 0), (2, 3, 3, 0)),
        ((2, 1, 4, 3), (2, 0, 3, 3)),
    ):
        x = tf.ones(shape_of_x)
        shape = attributes((2, 2), (1, 1), "VALID")
        y, stored, dims = ops.stash_max_pool(x=x, **shape)
        assert y.shape == shape_of_y and stored.shape == (0,)
        dx = ops.stash_max_pool_grad(gradients=y, stored=stored, dims=dims, **shape)
        np.testing.assert_array_equal(dx, tf.zeros(shape_of_x))


def test_shapes_inside_functions():
    shapes = []

    @tf.function(input_signature=[tf.TensorSpec((None, 9, None, 3), tf.float32)])
    def step(x):
        for padding in ("SAME", "VALID"):
            shape = attributes((3, 3), (2, 2), padding)
            y, stored, dims = ops.stash_max_pool(x=x, **shape)
            dx = ops.stash_max_pool_grad(gradients=y, stored=stored, dims=dims, **shape)
            shapes.append([t.shape.as_list() for t in (y, stored, dims, dx)])
        return y

    assert step(tf.ones((2, 9, 8, 3))).shape == (2, 4, 3, 3)
    unknown = [None] * 4
    assert shapes == [[[None, 5, None, 3], [None], [4], unknown], [[None, 4, None, 3], [None], [4], unknown]]


def test_stored_size():
    for window, per_byte in (((2, 2), 4), ((3, 3), 2), ((5, 5), 1)):
        x = values(tf.float32, (3, 20, 20, 7), edges=())
        y, stored, _ = ops.stash_max_pool(x=x, **attributes(window, (2, 2), "SAME"))
        codes = int(tf.size(y))
        assert stored.shape[0] == -(-codes // (16 * per_byte)) * 16, tf
