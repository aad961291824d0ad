# SPDX-License-Identifier: Apache-2.0
"""Steps with one layer or function each between convolutions."""

from collections.abc import Callable
from typing import Any

from step_parts import BATCH, SIZE, STEPS, L, conv, fitted, keras, network, np, tf

MIDDLES: dict[str, Callable[[Any], Any]] = {
    "separable": lambda x: L.SeparableConv2D(8, 3, padding="same", activation="relu")(x),
    "depthwise": lambda x: L.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="relu")(x),
    "grouped": lambda x: L.Conv2D(8, 3, padding="same", groups=4, activation="relu")(x),
    "dilated": lambda x: L.Conv2D(8, 3, padding="same", dilation_rate=2, activation="relu")(x),
    "strided_valid": lambda x: L.Conv2D(8, 3, strides=2, padding="valid", activation="relu")(x),
    "no_bias": lambda x: L.Conv2D(8, 3, padding="same", use_bias=False, activation="relu")(x),
    "one_by_one": lambda x: L.Conv2D(8, 1, activation="relu")(x),
    "transposed": lambda x: L.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu")(x),
    "upsampling_bilinear": lambda x: L.UpSampling2D(2, interpolation="bilinear")(x),
    "upsampling_nearest": lambda x: L.UpSampling2D(2)(x),
    "resizing": lambda x: L.Resizing(17, 19)(x),
    "padding": lambda x: L.ZeroPadding2D(2)(x),
    "cropping": lambda x: L.Cropping2D(3)(x),
    "layer_norm": lambda x: L.LayerNormalization()(x),
    "group_norm": lambda x: L.GroupNormalization(4)(x),
    "unit_norm": lambda x: L.UnitNormalization()(x),
    "batch_norm": lambda x: L.ReLU()(L.BatchNormalization()(x)),
    "batch_norm_off": lambda x: L.ReLU()(L.BatchNormalization()(x, training=False)),
    "batch_norm_raw": lambda x: tf_batch_norm(x),
    "lrn": lambda x: Function(lambda x: tf.nn.local_response_normalization(x, 2))(x),
    "dropout": lambda x: L.Dropout(0.3)(x),
    "spatial_dropout": lambda x: L.SpatialDropout2D(0.3)(x),
    "gaussian_noise": lambda x: L.GaussianNoise(0.3)(x),
    "gaussian_dropout": lambda x: L.GaussianDropout(0.3)(x),
    "alpha_dropout": lambda x: L.AlphaDropout(0.3)(x),
    "prelu": lambda x: L.PReLU(shared_axes=[1, 2])(conv(x, activation=None)),
    "relu6": lambda x: L.ReLU(max_value=6)(conv(x, activation=None)),
    "relu6_flatten": lambda x: L.Reshape((4, 4, 4))(L.Dense(64)(L.Flatten()(L.ReLU(6)(conv(x, activation=None))))),
    "relu6_dense_on_maps": lambda x: L.Dense(8)(L.ReLU(max_value=6)(conv(x, activation=None))),
    "relu6_reshape": lambda x: conv(L.Reshape((8, -1, 8))(L.ReLU(max_value=6)(conv(x, activation=None)))),
    "relu6_slope": lambda x: L.ReLU(max_value=6, negative_slope=0.1)(conv(x, activation=None)),
    "relu_threshold": lambda x: L.ReLU(threshold=0.2)(conv(x, activation=None)),
    "relu_of_relu": lambda x: L.ReLU()(L.ReLU()(conv(x, activation=None))),
    "leaky_relu": lambda x: L.LeakyReLU(0.3)(conv(x, activation=None)),
    "softmax": lambda x: L.Softmax()(conv(x, activation=None)),
    **{name: (lambda kind: lambda x: L.Activation(kind)(conv(x, activation=None)))(name)
       for name in ("elu", "selu", "gelu", "silu", "mish", "sigmoid", "tanh", "softplus", "softsign", "exponential",
                    "hard_sigmoid", "hard_silu", "log_softmax", "relu", "celu", "hard_tanh", "squareplus",
                    "sparse_plus", "tanh_shrink", "hard_shrink")},
    "gelu_tanh": lambda x: Function(lambda x: tf.nn.gelu(x, approximate=True))(conv(x, activation=None)),
    "crelu": lambda x: Function(tf.nn.crelu)(conv(x, activation=None)),
    "max_pool_same": lambda x: L.MaxPooling2D(3, strides=2, padding="same")(x),
    "max_pool_overlap": lambda x: L.MaxPooling2D(3, strides=1, padding="valid")(x),
    "max_pool_twice": lambda x: L.MaxPooling2D(2)(L.MaxPooling2D(2)(x)),
    "max_pool_two_readers": lambda x: L.Concatenate()([L.MaxPooling2D(2)(x), L.MaxPooling2D(2)(x)]),
    "max_pool_and_skip": lambda x: L.Concatenate()([L.UpSampling2D(2)(L.MaxPooling2D(2)(x)), x]),
    "max_pool_of_sum": lambda x: L.MaxPooling2D(2)(x + conv(x)),
    "max_pool_large": lambda x: L.MaxPooling2D(8)(x),
    "max_pool_one": lambda x: L.MaxPooling2D(1)(x),
    "max_pool_no_relu": lambda x: L.MaxPooling2D(2)(conv(x, activation=None)),
    "average_pool": lambda x: L.AveragePooling2D(3, strides=2, padding="same")(x),
    "global_max": lambda x: x * L.GlobalMaxPooling2D(keepdims=True)(x),
    "squeeze_excite": lambda x: x * conv(L.GlobalAveragePooling2D(keepdims=True)(x), kernel=1, activation="sigmoid"),
    "add_itself": lambda x: x + x,
    "multiply_itself": lambda x: x * x,
    "concatenate_itself": lambda x: L.Concatenate()([x, x]),
    "residual": lambda x: L.ReLU()(conv(conv(x), activation=None) + x),
    "dense_block": lambda x: (lambda y: L.Concatenate()([x, y, conv(L.Concatenate()([x, y]))]))(conv(x)),
    "activity_regularizer": lambda x: conv(x, activity_regularizer="l2"),
    "activity_l1": lambda x: conv(x, activity_regularizer="l1"),
    "kernel_regularizer": lambda x: conv(x, kernel_regularizer="l2"),
    "permute": lambda x: L.Permute((3, 1, 2))(x),
    "reshape": lambda x: L.Reshape((-1, 16, 1))(x),
    "flatten_dense": lambda x: L.Reshape((4, 4, 4))(L.Dense(64, activation="relu")(L.Flatten()(x))),
    "dense_on_maps": lambda x: L.Dense(8, activation="gelu")(x),
    "einsum_dense": lambda x: L.EinsumDense("bhwc,cd->bhwd", (SIZE, SIZE, 8), activation="relu")(x),
    "time_distributed": lambda x: L.TimeDistributed(L.Conv1D(8, 3, padding="same", activation="relu"))(x),
    "abs": lambda x: keras.ops.abs(x),
    "clip": lambda x: keras.ops.clip(x, 0.1, 0.7),
    "maximum": lambda x: keras.ops.maximum(x, conv(x)),
    "minimum": lambda x: keras.ops.minimum(x, conv(x)),
    "where_positive": lambda x: keras.ops.where(x > 0.2, x, 0.5 * x),
    "sqrt": lambda x: keras.ops.sqrt(x + 1),
    "log": lambda x: keras.ops.log(x + 1),
    "divide": lambda x: x / (1 + conv(x)),
    "power": lambda x: keras.ops.power(x + 1, 1.7),
    "rsqrt": lambda x: keras.ops.rsqrt(x + 1),
    "sin_cos": lambda x: keras.ops.sin(x) * keras.ops.cos(x),
    "reduce_max": lambda x: x - keras.ops.max(x, axis=-1, keepdims=True),
    "logsumexp": lambda x: x - keras.ops.logsumexp(x, axis=-1, keepdims=True),
    "cumsum": lambda x: keras.ops.cumsum(x, axis=1) * 0.1,
    "sort": lambda x: keras.ops.sort(x, axis=-1),
    "top_k": lambda x: keras.ops.top_k(x, 4)[0],
    "gather_argmax": lambda x: keras.ops.take_along_axis(x, keras.ops.argsort(x, axis=-1), axis=-1),
    "one_hot_argmax": lambda x: x * keras.ops.one_hot(keras.ops.argmax(x, axis=-1), 8),
    "round_straight": lambda x: x + keras.ops.stop_gradient(keras.ops.round(x * 4) / 4 - x),
    "stop_gradient": lambda x: conv(keras.ops.stop_gradient(x)) + x,
    "split": lambda x: (lambda a, b: a * keras.ops.sigmoid(b))(*keras.ops.split(x, 2, axis=-1)),
    "stack_unstack": lambda x: sum(keras.ops.unstack(keras.ops.stack([x, 2 * x, x], axis=1), axis=1)),
    "roll": lambda x: keras.ops.roll(x, 3, axis=1),
    "flip": lambda x: keras.ops.flip(x, axis=2),
    "space_to_depth": lambda x: Function(lambda x: tf.nn.space_to_depth(x, 2))(x),
    "depth_to_space": lambda x: Function(lambda x: tf.nn.depth_to_space(x, 2))(x),
    "mirror_pad": lambda x: Function(lambda x: tf.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]], "REFLECT"))(x),
    "strided_slice": lambda x: x[:, ::2, 1::2],
    "fft": lambda x: Function(lambda x: tf.math.real(tf.signal.ifft2d(tf.signal.fft2d(tf.cast(x, tf.complex64)))))(x),
    "double": lambda x: keras.ops.cast(keras.ops.cast(x, "float64") * 2, "float32"),
    "half_inside": lambda x: keras.ops.cast(keras.ops.relu(keras.ops.cast(x, "float16") * 2), "float32"),
    "bfloat_inside": lambda x: keras.ops.cast(keras.ops.tanh(keras.ops.cast(x, "bfloat16") * 2), "float32"),
    "fake_quant": lambda x: Function(lambda x: tf.quantization.fake_quant_with_min_max_args(x, 0, 2))(x),
    "check_numerics": lambda x: Function(lambda x: tf.debugging.check_numerics(x, "maps"))(x),
    "attention": lambda x: L.MultiHeadAttention(2, 4, attention_axes=(1,))(x, x),
    "device": lambda x: Function(on_device)(x),
    "function": lambda x: Function(tf.function(lambda x: tf.nn.relu(x * 2) * x))(x),
    "function_twice": lambda x: Function(twice)(x),
    "cond_always": lambda x: Function(conditional)(x),
    "cond_on_data": lambda x: Function(lambda x: conditional(x, tf.reduce_mean(x) > 0.1))(x),
    "cond_with_conv": lambda x: Convolution(conditional=True)(x),
    "while_steps": lambda x: Function(repeated)(x),
    "while_with_conv": lambda x: Convolution(loop=True)(x),
    "custom_gradient": lambda x: Function(clipped_gradient)(x),
    "custom_gradient_maps": lambda x: Function(own_swish)(x),
    "recomputed": lambda x: Function(tf.recompute_grad(lambda x: tf.nn.relu(x * 2) * tf.nn.tanh(x)))(x),
    "recomputed_conv": lambda x: Convolution(recompute=True)(x),
    "py_function": lambda x: Function(python_inside)(x),
    "print": lambda x: Function(lambda x: with_assertion(x))(x),
    "nothing_left": lambda x: L.Concatenate()([x, x[..., :0]]),
    "one_channel": lambda x: conv(conv(x, 1), 8),
    "conv_lstm": lambda x: L.ConvLSTM2D(4, 3, padding="same")(L.Reshape((4, SIZE // 4, SIZE, 8))(x)),
    "rows_lstm": lambda x: L.TimeDistributed(L.LSTM(8, return_sequences=True))(x),
}


class Function(L.Layer):
    """Any function of tensors as a layer."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, x):
        return self.function(x)

    def compute_output_spec(self, x):
        shape = tf.TensorSpec([BATCH, *x.shape[1:]], x.dtype)
        result = tf.function(lambda x: self.function(x)).get_concrete_function(shape).outputs[0]
        return keras.KerasTensor((x.shape[0], *result.shape[1:]), result.dtype.name)


class Convolution(L.Layer):
    """Two convolutions within a conditional, a loop, or recomputed."""

    def __init__(self, conditional=False, loop=False, recompute=False):
        super().__init__()
        self.conditional, self.loop, self.recompute = conditional, loop, recompute

    def build(self, shape):
        self.kernels = [self.add_weight(shape=(3, 3, shape[-1], shape[-1]), name=f"kernel{k}") for k in range(2)]

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        first, second = (tf.convert_to_tensor(kernel) for kernel in self.kernels)

        def twice(x):
            for kernel in (first, second):
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
            return x

        if self.conditional:
            return tf.cond(tf.reduce_mean(x) > -1, lambda: twice(x), lambda: x)
        if self.loop:
            return tf.while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, twice(x)), (0, x),
                                 shape_invariants=(tf.TensorShape([]), x.shape))[1]
        return tf.recompute_grad(twice)(x)


def tf_batch_norm(x):
    scale = tf.ones([8])
    return Function(lambda x: tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(x, scale, 0 * scale)[0]))(x)


def on_device(x):
    with tf.device("/CPU:0"):
        return tf.nn.relu(x * 2) * x


def twice(x):
    inner = tf.function(lambda x: tf.nn.relu(x * 2 - 1) * x)
    return tf.function(lambda x: inner(inner(x)))(x)


def conditional(x, condition=None):
    if condition is None:
        condition = tf.shape(x)[0] > 0
    return tf.cond(condition, lambda: tf.nn.relu(x * 2) * x, lambda: tf.nn.tanh(x))


def repeated(x):
    return tf.while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, tf.nn.relu(x * 2) * tf.nn.tanh(x)), (0, x))[1]


@tf.custom_gradient
def clipped_gradient(x):
    return tf.identity(x), lambda dy: tf.clip_by_value(dy, -1e-3, 1e-3)


@tf.custom_gradient
def own_swish(x):
    y = tf.sigmoid(x)
    return x * y, lambda dy: dy * (y + x * y * (1 - y)) * tf.cast(x > 0.1, x.dtype)


def python_inside(x):
    y = tf.numpy_function(lambda x: np.maximum(x, 0.1), [x], tf.float32)
    y.set_shape(x.shape)
    return x * tf.stop_gradient(y)


def with_assertion(x):
    with tf.control_dependencies([tf.debugging.assert_greater_equal(x, -1e9)]):
        return tf.nn.relu(x - 0.1)


def enter_middles():
    for name, middle in MIDDLES.items():
        def build(middle=middle):
            return fitted(network(lambda x: conv(middle(conv(conv(x))))))

        STEPS[f"middle_{name}"] = build


enter_middles()
