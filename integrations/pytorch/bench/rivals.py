#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory and time of a training step: plain, with what PyTorch itself offers to save memory, and with
stash_torch; each of PyTorch's ways also against Stash with its peak as the budget.

    PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/bench/rivals.py [--json FILE] [NETWORK...]

checkpoint: torch.utils.checkpoint around each block. compile N: torch.compile with activation_memory_budget N (needs a C++
compiler; the first steps take minutes). save_on_cpu: torch.autograd.graph.save_on_cpu(pin_memory=True), on a GPU. On the CPU
time is of the processor, with one thread, so that other work on the machine counts little; ways are interleaved.
"""

import argparse
import contextlib
import copy
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as functional
import torch.utils.checkpoint

import stash_torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import memory  # noqa: E402
import models  # noqa: E402
import record  # noqa: E402

NETWORKS = ["resnet50", "efficientnet_b0", "vgg16_bn", "vit_b_16", "convnext_tiny"]
RIVALS = ["checkpoint", "compile 0.7", "compile 0.5"]
# Of Stash, those that take the least time first. "lossless all": convolutions, matrix products and attention run again, too.
OURS = {"lossless": {}, "lossless all": {"recompute": "all"}, "fp16": {}, "fp8": {}}
# A block of each network; those of the VGGs are cut by their poolings.
BLOCKS = {"Bottleneck", "BasicBlock", "MBConv", "InvertedResidual", "EncoderBlock", "CNBlock", "_DenseLayer"}


def with_checkpoints(network):
    """The network, with a checkpoint around each block."""
    parts = [module for module in network.modules() if type(module).__name__ in BLOCKS]
    if not parts:
        parts, layers = [], []
        for layer in network.features:
            layers.append(layer)
            if isinstance(layer, torch.nn.MaxPool2d):
                parts.append(torch.nn.Sequential(*layers))
                layers = []
        network.features = torch.nn.Sequential(*parts, *layers)
    for part in parts:
        forward = part.forward
        part.forward = lambda *inputs, forward=forward: torch.utils.checkpoint.checkpoint(
            forward, *inputs, use_reentrant=False)
    return network


def budget_for(network, peak):
    """The budget of a session for steps that may take `peak` bytes beyond what was there before them. On a GPU all counts that is
    allocated, so gradients and momentum are added, which the first step makes."""
    parameters = list(network.parameters())
    if not parameters[0].is_cuda:
        return peak
    return peak + torch.cuda.memory_allocated() + 2 * sum(-(-each.nbytes // 512) * 512 for each in parameters)


class Way:
    """One way to train: step() is a step, `session` Stash's or None. peak: bytes that a step may take with it. options: of
    compress()."""

    def __init__(self, name, network, data, policy=None, peak=None, **options):
        self.name, self.policy = name, policy
        self.x, self.target = data
        self.device = self.x.device.type
        network = network.to(self.x.device)
        budget = budget_for(network, peak) if peak else None
        self.session = stash_torch.compress(network, policy, budget, **options) if policy else None
        self.optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        self.network = network
        if name == "checkpoint":
            self.network = with_checkpoints(network)
        elif name.startswith("compile"):
            import torch._functorch.config as config

            torch._dynamo.reset()
            config.activation_memory_budget = float(name.split()[1])
            self.network = torch.compile(network)
        for _ in range(memory.WARM_UP):
            self.step()
        self.peak = memory.peak_of(self.step, self.device)[0]
        self.seconds = []

    def step(self):
        if self.session is None:
            return self._step()
        with self.session:
            return self._step()

    def _step(self):
        self.optimizer.zero_grad(set_to_none=False)
        saving = torch.autograd.graph.save_on_cpu(pin_memory=True) if self.name == "save_on_cpu" else contextlib.nullcontext()
        with saving:
            loss = functional.cross_entropy(self.network(self.x), self.target)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def timed(self):
        clock = time.process_time if self.device == "cpu" else time.perf_counter
        begin = clock()
        self.step()  # reads the loss, so it waits for a device
        self.seconds.append(clock() - begin)


def ours(word, network, data, rival="", peak=None):
    name = f"Stash {word}" + (f" at the peak of {rival}" if rival else "")
    return Way(name, copy.deepcopy(network), data, word.split()[0], peak, **OURS[word])


def measure(name, rivals, count, repeats, device="cpu"):
    torch.manual_seed(0)
    network, side = models.build(name)
    data = [each.to(device) for each in models.batch(count, side)]
    ways = [Way("plain", copy.deepcopy(network), data)]
    ways += [ours(word, network, data) for word in OURS]
    for rival in rivals:
        ways.append(Way(rival, copy.deepcopy(network), data))
        peak = ways[-1].peak
        for word in OURS:  # the first that keeps it
            try:
                ways.append(ours(word, network, data, rival, peak))
                break
            except stash_torch.BudgetError:
                continue
    for _ in range(repeats):
        for way in ways:
            way.timed()
    rows = []
    for way in ways:
        ratio = statistics.median(ours / plain for ours, plain in zip(way.seconds, ways[0].seconds))
        rows.append({"network": name, "batch": count, "way": way.name, "peak_bytes": way.peak,
                     "times_less": round(ways[0].peak / way.peak, 3), "step_time_over_plain": round(ratio, 3)})
        if device != "cpu":
            rows[-1]["milliseconds"] = round(1000 * statistics.median(way.seconds), 3)
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5, help="timed steps of each, interleaved (default: 5)")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in arguments.networks:
        rows += measure(name, [each for each in arguments.rivals.split(",") if each], arguments.batch, arguments.repeats)
        if arguments.json:  # after each network: compiling takes long, and may be interrupted
            record.write(arguments.json, rows)


if __name__ == "__main__":
    main()
