# SPDX-License-Identifier: Apache-2.0
"""Reads a header for C as stash/c_api.h is written: structures, enumerations, function pointers and functions that are
marked STASH_API, with the comments that belong to them. It is no parser for C: what it does not know it refuses, with
the line."""

import re
from dataclasses import dataclass, field


class Refused(Exception):
    """The header has something that is not understood."""


@dataclass
class Type:
    """`const name **`, or a pointer to a function; `length` for an array of them."""

    name: str = ""
    const: bool = False
    pointers: int = 0
    function: "Function | None" = None
    length: str = ""


@dataclass
class Variable:
    """A member or a parameter."""

    name: str
    type: Type
    text: str = ""


@dataclass
class Structure:
    name: str
    members: "list[Variable] | None" = None  # None: known by name alone
    text: str = ""


@dataclass
class Enumeration:
    """Constants that belong together; a macro with a number is an enumeration of one."""

    values: list[tuple[str, int]]
    text: str = ""


@dataclass
class Function:
    name: str
    result: Type
    parameters: list[Variable] = field(default_factory=list)
    text: str = ""


TOKEN = re.compile(r"(?P<text>/\*\*.*?\*/)|(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<word>\w+)|(?P<symbol>\S)", re.DOTALL)
NUMBER_MACRO = re.compile(r"#define (\w+) (\d+)$")


def directives_resolved(source):
    """The lines that a compiler for C sees. Macros that are numbers become enumerations, other directives vanish."""
    lines, seen, continued = [], [True], False
    for line in source.splitlines():
        directive = continued or line.startswith("#")
        continued = directive and line.endswith("\\")
        if line.startswith("#if"):
            seen.append(line != "#ifdef __cplusplus")
        elif line.startswith("#else"):
            seen[-1] = not seen[-1]
        elif line.startswith("#endif"):
            seen.pop()
        number = NUMBER_MACRO.match(line)
        if not all(seen):
            line = ""
        elif number:
            line = f"enum {{ {number[1]} = {number[2]} }};"
        lines.append("" if directive and not number else line)
    return "\n".join(lines)


def plain_text(comment):
    """What a comment says, with its paragraphs separated."""
    lines = re.sub(r"^/\*\*<?|\*/$", "", comment).splitlines()
    lines = [re.sub(r"^\s*\* ?", "", line).strip() for line in lines]
    return "\n\n".join(" ".join(part.split()) for part in "\n".join(lines).strip().split("\n\n"))


class Parser:
    def __init__(self, source):
        resolved = directives_resolved(source)
        self.tokens = []  # kind, text, line
        for match in TOKEN.finditer(resolved):
            if match.lastgroup != "comment":
                self.tokens.append((match.lastgroup, match.group(), resolved.count("\n", 0, match.start()) + 1))
        self.at = 0

    def refuse(self, expected):
        got, line = (self.tokens[self.at][1:] if self.at < len(self.tokens) else ("the end", 0))
        raise Refused(f"line {line}: expected {expected}, got '{got}'")

    def next_is(self, word):
        return self.at < len(self.tokens) and self.tokens[self.at][1] == word

    def take(self, *words):
        """The words, if they come next."""
        if all(self.at + i < len(self.tokens) and self.tokens[self.at + i][1] == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def need(self, *words):
        for word in words:
            if not self.take(word):
                self.refuse(f"'{word}'")

    def word(self):
        if self.at == len(self.tokens) or self.tokens[self.at][0] != "word":
            self.refuse("a name or a number")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def text(self, trailing=False):
        """The comment that comes next, "" if there is none; /**< belongs to what is before it."""
        said = ""
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "text":
            if self.tokens[self.at][1].startswith("/**<") != trailing:
                break
            said = plain_text(self.tokens[self.at][1])
            self.at += 1
        return said

    def declarations(self):
        found = []
        while self.at < len(self.tokens):
            text = self.text()
            if self.at == len(self.tokens):
                break
            if self.take("typedef", "struct"):
                found.append(self.structure(text))
            elif self.take("typedef", "enum"):
                name = self.word()
                found.append(self.enumeration(text))
                self.need(name, ";")
            elif self.take("enum"):
                found.append(self.enumeration(text))
                self.need(";")
            elif self.take("STASH_API"):
                found.append(self.function(text))
            else:
                self.refuse("a declaration")
        return found

    def structure(self, text):
        name = self.word()
        if self.take(name, ";"):
            return Structure(name, None, text)
        self.need("{")
        members = []
        while not self.take("}"):
            members += self.members()
        self.need(name, ";")
        return Structure(name, members, text)

    def members(self):
        """Those of one declaration, which share what is said of them."""
        text = self.text()
        first = self.variable()
        found = [first]
        while self.take(","):
            if first.type.pointers or first.type.function or first.type.length:
                self.refuse("one name for what is not a plain number")
            found.append(Variable(self.word(), first.type))
        self.need(";")
        text = self.text(trailing=True) or text
        for member in found:
            member.text = text
        return found

    def enumeration(self, text):
        self.need("{")
        values = []
        while not self.take("}"):
            name = self.word()
            self.need("=")
            values.append((name, int(self.word())))
            if not self.next_is("}"):
                self.need(",")
        return Enumeration(values, text)

    def type(self):
        const = self.take("const")
        kind = Type(self.word(), const)
        while self.take("*"):
            kind.pointers += 1
        return kind

    def variable(self):
        kind = self.type()
        if self.take("(", "*"):
            name = self.word()
            self.need(")")
            return Variable(name, Type(function=Function(name, kind, self.parameters())))
        name = self.word()
        if self.take("["):
            kind.length = self.word()
            self.need("]")
        return Variable(name, kind)

    def parameters(self):
        self.need("(")
        if self.take("void", ")"):
            return []
        found = [self.variable()]
        while self.take(","):
            found.append(self.variable())
        self.need(")")
        return found

    def function(self, text):
        result = self.type()
        name = self.word()
        parameters = self.parameters()
        self.need(";")
        return Function(name, result, parameters, text)


def declarations(source):
    """Structure, Enumeration and Function in the order of the header."""
    return Parser(source).declarations()
