#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a ResNet-18 for small images, unmodified, and says what a step holds: saved tensors, peak, loss, time.

    PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/examples/train_resnet.py --policy lossless
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as functional
from torch import nn

import stash_torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import fashion  # noqa: E402
import memory  # noqa: E402


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return functional.relu(self.body(x) + self.short(x), inplace=True)


def resnet18(width=16, classes=10):
    layers = [nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    inputs = width
    for stage in range(4):
        for block in range(2):
            outputs = width * 2**stage
            layers.append(Block(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def load(folder, steps, batch):
    """Batches of Fashion-MNIST, or of generated images: each class is a pattern with noise."""
    count = steps * batch
    if folder is None:
        generator = torch.Generator().manual_seed(7)
        patterns = torch.randn(10, 1, 28, 28, generator=generator)
        labels = torch.randint(0, 10, (count,), generator=generator)
        images = patterns[labels] + torch.randn(count, 1, 28, 28, generator=generator)
    else:
        images, labels = fashion.images(folder)
        chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(7))[:count]
        images, labels = images[chosen], labels[chosen]
    return list(zip(images.split(batch), labels.split(batch)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="lossless", choices=["none", "lossless", "fp16", "bf16", "fp10", "fp8", "auto"])
    parser.add_argument("--budget", help='for the peak of a step, as "60 MiB"')
    parser.add_argument("--timeline", type=Path, help="draw memory over a step, plain and under the policy, into this SVG file")
    parser.add_argument("--steps", type=int, default=30, help="8 or more (default: 30)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--data", type=Path, help="folder of the Fashion-MNIST files (default: generated images)")
    parser.add_argument("--report", action="store_true", help="print what is kept of every tensor")
    arguments = parser.parse_args()

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    network = resnet18()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    batches = load(arguments.data, arguments.steps, arguments.batch)
    session = None if arguments.policy == "none" else stash_torch.compress(network, arguments.policy, arguments.budget)

    def step(x, target):
        optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(network(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    losses, seconds = [], 0.0
    with session or contextlib.nullcontext():
        for x, target in batches[:memory.WARM_UP]:
            losses.append(step(x, target))
        peak, loss = memory.peak_of(lambda: step(*batches[memory.WARM_UP]))
        losses.append(loss)
        start = time.perf_counter()
        for x, target in batches[memory.WARM_UP + 1:]:
            losses.append(step(x, target))
        seconds = (time.perf_counter() - start) / max(1, len(batches) - memory.WARM_UP - 1)
    print(f"policy {arguments.policy:8}  peak {peak / 2**20:7.1f} MiB  {seconds * 1000:6.0f} ms a step  "
          f"losses {losses[0]:.6f} ... {sum(losses[-5:]) / len(losses[-5:]):.6f}  last {losses[-1]!r}")
    if session is not None and arguments.report:
        print(session.report())
    if session is not None and arguments.timeline:
        session.timeline(arguments.timeline)
        print(f"memory over a step: {arguments.timeline}")


if __name__ == "__main__":
    main()
