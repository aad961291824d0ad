#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a training step: networks x policies x oneDNN on and off x inter-op threads, each in processes of its
own (tests/run_model.py). Writes a record and prints a table.

Every cell is measured twice: `peak` are the bytes that TensorFlow's profiler sees requested, `heap` is all that the
process has on its heap. Where oneDNN is on, the profiler does not see tensors below 256 KiB. In the table the smallest
plain peak stands against the largest one under the policy, over all processes and steps."""

import argparse
import itertools
import json
import sys
from pathlib import Path

import forks
import run_pool
from records import facts, save

# Models that the profiler cannot see well, because their tensors are small, are left to the tests.
MODELS = ("flat", "vgg", "MobileNetV2", "EfficientNetB0", "ResNet50", "DenseNet121", "VGG16", "unet2d", "unet3d",
          "seq2seq", "transformer", "resnet_bn", "activation_zoo")
POLICIES = ("none", "lossless", "fp16", "fp10", "fp8", "auto")
MEASURES = ("peak", "heap")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--onednn", default="on,off")
    parser.add_argument("--inter", default="1,2")
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--mixed", choices=("mixed_float16", "mixed_bfloat16"))
    parser.add_argument("--loop", default="custom")
    parser.add_argument("--steps", type=int, default=6, help="before the two that are measured")
    parser.add_argument("--processes", type=int, default=1, help="per cell and measure")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--json", type=Path, help="the record")
    parser.add_argument("--resume", action="store_true", help="keep the cells that the record has already")
    parser.add_argument("--table", action="store_true", help="only print the table of the record")
    arguments = parser.parse_args()
    if (arguments.resume or arguments.table) and not arguments.json:
        parser.error("--resume and --table need --json")
    return arguments


def cells(arguments):
    split = (getattr(arguments, name).split(",") for name in ("models", "onednn", "inter", "policies"))
    for model, onednn, inter, policy in itertools.product(*split):
        yield {"model": model, "onednn": onednn == "on", "inter": int(inter), "policy": policy,
               "mixed": arguments.mixed, "loop": arguments.loop}


def measure(pool, arguments, cell):
    """Begins the processes of a cell; returns a function that waits for them and gives the cell's row."""
    begun = [(name, pool.start(repetition=index, steps=arguments.steps, measure=f"{name},losses,counters", **cell))
             for name in arguments.measures.split(",") for index in range(arguments.processes)]

    def row():
        found = dict(cell)
        for name, future in begun:
            try:
                record = future.result()
            except run_pool.Failed as error:
                found.setdefault("errors", []).append(str(error))
                continue
            found["batch"] = record["batch"]
            found.setdefault(f"{name}_bytes", []).extend(record[f"{name}_bytes"])
            found["last_loss"] = float.fromhex(record["losses"][-1])
            if "stash" in record:
                found["stash"] = record["stash"]
        return found

    return row


def key(row):
    return tuple(row[name] for name in ("model", "mixed", "loop", "onednn", "inter", "policy"))


def table(rows):
    """One line per model, mode and measure: the plain peak, and how many times less with each policy."""
    known = {key(row): row for row in rows}
    policies = [policy for policy in POLICIES[1:] if any(row["policy"] == policy for row in rows)]
    lines = [f"{'model':16} {'oneDNN':6} {'inter':>5} {'measure':7} {'plain MB':>9}"
             + "".join(f"{policy:>10}" for policy in policies)]
    for row in rows:
        if row["policy"] != "none":
            continue
        for name in MEASURES:
            plain = row.get(f"{name}_bytes")
            if not plain:
                continue
            line = f"{row['model']:16} {'on' if row['onednn'] else 'off':6} {row['inter']:5} {name:7} {min(plain) / 1e6:9.1f}"
            for policy in policies:
                other = known.get((*key(row)[:-1], policy), {})
                sizes = other.get(f"{name}_bytes")
                idle = sizes and not sum(other["stash"]["executions"].values())
                text = f"{min(plain) / max(sizes):.2f}{' idle' if idle else ''}" if sizes else "failed" if other else "-"
                line += f"{text:>10}"
            lines.append(line + (f"  (plain up to {max(plain) / 1e6:.1f})" if max(plain) > 1.02 * min(plain) else ""))
    return "\n".join([*lines, *foretold(rows)])


def foretold(rows):
    """One line per measure: how far the peaks lie from those that were predicted."""
    lines = []
    for name in MEASURES:
        off = [max(row[f"{name}_bytes"]) / row["stash"]["predicted_peak_bytes"] - 1
               for row in rows if row.get(f"{name}_bytes") and row.get("stash", {}).get("rewritten")]
        if off:
            lines.append(f"{name}: {100 * min(off):+.1f} to {100 * max(off):+.1f} % off the prediction in {len(off)} cells")
    return lines


def main():
    arguments = parse_arguments()
    record = {**facts("bench/peaks.py", sys.argv[1:]), "rows": []}
    if arguments.table or (arguments.resume and arguments.json.is_file()):
        record["rows"] = json.loads(arguments.json.read_text())["rows"]
    if not arguments.table:
        done = {key(row) for row in record["rows"] if "errors" not in row}
        record["rows"] = [row for row in record["rows"] if key(row) in done]
        pool = run_pool.Pool(arguments.jobs, forks.run_anew)  # addresses are to differ, and orders with them
        waiting = [measure(pool, arguments, cell) for cell in cells(arguments) if key(cell) not in done]
        for row in waiting:
            record["rows"].append(row())
            new = record["rows"][-1]
            print(" ".join(str(part) for part in key(new)), *(new.get(f"{name}_bytes") for name in MEASURES),
                  *(error.splitlines()[-1] for error in new.get("errors", ())), flush=True)
            if arguments.json:
                save(arguments.json, record)
    print(table(record["rows"]))


if __name__ == "__main__":
    main()
