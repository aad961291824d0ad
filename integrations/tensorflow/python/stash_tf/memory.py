# SPDX-License-Identifier: Apache-2.0
"""What a step really allocates: the profiler's memory events, every allocation and release by the byte.

    stash_tf.peak_bytes(train_step, x, y)          # bytes at the peak of one call
    stash_tf.timeline(train_step, x, y).table()    # which tensors are alive there
    with stash_tf.memory.record() as r:
        model.fit(...)
    print(r.peak)

TensorFlow reports these events where a BFC allocator serves the device: on GPUs; on CPUs with oneDNN on
(TF_ENABLE_ONEDNN_OPTS=1) or with TF_CPU_ALLOCATOR_USE_BFC=true, each set before TensorFlow is imported. With
oneDNN on, tensors below 256 KiB come from another allocator and are not seen.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from . import in_force
from .errors import StashError
from .events import Event, parse
from .timelines import Timeline

WARM_UP = 2
MOST_TRIES = 4

_last = {"plain": 0, "stash": 0}


def peak_bytes(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Most bytes that one call of fn has allocated at a time; what was alive before the call does not count.

    fn runs three times or more: the first calls trace it and let Stash measure the batch.
    """
    return timeline(fn, *args, **kwargs).peak


def timeline(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Timeline:
    """The memory of one call of fn over time. fn runs three times or more, as for peak_bytes()."""
    for _ in range(WARM_UP):
        fn(*args, **kwargs)
    for _ in range(MOST_TRIES):
        before = _plan()
        with record() as recording:
            result = fn(*args, **kwargs)
            tf.test.experimental.sync_devices()
        del result
        if _plan() == before:
            break
    return recording


@contextlib.contextmanager
def record() -> Iterator[Timeline]:
    """Records the memory of everything that runs inside; the Timeline is filled when the block ends."""
    found = Timeline([])
    session = in_force.current()
    with _profile() as events:
        yield found
    if not events:
        with _profile() as probe:
            tf.random.stateless_uniform([1 << 16], seed=(1, 2))
        if not probe:
            raise StashError(
                "memory: TensorFlow's CPU allocator reports nothing here; set TF_CPU_ALLOCATOR_USE_BFC=true "
                "(or TF_ENABLE_ONEDNN_OPTS=1) in the environment before TensorFlow is imported"
            )
    found.fill(events)
    on = session is not None and session.settings.policy != "none"
    _last["stash" if on else "plain"] = found.peak


def last_peaks() -> tuple[int, int]:
    """Peaks of the last recordings without and with Stash; 0 where there was none."""
    return _last["plain"], _last["stash"]


def _plan() -> str:
    session = in_force.current()
    return session.settings_json if session else ""


@contextlib.contextmanager
def _profile() -> Iterator[list[Event]]:
    """The memory events of what runs inside, in order of time; filled at the end."""
    events: list[Event] = []
    profiler = tf.profiler.experimental
    options = profiler.ProfilerOptions(host_tracer_level=3, python_tracer_level=0, device_tracer_level=0)
    with tempfile.TemporaryDirectory(prefix="stash_tf_") as folder:
        try:
            profiler.start(folder, options)
        except tf.errors.AlreadyExistsError as error:
            raise StashError("memory: another profiler is running in this process: end it first") from error
        try:
            yield events
        finally:
            profiler.stop()
        for file in sorted(Path(folder).rglob("*.xplane.pb")):
            events += parse(file.read_bytes())
    events.sort(key=lambda event: event.time)
