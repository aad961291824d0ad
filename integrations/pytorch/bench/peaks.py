#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a training step on the CPU, plain and with stash_torch: what the step allocates beyond weights, their
gradients and the optimizer's state, which are there before it.

    PYTHONPATH=build/ci/integrations/pytorch python3 integrations/pytorch/bench/peaks.py [--json FILE] [NETWORK...]
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as functional

import stash_torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import memory  # noqa: E402
import models  # noqa: E402
import record  # noqa: E402

NETWORKS = ["resnet50", "vgg16_bn", "mobilenet_v2", "efficientnet_b0", "densenet121", "convnext_tiny", "vit_b_16"]


def steps_of(name, count):
    torch.manual_seed(0)
    network, side = models.build(name)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    x, target = models.batch(count, side)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(network(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return network, step


def measure(name, policies, count, repeats):
    network, step = steps_of(name, count)
    for _ in range(2):
        step()
    peaks, sessions, seconds = {"plain": memory.peak_of(step)[0]}, {}, {each: [] for each in ["plain", *policies]}
    for policy in policies:
        sessions[policy] = session = stash_torch.Session(network, policy)
        with session:
            for _ in range(memory.WARM_UP):
                step()
            peaks[policy] = memory.peak_of(step)[0]
    for _ in range(repeats):
        for each in ["plain", *policies]:
            if each == "plain":
                start = time.perf_counter()
                step()
                seconds[each].append(time.perf_counter() - start)
            else:
                with sessions[each]:
                    start = time.perf_counter()
                    step()
                    seconds[each].append(time.perf_counter() - start)
    rows = []
    for each in ["plain", *policies]:
        ratio = statistics.median(a / b for a, b in zip(seconds[each], seconds["plain"])) if repeats else None
        plan = sessions[each].plans[0] if each != "plain" else None
        expected = plan.fit.expected / peaks[each] if plan and plan.fit.expected else None
        rows.append({"network": name, "batch": count, "policy": each, "peak_bytes": peaks[each],
                     "times_less": round(peaks["plain"] / peaks[each], 3),
                     "saved_bytes": plan.after if plan else sessions[policies[0]].plans[0].before,
                     "step_time_over_plain": round(ratio, 3) if ratio else None,
                     "expected_over_peak": round(expected, 4) if expected else None})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--policies", default="lossless,fp16,fp8")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5, help="timed steps of each, interleaved (default: 5)")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.networks:
        rows += measure(name, arguments.policies.split(","), arguments.batch, arguments.repeats)
    if arguments.json:
        record.write(arguments.json, rows)


if __name__ == "__main__":
    main()
