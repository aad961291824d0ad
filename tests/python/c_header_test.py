# SPDX-License-Identifier: Apache-2.0
"""The reader of the C header: what it understands, and that it refuses the rest.

usage: c_header_test.py FOLDER, in which c_header.py lies
"""

import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
import c_header  # noqa: E402
from c_header import Enumeration, Function, Structure, Type, Variable  # noqa: E402


def one(source):
    (declared,) = c_header.declarations(source)
    return declared


class Understood(unittest.TestCase):
    def test_functions(self):
        self.assertEqual(one("/** What it\n * does. */\n"
                             "STASH_API int32_t stash_do(const stash_thing* a, void** b, float c);"),
                         Function("stash_do", Type("int32_t"), [Variable("a", Type("stash_thing", True, 1)),
                                                                Variable("b", Type("void", False, 2)),
                                                                Variable("c", Type("float"))], "What it does."))
        self.assertEqual(one("STASH_API const char* stash_version(void);"),
                         Function("stash_version", Type("char", True, 1)))

    def test_structures(self):
        self.assertEqual(one("typedef struct stash_a {\n  size_t struct_size; /**< its own */\n"
                             "  float lower, upper;  /**< both */\n  int64_t dims[MOST];\n} stash_a;"),
                         Structure("stash_a", [Variable("struct_size", Type("size_t"), "its own"),
                                               Variable("lower", Type("float"), "both"),
                                               Variable("upper", Type("float"), "both"),
                                               Variable("dims", Type("int64_t", length="MOST"))]))
        self.assertEqual(one("/** Unknown inside. */ typedef struct stash_b stash_b;"),
                         Structure("stash_b", None, "Unknown inside."))

    def test_pointers_to_functions(self):
        (member,) = one("typedef struct s {\n /** Calls\n  *  body. */\n"
                        " void (*each)(void* user, void (*body)(int64_t at));\n} s;").members
        body = Function("body", Type("void"), [Variable("at", Type("int64_t"))])
        self.assertEqual(member, Variable("each", Type(function=Function("each", Type("void"), [
            Variable("user", Type("void", False, 1)), Variable("body", Type(function=body))])), "Calls body."))

    def test_enumerations_and_macros(self):
        self.assertEqual(one("/** Kinds. */\nenum { A = 0, B = 7 };"), Enumeration([("A", 0), ("B", 7)], "Kinds."))
        self.assertEqual(one("typedef enum e { A = 1 } e;"), Enumeration([("A", 1)]))
        self.assertEqual(one("/** Most. */\n#define MOST 8\n"), Enumeration([("MOST", 8)], "Most."))

    def test_what_is_for_others_is_left_out(self):
        source = ("#ifndef GUARD\n#define GUARD\n/** \\file\n */\n#include <stddef.h>\n"
                  "#ifdef __cplusplus\ntemplate <class T> T f();\n"
                  "extern \"C\" {\n#else\n#define INIT(type) \\\n  { 0 }\n#endif\n// plain\n/* plain */\n"
                  "/** Said. */\nenum { A = 1 };\n#ifdef __cplusplus\n}\n#endif\n#endif\n")
        self.assertEqual(one(source), Enumeration([("A", 1)], "Said."))

    def test_comments_belong_to_what_is_next_to_them(self):
        first, second = c_header.declarations("enum { A = 1 }; /** Of the second. */ enum { B = 2 };")
        self.assertEqual((first.text, second.text), ("", "Of the second."))
        self.assertEqual(one("/** One.\n *\n * Two\n * lines. */\nenum { A = 1 };").text, "One.\n\nTwo lines.")


class Refused(unittest.TestCase):
    def test_what_is_not_understood(self):
        for source in ("int x;", "STASH_API int f(int a)", "STASH_API int f(int);", "typedef struct a { int b:3; } a;",
                       "typedef struct a { int* b, c; } a;", "typedef struct a { int b; } other;", "enum { A };",
                       "typedef int number;", "typedef union a { int b; } a;", "STASH_API int f(int a[3]"):
            with self.subTest(source), self.assertRaises((c_header.Refused, ValueError)):
                c_header.declarations(source)

    def test_the_line_is_named(self):
        with self.assertRaisesRegex(c_header.Refused, "^line 3: expected a declaration, got 'int'$"):
            c_header.declarations("/* one\n   two */\nint x;")


if __name__ == "__main__":
    unittest.main()
