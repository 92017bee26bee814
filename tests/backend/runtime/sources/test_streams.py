"""Frames that come in on standard input, as the source gets them: through a connection."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.keeper import VARIABLE
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources import EndOfStreamError, Source, open_source, stream_source

X = Tensor("x", "float32", (1, 2))
Y = Tensor("y", "int64", (3,))


class Stream:
    """A source and the other end of its connection."""

    opened: ClassVar[list[Stream]] = []

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *specs: Tensor) -> None:
        self.opened.append(self)
        self.specs = specs
        self.sender: threading.Thread | None = None
        self.theirs, ours = socket.socketpair()
        monkeypatch.setenv(VARIABLE, "{}")
        monkeypatch.setattr(stream_source, "connect", lambda role: ours)
        self.source: Source = open_source(RunOptions(("-",)), specs)
        self.source.start(None)  # type: ignore[arg-type]

    def send(self, content: bytes, *, is_all: bool = True) -> Stream:
        """Send bytes from a thread: they may be more than the connection holds."""
        self.sender = threading.Thread(target=self._send, args=(content, is_all))
        self.sender.start()
        return self

    def close(self) -> None:
        self.source.close()
        if self.sender is not None:
            self.sender.join()
        self.theirs.close()

    def _send(self, content: bytes, is_all: bool) -> None:
        with suppress(OSError):  # the source has seen enough
            self.theirs.sendall(content)
            if is_all:
                self.theirs.shutdown(socket.SHUT_WR)

    def read(self, index: int) -> list[NDArray[Any]]:
        slots: list[NDArray[Any]] = [np.empty(spec.shape, spec.dtype) for spec in self.specs]
        self.source.read(index, slots)
        return slots

    def message(self, index: int = 0) -> str:
        with pytest.raises(JobError) as error:
            self.read(index)
        return str(error.value)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while Stream.opened:
        Stream.opened.pop().close()


def saved(*arrays: Any) -> bytes:
    file = io.BytesIO()
    for values in arrays:
        np.save(file, values, allow_pickle=values.dtype == object)
    return file.getvalue()


def line(x: Any, y: Any) -> bytes:
    return json.dumps({"x": x, "y": y}).encode() + b"\n"


def test_lines_are_read_as_those_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch, X, Y).send(
        line([[1, 2]], [3, 4, 5]) + line([6, 7], [8, 9, 0])[:-1]
    )
    assert [[[1, 2]], [3, 4, 5]] == [values.tolist() for values in stream.read(0)]
    assert [[[6, 7]], [8, 9, 0]] == [values.tolist() for values in stream.read(1)]
    with pytest.raises(EndOfStreamError):
        stream.read(2)


def test_arrays_come_one_after_the_other_by_input(monkeypatch: pytest.MonkeyPatch) -> None:
    big = Tensor("big", "float32", (200, 300))
    values = np.random.default_rng(1).random((2, 200, 300), np.float32)
    numbers = np.arange(6).reshape(2, 3)
    sent = saved(values[0], numbers[0], np.asfortranarray(values[1]), numbers[1])
    stream = Stream(monkeypatch, big, Y).send(sent)
    for index in range(2):
        frame = stream.read(index)
        np.testing.assert_array_equal(values[index], frame[0])
        np.testing.assert_array_equal(numbers[index], frame[1])
    with pytest.raises(EndOfStreamError):
        stream.read(2)


def test_frames_that_were_dropped_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch, X).send(saved(*(np.full((1, 2), n, np.float32) for n in range(4))))
    assert [1, 3] == [int(stream.read(index)[0][0, 0]) for index in (1, 3)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"hello\n", "standard input: frame 0 is not a JSON object; expected an object with 'x'"),
        (b'{"y": 1}\n', "standard input: frame 0 has no values for 'x'"),
        (b"{" + b" " * 200_000, "standard input: frame 0 has more than 65600 bytes"),
        (
            saved(np.zeros((1, 3), np.float32)),
            "frame 0: its array has shape [1, 3]; expected",
        ),
        (saved(np.zeros((1, 2))), "its array is float64; the model takes float32"),
        (saved(np.zeros((2, 1, 2), np.float32)), "its array holds 2 frames; expected one"),
        (saved(np.zeros((1, 2), np.float32))[:-1], "is not a plain array (it was cut short)"),
        (saved(np.zeros((1, 2), np.float32))[:50], "is not a plain array"),
        (saved(np.array([[print, 1]])), "its array is object; the model takes float32"),
        (
            saved(np.zeros((1, 2), np.float32)).replace(b"(1, 2)", b"(9" + b"9" * 12 + b",)"),
            "standard input: frame 0",
        ),
    ],
)
def test_what_does_not_fit_is_told_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, content: bytes, expected: str
) -> None:
    assert expected in Stream(monkeypatch, X).send(content).message()


def test_the_wait_is_told_and_ends_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch, X).send(saved(np.zeros((1, 2), np.float32)), is_all=False)
    stream.read(0)
    timer = threading.Timer(0.1, stream.source.end)
    begin, before_s = time.perf_counter(), stream.source.waited_s
    timer.start()
    with pytest.raises(EndOfStreamError):
        stream.read(1)
    assert 0.05 < stream.source.waited_s - before_s <= time.perf_counter() - begin
    timer.join()


def test_a_rank_without_launcher_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(JobError, match="'rankslice run' alone can read standard input"):
        open_source(RunOptions(("-",)), [X]).start(None)  # type: ignore[arg-type]
