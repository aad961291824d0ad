# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show of stash_torch: the bits of losses, gradients and weights of steps under `lossless` against plain
ones, with deterministic algorithms; and peaks (torch.cuda.max_memory_allocated) and step times next to what PyTorch itself
offers to save memory (rivals.py).

    PYTHONPATH=FOLDER_OF_THE_PACKAGE python3 gpu.py --json FILE [--seconds N] [NETWORK...]

Needs a stash_torch whose library has kernels for the GPU. The record is written after every row. What was not run says so, and
why. Ends with 0, 1 if something failed, 77 if there is no GPU.
"""

import argparse
import json
import os
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
import training  # noqa: E402

NO_DEVICE = 77
BITS = [*models.OWN, "resnet18", "vgg16_bn", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "densenet121", "vit_b_16"]
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


def bits_of(name):
    """Compares steps, and says how tensors were kept: kernels of Stash must have had a part in it."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    try:
        network, side = models.build(name)
        data = [tuple(each.cuda() for each in models.batch(4, side, seed)) for seed in range(4)]
        session = training.assert_same(network.cuda(), data)
    finally:
        torch.use_deterministic_algorithms(False)
    plan = session.plans[0]
    forms = sorted({group.form.name for group in plan.groups.values() if group.form is not None})
    raw = sorted({group.reason for group in plan.groups.values() if group.how() == "raw"})
    return {"saved_before": plan.before, "saved_after": plan.after, "forms": forms, "reasons_raw": raw,
            "counts": dict(session.counts)}


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
    for name in arguments.networks or SPEED:
        run.step(f"speed/{name}", speed_of, name, arguments.batch, arguments.repeats)
    run.complete = True
    run.write()
    if any(row["result"] == "failed" for row in run.rows):
        return 1
    return 0 if torch.cuda.is_available() else NO_DEVICE


if __name__ == "__main__":
    sys.exit(main())
