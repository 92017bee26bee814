"""Bind mpirun's listening sockets to the loopback interface, for jobs that need no network.

In both versions of Open MPI mpirun listens on all addresses, and no option changes that. So this
module duplicates mpirun's listening sockets (pidfd_getfd) and binds them to the loopback interface.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
import time
from pathlib import Path

_LIBRARY = ctypes.CDLL(None)
_PIDFD_GETFD = 438
"""Number of the system call, the same on all architectures."""
_LOOPBACK = b"lo"
_EVERY_S = 0.005
_FOR_S = 10.0
"""Time from the start of mpirun within which it begins to listen."""
_AFTER_S = 1.0
"""Time from one listening socket to the next; all appear within a fraction of it."""


def bind_to_loopback(process: int) -> None:
    """Bind the listening sockets of a child of this process to the loopback interface.

    A thread does it, a few milliseconds after the child begins to listen. Where the system does
    not allow it (Linux before 5.7, for example), nothing changes.
    """
    threading.Thread(target=_watch, args=(process,), daemon=True).start()


def _watch(process: int) -> None:
    seen: set[str] = set()
    deadline = time.monotonic() + _FOR_S
    with contextlib.suppress(AttributeError, OSError):  # it has ended, or the system has no pidfd
        handle = os.pidfd_open(process)
        try:
            while (now := time.monotonic()) < deadline:
                if _bind_new(handle, Path(f"/proc/{process}/fd"), seen):
                    deadline = now + _AFTER_S
                time.sleep(_EVERY_S)
        finally:
            os.close(handle)


def _bind_new(handle: int, descriptors: Path, seen: set[str]) -> bool:
    """Bind listening sockets that are new; return whether there were any.

    Raises:
        OSError: the process has ended.
    """
    found = {}
    for entry in os.scandir(descriptors):
        with contextlib.suppress(FileNotFoundError):  # it is closed by now
            found[str(Path(entry.path).readlink())] = int(entry.name)
    sockets = {name for name in found if name.startswith("socket:")} - seen
    bound = {name for name in sockets if _bind(handle, found[name])}
    seen |= bound
    return bool(bound)


def _bind(handle: int, descriptor: int) -> bool:
    """Bind a socket of another process if it listens on a network; return whether it does."""
    own = _LIBRARY.syscall(_PIDFD_GETFD, handle, descriptor, 0)
    if own < 0:
        return False
    with socket.socket(fileno=own) as held:
        is_internet = held.family in (socket.AF_INET, socket.AF_INET6)
        if not is_internet or not held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        with contextlib.suppress(OSError):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)
        return True
