#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one network of models.py in one configuration and prints one line of JSON: losses and weights bit by bit, the
peak of requested bytes of a step, step times, what Stash chose and ran.

One configuration per process, because threads, oneDNN and allocators are settled before TensorFlow starts. oneDNN is
switched by TF_ENABLE_ONEDNN_OPTS and on unless that says 0, whatever the processor; without it the allocator that tells
of its memory needs TF_CPU_ALLOCATOR_USE_BFC, which is set here. With --policy none nothing of Stash is imported.

peak is what TensorFlow's profiler says; where oneDNN is on, it does not see tensors below 256 KiB. heap is what the
whole process allocated beyond what was there before the step; the system's allocator then serves TensorFlow, and the
process has to run with heap_peak.c preloaded (run_pool.py does that)."""

import argparse
import collections
import contextlib
import ctypes
import dataclasses
import functools
import glob
import hashlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

MANY = 3  # steps per execution of the loops that run several
MEASURES = ("peak", "heap", "time", "weights", "losses", "counters")


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--policy", default="none", choices=("none", "lossless", "fp16", "fp10", "fp8", "auto"))
    parser.add_argument("--budget", help="bytes, or with a unit as stash_tf.enable takes it")
    parser.add_argument("--device-bytes", type=int, help="swap, with CPUs counting as a device of so many bytes")
    parser.add_argument("--recompute", default="yes", choices=("yes", "no", "all"), help="which ops may run again (yes: cheap ones)")
    parser.add_argument("--keep", default="", help="layer names, comma-separated")
    parser.add_argument("--steps", type=int, default=3, help="rounded up to whole executions")
    parser.add_argument("--batch", type=int, help="samples per step (default: that of models.py)")
    parser.add_argument("--loop", default="custom", choices=sorted(LOOPS))
    parser.add_argument("--optimizer", default="SGD", choices=("SGD", "Adam"))
    parser.add_argument("--inter", type=int, default=1, help="inter-op threads")
    parser.add_argument("--intra", type=int, default=1, help="intra-op threads")
    parser.add_argument("--mixed", choices=("mixed_float16", "mixed_bfloat16"))
    parser.add_argument("--measure", default="weights,losses,counters", help=f"of {','.join(MEASURES)}")
    parser.add_argument("--peak-steps", type=int, default=2, help="executions whose peak is taken, one by one")
    parser.add_argument("--time-steps", type=int, default=12, help="executions that are timed")
    parser.add_argument("--gradients", metavar="FILE", help="write the gradients of the first step, before training")
    parser.add_argument("--graphs", metavar="FILE", help="write everything that the graph optimizer logged")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.measure.split(",")) - set(MEASURES)
    if unknown:
        parser.error(f"unknown measure: {', '.join(sorted(unknown))}")
    if {"heap", "peak"} <= set(arguments.measure.split(",")):
        parser.error("heap and peak need different allocators: measure them in two runs")
    return arguments


def start(arguments):
    """Settles threads, allocator, seeds and dtype policy; switches Stash on. To be called before TensorFlow is used."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    onednn = os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1") != "0"
    if "heap" in arguments.measure.split(","):
        os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] = "true"
    elif not onednn:
        os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
    import keras
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.intra)
    if arguments.policy != "none":
        import stash_tf

        options = {"budget": arguments.budget} if arguments.budget else {}
        options["recompute"] = {"yes": True, "no": False}.get(arguments.recompute, arguments.recompute)
        if arguments.keep:
            options["keep"] = arguments.keep.split(",")
        if arguments.device_bytes:
            count_as_a_device(arguments.device_bytes)
            options["swap"] = True
        stash_tf.enable(policy=arguments.policy, **options)
    keras.utils.set_random_seed(1)
    if arguments.mixed:
        keras.config.set_dtype_policy(arguments.mixed)


def count_as_a_device(size):
    """CPUs count as a device of so many bytes from the next enable() on: tensors may move to the host then."""
    from stash_tf import settings

    checked = settings.checked
    settings.checked = lambda *wishes: dataclasses.replace(checked(*wishes), device_bytes=size)


class Training:
    """A model, its data and optimizers, and the step that every loop is made of."""

    def __init__(self, arguments):
        import keras

        import models

        entry = models.MODELS[arguments.model]
        self.model, self.loss, self.batch = entry.build()
        self.size = arguments.batch or entry.batch
        self.variables = self.model.trainable_variables
        self.initial = weights_hash(self.model.get_weights())

        def optimizer(variables):
            made = getattr(keras.optimizers, arguments.optimizer)(0.01 if arguments.optimizer == "SGD" else 0.001)
            if arguments.mixed == "mixed_float16":
                made = keras.optimizers.LossScaleOptimizer(made, initial_scale=256.0)
            made.build(variables)
            return made

        # Two optimizers share the variables between them, one has them all.
        half = len(self.variables) // 2 if arguments.loop == "two_optimizers" else 0
        parts = (self.variables[:half], self.variables[half:]) if half else (self.variables,)
        self.parts = [(optimizer(part), part) for part in parts]

    def tensors(self, index):
        """The index-th batch as tensors of static shape."""
        import keras
        import tensorflow as tf

        return keras.tree.map_structure(tf.constant, self.batch(index, self.size))

    def gradients(self, x, y, call=None):
        """(loss, gradients for each part), the gradients scaled as the part's optimizer wants them."""
        import tensorflow as tf

        with tf.GradientTape(persistent=len(self.parts) > 1) as tape:
            loss = self.loss(y, (call or self.model)(x, training=True))
            scaled = [optimizer.scale_loss(loss) for optimizer, _ in self.parts]
        return loss, [tape.gradient(value, part) for value, (_, part) in zip(scaled, self.parts)]

    def apply(self, gradients):
        for (optimizer, part), values in zip(self.parts, gradients):
            optimizer.apply(values, part)


# A loop takes a Training and returns (run, steps per execution). run(executions, first, around) trains on the batches
# from `first` on and returns the loss of every step, or of every execution where the loop does not tell more;
# around(execution) is a context manager in which the execution runs from its start to its result.


def executions_of(function, batches_of):
    """run() of a loop that calls a tf.function with the tensors of its batches."""

    def run(executions, first, around):
        losses = []
        for execution in range(executions):
            tensors = batches_of(first, execution)
            with around(execution):
                result = function(*tensors).numpy()
            losses += result.reshape(-1).tolist()
        return losses

    return run


def custom(training, call=None):
    import tensorflow as tf

    @tf.function
    def step(x, y):
        loss, gradients = training.gradients(x, y, call)
        training.apply(gradients)
        return loss

    return executions_of(step, lambda first, execution: training.tensors(first + execution)), 1


def nested(training):
    """The model is called through a function of its own."""
    import tensorflow as tf

    @tf.function
    def forward(x, training):
        return model(x, training=training)

    model = training.model
    return custom(training, forward)


def in_while(training):
    """A loop over the steps within one function."""
    import keras
    import tensorflow as tf

    @tf.function
    def steps(xs, ys):
        losses = tf.TensorArray(tf.float32, MANY)
        for index in tf.range(MANY):
            # map_structure calls it at once.
            x, y = keras.tree.map_structure(lambda batches: batches[index], (xs, ys))  # noqa: B023
            loss, gradients = training.gradients(x, y)
            training.apply(gradients)
            losses = losses.write(index, loss)
        return losses.stack()

    def batches(first, execution):
        each = [training.tensors(first + MANY * execution + index) for index in range(MANY)]
        return keras.tree.map_structure(lambda *tensors: tf.stack(tensors), *each)

    return executions_of(steps, batches), MANY


def accumulate(training):
    """One update from the summed gradients of two batches, both within one function."""
    import tensorflow as tf

    @tf.function
    def step(first_x, first_y, second_x, second_y):
        first_loss, [first] = training.gradients(first_x, first_y)
        second_loss, [second] = training.gradients(second_x, second_y)
        training.apply([[tf.convert_to_tensor(a) + tf.convert_to_tensor(b) for a, b in zip(first, second)]])
        return tf.stack([first_loss, second_loss])

    def batches(first, execution):
        return (*training.tensors(first + 2 * execution), *training.tensors(first + 2 * execution + 1))

    return executions_of(step, batches), 2


def fit(training, steps_per_execution=1):
    import keras

    (optimizer, _), = training.parts
    training.model.compile(optimizer, training.loss, steps_per_execution=steps_per_execution)

    class Around(keras.callbacks.Callback):
        """Enters a context before every execution; takes the mean loss of that execution alone."""

        def __init__(self, around):
            super().__init__()
            self.around, self.losses = around, []

        def on_train_batch_begin(self, batch, logs=None):
            self.model.reset_metrics()
            self.context = self.around(len(self.losses))
            self.context.__enter__()

        def on_train_batch_end(self, batch, logs=None):
            self.losses.append(float(logs["loss"]))
            self.context.__exit__(None, None, None)

    def run(executions, first, around):
        import numpy as np

        each = [training.batch(first + index, training.size) for index in range(executions * steps_per_execution)]
        x, y = keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *each)
        callback = Around(around)
        training.model.fit(x, y, batch_size=training.size, shuffle=False, verbose=0, callbacks=[callback])
        return callback.losses

    return run, steps_per_execution


LOOPS = {
    "custom": custom,
    "fit": fit,
    "spe3": lambda training: fit(training, MANY),
    "while": in_while,
    "accumulate": accumulate,
    "nested": nested,
    "two_optimizers": custom,
}


def weights_hash(arrays):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


class Profiled:
    """Context of one execution whose peak of requested bytes is then in `peak`: what the execution itself allocated,
    not the weights and whatever else was there before it."""

    def __enter__(self):
        import tensorflow as tf

        self.folder = tempfile.TemporaryDirectory()
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0,
                                                           device_tracer_level=0)
        tf.profiler.experimental.start(self.folder.name, options)
        return self

    def __exit__(self, *exception):
        import tensorflow as tf

        tf.profiler.experimental.stop()
        with self.folder:
            self.peak = requested_peak(memory_events(self.folder.name))


class OnHeap:
    """Context of one execution whose peak on the heap, beyond what was there before, is then in `peak`."""

    def __enter__(self):
        self.before = heap_counter().heap_peak_reset()
        return self

    def __exit__(self, *exception):
        self.peak = heap_counter().heap_peak() - self.before


@functools.cache
def heap_counter():
    try:
        counter = ctypes.CDLL(None)
        for function in (counter.heap_peak_reset, counter.heap_peak):
            function.restype, function.argtypes = ctypes.c_longlong, []
    except AttributeError:
        raise SystemExit("run_model: --measure heap needs heap_peak.c built and in LD_PRELOAD") from None
    return counter


def memory_events(folder):
    """(time, requested bytes) of every allocation, and with negative bytes of every release, in their order."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    signs = {"MemoryAllocation": 1, "MemoryDeallocation": -1}
    events = []
    for path in glob.glob(f"{folder}/plugins/profile/*/*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(Path(path).read_bytes())
        for plane in space.planes:
            names = {key: value.name for key, value in plane.event_metadata.items()}
            statistic = {key: value.name for key, value in plane.stat_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    sign = signs.get(names[event.metadata_id])
                    if sign:
                        size, = (stat.int64_value or stat.uint64_value for stat in event.stats
                                 if statistic[stat.metadata_id] == "requested_bytes")
                        events.append((line.timestamp_ns * 1000 + event.offset_ps, sign * size))
    return sorted(events, key=lambda event: event[0])


def requested_peak(events):
    """Above the level at the start. What was there before may be released: an update that does not happen in place
    puts a new weight where the old one was."""
    if not events:
        raise RuntimeError("the profiler saw no allocation: is TF_CPU_ALLOCATOR_USE_BFC set where oneDNN is off?")
    return max(0, *itertools.accumulate(size for _, size in events))


class Timed:
    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, *exception):
        self.seconds = time.perf_counter() - self.start


CODECS = ("StashEncode", "StashDecode")


def counted(library):
    """By op and tensor: nanoseconds within the kernel so far, bytes read and written."""
    found = library.counters() if library else ()
    return {(c["op"], c["tensor"]): (c["nanoseconds"], c["dense_bytes"] + c["stored_bytes"]) for c in found}


def timed_steps(arguments, run, many, executions):
    """Seconds of a step in each execution; seconds per step within each kind of Stash's kernels, all threads together;
    and how many bytes per step encoders and decoders read and wrote. The kernels of poolings and gradients are in place
    of TensorFlow's kernels, not additional ones."""
    library = None
    if arguments.policy != "none":
        import stash_tf

        library = stash_tf.library.load()
    before = counted(library)
    timed = [Timed() for _ in range(executions)]
    run(executions, 0, lambda execution: timed[execution])
    kernels, moved = {}, 0
    for key, (nanoseconds, bytes_) in counted(library).items():
        # Differences, as a reset would have encoders look at all of their values again.
        earlier = before.get(key, (0, 0))
        op = key[0]
        kernels[op] = kernels.get(op, 0) + (nanoseconds - earlier[0]) / 1e9 / (executions * many)
        if op in CODECS:
            moved += (bytes_ - earlier[1]) / (executions * many)
    return [each.seconds / many for each in timed], kernels, moved


def stash_facts():
    """What Stash says of this process, in short."""
    import stash_tf

    report = stash_tf.report()
    graphs = [graph for graph in report.graphs if graph["rewritten"]]
    tensors = [tensor for graph in graphs for tensor in graph["tensors"]]
    executions = collections.Counter()
    for counter in report.counters:
        executions[counter["op"]] += counter["executions"]
    facts = {key: getattr(report, key) for key in ("rewritten", "batch", "predicted_plain_bytes",
                                                   "predicted_peak_bytes", "total_dense_bytes",
                                                   "total_stored_bytes", "total_host_bytes", "predicted_host_bytes", "loops")}
    return facts | {
        "executions": dict(executions),
        "choices": dict(collections.Counter(tensor["choice"] for tensor in tensors)),
        "left": dict(collections.Counter(node["reason"] for graph in report.graphs for node in graph["left"])),
        "explanations": list(report.explanations),
        "needs": dict(report.settings["needs"]),
        "misfits": sorted({counter["tensor"] for counter in report.counters if counter["misfits"]}),
        "graphs": len(report.graphs),
        "rewritten_graphs": len(graphs),
    }


def write_graphs(path):
    import stash_tf

    report = stash_tf.report()
    Path(path).write_text(json.dumps({"graphs": report.graphs, "counters": report.counters}, indent=1))


def write_gradients(training, path):
    """The gradients of batch 0, by weight, without loss scale."""
    import numpy as np
    import tensorflow as tf

    @tf.function
    def step(x, y):
        loss, gradients = training.gradients(x, y)
        flat = [tf.convert_to_tensor(value) for part in gradients for value in part]
        return loss, flat

    loss, gradients = step(*training.tensors(0))
    scale = training.parts[0][0].scale_loss(1.0)
    names = [f"{index:03d} {variable.path}" for index, variable in enumerate(training.variables)]
    with open(path, "wb") as file:
        np.savez(file, loss=loss.numpy(), **{name: gradient.numpy() / np.float32(scale)
                                             for name, gradient in zip(names, gradients)})


def measure(arguments):
    """The record that main() prints."""
    start(arguments)
    measures = arguments.measure.split(",")
    training = Training(arguments)
    record = {key: value for key, value in vars(arguments).items() if key not in ("gradients", "graphs", "measure")}
    record |= {"batch": training.size, "onednn": os.environ["TF_ENABLE_ONEDNN_OPTS"] != "0"}
    if arguments.gradients:
        write_gradients(training, arguments.gradients)
    run, many = LOOPS[arguments.loop](training)
    executions = -(-arguments.steps // many)
    record["steps"] = executions * many
    losses = run(executions, 0, lambda execution: contextlib.nullcontext())
    if "losses" in measures:
        record["losses"] = [float(loss).hex() for loss in losses]
    if "weights" in measures:
        record["weights"] = weights_hash(training.model.get_weights())
        record["trained"] = record["weights"] != training.initial
        record["optimizers"] = weights_hash([variable.numpy() for optimizer, _ in training.parts
                                             for variable in optimizer.variables])
    if arguments.policy != "none" and "counters" in measures:
        record["stash"] = stash_facts()
    if arguments.graphs:
        write_graphs(arguments.graphs)
    for name, context in (("peak", Profiled), ("heap", OnHeap)):
        if name in measures:
            measured = [context() for _ in range(arguments.peak_steps)]
            # run calls it, and does not keep it.
            run(len(measured), 0, lambda execution: measured[execution])  # noqa: B023
            record[f"{name}_bytes"] = [each.peak for each in measured]
    if "time" in measures:
        seconds, kernels, _ = timed_steps(arguments, run, many, arguments.time_steps)
        record |= {"step_seconds": seconds, "step_seconds_median": statistics.median(seconds),
                   "kernel_seconds": kernels}
    return record


def main():
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    record = measure(parse_arguments())
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
