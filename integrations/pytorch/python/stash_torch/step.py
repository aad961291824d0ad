# SPDX-License-Identifier: Apache-2.0
"""One recorded forward pass: autograd's nodes in the order of creation, and what they saved.

Only `record` reads nodes. The rest of the package works on what it returns.
"""

from dataclasses import dataclass, field

import torch

from . import needs, registered

PREFIX = "_saved_"
_slots = {}


def saved(node, name):
    """What a node keeps under this name: a tensor, or a number, tuple or text. "indices.1" is one of a tuple."""
    position = registered.position_of(name)
    if position is None and "." in name:
        name, place = name.split(".")
        return getattr(node, PREFIX + name)[int(place)]
    return getattr(node, PREFIX + name) if position is None else node.saved_tensors[position]


def raw_slot(node, name):
    """The slot itself, on which hooks are registered."""
    position = registered.position_of(name)
    return getattr(node, "_raw_saved_" + name) if position is None else node._raw_saved_tensors[position]


def slots_of(node):
    """Names of the slots of a node that hold one tensor each."""
    kind = type(node)
    names = _slots.get(kind)
    if names is None:
        # What has no raw twin is a number. A custom function has one for all that it saves ("tensors").
        names = _slots[kind] = tuple(each[len("_raw_saved_"):] for each in dir(kind)
                                     if each.startswith("_raw_saved_") and hasattr(kind, PREFIX + each[len("_raw_saved_"):]))
    return names or tuple(registered.slots_of(node))


def hooked_by_others():
    """Whether what is saved now goes to hooks of somebody else (checkpoint, save_on_cpu), who may not be asked for it in
    the forward pass."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def is_transformed():
    """Whether a transform of torch.func (grad, vmap) runs: its tensors wrap others and have no storage, and the graphs that
    it makes are its own."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def setting_of(node, name):
    """A number, tuple or text that a node keeps; negative integers come out of autograd as unsigned ones. Of a tuple of
    tensors, which of them are there."""
    value = saved(node, name)
    if type(value) is tuple:
        return tuple(_signed(each) for each in value)
    return _signed(value)


def _signed(value):
    if isinstance(value, torch.Tensor):
        return "tensor"
    return value - 2**64 if type(value) is int and value >= 2**63 else value


def held_tensor(node, edge, slot):
    """The parameter at an edge, or with edge -1 the tensor of a slot."""
    return node.next_functions[edge][0].variable if edge >= 0 else saved(node, slot)


def edges_of(node, position):
    """How the node of that position hangs on others: for every input None, "leaf", "outside" (made before this forward
    pass), or how many nodes earlier its producer was made and which output of it is read. Equal in every step that runs
    the same ops in the same order."""
    number = node._sequence_nr()
    return tuple(None if other is None else _edge(number, other, output, position) for other, output in node.next_functions)


def _edge(number, other, output, position):
    if type(other).__name__ == "AccumulateGrad":
        return "leaf"
    distance = number - other._sequence_nr()
    return (distance, output) if 0 < distance <= position else "outside"


@dataclass
class Slot:
    """One tensor that one node saved."""

    node: int
    name: str
    shape: tuple
    stride: tuple
    offset: int
    dtype: torch.dtype
    storage: int  # identity of the storage, unique as long as the step is recorded
    version: int
    bytes: int  # of the whole storage
    producer: tuple  # (node, output) that made the value, or None
    tracked: bool  # whether autograd knows where it came from
    need: str = needs.EXACT  # of its reader; known once storages are grouped
    declared: registered.Declared = None  # what the user said of it


@dataclass(frozen=True)
class Leaf:
    """A parameter that an op reads."""

    storage: int
    shape: tuple
    dtype: torch.dtype
    version: int  # when the op had run


@dataclass
class Node:
    name: str
    edges: tuple
    producers: tuple  # of every edge: (node, output), "leaf", "outside" or None
    shape: tuple  # of the first output
    dtype: torch.dtype
    slots: list = field(default_factory=list)
    handle: object = None  # autograd's node while the plan is made
    outputs: tuple = ()  # (shape, type) of every output
    leaves: dict = field(default_factory=dict)  # edge -> Leaf
    reached: bool = True  # whether the backward pass runs it

    def slot(self, name):
        return next((each for each in self.slots if each.name == name), None)


def _leaf_of(variable):
    return Leaf(variable.untyped_storage()._cdata, tuple(variable.shape), variable.dtype, variable._version)


class Recorder:
    TENSORS = (torch.Tensor, torch.nn.Parameter)  # others are not touched

    def __init__(self, trials):
        self.nodes, self.trials = [], trials
        self.index = {}  # autograd's number of a node -> ours
        self.leaves = set()  # storages of parameters
        self.of_others = 0  # slots that hooks of somebody else have

    def add(self, node):
        position = len(self.nodes)
        self.index[node._sequence_nr()] = position
        producers, leaves = [], {}
        for edge, (other, output) in enumerate(node.next_functions):
            if other is None:
                producers.append(None)
            elif type(other).__name__ == "AccumulateGrad":
                leaves[edge] = _leaf_of(other.variable)
                self.leaves.add(leaves[edge].storage)
                producers.append("leaf")
            else:
                known = self.index.get(other._sequence_nr())
                producers.append("outside" if known is None else (known, output))
        made = node._input_metadata
        shape, dtype = (tuple(made[0].shape), made[0].dtype) if made else ((), None)
        entry = Node(type(node).__name__, edges_of(node, position), tuple(producers), shape, dtype, leaves=leaves,
                     outputs=tuple((tuple(each.shape), each.dtype) for each in made))
        hooked = hooked_by_others()
        for name in slots_of(node):
            if hooked:
                self.of_others += 1
                continue
            tensor = saved(node, name)
            if isinstance(tensor, torch.Tensor) and type(tensor) in self.TENSORS:
                slot = self._slot(position, name, tensor)
                slot.declared = self.trials.declared_of(node, name)
                entry.slots.append(slot)
        self.nodes.append(entry)

    def _slot(self, position, name, tensor):
        maker, producer = tensor.grad_fn, None
        if maker is not None:
            known = self.index.get(maker._sequence_nr())
            producer = None if known is None else (known, tensor.output_nr)
        try:
            storage = tensor.untyped_storage()
            identity, size = storage._cdata, storage.nbytes()
        except (NotImplementedError, RuntimeError):  # sparse tensors and such
            identity, size = id(tensor), 0
        return Slot(position, name, tuple(tensor.shape), tuple(tensor.stride()) if size else (),
                    tensor.storage_offset() if size else 0, tensor.dtype, identity, tensor._version, size, producer,
                    maker is not None)

    def attach(self, root):
        """Finds the nodes again from the first that backward runs. Until then none is held: a graph that nobody walks
        goes when its user lets it go. What is not found saves nothing for this backward pass."""
        stack, seen = [root], set()
        while stack:
            node = stack.pop()
            number = node._sequence_nr()
            if number in seen or type(node).__name__ == "AccumulateGrad":
                continue
            seen.add(number)
            position = self.index.get(number)
            if position is not None:
                self.nodes[position].handle = node
                # What an op in place saves of its input is a copy, whose node only the slot knows.
                stack.extend(self.tensor(slot).grad_fn for slot in self.nodes[position].slots if slot.producer is not None)
            stack.extend(other for other, _ in node.next_functions if other is not None)
        for each in self.nodes:
            if each.handle is None:
                each.slots, each.reached = [], False

    def tensor(self, slot):
        return saved(self.nodes[slot.node].handle, slot.name)
