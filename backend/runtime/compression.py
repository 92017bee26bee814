"""Messages that are compressed without loss, by Zstandard (RFC 8878).

The first byte of such a message says how its values follow: as they are, compressed, or sorted and
compressed. Sorting puts the bytes of the same place in their numbers side by side: the high ones of
neighbours are often equal, the low ones hardly ever. Where many numbers are zero, it separates
bytes that compress well together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import JobError
from .sizes import private_memory
from .transport import Completion, Lane, Messages

_AS_THEY_ARE, _COMPRESSED, _SORTED = range(3)
_LEVEL = 1
_FEW_ZEROS = 0.25
"""Share of bytes. In benchmarks/lossless_compression.py, sorted values of fewer compress better."""
_MAX_WINDOW_BYTES = 1 << 23
"""What a message may have the decompressor allocate; level 1 uses less."""

_Bytes = NDArray[np.uint8]


def sort_by_place(values: _Bytes, number_bytes: int, result: _Bytes) -> None:
    """Copy numbers to ``result``: the first byte of all, then the second, and so on.

    Bytes behind the last whole number stay at the end.
    """
    whole = values.nbytes - values.nbytes % number_bytes
    result[:whole].reshape(number_bytes, -1)[:] = values[:whole].reshape(-1, number_bytes).T
    result[whole:] = values[whole:]


def sort_by_number(values: _Bytes, number_bytes: int, result: _Bytes) -> None:
    """Undo :func:`sort_by_place`."""
    whole = values.nbytes - values.nbytes % number_bytes
    numbers = result[:whole].reshape(-1, number_bytes)
    for place, column in enumerate(values[:whole].reshape(number_bytes, -1)):
        numbers[:, place] = column  # numpy takes three times as long for the whole at once
    result[whole:] = values[whole:]


class CompressedMessages:
    """Compresses the messages of some lanes; those of the others pass as they are."""

    def __init__(self, messages: Messages) -> None:
        """Let ``messages`` move what is compressed.

        Raises:
            JobError: the package is not installed, or cannot be loaded.
        """
        try:
            import zstandard
        except ImportError as error:
            raise JobError(
                f"its messages are compressed, and zstandard cannot be loaded here: {error};"
                " install it (pip install zstandard; on Debian: apt-get install"
                " python3-zstandard), or build with --compress none"
            ) from None
        self._messages = messages
        self._zstandard: Any = zstandard
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._sends: Sequence[Lane] = ()
        self._receives: Sequence[Lane] = ()
        self._outgoing: Sequence[Lane] = ()
        """With room for messages instead of the slots, where these are compressed."""
        self._incoming: Sequence[Lane] = ()
        self._sorted = np.empty(0, np.uint8)
        self._bytes = self._sent_bytes = 0

    @property
    def ratio(self) -> float | None:
        """Bytes of values that were sent by their bytes compressed; ``None``: none were."""
        return self._bytes / self._sent_bytes if self._sent_bytes else None

    def open(self, sends: Sequence[Lane], receives: Sequence[Lane]) -> None:
        """Allocate room for a message for each slot that is compressed."""
        self._sends, self._receives = sends, receives
        ends = [end for end in (*sends, *receives) if end.number_bytes]
        largest = max((slot.nbytes for end in ends for slot in end.slots), default=0)
        self._sorted = private_memory(largest)
        self._outgoing, self._incoming = (
            [_staged(end) for end in sends],
            [_staged(end) for end in receives],
        )
        self._messages.open(self._outgoing, self._incoming)

    def send(self, lane: int, slot: int) -> None:
        end = self._sends[lane]
        if end.number_bytes:
            self.send_part(lane, slot, end.usual(slot).nbytes)
        else:
            self._messages.send(lane, slot)

    def send_part(self, lane: int, slot: int, nbytes: int) -> None:
        end = self._sends[lane]
        if end.number_bytes:
            values = end.slots[slot][:nbytes]
            self._bytes += nbytes
            nbytes = self._pack(values, end.number_bytes, self._outgoing[lane].slots[slot])
            self._sent_bytes += nbytes
        self._messages.send_part(lane, slot, nbytes)

    def send_end(self, lane: int) -> None:
        self._messages.send_end(lane)

    def receive(self, lane: int, slot: int) -> None:
        self._messages.receive(lane, slot)

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        """Move messages; decompress those that have come, into their slots.

        Raises:
            JobError: a message is damaged, or longer than its slot.
        """
        sent, received = self._messages.poll()
        for number, done in enumerate(received):
            if self._receives[done.lane].number_bytes and not done.is_end:
                received[number] = Completion(done.lane, done.slot, nbytes=self._unpack(done))
        return sent, received

    def _pack(self, values: _Bytes, number_bytes: int, message: _Bytes) -> int:
        """Write a message; return its length."""
        kind, source = _COMPRESSED, values
        if number_bytes > 1 and np.count_nonzero(values) > (1 - _FEW_ZEROS) * values.nbytes:
            kind, source = _SORTED, self._sorted[: values.nbytes]
            sort_by_place(values, number_bytes, source)
        room = message[1 : values.nbytes]
        reader = self._compressor.stream_reader(source.data, size=values.nbytes)
        packed = reader.readinto(room.data)
        if packed < room.nbytes:
            message[0] = kind
            return 1 + packed
        message[0] = _AS_THEY_ARE
        message[1 : 1 + values.nbytes] = values
        return 1 + values.nbytes

    def _unpack(self, done: Completion) -> int:
        """Write the values of a message into its slot; return how many bytes these are."""
        end = self._receives[done.lane]
        slot, message = end.slots[done.slot], self._incoming[done.lane].slots[done.slot]
        kind, content = message[0], message[1 : done.nbytes]
        if kind == _AS_THEY_ARE:
            slot[: content.nbytes] = content
            return content.nbytes
        sender = f"rank {end.peer} sent {{}} through channel {end.channel}"
        try:
            is_known = kind in (_COMPRESSED, _SORTED)
            size = self._zstandard.frame_content_size(content.data) if is_known else 0
            if size > slot.nbytes:
                found = f"{size} bytes"
                raise JobError(f"{sender.format(found)}, more than its tensor may have")
            values = slot[: max(size, 0)]
            target = self._sorted[: values.nbytes] if kind == _SORTED else values
            if size < 1 or self._decompressor.stream_reader(content.data).readinto(target) != size:
                raise self._zstandard.ZstdError("it does not have the bytes that it should")
        except self._zstandard.ZstdError as error:
            raise JobError(f"{sender.format('a damaged message')}: {error}") from None
        if kind == _SORTED:
            sort_by_number(target, end.number_bytes, values)
        return values.nbytes


def _staged(end: Lane) -> Lane:
    if not end.number_bytes:
        return end
    slots = tuple(private_memory(1 + slot.nbytes) for slot in end.slots)
    return replace(end, slots=slots, is_open=True, spare=0)
