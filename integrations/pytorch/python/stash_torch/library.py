# SPDX-License-Identifier: Apache-2.0
"""Calls of libstash on torch's tensors. All memory is torch's, so that its statistics count it."""

import ctypes
import functools

import torch

try:
    from . import _stash as api
except ImportError:  # a source tree: stash.py is found by itself
    import stash as api

Error = api.Error

TYPES = {
    torch.float32: api.DTYPE_F32,
    torch.float16: api.DTYPE_F16,
    torch.bfloat16: api.DTYPE_BF16,
    torch.uint8: api.DTYPE_U8,
}


@functools.cache
def encoding(name, window_taps=0, lower=0.0, upper=0.0):
    """The encoding of that name under PyTorch's rules. Shared: not to be changed."""
    how = api.Encoding()
    api.parse_encoding(name.encode(), how)
    how.rule = api.RULE_PYTORCH
    how.window_taps = window_taps
    if name == "range_mask":
        how.lower, how.upper = lower, upper
    return how


@functools.cache
def largest_value(name):
    """The largest finite value of a format without a scale."""
    for index in range(api.value_format_count()):
        row = api.ValueFormat()
        api.value_format_at(index, row)
        if row.name.decode() == name:
            return row.largest
    raise ValueError(f"largest_value: name: expected a value format, got {name!r}")


def _context(tensor):
    if tensor.device.type == "cpu":
        return None
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return api.ExecutionContext(space=api.SPACE_DEVICE, stream=stream)


def _dense(tensor):
    """The view of a tensor of any shape whose elements lie without gaps, as one row."""
    space = api.SPACE_HOST if tensor.device.type == "cpu" else api.SPACE_DEVICE
    view = api.TensorView(data=tensor.data_ptr(), type=TYPES[tensor.dtype], space=space, rank=1)
    view.dims[0] = tensor.numel()
    return view


def exact_bytes(how, tensor):
    """Bytes that encoding these values takes. Reads them once; on the CPU only."""
    size = ctypes.c_size_t()
    api.encoded_bytes_exact(how, _dense(tensor), _context(tensor), size)
    return size.value


def bound_bytes(how, dtype, elements):
    size = ctypes.c_size_t()
    api.encoded_bytes_bound(how, TYPES[dtype], elements, size)
    return size.value


def _encoded(buffer, report):
    return api.EncodedView(data=buffer.data_ptr(), bytes=buffer.numel(), report=report)


def _tensor(how, dtype, dims, buffer, report):
    """What an encoded tensor's readers take. It keeps alive what it points to."""
    tensor = api.EncodedTensor(encoding=ctypes.pointer(how), type=dtype, rank=len(dims),
                               bytes=ctypes.pointer(_encoded(buffer, ctypes.pointer(report))))
    tensor.dims[:len(dims)] = dims
    return tensor


def encode(how, tensor, size):
    """`size` bytes that hold the elements of `tensor` in memory order; raises Error if they are too few."""
    buffer = torch.empty(size, dtype=torch.uint8, device=tensor.device)
    report = api.EncodeReport()
    api.encode(how, _dense(tensor), _encoded(buffer, ctypes.pointer(report)), None, _context(tensor))
    _check("encode", report)
    return buffer


def encode_all(how, tensor):
    """encode() into as many bytes as any tensor of this size may need."""
    return encode(how, tensor, bound_bytes(how, tensor.dtype, tensor.numel()))


def decode(how, buffer, output):
    """Writes the elements into `output`, in memory order."""
    report = api.EncodeReport()
    stored = _tensor(how, TYPES[output.dtype], (output.numel(),), buffer, report)
    api.decode(stored, _dense(output), None, _context(output))
    _check("decode", report)
    return output


def _positions(flat):
    return ctypes.cast(flat.data_ptr(), ctypes.POINTER(ctypes.c_int64))


def _shape(dims):
    return (ctypes.c_int64 * len(dims))(*dims)


def encode_window_index(flat, y, x, window, size):
    """`size` bytes for int64 positions of argmaxes; y and x are shapes in memory order. Raises Error if one is not in its
    window."""
    buffer = torch.empty(size, dtype=torch.uint8, device=flat.device)
    report = api.EncodeReport()
    encoded = _encoded(buffer, ctypes.pointer(report))
    api.encode_window_index(_positions(flat), len(y), _shape(y), _shape(x), window, encoded, _context(flat))
    _check("encode_window_index", report)
    return buffer


def decode_window_index(buffer, y, x, window, flat):
    report = api.EncodeReport()
    how = encoding("window_index", window.kernel_d * window.kernel_h * window.kernel_w)
    index = _tensor(how, api.DTYPE_F32, y, buffer, report)
    api.decode_window_index(index, _shape(x), window, _positions(flat), _context(flat))
    _check("decode_window_index", report)
    return flat


def _check(function, report):
    if report.status:
        raise Error(api.CORRUPT_DATA, f"{function}: report: expected status 0, got {report.status}")
