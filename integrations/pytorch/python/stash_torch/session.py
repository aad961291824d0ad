# SPDX-License-Identifier: Apache-2.0
"""What a user holds: watches the steps of a thread, records the first of each kind and replays the others."""

import collections
import contextlib
import logging

import torch
from torch.autograd.graph import node_creation_hook

from . import checks
from .choose import Chooser
from .replay import Deviation, Replay
from .report import report_of
from .step import Recorder

log = logging.getLogger("stash_torch")
POLICIES = ("lossless", "fp16", "bf16", "fp10", "fp8")
MOST_PLANS = 16


class Session(contextlib.ContextDecorator):
    """See compress()."""

    def __init__(self, model, policy="lossless"):
        modules = [model] if isinstance(model, torch.nn.Module) else list(model)
        if not all(isinstance(each, torch.nn.Module) for each in modules):
            raise TypeError(f"compress: model: expected a torch.nn.Module or several, got {type(model).__name__}")
        if policy not in POLICIES:
            raise ValueError(f"compress: policy: expected one of {', '.join(POLICIES)}, got {policy!r}")
        self.models, self.policy = modules, policy
        self.plans = []
        self.active = None
        self.counts = collections.Counter()
        self._hook = None
        self._forget()
        self._record_next = False

    # ---- on and off

    def __enter__(self):
        if self._hook is not None:
            raise RuntimeError("compress: expected a session that is not entered, got one that is")
        self.disabled = checks.disabled()
        self._hook = node_creation_hook(self._created)
        self._hook.__enter__()
        return self

    def __exit__(self, *what):
        hook, self._hook = self._hook, None
        hook.__exit__(*what)
        self._forget()

    def close(self):
        """Ends what enable() began. Slots that hold entries stay readable."""
        if self._hook is not None:
            self.__exit__(None, None, None)

    # ---- one forward pass after the other

    def _forget(self):
        self.position, self.replay, self.recorder, self.active = 0, None, None, None
        self.raw = self.begun = False

    def _created(self, node):
        if (type(node).__name__ == "AccumulateGrad" or torch.compiler.is_compiling()
                or torch._C._current_graph_task_id() != -1):
            return
        if self.begun:  # the forward pass before this one has been read
            self._forget()
        if self.position == 0:
            self._begin()
        if self.recorder is not None:
            self._observe(node)
        elif not self.raw:
            self._follow(node)
        self.position += 1

    def _begin(self):
        if not self.plans or self._record_next:
            self.recorder = Recorder()
        else:
            self.replay, self.active = Replay(self), self.plans[0]

    def _observe(self, node):
        self.recorder.add(node)
        recorder = self.recorder
        node.register_prehook(lambda gradients: self._backward(recorder))

    def _follow(self, node):
        for plan in self._candidates():
            self.active = plan
            work = plan.work[self.position]
            try:
                self.replay.node(self.position, node, work)
            except Deviation:
                continue
            if self.position + 1 == len(plan.work):
                node.register_prehook(self._ended)
            return
        self.raw = self._record_next = True
        self.counts["deviations"] += 1
        node.register_prehook(self._ended)
        log.info("step deviates from its plan at node %d (%s): recorded anew", self.position, type(node).__name__)

    def _candidates(self):
        """The plan in use, then others that begin as it does."""
        first, position = self.active, self.position
        for plan in [first, *(each for each in self.plans if each is not first)]:
            if position < len(plan.work) and (plan is first or _common(first, plan, position)):
                yield plan

    def _ended(self, gradients):
        if not self.begun:
            self.begun = True
            self.counts["raw steps" if self.raw else "steps"] += 1
            if not self.raw:
                self.active.uses += 1
                self.plans.remove(self.active)
                self.plans.insert(0, self.active)

    def _backward(self, recorder):
        """Backward begins: everything that it will read is there."""
        if recorder is not self.recorder or self.begun:
            return
        self.begun, self.recorder = True, None
        self.counts["recorded steps"] += 1
        protected = {each.untyped_storage()._cdata for model in self.models
                     for each in [*model.parameters(), *model.buffers()]}
        try:
            with torch.no_grad():
                plan = Chooser(recorder, protected, self.policy, self.disabled).plan()
        except Exception:  # a step that cannot be planned is still a step: it goes on, and so do the next ones
            self.counts["steps that could not be planned"] += 1
            self._record_next = self.counts["steps that could not be planned"] < MOST_PLANS
            log.warning("this step was not planned, and runs as without Stash", exc_info=True)
            return
        known = next((each for each in self.plans if _same(each, plan)), None)
        if known is None:
            self.plans.insert(0, plan)
            del self.plans[MOST_PLANS:]
        else:
            self.plans.remove(known)
            self.plans.insert(0, known)
        self._record_next = False
        log.info("plan %d: %d nodes, saved tensors %d -> %d bytes", len(self.plans), len(plan.nodes), plan.before,
                 plan.after)

    # ---- what the user sees

    def report(self):
        """A text: what the last plan keeps of every storage, and how many steps followed a plan."""
        return report_of(self)


def _signature(node):
    return node.name, node.edges, tuple((slot.name, slot.shape, slot.stride, slot.dtype) for slot in node.slots)


def _common(first, second, position):
    return all(_signature(a) == _signature(b) for a, b in zip(first.nodes[:position], second.nodes[:position]))


def _same(first, second):
    return len(first.nodes) == len(second.nodes) and _common(first, second, len(first.nodes))
