# SPDX-License-Identifier: Apache-2.0
"""Memory over one step, from the events of torch's allocator.

A step's time is cut into moments: one begins with every node that autograd makes in the forward pass, one with every node
that runs in the backward pass. All times are the profiler's own, so that moments and events have one order.
"""

import bisect
import itertools
import threading
from dataclasses import dataclass, field

import torch

MARK = "stash_torch: moment "


@dataclass
class Block:
    """One allocation: from the moment in which it was made to the last in whose most it counts (None: after the step)."""

    bytes: int
    first: int
    last: int = None
    freed: int = None  # a time


@dataclass
class Timeline:
    moments: list  # ("forward" or "backward", position of the node), or ("planning", "planned" or "after", 0)
    most: list  # bytes: the most that was allocated at once in each moment, beyond what there was before the step
    blocks: dict = field(default_factory=dict)  # by what Watch.see was told
    before: int = 0  # bytes that were there before; 0 on a CPU, whose allocator does not count
    without: tuple = ()  # kinds of moments that are not part of the step
    times: list = field(default_factory=list)  # nanoseconds: when each moment began; none where ops run later than calls

    def __post_init__(self):
        self.moment_of = {moment: index for index, moment in enumerate(self.moments)}

    def seconds_of(self, moment):
        """What one op took: a moment of the forward stage begins when its op has ended, one of the backward stage when it
        begins. None if that is not known."""
        place = self.moment_of.get(moment)
        begin = None if place is None else place - 1 if moment[0] == "forward" else place
        if begin is None or not 0 <= begin < len(self.times) - 1:
            return None
        return (self.times[begin + 1] - self.times[begin]) / 1e9

    @property
    def peak(self):
        """Bytes, beyond `before`."""
        return max((most for moment, most in zip(self.moments, self.most) if moment[0] not in self.without), default=0)


class Watch:
    """Begins before a step."""

    _one = threading.Lock()  # torch has one profiler for all threads

    @classmethod
    def begin(cls, device):
        """A Watch, or None while somebody else has torch's profiler."""
        if torch.autograd._profiler_enabled() or not cls._one.acquire(blocking=False):
            return None
        try:
            return cls(device)
        except RuntimeError:  # a profiler of another thread
            cls._one.release()
            return None

    def __init__(self, device):
        self.device = device
        self.moments, self.seen = [], []
        self.spoiled = False
        self.before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        self.profile = torch.autograd.profiler.profile(use_kineto=True, profile_memory=True)
        self.profile.__enter__()

    def mark(self, kind, position):
        with torch.autograd.profiler.record_function(f"{MARK}{len(self.moments)}"):
            self.moments.append((kind, position))

    def see(self, key, tensor):
        """Asks when the storage of this tensor goes: it lives at the moment at hand."""
        self.seen.append((key, tensor.untyped_storage().data_ptr(), len(self.moments) - 1))

    def abandon(self):
        """Once the thread has ended in which the watch began: its profiler has ended with it."""
        self._one.release()

    def stop(self, without):
        """The step's Timeline."""
        profile, self.profile = self.profile, None
        try:
            profile.__exit__(None, None, None)
        finally:
            self._one.release()
        times, events = [], []
        stack = list(profile.kineto_results.experimental_event_tree())
        while stack:
            event = stack.pop()
            if event.name.startswith(MARK):
                times.append(event.start_time_ns)
            elif event.name == "[memory]":
                self._add(events, event)
            stack.extend(event.children)
        return self._timeline(sorted(times), sorted(events), without)

    def _add(self, events, event):
        made = event.extra_fields
        if made.device.type == self.device.type and (made.device.type == "cpu" or made.device == self.device):
            events.append((event.start_time_ns, made.alloc_size, made.ptr))

    def _timeline(self, times, events, without):
        if len(times) != len(self.moments):  # somebody else has begun or ended the profiler in between
            return Timeline([], [])
        most, live, at = [0] * max(1, len(self.moments)), 0, 0
        reached = [0] * len(most)  # when
        made, of_pointer = {}, {}  # blocks that live; all blocks of an address, in order
        for time, size, pointer in events:
            now = max(0, bisect.bisect_right(times, time) - 1)
            for between in range(at + 1, now + 1):
                most[between], reached[between] = live, time
            at = now
            if pointer in made:
                block = made.pop(pointer)
                block.last, block.freed = now, time
                live -= block.bytes
            elif size < 0 and self.device.type != "cpu":
                live += size
            if size > 0:
                made[pointer] = block = Block(size, now)
                of_pointer.setdefault(pointer, []).append(block)
                live += size
            if live > most[at]:
                most[at], reached[at] = live, time
        for after in range(at + 1, len(self.moments)):
            most[after] = live
        for block in itertools.chain.from_iterable(of_pointer.values()):
            if block.last is not None and block.freed < reached[block.last]:
                block.last -= 1
        return Timeline(self.moments, most, self._blocks(of_pointer), self.before, without,
                        times if self.device.type == "cpu" else [])

    def _blocks(self, of_pointer):
        blocks = {}
        for key, pointer, moment in self.seen:
            for block in of_pointer.get(pointer, ()):
                if block.first <= moment and (block.last is None or block.last + 1 >= moment):
                    blocks.setdefault(key, block)
        return blocks
