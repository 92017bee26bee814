"""A process whose output comes from a board: waiting times and the output kept are bounded."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from rankslice.backend.boards.answers import (
    MAX_BYTES,
    Answer,
    answer_in,
    invalid_answer,
    read_answer,
)
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reading.untrusted_json import UntrustedJsonError

T = TypeVar("T")

_BLOCK = 1 << 16
_KEPT = 1 << 14
"""Bytes kept of stderr: so many of its beginning, and of its end."""
_WAITING = 1 << 24
"""Bytes that may wait to be written; more are dropped."""
_END_S = 2.0
_POLL_S = 1.0
_STALLED_S = 60.0

TOO_OLD = "3.10 or later is needed"

_COMPLAINTS = {
    "Permission denied": "ssh cannot log in without a password; copy your key there: ssh-copy-id",
    "IDENTIFICATION HAS CHANGED": "its host key has changed; if the board was set up again,"
    " forget the old key: ssh-keygen -R HOST",
    "Host key verification failed": "its host key is not known yet; log in once with ssh",
    "Could not resolve": "there is no such host; see `host` in the platform, or your ssh config",
    "No route to host": "it cannot be reached; is it on, and its cable plugged in?",
    "Connection refused": "nothing answers to ssh there; install openssh-server",
    "timed out": "it cannot be reached; is it on, and its cable plugged in?",
    "command not found": "there is no python3; install Python 3.10 or later there",
    "not found": "there is no python3; install Python 3.10 or later there",
}
"""Part of ssh's own message -> what it means, and what to do."""


def ssh_complaint(errors: str, code: int) -> str:
    """Explain, by stderr and exit code, why ssh brought no answer, and what to do."""
    last = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
    if last.endswith(TOO_OLD):
        return last
    meaning = next((meaning for part, meaning in _COMPLAINTS.items() if part in errors), "")
    return f"{meaning} (ssh said: {last})" if meaning else f"does not answer: {last}"


class RemoteProcess:
    """A process on a board, or a local one that talks to it; as a context manager it is ended."""

    def __init__(
        self,
        command: Sequence[str],
        board: str,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        outlives_ctrl_c: bool = True,
    ) -> None:
        """Start a program.

        Args:
            outlives_ctrl_c: whether it does not get Ctrl-C; this process then has to end it.

        Raises:
            RankSliceError: this machine lacks it.
        """
        self._board = board
        try:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=outlives_ctrl_c,
            )
        except FileNotFoundError as error:
            package = {"ssh": "openssh-client"}.get(error.filename, error.filename)
            found, remedy = "is not installed on this machine", f"apt-get install {package}"
            raise RankSliceError(Mistake(error.filename, found, remedy)) from None
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in pipes if pipe)
        os.set_blocking(self._stdin, False)
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._to_write, self._read = bytearray(), bytearray()
        self._since_answer = 0
        self._errors = b""
        self._open = {self._stdout, self._stderr}
        self._ends_input = self._is_closed = False

    def __enter__(self) -> RemoteProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_over(self) -> bool:
        return self._stdout not in self._open or self._process.poll() is not None

    def write(self, data: bytes) -> None:
        """Queue data for its stdin; they are written as soon as it takes them."""
        with self._writing:
            if len(self._to_write) < _WAITING:
                self._to_write += data
        self._flush()

    def end_input(self) -> None:
        self._ends_input = True
        self._flush()

    def _flush(self) -> None:
        with self._writing:
            if self._is_closed:
                return
            try:
                while self._to_write:
                    del self._to_write[: os.write(self._stdin, self._to_write[:_BLOCK])]
            except BlockingIOError:
                return
            except OSError:  # it has ended; the reader finds out
                self._to_write.clear()
            if self._ends_input:
                self._close_input()

    def _close_input(self) -> None:
        self._is_closed = True
        self._to_write.clear()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def answer(self, timeout_s: float) -> Answer | None:
        """Return its next answer; ``None``: none came within that time, or none will come.

        Raises:
            RankSliceError: the answer is invalid; the process is ended.
        """
        deadline = time.monotonic() + timeout_s
        with self._reading:
            try:
                while True:
                    line = self._line()
                    answer = answer_in(line) if line else None
                    if answer is not None:
                        self._since_answer = len(self._read)
                        return answer
                    if not line and not self._pass(deadline):
                        return None
            except UntrustedJsonError as error:
                self._process.kill()
                raise invalid_answer(self._board, str(error)) from None

    def ask(self, kind: type[T], timeout_s: float) -> T:
        """Return its next answer as a record.

        Raises:
            RankSliceError: it refuses, has ended, or sends something else.
        """
        answer = self.answer(timeout_s)
        if answer is None and not self.is_over:
            self._process.kill()  # a late answer must not be taken for the next one
            found = f"does not answer within {timeout_s:g} s; is it busy, or out of memory?"
            raise self._mistake(found)
        if answer is None:
            raise self._mistake(self.complaint())
        return read_answer(kind, answer, self._board)

    def _mistake(self, found: str) -> RankSliceError:
        return RankSliceError(Mistake(self._board, found))

    def _line(self) -> bytes:
        end = self._read.find(b"\n") + 1
        line = bytes(self._read[:end])
        del self._read[:end]
        return line

    def _pass(self, deadline: float) -> bool:
        """Read and write once what is possible; tell whether there may be more to read."""
        if self._stdout not in self._open:
            return False
        block = self._step(deadline)
        if block is None:
            return False
        self._read += block
        self._since_answer += len(block)
        if self._since_answer > MAX_BYTES:
            raise UntrustedJsonError(f"there are more than {MAX_BYTES >> 20} MiB of it")
        return True

    def _step(self, deadline: float) -> bytes | None:
        """Return the next bytes of stdout, possibly none; ``None``: the time is over."""
        left = deadline - time.monotonic()
        writing = [self._stdin] if self._to_write else []
        ready, able, _ = select.select([*self._open], writing, [], min(_POLL_S, max(0.0, left)))
        if able:
            self._flush()
        if self._stderr in ready:
            block = self._block_of(self._stderr)
            self._since_answer += len(block)
            errors = self._errors + block
            self._errors = errors[:_KEPT] + errors[max(_KEPT, len(errors) - _KEPT) :]
        if self._stdout in ready:
            return self._block_of(self._stdout)
        return b"" if ready or able or left > _POLL_S else None

    def _block_of(self, pipe: int) -> bytes:
        block = os.read(pipe, _BLOCK)
        if not block:
            self._open.discard(pipe)
        return block

    def copy(self, target: BinaryIO, nbytes: int) -> None:
        """Write the next bytes of its stdout into a file.

        Raises:
            RankSliceError: there are fewer, or none come for a minute.
            OSError: the file cannot be written.
        """
        left = nbytes
        with self._reading:
            while left:
                block = bytes(self._read[:left])
                del self._read[: len(block)]
                if not block and self._stdout in self._open:
                    some = self._step(time.monotonic() + _STALLED_S)
                    block, rest = (some or b"")[:left], (some or b"")[left:]
                    self._read += rest
                    if some is None:
                        raise self._mistake(f"has sent nothing for {_STALLED_S:g} s")
                elif not block:
                    raise self._mistake("has sent only a part of a file")
                target.write(block)
                left -= len(block)
            self._since_answer = 0

    def rest(self) -> tuple[str, int]:
        """Wait for its end; return the rest of its stdout, and its exit code.

        Raises:
            RankSliceError: it prints without end.
        """
        try:
            with self._reading:
                while self._pass(time.monotonic() + _STALLED_S) or not self.is_over:
                    continue
        except UntrustedJsonError:
            self._process.kill()
            raise self._mistake("sends text without end") from None
        return self._read.decode(errors="replace"), self._code()

    def last_words(self) -> str:
        deadline = time.monotonic() + _END_S
        with self._reading:
            while self._stderr in self._open and self._since_answer <= MAX_BYTES:
                if self._step(deadline) is None:
                    break
        return self._errors.decode(errors="replace")

    def complaint(self) -> str:
        return ssh_complaint(self.last_words(), self._code())

    def _code(self) -> int:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_S)
        return 0

    def close(self, patience_s: float = 0.0) -> None:
        with self._writing:
            self._close_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self._process.kill()
        self._process.wait()
        with self._reading:
            for output in (self._process.stdout, self._process.stderr):
                assert output is not None
                output.close()
            self._open.clear()
