"""Questions to the board's system: other programs, and the addresses of its interfaces."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B


def run(
    command: Iterable[str],
    *,
    variables: dict[str, str] | None = None,
    stderr: int = subprocess.STDOUT,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command without input; return what it printed.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took too long.
    """
    return subprocess.run(
        list(command),
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def open_mpi_version_of(mpirun: str, timeout_s: float | None = None) -> list[int]:
    """Return the version of an mpirun; empty: it is not Open MPI's.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took too long.
    """
    return open_mpi_version(run([mpirun, "--version"], timeout_s=timeout_s).stdout)


def open_mpi_version(text: str) -> list[int]:
    """Return the version in what ``mpirun --version`` or the MPI library says; empty: none."""
    match = re.search(r"(?:\(Open MPI\) |Open MPI v)(\d+)\.(\d+)\.(\d+)", text)
    return [int(part) for part in match.groups()] if match else []


def ipv4_of(interface: str) -> tuple[str, int] | None:
    """Return the IPv4 address of an interface and the length of its network's prefix."""
    name = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            address = fcntl.ioctl(asked, SIOCGIFADDR, name)[20:24]
            mask = fcntl.ioctl(asked, SIOCGIFNETMASK, name)[20:24]
        except OSError:
            return None
    return socket.inet_ntoa(address), sum(bin(part).count("1") for part in mask)


def ipv4_at(address: str) -> tuple[str, int] | None:
    """Return IPv4 address and prefix length of the interface that has an IPv4 or IPv6 address."""
    found = (ipv4_of(name) for name in interfaces_at(address))
    return next((has for has in found if has is not None), None)


def interfaces_at(address: str) -> list[str]:
    """Return the names of the interfaces that have an address, IPv4 or IPv6."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # the name of a host
        return []
    if wanted.version == 4:
        names = [name for _, name in socket.if_nameindex()]
        return [name for name in names if (ipv4_of(name) or ("",))[0] == str(wanted)]
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return []
    return [line.split()[5] for line in lines if line.startswith(wanted.packed.hex())]
