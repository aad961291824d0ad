# SPDX-License-Identifier: Apache-2.0
"""stash.py against the header and the library.

usage: stash_test.py FOLDER LIBRARY SOURCE COMPILER
FOLDER holds stash.py; LIBRARY is a path of libstash.so, or "" if stash.py has to find it; SOURCE is the repository;
COMPILER is one for C++.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest

FOLDER, LIBRARY, SOURCE, COMPILER = (sys.argv.pop(1) for _ in range(4))
sys.path.insert(0, FOLDER)
import stash  # noqa: E402


def read(path):
    with open(f"{SOURCE}/{path}", encoding="utf-8") as file:
        return file.read()


HEADER = read("include/stash/c_api.h")
STRUCTURES = {name: kind for name, kind in vars(stash).items()
              if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind.__module__ == "stash"
              and hasattr(kind, "_fields_")}


def c_name(name):
    """TensorView: stash_tensor_view."""
    return "stash_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def kind_of(kind):
    """A type as describe() below says it."""
    if kind is None:
        return "v"
    if issubclass(kind, ctypes.Array):
        return f"{kind._length_}*{kind_of(kind._type_)}"
    if kind is ctypes.c_void_p or kind is ctypes.c_char_p or issubclass(kind, (ctypes._Pointer, ctypes._CFuncPtr)):
        return "p"
    letter = {"i": "i", "l": "i", "I": "u", "L": "u", "f": "f", "d": "f"}[kind._type_]
    return f"{letter}{ctypes.sizeof(kind)}"


DESCRIBE = """
#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>
#include "stash/c_api.h"
template <class T> std::string kind() {
  if constexpr (std::is_array_v<T>)
    return std::to_string(std::extent_v<T>) + "*" + kind<std::remove_extent_t<T>>();
  else if constexpr (std::is_void_v<T>)
    return "v";
  else if constexpr (std::is_pointer_v<T>)
    return "p";
  else
    return (std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T));
}
template <class T> struct of;
template <class Result, class... Parameters> struct of<Result(Parameters...)> {
  static std::string kinds() { return (kind<Result>() + ... + (" " + kind<Parameters>())); }
};
template <class Function> struct of<Function*> : of<Function> {};
"""


def described():
    """What the compiler makes of the header, and what stash.py says of the same things."""
    said, code = [], [DESCRIBE, "int main() {"]

    def ask(text, expression):
        said.append(text)
        code.append(f"std::printf(\"%s\\n\", std::string({expression}).c_str());")

    for name, kind in STRUCTURES.items():
        c = c_name(name)
        ask(f"{name} {ctypes.sizeof(kind)}", f"\"{name} \" + std::to_string(sizeof({c}))")
        for member, member_kind in kind._fields_:
            begin = f"\"{name}.{member} \" + "
            ask(f"{name}.{member} {getattr(kind, member).offset} {kind_of(member_kind)}",
                f"{begin} std::to_string(offsetof({c}, {member})) + \" \" + kind<decltype({c}::{member})>()")
            if issubclass(member_kind, ctypes._CFuncPtr):
                kinds = " ".join(map(kind_of, (member_kind._restype_, *member_kind._argtypes_)))
                ask(f"{name}.{member} {kinds}", f"{begin} of<decltype({c}::{member})>::kinds()")
    for name, (result, parameters, _) in stash._FUNCTIONS.items():
        ask(f"{name} {' '.join(map(kind_of, (result, *parameters)))}",
            f"\"{name} \" + of<decltype(stash_{name})>::kinds()")
    for name in re.findall(r"\bSTASH_(\w+) = \d", HEADER) + ["MAX_RANK"]:
        ask(f"{name} {getattr(stash, name)}", f"\"{name} \" + std::to_string(STASH_{name})")
    return said, "\n".join([*code, "}\n"])


class Declarations(unittest.TestCase):
    def test_all_of_the_header_is_there(self):
        functions = re.findall(r"^STASH_API [^;(]*?stash_(\w+)\(", HEADER, re.MULTILINE)
        self.assertEqual(list(stash._FUNCTIONS), functions)
        names = re.findall(r"^typedef struct (stash_\w+) \{", HEADER, re.MULTILINE)
        self.assertEqual([c_name(name) for name in STRUCTURES], names)
        self.assertGreater(len(functions), 70)
        self.assertGreater(len(names), 15)

    def test_sizes_offsets_and_kinds_are_the_compilers(self):
        said, code = described()
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/describe.cpp", "w", encoding="utf-8") as file:
                file.write(code)
            subprocess.run([COMPILER, "-std=c++20", "-O0", f"-I{SOURCE}/include", f"{folder}/describe.cpp", "-o",
                            f"{folder}/describe"], check=True)
            printed = subprocess.run([f"{folder}/describe"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(said, printed.splitlines())

    def test_documentation(self):
        self.assertEqual(stash.encode.__doc__.splitlines()[0], "encode(encoding, input, output, workspace, context)")
        self.assertIn("may be null", stash.encode.__doc__)
        self.assertIn("encode", dir(stash))
        self.assertIn("An encoding", stash.Encoding.__doc__)


def encoding(name):
    how = stash.Encoding()
    stash.parse_encoding(name, how)
    return how


def tensor(values):
    return stash.TensorView(data=ctypes.addressof(values), type=stash.DTYPE_F32, rank=1,
                            dims=(ctypes.c_int64 * stash.MAX_RANK)(len(values)))


def stored(how, buffer, *dims):
    encoded = stash.EncodedTensor(encoding=ctypes.pointer(how), type=stash.DTYPE_F32, rank=len(dims),
                                  bytes=ctypes.pointer(buffer.view))
    encoded.dims[:len(dims)] = dims
    return encoded


def floats(*values):
    return (ctypes.c_float * len(values))(*values)


class Buffer:
    """Aligned memory for encoded bytes."""

    def __init__(self, size):
        self.memory = ctypes.create_string_buffer(size + 15)
        self.report = stash.EncodeReport()
        address = ctypes.addressof(self.memory)
        self.view = stash.EncodedView(data=address + -address % 16, bytes=size, report=ctypes.pointer(self.report))


class Calls(unittest.TestCase):
    def test_numbers_and_texts(self):
        self.assertRegex(stash.version(), rb"^\d+\.\d+\.\d+$")
        self.assertEqual(stash.errc_name(stash.OUT_OF_MEMORY), b"out_of_memory")
        name = ctypes.create_string_buffer(32)
        stash.encoding_name(encoding(b"csr_fp8"), name, len(name))
        self.assertEqual(name.value, b"csr_fp8")
        lossless = ctypes.c_int32(7)
        stash.is_lossless(encoding(b"bitmap"), lossless)
        self.assertEqual(lossless.value, 1)
        self.assertTrue(stash.cpu_target_name(0))
        self.assertIsNone(stash.cpu_target_name(1000))

    def test_value_formats(self):
        rows = []
        for index in range(stash.value_format_count()):
            rows.append(stash.ValueFormat())
            stash.value_format_at(index, rows[-1])
            self.assertEqual(encoding(rows[-1].name).values, rows[-1].values)
        largest = {row.name: row.largest for row in rows}
        self.assertEqual((largest[b"fp16"], largest[b"fp8"], largest[b"mxfp4_e2m1"]), (65504, 448, 6))
        with self.assertRaises(stash.Error):
            stash.value_format_at(len(rows), stash.ValueFormat())

    def test_encode_and_decode(self):
        values, again = floats(*(i % 3 * 0.5 for i in range(1000))), floats(*[7.0] * 1000)
        for name in (b"raw", b"bitmap", b"csr", b"fp16"):
            how, size = encoding(name), ctypes.c_size_t()
            stash.encoded_bytes_bound(how, stash.DTYPE_F32, len(values), size)
            buffer = Buffer(size.value)
            self.assertIsNone(stash.encode(how, tensor(values), buffer.view, None, None))
            stash.decode(stored(how, buffer, len(again)), tensor(again), None, None)
            self.assertEqual(bytes(values), bytes(again), name)
            self.assertEqual(buffer.report.status, 0)

    def test_masks_as_numbers(self):
        values, again = floats(-1, 2, 0, 3), floats(7, 7, 7, 7)
        buffer = Buffer(16)
        stash.encode(encoding(b"sign_mask"), tensor(values), buffer.view, None, None)
        stash.decode(stored(encoding(b"sign_mask"), buffer, len(again)), tensor(again), None, None)
        self.assertEqual(list(again), [0, 1, 0, 1])

    def test_window_index_of_positions(self):
        # max_pool2d(x, 3, stride=2, padding=1, return_indices=True) of a plane of 4 x 4.
        flat, again = (ctypes.c_int64 * 4)(5, 6, 5, 15), (ctypes.c_int64 * 4)()
        pooled, whole = (ctypes.c_int64 * 4)(1, 1, 2, 2), (ctypes.c_int64 * 4)(1, 1, 4, 4)
        window = stash.PoolWindow(kernel_h=3, kernel_w=3, pad_top=1, pad_left=1, layout=stash.LAYOUT_CHANNELS_FIRST)
        buffer = Buffer(16)
        stash.encode_window_index(flat, 4, pooled, whole, window, buffer.view, None)
        self.assertEqual(ctypes.string_at(buffer.view.data, 2), b"\x78\x82")
        how = encoding(b"window_index")
        how.window_taps = 9
        stash.decode_window_index(stored(how, buffer, *pooled), whole, window, again, None)
        self.assertEqual(list(again), list(flat))
        self.assertEqual(buffer.report.status, 0)
        flat[0] = 16
        stash.encode_window_index(flat, 4, pooled, whole, window, buffer.view, None)
        self.assertEqual(buffer.report.status, stash.STATUS_CORRUPT)

    def test_batches(self):
        values, again = [floats(1, 0, 2), floats(0, 3)], [floats(5, 5, 5), floats(5, 5)]
        how, buffers = encoding(b"bitmap"), [Buffer(64), Buffer(64)]

        def items(dense):
            return (stash.BatchItem * 2)(*(stash.BatchItem(
                encoding=ctypes.pointer(how), dense=ctypes.pointer(tensor(each)), encoded=ctypes.pointer(buffer.view))
                for each, buffer in zip(dense, buffers)))

        stash.encode_batch(items(values), 2, None, None)
        stash.decode_batch(items(again), 2, None, None)
        self.assertEqual([list(each) for each in again], [[1, 0, 2], [0, 3]])

    def test_threads_of_the_caller(self):
        ranges = []

        @stash.ParallelFor
        def parallel_for(user, count, grain, body, state):
            for begin in range(0, count, grain):
                ranges.append(begin)
                body(state, begin, min(count, begin + grain))

        values = floats(*(float(i % 2) for i in range(100000)))
        buffer, again = Buffer(500000), floats(*[7.0] * 100000)
        context = stash.ExecutionContext(parallel_for=parallel_for)
        stash.encode(encoding(b"bitmap"), tensor(values), buffer.view, None, context)
        stash.decode(stored(encoding(b"bitmap"), buffer, len(again)), tensor(again), None, context)
        self.assertEqual(bytes(values), bytes(again))
        self.assertGreater(len(ranges), 1)

    def test_handles_with_memory_of_the_caller(self):
        held, events = {}, []

        @stash.Allocate
        def allocate(user, size, alignment, stream):
            memory = ctypes.create_string_buffer(size + alignment)
            address = ctypes.addressof(memory)
            address += -address % alignment
            held[address] = memory
            return address

        @stash.Deallocate
        def deallocate(user, data, size, alignment, stream):
            del held[data]

        @stash.Notify
        def notify(user, event):
            events.append((event[0].kind, event[0].tensor))

        memory = stash.MemoryCallbacks(allocate=allocate, deallocate=deallocate)
        options = stash.HandleOptions(memory=ctypes.pointer(memory), notify=notify, name=b"map", capacity=64)
        handle, values, again = ctypes.POINTER(stash.Handle)(), floats(*[1.5] * 5000), floats(*[0.0] * 5000)
        stash.handle_create(encoding(b"bitmap"), tensor(values), options, None, handle)
        self.assertTrue(held)
        self.assertEqual(events, [(stash.EVENT_OVERFLOW, b"map"), (stash.EVENT_FALLBACK, b"map")])
        stash.handle_restore(handle, tensor(again), None)
        self.assertEqual(bytes(values), bytes(again))
        how = stash.Encoding()
        stash.handle_encoding(handle, how)
        self.assertEqual(how.kind, stash.KIND_BITMAP)
        stash.handle_destroy(handle)
        self.assertFalse(held)

    def test_swapper(self):
        swapper, swapped = ctypes.POINTER(stash.Swapper)(), ctypes.POINTER(stash.Swapped)()
        values, again = floats(1, 2, 3, 4), floats(0, 0, 0, 0)
        stash.swapper_create(None, swapper)
        request = stash.SwapRequest(name=b"map", needed_at=3, has_needed_at=1)
        stash.swapper_out_tensor(swapper, tensor(values), request, None, swapped)
        stash.swapped_wait_out(swapped, None)
        stash.swapped_restore(swapped, tensor(again), 0, None)
        self.assertEqual(list(again), [1, 2, 3, 4])
        stash.swapped_destroy(swapped)
        stash.swapper_destroy(swapper)

    def test_planning(self):
        graph = re.search(r"```json\n(.*?)```", read("docs/graph.md"), re.DOTALL)[1]
        plan, text = ctypes.c_char_p(), ctypes.c_char_p()
        stash.plan(graph.encode(), stash.PlanOptions(policy=b"fp8"), plan)
        stash.verify_plan(plan.value, None)
        stash.explain_plan(plan.value, text)
        self.assertIn(b"relu", text.value)
        stash.free_text(text)
        findings = ctypes.c_char_p()
        changed = re.sub(rb'"planned_peak":\d+', b'"planned_peak":1', plan.value)
        with self.assertRaises(stash.Error) as caught:
            stash.verify_plan(changed, findings)
        self.assertEqual(caught.exception.code, stash.VERIFICATION_FAILED)
        self.assertTrue(findings.value)
        stash.free_text(findings)
        stash.free_text(plan)


    def test_the_example_of_the_documentation(self):
        names = {}
        exec(re.search(r"```python\n(.*?)```", read("docs/python.md"), re.DOTALL)[1], names)
        self.assertEqual(names["how"].kind, stash.KIND_BITMAP)
        self.assertEqual(sum(names["values"]), 500)


class Failures(unittest.TestCase):
    def test_errors_are_exceptions(self):
        with self.assertRaises(stash.Error) as caught:
            stash.parse_encoding(b"zip", stash.Encoding())
        self.assertEqual(caught.exception.code, stash.INVALID_ARGUMENT)
        self.assertEqual(str(caught.exception), caught.exception.message)
        self.assertEqual(caught.exception.message.encode(), stash.last_error_message())
        self.assertIn('"zip"', str(caught.exception))

    def test_each_thread_has_its_own_message(self):
        def fail(name):
            for _ in range(200):
                try:
                    stash.parse_encoding(name, stash.Encoding())
                except stash.Error as error:
                    wrong.update({str(error)} if name.decode() not in str(error) else ())

        wrong = set()
        threads = [threading.Thread(target=fail, args=(name,)) for name in (b"first", b"second")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, set())

    def test_what_ctypes_refuses(self):
        with self.assertRaises(ctypes.ArgumentError):
            stash.encode(stash.TensorView(), None, None, None, None)
        with self.assertRaises(ctypes.ArgumentError):
            stash.handle_destroy(ctypes.POINTER(stash.Swapper)())
        with self.assertRaises(TypeError):
            stash.encode(stash.Encoding())
        with self.assertRaises(AttributeError):
            stash.Encoding().knd = 3
        with self.assertRaises(TypeError):
            stash.Encoding(struct_size=8)

    def test_names_that_there_are_not(self):
        with self.assertRaisesRegex(AttributeError, "^module 'stash' has no attribute 'encod'$"):
            stash.encod  # noqa: B018
        self.assertFalse(hasattr(stash, "stash_encode"))

    def test_another_library(self):
        with self.assertRaisesRegex(RuntimeError, "^load: path: expected the library that is loaded, .* other.so$"):
            stash.load("other.so")
        stash.load()
        if LIBRARY:
            stash.load(LIBRARY)

    def test_no_library(self):
        code = ("import stash\ntry:\n    stash.load('/nowhere/libstash.so')\n"
                "except OSError as error:\n    print(error)\n")
        said = subprocess.run([sys.executable, "-B", "-c", code], env={**os.environ, "PYTHONPATH": FOLDER},
                              check=True, capture_output=True, text=True).stdout
        self.assertIn("/nowhere/libstash.so", said)


if __name__ == "__main__":
    if LIBRARY:
        stash.load(LIBRARY)
    unittest.main()
