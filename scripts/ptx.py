# SPDX-License-Identifier: Apache-2.0
"""What nvcc and ptxas say of kernels: resources from the log of `ptxas -v`, and from PTX the main path of a kernel,
with what it reads and writes."""

import heapq
import re
import shutil
import subprocess
from dataclasses import dataclass, field, replace

COMPILING = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")

ENTRY = re.compile(r"^(?:\.visible |\.weak )?\.entry (\w+)\(", re.MULTILINE)
LABEL = re.compile(r"^(\$?\w+):$")
INSTRUCTION = re.compile(r"^(?:@(!?%?\w+) )?([a-z][\w.:]*)\s*(.*);$")
# A constant in a register, or a register's bits in one of another kind: machine instructions take constants, and their
# registers are of one kind.
FREE_MOVE = re.compile(r"%([a-z]+)\d+, (?:-?\d\w*|%([a-z]+)\d+)$")
ACCESS = re.compile(r"^(ld|st)((?:\.[\w:]+)*?)(?:\.v(\d))?\.[bufs](\d+)$")

WIDE = 16  # bytes, from which on an access is wide

# The most instructions of a side branch that is taken for the work on one element.
SIDE = 128


@dataclass(frozen=True)
class Resources:
    registers: int
    stack: int
    spills: int
    shared: int


def resources(log):
    """{mangled name: {architecture: Resources}} of a log of ptxas -v."""
    found = {}
    name = None
    for line in log.splitlines():
        if match := COMPILING.search(line):
            name, architecture = match.groups()
        elif match := SPILLS.search(line):
            stack, stores, loads = map(int, match.groups())
        elif name and (match := REGISTERS.search(line)):
            shared = SHARED.search(line)
            found.setdefault(name, {})[architecture] = Resources(int(match[1]), stack, stores + loads,
                                                                 int(shared[1]) if shared else 0)
            name = None
    return found


def plain_names(mangled):
    """{mangled: name} with the names as the sources would have them, without namespaces, arguments and spaces."""
    if not shutil.which("c++filt"):
        raise SystemExit("kernel_facts: c++filt of binutils is not there")
    names = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    return dict(zip(mangled, map(plain_name, names.splitlines())))


def plain_name(demangled):
    name = re.sub(r"\b(void |stash::kernels::|stash::encoders::|\(anonymous namespace\)::)", "", demangled)
    name = re.sub(r"\((?:anonymous namespace)\)::", "", name)
    depth = 0
    for place, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            name = name[:place]
            break
    for long, short in (("unsigned int", "u32"), ("unsigned short", "u16"), ("unsigned char", "u8"), ("> >", ">>"),
                        (", ", ",")):
        name = name.replace(long, short)
    # "> > >" leaves one over.
    return re.sub(r"\b(\d+)u\b", r"\1", name.replace("> >", ">>"))


@dataclass
class Block:
    """Instructions that run together."""
    instructions: int = 0
    accesses: dict = field(default_factory=dict)  # kind -> count
    bytes: int = 0  # of global memory
    next: list = field(default_factory=list)  # numbers of blocks
    leaves: bool = False
    apart: bool = False  # has something that not every thread of the main path comes to alone

    def take(self, other):
        """Runs the instructions of another block after its own."""
        self.instructions += other.instructions
        self.bytes += other.bytes
        self.apart |= other.apart
        self.leaves |= other.leaves
        for kind, count in other.accesses.items():
            self.accesses[kind] = self.accesses.get(kind, 0) + count

    def only_computes(self):
        return not self.apart and not self.leaves and not self.bytes


def access_of(opcode):
    """(kind, bytes) of an instruction that reads or writes memory, else None. Of shared memory, wide ones are of the same
    kind as the others. Where nvcc has lost track of what a pointer points to, no memory is named: it is the global one,
    for arrays of shared memory are never out of sight."""
    match = ACCESS.match(opcode)
    spaces = {word.split("::")[0] for word in match[2].split(".")} if match else set()
    if not match or spaces & {"param", "local", "const"}:
        return None
    bytes_ = int(match[3] or 1) * int(match[4]) // 8
    verb = "loads" if match[1] == "ld" else "stores"
    if "shared" in spaces:
        return f"shared_{verb}", bytes_
    return ("wide_" if bytes_ >= WIDE else "narrow_") + verb, bytes_


def is_free(opcode, operands):
    """Whether an instruction of PTX is none of the machine's, or no work on elements: that a kernel begins early."""
    move = opcode.startswith("mov.") and FREE_MOVE.match(operands)
    return opcode.startswith("griddepcontrol.") or (bool(move) and move[1] != move[2])


def bodies(text):
    """(mangled name, text) of the kernels in a file of PTX."""
    starts = list(ENTRY.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return [(match[1], text[match.end():end]) for match, end in zip(starts, ends)]


def kernels(text):
    """{mangled name: [Block]} of a file of PTX; the first block is where a kernel starts."""
    return {name: blocks_of(body, name) for name, body in bodies(text)}


def waiting(text):
    """Names of the kernels that wait for those in front of them before they end or touch memory, but by load_early(), and
    have no loads that may be moved in front of the wait."""
    first = re.compile(r"^\s*(griddepcontrol\.wait;|(?:[{]\s*)?(?:@!?%?\w+\s+)?(?:ret|exit|trap|griddepcontrol\.wait|"
                       r"(?:ld|ldu|st|atom|red|cp|tex|suld|sust|multimem)\."
                       r"(?!param|relaxed\.gpu\.global\.u32|async\.bulk\.prefetch)\S+))", re.MULTILINE)
    movable = re.compile(r"\b(?:ld\.global\.nc|ldu\.|tex\.|suld\.|multimem\.)")
    found = ((name, body, first.search(body)) for name, body in bodies(text))
    return {name for name, body, match in found
            if match and match[1] == "griddepcontrol.wait;" and not movable.search(body)}

def blocks_of(text, name):
    blocks = [Block()]
    labels = {}
    targets = []  # of jumps, by label
    falls = True  # into the next block
    for line in text[text.index("\n{") + 2:].splitlines():
        line = line.split("//")[0].strip()
        if match := LABEL.match(line):
            blocks.append(Block())
            labels[match[1]] = len(blocks) - 1
            if falls:
                blocks[-2].next.append(len(blocks) - 1)
            falls = True
            continue
        match = INSTRUCTION.match(line)
        if not match:
            continue
        predicate, opcode, operands = match.groups()
        block = blocks[-1]
        block.instructions += not is_free(opcode, operands)
        if access := access_of(opcode):
            block.accesses[access[0]] = block.accesses.get(access[0], 0) + 1
            if access[0].startswith("shared"):
                wide = access[0].replace("_", "_wide_")
                block.accesses[wide] = block.accesses.get(wide, 0) + (access[1] >= WIDE)
            else:
                block.bytes += access[1]
        head = opcode.split(".")[0]
        if head in ("call", "brx"):
            raise SystemExit(f"kernel_facts: {name}: '{opcode}' is not understood")
        # All lanes meet, one thread speaks for many, or a pitch is divided by.
        block.apart |= head in ("shfl", "vote", "bar", "atom", "red", "div", "rem")
        if head == "bra":
            targets.append((len(blocks) - 1, operands))
        if head in ("ret", "exit"):
            block.leaves = True
        if head in ("bra", "ret", "exit"):
            blocks.append(Block())
            if predicate:
                block.next.append(len(blocks) - 1)
            else:
                falls = False
        else:
            falls = True
    for number, label in targets:
        blocks[number].next.append(labels[label])
    return blocks


def condense(blocks, of_two=min):
    """Fewer blocks, by number, with every way through the kernel that matters. What a thread may skip, a warp runs as
    soon as one of its lanes does: a side branch that only computes counts as always taken. Where there are two such sides,
    for two element types or formats, by a flag or for groups with a NaN, `of_two` picks by instructions."""
    blocks = {number: replace(block, accesses=dict(block.accesses), next=list(dict.fromkeys(block.next)))
              for number, block in enumerate(blocks)}
    sources = {number: 0 for number in blocks}
    for block in blocks.values():
        for number in block.next:
            sources[number] += 1

    def side(number):
        block = blocks[number]
        return sources[number] == 1 and len(block.next) == 1 and block.only_computes()

    def drop(number):
        for other in blocks.pop(number).next:
            sources[other] -= 1

    waiting = list(blocks)
    while waiting:
        number = waiting.pop()
        while number in blocks:
            block = blocks[number]
            if len(block.next) == 1 and block.next[0] not in (0, number) and sources[block.next[0]] == 1:
                # One after the other.
                other = blocks.pop(block.next[0])
                block.take(other)
                block.next = other.next
                continue
            if len(block.next) != 2:
                break
            one, two = block.next
            if side(two) and blocks[two].next[0] == one:
                one, two = two, one
            if side(one) and blocks[one].instructions <= SIDE and blocks[one].next[0] == two and two != number:
                block.take(blocks[one])
                block.next = [two]
                drop(one)
            elif side(one) and side(two) and blocks[one].next == blocks[two].next != [number]:
                block.take(of_two(blocks[one], blocks[two], key=lambda arm: arm.instructions))
                block.next = list(blocks[one].next)
                sources[block.next[0]] += 1
                drop(one)
                drop(two)
            else:
                break
            # What comes before may be a branch around this block now.
            waiting += [other for other in blocks if number in blocks[other].next]
    return blocks


@dataclass(frozen=True)
class Path:
    instructions: int
    bytes: int


# Counts of all kinds in one number, because a search adds and compares them millions of times: each has its bits, and
# one above them that shows whether it went beyond the goal.
COUNT_BITS = 12


def packed(counts):
    return sum(count << COUNT_BITS * place for place, count in enumerate(counts))


def main_path(blocks, accesses, of_two=min):
    """The cheapest way through a kernel with exactly these accesses ({kind: count}; other kinds do not matter), None if
    there is none; `of_two` is for condense(). What handles borders, odd pitches or small parts is longer or has other
    accesses."""
    blocks = condense(blocks, of_two)
    kinds = sorted(accesses)
    goal = packed(accesses[kind] for kind in kinds)
    tops = packed(1 << COUNT_BITS - 1 for _ in kinds)
    steps = {number: packed(block.accesses.get(kind, 0) for kind in kinds) for number, block in blocks.items()}
    settled = settled_counts(blocks, kinds)
    waiting = [(blocks[0].instructions, 0, steps[0], blocks[0].bytes)]
    least = {(0, steps[0]): blocks[0].instructions}
    while waiting:
        cost, number, have, moved = heapq.heappop(waiting)
        if blocks[number].leaves and have == goal:
            return Path(cost, moved)
        if cost > least[number, have]:
            continue
        for other in blocks[number].next:
            after = have + steps[other]
            then = cost + blocks[other].instructions
            if ((goal + tops - after) & tops == tops and (after ^ goal) & settled[other] == 0
                    and then < least.get((other, after), then + 1)):
                least[other, after] = then
                heapq.heappush(waiting, (then, other, after, moved + blocks[other].bytes))
    return None


def settled_counts(blocks, kinds):
    """For each block the bits of the counts that no later block changes: on a way to the goal they are the goal's."""
    later = {number: set() for number in blocks}  # kinds of accesses
    changed = True
    while changed:
        changed = False
        for number, block in blocks.items():
            seen = set().union(*(later[other] | {kind for kind in kinds if blocks[other].accesses.get(kind)}
                                 for other in block.next))
            changed |= seen != later[number]
            later[number] = seen
    every = (1 << COUNT_BITS) - 1
    return {number: packed(0 if kind in seen else every for kind in kinds) for number, seen in later.items()}
