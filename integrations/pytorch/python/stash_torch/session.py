# SPDX-License-Identifier: Apache-2.0
"""What a user holds: watches the steps of a thread, records the first of each kind and replays the others."""

import collections
import contextlib
import logging

import torch

from . import checks, library
from .choose import Chooser
from .compose import MOST_OPS
from .fit import Fit, budget_bytes
from .levels import FORMATS, formats_of
from .measure import Measure
from .observe import observer
from .picture import draw
from .planner import save
from .replay import Deviation, Replay
from .report import report_of
from .step import Recorder, is_transformed
from .swap import Mover, groups_ahead
from .swapper import engine_of
from .trials import Trials

log = logging.getLogger("stash_torch")
MOST_PLANS = 16
MOST_NODES = 20_000  # of a step: a program that builds graphs and never walks them does not fill memory with records
TRIES = 4  # steps to record after a deviation


class Session(contextlib.ContextDecorator):
    """See compress()."""

    def __init__(self, model, policy="lossless", budget=None, values=FORMATS, swap=False, recompute="cheap"):
        modules = list(model) if isinstance(model, (list, tuple)) else [model]
        if not modules or not all(isinstance(each, torch.nn.Module) for each in modules):
            raise TypeError(f"compress: model: expected a torch.nn.Module or several, got {type(model).__name__}")
        if recompute not in MOST_OPS:
            raise ValueError(f"compress: recompute: expected one of {', '.join(MOST_OPS)}, got {recompute!r}")
        self.models, self.policy, self.formats = modules, policy, formats_of(policy, values)
        self.budget, self.ahead, self.recompute = budget_bytes(budget), groups_ahead(swap), recompute
        self.mover, self.stays = None, ""  # why nothing moves to the host
        self.plans = []
        self.active = None
        self.counts = collections.Counter()
        self.measures = True  # steps, and fits plans to their memory; else all is kept in as few bytes as can be
        self._hook, self.measure = None, Measure(self)
        self.trials = Trials(self._tried)
        self._forget()
        self.looking = 0  # steps that will still be recorded to find a new plan
        self.missed, self.patience = 0, 1

    # ---- on and off

    def __enter__(self):
        if self._hook is not None:
            raise RuntimeError("compress: expected a session that is not entered, got one that is")
        self.disabled, self.ending = checks.disabled(), False
        if self.ahead and self.mover is None:
            self._prepare_moves()
        self._hook = observer(self._created)
        self._hook.__enter__()
        self.measure.enter()
        return self

    def __exit__(self, *what):
        hook, self._hook = self._hook, None
        self.ending = False
        if self.measure.is_own_thread():  # else it has ended, and its hooks with it
            hook.__exit__(*what)
        self.measure.exit()
        self._forget()
        if what[0] is None:
            library.check_reports()

    def close(self):
        """Ends what enable() began. Slots that hold entries stay readable. In another thread than that of enable(): from now
        on nothing more is done for the steps of that thread, and it ends the measuring when it next calls a module or an
        optimizer. If it has ended, the session ends at once."""
        if self._hook is None:
            return
        if self.measure.is_own_thread() or not self.measure.thread.is_alive():
            self.__exit__(None, None, None)
        else:
            self.ending = True

    def _prepare_moves(self):
        if self.budget is None:
            self.stays = "there is no budget"
            return
        device = self.measure.device()
        try:
            engine = engine_of(device)
            self.stays = "" if engine is not None else "tensors are in the host's memory already"
        except library.Error as error:
            engine, self.stays = None, str(error)
        self.mover = Mover(engine, self.ahead) if engine is not None else None

    # ---- one forward pass after the other

    def _forget(self):
        if self.mover is not None:
            self.mover.settle()
        self.position, self.replay, self.recorder, self.active = 0, None, None, None
        self.learned = None  # the plan that this step has given
        self.untouched = []  # nodes of a replayed step of which nothing was replaced yet
        self.raw = self.begun = False
        self.forward = object()  # this forward pass: hooks of an earlier one may still run

    def _created(self, node):
        if (type(node).__name__ == "AccumulateGrad" or torch.compiler.is_compiling() or torch.jit.is_tracing()
                or torch._C._current_graph_task_id() != -1 or self.ending or is_transformed()):
            return
        if self.begun:  # the forward pass before this one has been read
            self.measure.spoil()
            self._forget()
        try:
            if self.position == 0:
                self._begin()
            self.measure.mark(node, self.position)
            if self.recorder is not None:
                self._observe(node)
            elif self.raw:
                self._watch(node)
            else:
                self._follow(node)
        except Exception:  # the step goes on without Stash
            self.counts["failures"] += 1
            log.warning("failed at a node of class %s; the rest of the step runs as without Stash", type(node).__name__,
                        exc_info=True)
            self.raw, self.recorder = True, None
            self._watch(node)
        self.position += 1

    def _begin(self):
        if not self.plans or self.looking:
            self.recorder = Recorder(self.trials)
        else:
            self.replay, self.active = Replay(self), self.plans[0]
        self.measure.begin()

    def _observe(self, node):
        if len(self.recorder.nodes) == MOST_NODES:
            self.counts["forward passes without end"] += 1
            self.raw, self.recorder = True, None
            return self._watch(node)
        self.recorder.add(node)
        recorder = self.recorder
        node.register_prehook(lambda gradients: self._backward(recorder))
        self.trials.watch(node)

    def _tried(self, entry):
        """Plans know something else of this (node class, slot): the next steps of their kind are recorded again."""
        before = len(self.plans)
        self.plans = [plan for plan in self.plans if not any(
            node.name == entry[0] and node.slot(entry[1]) is not None for node in plan.nodes)]
        if len(self.plans) < before:
            self.looking = max(1, self.looking)

    def _follow(self, node):
        if not (self._goes_on(node, self.active) or self._goes_on_elsewhere(node)):
            self._deviate(node)

    def _goes_on(self, node, plan):
        if self.position >= len(plan.work):
            return False
        try:
            self.replay.node(self.position, node, plan.work[self.position])
        except Deviation:
            return False
        if self.replay.touched:
            self.untouched = []
        else:
            self.untouched.append(node)
        if self.position + 1 == len(plan.work):
            self._watch(node)
        return True

    def _goes_on_elsewhere(self, node):
        """Another plan that begins as this step does takes over."""
        begun, before = self.active, [*self.untouched, node]
        for plan in self.plans:
            if plan is begun:
                continue
            self.active = plan
            if self.replay.touched:
                if self.replay.fits(begun, plan, self.position) and self._goes_on(node, plan):
                    return True
            elif self._from_the_start(before, plan):
                return True
        self.active = begun
        return False

    def _from_the_start(self, nodes, plan):
        self.replay, self.untouched, end = Replay(self), [], self.position
        for self.position, each in enumerate(nodes):
            if not self._goes_on(each, plan):
                break
        else:
            return True
        if self.replay.touched:  # of this plan some nodes have been taken: the rest stays raw
            self.position = end
            self._leave_raw(nodes[-1])
            return True
        self.position, self.untouched = end, nodes[:-1]
        return False

    def _deviate(self, node):
        if not self.replay.touched:  # nothing is lost: this step can be recorded
            self.recorder, self.replay = Recorder(self.trials), None
            for each in [*self.untouched, node]:
                self._observe(each)
            self.untouched = []
        else:
            self._leave_raw(node)

    def _leave_raw(self, node):
        self.counts["deviations"] += 1
        self.replay.let_go()
        log.info("step deviates from its plan at node %d (%s)", self.position, type(node).__name__)
        self.raw = True
        self._watch(node)
        self.missed += 1
        if self.missed >= self.patience:
            self.missed, self.looking = 0, TRIES

    def _watch(self, node):
        forward = self.forward
        node.register_prehook(lambda gradients: self.begin_backward(forward))

    def begin_backward(self, forward):
        """Backward begins, of a forward pass that was not recorded."""
        if forward is not self.forward or self.begun:
            return
        self.begun = True
        if self.mover is not None:
            self.mover.settle()
        if self.replay is not None:
            self.replay.let_go()
        self.counts["raw steps" if self.raw else "steps"] += 1
        if not self.raw:
            self.active.steps += 1
            self.patience = 1
            self._use_first(self.active)

    def _use_first(self, plan):
        self.plans.remove(plan)
        self.plans.insert(0, plan)

    def _backward(self, recorder):
        """Backward begins: everything that it will read is there."""
        if recorder is not self.recorder or self.begun:
            return
        self.begun, self.recorder = True, None
        self.counts["recorded steps"] += 1
        self.measure.planning("planning")
        self._plan(recorder)
        self.measure.planning("planned")

    def _plan(self, recorder):
        if recorder.of_others:
            self.counts["slots with hooks of others"] += recorder.of_others
        protected = {each.untyped_storage()._cdata for model in self.models
                     for each in [*model.parameters(), *model.buffers()]}
        try:
            with torch.no_grad():
                library.check_reports()
                recorder.attach(torch._C._current_autograd_node())
                plan = Chooser(recorder, protected, self.policy, self.formats, self.disabled, self.recompute).plan()
            with contextlib.suppress(library.Error):  # forms have been judged by what they gave back
                library.check_reports()
        except Exception:  # a step that cannot be planned is still a step: it goes on, and so do the next ones
            self.counts["steps that could not be planned"] += 1
            log.warning("this step was not planned, and runs as without Stash", exc_info=True)
            return
        self._learn(plan)
        log.info("plan %d: %d nodes, saved tensors %d -> %d bytes", len(self.plans), len(plan.nodes), plan.before,
                 plan.after)

    def _learn(self, plan):
        """Steps that look alike at first are told apart by recording some more; those that never repeat are recorded
        more and more seldom."""
        known = next((each for each in self.plans if _same(each, plan)), None)
        if known is not None:
            known.steps += 1
            self._use_first(known)
            self.looking = max(0, self.looking - 1)
            if self.looking == 0:
                self.patience = min(1024, 2 * self.patience)
            return
        ahead = self.ahead if self.mover is not None else 0
        self.learned, plan.fit, plan.steps = plan, Fit(plan, self.budget, ahead), 1
        self.looking, self.patience = 0, min(1024, 2 * self.patience) if self.plans else 1
        self.plans.insert(0, plan)
        del self.plans[MOST_PLANS:]

    # ---- what the user sees

    def usual_plan(self):
        """That of the kind of step of which there were the most; of several the one that saved the most. The last batch of an
        epoch often has another size than the others."""
        return max(self.plans, key=lambda plan: (plan.steps, plan.before))

    def report(self):
        """A text: what the usual plan keeps of every storage, and how many steps followed a plan."""
        return report_of(self)

    def save(self, path):
        """Writes the recorded step of the usual plan for the project's own commands: a training graph to PATH with the suffix
        .graph.json, and to PATH the plan that the project's planner makes of it under this policy. ValueError before a
        step was recorded; OSError if a file cannot be written."""
        if not self.plans:
            raise ValueError("save: expected a session in which a step was recorded, got one without any")
        save(self.usual_plan(), path)

    def timeline(self, path):
        """Draws memory over a step, plain and under the usual plan, into an SVG file. Both are measured in the first
        steps of a plan; ValueError before that."""
        fit = self.usual_plan().fit if self.plans else None
        if fit is None or fit.plain is None or fit.timeline is None:
            raise ValueError("timeline: expected a session in which steps followed a plan, got one without any that was "
                             "measured")
        draw(path, fit.plain, fit.timeline, self.policy)


def _signature(node):
    return node.name, node.edges, tuple((slot.name, slot.shape, slot.stride, slot.dtype) for slot in node.slots)


def _same(first, second):
    return [_signature(node) for node in first.nodes] == [_signature(node) for node in second.nodes]
