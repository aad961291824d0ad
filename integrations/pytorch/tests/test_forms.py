# SPDX-License-Identifier: Apache-2.0
"""Forms at the edges of sizes and values."""

import pytest
import torch

from stash_torch import forms, library
from training import assert_same, bits

SIZES = [1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 5000]
FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def odd_values(count, dtype):
    values = torch.randn(count).to(dtype)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-7, -1e-7], dtype=dtype)
    values[: len(special)] = special[:count]
    values[max(0, count - len(special)):] = special[:count]  # the rest of a vectorised loop, too
    return values


def there_and_back(form, row):
    stored = form.store(row)
    return stored and form.load(stored, row.dtype, row.numel(), row.device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", SIZES)
def test_sign_mask_serves_relu(count, dtype):
    row = odd_values(count, dtype)
    loaded = there_and_back(forms.Mask(), row)
    gradient = torch.randn(count).to(dtype)
    for tensor in (row, loaded):
        assert tensor.dtype == dtype
    assert torch.equal(bits(torch.ops.aten.threshold_backward(gradient, row, 0)),
                       bits(torch.ops.aten.threshold_backward(gradient, loaded, 0)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounds", [(0.0, 6.0), (-1.0, 1.0), (-0.5, 0.25)])
def test_range_mask_serves_hardtanh(bounds, dtype):
    row = torch.cat([odd_values(3000, dtype)[1:2990] * 3, torch.tensor(bounds).to(dtype)])
    loaded = there_and_back(forms.Mask(bounds), row)
    gradient = torch.randn(row.numel()).to(dtype)
    lower, upper = bounds
    assert torch.equal(bits(torch.ops.aten.hardtanh_backward(gradient, row, lower, upper)),
                       bits(torch.ops.aten.hardtanh_backward(gradient, loaded, lower, upper)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_range_mask_leaves_maps_with_nan_alone(dtype):
    assert forms.Mask((0.0, 6.0)).store(odd_values(3000, dtype)) is None


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", SIZES)
def test_bitmap_gives_every_bit_back(count, dtype):
    row = odd_values(count, dtype)
    row[10:] = torch.where(torch.rand(max(0, count - 10)) < 0.3, row[10:], torch.zeros((), dtype=dtype))
    loaded = there_and_back(forms.Sparse(), row)
    assert loaded is None or torch.equal(bits(row), bits(loaded))
    assert loaded is not None or count < 1000


def test_bitmap_leaves_dense_maps_alone():
    assert forms.Sparse().store(torch.randn(5000)) is None


@pytest.mark.parametrize("count", SIZES)
def test_bits_of_bool(count):
    row = torch.rand(count) < 0.5
    assert torch.equal(row, there_and_back(forms.Bits(), row))


def test_two_valued_maps_and_others():
    row = (torch.rand(5000) < 0.7).float() / 0.7
    assert torch.equal(bits(row), bits(there_and_back(forms.TwoValued(), row)))
    row[17] += 1e-6
    assert forms.TwoValued().store(row) is None
    assert forms.TwoValued().store(torch.randn(5000)) is None
    row[17] = float("nan")
    assert forms.TwoValued().store(row) is None


@pytest.mark.parametrize("name, error", [("fp16", 2**-11), ("bf16", 2**-8), ("fp10", 2**-5), ("fp8", 2**-4)])
def test_narrow_values(name, error):
    row = torch.randn(5000)
    row[3] = -0.0
    loaded = there_and_back(forms.Narrow(name), row)
    assert torch.all((loaded - row).abs() <= row.abs() * error + 2**-9)
    assert torch.equal(loaded == 0, row == 0)
    assert torch.equal(torch.signbit(loaded), torch.signbit(row))


@pytest.mark.parametrize("name", ["fp16", "fp10", "fp8"])
@pytest.mark.parametrize("value", [1e38, -1e38, float("inf"), -float("inf"), float("nan")])
def test_values_that_a_format_cannot_hold_stay(name, value):
    row = torch.randn(5000)
    row[4321] = value
    assert forms.Narrow(name).store(row) is None


@pytest.mark.parametrize("shape, layout", [
    ((2, 3, 4, 5), torch.contiguous_format), ((2, 3, 4, 5), torch.channels_last), ((0, 3), torch.contiguous_format),
    ((7,), torch.contiguous_format)])
def test_a_tensor_without_memory_looks_like_the_other(shape, layout):
    tensor = torch.empty(shape, dtype=torch.bfloat16).contiguous(memory_format=layout)
    hollow = forms.without_memory(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
    assert hollow.shape == tensor.shape and hollow.dtype == tensor.dtype
    assert hollow.is_contiguous(memory_format=layout) or layout is torch.contiguous_format


POOLS = [
    dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=(3, 2), stride=(2, 1)),
    dict(kernel_size=3, stride=1, dilation=2), dict(kernel_size=2, ceil_mode=True), dict(kernel_size=5, padding=2),
    dict(kernel_size=16, stride=1),
]


@pytest.mark.parametrize("arguments", POOLS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_keeps_a_few_bits_an_index(arguments, layout):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = torch.nn.Conv2d(3, 16, 3), torch.nn.Linear(16, 10)

        def forward(self, x):
            return self.head(torch.nn.functional.max_pool2d(self.first(x), **arguments).mean((2, 3)))

    network = Network().to(memory_format=layout)
    batches = [(torch.randn(4, 3, 25, 22).contiguous(memory_format=layout), torch.randint(0, 10, (4,))) for _ in range(3)]
    plan = assert_same(network, batches).plans[0]
    coded = [group for group in plan.groups.values() if isinstance(group.form, forms.WindowIndex)]
    assert len(coded) == 1
    assert coded[0].kept_bytes * 8 <= coded[0].bytes


def test_pooling_of_volumes_keeps_a_few_bits_an_index():
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = torch.nn.Conv3d(3, 8, 3), torch.nn.Linear(8, 10)

        def forward(self, x):
            return self.head(torch.nn.functional.max_pool3d(self.first(x), (2, 3, 2), (1, 2, 2), (0, 1, 1)).mean((2, 3, 4)))

    batches = [(torch.randn(2, 3, 9, 14, 12), torch.randint(0, 10, (2,))) for _ in range(3)]
    plan = assert_same(Network(), batches).plans[0]
    assert [group for group in plan.groups.values() if isinstance(group.form, forms.WindowIndex)]


def test_an_index_outside_its_window_is_refused():
    window = library.api.PoolWindow(kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, kernel_d=1,
                                    layout=library.api.LAYOUT_CHANNELS_FIRST)
    form = forms.WindowIndex((1, 1, 2, 2), (1, 1, 4, 4), window, {})
    right = torch.tensor([0, 3, 12, 15])
    assert torch.equal(right, there_and_back(form, right))
    for wrong in ([2, 3, 12, 15], [0, 3, 12, 16], [-1, 3, 12, 15]):
        with pytest.raises(library.Error):
            form.store(torch.tensor(wrong))
