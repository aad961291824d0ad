# SPDX-License-Identifier: Apache-2.0
"""What the backward pass needs of what autograd saved: (node class, slot) to a need of docs/needs.md.

The names are autograd's own (`ReluBackward0`, `_saved_result`) and may change with any release of torch. So an entry
that lets a mask or a shape stand in for a tensor is tried on a tiny op first (`checks.py`), and is off where that fails.
A slot that no table names still has lossless forms: those give the saved bits back, whatever reads them.
"""

SHAPE = "shape"  # only the tensor's shape, strides and type are read
SIGN = "sign"  # only whether !(t <= 0)
RANGE = "range"  # only whether lower < t < upper
VALUE = "value"  # the values; a small rounding error is an error of the gradient of the same size
FINE = "fine"  # the values; they may be rounded to 16 bits
EXACT = "exact"  # the values; a rounding error may become a large error of the gradient
MASK = "mask"  # the values, which are zeros and one other value

SHAPES = {
    ("AdaptiveAvgPool2DBackward0", "self"),
    ("AdaptiveAvgPool3DBackward0", "self"),
    ("AvgPool2DBackward0", "self"),
    ("AvgPool3DBackward0", "self"),
    ("MaxPool2DWithIndicesBackward0", "self"),
    ("MaxPool3DWithIndicesBackward0", "self"),
}

SIGNS = {("ReluBackward0", "result")}

RANGES = {("HardtanhBackward0", "self"): ("min_val", "max_val")}

# Where policies with narrower values may round. Everything else is EXACT for them.
VALUES = {
    ("AddmmBackward0", "mat1"),
    ("BmmBackward0", "mat2"),
    ("BmmBackward0", "self"),
    ("ConvolutionBackward0", "input"),
    ("GeluBackward0", "self"),
    ("HardswishBackward0", "self"),
    ("MmBackward0", "self"),
    ("MulBackward0", "other"),
    ("MulBackward0", "self"),
    ("NativeBatchNormBackward0", "input"),
    ("CudnnBatchNormBackward0", "input"),
    ("NativeGroupNormBackward0", "input"),
    ("NativeLayerNormBackward0", "input"),
    ("SiluBackward0", "self"),
}

POOL_INDICES = {("MaxPool2DWithIndicesBackward0", "result1"), ("MaxPool3DWithIndicesBackward0", "result1")}


def need_of(name, slot, disabled=frozenset()):
    """Need of the slot of a node of class `name`; entries of `disabled` count as EXACT."""
    key = (name, slot)
    if key in disabled:
        return EXACT
    if key in SHAPES:
        return SHAPE
    if key in SIGNS:
        return SIGN
    if key in RANGES:
        return RANGE
    return VALUE if key in VALUES else EXACT
