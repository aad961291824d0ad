# SPDX-License-Identifier: Apache-2.0
"""Steps of whole models: sequences, volumes, shared weights, batches of all sorts, mixed precision, keras.applications."""

from step_parts import (
    BATCH,
    CLASSES,
    SIZE,
    L,
    conv,
    crossed,
    descend,
    fitted,
    keras,
    looped,
    network,
    np,
    one_function,
    pictures,
    plain_network,
    rng,
    simply,
    step,
    tf,
    tokens,
    weights,
)


@step
def sequence_conv():
    return fitted(network(sequence_body, (64,), "int32"), tokens(64))


def sequence_body(x):
    x = L.Embedding(50, 32)(x)
    x = L.Conv1D(32, 5, padding="same", activation="relu")(x)
    x = L.MaxPooling1D(2)(x)
    x = L.SeparableConv1D(32, 3, padding="same", activation="relu")(x)
    x = L.Conv1DTranspose(16, 4, strides=2, padding="same", activation="relu")(x)
    x = L.SpatialDropout1D(0.2)(L.UpSampling1D(2)(x))
    x = L.Conv1D(16, 3, padding="causal", dilation_rate=2, activation="relu")(x)
    return L.GlobalMaxPooling1D()(x)


def recurrent(layer, **options):
    def body(x):
        return layer(L.Embedding(50, 32, **options)(x))

    return fitted(network(body, (32,), "int32"), tokens(32))


@step(loops=True)
def lstm_loop():
    return recurrent(L.LSTM(32, return_sequences=True))


@step(loops=True)
def gru_loop():
    return recurrent(L.GRU(32, return_sequences=True))


@step(loops=True)
def lstm_both_ways_masked():
    return recurrent(L.Bidirectional(L.LSTM(24, return_sequences=True)), mask_zero=True)


@step(idle="maps are too small")
def lstm_unrolled():
    return recurrent(L.LSTM(32, unroll=True, return_sequences=True))


@step(loops=True)
def frames_and_lstms():
    """The weights of the first ones are updated when their loops have ended, not with the gradients of the next layer."""
    def body(x):
        x = L.Flatten()(L.MaxPooling2D(2)(conv(x)))
        x = L.Reshape((4, -1))(x)
        return L.Bidirectional(L.GRU(16))(L.Bidirectional(L.LSTM(16, return_sequences=True))(x))

    return fitted(network(body), batch_size=6)


class Windows(L.Layer):
    """Attention within windows of 4 x 4, whose shapes are computed from the batch."""

    def __init__(self):
        super().__init__()
        self.attention = L.MultiHeadAttention(2, 8)

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        batch, side, channels = tf.shape(x)[0], x.shape[1] // 4, x.shape[-1]
        x = tf.transpose(tf.reshape(x, (batch, side, 4, side, 4, channels)), (0, 1, 3, 2, 4, 5))
        x = tf.reshape(x, (-1, 16, channels))
        x = tf.reshape(self.attention(x, x), (-1, side, side, 4, 4, channels))
        return tf.reshape(tf.transpose(x, (0, 1, 3, 2, 4, 5)), (batch, 4 * side, 4 * side, channels))


@step
def windows_of_open_batch():
    return fitted(network(lambda x: conv(Windows()(conv(x, 16)))), batch_size=6)


@step
def noise_of_open_batch():
    """A generator that draws as many pictures as it is given."""
    generator = keras.Sequential([
        keras.Input((12,)), L.Dense(6 * 6 * 16, activation="relu"), L.Reshape((6, 6, 16)), L.UpSampling2D(4),
        L.Conv2D(8, 3, padding="same", activation="relu"), L.Conv2D(3, 3, padding="same"),
    ])

    class Drawing(keras.Model):
        def train_step(self, data):
            count = tf.shape(data[0])[0]
            noise = tf.random.stateless_normal((count, 12), (1, 2))
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(generator(noise) - tf.image.resize(data[0], (24, 24))))
            gradients = tape.gradient(loss, generator.trainable_variables)
            self.optimizer.apply(gradients, generator.trainable_variables)
            return {"loss": loss}

    model = Drawing(generator.inputs, generator.outputs)
    return fitted(model, batch_size=6)


@step
def attention_masked():
    def body(x):
        embedded = L.Embedding(50, 32, mask_zero=True)(x)
        y = L.MultiHeadAttention(4, 8, dropout=0.1)(embedded, embedded, use_causal_mask=True)
        y = L.LayerNormalization()(embedded + y)
        return L.LayerNormalization()(y + L.Dense(32)(L.Dense(64, activation="gelu")(y)))

    return fitted(network(body, (32,), "int32"), tokens(32), optimizer="adam")


@step
def volumes():
    def body(x):
        x = L.Conv3D(4, 3, padding="same", activation="relu")(x)
        x = L.MaxPooling3D(2)(x)
        x = L.Conv3DTranspose(4, 2, strides=2, activation="relu")(x)
        return L.AveragePooling3D(2)(L.Conv3D(4, 3, padding="same", activation="relu")(x))

    def batch(index):
        return rng(4, index).standard_normal((BATCH, 12, 12, 12, 1)).astype("float32"), pictures(index)[1]

    return fitted(network(body, (12, 12, 12, 1)), batch)


@step
def bytes_and_augmentation():
    def body(x):
        x = L.Rescaling(1 / 255)(x)
        for layer in (L.RandomFlip(), L.RandomRotation(0.1), L.RandomZoom(0.1), L.RandomTranslation(0.1, 0.1),
                      L.RandomContrast(0.1)):
            x = layer(x)
        return conv(L.MaxPooling2D(2)(conv(x)))

    def batch(index):
        return rng(5, index).integers(0, 256, (BATCH, SIZE, SIZE, 3)).astype("uint8"), pictures(index)[1]

    return fitted(network(body, dtype="uint8"), batch)


@step
def shared_layers():
    def body(x):
        shared = L.Conv2D(8, 3, padding="same", activation="relu")
        pool, norm = L.MaxPooling2D(2), L.BatchNormalization()
        x = conv(x)
        return norm(pool(shared(norm(shared(shared(x)))))) + pool(shared(x))

    return fitted(network(body))


@step
def frozen_layers():
    model = plain_network()
    for layer in model.layers[:3]:
        layer.trainable = False
    return fitted(model)


@step
def names_lie():
    def body(x):
        x = L.Conv2D(8, 3, padding="same", activation="relu", name="gradients")(x)
        x = L.Conv2D(8, 3, padding="same", activation="relu", name="gradient_tape")(x)
        x = L.MaxPooling2D(2, name="gradient_tape.gradients")(x)
        x = L.Conv2D(8, 3, padding="same", activation="gelu", name="stash_encode")(x)
        return L.BatchNormalization(name="x.y-z_9")(x) * 2

    return fitted(network(body))


@step
def scope_of_gradients():
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            with tf.name_scope("gradients"):
                for kernel in kernels[:2]:
                    x = tf.nn.tanh(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME")) * 1.5)
            loss = crossed()(y, tf.reduce_mean(x, [1, 2]) @ kernels[2])
        descend(kernels, tape.gradient(loss, kernels))
        return loss

    return looped(train, variables=lambda: kernels)


@step
def metrics_of_all_sorts():
    return fitted(plain_network(), metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3)],
                  weighted_metrics=["accuracy"])


@step
def dense_targets():
    model = network(lambda x: L.Conv2D(CLASSES, 1)(conv(conv(x))), head=False)
    return fitted(model, lambda k: (pictures(k)[0], rng(8, k).integers(0, CLASSES, (BATCH, SIZE, SIZE))))


@step
def several_steps_per_execution():
    return fitted(plain_network(), batches=7, steps_per_execution=3, optimizer="adam")


@step
def several_steps_unrolled():
    return fitted(network(lambda x: conv(L.Dropout(0.2)(conv(x)))), batches=6, steps_per_execution=2,
                  optimizer="momentum")


@step
def last_batch_smaller():
    return fitted(plain_network(), batches=2, batch_size=6)


@step
def batch_unknown():
    signature = [tf.TensorSpec([None, SIZE, SIZE, 3]), tf.TensorSpec([None], tf.int32)]
    return one_function(plain_network(), simply, input_signature=signature,
                        batch_of=lambda k: pictures(k, BATCH - k))


@step(idle="sizes are not known")
def sides_unknown():
    signature = [tf.TensorSpec([None, None, None, 3]), tf.TensorSpec([None], tf.int32)]
    inputs = keras.Input((None, None, 3))
    model = keras.Model(inputs, L.Dense(CLASSES)(L.GlobalAveragePooling2D()(conv(L.MaxPooling2D(2)(conv(inputs))))))
    return one_function(model, simply, input_signature=signature, batch_of=lambda k: pictures(k, size=SIZE - 2 * k))


@step(idle="sizes are not known")
def rank_unknown():
    signature = [tf.TensorSpec(None), tf.TensorSpec(None, tf.int32)]
    kernels = weights((3, 3, 3, 8), (3, 3, 8, 8), (8, CLASSES))

    @tf.function(input_signature=signature)
    def train(x, y):
        with tf.GradientTape() as tape:
            for kernel in kernels[:2]:
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
            loss = crossed()(tf.reshape(y, [-1]), tf.reduce_mean(x, [1, 2]) @ kernels[2])
        descend(kernels, tape.gradient(loss, kernels))
        return loss

    return looped(train, variables=lambda: kernels)


@step
def batch_of_one():
    return fitted(plain_network(), lambda k: pictures(k, 1), batch_size=1)


@step
def empty_batch():
    signature = [tf.TensorSpec([None, SIZE, SIZE, 3]), tf.TensorSpec([None], tf.int32)]

    def total(y, logits):
        return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    return one_function(plain_network(), simply, total, input_signature=signature,
                        batch_of=lambda k: pictures(k, BATCH * (k % 2)))


@step
def unbalanced_scales():
    """Infinities and NaN on the way: they must come out as they do without Stash (but for a ReLU with its pooling)."""
    model = network(lambda x: conv(conv(conv(x))))
    return fitted(model, lambda k: (pictures(k)[0] * np.float32(1e30), pictures(k)[1]), batches=1)


def mixed(policy, optimizer):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = network(lambda x: conv(L.Dropout(0.2)(L.MaxPooling2D(2)(conv(L.ReLU()(L.BatchNormalization()(conv(
            x, activation=None))))))))
        return fitted(model, optimizer=optimizer)
    finally:
        keras.config.set_dtype_policy(before)


@step
def half_sgd():
    return mixed("mixed_float16", "sgd")


@step
def half_adam_scaled():
    return mixed("mixed_float16", keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=2**20,
                                                                       dynamic_growth_steps=2))


@step
def bfloat_sgd():
    return mixed("mixed_bfloat16", "sgd")


@step
def bfloat_adam():
    return mixed("mixed_bfloat16", "adam")


@step
def application_inception():
    model = keras.applications.InceptionV3(weights=None, input_shape=(75, 75, 3), classes=CLASSES,
                                           classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 75), batch_size=2, batches=1)


@step
def application_xception():
    model = keras.applications.Xception(weights=None, input_shape=(71, 71, 3), classes=CLASSES,
                                        classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 71), batch_size=2, batches=1)


@step(idle="only dense values")
def application_convnext():
    model = keras.applications.ConvNeXtTiny(weights=None, input_shape=(64, 64, 3), classes=CLASSES,
                                            classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 64), batch_size=2, batches=1)


@step
def application_nasnet():
    model = keras.applications.NASNetMobile(weights=None, input_shape=(64, 64, 3), classes=CLASSES)
    return fitted(model, lambda k: pictures(k, 2, 64), batch_size=2, batches=1,
                  loss=keras.losses.SparseCategoricalCrossentropy())


@step(idle="only dense values")
def application_efficientnet_v2():
    model = keras.applications.EfficientNetV2B0(weights=None, input_shape=(64, 64, 3), classes=CLASSES,
                                                classifier_activation=None)
    return fitted(model, lambda k: pictures(k, 2, 64), batch_size=2, batches=1)


@step(idle="no training")
def only_forward():
    model = plain_network()
    return looped(tf.function(lambda x, y: crossed()(y, model(x, training=False))))


@step(idle="maps are too small")
def tiny():
    return fitted(network(lambda x: L.Dense(4, activation="relu")(L.Flatten()(x)), (4, 4, 1)),
                  lambda k: pictures(k, BATCH, 4, 1))
