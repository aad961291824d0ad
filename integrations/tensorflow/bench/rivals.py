#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stash and keras.remat on the same networks: peak memory and time of a training step.

Every way of training has a process of its own; they take turns, a few steps each, in an order that changes from round to
round, and only one works at a time. A ratio of times is the median over the rounds of (median step / median step of plain
TensorFlow in that round). The peak is what TensorFlow's profiler sees requested in one step, after the turns; oneDNN is
off, so that it sees all. `remat` wraps each block (rival_models.py). The gradients of the first step are compared with the
plain ones."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records import facts, save

WAYS = ("plain", "remat", "lossless", "lossless all", "fp16", "fp8")  # all: recompute="all"
MODELS = ("conv_norm_silu", "mobilenet_like", "efficientnet_like", "vit_like", "lstm")
WARM_UP = 6  # steps, in which Stash may plan anew


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ways", default=",".join(WAYS), help="the first one is what the others are compared with")
    parser.add_argument("--inter", type=int, default=1, help="inter-op threads")
    parser.add_argument("--intra", type=int, default=2, help="threads of one kernel")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="of every way in a round")
    parser.add_argument("--json", type=Path, help="the record")
    parser.add_argument("--worker", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    return parser.parse_args()


def work(arguments):
    """A worker: it answers each line that it reads, "peak" or a number of steps, with one of JSON. The first is about
    the gradients of its first step."""
    import keras
    import numpy as np
    import tensorflow as tf

    import rival_models
    import run_model

    name, way = arguments.worker
    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.intra)
    if way not in ("plain", "remat"):
        import stash_tf

        policy, _, again = way.partition(" ")
        stash_tf.enable(policy=policy, recompute=again or True)
    keras.utils.set_random_seed(1)
    model, batch = rival_models.MODELS[name](remat=way == "remat")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    def gradients_of(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        return tape.gradient(value, model.trainable_variables)

    @tf.function
    def step(x, y):
        optimizer.apply(gradients_of(x, y), model.trainable_variables)

    x, y = (tf.constant(each) for each in batch())
    first = tf.function(gradients_of)(x, y)
    with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
        np.save(file, np.concatenate([gradient.numpy().ravel() for gradient in first]))
    print(json.dumps({"gradients": file.name, "batch": int(x.shape[0])}), flush=True)
    for line in sys.stdin:
        if line.strip() == "peak":
            peaks = []
            for _ in range(2):
                with run_model.Profiled() as profiled:
                    step(x, y)
                peaks.append(profiled.peak)
            answer = {"peak_bytes": max(peaks)}
            if way not in ("plain", "remat"):
                answer["predicted_peak_bytes"] = stash_tf.report().predicted_peak_bytes
        else:
            seconds = []
            for _ in range(int(line)):
                start = time.perf_counter()
                step(x, y)
                seconds.append(time.perf_counter() - start)
            answer = {"seconds": statistics.median(seconds)}
        print(json.dumps(answer), flush=True)


class Worker:
    def __init__(self, arguments, model, way):
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_ENABLE_ONEDNN_OPTS": "0",
                       "TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPP_MIN_LOG_LEVEL": "2"}
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--worker", model, way, "--inter", str(arguments.inter),
             "--intra", str(arguments.intra)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=self.errors)
        self.first = self.answer()
        self.seconds = []

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise SystemExit(f"rivals: a process ended: {' '.join(self.process.args)}\n{self.errors.read()[-3000:]}")
        return json.loads(line)

    def turn(self, text):
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.answer()

    def gradients(self):
        import numpy as np

        path = Path(self.first["gradients"])
        found = np.load(path).astype(np.float64)
        path.unlink()
        return found

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(arguments, model):
    """The rows of one model."""
    import numpy as np

    ways = arguments.ways.split(",")
    workers = {}
    for way in ways:  # one after the other: building takes memory and both cores
        workers[way] = Worker(arguments, model, way)
        workers[way].turn(WARM_UP)
    exact = workers[ways[0]].gradients()
    off = {way: 0.0 if way == ways[0] else float(np.linalg.norm(workers[way].gradients() - exact) / np.linalg.norm(exact))
           for way in ways}
    for index in range(arguments.rounds):
        shift = index % len(ways)
        for way in ways[shift:] + ways[:shift]:
            workers[way].seconds.append(workers[way].turn(arguments.steps)["seconds"])
    peaks = {way: worker.turn("peak") for way, worker in workers.items()}
    base = workers[ways[0]].seconds
    for way, worker in workers.items():
        worker.close()
        ratios = [mine / other for mine, other in zip(worker.seconds, base)]
        yield {"model": model, "way": way, "batch": worker.first["batch"], "inter": arguments.inter,
               "intra": arguments.intra, **peaks[way],
               "times_less": peaks[ways[0]]["peak_bytes"] / peaks[way]["peak_bytes"],
               "step_ms_median": 1e3 * statistics.median(worker.seconds), "ratio_median": statistics.median(ratios),
               "ratio_lowest": min(ratios), "ratio_highest": max(ratios), "gradient_error": off[way]}


def main():
    arguments = parse_arguments()
    if arguments.worker:
        return work(arguments)
    record = {**facts("bench/rivals.py", sys.argv[1:]), "rounds": arguments.rounds, "steps": arguments.steps, "rows": []}
    print(f"{'model':18} {'way':9} {'peak MB':>9} {'times less':>10} {'ms':>8} {'time':>6} {'lowest':>7} {'highest':>7} "
          f"{'gradient off':>12}")
    for model in arguments.models.split(","):
        for row in compare(arguments, model):
            record["rows"].append(row)
            print(f"{model:18} {row['way']:9} {row['peak_bytes'] / 1e6:9.1f} {row['times_less']:10.2f} "
                  f"{row['step_ms_median']:8.1f} {row['ratio_median']:6.2f} {row['ratio_lowest']:7.2f} "
                  f"{row['ratio_highest']:7.2f} {row['gradient_error']:12.2e}", flush=True)
        if arguments.json:
            save(arguments.json, record)


if __name__ == "__main__":
    main()
