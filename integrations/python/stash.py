# SPDX-License-Identifier: Apache-2.0
# Made by integrations/python/generate from include/stash/c_api.h; change these instead.
"""The C API of Stash (stash/c_api.h) through ctypes.

Function stash_NAME is NAME here, STASH_NAME is NAME, stash_tensor_view is TensorView. Functions that return an error
number in C return None here, or raise Error. Structures set their size when they are made, and take members by name;
members of an array are assigned such structures. Where C takes the address of a structure or a number, give the
structure or the number (ctypes.c_size_t()). Texts are bytes.

    import ctypes, stash

    how, size = stash.Encoding(), ctypes.c_size_t()
    stash.parse_encoding(b"bitmap", how)
    stash.encoded_bytes_bound(how, stash.DTYPE_F32, 1000, size)

The library is loaded when its first function is looked up, see load(). The interpreter's lock is not held while a
function runs, so what it was given must stay as it is until it returns; ctypes keeps callbacks of structures alive,
but not what an address (c_void_p) leads to.
"""

import os
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)

_NAMES = ("libstash.so.0.1", "libstash.so")
_FOLDER = os.path.dirname(os.path.abspath(__file__))


class Error(Exception):
    """What a function refused: `code` is OUT_OF_MEMORY or another number of errors, `message` says more."""

    def __init__(self, code, message):
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self):
        return self.message


class _Sized(Structure):
    __slots__ = ()

    def __init__(self, **members):
        super().__init__(sizeof(type(self)), **members)


# Values of errc (error.hpp).
OK = 0
INVALID_ARGUMENT = 1
UNSUPPORTED = 2
OUT_OF_MEMORY = 3
CAPACITY_EXCEEDED = 4
CORRUPT_DATA = 5
IO_FAILURE = 6
BAD_FORMAT = 7
INFEASIBLE_BUDGET = 8
VERIFICATION_FAILED = 9
INTERRUPTED = 10
INTERNAL = 11
DEVICE_FAILURE = 12


# Values of memory_space.
SPACE_HOST = 0
SPACE_DEVICE = 1
SPACE_PINNED_HOST = 2


# Values of dtype.
DTYPE_F32 = 0
DTYPE_F16 = 1
DTYPE_BF16 = 2
DTYPE_U8 = 3
DTYPE_S32 = 4


# Values of framework_rule.
RULE_TENSORFLOW = 0
RULE_PYTORCH = 1


# Values of encoding_kind.
KIND_RAW = 0
KIND_SHAPE_ONLY = 1
KIND_SIGN_MASK = 2
KIND_WINDOW_INDEX = 3
KIND_RELU_POOL = 4
KIND_BITMAP = 5
KIND_CAST = 6
KIND_RANGE_MASK = 7
KIND_CSR = 8


# Values of value_format.
VALUES_SOURCE = 0
VALUES_FP16 = 1
VALUES_FP8_E4M3 = 2
VALUES_BF16 = 3
VALUES_FP10 = 4
VALUES_FP8_E5M2 = 5
VALUES_MXFP8_E4M3 = 6
VALUES_MXFP8_E5M2 = 7
VALUES_MXFP6_E2M3 = 8
VALUES_MXFP6_E3M2 = 9
VALUES_MXFP4_E2M1 = 10


# Values of underflow_rule.
UNDERFLOW_TO_ZERO = 0
UNDERFLOW_KEEP_NONZERO = 1


# Values of pool_layout.
LAYOUT_CHANNELS_LAST = 0
LAYOUT_CHANNELS_FIRST = 1


# Bits of stash_encode_report.status (status_bits).
STATUS_CAPACITY = 1
STATUS_CORRUPT = 2
STATUS_VERIFICATION = 4


# Most dimensions of a tensor.
MAX_RANK = 8


class TensorView(_Sized):
    """A dense tensor (tensor_view.hpp). Functions that take it as const never write its data."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("type", c_int32),  # STASH_DTYPE_F32 ...
        ("space", c_int32),  # STASH_SPACE_HOST ...
        ("rank", c_int32),  # 0..8
        ("reserved", c_int32),  # 0
        ("dims", c_int64 * MAX_RANK),  # in memory order, slowest first
        ("pixel_pitch", c_int64),  # elements; 0: dense
    ]


Body = CFUNCTYPE(None, c_void_p, c_int64, c_int64)
ParallelFor = CFUNCTYPE(None, c_void_p, c_int64, c_int64, Body, c_void_p)


class ExecutionContext(_Sized):
    """Where and how a call runs (execution.hpp). May be null everywhere: the calling thread, host memory."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("space", c_int32),  # STASH_SPACE_HOST or STASH_SPACE_DEVICE
        # 1: on a device, bitmap and csr place their tiles in order; takes workspace. On the host they always
        # do
        ("canonical", c_int32),
        # Runs body(state, begin, end) over ranges that cover [0, count), possibly at the same time; null:
        # alone. Ranges never wait for each other; one may do the work of others, too; takes up to 128 KiB of
        # stack.
        ("parallel_for", ParallelFor),
        ("user", c_void_p),  # of parallel_for, without which it is not looked at
        ("stream", c_void_p),  # of a device; not looked at on the host
    ]


class Encoding(_Sized):
    """An encoding (encoding.hpp). Members of other kinds do not count."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),  # STASH_KIND_RAW ...
        ("values", c_int32),  # bitmap, csr, cast: STASH_VALUES_SOURCE ...
        ("underflow", c_int32),  # bitmap, csr, cast with narrower values: STASH_UNDERFLOW_TO_ZERO ...
        ("rule", c_int32),  # sign_mask, range_mask: STASH_RULE_TENSORFLOW ...
        ("window_taps", c_int32),  # window_index, relu_pool: 1..256
        ("lower", c_float),  # range_mask; both 0: 0 and 6 (ReLU6); rounded to a 16-bit map's type
        ("upper", c_float),  # range_mask; both 0: 0 and 6 (ReLU6); rounded to a 16-bit map's type
        ("reserved", c_int32),  # 0
    ]


class EncodeReport(Structure):
    """What encoders and decoders say of the data (status.hpp). Zero it before the first call."""

    __slots__ = ()
    _fields_ = [
        ("status", c_uint32),
        ("flags", c_uint32),
        ("nonzeros", c_uint64),
        ("slot_bytes", c_uint64),
        ("overflow_bytes", c_uint64),
        ("checksum", c_uint64),
    ]


class OverflowArena(_Sized):
    """Memory shared by sparse tensors for what does not fit their slots (encoding.hpp). A region without a
    counter is missing."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("claimed", POINTER(c_uint64)),
        ("host_data", c_void_p),  # 16-byte aligned; on a device pinned and mapped
        ("host_bytes", c_uint64),
        ("host_claimed", POINTER(c_uint64)),
    ]


class EncodedView(_Sized):
    """Encoded bytes, to write or (where the parameter is const) to read."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),  # 16-byte aligned
        ("bytes", c_size_t),
        ("overflow", POINTER(OverflowArena)),  # may be null
        ("report", POINTER(EncodeReport)),
    ]


class EncodedTensor(_Sized):
    """Encoded bytes with all that a reader must know of them (encoded_tensor in encoding.hpp)."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("encoding", POINTER(Encoding)),
        ("type", c_int32),  # STASH_DTYPE_F32 ...: of the dense tensor
        ("rank", c_int32),  # 0..8
        ("dims", c_int64 * MAX_RANK),  # of the dense tensor; for pooling codes of the pooled one
        ("bytes", POINTER(EncodedView)),  # never written, but for its report
    ]


class WorkspaceView(_Sized):
    """Workspace of a call, 64-byte aligned."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class ValueFormat(_Sized):
    """What there is to know of a value format (value_format.hpp)."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),  # "fp8"; valid as long as the library
        ("values", c_int32),  # STASH_VALUES_FP8_E4M3 ...
        ("bits", c_int32),  # of a value, scales not counted
        ("mantissa_bits", c_int32),
        ("bias", c_int32),
        ("scaled", c_int32),  # 1: groups of 32 values share a scale
        ("reserved", c_int32),
        ("largest", c_double),  # the largest finite number; of a scaled format, before the scale
    ]


class BatchItem(_Sized):
    """One call of stash_encode() or stash_decode(): `dense` is read by the one and written by the other."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("encoding", POINTER(Encoding)),
        ("dense", POINTER(TensorView)),
        ("encoded", POINTER(EncodedView)),
    ]


class Csr32View(_Sized):
    """Conventional CSR (csr.hpp)."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("row_offsets", POINTER(c_uint32)),
        ("columns", POINTER(c_uint32)),
        ("values", c_void_p),
        ("capacity", c_int64),
        ("type", c_int32),
        ("reserved", c_int32),  # 0
    ]


class StoredSize(_Sized):
    """What is known of a stored tensor (size_query.hpp); struct_size is set by the caller."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes", c_uint64),
        ("overflow_bytes", c_uint64),
        ("nonzeros", c_uint64),
        ("density", c_double),
        ("status", c_uint32),
        ("reserved", c_uint32),
    ]


class SizeQuery(Structure):
    """A question that is answered after the work in the context's stream."""

    __slots__ = ()


class PoolWindow(_Sized):
    """pool.hpp."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("kernel_h", c_int32),  # 0: 2
        ("kernel_w", c_int32),  # 0: 2
        ("stride_h", c_int32),  # 0: 2
        ("stride_w", c_int32),  # 0: 2
        ("pad_top", c_int32),
        ("pad_left", c_int32),
        ("kernel_d", c_int32),  # kernel_d, stride_d: 0 means 1
        ("stride_d", c_int32),  # kernel_d, stride_d: 0 means 1
        ("pad_front", c_int32),  # kernel_d, stride_d: 0 means 1
        ("dilation_h", c_int32),  # 0: 1
        ("dilation_w", c_int32),  # 0: 1
        ("dilation_d", c_int32),  # 0: 1
        ("layout", c_int32),  # STASH_LAYOUT_CHANNELS_LAST ...
        ("reserved", c_int32),  # 0
    ]


class DropoutKey(_Sized):
    """dropout.hpp."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("seed", c_uint64),
        ("step", c_uint64),
        ("layer", c_uint32),
        ("reserved", c_uint32),  # 0
    ]


Allocate = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t, c_void_p)
Deallocate = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_size_t, c_void_p)


class MemoryCallbacks(_Sized):
    """A caller's allocator (memory_callbacks in memory.hpp). Must outlive what was allocated with it."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("user", c_void_p),
        ("allocate", Allocate),
        ("deallocate", Deallocate),
        ("space", c_int32),
        ("reserved", c_int32),  # 0
    ]


# Values of event_kind (events.hpp).
EVENT_OVERFLOW = 1
EVENT_FALLBACK = 2
EVENT_RERUN = 3
EVENT_LATE = 4


class Event(_Sized):
    """Given to a callback; read no more than struct_size bytes of it."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("reserved", c_int32),
        ("tensor", c_char_p),  # never null
        ("required_bytes", c_uint64),
        ("available_bytes", c_uint64),
        ("step", c_int64),
    ]


Notify = CFUNCTYPE(None, c_void_p, POINTER(Event))


class HandleOptions(_Sized):
    """stash_options of stashed_tensor.hpp. Copied; what it points to must live as said there."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("capacity", c_size_t),  # bitmap, csr; 0: exactly what is needed
        ("memory", POINTER(MemoryCallbacks)),  # may be null: the library's own; copied
        ("notify", Notify),  # may be null
        ("notify_user", c_void_p),
        ("name", c_char_p),  # may be null
    ]


class Handle(Structure):
    """An encoded tensor that owns its memory (stashed_tensor)."""

    __slots__ = ()


class SwapperOptions(_Sized):
    """swapper_options of swap.hpp. Copied; callbacks must work as long as the swapper and its handles."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("space", c_int32),  # STASH_SPACE_HOST or STASH_SPACE_DEVICE
        ("reserved", c_int32),  # 0
        ("host", POINTER(MemoryCallbacks)),  # may be null: the library's own
        ("memory", POINTER(MemoryCallbacks)),  # may be null: the library's own
        ("host_limit_bytes", c_size_t),  # 0: no limit
        ("residency_limit_bytes", c_size_t),  # 0: the library's default
        ("ahead", c_int64),  # 0: no limit
        ("chunk_bytes", c_size_t),  # 0: the library's default
        ("notify", Notify),  # may be null; hears of late, from any thread
        ("notify_user", c_void_p),
        ("leaving_limit_bytes", c_size_t),  # 0: the library's default
    ]


class SwapRequest(_Sized):
    """swap_request of swap.hpp. A handle that has a name keeps it."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),  # may be null
        ("needed_at", c_int64),  # 0 if has_needed_at is 0
        ("bytes_in_use", c_size_t),  # of a sparse handle; 0: as far as it is known without waiting
        ("priority", c_int32),
        ("has_needed_at", c_int32),  # 0 or 1
        # 1: success and a null handle where there is not enough memory on the host
        ("null_if_full", c_int32),
        ("reserved", c_int32),  # 0
    ]


class SwapStatistics(_Sized):
    """swap_statistics of swap.hpp; struct_size is set by the caller."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes_out", c_uint64),
        ("bytes_in", c_uint64),
        ("bytes_in_flight", c_uint64),
        ("host_bytes", c_uint64),
        ("host_peak_bytes", c_uint64),
        ("resident_bytes", c_uint64),
        ("resident_peak_bytes", c_uint64),
        ("late", c_uint64),
        ("failures", c_uint64),
    ]


class Swapper(Structure):
    """Moves tensors to the host and back (swapper). May be used by any number of threads."""

    __slots__ = ()


class Swapped(Structure):
    """A tensor on the host (swapped). One thread at a time."""

    __slots__ = ()


class PlanOptions(_Sized):
    """planning.hpp."""

    __slots__ = ()
    _fields_ = [
        ("struct_size", c_size_t),
        ("policy", c_char_p),  # null: "lossless"
        ("force", c_char_p),  # null: nothing
        ("machine", c_char_p),  # null: ""
        ("budget_bytes", c_int64),  # 0: smallest peak
        ("slot_margin", c_double),  # 0: the planner's default; negative: none
        ("overflow_share", c_double),  # 0: the planner's default; negative: none
        ("threads", c_int32),  # 0: 1
        ("reserved", c_int32),  # 0
        ("values", c_char_p),  # of policies auto and gist; null: ""
        ("model", c_char_p),  # null: ""
        ("swap", c_int32),  # 0: nothing moves to the host
        ("evaluations", c_int32),  # with a model; 0: the planner's default
        ("no_layout", c_int32),  # 0: buffers get offsets; 1: they get none
        # 0: ops keep the order of the graph; 1: they get another one where that needs less memory
        ("any_order", c_int32),
    ]


# Result, parameters, and what is said of them; made into functions by __getattr__().
_FUNCTIONS = {
    "version": (c_char_p, [],
        """()

        "0.1.0": the version of the library that runs, which need not be that of this header."""),
    "errc_name": (c_char_p, [c_int32],
        """(code)

        Stable lower-case name of a code, e.g. "invalid_argument"; "unknown" for another number."""),
    "last_error_message": (c_char_p, [],
        """()

        Text of the last failure in this thread, "" if there was none; "function: argument: expected ...,
        got ...". Cut to 4,095 bytes. Valid until the next failure in this thread; a call that succeeds
        leaves it."""),
    "value_format_count": (c_size_t, [],
        """()

        How many value formats there are, STASH_VALUES_SOURCE not counted."""),
    "value_format_at": (c_int32, [c_size_t, POINTER(ValueFormat)],
        """(index, format)

        The one at this index; `format->struct_size` is set by the caller."""),
    "parse_encoding": (c_int32, [c_char_p, POINTER(Encoding)],
        """(name, encoding)

        Fills `encoding` from a name such as "bitmap_fp8"; its struct_size must be set. Inverse of the
        next."""),
    "encoding_name": (c_int32, [POINTER(Encoding), c_char_p, c_size_t],
        """(encoding, name, capacity)

        Writes at most `capacity` bytes of the name, end included; STASH_CAPACITY_EXCEEDED if that is too
        few."""),
    "is_lossless": (c_int32, [POINTER(Encoding), POINTER(c_int32)],
        """(encoding, lossless)

        1 or 0 in *lossless."""),
    "encoded_bytes_bound": (c_int32, [POINTER(Encoding), c_int32, c_int64, POINTER(c_size_t)],
        """(encoding, source, elements, bytes)

        Largest encoded size for a type and count."""),
    "encoded_bytes_at_density": (c_int32, [POINTER(Encoding), c_int32, c_int64, c_double, POINTER(c_size_t)],
        """(encoding, source, elements, density, bytes)

        Size of a slot for a share of non-zeros, 0..1."""),
    "encoded_bytes_exact": (c_int32, [POINTER(Encoding), POINTER(TensorView), POINTER(ExecutionContext),
        POINTER(c_size_t)],
        """(encoding, input, context, bytes)

        Bytes that encoding exactly this tensor needs. Reads it once. On a device:
        stash_size_query_count()."""),
    "workspace_bytes": (c_int32, [POINTER(Encoding), c_int32, c_int64, POINTER(ExecutionContext),
        POINTER(c_size_t)],
        """(encoding, source, elements, context, bytes)

        Workspace bytes for stash_encode() and stash_decode(). A batch needs the most that one of its
        items needs."""),
    "cpu_target_name": (c_char_p, [c_size_t],
        """(index)

        The best instruction set first; null past the last. Valid as long as the library."""),
    "cpu_target": (c_int32, [POINTER(c_char_p)],
        """(name)

        Name of the one in use, as stash_cpu_target_name gives it."""),
    "set_cpu_target": (c_int32, [c_char_p],
        """(name)

        Uses this instruction set from the next call on."""),
    "encode": (c_int32, [POINTER(Encoding), POINTER(TensorView), POINTER(EncodedView), POINTER(WorkspaceView),
        POINTER(ExecutionContext)],
        """(encoding, input, output, workspace, context)

        `workspace` may be null."""),
    "decode": (c_int32, [POINTER(EncodedTensor), POINTER(TensorView), POINTER(WorkspaceView),
        POINTER(ExecutionContext)],
        """(input, output, workspace, context)

        Decodes into `output`. `workspace` may be null."""),
    "canonicalise": (c_int32, [POINTER(EncodedTensor), POINTER(EncodedView), POINTER(ExecutionContext)],
        """(input, output, context)

        Copies encoded bytes into their canonical form."""),
    "encode_batch": (c_int32, [POINTER(BatchItem), c_size_t, POINTER(WorkspaceView),
        POINTER(ExecutionContext)],
        """(items, count, workspace, context)

        batch.hpp. Allocates the list of items; STASH_OUT_OF_MEMORY if it cannot."""),
    "decode_batch": (c_int32, [POINTER(BatchItem), c_size_t, POINTER(WorkspaceView),
        POINTER(ExecutionContext)],
        """(items, count, workspace, context)

        The same for decoding."""),
    "csr_export32": (c_int32, [POINTER(EncodedTensor), POINTER(Csr32View), POINTER(ExecutionContext),
        POINTER(c_int64)],
        """(input, output, context, nonzeros)

        Writes conventional CSR; the count of non-zeros goes to *nonzeros."""),
    "size_query_create": (c_int32, [POINTER(EncodedTensor), POINTER(ExecutionContext),
        POINTER(POINTER(SizeQuery))],
        """(stored, context, query)

        Asks for the size of `stored`, whose bytes an encoder was given."""),
    "size_query_count": (c_int32, [POINTER(Encoding), POINTER(TensorView), POINTER(EncodeReport),
        POINTER(ExecutionContext), POINTER(POINTER(SizeQuery))],
        """(encoding, input, report, context, query)

        Counts what encoding `input` would store, without storing it or waiting. `report` is zeroed by
        the caller and stays where it is until the answer is there."""),
    "size_query_ready": (c_int32, [POINTER(SizeQuery), POINTER(c_int32)],
        """(query, ready)

        1 in *ready if stash_size_query_wait() would not wait. Never blocks."""),
    "size_query_wait": (c_int32, [POINTER(SizeQuery), POINTER(StoredSize)],
        """(query, size)

        The answer, once it is there."""),
    "size_query_destroy": (None, [POINTER(SizeQuery)],
        """(query)

        Null is fine."""),
    "relu_forward": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(EncodedView), c_int32,
        POINTER(ExecutionContext)],
        """(x, y, mask, rule, context)

        relu.hpp. `mask` may be null."""),
    "relu_backward": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor), POINTER(TensorView), c_int32,
        POINTER(ExecutionContext)],
        """(dy, stash, dx, rule, context)

        Gradient from any stash of y that keeps the sign."""),
    "relu_backward_dense": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(TensorView), c_int32,
        POINTER(ExecutionContext)],
        """(dy, y, dx, rule, context)

        Gradient from the dense y."""),
    "leaky_relu_forward": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(EncodedView), c_float,
        POINTER(ExecutionContext)],
        """(x, y, mask, slope, context)

        relu.hpp. `mask` may be null."""),
    "leaky_relu_backward": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor), POINTER(TensorView),
        c_float, POINTER(ExecutionContext)],
        """(dy, stash, dx, slope, context)

        Gradient from a stash that keeps the sign."""),
    "leaky_relu_backward_dense": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(TensorView),
        c_float, POINTER(ExecutionContext)],
        """(dy, x, dx, slope, context)

        Gradient from the dense x, or for slope > 0 from the dense y."""),
    "clip_forward": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(EncodedView), c_float,
        c_float, c_int32, POINTER(ExecutionContext)],
        """(x, y, mask, lower, upper, rule, context)

        relu.hpp; ReLU6 is lower 0, upper 6; bounds are rounded to a 16-bit type. `mask` may be null."""),
    "clip_backward": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor), POINTER(TensorView), c_float,
        c_float, c_int32, POINTER(ExecutionContext)],
        """(dy, stash, dx, lower, upper, rule, context)

        Gradient from a range_mask, or from a lossless stash of x or y."""),
    "clip_backward_dense": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(TensorView), c_float,
        c_float, c_int32, POINTER(ExecutionContext)],
        """(dy, x, dx, lower, upper, rule, context)

        Gradient from the dense x or y."""),
    "max_pool_forward": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(PoolWindow),
        POINTER(EncodedView), c_int32, POINTER(ExecutionContext)],
        """(x, y, window, index, rule, context)

        pool.hpp. `index` may be null."""),
    "max_pool_backward": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor), POINTER(TensorView),
        POINTER(PoolWindow), POINTER(ExecutionContext)],
        """(dy, index, dx, window, context)

        Gradient from the window index."""),
    "max_pool_backward_dense": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(TensorView),
        POINTER(PoolWindow), c_int32, POINTER(ExecutionContext)],
        """(dy, x, dx, window, rule, context)

        Gradient with the argmaxes found again from the dense x."""),
    "relu_max_pool_forward": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(PoolWindow),
        POINTER(EncodedView), POINTER(EncodedView), c_int32, POINTER(ExecutionContext)],
        """(x, y, window, code, index, rule, context)

        pool.hpp. `code` and `index` may be null."""),
    "relu_max_pool_backward": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor), POINTER(TensorView),
        POINTER(PoolWindow), POINTER(ExecutionContext)],
        """(dy, code, dx, window, context)

        Gradient from the relu_pool code."""),
    "relu_max_pool_backward_sign": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor),
        POINTER(EncodedTensor), POINTER(TensorView), POINTER(PoolWindow), c_int32, POINTER(ExecutionContext)],
        """(dy, index, y, dx, window, rule, context)

        From the window index and a stash of the pooled output that keeps the sign."""),
    "relu_max_pool_backward_output": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor),
        POINTER(TensorView), POINTER(TensorView), POINTER(PoolWindow), c_int32, POINTER(ExecutionContext)],
        """(dy, index, y, dx, window, rule, context)

        From the window index and the dense pooled output."""),
    "relu_max_pool_backward_dense": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(TensorView),
        POINTER(PoolWindow), c_int32, POINTER(ExecutionContext)],
        """(dy, x, dx, window, rule, context)

        Gradient with everything found again from the dense x."""),
    "encode_window_index": (c_int32, [POINTER(c_int64), c_int32, POINTER(c_int64), POINTER(c_int64),
        POINTER(PoolWindow), POINTER(EncodedView), POINTER(ExecutionContext)],
        """(flat, rank, y_dims, x_dims, window, index, context)

        pool.hpp. Both shapes have `rank` dimensions, 4 or 5."""),
    "decode_window_index": (c_int32, [POINTER(EncodedTensor), POINTER(c_int64), POINTER(PoolWindow),
        POINTER(c_int64), POINTER(ExecutionContext)],
        """(index, x_dims, window, flat, context)

        Its inverse; `index` has the shape of the pooled map, and x_dims has as many dimensions."""),
    "dropout_forward": (c_int32, [POINTER(TensorView), POINTER(TensorView), POINTER(EncodedView), c_float,
        POINTER(DropoutKey), POINTER(ExecutionContext)],
        """(x, y, mask, probability, key, context)

        dropout.hpp. Both tensors of a call are of f32, f16 or bf16. `mask` may be null."""),
    "dropout_backward": (c_int32, [POINTER(TensorView), POINTER(EncodedTensor), POINTER(TensorView), c_float,
        POINTER(ExecutionContext)],
        """(dy, mask, dx, probability, context)

        Gradient from the mask."""),
    "dropout_backward_key": (c_int32, [POINTER(TensorView), POINTER(TensorView), c_float, POINTER(DropoutKey),
        POINTER(ExecutionContext)],
        """(dy, dx, probability, key, context)

        Gradient with the decisions computed again from the key."""),
    "handle_create": (c_int32, [POINTER(Encoding), POINTER(TensorView), POINTER(HandleOptions),
        POINTER(ExecutionContext), POINTER(POINTER(Handle))],
        """(encoding, input, options, context, handle)

        Encodes `input`. `options` may be null. *handle is written on success only."""),
    "handle_reserve": (c_int32, [POINTER(Encoding), c_int32, c_int32, POINTER(c_int64),
        POINTER(HandleOptions), POINTER(ExecutionContext), POINTER(POINTER(Handle))],
        """(encoding, source, rank, dims, options, context, handle)

        Memory that a layer will write, see stashed_tensor::reserve(). Before a second tensor is written
        there: stash_handle_rewind()."""),
    "handle_restore": (c_int32, [POINTER(Handle), POINTER(TensorView), POINTER(ExecutionContext)],
        """(handle, output, context)

        Decodes into `output`, any number of times (stashed_tensor::restore())."""),
    "handle_check": (c_int32, [POINTER(Handle), POINTER(ExecutionContext)],
        """(handle, context)

        Fails if a layer left a status in the report (stashed_tensor::check())."""),
    "handle_rewind": (c_int32, [POINTER(Handle), POINTER(ExecutionContext)],
        """(handle, context)

        Makes a handle ready for the next tensor that a layer writes (stashed_tensor::rewind())."""),
    "handle_bytes": (c_int32, [POINTER(Handle), POINTER(c_size_t), POINTER(c_size_t)],
        """(handle, bytes, dense_bytes)

        Bytes held, bookkeeping included; and those of the dense tensor. Either pointer may be null."""),
    "handle_view": (c_int32, [POINTER(Handle), POINTER(EncodedView)],
        """(handle, view)

        The encoded bytes, for layers; valid as long as the handle. `view->struct_size` is set by the
        caller."""),
    "handle_encoding": (c_int32, [POINTER(Handle), POINTER(Encoding)],
        """(handle, encoding)

        How the tensor is encoded. `encoding->struct_size` is set by the caller."""),
    "handle_tensor": (c_int32, [POINTER(Handle), POINTER(EncodedTensor)],
        """(handle, tensor)

        The encoded tensor for layers that read it; what it points to is valid as long as the handle.
        `tensor->struct_size` is set by the caller."""),
    "handle_size": (c_int32, [POINTER(Handle), POINTER(ExecutionContext), POINTER(POINTER(SizeQuery))],
        """(handle, context, query)

        Asks for size and density without waiting."""),
    "handle_destroy": (None, [POINTER(Handle)],
        """(handle)

        Null is fine."""),
    "swapper_create": (c_int32, [POINTER(SwapperOptions), POINTER(POINTER(Swapper))],
        """(options, swapper)

        `options` may be null. *swapper is written on success only."""),
    "swapper_destroy": (None, [POINTER(Swapper)],
        """(swapper)

        Waits for copies under way. All its handles must have been destroyed. Null is fine."""),
    "swapper_out": (c_int32, [POINTER(Swapper), c_void_p, c_size_t, POINTER(SwapRequest),
        POINTER(ExecutionContext), POINTER(POINTER(Swapped))],
        """(swapper, data, bytes, request, context, swapped)

        swapper::swap_out() of raw bytes. `request` may be null. *swapped is written on success only."""),
    "swapper_out_tensor": (c_int32, [POINTER(Swapper), POINTER(TensorView), POINTER(SwapRequest),
        POINTER(ExecutionContext), POINTER(POINTER(Swapped))],
        """(swapper, tensor, request, context, swapped)

        Of a dense tensor."""),
    "swapper_out_handle": (c_int32, [POINTER(Swapper), POINTER(Handle), POINTER(SwapRequest),
        POINTER(ExecutionContext), POINTER(POINTER(Swapped))],
        """(swapper, handle, request, context, swapped)

        Of an encoded tensor, which stays the caller's and must stay as it is until
        stash_swapped_wait_out()."""),
    "swapper_out_owned": (c_int32, [POINTER(Swapper), POINTER(POINTER(Handle)), POINTER(SwapRequest),
        POINTER(ExecutionContext), POINTER(POINTER(Swapped))],
        """(swapper, handle, request, context, swapped)

        Of an encoded tensor that is given up: *handle becomes null on success, and its memory is given
        back as soon as the copy has ended. It stays the caller's if the call fails, or writes a null
        handle."""),
    "swapper_reached": (c_int32, [POINTER(Swapper), c_int64],
        """(swapper, position)

        Says where the caller is (swapper::reached())."""),
    "swapper_statistics": (c_int32, [POINTER(Swapper), POINTER(SwapStatistics)],
        """(swapper, statistics)

        What the swapper has done and holds."""),
    "swapped_wait_out": (c_int32, [POINTER(Swapped), POINTER(ExecutionContext)],
        """(swapped, context)

        After this the source may be reused (swapped::wait_out())."""),
    "swapped_out_ended": (c_int32, [POINTER(Swapped), POINTER(c_int32)],
        """(swapped, ended)

        1 in *ended if the copy to the host has ended. Never blocks."""),
    "swapped_in": (c_int32, [POINTER(Swapped), POINTER(ExecutionContext)],
        """(swapped, context)

        Begins to bring the tensor back ahead of use."""),
    "swapped_in_to": (c_int32, [POINTER(Swapped), c_void_p, c_size_t, POINTER(ExecutionContext)],
        """(swapped, to, bytes, context)

        Begins to bring it back into the caller's memory."""),
    "swapped_wait_in": (c_int32, [POINTER(Swapped), POINTER(ExecutionContext), POINTER(c_void_p)],
        """(swapped, context, data)

        Ends that, or copies now; where the bytes are goes to *data, which may be null."""),
    "swapped_leave": (c_int32, [POINTER(Swapped), POINTER(ExecutionContext)],
        """(swapped, context)

        Gives back the swapper's memory that stash_swapped_wait_in() said."""),
    "swapped_restore": (c_int32, [POINTER(Swapped), POINTER(TensorView), c_int32, POINTER(ExecutionContext)],
        """(swapped, output, check, context)

        The dense tensor into `output` (swapped::restore()); `check` 1: waits on a device for what it
        says of the bytes."""),
    "swapped_take": (c_int32, [POINTER(Swapped), POINTER(ExecutionContext), POINTER(POINTER(Handle))],
        """(swapped, context, handle)

        The encoded tensor as a handle of the swapper's memory, which must be destroyed before the
        swapper."""),
    "swapped_bytes": (c_int32, [POINTER(Swapped), POINTER(c_size_t)],
        """(swapped, bytes)

        Bytes that are copied, each way."""),
    "swapped_destroy": (None, [POINTER(Swapped)],
        """(swapped)

        Gives up the tensor and all memory that the handle has (swapped::reset()). Null is fine."""),
    "plan": (c_int32, [c_char_p, POINTER(PlanOptions), POINTER(c_char_p)],
        """(graph_json, options, plan_json)

        Texts end with a zero byte and are given back with stash_free_text(). `options` may be null.
        Written on success only."""),
    "verify_plan": (c_int32, [c_char_p, POINTER(c_char_p)],
        """(plan_json, findings)

        STASH_OK for a valid plan; STASH_VERIFICATION_FAILED and, if `findings` is not null, what is
        wrong with it, one finding a line; STASH_BAD_FORMAT for text that is no plan."""),
    "explain_plan": (c_int32, [c_char_p, POINTER(c_char_p)],
        """(plan_json, text)

        Says for every stashed tensor of a plan how it is kept and why."""),
    "free_text": (None, [c_char_p],
        """(text)

        Null is fine."""),
}

_library = None
_last_error_message = None


def load(path=None):
    """Loads the library from `path`. Without one: next to this file, from the folder of libraries that it was installed
    below, or where the system finds it. Raises OSError if it cannot; RuntimeError for a second path."""
    global _library, _last_error_message
    if _library is not None:
        if path is not None and os.fspath(path) != _library._name:
            raise RuntimeError(f"load: path: expected the library that is loaded, {_library._name}, got {path}")
        return
    library = _found() if path is None else CDLL(os.fspath(path))
    message = library.stash_last_error_message
    message.restype = c_char_p
    _library, _last_error_message = library, message


def _found():
    for folder in (_FOLDER, os.path.dirname(os.path.dirname(_FOLDER))):
        for name in _NAMES:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return CDLL(path)
    for name in _NAMES[:-1]:
        try:
            return CDLL(name)
        except OSError:
            pass
    return CDLL(_NAMES[-1])


def _check(code, function, arguments):
    if code:
        raise Error(code, _last_error_message().decode("utf-8", "replace"))


def __getattr__(name):
    """Makes a function when it is looked up for the first time; afterwards it is found as any other name."""
    declared = _FUNCTIONS.get(name)
    if declared is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    load()
    result, parameters, text = declared
    function = _library["stash_" + name]
    function.argtypes = parameters
    function.restype = result
    if result is c_int32:
        function.errcheck = _check
    function.__doc__ = name + text
    globals()[name] = function
    return function


def __dir__():
    return sorted({*globals(), *_FUNCTIONS})
