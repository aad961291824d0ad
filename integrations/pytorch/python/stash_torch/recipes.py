# SPDX-License-Identifier: Apache-2.0
"""Forward ops that may run again in the backward pass, by the class of their autograd node.

An op takes its inputs as tensors and `settings`, what the node keeps besides tensors (`_saved_eps`). It must give the
bits that the forward op gave; that is checked in the recorded step for every recipe, on the data at hand, so an entry
that is wrong for a device or a release costs memory and never a gradient.

Costly ops (convolutions, matrix products, attention) run again only where the user says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as functional

from . import norms, products

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
    variadic: every edge of which autograd knows the tensor is an input.
    indices: what the node keeps as `_saved_indices`, tensors and None, are inputs after the others.
    view: the result may share the input's memory; costs nothing, and is not fresh if the input is not.
    outputs: "one"; "several", of one input, where "output" in the settings says which; or "of edges": of every edge one.
    costly: takes a step's time, not only its memory's.

    An argument at edge -1 whose slot holds no tensor is None, then and in all steps that follow the plan.
    """

    inputs: tuple = ()
    settings: tuple = ()
    run: Callable = None
    trials: tuple = ()  # (name, values)
    variadic: bool = False
    indices: bool = False
    view: bool = False
    outputs: str = "one"
    costly: bool = False


def _unary(function, *settings):
    return Op(((0, "self"),), settings, lambda x, s: function(x[0], s))


def _from_result(function, *settings):
    """An op that saves its result, not its input."""
    return Op(((0, None),), settings, lambda x, s: function(x[0], s))


def _binary(function, slots, *settings):
    return Op(((0, slots[0]), (1, slots[1])), settings, function)


def _dropout(x, s):
    """In the type in which kernels of a GPU multiply."""
    x, mask = x
    scale = 1 / (1 - s["p"]) if s["p"] < 1 else 0.0
    return x.to(torch.float32).mul(mask).mul_(scale).to(x.dtype)


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


def _joined(function):
    def run(x, s):
        result = function(x, s["dim"])
        if result.shape != s["shape"]:
            raise RuntimeError("what autograd does not know was joined, too")
        return result

    return Op((), ("dim",), run, variadic=True)


def _max_pool(x, s):
    return aten.max_pool2d_with_indices(x[0], s["kernel_size"], s["stride"], s["padding"], s["dilation"], s["ceil_mode"])[0]


def _avg_pool(x, s):
    return aten.avg_pool2d(x[0], s["kernel_size"], s["stride"], s["padding"], s["ceil_mode"], s["count_include_pad"],
                           s["divisor_override"])


def _product(function, slots, *settings, first=0):
    """first: edges before those of the slots."""
    inputs = tuple((first + place, slot) for place, slot in enumerate(slots))
    return Op((*((place, None) for place in range(first)), *inputs), settings, function, costly=True)


def _attention(function, *optional):
    inputs = ((0, "query"), (1, "key"), (2, "value"), *((-1, each) for each in optional))
    return Op(inputs, ("dropout_p", "is_causal", "scale"), function, costly=True)


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
    "NativeDropoutBackward0": Op(((0, None), (-1, "result1")), ("p",), _dropout),
    "NativeLayerNormBackward0": Op(
        ((0, "input"), (1, "weight"), (2, "bias"), (-1, "result1"), (-1, "result2")), ("normalized_shape",),
        norms.layer_norm, norms.EPSILONS),
    "NativeGroupNormBackward0": Op(
        ((0, "input"), (1, "weight"), (2, None), (-1, "result1"), (-1, "result2")), ("N", "C", "HxW", "group"),
        norms.group_norm, norms.EPSILONS),
    "MaximumBackward0": _binary(lambda x, s: torch.maximum(x[0], x[1]), ("self", "other")),
    "MinimumBackward0": _binary(lambda x, s: torch.minimum(x[0], x[1]), ("self", "other")),
    "SoftmaxBackward0": _from_result(lambda x, s: aten._softmax(x[0], s["dim"], False), "dim"),
    "MaxPool2DWithIndicesBackward0": Op(((0, "self"),), ("kernel_size", "stride", "padding", "dilation", "ceil_mode"), _max_pool),
    "AvgPool2DBackward0": Op(((0, "self"),), ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
                                              "divisor_override"), _avg_pool),
    "EmbeddingBackward0": Op(((0, None), (-1, "indices")), (), lambda x, s: aten.embedding(*x)),
    "CatBackward0": _joined(torch.cat),
    "StackBackward0": _joined(torch.stack),
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
    "ConvolutionBackward0": Op(
        ((0, "input"), (1, "weight"), (2, None)),
        ("stride", "padding", "dilation", "transposed", "output_padding", "groups", "bias_sym_sizes_opt"),
        products.convolution, costly=True),
    "MmBackward0": _product(lambda x, s: torch.mm(*x), ("self", "mat2")),
    "BmmBackward0": _product(lambda x, s: torch.bmm(*x), ("self", "mat2")),
    "AddmmBackward0": _product(lambda x, s: torch.addmm(*x, beta=s["beta"], alpha=s["alpha"]), ("mat1", "mat2"),
                               "alpha", "beta", first=1),
    "BaddbmmBackward0": _product(lambda x, s: torch.baddbmm(*x, beta=s["beta"], alpha=s["alpha"]), ("batch1", "batch2"),
                                 "alpha", "beta", first=1),
    "ScaledDotProductFlashAttentionForCpuBackward0": _attention(products.cpu_attention, "attn_mask"),
    "ScaledDotProductFlashAttentionBackward0": _attention(products.flash_attention),
    "ScaledDotProductEfficientAttentionBackward0": _attention(products.efficient_attention, "attn_bias"),
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
