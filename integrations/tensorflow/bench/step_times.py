#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a training step under the policies against plain TensorFlow's.

Every policy has a process of its own, because settings and counters are per process; they take turns, a few steps each,
in an order that changes from round to round, and only one works at a time. A second plain process shows the noise, and
under "lossless kept" no op runs again in the backward pass. A ratio is the median over the rounds of (median step of the
policy / median step of plain TensorFlow in that round).

`codecs/copy` compares the time within encoders and decoders with that of memcpy for the same bytes read and written, by
as many threads, in the same process and turn, from and to memory that no cache holds."""

import argparse
import concurrent.futures
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

import run_model
import run_pool
from records import facts, save

POLICIES = ("none", "none again", "lossless", "fp16", "fp10", "fp8")
WARM_UP = 6
COPY_BYTES = 256 << 20  # beyond what a cache holds
COPY_CHUNK_BYTES = 4 << 20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="flat,vgg,MobileNetV2,ResNet50,DenseNet121")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--onednn", default="on,off")
    parser.add_argument("--inter", default="2")
    parser.add_argument("--intra", type=int, default=2)
    parser.add_argument("--loop", default="custom")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="of every policy in a round")
    parser.add_argument("--json", type=Path, help="the record")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if rest and not arguments.worker:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    return arguments


class Copy:
    """memcpy by several threads, each in a part of its own."""

    def __init__(self, threads):
        self.threads = threads
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.from_, self.to = (numpy.ones(COPY_BYTES, numpy.uint8) for _ in range(2))

    def part(self, index):
        part = COPY_BYTES // self.threads
        for begin in range(index * part, (index + 1) * part, COPY_CHUNK_BYTES):
            end = min(begin + COPY_CHUNK_BYTES, (index + 1) * part)
            numpy.copyto(self.to[begin:end], self.from_[begin:end])

    def seconds_per_byte(self):
        """Of bytes read and bytes written; the median of three, as with steps."""
        times = []
        for _ in range(3):
            start = time.perf_counter()
            list(self.pool.map(self.part, range(self.threads)))
            times.append(time.perf_counter() - start)
        return statistics.median(times) / (2 * COPY_BYTES)


def work():
    """A worker: for every number that it reads it runs so many executions and prints their times."""
    arguments = run_model.parse_arguments([word for word in sys.argv[1:] if word != "--worker"])
    run_model.start(arguments)
    run, many = run_model.LOOPS[arguments.loop](run_model.Training(arguments))
    copy = Copy(arguments.intra)
    for line in sys.stdin:
        seconds, kernels, moved = run_model.timed_steps(arguments, run, many, int(line))
        print(json.dumps({"seconds": seconds, "kernels": kernels, "codec_bytes": moved,
                          "copy_seconds": moved * copy.seconds_per_byte() if moved else 0}), flush=True)


class Worker:
    def __init__(self, model, policy, arguments, onednn, inter):
        name, *how = policy.split()
        words, environment = run_pool.command(model, onednn=onednn, policy=name, inter=inter, intra=arguments.intra,
                                              loop=arguments.loop, recompute="no" if "kept" in how else None)
        words[:1] = [sys.executable, str(Path(__file__).resolve()), "--worker"]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=self.errors)
        self.seconds, self.kernels, self.codec_bytes, self.codecs_times_copy = [], [], 0, []

    def turn(self, executions):
        self.process.stdin.write(f"{executions}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise SystemExit(f"step_times: a process ended: {' '.join(self.process.args)}\n{self.errors.read()[-3000:]}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(arguments, model, onednn, inter):
    """The rows of one model in one mode."""
    policies = arguments.policies.split(",")
    workers = {}
    for policy in policies:
        workers[policy] = Worker(model, policy, arguments, onednn, inter)
        workers[policy].turn(WARM_UP)  # one after the other: building takes memory and both cores
    for index in range(arguments.rounds):
        shift = index % len(policies)
        for policy in policies[shift:] + policies[:shift]:
            result = workers[policy].turn(arguments.steps)
            workers[policy].seconds.append(statistics.median(result["seconds"]))
            workers[policy].kernels.append(result["kernels"])
            if result["codec_bytes"]:
                codecs = sum(result["kernels"].get(op, 0) for op in run_model.CODECS)
                workers[policy].codec_bytes = result["codec_bytes"]
                workers[policy].codecs_times_copy.append(codecs / result["copy_seconds"])
    for worker in workers.values():
        worker.close()
    plain = workers[policies[0]].seconds
    for policy, worker in workers.items():
        ratios = [mine / other for mine, other in zip(worker.seconds, plain)]
        kernels = {op: statistics.median(each.get(op, 0) for each in worker.kernels) for op in worker.kernels[0]}
        yield {"model": model, "onednn": onednn, "inter": inter, "intra": arguments.intra, "loop": arguments.loop,
               "policy": policy, "step_ms_median": 1e3 * statistics.median(worker.seconds),
               "ratio_median": statistics.median(ratios), "ratio_lowest": min(ratios), "ratio_highest": max(ratios),
               "kernels_share": sum(kernels.values()) / statistics.median(worker.seconds),
               "kernel_ms": {op: 1e3 * seconds for op, seconds in sorted(kernels.items())},
               "codec_bytes": worker.codec_bytes,
               "codecs_times_copy": statistics.median(worker.codecs_times_copy or [0])}


def main():
    arguments = parse_arguments()
    if arguments.worker:
        return work()
    record = {**facts("bench/step_times.py", sys.argv[1:]), "rounds": arguments.rounds,
              "steps": arguments.steps, "rows": []}
    print(f"{'model':16} {'oneDNN':6} {'inter':>5} {'policy':12} {'ms':>9} {'ratio':>7} {'lowest':>7} {'highest':>7} "
          f"{'kernels':>8} {'codecs/copy':>12}")
    for model in arguments.models.split(","):
        for onednn in arguments.onednn.split(","):
            for inter in arguments.inter.split(","):
                for row in compare(arguments, model, onednn == "on", int(inter)):
                    record["rows"].append(row)
                    print(f"{model:16} {onednn:6} {inter:>5} {row['policy']:12} {row['step_ms_median']:9.1f} "
                          f"{row['ratio_median']:7.3f} {row['ratio_lowest']:7.3f} {row['ratio_highest']:7.3f} "
                          f"{100 * row['kernels_share']:6.1f} % {row['codecs_times_copy']:12.2f}", flush=True)
                if arguments.json:
                    save(arguments.json, record)


if __name__ == "__main__":
    main()
