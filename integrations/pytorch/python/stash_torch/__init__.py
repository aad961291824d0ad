# SPDX-License-Identifier: Apache-2.0
"""Keeps only what the backward pass needs of feature maps, in PyTorch.

    import stash_torch

    with stash_torch.compress(model) as session:
        for x, target in loader:
            ...the training loop, unchanged...
    print(session.report())
"""

import torch

# These are torch's own affair, and one of them may go with any release.
_missing = [name for owner, name in [
    (torch._C, "_current_autograd_node"), (torch._C, "_current_graph_task_id"),
    (torch._C._autograd, "_top_saved_tensors_default_hooks")] if not hasattr(owner, name)]
if _missing:
    raise ImportError(f"stash_torch: torch: expected a version from 2.11 to 2.15, got {torch.__version__} without "
                      + ", ".join(_missing))

from .fit import BudgetError  # noqa: E402
from .levels import FORMATS  # noqa: E402
from .registered import register_need  # noqa: E402
from .session import Session  # noqa: E402

__version__ = "0.1.0"
__all__ = ["BudgetError", "Session", "compress", "enable", "register_need"]


def compress(model, policy="lossless", budget=None, values=FORMATS, swap=False, recompute="cheap"):
    """A context in which training steps of this thread keep less for their backward pass.

    model: a module, or several; their parameters and buffers are never touched.
    policy: "lossless" (every gradient keeps its bits), or "fp16", "bf16", "fp10", "fp8": values that only weigh in sums
    are kept in that format, if they fit into it. "auto": with a budget as lossless where that keeps it; else values are
    rounded to one narrower format after the other, as few bytes as the budget requires. Without a budget: the smallest.
    budget: bytes, or a text as "6 GiB", for the peak of a step: on a GPU of all that is allocated there, on a CPU of what
    the step allocates. Tensors then stay as they are where that keeps the budget. If the smallest peak of the policy is
    above it, a later step of that kind raises BudgetError before it begins, with the budget that would do.
    values: the formats that "auto" may use, the most precise first.
    swap: True: on a GPU, what is still too large for the budget moves to the host's pinned memory, already encoded, and returns
    before it is read. A number: how many tensors may be on their way at a time (2 unless said). Nothing moves without a budget,
    or on a CPU.
    recompute: what may run again in the backward pass: "cheap" ops (norms, activations and the like), "all" (convolutions,
    matrix products and attention, too: less memory, more time), or "none".

    The first step of each kind (sequence of ops, shapes) is recorded and runs as without Stash. Returns a Session, which
    is a context manager, also a decorator.
    """
    return Session(model, policy, budget, values, swap, recompute)


def enable(model, policy="lossless", budget=None, values=FORMATS, swap=False, recompute="cheap"):
    """compress() without a block: ends with close() of the session that it returns."""
    return Session(model, policy, budget, values, swap, recompute).__enter__()
