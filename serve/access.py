"""Addresses of a server, and access to it: bearer token, TLS certificate, limits of clients."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_ordinary
from rankslice.framework.wording import quoted

_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Access:
    """Bearer token and TLS certificate."""

    token: str | None = None
    """That requests must have; ``None``: they need none."""
    cert: Path | None = None
    key: Path | None = None

    def admits(self, authorization: str | None) -> bool:
        """Whether the header ``Authorization`` of a request has the token."""
        if self.token is None:
            return True
        kind, _, token = (authorization or "").partition(" ")
        is_token = hmac.compare_digest(token.strip().encode(), self.token.encode())
        return kind.lower() == "bearer" and is_token


def read_access(token_file: Path | None, cert: Path | None, key: Path | None) -> Access:
    """Read token and certificate from the files of the command line."""
    if (cert is None) != (key is None):
        lacking = "--tls-key" if key is None else "--tls-cert"
        raise RankSliceError(Mistake(lacking, "is missing", "TLS needs certificate and key"))
    if cert is not None and key is not None:
        _check_tls(cert, key)
    return Access(None if token_file is None else _token(token_file), cert, key)


def read_pem(path: Path) -> bytes:
    return read_ordinary(path, "expected a PEM file", _MAX_BYTES)


def _token(path: Path) -> str:
    expected = "expected a line with a token of printable ASCII characters without blanks"
    text = read_ordinary(path, expected, _MAX_BYTES).decode("ascii", "replace").strip()
    if not text or not all("!" <= letter <= "~" for letter in text):
        raise RankSliceError(Mistake(str(path), "is not a token", expected))
    return text


def _check_tls(cert: Path, key: Path) -> None:
    import ssl

    for path in (cert, key):
        read_pem(path)
    try:
        # An empty password, instead of asking for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, lambda: "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        problem = f"is not a certificate with the key {key}: {error}"
        raise RankSliceError(
            Mistake(str(cert), problem, "expected PEM files without a password")
        ) from None


LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """A host of this machine, and a port; 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether no other machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(option: str, text: str) -> Address:
    """Read the ``[HOST:]PORT`` of an option."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536):
        raise RankSliceError(Mistake(option, f"is {quoted(text)}", "expected [HOST:]PORT"))
    return Address(host.strip("[]") or LOCALHOST, int(port))


def listen(option: str, address: Address) -> socket.socket:
    try:
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, *_, place = places[0]
        server = socket.create_server(place[:2], family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RankSliceError(Mistake(f"{option} {address}", f"cannot be used: {reason}")) from None
    # Opened by number, a socket has its protocol from the kernel. asyncio sets TCP_NODELAY only if
    # that is TCP; without it, each answer would wait for an acknowledgement.
    return socket.socket(fileno=server.detach())


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on clients, besides those that follow from the models."""

    connections: int = 512
    """Most connections of HTTP, and most calls of gRPC at a time."""
    head_bytes: int = 32 * 1024
    patience_s: float = 10.0
    """How long a client may take for a request's headers, or to begin to read an answer."""
    slowest_bytes_per_s: float = 64 * 1024.0
    """At which a client must send and read, on average."""
    held_bytes: int = 256 * 1024 * 1024
    """Of all requests that are being read; one request is always let in."""

    def seconds_for(self, count: int) -> float:
        """Return how long a client may take for so many bytes."""
        return self.patience_s + count / self.slowest_bytes_per_s
