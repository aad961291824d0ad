# SPDX-License-Identifier: Apache-2.0
"""When a session's steps are measured, and when a budget is refused.

Torch's profiler does not bear to be begun or ended within an op. So a step is watched from the call of a module on, and
until an optimizer has done its step or the next module is called. Programs without modules are not measured.
"""

import threading

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from .fit import BudgetError
from .watch import Watch

MOST_MOMENTS = 50_000  # of one watch: all events of torch's profiler stay in memory until it ends
SPOILED = 7  # steps for which one counts that was watched in vain


class Measure:
    def __init__(self, session):
        self.session = session
        self.watch = None
        self.entry = None  # what this step began with: the last module that was called before its first op, and shapes

    def enter(self):
        self.thread = threading.current_thread()
        self.hooks = [register_optimizer_step_post_hook(self._updated),
                      register_module_forward_pre_hook(self._module_begins)]

    def is_own_thread(self):
        """Hooks and the profiler are of one thread."""
        return threading.current_thread() is self.thread

    def exit(self):
        for each in self.hooks:
            each.remove()
        if self.is_own_thread():
            self._stop()
        elif self.watch is not None:
            watch, self.watch = self.watch, None
            watch.abandon()

    def _is_between_steps(self):
        return ((self.session.begun or self.session.position == 0) and self.is_own_thread()
                and torch._C._current_graph_task_id() == -1)

    def _module_begins(self, module, inputs):
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or self._ends():
            return
        if self.watch is not None and len(self.watch.moments) >= MOST_MOMENTS and self.is_own_thread():
            self.watch.spoiled = True  # forward passes that no backward pass follows
            self._stop()
        if not self._is_between_steps():
            return
        if self.watch is not None and self.watch.moments:
            self._stop()
        if not torch.is_grad_enabled():
            return
        self.entry = (id(module), tuple(_shape_of(each) for each in inputs if isinstance(each, torch.Tensor)))
        refused = next((plan.fit for plan in self.session.plans if plan.fit.refused and plan.fit.entry == self.entry), None)
        if refused is not None:
            raise BudgetError(refused.word())
        if self.watch is None and self.wanted():
            self.watch = Watch.begin(self.device())

    def _ends(self):
        """Whether another thread has closed the session; what was begun in this one ends here."""
        if self.session.ending and self.is_own_thread() and torch._C._current_graph_task_id() == -1:
            self.session.close()
            return True
        return self.session.ending

    def device(self):
        parameters = (each for model in self.session.models for each in model.parameters())
        return next((each.device for each in parameters), torch.device("cpu"))

    def wanted(self):
        """Whether the next step is to be measured."""
        session = self.session
        if not session.measures:
            return False
        return not session.plans or session.looking > 0 or any(plan.fit.unsettled for plan in session.plans)

    def begin(self):
        """The first node of a step."""
        if self.wanted():
            for plan in self.session.plans:
                plan.fit.look()
            if self.watch is None:
                self.session.counts["steps that were not measured"] += 1

    def spoil(self):
        """Another step has begun without a module: what is watched is no longer one step."""
        if self.watch is not None and self.watch.moments:
            self.watch.spoiled = True

    def mark(self, node, position):
        watch = self.watch
        if watch is None or watch.spoiled:
            return
        watch.mark("forward", position)
        node.register_prehook(lambda gradients: self._mark_backward(watch, position))

    def _mark_backward(self, watch, position):
        if watch is not self.watch or watch.spoiled:
            return
        if watch.moments[-1][0] == "forward":
            torch.autograd.Variable._execution_engine.queue_callback(lambda: watch.mark("after", 0))
        watch.mark("backward", position)

    def planning(self, kind):
        if self.watch is not None:
            self.watch.mark(kind, 0)

    def see(self, key, tensor):
        if self.watch is not None:
            self.watch.see(key, tensor)

    def _updated(self, *_):
        """An optimizer has done a step, in whatever thread."""
        if self._ends():
            return
        if self.watch is not None and self.session.begun and self._is_between_steps():
            self._stop(updated=True)

    def _stop(self, updated=False):
        """What comes after the backward pass is part of the step if an optimizer has just ended it."""
        watch, self.watch = self.watch, None
        if watch is None:
            return
        timeline = watch.stop(without=("planning",) if updated else ("planning", "after"))
        session = self.session
        if watch.spoiled or not timeline.moments:
            for plan in session.plans:
                plan.fit.look(SPOILED)
            return
        if session.learned is not None:
            session.learned.fit.plain, session.learned.fit.entry = timeline, self.entry
        elif session.begun and not session.raw and session.replay is not None and session.position == len(session.active.work):
            session.active.fit.measured(timeline)


def _shape_of(tensor):
    return None if tensor.is_nested else tensor.shape
