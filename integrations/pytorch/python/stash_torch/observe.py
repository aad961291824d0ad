# SPDX-License-Identifier: Apache-2.0
"""Two ways to see autograd's nodes as they are made, each a context in which `created` is called with every new node of
this thread: a hook of torch 2.14 and newer, and for older releases the functions that a program calls."""

import torch
from torch.overrides import TorchFunctionMode

from .step import hooked_by_others, saved

# In place these save a copy of their input, whose node nobody else knows.
COPYING = frozenset({"HardsigmoidBackward0", "HardswishBackward0", "MishBackward0", "SiluBackward0"})
HOOK = getattr(torch.autograd.graph, "node_creation_hook", None)


def observer(created):
    return HOOK(created) if HOOK is not None else Functions(created)


class Functions(TorchFunctionMode):
    """Looks for new nodes from the results of every function of torch that Python calls, in the order in which they were
    made. What a function of C++ makes (torch's recurrent layers, a custom function) is found from the next result."""

    def __init__(self, created):
        super().__init__()
        self.created, self.latest = created, None

    def __enter__(self):
        """What was made before is no part of a step."""
        with torch.inference_mode(False), torch.enable_grad():
            self.latest = torch.zeros((), device="cpu", requires_grad=True).neg().grad_fn._sequence_nr()
        return super().__enter__()

    def __torch_function__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        if torch.compiler.is_compiling():  # dynamo reads this function, too
            return result
        if isinstance(result, torch.Tensor):
            self._look(result)
        elif isinstance(result, (tuple, list)):
            for each in result:
                if isinstance(each, torch.Tensor):
                    self._look(each)
        return result

    def _look(self, tensor):
        """A copy that an op in place has saved comes before that op, though autograd numbers it later."""
        stack, found = [(tensor.grad_fn, 0)] if tensor.requires_grad else [], {}
        while stack:
            node, earlier = stack.pop()
            if node is None or type(node).__name__ == "AccumulateGrad":
                continue
            number = node._sequence_nr()
            if number <= self.latest or number in found:
                continue
            found[number] = (earlier or number, number, node)
            stack.extend((other, 0) for other, _ in node.next_functions)
            if type(node).__name__ in COPYING and not hooked_by_others():
                stack.append((saved(node, "self").grad_fn, number - 0.5))
        self.latest = max(found, default=self.latest)
        for _, _, node in sorted(found.values(), key=lambda each: each[:2]):
            self.created(node)
