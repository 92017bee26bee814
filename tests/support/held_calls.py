"""Calls of gRPC that hold their messages back, written by hand: frames of HTTP/2."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from contextlib import suppress

SERVICE = "inference.GRPCInferenceService"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _UPDATE = 0, 1, 3, 4, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW, _LARGEST_PIECE = 4, 16384


class HeldCalls:
    """Calls on one connection, each with a message of which all but the last byte is sent."""

    def __init__(
        self, address: str, calls: int, nbytes: int, method: str = "ModelInfer", token: str = ""
    ) -> None:
        """Begin the calls; nothing of their messages is sent before :meth:`send`."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._room = 65535
        self._initial = 65535
        self._left = {1 + 2 * number: nbytes - 1 for number in range(calls)}
        self._rooms: Counter[int] = Counter()
        self._begun: set[int] = set()
        self._head = struct.pack(">BI", 0, nbytes)
        self._unread = b""
        self.sent = 0
        self.ended: set[int] = set()
        """Streams that the server has ended."""
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/{SERVICE}/{method}",
            ":authority": address,
            "te": "trailers",
            "content-type": "application/grpc",
            **({"authorization": f"Bearer {token}"} if token else {}),
        }
        block = b"".join(
            b"\0" + bytes([len(name)]) + name.encode() + bytes([len(text)]) + text.encode()
            for name, text in headers.items()
        )
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        for stream in self._left:
            self._socket.sendall(_frame(_HEADERS, _END_HEADERS, stream, block))

    def send(self, seconds: float = 0.05) -> int:
        """Send what the server grants, until it grants nothing for a while; return the bytes."""
        before = self.sent
        with suppress(ConnectionError):
            while self._send_some() or self._read(seconds):
                pass
        return self.sent - before

    def close(self) -> None:
        self._socket.close()

    def _send_some(self) -> bool:
        before = self.sent
        for stream, left in list(self._left.items()):
            room = min(self._room, self._initial + self._rooms[stream], _LARGEST_PIECE)
            if stream not in self.ended and room >= len(self._head) and left:
                head = b"" if stream in self._begun else self._head
                content = head + bytes(min(room - len(head), left))
                self._begun.add(stream)
                self._left[stream] -= len(content) - len(head)
                self._socket.sendall(_frame(_DATA, 0, stream, content))
                self._room -= len(content)
                self._rooms[stream] -= len(content)
                self.sent += len(content)
        return self.sent > before

    def _read(self, seconds: float) -> bool:
        """Take what the server says; return whether it said something."""
        self._socket.settimeout(seconds)
        try:
            said = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(10)
        if not said:
            self.ended |= self._left.keys()
            raise ConnectionError
        self._unread += said
        while len(self._unread) >= 9:
            length = int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < 9 + length:
                break
            kind, flags, stream = struct.unpack(">BBI", self._unread[3:9])
            self._take(kind, flags, stream, self._unread[9 : 9 + length])
            self._unread = self._unread[9 + length :]
        return True

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(content), 6):
                name, value = struct.unpack(">HI", content[at : at + 6])
                if name == _INITIAL_WINDOW:
                    self._initial = value
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _UPDATE and stream:
            self._rooms[stream] += int.from_bytes(content, "big")
        elif kind == _UPDATE:
            self._room += int.from_bytes(content, "big")
        elif kind == _RESET or (kind == _HEADERS and flags & _END_STREAM):
            self.ended.add(stream)


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + content
