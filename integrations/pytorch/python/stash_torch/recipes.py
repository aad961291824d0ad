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
    view: the result may share the input's memory; costs nothing, and is not fresh if the input is not.
    costly: takes a step's time, not only its memory's.

    An argument at edge -1 whose slot holds no tensor is None, then and in all steps that follow the plan.
    """

    inputs: tuple = ()
    settings: tuple = ()
    run: Callable = None
    trials: tuple = ()  # (name, values)
    variadic: bool = False
    view: bool = False
    costly: bool = False


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


def _batch_norm(x, s):
    """From the saved statistics, which spares two passes: torch then scales by weight / sqrt(1 + 0), with the weight that
    it scaled by in the forward pass. Where that gives other bits (a GPU's kernel has another order): from the input. The
    running statistics are not passed: they were updated in the forward pass."""
    x, weight, bias, mean, scale = x
    if s["way"] == "statistics" and not (x.dtype == scale.dtype == torch.float32 and _is_dense(x)):
        raise RuntimeError("torch scales in another order there")  # which a weight of 1 would hide
    if s["way"] == "input":
        return torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, s["eps"])[0]
    weight = scale if weight is None else scale * weight
    return torch.native_batch_norm(x, weight, bias, mean, torch.ones_like(scale), False, 0.0, 0.0)[0]


def _is_dense(x):
    return x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))


def _checked(results, saved, exact):
    """The values of a norm whose epsilon was found by trial. Statistics of rounded values differ; on a GPU the comparison
    would make the host wait."""
    if exact and saved.device.type == "cpu" and not torch.equal(results[2], saved):
        raise RuntimeError("stash_torch: epsilon of a norm: expected the one of the recorded step, got another")
    return results[0]


def _layer_norm(x, s):
    return _checked(torch.native_layer_norm(x[0], s["normalized_shape"], x[1], x[2], s["eps"]), x[3], s["exact"])


def _group_norm(x, s):
    return _checked(torch.native_group_norm(x[0], x[1], x[2], s["N"], s["C"], s["HxW"], s["group"], s["eps"]), x[3], s["exact"])


def _max_pool(x, s):
    return aten.max_pool2d_with_indices(x[0], s["kernel_size"], s["stride"], s["padding"], s["dilation"], s["ceil_mode"])[0]


def _avg_pool(x, s):
    return aten.avg_pool2d(x[0], s["kernel_size"], s["stride"], s["padding"], s["ceil_mode"], s["count_include_pad"],
                           s["divisor_override"])


def _convolution(x, s):
    return aten.convolution(*x, s["stride"], s["padding"], s["dilation"], s["transposed"], s["output_padding"], s["groups"])


def _attention(function):
    """function: (query, key, value, mask, settings) -> results. What dropout left out is not known any more."""
    def run(x, s):
        if s["dropout_p"] != 0:
            raise RuntimeError("attention with dropout does not run again")
        return function(*x[:3], x[3] if len(x) > 3 else None, s)[0]

    return run


def _product(function, slots, *settings, first=0):
    inputs = tuple((first + place, slot) for place, slot in enumerate(slots))
    return Op((*((place, None) for place in range(first)), *inputs), settings, function, costly=True)


_QUERY = ((0, "query"), (1, "key"), (2, "value"))
_EPSILONS = ("eps", (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4))

OPS = {
    "ReluBackward0": _from_result(lambda x, s: x.relu_() if s["fresh"] else torch.relu(x)),
    "SigmoidBackward0": _from_result(lambda x, s: torch.sigmoid(x)),
    "TanhBackward0": _from_result(lambda x, s: torch.tanh(x)),
    "ExpBackward0": _from_result(lambda x, s: torch.exp(x)),
    "RsqrtBackward0": _from_result(lambda x, s: torch.rsqrt(x)),
    "NegBackward0": _from_result(lambda x, s: torch.neg(x)),
    "SiluBackward0": _unary(lambda x, s: functional.silu(x, inplace=s["fresh"])),
    "GeluBackward0": _unary(lambda x, s: functional.gelu(x, approximate=s["approximate"]), "approximate"),
    "HardswishBackward0": _unary(lambda x, s: functional.hardswish(x, inplace=s["fresh"])),
    "HardsigmoidBackward0": _unary(lambda x, s: functional.hardsigmoid(x)),
    "HardtanhBackward0": _unary(
        lambda x, s: functional.hardtanh(x, s["min_val"], s["max_val"], inplace=s["fresh"]), "min_val", "max_val"),
    "LeakyReluBackward0": _unary(lambda x, s: functional.leaky_relu(x, s["negative_slope"]), "negative_slope"),
    "EluBackward0": _unary(
        lambda x, s: aten.elu(x, s["alpha"], s["scale"], s["input_scale"]), "alpha", "scale", "input_scale"),
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
                                   ("eps", "training"), _batch_norm, ("way", ("statistics", "input"))),
    "NativeLayerNormBackward0": Op(
        ((0, "input"), (1, "weight"), (2, "bias"), (-1, "result2")), ("normalized_shape",), _layer_norm, _EPSILONS),
    "NativeGroupNormBackward0": Op(
        ((0, "input"), (1, "weight"), (2, None), (-1, "result2")), ("N", "C", "HxW", "group"), _group_norm, _EPSILONS),
    "SoftmaxBackward0": _from_result(lambda x, s: aten._softmax(x[0], s["dim"], False), "dim"),
    "MaxPool2DWithIndicesBackward0": Op(((0, "self"),), ("kernel_size", "stride", "padding", "dilation", "ceil_mode"), _max_pool),
    "AvgPool2DBackward0": Op(((0, "self"),), ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
                                              "divisor_override"), _avg_pool),
    "EmbeddingBackward0": Op(((0, None), (-1, "indices")), (), lambda x, s: aten.embedding(*x)),
    "CatBackward0": Op((), ("dim",), lambda x, s: torch.cat(x, s["dim"]), variadic=True),
    # The memory format that a cast keeps follows from its input; the type from the target.
    "ToCopyBackward0": Op(((0, None),), (), lambda x, s: x[0].to(s["dtype"]), view=True),
    "ViewBackward0": _view(lambda x, s: x.view(s["shape"])),
    "UnsafeViewBackward0": _view(lambda x, s: x.view(s["shape"])),
    "ReshapeAliasBackward0": _view(lambda x, s: x.view(s["shape"])),
    "TBackward0": _view(lambda x, s: x.t()),
    "UnsqueezeBackward0": _view(lambda x, s: x.unsqueeze(s["dim"]), "dim"),
    "SqueezeBackward1": _view(lambda x, s: x.squeeze(s["dim"]), "dim"),
    "PermuteBackward0": _view(lambda x, s: x.permute(s["dims"]), "dims"),
    "TransposeBackward0": _view(lambda x, s: x.transpose(s["dim0"], s["dim1"]), "dim0", "dim1"),
    "ExpandBackward0": _view(lambda x, s: x.expand(s["shape"])),
    "SelectBackward0": _view(lambda x, s: x.select(s["dim"], s["index"]), "dim", "index"),
    "SliceBackward0": _view(lambda x, s: aten.slice(x, s["dim"], s["start"], s["end"], s["step"]),
                            "dim", "start", "end", "step"),
    "ConvolutionBackward0": Op(
        ((0, "input"), (1, "weight"), (2, None)),
        ("stride", "padding", "dilation", "transposed", "output_padding", "groups", "bias_sym_sizes_opt"), _convolution,
        costly=True),
    "MmBackward0": _product(lambda x, s: torch.mm(*x), ("self", "mat2")),
    "BmmBackward0": _product(lambda x, s: torch.bmm(*x), ("self", "mat2")),
    "AddmmBackward0": _product(lambda x, s: torch.addmm(*x, beta=s["beta"], alpha=s["alpha"]), ("mat1", "mat2"),
                               "alpha", "beta", first=1),
    "BaddbmmBackward0": _product(lambda x, s: torch.baddbmm(*x, beta=s["beta"], alpha=s["alpha"]), ("batch1", "batch2"),
                                 "alpha", "beta", first=1),
    "ScaledDotProductFlashAttentionForCpuBackward0": Op(
        (*_QUERY, (-1, "attn_mask")), ("dropout_p", "is_causal", "scale"),
        _attention(lambda q, k, v, mask, s: aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, s["is_causal"], attn_mask=mask, scale=s["scale"])), costly=True),
    "ScaledDotProductFlashAttentionBackward0": Op(
        _QUERY, ("dropout_p", "is_causal", "scale"),
        _attention(lambda q, k, v, mask, s: aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, s["is_causal"], False, scale=s["scale"])), costly=True),
    "ScaledDotProductEfficientAttentionBackward0": Op(
        (*_QUERY, (-1, "attn_bias")), ("dropout_p", "is_causal", "scale"),
        _attention(lambda q, k, v, mask, s: aten._scaled_dot_product_efficient_attention(
            q, k, v, mask, True, 0.0, s["is_causal"], scale=s["scale"])), costly=True),
}

# Ops that may write their result over their first input.
IN_PLACE = frozenset({
    "AddBackward0", "DivBackward0", "EluBackward0", "ExpBackward0", "HardsigmoidBackward0", "HardswishBackward0",
    "HardtanhBackward0", "LeakyReluBackward0", "MishBackward0", "MulBackward0", "NegBackward0", "ReluBackward0",
    "RsqrtBackward0", "SigmoidBackward0", "SiluBackward0", "SubBackward0", "TanhBackward0"})

# Ops whose result is a parameter in disguise if their input is one.
VIEWS = frozenset(name for name, op in OPS.items() if op.view) | {
    "AliasBackward0", "AsStridedBackward0", "ChunkBackward0", "DetachBackward0",
    "SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0", "UnfoldBackward0", "SqueezeBackward0",
}
