# SPDX-License-Identifier: Apache-2.0
"""Models whose loops keep tensors in lists: what recurrent layers of Keras make, and loops written by hand."""

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
BATCH, STEPS, FEATURES, WIDTH = 8, 12, 16, 64


class MinimalCell(L.Layer):
    """A gated cell as users write it: one gate, one candidate."""

    def __init__(self, width, **named):
        super().__init__(**named)
        self.state_size = self.output_size = width

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1] + self.state_size, 2 * self.state_size))
        super().build(shape)

    def call(self, x, states):
        gate, candidate = tf.split(tf.concat([x, states[0]], -1) @ self.w, 2, -1)
        gate = tf.sigmoid(gate)
        h = gate * states[0] + (1 - gate) * tf.nn.softplus(candidate)
        return h, [h]


class Attending(keras.Model):
    """A decoder that looks at the whole encoded sequence in each step of its loop; Luong's or Bahdanau's scores."""

    def __init__(self, additive):
        super().__init__()
        self.encoder = L.GRU(WIDTH, return_sequences=True)
        self.cell = L.LSTMCell(WIDTH)
        self.query, self.memory, self.score = L.Dense(WIDTH), L.Dense(WIDTH), L.Dense(1)
        self.additive = additive

    def build(self, shape):
        self.query.build((None, WIDTH))
        self.score.build((None, None, WIDTH))
        self.cell.build((None, FEATURES + WIDTH))
        super().build(shape)

    def call(self, x):
        encoded = self.encoder(x)
        memory = self.memory(encoded)
        h = c = tf.zeros((tf.shape(x)[0], WIDTH))
        written = tf.TensorArray(tf.float32, STEPS, element_shape=(None, WIDTH))

        def body(k, h, c, written):
            if self.additive:
                scores = self.score(tf.tanh(memory + self.query(h)[:, None]))
            else:
                scores = tf.einsum("btu,bu->bt", memory, h)[..., None]
            context = tf.reduce_sum(tf.nn.softmax(scores, 1) * encoded, 1)
            y, (h, c) = self.cell(tf.concat([x[:, k], context], -1), [h, c])
            return k + 1, h, c, written.write(k, y)

        result = tf.while_loop(lambda k, *_: k < STEPS, body, (0, h, c, written), parallel_iterations=4)
        return tf.transpose(result[3].stack(), [1, 0, 2])


def sequence(*layers, shape=None):
    return keras.Sequential([keras.Input(shape or (STEPS, FEATURES)), *layers])


def stacked(layer, **named):
    return lambda: sequence(layer(WIDTH, return_sequences=True, **named), layer(WIDTH, **named))


MODELS = {
    "lstm": stacked(L.LSTM),
    "gru": stacked(L.GRU),
    "gru_reset_before": stacked(L.GRU, reset_after=False),
    "simple_rnn": stacked(L.SimpleRNN),
    "relu_rnn": stacked(L.SimpleRNN, activation="relu"),
    "silu_lstm": stacked(L.LSTM, activation="silu", recurrent_activation="hard_sigmoid"),
    "unrolled": stacked(L.LSTM, unroll=True),
    "backwards": stacked(L.LSTM, go_backwards=True),
    "recurrent_dropout": stacked(L.LSTM, dropout=0.2, recurrent_dropout=0.2),
    "dropped_gru": stacked(L.GRU, dropout=0.3, recurrent_dropout=0.1),
    "bidirectional": lambda: sequence(L.Bidirectional(L.LSTM(WIDTH, return_sequences=True)), L.Bidirectional(L.GRU(WIDTH))),
    "masked": lambda: sequence(L.Masking(0.5), L.LSTM(WIDTH, return_sequences=True), L.GRU(WIDTH)),
    "stateful": lambda: keras.Sequential([keras.Input(batch_shape=(BATCH, STEPS, FEATURES)), L.LSTM(WIDTH, stateful=True)]),
    "own_cell": lambda: sequence(L.RNN(MinimalCell(WIDTH), return_sequences=True),
                                 L.RNN([MinimalCell(WIDTH), L.LSTMCell(WIDTH)])),
    "conv_lstm_1d": lambda: sequence(L.ConvLSTM1D(8, 3, padding="same"), L.Flatten(), shape=(6, 24, 4)),
    "conv_lstm_2d": lambda: sequence(L.ConvLSTM2D(8, 3, padding="same", return_sequences=True), L.ConvLSTM2D(4, 3), L.Flatten(),
                                     shape=(6, 12, 12, 3)),
    "pictures": lambda: sequence(L.TimeDistributed(L.Conv2D(8, 3, activation="relu")), L.TimeDistributed(L.MaxPooling2D()),
                                 L.TimeDistributed(L.Flatten()), L.LSTM(WIDTH), shape=(6, 14, 14, 3)),
    "luong": lambda: Attending(False),
    "bahdanau": lambda: Attending(True),
}
SHAPES = {"conv_lstm_1d": (6, 24, 4), "conv_lstm_2d": (6, 12, 12, 3), "pictures": (6, 14, 14, 3)}
# Nothing of what these keep takes less in another form, or their peak lies elsewhere, or there is no loop.
NOTHING_TO_GAIN = {"simple_rnn", "unrolled", "pictures"}


def inputs_of(name, batch=BATCH, seed=3):
    rng = np.random.default_rng(seed)
    return tf.constant(rng.standard_normal((batch, *SHAPES.get(name, (STEPS, FEATURES)))).astype("float32"))


def made(name):
    """(step, weights): gradient descent on the mean square of the model's output."""
    keras.utils.set_random_seed(1)
    model = MODELS[name]()
    model(inputs_of(name))
    weights = model.trainable_variables

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        found = [(w, g) for w, g in zip(weights, tape.gradient(loss, weights), strict=True) if g is not None]
        for w, g in found:
            w.assign_sub(0.1 * g)
        return loss, *(g for _, g in found)

    return step, model.variables
