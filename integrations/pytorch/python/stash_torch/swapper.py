# SPDX-License-Identifier: Apache-2.0
"""What a device does for moves: copies to the host's pinned memory and back, by the library's swapper.

Copies run in streams of their own, ordered against the stream that is current in the caller by events; the host waits for
none of them. Five calls are all that swap.py uses, so tests put another class in their place.
"""

import ctypes

from . import library

api = library.api


def engine_of(device):
    """For tensors of this device; None where tensors are in the host's memory already. Raises library.Error if the library
    has no kernels for it."""
    return Engine(device) if device.type == "cuda" else None


class Engine:
    def __init__(self, device):
        self.device, self.tickets, self.closed = device, 0, False
        self.swapper = ctypes.POINTER(api.Swapper)()
        with library.current(device):
            api.swapper_create(api.SwapperOptions(space=api.SPACE_DEVICE), self.swapper)

    def out(self, tensor):
        """Begins to copy a dense tensor to the host, after the work of the current stream. It must stay as it is until
        release(). Raises library.Error if there is not enough memory on the host."""
        context, swapped = library.context_of(tensor), ctypes.POINTER(api.Swapped)()
        with library.current(tensor.device):
            api.swapper_out(self.swapper, tensor.data_ptr(), tensor.nbytes, None, context, swapped)
        return Ticket(self, swapped, context, library.stream_of(tensor))

    def release(self, ticket, tensor):
        """The memory of the tensor may be used again by later work of the stream that was current in out()."""
        with library.current(tensor.device):
            api.swapped_wait_out(ticket.swapped, ticket.context)
        library.record_use(tensor, ticket.stream)

    def back(self, ticket, tensor):
        """Begins to copy into a tensor of the same size, after the work of the current stream."""
        with library.current(tensor.device):
            api.swapped_in_to(ticket.swapped, tensor.data_ptr(), tensor.nbytes, library.context_of(tensor))

    def wait(self, ticket, tensor):
        """Later work of the current stream finds the bytes there."""
        with library.current(tensor.device):
            api.swapped_wait_in(ticket.swapped, library.context_of(tensor), None)
        library.record_use(tensor, library.stream_of(tensor))

    def drop(self, ticket):
        """Gives up what is on the host. Waits for a copy for which neither release() nor wait() was called."""
        with library.current(self.device):
            api.swapped_destroy(ticket.swapped)
        self.tickets -= 1
        self._end()

    def _end(self):
        if self.closed and not self.tickets:
            with library.current(self.device):
                api.swapper_destroy(self.swapper)

    def __del__(self):
        """Python may end an engine before its last tickets, where both are in one cycle."""
        self.closed = True
        if self.swapper:
            self._end()


class Ticket:
    """One tensor on the host. context, stream: in which it left."""

    def __init__(self, engine, swapped, context, stream):
        self.swapped, self.context, self.stream = swapped, context, stream
        engine.tickets += 1
