#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many nodes TensorFlow's executor runs in a training step, plain and under the policies: what loops cost besides their
kernels, without the noise of times. Counted in the executor's log, nodes of loops once for each iteration."""

import argparse
import collections
import re
import subprocess
import sys

import records  # noqa: F401  (finds the tests' modules)
import run_pool

NODE = re.compile(r"Process node: \d+ step (-?\d+) \{\{node [^}]*\}\} = (\w+)")
TOP = 6  # ops that are printed
MOST_IN_SMALL_CALLS = 1000  # nodes of calls that are no step


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="lstm_stack,gru_stack")
    parser.add_argument("--policies", default="none,lossless,fp8")
    parser.add_argument("--steps", type=int, default=3, help="of training; the last one is counted")
    return parser.parse_args()


def executed(model, policy, steps):
    """{op: how often} of the last step."""
    words, environment = run_pool.command(model, onednn=False, policy=policy, steps=steps, inter=1, measure="counters",
                                          environment={"TF_CPP_VMODULE": "executor=1", "TF_CPP_MIN_LOG_LEVEL": "0"})
    counts = {}
    with subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, errors="replace") as process:
        for line in process.stderr:  # hundreds of MB
            if found := NODE.search(line):
                counts.setdefault(found[1], collections.Counter())[found[2]] += 1
    if process.returncode != 0:
        raise SystemExit(f"executed_nodes: {model} under {policy}: status {process.returncode}")
    large = [count for count in counts.values() if sum(count.values()) > MOST_IN_SMALL_CALLS]
    if not large:
        raise SystemExit(f"executed_nodes: {model} under {policy}: no step of more than {MOST_IN_SMALL_CALLS} nodes")
    return large[-1]


def main():
    arguments = parse_arguments()
    for model in arguments.models.split(","):
        for policy in arguments.policies.split(","):
            found = executed(model, policy, arguments.steps)
            most = ", ".join(f"{op} {count}" for op, count in found.most_common(TOP))
            print(f"{model:16} {policy:9} {sum(found.values()):8}  {most}", flush=True)


if __name__ == "__main__":
    main()
