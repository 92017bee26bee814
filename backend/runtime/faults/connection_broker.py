"""Admit to mpirun and its daemon only connections of the account that runs them.

The process beside them (:mod:`.connection_filter`) makes their TCP sockets and accepts their
connections. It hands over a connection only if the client's socket, says the kernel, belongs to
this account.
"""

# ruff: noqa: PTH115, PTH121, PTH123, PTH208
# Importing pathlib would take longer than all else here.

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import socket
import struct
from contextlib import suppress

_RECEIVE, _SEND, _HAND_OVER = 0xC0502100, 0xC0182101, 0x40182103
_CALL = struct.Struct("<QIIiIQ" + "I4x" * 6)
"""Number, thread, flags, call, architecture, place, and what of six arguments the calls look at."""
_CONTINUE = 1
_KEPT_STATES = (7, 10)
"""Of a TCP socket: not connected, listening."""
_ESTABLISHED = "01"
_READS = 3
"""At the table of connections, which may skip one while others come and go."""


def serve_filter(connection: int, reach: str, calls: tuple[int, ...]) -> None:
    """Answer the kernel until all processes that the filter concerns have ended.

    Args:
        connection: brings the descriptor from which the kernel's questions are read.
        reach: who may connect, as for :mod:`.connection_filter`.
        calls: numbers of socket, accept and accept4.
    """
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # whoever reads mpirun's output waits for its last holder
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != connection:
            with suppress(OSError):  # that of the list itself
                os.close(int(name))
    with socket.socket(fileno=connection) as end:
        _, ancillary, *_ = end.recvmsg(1, socket.CMSG_SPACE(4))
    if ancillary:
        _Broker(array.array("i", ancillary[0][2])[0], reach, calls).serve()


class _Broker:
    def __init__(self, kernel: int, reach: str, calls: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._is_alone = reach == "loopback"
        self._left = 0 if self._is_alone else int(reach)
        """Connections from other machines that may still come."""
        self._make, _, self._accept_with_flags = calls
        self._sockets: dict[int, socket.socket] = {}
        """What was made here and is no connection, by inode."""

    def serve(self) -> None:
        """Answer; drop sockets that have become connections, which end with their process."""
        events = select.epoll()
        events.register(self._kernel, select.EPOLLIN)
        while True:
            for descriptor, event in events.poll():
                if descriptor != self._kernel:
                    self._drop(descriptor)
                elif event & select.EPOLLHUP:
                    return
                else:
                    with suppress(OSError):  # the process has ended, or was interrupted
                        self._answer(events)

    def _drop(self, descriptor: int) -> None:
        for inode, made in list(self._sockets.items()):
            state = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if made.fileno() == descriptor and state not in _KEPT_STATES:
                self._sockets.pop(inode).close()

    def _answer(self, events: select.epoll) -> None:
        question = bytearray(_CALL.size)
        fcntl.ioctl(self._kernel, _RECEIVE, question)
        number, thread, _, call, _, _, *arguments = _CALL.unpack(question)
        listener = None if call == self._make else self._sockets.get(_inode(thread, arguments[0]))
        try:
            if listener is not None:
                flags = arguments[3] if call == self._accept_with_flags else 0
                with self._next(listener) as admitted:
                    admitted.setblocking(not flags & socket.SOCK_NONBLOCK)
                    self._hand_over(number, admitted, flags)
            elif call == self._make and (made := self._made(thread, *arguments[:3])):
                self._sockets[os.fstat(made.fileno()).st_ino] = made
                events.register(made, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
                self._hand_over(number, made, arguments[1])
            else:
                self._send(number, flags=_CONTINUE)
        except OSError as error:
            self._send(number, error=error.errno or errno.EIO)

    def _made(self, thread: int, family: int, kind: int, protocol: int) -> socket.socket | None:
        """Make a socket for mpirun or its daemon; ``None``: the caller makes it itself."""
        if protocol not in (0, socket.IPPROTO_TCP) or _is_python(thread):
            return None
        made = socket.socket(family, kind, protocol)
        if self._is_alone:
            with suppress(OSError):  # Linux before 5.7 leaves this to root
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        return made

    def _next(self, listener: socket.socket) -> socket.socket:
        """Accept the next connection that is admitted; close the others."""
        while select.select([listener], [], [], 0)[0]:
            connection, peer = listener.accept()
            if self._admits(connection, peer):
                return connection
            connection.close()
        raise BlockingIOError(errno.EAGAIN, "none is admitted")

    def _admits(self, connection: socket.socket, peer: tuple[str, int]) -> bool:
        if _is_own(_in_table(*peer[:2]), _in_table(*connection.getsockname()[:2])):
            return True
        if self._left and not _is_here(connection.family, peer):
            self._left -= 1
            return True
        return False

    def _hand_over(self, number: int, handed: socket.socket, flags: int) -> None:
        """Give the caller a socket as what its call returns."""
        closes = os.O_CLOEXEC if flags & socket.SOCK_CLOEXEC else 0
        asked = bytearray(struct.pack("=QIIII", number, 0, handed.fileno(), 0, closes))
        self._send(number, fcntl.ioctl(self._kernel, _HAND_OVER, asked))

    def _send(self, number: int, value: int = 0, error: int = 0, flags: int = 0) -> None:
        answer = struct.pack("=QqiI", number, value, -error, flags)
        fcntl.ioctl(self._kernel, _SEND, bytearray(answer))


def _inode(thread: int, descriptor: int) -> int:
    """Inode of a socket of another process; 0: it cannot be seen."""
    with suppress(OSError, ValueError):
        return int(os.readlink(f"/proc/{thread}/fd/{descriptor}")[len("socket:[") : -1])
    return 0


def _is_python(thread: int) -> bool:
    """Tell whether a process is of this program, as ranks are, or cannot be seen."""
    with suppress(OSError):
        return os.path.samefile(f"/proc/{thread}/exe", "/proc/self/exe")
    return True


def _is_here(family: int, address: tuple[str, int]) -> bool:
    with socket.socket(family) as trial:
        try:
            trial.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
    return True


def _is_own(local: str, remote: str) -> bool:
    """Tell whether this account has a connection between two addresses on this machine."""
    for table in ("tcp", "tcp6") * _READS:
        with suppress(FileNotFoundError), open(f"/proc/self/net/{table}") as lines:
            for line in lines:
                if local in line and line.split()[1:4] == [local, remote, _ESTABLISHED]:
                    return line.split()[7] == str(os.geteuid()) and line.split()[9] != "0"
    return False


def _in_table(host: str, port: int) -> str:
    """Write an address as the kernel's table of connections has it."""
    host = host.partition("%")[0].removeprefix("::ffff:")
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
