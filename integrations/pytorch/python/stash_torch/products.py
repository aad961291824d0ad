# SPDX-License-Identifier: Apache-2.0
"""How convolutions and attention run again, by the class of their autograd node (recipes.py)."""

import functools

import torch

aten = torch.ops.aten


def convolution(x, s):
    return aten.convolution(*x, s["stride"], s["padding"], s["dilation"], s["transposed"], s["output_padding"], s["groups"])


def _without_dropout(function):
    """What dropout left out is not known any more."""
    @functools.wraps(function)
    def run(x, s):
        if s["dropout_p"] != 0:
            raise RuntimeError("attention with dropout does not run again")
        return function(x, s)[0]

    return run


@_without_dropout
def cpu_attention(x, s):
    query, key, value, mask = x
    return aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, s["is_causal"], attn_mask=mask,
                                                            scale=s["scale"])


@_without_dropout
def flash_attention(x, s):
    return aten._scaled_dot_product_flash_attention(*x, 0.0, s["is_causal"], False, scale=s["scale"])


@_without_dropout
def efficient_attention(x, s):
    query, key, value, bias = x
    return aten._scaled_dot_product_efficient_attention(query, key, value, bias, True, 0.0, s["is_causal"], scale=s["scale"])
