#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains models of random_models.py, each plain and under policies of Stash in this one process, and prints a line of
JSON for each: what it is made of, and for every way of training losses and weights bit by bit, peaks, what was
predicted, what failed.

    TF_ENABLE_ONEDNN_OPTS=0 run_random.py 17 18 --policies lossless,fp8,budget [--without 0,2] [--text]

Every way begins with the same weights. "budget" is policy auto with a budget
halfway between its smallest peak and that of plain training, after "auto"."""

import argparse
import gc
import hashlib
import json
import os
import sys
import traceback

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
if os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0":
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"  # or it does not tell of its memory

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

import stash_tf  # noqa: E402
from random_models import random_model  # noqa: E402

WARM_UP, MEASURED = 5, 2  # executions, in the first of which Stash may plan anew
WITHOUT_RESERVE = 0.94  # budgets that leave less headroom are refused, or kept by luck


def data_of(drawn):
    """The batches as they are: nothing is copied while a step runs."""

    def open_(value):
        return tf.raw_ops.PlaceholderWithDefault(input=value, shape=[None, *value.shape[1:]])

    data = None
    for batch in drawn.batches:
        one = tf.data.Dataset.from_tensors(batch)
        data = one if data is None else data.concatenate(one)
    if drawn.open_batch:
        data = data.map(lambda *batch: tf.nest.map_structure(open_, batch))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


class Executions(keras.callbacks.Callback):
    """The loss of each execution alone, and the peaks of those after the warm-up."""

    def __init__(self):
        super().__init__()
        self.losses, self.peaks, self.recording = [], [], None

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()
        if len(self.losses) >= WARM_UP:
            self.recording = stash_tf.memory.record()
            self.timeline = self.recording.__enter__()

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        if self.recording:
            self.recording.__exit__(None, None, None)
            self.peaks.append(self.timeline.peak)
            self.recording = None


def digest(variables):
    found = hashlib.sha256()
    for variable in variables:
        found.update(variable.numpy().tobytes())
    return found.hexdigest()


class Subject:
    """A drawn model that can be trained again and again from the same beginning."""

    def __init__(self, drawn):
        self.drawn, self.data = drawn, data_of(drawn)
        self.variables = [*drawn.model.variables, *drawn.model.optimizer.variables]
        self.initial = [variable.numpy() for variable in self.variables]

    def train(self):
        for variable, value in zip(self.variables, self.initial):
            variable.assign(value)
        executions = Executions()
        self.drawn.model.fit(self.data, shuffle=False, verbose=0, callbacks=[executions])
        return {
            "losses": [loss.hex() for loss in executions.losses],
            "weights": digest(self.variables),
            "trained": any(value.tobytes() != variable.numpy().tobytes()
                           for variable, value in zip(self.variables, self.initial)),
            "peaks": executions.peaks,
        }

    def under(self, policy, **options):
        with stash_tf.enabled(policy, **options):
            record = self.train()
            report = stash_tf.report()
        graphs = [graph for graph in report.graphs if graph["rewritten"]]
        return record | {
            "rewritten": report.rewritten,
            "ordered": report.ordered,
            "batch": report.batch,
            "predicted": report.predicted_peak_bytes,
            "predicted_plain": report.predicted_plain_bytes,
            "least": max((graph["smallest_budget_bytes"] for graph in report.graphs), default=0),
            "executions": sum(counter["executions"] for counter in report.counters),
            "choices": sorted({tensor["choice"] for graph in graphs for tensor in graph["tensors"]}),
            "lists": any(graph["lists_in_loops"] for graph in report.graphs),
            "explanations": list(report.explanations),
        }


def way(subject, policy, records):
    if policy == "plain":
        return subject.train()
    if policy != "budget":
        return subject.under(policy)
    plain = min(records["plain"]["peaks"])
    smallest = records["auto"]
    least = max(*smallest["peaks"], smallest["predicted"] if smallest["batch"] else 0)
    budget = (plain + least) // 2
    if budget < least / WITHOUT_RESERVE:
        return None
    return subject.under("auto", budget=budget) | {"budget": budget}


SAME_MEMORY = ("Identity", "Reshape", "Squeeze", "ExpandDims", "PreventGradient", "StopGradient")


def open_sums(drawn):
    """How many sums of three terms and more the step has, one of which something else reads too: TensorFlow begins
    such a sum with the term whose memory is free first, so their bits depend on the order of execution
    (docs/tensorflow.md, "Numerics")."""

    @tf.function
    def step(x, y):
        return drawn.model.train_step((x, y))

    graph = step.get_concrete_function(*drawn.batches[0]).graph
    graphs = [graph, *(function.graph for function in graph._functions.values() if hasattr(function, "graph"))]
    return sum(len(terms) > 2 and any(read_elsewhere(term) for term in terms)
               for one in graphs for operation in one.get_operations() for terms in [terms_of(operation)])


def terms_of(operation):
    """What a sum adds up, through sums that nothing else reads: TensorFlow makes one of them."""
    if operation.type not in ("AddN", "AddV2"):
        return []
    found = []
    for tensor in operation.inputs:
        inner = terms_of(tensor.op) if len(tensor.consumers()) == 1 else []
        found += inner or [tensor]
    return found


def read_elsewhere(tensor):
    while len(tensor.consumers()) == 1 and tensor.op.type in SAME_MEMORY:
        tensor = tensor.op.inputs[0]
    return len(tensor.consumers()) > 1


def measure(seed, policies, without):
    record = {"seed": seed, "ways": {}, "failures": {}}
    try:
        drawn = random_model(seed, WARM_UP + MEASURED, without)
    except Exception:
        return record | {"failures": {"made": traceback.format_exc()[-3000:]}}
    record["text"] = drawn.text
    record["steps_per_execution"] = drawn.steps_per_execution
    record["volumes"] = any(len(one.shape) == 5 for one in drawn.model.inputs)
    subject = Subject(drawn)
    for policy in policies:
        try:
            if trained := way(subject, policy, record["ways"]):
                record["ways"][policy] = trained
        except Exception:
            record["failures"][policy] = traceback.format_exc()[-3000:]
            if policy == "plain":
                break
    lossless = record["ways"].get("lossless")
    if lossless and any(lossless[key] != record["ways"]["plain"][key] for key in ("losses", "weights")):
        record["open_sums"] = open_sums(drawn)
        again = subject.train()
        record["repeats"] = all(again[key] == record["ways"]["plain"][key] for key in ("losses", "weights"))
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--policies", default="lossless")
    parser.add_argument("--without", default="", help="indices of blocks, comma-separated")
    parser.add_argument("--inter", type=int, default=1)
    parser.add_argument("--text", action="store_true", help="only what the models are made of")
    arguments = parser.parse_args()
    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    without = [int(index) for index in arguments.without.split(",") if index]
    for seed in arguments.seeds:
        if arguments.text:
            print("\n".join(random_model(seed, 1, without).text))
            continue
        print(json.dumps(measure(seed, ["plain", *arguments.policies.split(",")], without)), flush=True)
        gc.collect()


if __name__ == "__main__":
    sys.exit(main())
