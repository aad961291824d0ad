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
    ("GatherBackward0", "self"),
    ("IndexAddBackward0", "source"),
    ("MaxPool2DWithIndicesBackward0", "self"),
    ("MaxPool3DWithIndicesBackward0", "self"),
    ("ReflectionPad1DBackward0", "self"),
    ("ReflectionPad2DBackward0", "self"),
    ("ReflectionPad3DBackward0", "self"),
    ("ReplicationPad1DBackward0", "self"),
    ("ReplicationPad2DBackward0", "self"),
    ("ReplicationPad3DBackward0", "self"),
}

SIGNS = {("LeakyReluBackward0", "self"), ("LeakyReluBackward1", "result"), ("ReluBackward0", "result")}

# Whose readers take a NaN for a value above 0, as masks of signs do.
TAKE_NAN = {"ReluBackward0"}

RANGES = {("HardtanhBackward0", "self"): ("min_val", "max_val")}

ATTENTION = ("ScaledDotProductCudnnAttentionBackward0", "ScaledDotProductEfficientAttentionBackward0",
             "ScaledDotProductFlashAttentionBackward0", "ScaledDotProductFlashAttentionForCpuBackward0")

# Where policies with narrower values may round. Everything else is EXACT for them.
VALUES = {
    ("AddcmulBackward0", "tensor1"),
    ("AddcmulBackward0", "tensor2"),
    ("AddmmBackward0", "mat1"),
    ("AddmmBackward0", "mat2"),
    ("BaddbmmBackward0", "batch1"),
    ("BaddbmmBackward0", "batch2"),
    ("BmmBackward0", "mat2"),
    ("BmmBackward0", "self"),
    ("CeluBackward0", "self"),
    ("ConvolutionBackward0", "input"),
    ("CudnnBatchNormBackward0", "input"),
    ("FusedRmsNormBackward0", "input"),
    ("GeluBackward0", "self"),
    ("GluBackward0", "self"),
    ("GroupedMmBackward0", "self"),
    ("HardswishBackward0", "self"),
    ("MishBackward0", "self"),
    ("MmBackward0", "mat2"),
    ("MmBackward0", "self"),
    ("MulBackward0", "other"),
    ("MulBackward0", "self"),
    ("NativeBatchNormBackward0", "input"),
    ("NativeGroupNormBackward0", "input"),
    ("NativeLayerNormBackward0", "input"),
    ("SiluBackward0", "self"),
    ("SoftplusBackward0", "self"),
    *((name, slot) for name in ATTENTION for slot in ("value", "output")),
}

# Where a setting of the node decides: VALUE if it is among these.
VALUES_WHERE = {
    ("EluBackward0", "self"): ("alpha", (1,)),  # else its slope jumps
    ("PowBackward0", "self"): ("exponent", (2, 3, 4)),
}

# Where they may round to 16 bits: the backward pass raises e to products of these, or subtracts squares from 1.
FINES = {
    ("SigmoidBackward0", "result"),
    ("TanhBackward0", "result"),
    *((name, slot) for name in ATTENTION for slot in ("query", "key")),
}

POOL_INDICES = {("MaxPool2DWithIndicesBackward0", "result1"), ("MaxPool3DWithIndicesBackward0", "result1")}


def need_of(name, slot, disabled=frozenset(), setting=None):
    """Need of the slot of a node of class `name`; entries of `disabled` count as EXACT. setting: gives what the node keeps
    under a name."""
    key = (name, slot)
    if key in disabled:
        return EXACT
    if key in SHAPES:
        return SHAPE
    if key in SIGNS:
        return SIGN
    if key in RANGES:
        return RANGE
    if key in VALUES_WHERE and setting is not None:
        name, smooth = VALUES_WHERE[key]
        return VALUE if setting(name) in smooth else EXACT
    if key in FINES:
        return FINE
    return VALUE if key in VALUES else EXACT
