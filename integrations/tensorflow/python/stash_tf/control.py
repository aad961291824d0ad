# SPDX-License-Identifier: Apache-2.0
"""Switching Stash on and off."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops as framework_ops

from . import diagnosis, hooks, in_force, keras_jit, settings
from .errors import StashError, expected
from .library import Library, load
from .reporting import report
from .session import Plans, Session

_lock = threading.RLock()
_plans = Plans()
_plugin_open = False


def enable(
    policy: str = "lossless",
    *,
    budget: int | str | None = None,
    swap: bool = False,
    recompute: bool | str = True,
    keep: Sequence[str] = (),
    values: Sequence[str] = settings.VALUES,
    batch: int | None = None,
    min_bytes: int | str = 4096,
    strict: bool = False,
    replan: bool = True,
    hook: str = "config",
) -> None:
    """Every training function that runs from now on keeps only what its backward pass needs.

    policy: "lossless" (training stays the same bit by bit), "fp16", "fp10", "fp8" (values that are needed again
        are kept in that format), "auto" (as little loss as the budget allows), "none".
    budget: bytes that a step may take at its peak, or a text as "400 MiB"; None: the smallest peak of the
        policy.
    swap: on a GPU, tensors may move to the host and come back: where encodings do not keep the budget, or, without
        one, where the smallest peak of the policy is more than the device has. On a CPU nothing moves.
    recompute: the backward pass computes again what cheap element-wise ops (norms' scale and shift, activations, additions)
        make of maps that are kept. Under "lossless" every bit of the step stays the same; under the policies that round,
        such a map keeps 16 bits. "all": what convolutions, matrix products, norms and reductions make, too: less memory,
        more time.
    keep: names of layers whose tensors stay as they are.
    values: policy auto: narrower formats that it may use, the most precise first.
    batch: samples per step, where the graph does not say; None: found by running a step.
    min_bytes: smaller tensors stay as they are.
    strict: raise StashError if a training function ran and nothing was rewritten. Found out by the first calls
        of functions (the 5th at the earliest), by check(), and at the end of `with enabled(strict=True)`.
    replan: plan once more, at most three times, when the first steps have shown the batch and the densities; and as
        often once there are new functions.
    hook: "config": all functions, also those that ran before. "plugin": without private parts of TensorFlow's
        Python; functions that ran before are not affected, and those rewritten stay so after disable().

    A second call replaces the settings of the first. report() starts anew. What TensorFlow has optimized under equal
    settings before is used again.
    """
    wishes = settings.checked(policy, budget, batch, keep, swap, min_bytes, values, recompute)
    for name, value in (("strict", strict), ("replan", replan)):
        if not isinstance(value, bool):
            raise expected("enable", name, "True or False", value)
    if hook not in settings.HOOKS:
        raise expected("enable", "hook", "one of " + ", ".join(settings.HOOKS), hook)
    _check_mode()
    library = load()
    with _lock:
        replan = replan and hook == "config"
        _use(Session(library, wishes, hook, strict=strict, replan=replan, plans=_plans))


def disable() -> None:
    """Functions run plain again. With the hook "plugin" only those that are instantiated from now on."""
    with _lock:
        _use(None)


@contextlib.contextmanager
def enabled(policy: str = "lossless", **options: Any) -> Iterator[None]:
    """enable() for the length of a `with` block; what was on before is on again afterwards."""
    with _lock:
        before = in_force.current()
        enable(policy, **options)
        mine = in_force.current()
    try:
        yield
        if mine is not None and mine.strict:
            check()
    finally:
        with _lock:
            _use(before)


def is_enabled() -> bool:
    """Whether Stash is on."""
    return in_force.current() is not None


def check() -> None:
    """Raises StashError, with the reasons, if no rewritten training function has run since enable().

    A step that keeps its budget without is fine.
    """
    found = report()
    kept = diagnosis.within_budget(found.graphs) and not diagnosis.budget_doubts(found.graphs, found.counters)
    if not found.rewritten and not kept:
        raise StashError(" ".join(found.explanations) or "nothing was rewritten")


def _use(session: Session | None) -> None:
    """Makes `session` the one in force. Called with the lock held."""
    global _plugin_open
    before = in_force.current()
    if session is not None and session.hook == "plugin":
        hooks.close_config()
        hooks.open_plugin(session.library, session.settings_json)
        _plugin_open = True
    else:
        if _plugin_open and before is not None:
            _silence_plugin(before.library)
        if session is None:
            hooks.close_config()
        else:
            hooks.open_config(session.config_for_call)
    keras_jit.set_on(session is not None)
    in_force.put(session)


def _silence_plugin(library: Library) -> None:
    idle = settings.Settings(policy="none")
    library.configure(idle.to_json(_plans.generation(idle)))


def _check_mode() -> None:
    if tf.inside_function():
        raise StashError("enable: call it outside of tf.function")
    if not framework_ops.executing_eagerly_outside_functions():
        raise StashError(
            "enable: TensorFlow 1 graphs and sessions are not supported; "
            "do not call tf.compat.v1.disable_eager_execution() or disable_v2_behavior()"
        )
