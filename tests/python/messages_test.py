# SPDX-License-Identifier: Apache-2.0
"""Every function of the C API is called with one wrong argument at a time: errors begin with the function's name and
one of its own arguments, "stash_encode: input: expected ..., got ...".

usage: messages_test.py FOLDER LIBRARY SOURCE
"""

import ctypes
import re
import sys
import unittest
from ctypes import POINTER, pointer

FOLDER, LIBRARY, SOURCE = (sys.argv.pop(1) for _ in range(3))
sys.path.insert(0, FOLDER)
import stash  # noqa: E402

stash.load(LIBRARY)
KEPT = []  # what addresses lead to
NAMES = {function: re.match(r"\((.*)\)", text)[1].split(", ") for function, (_, _, text) in stash._FUNCTIONS.items()}


def keep(thing):
    KEPT.append(thing)
    return thing


def address(size=256):
    at = ctypes.addressof(keep(ctypes.create_string_buffer(size + 63)))
    return at + -at % 64


def tensor(*dims, **members):
    size = 4
    for dim in dims:
        size *= max(dim, 1)
    defaults = {"data": address(size), "type": stash.DTYPE_F32, "rank": len(dims),
             "dims": (ctypes.c_int64 * stash.MAX_RANK)(*dims)}
    return stash.TensorView(**(defaults | members))


def encoded(**members):
    defaults = {"data": address(4096), "bytes": 4096, "report": pointer(stash.EncodeReport())}
    return stash.EncodedView(**(defaults | members))


def encoding(name):
    how = stash.Encoding()
    stash.parse_encoding(name, how)
    return how


def with_arena(**members):
    return encoded(overflow=pointer(keep(stash.OverflowArena(**members))))


def made(kind, create, *arguments):
    handle = POINTER(kind)()
    create(*arguments, handle)
    return handle


with open(f"{SOURCE}/docs/graph.md", encoding="utf-8") as page:
    GRAPH = re.search(r"```json\n(.*?)```", page.read(), re.DOTALL)[1].encode()
PLAN = ctypes.c_char_p()
stash.plan(GRAPH, None, PLAN)
SWAPPER = made(stash.Swapper, stash.swapper_create, None)


def handle():
    return made(stash.Handle, stash.handle_create, encoding(b"bitmap"), tensor(16), None, None)


def swapped():
    return made(stash.Swapped, stash.swapper_out_tensor, SWAPPER, tensor(16), None, None)


def item(**members):
    defaults = {"encoding": encoding(b"bitmap"), "dense": tensor(16), "encoded": encoded()} | members
    return stash.BatchItem(**{name: pointer(keep(value)) for name, value in defaults.items() if value is not None})


# What a function takes as it is, by the type of the parameter and, for numbers, by its name.
RIGHT = {
    stash.Encoding: lambda function, name: encoding(b"csr" if function == "csr_export32" else b"bitmap"),
    stash.TensorView: lambda function, name: (tensor(16) if "pool" not in function else
                                              tensor(1, 4, 4, 1) if name in ("x", "dx") else tensor(1, 2, 2, 1)),
    stash.EncodedView: lambda function, name: encoded(),
    stash.WorkspaceView: lambda function, name: stash.WorkspaceView(data=address(), bytes=64),
    stash.BatchItem: lambda function, name: (stash.BatchItem * 1)(item()),
    stash.Csr32View: lambda function, name: csr(),
    stash.Handle: lambda function, name: handle(),
    stash.Swapper: lambda function, name: SWAPPER,
    stash.Swapped: lambda function, name: swapped(),
    stash.SizeQuery: lambda function, name: made(stash.SizeQuery, stash.handle_size, handle(), None),
    ctypes.c_int64: lambda function, name: (ctypes.c_int64 * 8)(16),
}
NUMBERS = {"rank": 1, "elements": 16, "count": 1, "density": 0.5, "capacity": 64, "bytes": 64, "slope": 0.1,
           "lower": 0.0, "upper": 6.0, "probability": 0.5}
TEXTS = {"graph_json": GRAPH, "plan_json": PLAN.value, "name": b"bitmap"}


def csr(**members):
    return stash.Csr32View(**({"row_offsets": (ctypes.c_uint32 * 8)(), "columns": (ctypes.c_uint32 * 16)(),
                               "values": address(), "capacity": 16} | members))


def right(function, name, kind):
    if kind is ctypes.c_char_p:
        return ctypes.create_string_buffer(64) if function == "encoding_name" else TEXTS.get(name, b"scalar")
    if kind is ctypes.c_void_p:
        return address()
    pointed = getattr(kind, "_type_", None)
    if isinstance(pointed, str):
        return NUMBERS.get(name, 0)
    if pointed in RIGHT:
        return RIGHT[pointed](function, name)
    if function == "swapper_out_owned" and name == "handle":
        return handle()
    return pointed()


def wrong_memory():
    nothing, something = stash.Allocate(lambda *_: None), stash.Deallocate(lambda *_: None)
    for members in ({}, {"allocate": nothing}, {"allocate": nothing, "deallocate": something},
                    {"allocate": nothing, "deallocate": something, "space": 1},
                    {"allocate": nothing, "deallocate": something, "space": 99}):
        yield pointer(keep(stash.MemoryCallbacks(**members)))


def wrong_tensors(function, name):
    dims = list(right(function, name, POINTER(stash.TensorView)).dims)
    dims = dims[:4] if "pool" in function else dims[:1]
    for members in ({"data": None}, {"data": address() + 1}, {"type": 1}, {"type": 3}, {"type": 4}, {"type": 9},
                    {"pixel_pitch": -5}, {"pixel_pitch": 1 << 60}, {"space": 1}, {"space": 9}, {"rank": 9},
                    {"reserved": 1}):
        yield tensor(*dims, **members)
    yield from (tensor(*(dim + 1 for dim in dims)), tensor(*dims[:-1], -1), tensor(*dims, 3))


def wrong_encodings(function, name):
    yield from map(encoding, (b"raw", b"sign_mask", b"shape_only", b"fp16", b"csr", b"range_mask", b"mxfp8_e4m3"))
    for members in ({"kind": 77}, {"kind": 300}, {"kind": 3}, {"kind": 3, "window_taps": 4},
                    {"kind": 4, "window_taps": 16}, {"kind": 7, "lower": 3, "upper": 1}, {"kind": 5, "values": 99},
                    {"kind": 2, "rule": 9}, {"kind": 5, "values": 1, "underflow": 7}):
        yield stash.Encoding(**members)


def wrong_encoded(function, name):
    for members in ({"data": None}, {"data": address() + 1}, {"bytes": 1}, {"report": None}):
        yield encoded(**members)
    odd, none = ctypes.c_uint64(8), ctypes.c_uint64(0)
    for members in ({"data": address(), "bytes": 64, "claimed": pointer(odd)}, {"bytes": 64, "claimed": pointer(none)},
                    {"host_bytes": 64, "host_claimed": pointer(none)}):
        yield with_arena(**members)


def wrong_items(function, name):
    for member, wrong in (("encoding", wrong_encodings), ("dense", wrong_tensors), ("encoded", wrong_encoded)):
        yield from ((stash.BatchItem * 1)(item(**{member: value})) for value in (None, *wrong(function, name)))


def wrong_plan_options(function, name):
    for member, values in {"policy": (b"zip",), "force": (b"zip", b"fp8"), "budget_bytes": (-1, 1),
                           "slot_margin": (1e9,), "overflow_share": (1e9,), "threads": (-1,), "swap": (1,),
                           "values": (b"zip", b"bitmap"), "model": (b"zip", b"{", b"{}"), "evaluations": (-1,),
                           "no_layout": (2,)}.items():
        yield from (stash.PlanOptions(**{member: value}) for value in values)
    yield stash.PlanOptions(model=b"a100", swap=1, budget_bytes=1)


WRONG = {
    stash.TensorView: wrong_tensors,
    stash.Encoding: wrong_encodings,
    stash.EncodedView: wrong_encoded,
    stash.BatchItem: wrong_items,
    stash.PlanOptions: wrong_plan_options,
    stash.ExecutionContext: lambda *_: (stash.ExecutionContext(space=space) for space in (1, 2, 9)),
    stash.WorkspaceView: lambda *_: [stash.WorkspaceView(data=address() + 1, bytes=4)],
    stash.PoolWindow: lambda *_: (stash.PoolWindow(**{name: value}) for name, _ in stash.PoolWindow._fields_[1:]
                                  for value in (-1, 3, 200)),
    stash.Csr32View: lambda *_: (csr(**members) for members in ({"capacity": -1}, {"row_offsets": None}, {"type": 9})),
    stash.HandleOptions: lambda *_: (stash.HandleOptions(memory=memory) for memory in wrong_memory()),
    stash.SwapperOptions: lambda *_: [*(stash.SwapperOptions(space=space) for space in (1, 2, 9)),
                                      stash.SwapperOptions(ahead=-1),
                                      *(stash.SwapperOptions(memory=memory) for memory in wrong_memory()),
                                      *(stash.SwapperOptions(host=memory) for memory in wrong_memory())],
    stash.SwapRequest: lambda *_: (stash.SwapRequest(**members) for members in (
        {"has_needed_at": 2}, {"null_if_full": 2}, {"bytes_in_use": 7, "name": b"map"})),
    ctypes.c_int64: lambda *_: [(ctypes.c_int64 * 8)(-1)],
}


def wrong(function, name, kind):
    pointed = getattr(kind, "_type_", None)
    if kind is ctypes.c_char_p:
        return [None, b"zip", b"{", b"{}", GRAPH.replace(b'"batch": 2', b'"batch": -2'), b"[" * 1000]
    if kind is ctypes.c_void_p:
        return [None]
    if isinstance(pointed, str):
        return [-1.0, 1e30, float("nan")] if pointed in "fd" else [-1, 0, 1, 9, 300, 1 << 60]
    return [None, *WRONG.get(pointed, lambda *_: ())(function, name)]


class Messages(unittest.TestCase):
    def test_errors_name_the_function_and_its_argument(self):
        for function, (result, kinds, _) in stash._FUNCTIONS.items():
            if result is not ctypes.c_int32:
                continue
            names, messages = NAMES[function], set()
            begins = re.compile(rf"stash_{function}: ({'|'.join(names)}|memory)\b.*expected .*, got ", re.DOTALL)
            for at, kind in enumerate(kinds):
                for value in wrong(function, names[at], kind):
                    arguments = keep([right(function, *each) for each in zip(names, kinds)])
                    arguments[at] = value
                    try:
                        getattr(stash, function)(*arguments)
                    except stash.Error as error:
                        messages.add(str(error))
            self.assertTrue(messages, function)
            self.assertEqual([message for message in messages if not begins.match(message)], [])


if __name__ == "__main__":
    unittest.main()
