# SPDX-License-Identifier: Apache-2.0
"""How norms are run again from what autograd keeps of them (recipes.py), and what errors of their inputs they bear."""

import math

import torch

from .forms import COARSEST
from .step import saved, setting_of

# Of layer and group norms autograd does not keep it: values to try. None: from the statistics, where there are no parameters.
EPSILONS = ("eps", (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4))
RMS_EPSILONS = ("eps", (1e-6, 1e-5, torch.finfo(torch.float32).eps, torch.finfo(torch.bfloat16).eps, 1e-8))


def batch_norm(x, s):
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


def cudnn_batch_norm(x, s):
    """Its statistics are of no use to other kernels: they round in another order."""
    return torch.cudnn_batch_norm(*x, None, None, True, 0.0, s["epsilon"])[0]


def _checked(results, scale, saved, exact):
    """The results of a norm whose epsilon was found by trial. Statistics of rounded values differ; on a GPU the comparison
    would make the host wait."""
    if exact and saved.device.type == "cpu" and not torch.equal(scale, saved):
        raise RuntimeError("stash_torch: epsilon of a norm: expected the one of the recorded step, got another")
    return results


def layer_norm(x, s):
    x, weight, bias, mean, scale = x
    if s["eps"] is None:
        return _from_statistics(x, mean, scale)
    results = torch.native_layer_norm(x, s["normalized_shape"], weight, bias, s["eps"])
    return _checked(results[0], results[2], scale, s["exact"])


def group_norm(x, s):
    x, weight, bias, mean, scale = x
    if s["eps"] is None:
        parts = x.view(s["N"], s["group"], -1)
        return _from_statistics(parts, mean.view(s["N"], -1, 1), scale.view(s["N"], -1, 1)).view(x.shape)
    results = torch.native_group_norm(x, weight, bias, s["N"], s["C"], s["HxW"], s["group"], s["eps"])
    return _checked(results[0], results[2], scale, s["exact"])


def rms_norm(x, s):
    x, weight, scale = x
    result, other = torch.ops.aten._fused_rms_norm(x, s["normalized_shape"], weight, s["eps"])
    return _checked(result, other, scale, s["exact"])


def _from_statistics(x, mean, scale):
    """What a norm without parameters gives: its epsilon is in the saved scale."""
    return torch.sub(x, mean).mul_(scale).to(x.dtype)


def reads(nodes, group):
    """Whether a norm reads this storage."""
    return any(slot.name == "input" and nodes[slot.node].name in _ROWS for slot in group.slots)


def bear(nodes, group, error):
    """Whether the error of a rounded storage is small in the results of all norms that it is an input of. A norm scales
    small rows up, and the error with them. error: one row, as long as the storage."""
    for slot in group.slots:
        node = nodes[slot.node]
        if slot.name == "input" and node.name in _ROWS:
            mine = error.as_strided(slot.shape, slot.stride, slot.offset)
            rows_of, statistics = _ROWS[node.name]
            rows, scale = rows_of(mine.float(), node.handle), saved(node.handle, statistics)
            if not bool((rows.square().mean(1).sqrt() * scale.reshape(-1)).amax() <= COARSEST):
                return False
    return True


def _channels(x, node):
    return x.transpose(0, 1).reshape(x.shape[1], -1)


def _normalized(x, node):
    return x.reshape(-1, math.prod(setting_of(node, "normalized_shape")))


# Of every norm: what shares one scale, as a row, and the slot of these scales.
_ROWS = {
    "CudnnBatchNormBackward0": (_channels, "result2"),
    "FusedRmsNormBackward0": (_normalized, "result1"),
    "NativeBatchNormBackward0": (_channels, "result2"),
    "NativeGroupNormBackward0": (lambda x, node: x.reshape(x.shape[0] * setting_of(node, "group"), -1), "result2"),
    "NativeLayerNormBackward0": (_normalized, "result2"),
}
