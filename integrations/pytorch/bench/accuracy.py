# SPDX-License-Identifier: Apache-2.0
"""Is training with rounded feature maps as accurate as plain training? Trains LeNet on Fashion-MNIST, plain and with a policy,
from the same seeds (same first weights, same batches), and looks at the differences in test accuracy, pair by pair.

    STASH_DATA=FOLDER PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/bench/accuracy.py [--json FILE]

Every tensor is kept in as few bytes as the policy can, also where that does not lower the peak. Ends with 0 if the lower end of
the 95 % interval of the mean difference lies above minus the margin.
"""

import argparse
import contextlib
import os
import statistics
import sys
from pathlib import Path

import torch
import torch.nn.functional as functional
from torch import nn

import stash_torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fashion  # noqa: E402
import record  # noqa: E402

sys.path.insert(0, str(record.ROOT / "scripts"))
import paired  # noqa: E402

BATCH = 64


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


def accuracy(network, data):
    with torch.no_grad():
        right = sum((network(x).argmax(1) == target).sum().item() for x, target in zip(*(each.split(1000) for each in data)))
    return 100 * right / len(data[1])


def train(seed, policy, data, test, steps):
    """Test accuracy in %, the loss of the last 50 steps, the session or None."""
    torch.manual_seed(seed)
    network = lenet()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images, labels = data
    session = stash_torch.compress(network, policy) if policy else None
    if session is not None:
        session.measures = False  # else much of a small network stays as it is
    order, losses = torch.randperm(len(labels)), []
    with session or contextlib.nullcontext():
        for step in range(steps):
            chosen = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)]
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return accuracy(network, test), statistics.fmean(losses[-50:]), session


def pair_of(seed, policy, data, test, steps):
    plain, plain_loss, _ = train(seed, None, data, test, steps)
    ours, loss, session = train(seed, policy, data, test, steps)
    plan = session.plans[0]
    if session.counts["steps"] < steps - 2:
        raise RuntimeError(f"accuracy: seed {seed}: expected steps that follow a plan, got {dict(session.counts)}")
    return {"seed": seed, "plain": plain, policy: ours, "difference": ours - plain, "final_loss_plain": plain_loss,
            f"final_loss_{policy}": loss, "saved_bytes_ratio": plan.before / plan.after}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="fp8", choices=["fp16", "bf16", "fp10", "fp8"])
    parser.add_argument("--seeds", type=int, default=8, help="pairs: seeds 1 to this (default: 8)")
    parser.add_argument("--steps", type=int, default=937, help="of 64 images; one epoch has 937 (default)")
    parser.add_argument("--margin", type=float, default=0.5, help="percentage points (default: 0.5)")
    parser.add_argument("--json", type=Path, help="write the record here")
    arguments = parser.parse_args()
    if not 2 <= arguments.seeds <= paired.MOST_PAIRS:
        parser.error(f"--seeds: expected 2 to {paired.MOST_PAIRS}, got {arguments.seeds}")
    if not os.environ.get("STASH_DATA"):
        parser.error("STASH_DATA: expected the folder of the four Fashion-MNIST files, got nothing")
    folder = Path(os.environ["STASH_DATA"])
    torch.set_num_threads(1)
    data, test = fashion.images(folder), fashion.images(folder, "t10k")
    pairs = []
    for seed in range(1, arguments.seeds + 1):
        pairs.append(pair_of(seed, arguments.policy, data, test, arguments.steps))
        print(f"seed {seed}: plain {pairs[-1]['plain']:.2f} %, {arguments.policy} {pairs[-1][arguments.policy]:.2f} %, "
              f"difference {pairs[-1]['difference']:+.2f}", flush=True)
    found = paired.summary([pair["difference"] for pair in pairs], arguments.margin)
    print(paired.text(found))
    if arguments.json:
        record.write(arguments.json, pairs, network="lenet", policy=arguments.policy, data="fashion-mnist", batch=BATCH,
                     steps=arguments.steps, margin_points=arguments.margin, **found)
    return 0 if found["not_worse"] else 1


if __name__ == "__main__":
    sys.exit(main())
