# SPDX-License-Identifier: Apache-2.0
"""Moves what a step keeps to the host, already encoded, and brings it back before it is read.

A group leaves when its first saver has run. Its memory on the device is held until `ahead` more large groups have been saved, or
the backward pass begins: then the stream waits for the copy, and the memory is let go. So peaks do not depend on how fast copies
are. Copies back begin where the plan says (fit.py), at the latest at the reader, whose stream waits for them.
"""

import collections

import torch

from . import forms, library

SMALLEST = 1 << 16  # bytes; less is not worth a copy
AHEAD = 2  # groups


def groups_ahead(swap):
    """How many groups may be on their way at a time; 0: nothing moves."""
    if swap is True or swap is False:
        return AHEAD if swap else 0
    if type(swap) is not int or swap < 1:
        raise ValueError(f"compress: swap: expected True, False, or how many groups are on their way at a time, got {swap!r}")
    return swap


class Mover:
    """Of one session, for one device."""

    def __init__(self, engine, ahead):
        self.engine, self.ahead = engine, ahead
        self.leaving = collections.deque()  # (node, Away), whose memory on the device is held until that node

    def take(self, stored, until, tensor=None):
        """Sends what a form has stored to the host, and returns what stands for it; None if there is no memory for it there.
        until: the node at which its memory on the device is let go. tensor: one that shares the memory of what was stored, and
        counts writes to it."""
        try:
            away = Away(self.engine, stored, tensor)
        except library.Error:
            return None
        self.leaving.append((until, away))
        return away

    def passed(self, node):
        """The forward pass has come to this node."""
        while self.leaving and self.leaving[0][0] <= node:
            self.leaving.popleft()[1].release()

    def settle(self):
        """Nothing is held any more that is on its way to the host."""
        while self.leaving:
            self.leaving.popleft()[1].release()


class Away:
    """Stands for forms.Stored."""

    def __init__(self, engine, stored, tensor):
        self.bytes = stored.bytes
        self.tensor, self.version = tensor, tensor._version if tensor is not None else 0
        self.written = False  # before it had left
        self.parts = [Part(engine, each) if each.nbytes >= SMALLEST else Small(each) for each in stored.buffers]

    def release(self):
        self.written = self.tensor is not None and self.tensor._version != self.version
        self.tensor = None
        for each in self.parts:
            each.release()

    def begin(self):
        """Begins to bring it back ahead of its reader. Where that fails, the reader does it."""
        try:
            for each in self.parts:
                each.begin()
        except (library.Error, RuntimeError):
            pass

    @property
    def buffers(self):
        if self.written or (self.tensor is not None and self.tensor._version != self.version):
            raise forms.Moved("tensor that was on its way to the host")
        return tuple(each.get() for each in self.parts)


class Small:
    """A buffer that stays on the device."""

    def __init__(self, buffer):
        self.buffer = buffer

    def release(self):
        pass

    def begin(self):
        pass

    def get(self):
        return self.buffer


class Part:
    """One buffer. It is on the device, on the host (a ticket and no buffer), or on its way: in both places."""

    def __init__(self, engine, buffer):
        self.engine, self.ticket = engine, None
        self.buffer, self.size, self.dtype, self.device = buffer, buffer.numel(), buffer.dtype, buffer.device
        self.ticket, self.coming = engine.out(buffer), False

    def release(self):
        try:
            self.engine.release(self.ticket, self.buffer)
        except library.Error:  # the copy failed: it stays on the device
            self._drop()
        else:
            self.buffer = None

    def begin(self):
        if self.buffer is None:
            buffer = torch.empty(self.size, dtype=self.dtype, device=self.device)
            self.engine.back(self.ticket, buffer)
            self.buffer, self.coming = buffer, True

    def get(self):
        self.begin()
        if self.coming:
            self.engine.wait(self.ticket, self.buffer)
            self.coming = False
            self._drop()
        return self.buffer

    def _drop(self):
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.engine.drop(ticket)

    def __del__(self):
        self._drop()
