#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest batch whose training step stays within a given peak of memory: an LSTM encoder and decoder with attention
over long sequences, plain and under the policies.

Each batch is measured in a process of its own (tests/run_model.py): the peak of requested bytes that TensorFlow's profiler
sees, without weights and inputs, oneDNN off. The next batch to try follows from a line through the nearest peaks; the
answer is a batch that stays within, the next larger one (or multiple) having been measured above. The record also has the
bytes of the logits: of a large vocabulary, they and their gradient bound the batch whatever else is kept. Rows of earlier
runs keep their commit and processor."""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from records import facts, save

NAME = "seq2seq_batch"
POLICIES = ("none", "lossless", "fp8")  # "lossless all": recompute="all"


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peak", default=2048, type=int, help="MiB that a step may take")
    parser.add_argument("--length", default=400, type=int, help="steps of a sequence")
    parser.add_argument("--vocabulary", default=128, type=int)
    parser.add_argument("--width", default=256, type=int, help="units of a layer")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--first", default=16, type=int, help="the batch to begin with")
    parser.add_argument("--multiple", default=1, type=int, help="only batches that are multiples of it are measured")
    parser.add_argument("--json", type=Path, help="the record; rows of other settings stay")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args(words)
    if rest and not arguments.worker:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    for name in ("peak", "length", "vocabulary", "width", "first", "multiple"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: expected 1 or more, got {getattr(arguments, name)}")
    return arguments, rest


def work(arguments, words):
    """A worker: measures one batch and prints one line of JSON."""
    import keras

    import models
    import run_model

    models.MODELS[NAME] = models.Entry(functools.partial(
        models.seq2seq, steps=arguments.length, tokens=arguments.vocabulary, width=arguments.width,
        attention=keras.layers.Attention), arguments.first)
    print(json.dumps(run_model.measure(run_model.parse_arguments(words))))


def measured(arguments, policy, batch):
    """The record of a step with this batch."""
    import run_pool

    name, _, again = policy.partition(" ")
    words, environment = run_pool.command(NAME, onednn=False, policy=name, recompute=again or None, batch=batch, steps=1,
                                          inter=1, intra=os.cpu_count(), measure="peak,counters", peak_steps=1)
    sizes = [f"--{name}={getattr(arguments, name)}" for name in ("length", "vocabulary", "width")]
    done = subprocess.run([sys.executable, str(Path(__file__).resolve()), "--worker", *sizes, *words[1:]], env=environment,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"seq2seq_batch: batch {batch} under {policy}: status {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def next_batch(peaks, limit, within, above):
    """Where a line through the nearest measured peaks meets the limit; at least one more than `within`, less than
    `above` (None: not known)."""
    known = sorted(peaks, key=lambda batch: abs(peaks[batch] - limit))[:2]
    highest = above - 1 if above is not None else 4 * max(peaks)
    guess = known[0] * limit / peaks[known[0]]
    if len(known) == 2:
        slope = (peaks[known[1]] - peaks[known[0]]) / (known[1] - known[0])
        # Without Stash, a larger batch may take less: the order, and the peak with it, differs from process to process.
        guess = known[0] + (limit - peaks[known[0]]) / slope if slope > 0 else (within + highest + 1) / 2
    return int(min(max(guess, within + 1), highest))


def largest_batch(peak_of, limit, first, multiple=1):
    """(batch, its peak, {batch: peak} of all that were measured); batch 0: not even the smallest one stays within."""
    if multiple > 1:
        _, _, peaks = largest_batch(lambda count: peak_of(count * multiple), limit, max(first // multiple, 1))
        peaks = {count * multiple: peak for count, peak in peaks.items()}
        within = max((batch for batch in peaks if peaks[batch] <= limit), default=0)
        return within, peaks.get(within, 0), peaks
    peaks, within, above = {}, 0, None
    batch = first
    while above is None or above - within > 1:
        peaks[batch] = peak_of(batch)
        if peaks[batch] <= limit:
            within = batch
        else:
            above = batch
        if above is None or above - within > 1:
            batch = next_batch(peaks, limit, within, above)
    return within, peaks.get(within, 0), peaks


def main():
    arguments, words = parse_arguments()
    if arguments.worker:
        return work(arguments, words)
    limit = arguments.peak << 20
    record = {**facts("bench/seq2seq_batch.py", sys.argv[1:]), "rows": []}
    settings = {name: getattr(arguments, name) for name in ("length", "vocabulary", "width")} | {"limit_bytes": limit}
    if arguments.json and arguments.json.is_file():
        before = json.loads(arguments.json.read_text())
        origin = {name: before[name] for name in ("commit", "processor")}
        record["rows"] = [{**origin, **row} for row in before["rows"]
                          if any(row[name] != value for name, value in settings.items())]
        if record["rows"]:
            record["command"] = f"{before['command']}; {record['command']}"
    plain = None
    for policy in arguments.policies.split(","):
        facts_of = {}

        def peak_of(batch, policy=policy, facts_of=facts_of):
            start = time.perf_counter()
            facts_of[batch] = measured(arguments, policy, batch)
            peak = max(facts_of[batch]["peak_bytes"])
            print(f"  {policy} {batch}: {peak / 2**20:.1f} MiB ({time.perf_counter() - start:.0f} s)", flush=True)
            return peak

        batch, peak, peaks = largest_batch(peak_of, limit, arguments.first, arguments.multiple)
        logits = 4 * batch * arguments.length * arguments.vocabulary
        row = {**settings, "multiple": arguments.multiple, "policy": policy, "batch": batch, "peak_bytes": peak,
               "logits_bytes": logits, "measured": {str(each): peaks[each] for each in sorted(peaks)}}
        if batch and "stash" in facts_of[batch]:
            row["predicted_peak_bytes"] = facts_of[batch]["stash"]["predicted_peak_bytes"]
        record["rows"].append(row)
        plain = plain or batch
        print(f"{policy:12} {batch:6} samples  {peak / 2**20:8.1f} MiB  {batch / plain if plain else 0:5.2f} x", flush=True)
        if arguments.json:
            save(arguments.json, record)


if __name__ == "__main__":
    main()
