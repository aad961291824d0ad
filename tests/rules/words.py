# SPDX-License-Identifier: Apache-2.0
"""One word for one thing: the words that this project does not use, and what it says instead."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """`pattern` is looked for in lower case, where neither a letter stands before it nor after it, so that a part of
    a name in snake_case counts; `instead` is what to say; `allowed` are patterns around it that mean something else."""

    pattern: str
    instead: str
    allowed: tuple = ()
    under: tuple = ("",)  # beginnings of paths

    def found(self, line):
        """Where the word stands in this line, outside of what is allowed."""
        for match in re.finditer(rf"(?<![a-z])(?:{self.pattern})(?![a-z])", line.lower()):
            if not any(around.start() <= match.start() and match.end() <= around.end()
                       for pattern in self.allowed for around in re.finditer(pattern, line.lower())):
                yield match.group()


WORDS = (
    Word("doors?", "C API, C++ API, back end, hook", (r"`door=`",)),
    Word("rooms?", "module; of bytes: capacity, free bytes, headroom, space"),
    Word("pieces?", "vec16 of 16 bytes; chunk, part, block"),
    Word("behind", "after, following, past the end"),
    Word("beside", "next to, compared with, in addition to", (r"beside_maps_bytes",)),  # of a JSON file
    Word("level[ _-]one", "non-owning API"),
    Word("given_back", "deferred_free, freed"),
    Word("tick_view", "timeline_of_choice"),
    Word("plan_sweep", "budget_planner"),
    Word("readings", "need propagation, needs"),
    Word("scratch", "workspace", (r"from scratch",)),
    Word("winners?", "argmax"),
    Word("winning cells?", "argmax"),
    Word("(?:two|one) apart", "stride 2, stride 1"),
    Word("channels (?:last|first)", "NHWC, NCHW"),
    Word("(?:bands?|strips?|stretch(?:es)?)", "tile, halo tile, column tile, row tile", (r"strip_trailing\w*", r"\.strip\("),
         ("kernels/", "tests/simt/", "tests/gpu/", "docs/kernels.md")),
)
# What is kept as it was written: formats' examples, records, and this list itself.
KEPT = ("tests/format/golden/", "bench/results/", "tests/rules/words.py", "tests/rules/rules_test.py", "LICENSE")


def unusual_words(tree):
    """Words that nobody else in the field uses for these things."""
    violations = []
    for path in tree.paths:
        if path.startswith(KEPT) or path.endswith((".svg", ".png", ".gz", ".tsv")):
            continue
        words = [word for word in WORDS if path.startswith(word.under)]
        for number, line in tree.lines(path):
            for word in words:
                violations += [f"{path}:{number}: '{found}': say {word.instead}" for found in word.found(line)]
    return violations
