#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one network of models.py under a distribution strategy and prints one line of JSON: the losses of all steps,
and a hash of the weights for every replica of this process.

mirrored: two replicas on two logical processors of this machine. workers: this process is one of those that TF_CONFIG
names. oneDNN is on."""

import argparse
import json
import os
import sys
from pathlib import Path


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strategy", choices=("mirrored", "workers"))
    parser.add_argument("model")
    parser.add_argument("--policy", default="none")
    parser.add_argument("--loop", choices=("custom", "fit"), default="custom")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def make_strategy(name):
    import tensorflow as tf

    if name == "workers":
        return tf.distribute.MultiWorkerMirroredStrategy()
    processor, = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def custom(strategy, model, loss, optimizer, dataset, steps):
    """Keras divides the loss of a replica by the samples of all of them."""
    import tensorflow as tf

    variables = model.trainable_variables

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply(tape.gradient(value, variables), variables)
        return value

    @tf.function
    def step(x, y):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, (x, y)), axis=None)

    batches = iter(strategy.experimental_distribute_dataset(dataset))
    return [float(step(*next(batches))) for _ in range(steps)]


def fit(strategy, model, loss, optimizer, dataset, steps):
    import keras

    losses = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.reset_metrics()

        def on_train_batch_end(self, batch, logs=None):
            losses.append(float(logs["loss"]))

    model.compile(optimizer, loss)
    model.fit(dataset, epochs=1, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[Losses()])
    return losses


def main():
    arguments = parse_arguments()
    # Without oneDNN the images that gradients of filters unfold are more than the maps of these networks.
    os.environ.update(TF_ENABLE_ONEDNN_OPTS="1", KERAS_BACKEND="tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = make_strategy(arguments.strategy)
    import keras

    import models
    from run_model import stash_facts, weights_hash

    if arguments.policy != "none":
        import stash_tf

        stash_tf.enable(policy=arguments.policy)
    entry = models.MODELS[arguments.model]
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, loss, batch = entry.build()
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    initial = weights_hash(model.get_weights())
    batches = [batch(index, entry.batch) for index in range(arguments.steps)]
    x, y = keras.tree.map_structure(lambda *arrays: tf.concat(arrays, 0), *batches)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(entry.batch, drop_remainder=True)
    if arguments.strategy == "workers":
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        dataset = dataset.with_options(options)
    run = {"custom": custom, "fit": fit}[arguments.loop]
    losses = run(strategy, model, loss, optimizer, dataset, arguments.steps)

    def values(variable):
        return strategy.experimental_local_results(variable.value)

    copies = len(values(model.trainable_variables[0]))
    replicas = [weights_hash([values(variable)[index].numpy() for variable in model.trainable_variables])
                for index in range(copies)]
    record = {"losses": [loss.hex() for loss in losses], "replicas": replicas,
              "in_sync": strategy.num_replicas_in_sync, "trained": weights_hash(model.get_weights()) != initial}
    if arguments.policy != "none":
        record["stash"] = stash_facts()
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
