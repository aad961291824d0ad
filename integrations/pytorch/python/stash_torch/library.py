# SPDX-License-Identifier: Apache-2.0
"""Calls of libstash on torch's tensors. All memory is torch's, so that its statistics count it."""

import contextlib
import ctypes
import functools
import threading

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


def on_device(tensor):
    """Whether kernels of a device work on this tensor."""
    return tensor.device.type == "cuda"


def context_of(tensor):
    """The space of a tensor and the stream that is current there; None on the host."""
    if not on_device(tensor):
        return None
    return api.ExecutionContext(space=api.SPACE_DEVICE, stream=_stream(tensor))


def stream_of(tensor):
    """torch's stream that is current there; None on the host."""
    return torch.cuda.current_stream(tensor.device) if tensor.device.type == "cuda" else None


def _stream(tensor):
    stream = stream_of(tensor)
    return stream.cuda_stream if stream is not None else None


def current(device):
    """Calls on a device are of the one that is current in the thread."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def record_use(tensor, stream):
    """The memory of a tensor that is let go is used again after what this stream (stream_of) has to do by then."""
    if stream is not None:
        tensor.record_stream(stream)


class _Host(threading.local):
    """What calls on the host are given, filled anew by every call of a thread: to make these takes longer than to encode a small
    tensor."""

    def __init__(self):
        self.view = api.TensorView(space=api.SPACE_HOST, rank=1)
        self.report = api.EncodeReport()
        self.encoded = api.EncodedView(report=ctypes.pointer(self.report))
        self.stored = api.EncodedTensor(rank=1, bytes=ctypes.pointer(self.encoded))
        self.size = ctypes.c_size_t()

    def dense(self, tensor):
        """As _dense."""
        view = self.view
        view.data, view.type, view.dims[0] = tensor.data_ptr(), TYPES[tensor.dtype], tensor.numel()
        return view

    def bytes(self, buffer):
        """As _encoded, with a report of its own."""
        encoded = self.encoded
        encoded.data, encoded.bytes, self.report.status = buffer.data_ptr(), buffer.numel(), api.OK
        return encoded

    def check(self, function):
        if self.report.status:
            raise Error(api.CORRUPT_DATA, f"{function}: report: expected status 0, got {self.report.status}")


_host = _Host()


def _dense(tensor):
    """The view of a tensor of any shape whose elements lie without gaps, as one row."""
    space = api.SPACE_DEVICE if on_device(tensor) else api.SPACE_HOST
    view = api.TensorView(data=tensor.data_ptr(), type=TYPES[tensor.dtype], space=space, rank=1)
    view.dims[0] = tensor.numel()
    return view


def bound_bytes(how, dtype, elements):
    size = _host.size
    api.encoded_bytes_bound(how, TYPES[dtype], elements, size)
    return size.value


def exact_bytes(how, tensor):
    """Bytes that encoding these values takes. Reads them once. Waits for the device."""
    if not on_device(tensor):
        size = _host.size
        api.encoded_bytes_exact(how, _host.dense(tensor), None, size)
        return size.value
    query, size = ctypes.POINTER(api.SizeQuery)(), api.StoredSize()
    with current(tensor.device):
        api.size_query_count(how, _dense(tensor), report_of(tensor), context_of(tensor), query)
        try:
            api.size_query_wait(query, size)
        finally:
            api.size_query_destroy(query)
    return size.bytes


def _encoded(buffer, report):
    return api.EncodedView(data=buffer.data_ptr(), bytes=buffer.numel(), report=report)


def _tensor(how, dtype, dims, buffer, report):
    """What an encoded tensor's readers take. It keeps alive what it points to."""
    tensor = api.EncodedTensor(encoding=ctypes.pointer(how), type=dtype, rank=len(dims),
                               bytes=ctypes.pointer(_encoded(buffer, report)))
    tensor.dims[:len(dims)] = dims
    return tensor


def encode(how, tensor, size):
    """`size` bytes that hold the elements of `tensor` in memory order; raises Error if they are too few."""
    buffer = torch.empty(size, dtype=torch.uint8, device=tensor.device)
    if not on_device(tensor):
        api.encode(how, _host.dense(tensor), _host.bytes(buffer), None, None)
        _host.check("encode")
        return buffer
    report = report_of(tensor)
    with current(tensor.device):
        api.encode(how, _dense(tensor), _encoded(buffer, report), None, context_of(tensor))
    _check("encode", tensor, report)
    return buffer


def encode_all(how, tensor):
    """encode() into as many bytes as any tensor of this size may need."""
    return encode(how, tensor, bound_bytes(how, tensor.dtype, tensor.numel()))


def decode(how, buffer, output):
    """Writes the elements into `output`, in memory order."""
    if not on_device(output):
        stored = _host.stored
        stored.encoding, stored.type, stored.dims[0] = ctypes.pointer(how), TYPES[output.dtype], output.numel()
        _host.bytes(buffer)
        api.decode(stored, _host.dense(output), None, None)
        _host.check("decode")
        return output
    report = report_of(output)
    with current(output.device):
        stored = _tensor(how, TYPES[output.dtype], (output.numel(),), buffer, report)
        api.decode(stored, _dense(output), None, context_of(output))
    _check("decode", output, report)
    return output


def _positions(flat):
    return ctypes.cast(flat.data_ptr(), ctypes.POINTER(ctypes.c_int64))


def _shape(dims):
    return (ctypes.c_int64 * len(dims))(*dims)


def encode_window_index(flat, y, x, window, size):
    """`size` bytes for int64 positions of argmaxes; y and x are shapes in memory order. Raises Error if one is not in its
    window."""
    buffer = torch.empty(size, dtype=torch.uint8, device=flat.device)
    report = report_of(flat)
    with current(flat.device):
        api.encode_window_index(_positions(flat), len(y), _shape(y), _shape(x), window, _encoded(buffer, report),
                                context_of(flat))
    _check("encode_window_index", flat, report)
    return buffer


def decode_window_index(buffer, y, x, window, flat):
    report = report_of(flat)
    how = encoding("window_index", window.kernel_d * window.kernel_h * window.kernel_w)
    with current(flat.device):
        index = _tensor(how, api.DTYPE_F32, y, buffer, report)
        api.decode_window_index(index, _shape(x), window, _positions(flat), context_of(flat))
    _check("decode_window_index", flat, report)
    return flat


# ---- reports


class _DeviceReports:
    """Reports in the memory of a device, for the calls of one stream. Reading one would wait for the device; so they are read
    together, when a session ends or begins to use what a recorded step has stored (check_reports)."""

    COUNT, WORDS = 1024, ctypes.sizeof(api.EncodeReport) // 8

    def __init__(self, device):
        self.device, self.failed = device, torch.zeros((), dtype=torch.bool, device=device)
        self._renew()

    def _renew(self):
        self.rows, self.used = torch.zeros((self.COUNT, self.WORDS), dtype=torch.int64, device=self.device), 0

    def next(self):
        if self.used == self.COUNT:
            self._gather()
        self.used += 1
        return self.rows.data_ptr() + (self.used - 1) * self.WORDS * 8

    def _gather(self):
        self.failed |= (self.rows[:, 0] & 0xFFFFFFFF != 0).any()  # the status; the other half are flags
        self._renew()

    def check(self):
        self._gather()
        failed, self.failed = self.failed.item(), torch.zeros_like(self.failed)
        return failed


_device_reports, _lock = {}, threading.Lock()


def report_of(tensor):
    """A report for one call: a pointer to it, which keeps one on the host alive."""
    if not on_device(tensor):
        return ctypes.pointer(api.EncodeReport())
    key = tensor.device, _stream(tensor)
    with _lock:
        reports = _device_reports.get(key)
        if reports is None:
            reports = _device_reports[key] = _DeviceReports(tensor.device)
        return ctypes.cast(reports.next(), ctypes.POINTER(api.EncodeReport))


def _check(function, tensor, report):
    if not on_device(tensor) and report.contents.status:
        raise Error(api.CORRUPT_DATA, f"{function}: report: expected status 0, got {report.contents.status}")


def check_reports():
    """Raises Error if a call on a device, of any thread, has stored or read something wrong since the last check. Waits for
    the device."""
    with _lock:
        failed = [str(device) for (device, _), reports in _device_reports.items() if reports.check()]
    if failed:
        raise Error(api.CORRUPT_DATA, f"check_reports: reports on {', '.join(failed)}: expected status 0, got another")
