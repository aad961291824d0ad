# SPDX-License-Identifier: Apache-2.0
"""What one step keeps of one storage. Slots of autograd hold entries, and entries hold what they are made of, so
everything goes when autograd lets its slots go."""

from torch.multiprocessing.reductions import StorageWeakRef

from .forms import Moved, row_of


class Entry:
    """Knows the storage that it stands for while that lives, so that an address that was used again is not mistaken
    for it."""

    def __init__(self, tensor):
        storage = tensor.untyped_storage()
        self.reference = StorageWeakRef(storage)
        self.version = tensor._version
        self.dtype, self.device = tensor.dtype, tensor.device
        self.elements = storage.nbytes() // tensor.element_size()
        self.loaded = None
        self.gives = None  # as plan.Group.gives

    def stands_for(self, tensor):
        return (not self.reference.expired() and tensor.untyped_storage()._cdata == self.reference.cdata
                and tensor._version == self.version and tensor.dtype == self.dtype)

    def row(self, keep):
        """All elements. keep: the groups whose rows are read again soon, and stay in memory until then."""
        row = self.loaded if self.loaded is not None else self.make(keep)
        self.loaded = row if self.group in keep else None
        return row


class Raw(Entry):
    """A storage that stays as it is, held for a recipe that starts from it."""

    def __init__(self, group, tensor):
        super().__init__(tensor)
        self.group, self.tensor = group, tensor

    def make(self, keep):
        if self.tensor._version != self.version:
            raise Moved("source of a recomputation")
        return row_of(self.tensor)

    def row(self, keep):
        return self.make(keep)


class Encoded(Entry):
    def __init__(self, group, tensor, form, stored):
        super().__init__(tensor)
        self.group, self.form, self.stored = group, form, stored

    def make(self, keep):
        return self.form.load(self.stored, self.dtype, self.elements, self.device)


class Computed(Entry):
    """Computed again by `recipe` (a call without arguments but `keep`) that returns the tensor which covers the
    storage."""

    def __init__(self, group, tensor, recipe):
        super().__init__(tensor)
        self.group, self.recipe = group, recipe

    def make(self, keep):
        return row_of(self.recipe(keep))


class Waiting(Computed):
    """Computed again once a later node has saved what that starts from. Until then, or if no such node comes, the tensor
    stays as it is."""

    def __init__(self, group, tensor):
        super().__init__(group, tensor, None)
        self.tensor = tensor

    def settle(self, recipe):
        self.recipe, self.tensor = recipe, None

    def make(self, keep):
        if self.recipe is not None:
            return super().make(keep)
        if self.tensor._version != self.version:
            raise Moved("tensor that was to be computed again")
        return row_of(self.tensor)
