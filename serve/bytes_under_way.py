"""The memory of all requests that a protocol has under way."""

from __future__ import annotations

import asyncio
import ctypes

_EVERY_S = 10.0


class BytesUnderWay:
    """Bounds the bytes of requests that are being read or answered; one is always let in."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._changed = asyncio.Event()

    async def take(self, count: int) -> None:
        """Wait until there is room for so many bytes."""
        while self._held and self._held + count > self._most:
            self._changed.clear()
            await self._changed.wait()
        self._held += count

    def give_back(self, count: int) -> None:
        """Have so many bytes less under way."""
        if count:
            self._held -= count
            self._changed.set()


async def return_free_memory() -> None:
    """Return memory that is free to the system, now and then, until cancelled.

    The C library would keep it: 590 MB of 750 were still there 30 s after clients had gone.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(_EVERY_S)
        await asyncio.to_thread(trim, 0)
