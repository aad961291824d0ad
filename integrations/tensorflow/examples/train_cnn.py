#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small Keras network on the Fashion-MNIST files of a folder, or on generated images, with or without Stash.

Prints the loss and accuracy of the training, the time of a step, the peak of memory of a step and Stash's report."""

import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="none", choices=("none", "lossless", "fp16", "fp10", "fp8", "auto"))
    parser.add_argument("--data", type=Path, help="folder of the four *-ubyte.gz files (default: generated images)")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--no-peak", action="store_true", help="do not record a step's memory")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    return parser.parse_args()


def read_idx(path):
    """The array of an IDX file of bytes."""
    import numpy as np

    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\0\0\x08":
        raise SystemExit(f"{path}: expected an IDX file of bytes")
    shape = np.frombuffer(raw, ">i4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def load(folder, count):
    """(images in [0, 1], classes), the same at every call."""
    import numpy as np

    if folder:
        images = read_idx(folder / "train-images-idx3-ubyte.gz")[:count, ..., None].astype("float32") / 255
        classes = read_idx(folder / "train-labels-idx1-ubyte.gz")[:count].astype("int32")
        if len(images) < count:
            raise SystemExit(f"{folder}: {count} images are needed, there are {len(images)}")
        return images, classes
    rng = np.random.default_rng(5)
    classes = rng.integers(0, 10, count).astype("int32")
    patterns = rng.random((10, 28, 28, 1), dtype=np.float32)
    return 0.5 * patterns[classes] + 0.5 * rng.random((count, 28, 28, 1), dtype=np.float32), classes


def network():
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((28, 28, 1))])
    for channels in (32, 64):
        for _ in range(3):
            model.add(layers.Conv2D(channels, 3, padding="same"))
            model.add(layers.ReLU())
        model.add(layers.MaxPooling2D(2))
    model.add(layers.Flatten())
    model.add(layers.Dense(10))
    return model


def main():
    arguments = parse_arguments()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras
    import tensorflow as tf

    import stash_tf

    if arguments.policy != "none":
        stash_tf.enable(policy=arguments.policy)
    keras.utils.set_random_seed(7)
    images, classes = load(arguments.data, arguments.steps * arguments.batch)
    model = network()
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])
    times = []

    class Times(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.begin = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            times.append(time.perf_counter() - self.begin)

    try:
        history = model.fit(images, classes, batch_size=arguments.batch, shuffle=False, verbose=0,
                            callbacks=[Times()])
    except tf.errors.ResourceExhaustedError as error:
        print(f"{arguments.policy}: out of memory: {error.message.splitlines()[0]}")
        return 3
    figures = {"policy": arguments.policy, "loss": history.history["loss"][-1],
               "accuracy": history.history["accuracy"][-1], "step_ms": 1e3 * sorted(times)[len(times) // 2]}
    if not arguments.no_peak:
        step = model.make_train_function()
        data = tf.data.Dataset.from_tensors((images[:arguments.batch], classes[:arguments.batch])).repeat()
        iterator = iter(data)
        figures["peak_bytes"] = stash_tf.peak_bytes(lambda: step(iterator))
    print(", ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
                    for name, value in figures.items()))
    if arguments.policy != "none":
        print(stash_tf.report())
    if arguments.json:
        arguments.json.write_text(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
