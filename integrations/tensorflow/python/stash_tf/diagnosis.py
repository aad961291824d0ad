# SPDX-License-Identifier: Apache-2.0
"""Why nothing, or less than expected, was rewritten: one clear text for each cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from . import replanning
from .replanning import BATCH, larger_batch, measured_batch

Entry = Mapping[str, Any]
AS_IT_IS = ("", "raw")
RESERVE = 0.05  # of a budget, which plans leave where they can

OFF = "Stash is off: call stash_tf.enable() before training."
NONE = 'The policy is "none": nothing is rewritten.'
EAGER = (
    "Functions run eagerly (tf.config.run_functions_eagerly(True)), so there is no graph to rewrite: "
    "switch that off."
)
NO_CALL = (
    "No tf.function has run since enable(): nothing was trained yet, or training is eager. Compile the model "
    "without run_eagerly=True, put a step of your own into a tf.function."
)
NO_GRAPH = "TensorFlow's graph optimizer has seen no graph since enable()."
META_OFF = 'Graph optimizers are switched off ("disable_meta_optimizer": True): leave them on.'
XLA = (
    "XLA compiles {names}, and graph optimizers never see what XLA compiles: drop jit_compile=True."
)
PLUGIN = (
    'With hook="plugin" functions that ran before enable() are not rewritten: enable first, or hook="config".'
)
NO_TRAINING = "The graphs seen since enable() are not of training steps: {reasons}."
NO_BACKWARD = "no backward pass"  # the optimizer's reason
NOT_REWRITTEN = "A training graph was seen but not rewritten: {reasons}."
REFUSED = "A training step was refused: {reasons}."
WITHIN = "The step keeps its budget: no tensor had to be stored in another form."
TIGHT = (
    "The plan is for {predicted} bytes at the peak, and peaks are foretold to about 5 %: the budget of {budget} bytes may "
    "not be kept."
)
UNKNOWN_LAYERS = "keep: no layer of the steps seen is called {names}."
OVER_BUDGET = (
    "With what the first steps have shown about the data, {word}. Training goes on with the smallest peak."
)
OUTGROWN = (
    "A step had {seen} samples, and the plan is for {planned}: the budget of {budget} bytes may not be kept. "
    "Give the largest batch as batch=."
)
UNPLANNED = (
    "How many samples a step has was not known when it was planned, so nothing was done to keep the budget of "
    "{budget} bytes. Give the largest batch as batch=."
)
LOOPS = (
    "The step has loops that keep tensors in lists, and nothing says how often they run or how large these tensors "
    "are: predicted peaks count only a part of them, and the budget of {budget} bytes may not be kept."
)
SIZES = (
    "How much memory {name}{others} takes is not known before the step runs: predicted peaks count nothing for it, and "
    "the budget of {budget} bytes may not be kept."
)
MISFIT = (
    "Values of {tensor}{others} do not suit {form}: storing them changes them by {change}, and with them the "
    "gradients of the weights that read them. Scale the inputs, use norms, a format with a wider range, or name the "
    "layers in keep=."
)
FELL_BACK = (
    "Graphs were rewritten, but none of the kernels has run: TensorFlow went back to the unoptimised graph "
    "(its log on stderr says why), or the step has not run to its end yet."
)


def explain(
    *,
    policy: str | None,
    hook: str,
    calls: int,
    graphs: Sequence[Entry],
    counters: Sequence[Entry],
) -> list[str]:
    """The causes, the first one first; empty if kernels ran on everything that was rewritten."""
    if policy is None:
        return [] if _executions(counters) else [OFF]
    if policy == "none":
        return [NONE]
    doubts = budget_doubts(graphs, counters) + lists_in_loops(graphs) + unknown_sizes(graphs) + tight_budget(graphs)
    words = moves(graphs) + over_budget(graphs) + doubts + misfits(graphs, counters) + unknown_layers(graphs)
    if any(graph["rewritten"] for graph in graphs):
        doubt = evidence(graphs, counters) or (WITHIN if within_budget(graphs) and not doubts else "")
        # Graphs of functions that were rewritten before stay known, also where this hook does not come to them.
        first = [PLUGIN] if hook == "plugin" and doubt == FELL_BACK else []
        return first + ([doubt] if doubt else []) + words
    found = []
    if tf.config.functions_run_eagerly():
        found.append(EAGER)
    elif hook == "config" and calls == 0:
        found.append(NO_CALL)
    if tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer"):
        found.append(META_OFF)
    if names := compiled_functions():
        found.append(XLA.format(names=", ".join(names[:3]) + (" and others" if len(names) > 3 else "")))
    if text := _seen(graphs):
        found.append(text)
    elif not found:
        found.append(NO_GRAPH)
    if hook == "plugin":
        found.append(PLUGIN)
    return found + words


def moves(graphs: Iterable[Entry]) -> list[str]:
    """What became of swap=True: one sentence, that of the newest step."""
    words = [graph["swap"] for graph in graphs if graph.get("swap")]
    return [f"Swap: {words[-1]}."] if words else []


def budget_state(graph: Entry) -> str:
    """What is known of one step's budget; whatever is said of it follows from this. "none": it has no budget, "refused",
    "exceeded": the data turned out to need more than it, "unknown": what loops or data take is not known beforehand,
    "tight": it is nearer to the plan than peaks are foretold, "kept"."""
    budget = graph.get("budget_bytes", 0)
    if not budget:
        return "none"
    if graph.get("reason"):
        return "refused"
    if graph.get("budget"):
        return "exceeded"
    if graph.get("lists_in_loops") or graph.get("unknown_sizes"):
        return "unknown"
    return "tight" if graph.get("predicted_peak_bytes", 0) > budget * (1 - RESERVE) else "kept"


def over_budget(graphs: Iterable[Entry]) -> list[str]:
    """That the data turned out to need more than the budget: one sentence, for the newest step that says so."""
    words = [graph["budget"] for graph in graphs if budget_state(graph) == "exceeded"]
    return [OVER_BUDGET.format(word=words[-1])] if words else []


def tight_budget(graphs: Iterable[Entry]) -> list[str]:
    """That a budget is nearer to what the plan takes than predictions are exact: at most one sentence."""
    tight = [graph for graph in graphs if graph["rewritten"] and budget_state(graph) == "tight"]
    return [TIGHT.format(predicted=tight[-1]["predicted_peak_bytes"], budget=tight[-1]["budget_bytes"])] if tight else []


def budget_doubts(graphs: Sequence[Entry], counters: Sequence[Entry]) -> list[str]:
    """That steps ran with more samples than their plan is for, or with a plan for none: at most one sentence."""
    limited = [graph for graph in graphs if graph["rewritten"] and graph.get("budget_bytes")]
    if not limited or any(graph.get("reason") for graph in limited):
        return []
    budget = limited[-1]["budget_bytes"]
    if seen := larger_batch(limited, counters):
        planned = max(graph["batch"] for graph in limited)
        return [OUTGROWN.format(seen=seen, planned=planned, budget=budget)]
    unplanned = [graph for graph in limited if graph.get("batch_open") and not graph["batch"]]
    silent = any(not graph.get("counts_samples") for graph in unplanned)
    return [UNPLANNED.format(budget=budget)] if silent or measured_batch(unplanned, counters) else []


def misfits(graphs: Sequence[Entry], counters: Sequence[Entry]) -> list[str]:
    """That values are too large or too small for the format that they are kept in: at most one sentence."""
    found = replanning.misfits((graph for graph in graphs if graph["rewritten"]), counters)
    if not found:
        return []
    tensor, (form, error) = max(found.items(), key=lambda item: item[1][1])
    others = f" (and of {len(found) - 1} other tensor{'s' * (len(found) > 2)})" if len(found) > 1 else ""
    change = f"{100 * error:.0f} %" if error < 10 else "more than 10 times"
    return [MISFIT.format(tensor=tensor, others=others, form=form, change=change)]


def lists_in_loops(graphs: Iterable[Entry]) -> list[str]:
    """That a budget is for steps with more memory than can be foreseen: at most one sentence."""
    found = [graph for graph in graphs if graph["rewritten"] and graph.get("lists_in_loops")]
    budgets = [graph["budget_bytes"] for graph in found if budget_state(graph) == "unknown"]
    return [LOOPS.format(budget=budgets[-1])] if budgets else []


def unknown_sizes(graphs: Iterable[Entry]) -> list[str]:
    """That a budget is for steps with memory that only their data, or a compiler, tell: at most one sentence."""
    found = [graph for graph in graphs if graph["rewritten"] and graph.get("unknown_sizes")]
    found = [graph for graph in found if budget_state(graph) == "unknown"]
    if not found:
        return []
    graph = found[-1]
    others = " and others" if graph["unknown_sizes"] > 1 else ""
    return [SIZES.format(name=graph["unknown_size"], others=others, budget=graph["budget_bytes"])]


def unknown_layers(graphs: Iterable[Entry]) -> list[str]:
    """Names in keep= that none of the training steps has."""
    unknown = [set(graph.get("unknown_layers", ())) for graph in graphs if trains(graph)]
    names = sorted(set.intersection(*unknown)) if unknown else []
    return [UNKNOWN_LAYERS.format(names=", ".join(names))] if names else []


def evidence(graphs: Sequence[Entry], counters: Sequence[Entry]) -> str:
    """What strict=True raises in the middle of training: only what is certain by then."""
    rewritten = [graph for graph in graphs if graph["rewritten"]]
    if rewritten and not _executions(counters) and not within_budget(graphs) and not only_ordered(graphs):
        reasons = dict.fromkeys(graph["reason"] for graph in rewritten if graph.get("reason"))
        return REFUSED.format(reasons="; ".join(reasons)) if reasons else FELL_BACK
    if rewritten:
        return ""
    return _seen(graphs) if any(map(trains, graphs)) else ""


def within_budget(graphs: Sequence[Entry]) -> bool:
    """Whether there are training steps with a budget, and each keeps it with all tensors as they are."""
    done = [graph for graph in graphs if graph["rewritten"]]
    kept = all(budget_state(graph) in ("kept", "tight", "unknown") for graph in done)
    return bool(done) and kept and all(
        tensor["choice"] in AS_IT_IS for graph in done for tensor in graph.get("tensors", ())
    )


def only_ordered(graphs: Iterable[Entry]) -> bool:
    """Whether all that was done to training steps is that ops wait for others or run again: none of our kernels runs."""
    done = [graph for graph in graphs if graph["rewritten"]]
    return bool(done) and all(graph.get("ordered") for graph in done)


def trains(graph: Entry) -> bool:
    """Whether the optimizer found a backward pass."""
    return bool(graph["rewritten"] or graph.get("tensors") or graph.get("reason") != NO_BACKWARD)


def compiled_functions() -> list[str]:
    """Names of the functions that XLA compiles as a whole."""
    try:
        from tensorflow.python.eager import context

        known = context.context()
        found = []
        for name in sorted(known.list_function_names()):
            if known.get_function_def(name).attr["_XlaMustCompile"].b:
                found.append(name if isinstance(name, str) else name.decode())
        return [_plain(name) for name in found]
    except (ImportError, AttributeError, tf.errors.OpError):
        return []


def _seen(graphs: Sequence[Entry]) -> str:
    training = [graph for graph in graphs if trains(graph)]
    text = NOT_REWRITTEN if training else NO_TRAINING
    reasons = dict.fromkeys(graph.get("reason") or "no reason given" for graph in training or graphs)
    return text.format(reasons="; ".join(reasons)) if graphs else ""


def _executions(counters: Iterable[Entry]) -> int:
    return sum(counter["executions"] for counter in counters if counter["op"] != BATCH)


def _plain(name: str) -> str:
    """The name in the user's program: "step" of "__inference_step_12"."""
    base, _, number = name.removeprefix("__inference_").rpartition("_")
    return base if base and number.isdigit() else name
