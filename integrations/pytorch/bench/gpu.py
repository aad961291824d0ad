# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show of stash_torch: the bits of losses, gradients and weights of steps under `lossless` against plain
ones, with deterministic algorithms; the same where tensors move to the host, with peaks and step times; and peaks
(torch.cuda.max_memory_allocated) and step times next to what PyTorch itself offers to save memory (rivals.py).

    PYTHONPATH=FOLDER_OF_THE_PACKAGE python3 gpu.py --json FILE [--seconds N] [NETWORK...]

Needs a stash_torch whose library has kernels for the GPU. The record is written after every row. What was not run says so, and
why. Ends with 0, 1 if something failed, 77 if there is no GPU.
"""

import argparse
import contextlib
import copy
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic products of matrices

import torch  # noqa: E402

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
import models  # noqa: E402
import record  # noqa: E402
import rivals  # noqa: E402
import stash_torch  # noqa: E402
import training  # noqa: E402

NO_DEVICE = 77
BITS = [*models.OWN, "resnet18", "vgg16_bn", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "densenet121", "vit_b_16"]
SWAP = ["small_vgg", "unet_silu", "resnet18", "resnet50", "vgg16_bn", "vit_b_16"]
SHARES = (0.95, 0.85, 0.7)  # budgets of moves: of the smallest peak without them
SPEED = ["unet_silu", "resnet50", "vgg16_bn", "efficientnet_b0", "vit_b_16", "convnext_tiny"]
RIVALS = [*rivals.RIVALS, "save_on_cpu"]


class Run:
    def __init__(self, path, seconds):
        self.path, self.end = path, time.monotonic() + seconds
        self.rows, self.complete = [], False

    def add(self, name, result, **more):
        self.rows.append({"name": name, "result": result, **more})
        print(json.dumps(self.rows[-1]), flush=True)
        self.write()

    def write(self):
        there = torch.cuda.is_available()
        packed = record.ROOT / "commit"
        found = {"format": "stash.gpu_pytorch", "complete": self.complete, "torch": torch.__version__,
                 "commit": packed.read_text(encoding="utf-8").strip() if packed.is_file() else record.COMMIT,
                 "processor": record.processor(), "device": torch.cuda.get_device_name() if there else None, "rows": self.rows}
        new = Path(f"{self.path}.new")
        new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)

    def step(self, name, function, *arguments):
        """Runs one part; what it returns is added to its row."""
        if not torch.cuda.is_available():
            return self.add(name, "not run", why="no device")
        if time.monotonic() > self.end:
            return self.add(name, "not run", why="no time was left")
        try:
            self.add(name, "passed", **function(*arguments))
        except ImportError as error:
            self.add(name, "not run", why=str(error))
        except Exception as error:  # a failure is a result
            self.add(name, "failed", why=f"{type(error).__name__}: {error}"[:2000])


def bits_of(name, recompute="cheap"):
    """Compares steps, and says how tensors were kept: kernels of Stash must have had a part in it."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    try:
        network, side = models.build(name)
        data = [tuple(each.cuda() for each in models.batch(4, side, seed)) for seed in range(4)]
        session = training.assert_same(network.cuda(), data, recompute=recompute)
    finally:
        torch.use_deterministic_algorithms(False)
    plan = session.plans[0]
    forms = sorted({group.form.name for group in plan.groups.values() if group.form is not None})
    raw = sorted({group.reason for group in plan.groups.values() if group.how() == "raw"})
    return {"saved_before": plan.before, "saved_after": plan.after, "forms": forms, "reasons_raw": raw,
            "counts": dict(session.counts)}


def moves_of(name, batch, repeats, device="cuda"):
    """Ten steps with a budget that needs moves; then times of a step, in turn with a plain one."""
    torch.manual_seed(0)
    network, side = models.build(name)
    network.to(device)
    data = [tuple(each.to(device) for each in models.batch(batch, side, seed)) for seed in range(10)]
    torch.use_deterministic_algorithms(True)
    try:
        plain = on_host(training.train(copy.deepcopy(network), data, contextlib.nullcontext()))
        least, _ = budgeted(network, data, 1)
        for share in SHARES:
            peak = int(share * least["least"])
            found, trained = budgeted(network, data, peak, swap=True)
            if found["tensors"] and trained is not None:
                break
        else:
            raise RuntimeError(f"nothing moves, or no such budget is kept: {found}")
    finally:
        torch.use_deterministic_algorithms(False)
    if not all(torch.equal(training.bits(a), training.bits(b)) for a, b in zip(plain, trained, strict=True)):
        raise AssertionError("losses or gradients differ")
    return {**found, "wanted_peak": peak, "least_without_moves": least["least"], **moves_timed(network, data[0], peak, repeats)}


def budgeted(network, data, peak, **options):
    """What the plan is, and losses and gradients of the steps; None if the budget is refused."""
    network = copy.deepcopy(network)
    session = stash_torch.compress(network, budget=rivals.budget_for(network, peak) if peak > 1 else 1, **options)
    try:
        trained = on_host(training.train(network, data, session))
    except stash_torch.BudgetError:
        trained = None
    moved = [group.host_bytes for group in session.plans[0].groups.values() if group.host_bytes]
    return {"least": session.plans[0].fit.least, "settled": session.plans[0].fit.settled, "tensors": len(moved),
            "host_bytes": sum(moved), "counts": dict(session.counts)}, trained


def on_host(trained):
    return [each.cpu() for part in trained for each in part]


def moves_timed(network, data, peak, repeats):
    ways = [rivals.Way("plain", copy.deepcopy(network), data),
            rivals.Way("moves", copy.deepcopy(network), data, "lossless", peak, swap=True)]
    for _ in range(repeats):
        for way in ways:
            way.timed()
    ratio = statistics.median(ours / plain for ours, plain in zip(ways[1].seconds, ways[0].seconds))
    return {"peak_bytes": ways[1].peak, "plain_peak_bytes": ways[0].peak, "step_time_over_plain": round(ratio, 3)}


def speed_of(name, batch, repeats):
    return {"ways": rivals.measure(name, RIVALS, batch, repeats, "cuda")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="default: all")
    parser.add_argument("--batch", type=int, default=64, help="of the timed steps (default: 64)")
    parser.add_argument("--repeats", type=int, default=10, help="timed steps of each, interleaved (default: 10)")
    parser.add_argument("--seconds", type=int, default=450, help="no row begins after this (default: 450)")
    parser.add_argument("--json", type=Path, required=True, help="the record")
    arguments = parser.parse_args()
    run = Run(arguments.json, arguments.seconds)
    for name in arguments.networks or BITS:
        run.step(f"bits/{name}", bits_of, name)
        run.step(f"bits_all_again/{name}", bits_of, name, "all")
    for name in arguments.networks or SWAP:
        run.step(f"swap/{name}", moves_of, name, arguments.batch, arguments.repeats)
    for name in arguments.networks or SPEED:
        run.step(f"speed/{name}", speed_of, name, arguments.batch, arguments.repeats)
    run.complete = True
    run.write()
    if any(row["result"] == "failed" for row in run.rows):
        return 1
    return 0 if torch.cuda.is_available() else NO_DEVICE


if __name__ == "__main__":
    sys.exit(main())
