"""Messages between ranks: the transport that the runtime needs, and its implementation with MPI.

A second implementation, in the tests (``tests/support/twin.py``), runs a whole pipeline inside one
process.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import JobError

_END = -1

_NUMBERS = 1 << 10
"""Tag of what ranks tell each other; on that communicator, channels below zero have lower ones."""
_MAX_SPINS = 5000
"""Tests for a number without sleep between them: some milliseconds."""

_SEGMENT_BYTES = {"sm": 16 << 20, "vader": 4 << 20}
"""The library's usual size of a rank's file of shared memory, by its name for it."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One end of a channel: where its messages go to or come from, and its slots."""

    channel: int
    """Its number; below zero if it serves the runtime itself and carries no frames."""
    peer: int
    """The other rank."""
    slots: tuple[NDArray[np.uint8], ...]
    is_open: bool = False
    """Whether messages have lengths of their own."""
    spare: int = 0
    """Bytes at the end of each slot that messages have only if :meth:`Messages.send_part` says."""
    number_bytes: int = 0
    """Bytes of a number of the tensor, if messages are compressed; 0: they are not."""

    def usual(self, slot: int) -> NDArray[np.uint8]:
        """View what :meth:`Messages.send` sends of a slot."""
        return self.slots[slot][: self.slots[slot].nbytes - self.spare]

    @property
    def carries_frames(self) -> bool:
        return self.channel >= 0


class Completion(NamedTuple):
    """A transfer that is over: its slot may be used again (sent), or holds a frame (received)."""

    lane: int
    """Index in the list of lanes given to :meth:`Messages.open`."""
    slot: int
    """-1 for a finished :meth:`Transport.send_end`."""
    is_end: bool = False
    """Whether this was the message that ends the stream."""
    nbytes: int = 0
    """Length of a received message."""


class Messages(Protocol):
    """Moves slots between ranks. One thread calls it at a time."""

    def open(self, sends: Sequence[Lane], receives: Sequence[Lane]) -> None:
        """Set up all transfers of the job; nothing is allocated afterwards."""

    def send(self, lane: int, slot: int) -> None:
        """Start to send one slot; slots of a lane are sent in ring order."""

    def send_part(self, lane: int, slot: int, nbytes: int) -> None:
        """Start to send the first bytes of a slot, at least one."""

    def send_end(self, lane: int) -> None:
        """Start to send the message of zero length that ends the stream."""

    def receive(self, lane: int, slot: int) -> None:
        """Make one slot ready for the lane's next message."""

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        """Move what can be moved, without blocking; return the finished sends and receives."""


class Transport(Messages, Protocol):
    """What else ranks need of each other."""

    rank: int
    size: int

    def exchange(self, record: bytes) -> list[bytes]:
        """Give ``record`` to all ranks and return everybody's, by rank. Collective."""

    def send_number(self, peer: int, number: int) -> None:
        """Send a number to a rank that calls :meth:`receive_number` meanwhile, or soon."""

    def receive_number(self, peer: int) -> int:
        """Wait for the next number that a rank sends this one."""

    def close(self) -> None:
        """Cancel the receives still posted, and release everything."""

    def abort(self) -> None:
        """End all ranks of the job at once, whatever they do."""


def _library() -> Any:
    """Import mpi4py's module: it loads the library without initialising it."""
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    return MPI


def library_version() -> str:
    """Ask for the version, without initialising the library: ``Open MPI v5.0.11``."""
    version: str = _library().Get_library_version()
    return version.split(",")[0].strip("\0 ")


def check_library(environment: Mapping[str, str], library: str) -> None:
    """Raise :class:`JobError` if a library of one Open MPI was started by mpirun of another.

    Each version of mpirun sets other variables in the ``environment``.
    """
    started_by = environment.get("OMPI_VERSION", "")
    if not started_by and "OMPI_MCA_orte_launch" in environment:
        started_by = "4"
    version = library.rpartition(" v")[2]
    if started_by and not f"{version}.".startswith(f"{started_by}."):
        raise JobError(
            f"mpirun is of Open MPI {started_by}, the library loaded here of {version}: start with"
            " the mpirun of that library, or name the library of that mpirun in MPI4PY_LIBMPI"
        )


def prefer(environment: MutableMapping[str, str], library: str, session: Path | None) -> None:
    """Set options of the MPI library before it is initialised; the user's settings win.

    ``session``: the job's private folder on this board, for shared memory: elsewhere its names
    could be guessed, and killed ranks would leave files.
    """
    shared_memory = _shared_memory(library)
    if session is not None:
        name = f"OMPI_MCA_btl_{shared_memory}_backing_directory"
        environment.setdefault(name, str(session))
    size = environment.get("OMPI_COMM_WORLD_SIZE")
    if size is not None and size == environment.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
        # All ranks are on this machine, so nothing needs to listen to a network.
        environment.setdefault("OMPI_MCA_btl", f"self,{shared_memory}")


def check_room(environment: Mapping[str, str], library: str) -> None:
    """Raise :class:`JobError` if the library would end the rank for want of shared memory.

    ``environment``: of the process, after :func:`prefer`.
    """
    name = _shared_memory(library)
    folder = environment.get(f"OMPI_MCA_btl_{name}_backing_directory")
    has_others = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1") != "1"
    if folder is None or not has_others or name not in environment.get("OMPI_MCA_btl", ""):
        return
    setting = environment.get(f"OMPI_MCA_btl_{name}_segment_size", "")
    needed = int(setting) if setting.isdecimal() else _SEGMENT_BYTES[name]
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit in range(needed):
        raise JobError(
            f"the limit of the size of files is {limit} bytes, and MPI's shared memory needs"
            f" {needed}: raise it (ulimit -f)"
        )
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    needed += needed // 20  # the library wants a little more
    if free < needed:
        raise JobError(
            f"{folder} has room for {free} bytes, and MPI's shared memory needs {needed}: make room"
            " in /dev/shm (--shm-size of a container), or name another folder with TMPDIR"
        )


def _shared_memory(library: str) -> str:
    """The library's name for messages through shared memory."""
    return "sm" if int(library.rpartition(" v")[2].partition(".")[0]) >= 5 else "vader"


class MpiTransport:
    """Messages through Open MPI; one thread calls it at a time (SERIALIZED).

    The thread that constructs it is the one that closes it.
    """

    def __init__(self) -> None:
        self._mpi = mpi = _library()
        mpi.Init_thread(mpi.THREAD_SERIALIZED)
        self._comm = mpi.COMM_WORLD.Dup()
        self._control = mpi.COMM_WORLD.Dup()
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.library = library_version()
        self._requests: list[Any] = []
        self._persistent: list[Any] = []
        """The same, where :meth:`send_part` has put another one for a while."""
        self._meaning: list[tuple[bool, int, int]] = []
        """(is a send, lane, slot) of each request."""
        self._first_send: list[int] = []
        self._first_receive: list[int] = []
        self._sends: Sequence[Lane] = ()

    def open(self, sends: Sequence[Lane], receives: Sequence[Lane]) -> None:
        """Make one persistent request per slot, and one per outgoing lane for the end.

        This releases the requests of an earlier call.
        """
        self._release()
        self._sends = sends
        byte = self._mpi.BYTE
        nothing = np.empty(0, np.uint8)
        for lane, end in enumerate(sends):
            comm, tag = self._address(end)
            self._first_send.append(len(self._requests))
            for slot in range(len(end.slots)):
                request = (
                    # Its messages have sizes of their own.
                    self._mpi.REQUEST_NULL
                    if end.is_open
                    else comm.Send_init([end.usual(slot), byte], end.peer, tag)
                )
                self._add(request, (True, lane, slot))
            self._add(comm.Send_init([nothing, byte], end.peer, tag), (True, lane, _END))
        for lane, end in enumerate(receives):
            comm, tag = self._address(end)
            self._first_receive.append(len(self._requests))
            for slot, buffer in enumerate(end.slots):
                self._add(comm.Recv_init([buffer, byte], end.peer, tag), (False, lane, slot))
        self._send_end = [self._first_send[lane] + len(end.slots) for lane, end in enumerate(sends)]
        self._persistent = list(self._requests)
        self._statuses = [self._mpi.Status() for _ in self._requests]

    def _address(self, end: Lane) -> tuple[Any, int]:
        """Channels below zero have a communicator of their own."""
        return (self._comm, end.channel) if end.carries_frames else (self._control, -end.channel)

    def _add(self, request: Any, meaning: tuple[bool, int, int]) -> None:
        self._requests.append(request)
        self._meaning.append(meaning)

    def send(self, lane: int, slot: int) -> None:
        index = self._first_send[lane] + slot
        request = self._requests[index] = self._persistent[index]
        request.Start()

    def send_part(self, lane: int, slot: int, nbytes: int) -> None:
        end = self._sends[lane]
        comm, tag = self._address(end)
        part = [end.slots[slot][:nbytes], self._mpi.BYTE]
        self._requests[self._first_send[lane] + slot] = comm.Isend(part, end.peer, tag)

    def send_end(self, lane: int) -> None:
        self._requests[self._send_end[lane]].Start()

    def receive(self, lane: int, slot: int) -> None:
        self._requests[self._first_receive[lane] + slot].Start()

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        """Call MPI_Testsome until it has moved messages and reported what they finished.

        Open MPI moves messages only if nothing is finished, and reports them in the next call.

        Raises:
            JobError: a message is longer than its slots.
        """
        sent: list[Completion] = []
        received: list[Completion] = []
        test, requests, statuses = self._mpi.Request.Testsome, self._requests, self._statuses
        try:
            while indices := test(requests, statuses):
                self._note(indices, sent, received)
            self._note(test(requests, statuses) or (), sent, received)
        except self._mpi.Exception as error:
            raise JobError(self._why_failed(error)) from None
        return sent, received

    def _why_failed(self, error: Exception) -> str:
        for status in self._statuses:
            if status.Get_error() == self._mpi.ERR_TRUNCATE:
                return (
                    f"rank {status.Get_source()} sent {status.Get_count()} bytes through channel"
                    f" {status.Get_tag()}, more than its tensor may have"
                )
        return f"MPI failed: {error}"

    def _note(
        self, indices: Iterable[int], sent: list[Completion], received: list[Completion]
    ) -> None:
        for position, index in enumerate(indices):
            is_send, lane, slot = self._meaning[index]
            if is_send:
                sent.append(Completion(lane, slot, slot == _END))
            else:
                nbytes = self._statuses[position].Get_count(self._mpi.BYTE)
                received.append(Completion(lane, slot, nbytes == 0, nbytes))

    def exchange(self, record: bytes) -> list[bytes]:
        """Gather sizes, then records; sleeps while it waits."""
        size = np.array([len(record)], np.int64)
        sizes = np.empty(self.size, np.int64)
        self._wait(self._comm.Iallgather(size, sizes))
        everything = np.empty(int(sizes.sum()), np.uint8)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        mine = np.frombuffer(record, np.uint8)
        parts = [everything, sizes.tolist(), starts.tolist(), self._mpi.BYTE]
        self._wait(self._comm.Iallgatherv([mine, self._mpi.BYTE], parts))
        return [
            everything[start : start + length].tobytes()
            for start, length in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]

    def send_number(self, peer: int, number: int) -> None:
        self._wait(self._control.Isend(np.array([number], np.int64), peer, _NUMBERS), _MAX_SPINS)

    def receive_number(self, peer: int) -> int:
        number = np.zeros(1, np.int64)
        self._wait(self._control.Irecv(number, peer, _NUMBERS), _MAX_SPINS)
        return int(number[0])

    @staticmethod
    def _wait(request: Any, spins: int = 0) -> None:
        """Wait; during the first ``spins`` tests without sleep, but others get the core."""
        pause = 20e-6
        while not request.Test():
            if spins:
                spins -= 1
                os.sched_yield()
                continue
            time.sleep(pause)
            pause = min(2 * pause, 5e-3)

    def close(self) -> None:
        self._release()
        self._control.Free()
        self._comm.Free()
        self._mpi.Finalize()

    def _release(self) -> None:
        for request, (is_send, _, _) in zip(self._requests, self._meaning, strict=True):
            if not is_send and not request.Test():
                request.Cancel()
                request.Wait()
        for request in {id(r): r for r in (*self._requests, *self._persistent)}.values():
            if request != self._mpi.REQUEST_NULL:
                request.Free()
        self._requests, self._persistent, self._meaning = [], [], []
        self._first_send, self._first_receive = [], []

    def abort(self) -> None:
        self._comm.Abort(1)
