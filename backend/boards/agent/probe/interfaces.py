"""Network interfaces, and the addresses of the ssh connection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ..protocol import Answer, Request
from ..system import ipv4_at, ipv4_of
from .files import found, number_in


def interfaces(
    root: Path, address_of: Callable[[str], tuple[str, int] | None] = ipv4_of
) -> Iterator[Answer]:
    """Yield the network interfaces that have an IPv4 address, except the loopback interface.

    Args:
        root: below which /sys lies.
        address_of: returns the address and the length of the network's prefix.
    """
    for folder in found(root, "sys/class/net/*"):
        has = address_of(folder.name)
        if has is None or has[0].startswith("127."):
            continue
        # The rate of a virtual interface is made up.
        is_physical = (folder / "device").exists()
        speed = number_in(folder / "speed") if is_physical else None
        yield {
            "name": folder.name,
            "address": has[0],
            "prefix": has[1],
            "mbps": speed if speed and speed > 0 else None,
            "kind": interface_kind(folder) if is_physical else "virtual",
        }


def interface_kind(folder: Path) -> str:
    """Return what kind of device an interface is."""
    return "wireless" if (folder / "wireless").exists() else "wired"


def connection(request: Request) -> Answer:
    """Return the addresses of the ssh connection: the board's and the caller's.

    Jobs need IPv4, so the board's is the IPv4 address of the same interface if there is one.
    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    if not request["over_ssh"] or len(words) != 4:
        return {"address": "", "caller": ""}
    return {"address": same_interface(words[2]), "caller": words[0]}


def same_interface(address: str) -> str:
    """Return the IPv4 address of the interface that has this IPv6 address; else the address."""
    has = ipv4_at(address) if ":" in address else None
    return has[0] if has else address


def addresses(request: Request) -> Answer:
    """Return the network interfaces; this takes less time than the whole report."""
    del request
    return {"interfaces": list(interfaces(Path("/")))}
