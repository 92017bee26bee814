"""Where a server listens."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import quoted

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """A host of this machine, and a port; 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether no other machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(option: str, text: str) -> Address:
    """Return the address of an option's ``[HOST:]PORT``.

    Raises:
        RankSliceError: it is none.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536):
        raise RankSliceError(Mistake(option, f"is {quoted(text)}", "expected [HOST:]PORT"))
    return Address(host.strip("[]") or LOCALHOST, int(port))


def listen(option: str, address: Address) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
        RankSliceError: the address cannot be used.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, *_, place = found[0]
        server = socket.create_server(place[:2], family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RankSliceError(Mistake(f"{option} {address}", f"cannot be used: {reason}")) from None
    # Opened by number, a socket has its protocol from the kernel. asyncio sets TCP_NODELAY only if
    # that is TCP; without it, each answer would wait for an acknowledgement.
    return socket.socket(fileno=server.detach())
