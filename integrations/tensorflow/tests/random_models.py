# SPDX-License-Identifier: Apache-2.0
"""Small Keras models drawn at random, each the same for its seed: what users write, put together in ways that nobody
thought of.

random_model(seed) returns a Drawn. A model is a row of blocks, each drawn from numbers of its own, so that a row from
which some are left out (`without`) is otherwise the same: that is how a failure is made small."""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
CLASSES = 7
# By the number of dimensions between batch and channels: shapes of the input, and batches.
INPUTS = {
    0: (((192,), (320,)), (256, 512)),
    1: (((48, 12), (64, 8)), (16, 32)),
    2: (((32, 32, 3), (24, 40, 3), (33, 31, 4)), (8, 12)),
    3: (((12, 12, 12, 2), (8, 14, 14, 1)), (4, 6)),
}
MOST_ELEMENTS = 1 << 15  # of a map of one sample, beyond which blocks do not let it grow
WEIGHT_OF_RANK = (1, 3, 6, 2)


@dataclasses.dataclass
class Drawn:
    model: keras.Model  # compiled
    batches: list[Any]  # (x, y) as tensors, one for each step
    steps_per_execution: int
    open_batch: bool  # the graph does not say how many samples a step has
    text: list[str]  # what it is made of, a line for each block and setting


class Dice:
    def __init__(self, *seed):
        self.numbers = np.random.default_rng(seed)

    def pick(self, *choices):
        return choices[self.numbers.integers(len(choices))]

    def chance(self, probability):
        return self.numbers.random() < probability

    def __call__(self, lowest, highest):
        return int(self.numbers.integers(lowest, highest + 1))


def rank(x):
    return len(x.shape) - 2


def sides(x):
    return x.shape[1:-1]


def channels(x):
    return x.shape[-1]


def elements(x):
    return int(np.prod(x.shape[1:]))


def layer(name, x, *arguments, **named):
    """The layer NAME1D, NAME2D or NAME3D, as x has dimensions."""
    return getattr(L, f"{name}{rank(x)}D")(*arguments, **named)


# Activations

NAMED = ("relu", "relu", "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "softplus", "softsign", "tanh",
         "sigmoid", "hard_sigmoid", "hard_silu", "mish", "celu", "squareplus", "hard_tanh", "hard_shrink",
         "soft_shrink", "tanh_shrink", "log_sigmoid", "softmax", "sparse_plus", "linear")


class Function(L.Layer):
    """A function of TensorFlow in a layer of one's own."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)

    def compute_output_spec(self, x):
        return keras.KerasTensor(tuple(self.function(tf.zeros([1, *x.shape[1:]], x.dtype)).shape), x.dtype)


@tf.custom_gradient
def half_gradient(x):
    return tf.nn.relu(x), lambda dy: dy * tf.cast(0.5 + 0.5 * tf.sign(tf.nn.relu(x)), dy.dtype)


def branch(x):
    return tf.cond(tf.reduce_mean(tf.cast(x, tf.float32)) > 0.05, lambda: tf.nn.relu(x), lambda: tf.nn.elu(x) * 2)


def moments_norm(x):
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + tf.cast(1e-2, x.dtype))


FUNCTIONS = {
    "nn.relu": tf.nn.relu,
    "nn.relu6": tf.nn.relu6,
    "nn.leaky_relu": lambda x: tf.nn.leaky_relu(x, 0.1),
    "nn.elu": tf.nn.elu,
    "nn.selu": tf.nn.selu,
    "nn.gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "nn.swish": tf.nn.swish,
    "nn.softplus": tf.nn.softplus,
    "nn.softsign": tf.nn.softsign,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "square": lambda x: tf.square(tf.tanh(x)),
    "abs": tf.abs,
    "sqrt": lambda x: tf.sqrt(tf.abs(x) + tf.cast(0.1, x.dtype)),
    "bell": lambda x: tf.exp(-x * x),
    "clip": lambda x: tf.clip_by_value(x, -0.3, 0.6),
    "where": lambda x: tf.where(x > 0.1, x, tf.tanh(x) * 0.5),
    "maximum": lambda x: tf.maximum(x, 0.25 * x),
    "rectified_square": lambda x: tf.nn.relu(x) * tf.nn.relu6(x),
    "cond": branch,
    "custom_gradient": half_gradient,
    "recompute": tf.recompute_grad(lambda x: tf.nn.relu(tf.sin(x)) + x),
    "l2_normalize": lambda x: tf.math.l2_normalize(x, axis=-1, epsilon=1e-2),
    "moments": moments_norm,
    "divide": lambda x: x / (1 + tf.abs(x)),
    "reverse": lambda x: tf.reverse(x, [1]),
    "roll": lambda x: tf.roll(x, 1, axis=1),
    "crelu": tf.nn.crelu,
    "split": lambda x: tf.concat([tf.nn.relu(part) for part in tf.split(x, [1, x.shape[-1] - 1], axis=-1)], -1),
    "gather": lambda x: tf.gather(x, np.arange(x.shape[-1])[::-1].copy(), axis=-1),
    "centre": lambda x: x - tf.reduce_mean(x, axis=-1, keepdims=True),
    "strongest": lambda x: x - tf.reduce_max(x, axis=-1, keepdims=True),
}


def activation(dice, x):
    """(text, x after an activation that is a layer)"""
    kind = dice.pick("named", "named", "layer", "lambda", "function")
    if kind == "named":
        name = dice.pick(*NAMED)
        return name, L.Activation(name)(x)
    if kind == "layer":
        made = dice.pick(
            lambda: L.ReLU(), lambda: L.ReLU(max_value=6.0), lambda: L.ReLU(max_value=1.0, negative_slope=0.1),
            lambda: L.ReLU(threshold=0.1), lambda: L.ReLU(negative_slope=0.2), lambda: L.LeakyReLU(0.3),
            lambda: L.PReLU(shared_axes=list(range(1, rank(x) + 1)) or None), lambda: L.ELU(0.7), lambda: L.Softmax(),
        )()
        settings = {key: value for key, value in made.get_config().items() if isinstance(value, float)}
        return f"{type(made).__name__} {settings}", made(x)
    name = dice.pick(*FUNCTIONS)
    made = Function(FUNCTIONS[name])
    if kind == "lambda":
        shape = made.compute_output_spec(x).shape[1:]
        made = L.Lambda(FUNCTIONS[name], output_shape=shape)
    return f"{kind} {name}", made(x)


def regularised(dice):
    """Arguments of a layer with weights, now and then."""
    if not dice.chance(0.12):
        return {}
    return dice.pick(
        {"kernel_regularizer": keras.regularizers.L2(1e-3)}, {"kernel_regularizer": keras.regularizers.L1(1e-3)},
        {"bias_regularizer": keras.regularizers.L2(1e-3)}, {"activity_regularizer": keras.regularizers.L2(1e-4)},
        {"kernel_constraint": keras.constraints.MaxNorm(2)},
    )


# Blocks: each takes dice and a map, and returns (text, map), the map of the same rank.


def dense(dice, x):
    units = dice.pick(8, 16, 24) if rank(x) else dice.pick(96, 128, 256)
    made = L.Dense(units, dice.pick(None, *NAMED[:-1]), use_bias=dice.chance(0.8), **regularised(dice))
    return f"Dense {units} {made.activation.__name__}", made(x)


def convolution(dice, x):
    if not rank(x):
        return dense(dice, x)
    kind = dice.pick("plain", "plain", "plain", "strided", "dilated", "pointwise", "depthwise", "separable",
                     "transposed")
    if kind in ("depthwise", "separable") and rank(x) == 3:
        kind = "plain"
    if kind == "transposed" and elements(x) * 4 > MOST_ELEMENTS:
        kind = "strided"
    grows = elements(x) < MOST_ELEMENTS
    filters = dice.pick(*((6, 8, 12, 16, 20) if grows else (4, 6, 8)))
    size = 1 if kind == "pointwise" else dice.pick(2, 3, 3, 3, 5)
    size = min(size, *sides(x))
    arguments = {"padding": dice.pick("same", "same", "valid"), "use_bias": dice.chance(0.75),
                 "activation": dice.pick(None, *NAMED[:-1]), **regularised(dice)}
    if kind in ("strided", "transposed"):
        arguments["strides"] = 2
    if kind == "dilated":
        arguments |= {"dilation_rate": 2, "padding": "same"}
    if kind in ("depthwise", "separable"):
        arguments = {key: value for key, value in arguments.items() if not key.startswith("kernel")}
        arguments["depth_multiplier"] = dice.pick(1, 1, 2) if elements(x) * 2 < MOST_ELEMENTS else 1
    if kind == "depthwise":
        made = layer("DepthwiseConv", x, size, **arguments)
    else:
        name = {"separable": "SeparableConv"}.get(kind, "Conv")
        maker = getattr(L, f"{name}{rank(x)}D" + ("Transpose" if kind == "transposed" else ""))
        made = maker(filters, size, **arguments)
    text = f"{kind} convolution {filters} of {size} {arguments['padding']} {made.activation.__name__}"
    return f"{text} bias {made.use_bias} {sorted(set(arguments) - {'padding', 'use_bias', 'activation'})}", made(x)


def convolution_and_more(dice, x):
    """As most networks have it: convolution, norm, activation."""
    first, x = convolution(dice, x)
    second, x = norm(dice, x)
    third, x = activation(dice, x)
    return f"{first} | {second} | {third}", x


def norm(dice, x):
    made = dice.pick(
        lambda: L.BatchNormalization(), lambda: L.BatchNormalization(), lambda: L.BatchNormalization(scale=False),
        lambda: L.LayerNormalization(), lambda: L.LayerNormalization(axis=[*range(1, len(x.shape))]),
        lambda: L.GroupNormalization(-1 if channels(x) % 2 else 2), lambda: L.UnitNormalization(),
        lambda: L.RMSNormalization(),
    )()
    return type(made).__name__, made(x)


def pooling(dice, x):
    if not rank(x) or min(sides(x)) < 4:
        return activation(dice, x)
    kind = dice.pick("Max", "Max", "Average")
    size, strides = dice.pick((2, 2), (2, 2), (3, 2), (3, 1), (2, 1), (3, 3))
    padding = dice.pick("same", "valid")
    return f"{kind}Pooling {size} {strides} {padding}", layer(f"{kind}Pooling", x, size, strides, padding)(x)


def dropout(dice, x):
    kinds = [L.Dropout, L.Dropout, L.GaussianDropout, L.GaussianNoise, L.AlphaDropout]
    if rank(x):
        kinds.append(getattr(L, f"SpatialDropout{rank(x)}D"))
    kind = dice.pick(*kinds)
    return kind.__name__, kind(dice.pick(0.1, 0.3, 0.5))(x)


def moved(dice, x):
    """Other shape, same values, or nearly."""
    if not rank(x):
        fold = 4 if channels(x) % 4 == 0 else 1
        return "Reshape and Permute", L.Flatten()(L.Permute((2, 1))(L.Reshape((fold, channels(x) // fold))(x)))
    kinds = ["pad", "permute", "repeat", "fold"]
    if min(sides(x)) > 6:
        kinds.append("crop")
    if elements(x) * 2 ** rank(x) <= MOST_ELEMENTS:
        kinds += ["up", "up"]
    kind = dice.pick(*kinds)
    if kind == "pad":
        return "ZeroPadding", layer("ZeroPadding", x, 1)(x)
    if kind == "crop":
        return "Cropping", layer("Cropping", x, 1)(x)
    if kind == "permute":
        order = (*range(rank(x), 0, -1), rank(x) + 1)
        return "Permute", L.Permute(order)(x)
    if kind == "up":
        if rank(x) == 2 and dice.chance(0.4):
            return "UpSampling bilinear", L.UpSampling2D(2, interpolation="bilinear")(x)
        return "UpSampling", layer("UpSampling", x, 2)(x)
    if kind == "fold":
        flat = L.Reshape((int(np.prod(sides(x))), channels(x)))(x)
        return "Reshape there and back", L.Reshape((*sides(x), channels(x)))(L.ReLU()(flat))
    return "flip", Function(lambda t: tf.reverse(t, [1]))(x)


def recurrent(dice, x):
    if rank(x) != 1 or x.shape[1] > 80:
        return convolution(dice, x)
    width = dice.pick(12, 16, 24)
    cell = dice.pick(L.LSTM, L.GRU, L.SimpleRNN)
    arguments = {"return_sequences": True, "unroll": x.shape[1] <= 16 and dice.chance(0.5)}
    if dice.chance(0.2):
        arguments["dropout"] = 0.2
    made = cell(width, **arguments)
    if dice.chance(0.4):
        made = L.Bidirectional(made, merge_mode=dice.pick("concat", "sum", "ave", "mul"))
    return f"{type(made).__name__} {cell.__name__} {width} {arguments}", made(x)


def attention(dice, x):
    if rank(x) not in (1, 2) or elements(x) > MOST_ELEMENTS:
        return convolution_and_more(dice, x)
    flat, shrunk = x, x
    if rank(x) == 2:
        while int(np.prod(sides(shrunk))) > 150:
            shrunk = L.AveragePooling2D(2)(shrunk)
        flat = L.Reshape((int(np.prod(sides(shrunk))), channels(x)))(shrunk)
    kind = dice.pick("MultiHead", "MultiHead", "Attention", "Additive", "GroupedQuery")
    rate = dice.pick(0.0, 0.0, 0.1)
    if kind == "MultiHead":
        y = L.MultiHeadAttention(2, 8, dropout=rate)(flat, flat, use_causal_mask=dice.chance(0.3))
    elif kind == "GroupedQuery":
        y = L.GroupQueryAttention(8, 4, 2, dropout=rate)(flat, flat)
    elif kind == "Additive" and flat.shape[1] <= 40:
        y = L.AdditiveAttention(dropout=rate)([flat, L.Dense(channels(flat))(flat)])
    else:
        kind, y = "Attention", L.Attention(dropout=rate)([flat, L.Dense(channels(flat))(flat)])
    if rank(x) == 2:
        y = L.Reshape(shrunk.shape[1:])(y)
    return f"{kind} {rate}", L.Add()([shrunk, y])


# Blocks of blocks

SIMPLE = (convolution, convolution, convolution_and_more, convolution_and_more, activation, activation, pooling, norm,
          dropout, moved, dense, recurrent, attention)


def chain(dice, x, least=1, most=3, kinds=SIMPLE):
    text = []
    for _ in range(dice(least, most)):
        line, x = dice.pick(*kinds)(dice, x)
        text.append(line)
    return " > ".join(text), x


def same_shape(dice, x, width=None):
    """A chain whose result has the shape of x, or other channels."""
    width = width or channels(x)
    name = dice.pick(*NAMED)
    if rank(x):
        first = layer("Conv", x, width, dice.pick(1, 3), padding="same", activation=name)
    else:
        first = L.Dense(width, activation=name)
    text, y = dice.pick(activation, norm, dropout)(dice, first(x))
    if channels(y) != width:  # a concatenated ReLU
        y = L.Dense(width)(y)
    return f"{name} {text}", y


def residual(dice, x):
    text, y = same_shape(dice, x)
    merged = L.Add()([x, y]) if dice.chance(0.8) else L.Subtract()([x, y])
    if dice.chance(0.5):
        after, merged = activation(dice, merged)
        text += f" | {after}"
    return f"residual ({text})", merged


def branches(dice, x):
    count = dice(2, 4)
    kind = dice.pick("Add", "Add", "Average", "Multiply", "Maximum", "Minimum", "Concatenate", "Concatenate")
    width = 6 if kind == "Concatenate" and rank(x) else channels(x)
    made = [same_shape(dice, x, width) for _ in range(count)]
    if kind in ("Multiply", "Maximum", "Minimum"):
        made = made[:2]
    maps = [y for _, y in made]
    if kind == "Concatenate" and dice.chance(0.4):
        maps.append(x)
    if kind == "Add" and dice.chance(0.2):
        maps.append(x)
    return f"{kind} of ({' ; '.join(text for text, _ in made)}; {len(maps)})", getattr(L, kind)()(maps)


def gate(dice, x):
    """Squeeze and excite, or a gate as wide as the map."""
    if rank(x) and dice.chance(0.6):
        y = layer("GlobalAveragePooling", x)(x)
        y = L.Dense(channels(x), "sigmoid")(L.Dense(4, dice.pick("relu", "silu"))(y))
        y = L.Reshape((*[1] * rank(x), channels(x)))(y)
        kind = "squeeze"
    else:
        kind = dice.pick("sigmoid", "tanh", "hard_sigmoid", "softmax")
        y = L.Dense(channels(x), kind)(x)
    return f"gate {kind}", L.Multiply()([x, y])


def shared(dice, x):
    """One layer called two or three times."""
    name = dice.pick(*NAMED)
    if rank(x):
        made = layer("Conv", x, channels(x), 3, padding="same", activation=name)
    else:
        made = L.Dense(channels(x), name)
    y = made(x)
    for _ in range(dice(1, 2)):
        between, y = dice.pick(activation, norm, dropout)(dice, y)
        if channels(y) != channels(x):
            y = L.Dense(channels(x))(y)
        y = made(y)
    if dice.chance(0.5):
        y = L.Add()([x, y])
    return f"shared {name} ({between})", y


def nested(dice, x):
    inputs = keras.Input(x.shape[1:], dtype=x.dtype)
    text, y = chain(dice, inputs)
    return f"model ({text})", keras.Model(inputs, y)(x)


def stopped(dice, x):
    text, y = same_shape(dice, x)
    y = Function(tf.stop_gradient)(y)
    return f"stopped ({text})", L.Multiply()([x, y]) if dice.chance(0.5) else L.Add()([x, y])


BLOCKS = (*SIMPLE, *[chain] * 4, residual, residual, residual, branches, branches, branches, gate, gate, shared, nested,
          stopped)


def skip(x, earlier):
    """x with a map of long ago, concatenated, where a map of that size is there."""
    for map_ in earlier:
        if map_ is not x and rank(map_) and sides(map_) == sides(x):
            return L.Concatenate()([map_, x])
    return x


# Whole models


def source(dice):
    """(text, inputs, first map, batch)"""
    rank_ = int(dice.numbers.choice(4, p=np.array(WEIGHT_OF_RANK) / sum(WEIGHT_OF_RANK)))
    shapes, batches = INPUTS[rank_]
    shape, batch = dice.pick(*shapes), dice.pick(*batches)
    if rank_ == 1 and dice.chance(0.4):
        steps = dice.pick(16, 40)
        inputs = keras.Input((steps,), dtype="int32")
        return f"{steps} tokens, batch {batch}", [inputs], L.Embedding(50, 24)(inputs), batch
    inputs = [keras.Input(shape)]
    x = inputs[0]
    text = f"input {shape}, batch {batch}"
    second = dice.pick("none", "none", "none", "map", "vector")
    if second == "map":
        inputs.append(keras.Input(shape))
        x = L.Concatenate()(inputs)
    if second == "vector" and rank_:
        inputs.append(keras.Input((5,)))
        x = layer("Conv", x, 8, 3, padding="same")(x)
        y = L.Reshape((*[1] * rank_, 8))(L.Dense(8)(inputs[1]))
        x = L.Multiply()([x, y]) if dice.chance(0.5) else L.Add()([x, y])
    return f"{text}, second {second}", inputs, x, batch


HEADS = ("classes", "classes", "classes", "probabilities", "values", "absolute", "huber", "map", "binary")


def head(dice, x):
    """(text, output, loss, maker of targets)"""
    kind = dice.pick(*HEADS)
    if kind == "map" and rank(x) in (1, 2):
        y = layer("Conv", x, 3, 1, dtype="float32")(x)
        if dice.chance(0.5):
            def targets(numbers, size):
                return numbers.integers(0, 3, (size, *sides(y))).astype("int32")
            return "classes of pixels", y, keras.losses.SparseCategoricalCrossentropy(from_logits=True), targets
        return "map of values", y, "mse", lambda numbers, size: numbers.random((size, *y.shape[1:]), dtype="float32")
    if rank(x):
        small = elements(x) <= 4096
        how = dice.pick("GlobalAveragePooling", "GlobalAveragePooling", "GlobalMaxPooling", *["Flatten"] * small)
        x = L.Flatten()(x) if how == "Flatten" else layer(how, x)(x)
    else:
        how = ""
    if dice.chance(0.3):
        x = L.Dropout(0.2)(L.Dense(32, dice.pick("relu", "gelu", "tanh"))(x))
    text = f"{how} {kind}"
    if kind in ("classes", "map"):
        y = L.Dense(CLASSES, dtype="float32")(x)
        return text, y, keras.losses.SparseCategoricalCrossentropy(from_logits=True), classes
    if kind == "probabilities":
        return text, L.Dense(CLASSES, "softmax", dtype="float32")(x), "sparse_categorical_crossentropy", classes
    if kind == "binary":
        y = L.Dense(3, "sigmoid", dtype="float32")(x)
        return text, y, "binary_crossentropy", lambda numbers, size: numbers.integers(0, 2, (size, 3)).astype("float32")
    loss = {"values": "mse", "absolute": "mae", "huber": "huber"}[kind]
    return (text, L.Dense(4, dtype="float32")(x), loss,
            lambda numbers, size: numbers.standard_normal((size, 4)).astype("float32"))


def classes(numbers, size):
    return numbers.integers(0, CLASSES, size).astype("int32")


# Without Nadam: a product that it keeps is none of its variables, so it cannot begin again.
OPTIMIZERS = {
    "SGD": lambda **named: keras.optimizers.SGD(0.01, **named),
    "momentum": lambda **named: keras.optimizers.SGD(0.005, momentum=0.9, **named),
    "nesterov": lambda **named: keras.optimizers.SGD(0.005, momentum=0.9, nesterov=True, **named),
    **{name: functools.partial(getattr(keras.optimizers, name), 0.001)
       for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Ftrl", "Lion", "Lamb")},
    "Adafactor": lambda **named: keras.optimizers.Adafactor(0.001, **named),
    "amsgrad": lambda **named: keras.optimizers.Adam(0.001, amsgrad=True, **named),
}


def optimizer(dice):
    name = dice.pick("SGD", "SGD", "Adam", *OPTIMIZERS)
    named = dice.pick(*[{}] * 6, {"clipnorm": 0.5}, {"clipvalue": 0.05}, {"global_clipnorm": 1.0}, {"use_ema": True},
                      {"weight_decay": 0.01}, {"gradient_accumulation_steps": 2})
    return f"{name} {named}", OPTIMIZERS[name](**named)


class OwnStep(keras.Model):
    """The step that books show: tape, clipping, apply."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 2.0)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self._loss_tracker.update_state(loss)
        return self.compute_metrics(x, y, predicted)


def random_model(seed, steps, without=()):
    """The model of a seed, with data for so many executions of its training function."""
    dice = Dice(29, seed)
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    mixed = "float32" if dice.chance(0.85) else dice.pick("mixed_float16", "mixed_bfloat16")
    keras.config.set_dtype_policy(mixed)
    try:
        return _random_model(dice, seed, steps, without, mixed)
    finally:
        keras.config.set_dtype_policy("float32")


def _random_model(dice, seed, steps, without, mixed):
    first, inputs, x, batch = source(dice)
    text = [first + ("" if mixed == "float32" else f", {mixed}")]
    earlier, outputs, losses, makers = [x], [], [], []
    for index in range(dice(3, 7)):
        own = Dice(29, seed, index)
        if index in without:
            continue
        line, x = own.pick(*BLOCKS)(own, x)
        while elements(x) > 2 * MOST_ELEMENTS:
            x = layer("AveragePooling", x, 2)(x) if rank(x) else L.Dense(64)(x)
            line += " (pooled)"
        if own.chance(0.15):
            line, x = f"{line} with skip", skip(x, earlier)
        earlier.append(x)
        text.append(f"{index}: {line} -> {x.shape[1:]}")
    ends = [x] if dice.chance(0.85) else [x, earlier[len(earlier) // 2]]
    for end in ends:
        line, output, loss, maker = head(dice, end)
        text.append(f"head: {line}")
        outputs.append(output)
        losses.append(loss)
        makers.append(maker)

    line, chosen = optimizer(dice)
    if mixed == "mixed_float16":
        chosen = keras.optimizers.LossScaleOptimizer(chosen, initial_scale=256.0)
    model = (OwnStep if dice.chance(0.2) else keras.Model)(inputs, outputs)
    many = dice.pick(*[1] * 7, 2)
    weights = [1.0, 0.3] if len(losses) > 1 else None
    # Keras compiles for XLA by itself only on GPUs.
    model.compile(chosen, losses, loss_weights=weights, steps_per_execution=many, jit_compile=False,
                  metrics=["accuracy"] if dice.chance(0.2) and len(losses) == 1 else None)
    chosen.build(model.trainable_variables)
    open_batch = dice.chance(0.4)
    text.append(f"{line}, {type(model).__name__}, {many} steps per execution, batch {'open' if open_batch else 'known'}")

    numbers = np.random.default_rng((31, seed))

    def sample(one):
        if one.dtype == "int32":
            return numbers.integers(0, 50, (batch, *one.shape[1:])).astype("int32")
        return (numbers.standard_normal((batch, *one.shape[1:])) * 0.7).astype("float32")

    def structured(values):
        return tf.constant(values[0]) if len(values) == 1 else tuple(tf.constant(value) for value in values)

    batches = [(structured([sample(one) for one in inputs]), structured([make(numbers, batch) for make in makers]))
               for _ in range(steps * many)]
    return Drawn(model, batches, many, open_batch, text)
