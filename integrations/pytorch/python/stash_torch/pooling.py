# SPDX-License-Identifier: Apache-2.0
"""From a node of max pooling to the window that its indices are coded by."""

from . import forms
from .library import api
from .step import setting_of


def forms_of(node, slots):
    """The form for the indices of this node, or none if they lie in another order than y or there are too many taps."""
    (slot,) = slots
    pooled, planes = slot.shape, node.slot("self")
    axes = 2 if node.name.startswith("MaxPool2D") else 3
    if planes is None or len(pooled) not in (axes + 1, axes + 2):
        return []
    y, x = (1,) * (axes + 2 - len(pooled)) + pooled, (1,) * (axes + 2 - len(pooled)) + planes.shape
    layout = _layout(slot.shape, slot.stride, axes)
    if layout is None:
        return []
    if layout == api.LAYOUT_CHANNELS_LAST:
        y, x = (y[0], *y[2:], y[1]), (x[0], *x[2:], x[1])
    window = _window(node, axes, layout)
    if window.kernel_d * window.kernel_h * window.kernel_w > 256:
        return []
    settings = {name: setting_of(node.handle, name) for name in ("kernel_size", "stride", "padding", "dilation")}
    return [forms.WindowIndex(y, x, window, settings)]


def _layout(shape, stride, axes):
    if forms.strides_of(shape) == stride:
        return api.LAYOUT_CHANNELS_FIRST
    if len(shape) == axes + 2:
        last = forms.strides_of((shape[0], *shape[2:], shape[1]))
        if (last[0], last[-1], *last[1:-1]) == stride:
            return api.LAYOUT_CHANNELS_LAST
    return None


def _window(node, axes, layout):
    kernel = _each(node, "kernel_size", axes)
    stride = _each(node, "stride", axes) or kernel
    padding, dilation = _each(node, "padding", axes), _each(node, "dilation", axes)
    last = {"kernel": kernel, "stride": stride, "dilation": dilation}
    members = {f"{name}_{axis}": value[-2 + place] for name, value in last.items() for place, axis in enumerate("hw")}
    members["kernel_d"] = members["stride_d"] = members["dilation_d"] = 1
    if axes == 3:
        members |= {f"{name}_d": value[0] for name, value in last.items()} | {"pad_front": padding[0]}
    return api.PoolWindow(pad_top=padding[-2], pad_left=padding[-1], layout=layout, **members)


def _each(node, name, axes):
    """One number an axis: torch lets one stand for all."""
    value = setting_of(node.handle, name)
    return value * axes if len(value) == 1 else value
