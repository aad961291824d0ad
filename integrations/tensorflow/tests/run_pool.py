# SPDX-License-Identifier: Apache-2.0
"""Runs run_model.py, one process per configuration, as many at a time as there are processors, each configuration once.

Stash's package has to be on PYTHONPATH, as for all tests here."""

import concurrent.futures
import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

import forks

HERE = Path(__file__).resolve().parent
SECONDS = 1800
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))  # that share the processors


class Failed(Exception):
    """A process ended with an error; its text is the end of what it printed."""


@functools.cache
def heap_counter():
    """heap_peak.c, built for LD_PRELOAD."""
    path = Path(tempfile.mkdtemp(prefix="stash_heap_")) / "heap_peak.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-std=c11", "-O2", "-shared", "-fPIC", HERE / "heap_peak.c", "-o", path], check=True)
    return path


def command(model, onednn=True, environment=(), **options):
    """(script and arguments, environment) of a run; options as those of run_model.py, with None and False left out."""
    words = [str(HERE / "run_model.py"), model]
    for name, value in sorted(options.items()):
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", str(value)]
    variables = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1" if onednn else "0", "TF_CPP_MIN_LOG_LEVEL": "2",
                 **dict(environment)}
    for name in ("TF_CPU_ALLOCATOR_USE_BFC", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"):
        if name not in dict(environment):
            variables.pop(name, None)
    if "heap" in options.get("measure", ""):
        variables["LD_PRELOAD"] = str(heap_counter())
    return words, variables


def run(model, begin=forks.run, **options):
    """The record that run_model.py prints; options as for command(). begin: one of the functions of forks.py."""
    words, environment = command(model, **options)
    try:
        finished = begin(*words, environment=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}: not finished after {SECONDS} s") from None
    if finished.returncode != 0:
        end = "\n".join((finished.stdout + finished.stderr).splitlines()[-25:])
        raise Failed(f"{' '.join(words)}: status {finished.returncode}\n{end}")
    return json.loads(finished.stdout.splitlines()[-1])


def selected(request, argument):
    """The values of this argument in those tests of the module that are to run."""
    return [item.callspec.params[argument] for item in request.session.items
            if item.module is request.module and argument in getattr(item, "fixturenames", ())]


def at_once(request, argument):
    """The same where all of them run here: their runs may begin at once."""
    return selected(request, argument) if WORKERS == 1 else []


class Pool:
    """Runs in the background, as many at a time as this process has processors; equal configurations run once."""

    def __init__(self, workers=None, begin=forks.run):
        self._begin = begin
        self._executor = concurrent.futures.ThreadPoolExecutor(workers or max(1, os.cpu_count() // WORKERS))
        self._futures = {}

    def start(self, model, repetition=0, **options):
        """A future of the record; repetition distinguishes runs of the same configuration."""
        key = (model, repetition, tuple(sorted(options.items())))
        if key not in self._futures:
            self._futures[key] = self._executor.submit(run, model, begin=self._begin, **options)
        return self._futures[key]

    def close(self):
        self._executor.shutdown(cancel_futures=True)
