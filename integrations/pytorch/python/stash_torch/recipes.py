# SPDX-License-Identifier: Apache-2.0
"""Forward ops that are cheap enough to run again in the backward pass, by the class of their autograd node.

An op takes its inputs as tensors and `settings`, what the node keeps besides tensors (`_saved_eps`). It must give the
bits that the forward op gave; that is checked in the recorded step for every recipe, on the data at hand, so an entry
that is wrong for a device or a release costs memory and never a gradient. No op here is a convolution, a matrix product
or attention.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as functional

from . import norms

aten = torch.ops.aten


@dataclass(frozen=True)
class Op:
    """How an op is run again.

    inputs: for every tensor argument its edge in `node.next_functions` and the slot that saves it, or None.
    settings: names of `_saved_*` attributes that are numbers, tuples or texts.
    run: (inputs, settings) -> tensor. Besides those named, settings are "shape" and "dtype" of the result, and "fresh":
        whether the first input was computed for this call alone, so that it may be overwritten; and "exact": whether
        all inputs have the bits that they had in the forward pass.
    trials: a setting that the node does not keep, with the values to try in the recorded step.
    variadic: every edge is an input.
    indices: what the node keeps as `_saved_indices`, tensors and None, are inputs after the others.
    view: the result may share the input's memory; costs nothing, and is not fresh if the input is not.
    outputs: "one"; "several", of one input, where "output" in the settings says which; or "of edges": of every edge one.
    """

    inputs: tuple = ()
    settings: tuple = ()
    run: Callable = None
    trials: tuple = ()  # (name, values)
    variadic: bool = False
    indices: bool = False
    view: bool = False
    outputs: str = "one"


def _unary(function, *settings):
    return Op(((0, "self"),), settings, lambda x, s: function(x[0], s))


def _from_result(function, *settings):
    """An op that saves its result, not its input."""
    return Op(((0, None),), settings, lambda x, s: function(x[0], s))


def _binary(function, slots, *settings):
    return Op(((0, slots[0]), (1, slots[1])), settings, function)


def _clone(x, s):
    """The input itself where its strides are those of the copy: nobody writes to what recipes compute."""
    if s["format"] is torch.preserve_format:
        return x[0]
    return x[0].contiguous()


def _add(x, s):
    if s["fresh"] and x[0].shape == s["shape"] and x[0].dtype == s["dtype"]:
        return x[0].add_(x[1], alpha=s["alpha"])
    return torch.add(x[0], x[1], alpha=s["alpha"])


def _mul(x, s):
    if s["fresh"] and x[0].shape == s["shape"] and x[0].dtype == s["dtype"]:
        return x[0].mul_(x[1])
    return torch.mul(x[0], x[1])


def _view(function, *settings):
    return Op(((0, None),), settings, lambda x, s: function(x[0], s), view=True)


def _part(function, *settings):
    """A view that is one of several results."""
    return Op(((0, None),), settings, lambda x, s: function(x[0], s)[s["output"]], view=True, outputs="several")


def _upsample(function):
    """The node keeps the size of the result, and the scales that the program named (None: it named a size)."""
    return _from_result(lambda x, s: function(x, s["output_size"], s["scales_h"], s["scales_w"]),
                        "output_size", "scales_h", "scales_w")


def _upsample_bilinear(x, s):
    return aten.upsample_bilinear2d(x, s["output_size"], s["align_corners"], s["scales_h"], s["scales_w"])


def _crop(x, s):
    """The value that padding writes is not kept by autograd: only what writes none is computed again."""
    if max(s["pad"]) > 0:
        raise RuntimeError("what padding writes is not known")
    return functional.pad(x, s["pad"])


BACKWARD_HOOKS = "BackwardHookFunctionBackward"

OPS = {
    "ReluBackward0": _from_result(lambda x, s: x.relu_() if s["fresh"] else torch.relu(x)),
    "SigmoidBackward0": _from_result(lambda x, s: torch.sigmoid(x)),
    "TanhBackward0": _from_result(lambda x, s: torch.tanh(x)),
    "ExpBackward0": _from_result(lambda x, s: torch.exp(x)),
    "RsqrtBackward0": _from_result(lambda x, s: torch.rsqrt(x)),
    "SqrtBackward0": _from_result(lambda x, s: torch.sqrt(x)),
    "ReciprocalBackward0": _from_result(lambda x, s: torch.reciprocal(x)),
    "NegBackward0": _from_result(lambda x, s: torch.neg(x)),
    "AbsBackward0": _unary(lambda x, s: torch.abs(x)),
    "CosBackward0": _unary(lambda x, s: torch.cos(x)),
    "ErfBackward0": _unary(lambda x, s: torch.erf(x)),
    "LogBackward0": _unary(lambda x, s: torch.log(x)),
    "Log1PBackward0": _unary(lambda x, s: torch.log1p(x)),
    "SinBackward0": _unary(lambda x, s: torch.sin(x)),
    "ClampBackward1": _unary(lambda x, s: torch.clamp(x, s["min"], s["max"]), "min", "max"),
    "SiluBackward0": _unary(lambda x, s: functional.silu(x, inplace=s["fresh"])),
    "GeluBackward0": _unary(lambda x, s: functional.gelu(x, approximate=s["approximate"]), "approximate"),
    "HardswishBackward0": _unary(lambda x, s: functional.hardswish(x, inplace=s["fresh"])),
    "HardsigmoidBackward0": _unary(lambda x, s: functional.hardsigmoid(x)),
    "HardtanhBackward0": _unary(
        lambda x, s: functional.hardtanh(x, s["min_val"], s["max_val"], inplace=s["fresh"]), "min_val", "max_val"),
    "LeakyReluBackward0": _unary(lambda x, s: functional.leaky_relu(x, s["negative_slope"]), "negative_slope"),
    "LeakyReluBackward1": _from_result(
        lambda x, s: functional.leaky_relu(x, s["negative_slope"], inplace=s["fresh"]), "negative_slope"),
    "EluBackward0": _unary(
        lambda x, s: aten.elu(x, s["alpha"], s["scale"], s["input_scale"]), "alpha", "scale", "input_scale"),
    "EluBackward1": _from_result(
        lambda x, s: aten.elu(x, s["alpha"], s["scale"], s["input_scale"]), "alpha", "scale", "input_scale"),
    "CeluBackward0": _unary(lambda x, s: functional.celu(x, s["alpha"]), "alpha"),
    "CeluBackward1": _from_result(lambda x, s: functional.celu(x, s["alpha"]), "alpha"),
    "GluBackward0": _unary(lambda x, s: functional.glu(x, s["dim"]), "dim"),
    "LogSigmoidBackward0": _unary(lambda x, s: functional.logsigmoid(x)),
    "PreluKernelBackward0": _binary(lambda x, s: aten._prelu_kernel(x[0], x[1]), ("self", "weight")),
    "SoftplusBackward0": _unary(lambda x, s: functional.softplus(x, s["beta"], s["threshold"]), "beta", "threshold"),
    "MishBackward0": _unary(lambda x, s: functional.mish(x)),
    "PowBackward0": _unary(lambda x, s: torch.pow(x, s["exponent"]), "exponent"),
    "CloneBackward0": Op(((0, None),), (), _clone, ("format", (torch.preserve_format, torch.contiguous_format)),
                         view=True),
    "RollBackward0": _from_result(lambda x, s: torch.roll(x, s["shifts"], s["dims"]), "shifts", "dims"),
    "AddBackward0": _binary(_add, (None, None), "alpha"),
    "SubBackward0": _binary(lambda x, s: torch.sub(x[0], x[1], alpha=s["alpha"]), (None, None), "alpha"),
    "MulBackward0": _binary(_mul, ("self", "other")),
    "DivBackward0": _binary(lambda x, s: torch.div(x[0], x[1]), ("self", "other")),
    "NativeBatchNormBackward0": Op(((0, "input"), (1, "weight"), (2, None), (-1, "result1"), (-1, "result2")),
                                   ("eps", "training"), norms.batch_norm, ("way", ("statistics", "input"))),
    "CudnnBatchNormBackward0": Op(((0, "input"), (1, "weight"), (2, None)), ("epsilon", "training"), norms.cudnn_batch_norm),
    "FusedRmsNormBackward0": Op(
        ((0, "input"), (1, "weight"), (-1, "result1")), ("normalized_shape",), norms.rms_norm, norms.RMS_EPSILONS),
    "NativeLayerNormBackward0": Op(
        ((0, "input"), (1, "weight"), (2, "bias"), (-1, "result1"), (-1, "result2")), ("normalized_shape",),
        norms.layer_norm, norms.EPSILONS),
    "NativeGroupNormBackward0": Op(
        ((0, "input"), (1, "weight"), (2, None), (-1, "result1"), (-1, "result2")), ("N", "C", "HxW", "group"),
        norms.group_norm, norms.EPSILONS),
    "MaximumBackward0": _binary(lambda x, s: torch.maximum(x[0], x[1]), ("self", "other")),
    "MinimumBackward0": _binary(lambda x, s: torch.minimum(x[0], x[1]), ("self", "other")),
    "CatBackward0": Op((), ("dim",), lambda x, s: torch.cat(x, s["dim"]), variadic=True),
    "StackBackward0": Op((), ("dim",), lambda x, s: torch.stack(x, s["dim"]), variadic=True),
    "FlipBackward0": _from_result(lambda x, s: torch.flip(x, s["dims"]), "dims"),
    "RepeatBackward0": _from_result(lambda x, s: x.repeat(s["repeats"]), "repeats"),
    "IndexBackward0": Op(((0, None),), ("indices",), lambda x, s: aten.index(x[0], x[1:]), indices=True),
    "IndexSelectBackward0": Op(((0, None), (-1, "index")), ("dim",), lambda x, s: torch.index_select(x[0], s["dim"], x[1])),
    "GatherBackward0": Op(((0, "self"), (-1, "index")), ("dim",), lambda x, s: torch.gather(x[0], s["dim"], x[1])),
    "PixelShuffleBackward0": _from_result(lambda x, s: functional.pixel_shuffle(x, s["upscale_factor"]), "upscale_factor"),
    "PixelUnshuffleBackward0": _from_result(
        lambda x, s: functional.pixel_unshuffle(x, s["downscale_factor"]), "downscale_factor"),
    "ConstantPadNdBackward0": _from_result(_crop, "pad"),
    "UpsampleNearest2DBackward0": _upsample(aten.upsample_nearest2d),
    "UpsampleNearestExact2DBackward0": _upsample(aten._upsample_nearest_exact2d),
    "UpsampleBilinear2DBackward0": _from_result(
        _upsample_bilinear, "output_size", "align_corners", "scales_h", "scales_w"),
    # The memory format that a cast keeps follows from its input; the type from the target.
    "ToCopyBackward0": Op(((0, None),), (), lambda x, s: x[0].to(s["dtype"]), view=True),
    "ViewBackward0": _view(lambda x, s: x.view(s["shape"])),
    "UnsafeViewBackward0": _view(lambda x, s: x.view(s["shape"])),
    "ReshapeAliasBackward0": _view(lambda x, s: x.view(s["shape"])),
    "UnsqueezeBackward0": _view(lambda x, s: x.unsqueeze(s["dim"]), "dim"),
    "SqueezeBackward1": _view(lambda x, s: x.squeeze(s["dim"]), "dim"),
    "PermuteBackward0": _view(lambda x, s: x.permute(s["dims"]), "dims"),
    "TransposeBackward0": _view(lambda x, s: x.transpose(s["dim0"], s["dim1"]), "dim0", "dim1"),
    "ExpandBackward0": _view(lambda x, s: x.expand(s["shape"])),
    "SelectBackward0": _view(lambda x, s: x.select(s["dim"], s["index"]), "dim", "index"),
    "SliceBackward0": _view(lambda x, s: aten.slice(x, s["dim"], s["start"], s["end"], s["step"]),
                            "dim", "start", "end", "step"),
    "SqueezeBackward0": _view(lambda x, s: x.view(s["shape"])),
    "SqueezeBackward2": _view(lambda x, s: x.squeeze(s["dim"]), "dim"),
    "TBackward0": _view(lambda x, s: x.t()),
    "UnfoldBackward0": _view(lambda x, s: x.unfold(s["dimension"], s["size"], s["step"]), "dimension", "size", "step"),
    "SplitBackward0": _part(lambda x, s: torch.split(x, s["split_size"], s["dim"]), "split_size", "dim"),
    "SplitWithSizesBackward0": _part(lambda x, s: torch.split(x, s["split_sizes"], s["dim"]), "split_sizes", "dim"),
    "UnbindBackward0": _part(lambda x, s: torch.unbind(x, s["dim"]), "dim"),
    # What modules with backward hooks put around their inputs and outputs.
    BACKWARD_HOOKS: Op((), (), lambda x, s: x[0], view=True, outputs="of edges"),
}

# Ops that may write their result over their first input.
IN_PLACE = frozenset({
    "AbsBackward0", "AddBackward0", "CeluBackward1", "ClampBackward1", "CosBackward0", "DivBackward0", "EluBackward0",
    "EluBackward1", "ErfBackward0", "ExpBackward0", "HardsigmoidBackward0", "HardswishBackward0", "HardtanhBackward0",
    "LeakyReluBackward0", "LeakyReluBackward1", "Log1PBackward0", "LogBackward0", "MishBackward0", "MulBackward0",
    "NegBackward0", "ReciprocalBackward0", "ReluBackward0", "RsqrtBackward0", "SigmoidBackward0", "SiluBackward0",
    "SinBackward0", "SqrtBackward0", "SubBackward0", "TanhBackward0"})

# Ops whose result is a parameter in disguise if their input is one.
VIEWS = frozenset(name for name, op in OPS.items() if op.view and name != BACKWARD_HOOKS) | {
    "AliasBackward0", "AsStridedBackward0", "ChunkBackward0", "DetachBackward0",
}
