# SPDX-License-Identifier: Apache-2.0
"""How one storage is kept between its forward and its backward use.

A form stores and loads a whole storage as one row of elements, in memory order; views of it (shape, strides, offset) are
laid over what was loaded. `bytes` of what `store` returned is what it holds.
"""

from dataclasses import dataclass, field

import torch

from . import library

COARSEST = 0.25  # error of rounded values, in parts of them


class Moved(RuntimeError):
    """A tensor that is needed for the gradient was changed in place after the forward pass."""

    def __init__(self, what):
        super().__init__(
            f"stash_torch: {what}: expected the tensor as the forward pass left it, got one that was modified by an "
            "inplace operation")


def row_of(tensor):
    """All elements of the tensor's storage, as one row that shares its memory."""
    storage = tensor.untyped_storage()
    row = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return row.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))


def same_bits(a, b):
    """Whether two rows hold the same bytes; NaN and the signs of zeros count."""
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def strides_of(shape):
    """Strides of a contiguous tensor, as torch gives them."""
    return torch.empty(shape, device="meta").stride()


def without_memory(shape, stride, dtype, device):
    """A tensor for readers of shape, strides and type alone. One element of memory where strides allow it."""
    if strides_of(shape) == tuple(stride):
        return torch.empty(1, dtype=dtype, device=device).expand(shape)
    return torch.empty_strided(shape, stride, dtype=dtype, device=device)


@dataclass
class Stored:
    """What a form keeps: its buffers, and how many bytes they are."""

    buffers: tuple
    bytes: int = field(init=False)

    def __post_init__(self):
        self.bytes = sum(each.numel() * each.element_size() for each in self.buffers)


class Form:
    name = "raw"
    gives = None  # what it loads in place of the saved bits; None: those bits

    def store(self, row):
        """What is kept of this row, or None if it is better kept as it is."""
        raise NotImplementedError

    def load(self, stored, dtype, elements, device):
        raise NotImplementedError

    def serves(self, row, loaded):
        """Whether what was loaded does for the readers of the row: here, whether it has its bits."""
        return same_bits(row, loaded)


class AsIs(Form):
    """The memory of the storage itself, on its way to the host."""

    def store(self, row):
        return Stored((row,))

    def load(self, stored, dtype, elements, device):
        return stored.buffers[0]


class Mask(Form):
    """1 bit an element. Loads a value that the reader takes for the same: inside or outside of the bounds."""

    def __init__(self, bounds=None, takes_nan=True):
        """takes_nan: whether a reader of the sign takes a NaN for a value above 0."""
        self.takes_nan = takes_nan
        self.name = "sign_mask" if bounds is None else "range_mask"
        self.how = library.encoding(self.name) if bounds is None else library.encoding(self.name, 0, *bounds)
        self.bounds = bounds
        self.gives = (self.name, bounds)

    def store(self, row):
        # On the CPU torch treats a NaN in one way where its loop is vectorised and in another in the loop's rest.
        asks = not self.takes_nan if self.bounds is None else row.device.type == "cpu"
        if asks and row.amax().isnan():
            return None
        return Stored((library.encode_all(self.how, row),))

    def load(self, stored, dtype, elements, device):
        row = library.decode(self.how, stored.buffers[0], torch.empty(elements, dtype=dtype, device=device))
        if self.bounds is None:
            return row
        lower, upper = self.bounds
        return row.mul_((lower + upper) / 2 - upper).add_(upper)

    def serves(self, row, loaded):
        if self.bounds is None:
            return torch.equal(row <= 0, loaded <= 0)
        lower, upper = self.bounds
        return torch.equal((row > lower) & (row < upper), (loaded > lower) & (loaded < upper))


class Bits(Form):
    """bool as 1 bit an element."""

    name = "bits"

    def __init__(self):
        self.how = library.encoding("sign_mask")

    def store(self, row):
        return Stored((library.encode_all(self.how, row.view(torch.uint8)),))

    def load(self, stored, dtype, elements, device):
        row = torch.empty(elements, dtype=torch.uint8, device=device)
        return library.decode(self.how, stored.buffers[0], row).view(dtype)


class TwoValued(Form):
    """Zeros and one other value, as dropout scales its mask: 1 bit an element, and that value."""

    name = "bits and a scale"

    def __init__(self):
        self.how = library.encoding("sign_mask")

    def store(self, row):
        scale = row.amax()
        stored = Stored((library.encode_all(self.how, row), scale))
        return stored if same_bits(self.load(stored, row.dtype, row.numel(), row.device), row) else None

    def load(self, stored, dtype, elements, device):
        bits, scale = stored.buffers
        return library.decode(self.how, bits, torch.empty(elements, dtype=dtype, device=device)).mul_(scale)


class WindowIndex(Form):
    """2, 4 or 8 bits for the int64 position that max pooling saves: which tap of its window it is.

    y, x: shapes in memory order. settings: what the node keeps of its windows; a step with others deviates.
    """

    name = "window_index"

    def __init__(self, y, x, window, settings):
        self.y, self.x, self.window, self.settings = y, x, window, settings
        self.how = library.encoding("window_index", window.kernel_d * window.kernel_h * window.kernel_w)

    def store(self, row):
        size = library.bound_bytes(self.how, torch.float32, row.numel())
        return Stored((library.encode_window_index(row, self.y, self.x, self.window, size),))

    def load(self, stored, dtype, elements, device):
        flat = torch.empty(elements, dtype=dtype, device=device)
        return library.decode_window_index(stored.buffers[0], self.y, self.x, self.window, flat)


class Sparse(Form):
    """The non-zeros and a bitmap of where they are."""

    name = "bitmap"

    def __init__(self):
        self.how = library.encoding(self.name)

    def store(self, row):
        size = library.exact_bytes(self.how, row)
        if size > 0.9 * row.numel() * row.element_size():
            return None
        return Stored((library.encode(self.how, row, size),))

    def load(self, stored, dtype, elements, device):
        return library.decode(self.how, stored.buffers[0], torch.empty(elements, dtype=dtype, device=device))


class Narrow(Form):
    """Every value in a narrower format. Non-zeros stay non-zeros, so signs can be read."""

    def __init__(self, values):
        self.name = values
        self.gives = (values,)
        how = library.encoding(values)
        self.how = library.api.Encoding(kind=how.kind, values=how.values, rule=how.rule,
                                        underflow=library.api.UNDERFLOW_KEEP_NONZERO)
        self.largest = library.largest_value(values)

    def store(self, row):
        # Values that the format cannot hold would saturate, or become infinite: such a tensor stays as it is.
        low, high = row.aminmax()
        if not max(-low.item(), high.item()) <= self.largest:
            return None
        return Stored((library.encode_all(self.how, row),))

    def load(self, stored, dtype, elements, device):
        return library.decode(self.how, stored.buffers[0], torch.empty(elements, dtype=dtype, device=device))

    def serves(self, row, loaded):
        """Readers that may not be given rounded values do not have this form. What is small throughout loses most of its
        bits."""
        return bool(torch.linalg.vector_norm(loaded - row) <= COARSEST * torch.linalg.vector_norm(row))
