"""Start mpirun or its daemon so that other accounts cannot connect to it.

``python connection_filter.py PARENT REACH COMMAND...``, without the package:

* PARENT: the process that starts it; the command ends with it. 0: it does not.
* REACH: ``all``: anyone may connect. ``loopback``: processes of this account on this machine.
  A number: the same, and as many connections from other machines.

Open MPI believes what a client says of itself, and runs commands for it. So another process, the
connection broker (:mod:`.connection_broker`), makes the TCP sockets of mpirun and its daemon, and
accepts their connections: the kernel passes it these calls (seccomp). Before Linux 5.9, and where
seccomp cannot pass calls, nothing changes.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os
import signal
import struct
import sys

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_FIRST_LINUX = (5, 9)
_PDEATHSIG, _NO_NEW_PRIVILEGES = 1, 38
_NEW = (277, 198, 202, 242)
_CALLS = {
    ("x86_64", 8): (0xC000003E, 317, 41, 43, 288),
    ("aarch64", 8): (0xC00000B7, *_NEW),
    ("riscv64", 8): (0xC00000F3, *_NEW),
    ("aarch64", 4): (0x40000028, 383, 281, 285, 366),
    ("armv7l", 4): (0x40000028, 383, 281, 285, 366),
}
"""By machine and bytes of a pointer: architecture; numbers of seccomp, socket, accept, accept4."""
_LOAD, _AND, _EQUALS, _RETURN = 0x20, 0x54, 0x15, 0x06
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
_SPECULATE, _LISTENER, _UNINTERRUPTED = 1 << 2, 1 << 3, 1 << 5


def _main(parent: int, reach: str, command: list[str]) -> None:
    if parent:
        # The setting outlives exec. It holds for the thread that started this process.
        _LIBRARY.prctl(_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit(1)
    key = (os.uname().machine, struct.calcsize("P"))
    if reach != "all" and key in _CALLS:
        release = os.uname().release.partition("-")[0].split(".")
        if tuple(map(int, release[:2])) >= _FIRST_LINUX:
            _close(reach, *_CALLS[key])
    os.execvp(command[0], command)


def _close(reach: str, architecture: int, seccomp: int, *calls: int) -> None:
    """Start the broker, and have the kernel ask it."""
    own, broker = _socket.socketpair()
    if not os.fork():
        __import__("connection_broker").serve_filter(broker.detach(), reach, calls)
        os._exit(0)
    kernel = _install(seccomp, _program(architecture, *calls))
    if kernel >= 0:
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", kernel))
        own.sendmsg([b"."], [rights])
    own.close()
    broker.close()


def _program(architecture: int, make: int, accept: int, accept_with_flags: int) -> bytes:
    """Write a filter in the kernel's language: it asks about accepting, and making for TCP."""
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUALS, 0, 10, architecture),
        (_LOAD, 0, 0, 0),
        (_EQUALS, 9, 0, accept),
        (_EQUALS, 8, 0, accept_with_flags),
        (_EQUALS, 0, 6, make),
        (_LOAD, 0, 0, 24),
        (_AND, 0, 0, 0xF),
        (_EQUALS, 0, 3, _socket.SOCK_STREAM),
        (_LOAD, 0, 0, 16),
        (_EQUALS, 2, 0, _socket.AF_INET),
        (_EQUALS, 1, 0, _socket.AF_INET6),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ASK),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _install(seccomp: int, program: bytes) -> int:
    """Filter this process and its children; return the descriptor that asks, or -1."""
    steps = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("HP", len(program) // 8, ctypes.addressof(steps))
    for more in (_UNINTERRUPTED, 0):
        asked = [*map(ctypes.c_long, (seccomp, 1, _SPECULATE | _LISTENER | more)), filters]
        kernel = int(_LIBRARY.syscall(*asked))
        if kernel < 0 and ctypes.get_errno() == errno.EACCES:  # not root
            _LIBRARY.prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))
            kernel = int(_LIBRARY.syscall(*asked))
        if kernel >= 0:
            return kernel
    return -1


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
