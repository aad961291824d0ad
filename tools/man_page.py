# SPDX-License-Identifier: Apache-2.0
"""Writes the manual page of the stash command from what its --help says, packed if the name ends in .gz.

usage: man_page.py STASH FILE
"""

import gzip
import re
import subprocess
import sys

ENTRY = re.compile(r"  (\S.*?)(?:\s{2,}(\S.*))?")
AFTER = [
    ("EXIT STATUS", [
        ("0", "done"),
        ("1", "failed while running, or verify found faults"),
        ("2", "wrong arguments, missing or damaged files, or a budget that is impossible"),
        ("130", "interrupted by Ctrl-C"),
    ]),
    ("ENVIRONMENT", [
        ("STASH_DATA", "folder with IDX or CIFAR-10 files, for commands that train"),
        ("STASH_VERIFY", "1: checks every lossless decode against the original"),
        ("STASH_CPU_TARGET", "instruction set of the encodings: avx3, avx2, sse4, ssse3, scalar and others"),
    ]),
]


def read_help(text):
    """What it does, how it is called, and a list of sections, each a title and pairs of a name and what it means."""
    about, usage, sections = "", "", []
    for line in text.splitlines():
        entry = ENTRY.fullmatch(line)
        if line.startswith("Usage: "):
            usage = line.removeprefix("Usage: ")
        elif re.fullmatch(r"\w.*:", line):
            sections.append((line[:-1], []))
        elif not sections:
            about = f"{about} {line.strip()}".strip()
        elif entry:
            sections[-1][1].append([entry[1], entry[2] or ""])
        elif line.strip():
            last = sections[-1][1][-1]
            last[1] = f"{last[1]} {line.strip()}".strip()
    return about, usage, sections


def plain(text):
    """A line of text that troff takes as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


def listing(entries):
    return [line for name, meaning in entries
            for line in (".TP", ".B " + plain(name.replace(",--", ", --")), plain(meaning) or "\\&")]


def page(ask):
    """The page; ask(arguments...) gives what the command prints."""
    about, usage, sections = read_help(ask("--help"))
    commands = next(entries for title, entries in sections if title == "Subcommands")
    lines = [f'.TH STASH 1 "" "stash {ask("--version").strip()}" "User Commands"', ".SH NAME",
             "stash \\- " + plain(about[0].lower() + about[1:].rstrip(".")),
             ".SH SYNOPSIS", f".B {plain(usage)}"]
    for title, entries in sections:
        if title != "Subcommands":
            lines += [f".SH {title.upper()}", *listing(entries)]
    lines += [".SH COMMANDS", *listing(commands)]
    for name, _ in commands:
        about, usage, sections = read_help(ask(name, "--help"))
        lines += [f'.SH "STASH {plain(name.upper())}"', f".B {plain(usage)}", ".PP", plain(about) + "."]
        for title, entries in sections:
            own = [entry for entry in entries if not entry[0].startswith(("-h,", "--help"))]
            if own:
                lines += [f".SS {title}", *listing(own)]
    for title, entries in AFTER:
        lines += [f'.SH "{title}"', *listing(entries)]
    return "\n".join(lines) + "\n"


def main(stash, file):
    def ask(*arguments):
        return subprocess.run([stash, *arguments], check=True, text=True, stdout=subprocess.PIPE).stdout

    text = page(ask).encode("ascii")
    with open(file, "wb") as output:
        # Neither a name nor a time in it: the same bytes whenever it is built.
        output.write(gzip.compress(text, mtime=0) if file.endswith(".gz") else text)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
