#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the graph optimizer takes by the number of nodes: deep steps of four shapes, built at several depths and called
once, one process each. Prints the nodes of the graph, the seconds of each of TensorFlow's two rounds (one where the second
sees what the first has decided), and those of the whole first call, with tracing and TensorFlow's own optimizers.

PYTHONPATH=build/ci/integrations/tensorflow integrations/tensorflow/bench/depth.py --shapes chain lstm --scale 1 4
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROUGHLY = 2000  # nodes of a step with scale 1


def chain(tf, scale):
    """Dense layers with ReLU, each with weights of its own."""
    weights = [tf.Variable(tf.eye(64) * 0.9) for _ in range(ROUGHLY * scale // 8)]

    def loss(x):
        for w in weights:
            x = tf.nn.relu(x @ w)
        return tf.reduce_mean(x)

    return loss, weights, tf.ones((64, 64))


def elementwise(tf, scale):
    """Small ops without weights, with activations of all kinds."""
    w = tf.Variable(tf.ones((64, 64)))
    ops = (tf.tanh, lambda x: tf.maximum(x, 0.1), tf.sin, lambda x: x * x, lambda x: tf.clip_by_value(x, -1.0, 1.0),
           tf.nn.relu)

    def loss(x):
        x = x * w
        for k in range(ROUGHLY * scale // 3):
            x = ops[k % len(ops)](x)
        return tf.reduce_mean(x)

    return loss, [w], tf.ones((64, 64)) * 0.5


def lstm(tf, scale):
    """A recurrent layer, unrolled."""
    import keras

    keras.utils.set_random_seed(1)
    layer = keras.layers.LSTM(32, unroll=True)
    x = tf.ones((32, ROUGHLY * scale // 34, 8)) * 0.5
    layer.build(x.shape)
    return (lambda x: tf.reduce_mean(layer(x))), layer.trainable_variables, x


def residual(tf, scale):
    """Blocks of a convolution, a norm and a ReLU, around each of which the input goes on."""
    blocks = [(tf.Variable(tf.ones((3, 3, 8, 8)) * 0.01), tf.Variable(tf.ones(8)), tf.Variable(tf.zeros(8)))
              for _ in range(ROUGHLY * scale // 17)]

    def loss(x):
        for w, gamma, beta in blocks:
            y = tf.nn.conv2d(x, w, 1, "SAME")
            y, *_ = tf.compat.v1.nn.fused_batch_norm(y, gamma, beta, epsilon=1e-3)
            x = x + tf.nn.relu(y)
        return tf.reduce_mean(x)

    return loss, [w for block in blocks for w in block], tf.ones((8, 16, 16, 8)) * 0.5


SHAPES = {made.__name__: made for made in (chain, elementwise, lstm, residual)}


def first_call(shape, scale, policy):
    """Nodes, seconds of the optimizer by round, and of the call."""
    import tensorflow as tf

    import stash_tf

    loss_of, weights, x = SHAPES[shape](tf, scale)

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        for w, g in zip(weights, tape.gradient(loss, weights)):
            w.assign_sub(1e-3 * g)
        return loss

    stash_tf.enable(policy=policy)
    begin = time.perf_counter()
    step(x)
    seconds = time.perf_counter() - begin
    graphs = stash_tf.library.load().graphs()
    return {"nodes": max((g["nodes"] for g in graphs), default=0), "seconds": [g["seconds"] for g in graphs],
            "rewritten": any(g["rewritten"] for g in graphs), "call": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--scale", nargs="+", type=int, default=[1, 2, 5, 10], help=f"times about {ROUGHLY} nodes")
    parser.add_argument("--policy", default="lossless")
    parser.add_argument("--here", action="store_true", help="one shape and scale in this process, as JSON")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(first_call(arguments.shapes[0], arguments.scale[0], arguments.policy)))
        return
    print(f"{'shape':12} {'nodes':>6} {'optimizer s':>18} {'us/node':>8} {'first call s':>12}")
    for shape in arguments.shapes:
        for scale in arguments.scale:
            words = [sys.executable, str(Path(__file__)), "--here", "--shapes", shape, "--scale", str(scale),
                     "--policy", arguments.policy]
            run = subprocess.run(words, env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}, stdout=subprocess.PIPE,
                                 text=True, check=True)
            found = json.loads(run.stdout.splitlines()[-1])
            rounds = " ".join(f"{s:.2f}" for s in found["seconds"])
            each = 1e6 * sum(found["seconds"]) / max(found["nodes"], 1)
            print(f"{shape:12} {found['nodes']:6} {rounds:>18} {each:8.0f} {found['call']:12.1f}"
                  f"{'' if found['rewritten'] else '  left as it was'}", flush=True)


if __name__ == "__main__":
    main()
