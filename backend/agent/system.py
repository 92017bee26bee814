"""Questions to the board's system: other programs, and the addresses of its interfaces."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
import shlex
import socket
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ..runtime.system.files import ROOT, text_of

ASK_S = 60
SIOCGIFADDR, SIOCGIFFLAGS, SIOCGIFNETMASK = 0x8915, 0x8913, 0x891B
IFF_UP = 1
LOOPBACK_DOWN = "its loopback interface is down, which Open MPI needs"
BRING_UP = "bring it up: sudo ip link set dev lo up"


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


def ask(
    command: Iterable[str], variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Run a command; ``None``: it cannot be started, or took too long.

    ``variables`` are set besides those of this process.
    """
    try:
        return run(command, variables={**os.environ, **(variables or {})}, timeout_s=ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return None


def open_mpi_version(text: str) -> list[int]:
    """Return the version in what ``mpirun --version`` or the MPI library says; empty: none."""
    match = re.search(r"(?:\(Open MPI\) |Open MPI v)(\d+)\.(\d+)\.(\d+)", text)
    return [int(part) for part in match.groups()] if match else []


def libmpi_of(program: Path) -> Path | None:
    """Return the libmpi in the folders where a program of Open MPI finds its own libraries."""
    prefix = program.resolve().parent.parent
    ended = ask(["ldd", str(program.resolve())])
    linked = ended.stdout if ended is not None else ""
    folders = [Path(name).parent for name in re.findall(r"=> (/\S+)", linked)]
    libraries = (folder / "libmpi.so.40" for folder in [*folders, prefix / "lib", prefix / "lib64"])
    return next((library for library in libraries if library.exists()), None)


def shell_words(*words: str) -> str:
    return shlex.join(words)


def ipv4_of(interface: str) -> tuple[str, int] | None:
    try:
        address, mask = (
            _asked_of(interface, question)[4:] for question in (SIOCGIFADDR, SIOCGIFNETMASK)
        )
    except OSError:
        return None
    return socket.inet_ntoa(address), sum(bin(part).count("1") for part in mask)


def loopback_is_up() -> bool:
    try:
        return bool(struct.unpack("h", _asked_of("lo", SIOCGIFFLAGS)[:2])[0] & IFF_UP)
    except OSError:
        return False


def _asked_of(interface: str, question: int) -> bytes:
    """Ask the kernel about an interface (``SIOCGIF*``); return the address part of the answer.

    Raises:
        OSError: it has no such interface, or nothing to answer.
    """
    name = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return fcntl.ioctl(asked, question, name)[16:24]


def ipv4_at(address: str) -> tuple[str, int] | None:
    """Return IPv4 address and prefix of the first interface that has an address, of either kind."""
    return next(filter(None, map(ipv4_of, interfaces_at(address))), None)


def interfaces_at(address: str) -> list[str]:
    """Return the names of the interfaces that have an address, IPv4 or IPv6."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # the name of a host
        return []
    if wanted.version == 4:
        names = [name for _, name in socket.if_nameindex()]
        return [name for name in names if (ipv4_of(name) or ("",))[0] == str(wanted)]
    lines = text_of(ROOT / "proc/net/if_inet6").splitlines()
    return [line.split()[5] for line in lines if line.startswith(wanted.packed.hex())]


def shown(path: Path, root: Path) -> str:
    """Return a path below a root as the board itself would name it."""
    return "/" + str(path.relative_to(root))


def home() -> Path:
    """Return the home folder; ``/`` for an account that has none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
