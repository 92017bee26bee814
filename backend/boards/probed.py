"""What boards were found to have, and what lies between them: records of ``rankslice probe``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from rankslice.framework.reading.records import Only, between

__all__ = [
    "Addresses",
    "BoardReport",
    "Clock",
    "Cluster",
    "Complaints",
    "Device",
    "Environment",
    "Exchange",
    "Interface",
    "Library",
    "OpenMpi",
    "Port",
    "PowerSensor",
    "Probed",
    "ProbedBoard",
    "Route",
    "ThermalZone",
]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return re.fullmatch(r"[0-9A-Za-z.:_%-]{1,80}", text, re.ASCII) is not None


def _is_ipv4(text: str) -> bool:
    return ":" not in text and _is_address(text)


_Core = Annotated[int, between(0, 1 << 16)]
_Megabytes = Annotated[int, between(0, 1 << 40)]
_Megahertz = Annotated[int, between(0, 1 << 40)]
_Word = Annotated[str, Only(re.compile(r"[\w.+-]{1,64}", re.ASCII).fullmatch, "one word")]
_Version = Annotated[
    str, Only(re.compile(r"(\d{1,6}(\.\d{1,9}){0,4}\S{0,64})?", re.ASCII).fullmatch, "a version")
]
_Address = Annotated[str, Only(_is_address, "an IP address")]
_NoAddress = Annotated[str, Only(lambda text: not text or _is_address(text), "an IP address")]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cores of one kind, speed and capacity."""

    cores: tuple[_Core, ...]
    kind: str
    """``Cortex-A78``, or the processor's name; empty: unknown."""
    least_mhz: _Megahertz | None
    most_mhz: _Megahertz | None
    capacity: int | None
    """Of 1024, which the board's fastest cores have, as Linux rates them."""
    source: str
    """The file that tells the frequencies."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device file, or a USB device, of a GPU or NPU."""

    path: str
    driver: str
    """Its name, where one is told."""
    may_open: bool
    """Whether the account may."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library of a GPU or NPU."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class ThermalZone:
    """A place where the board measures its temperature."""

    path: str
    kind: str
    """Its type: numbers of zones differ from start to start."""
    millicelsius: int | None


@dataclass(frozen=True, slots=True)
class PowerSensor:
    """A file that tells power, or counts energy."""

    path: str
    name: str
    microwatts: int | None
    """At the time of asking; ``None``: a counter, or not readable."""
    may_read: bool
    """Whether the account may."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface with an IPv4 address."""

    name: str
    address: Annotated[str, Only(_is_ipv4, "an IPv4 address")]
    prefix: Annotated[int, between(0, 32)]
    """Bits of the address that are its network's."""
    mbps: int | None
    """Rate of the link, in megabits per second; ``None``: not told, or not of a real device."""
    kind: str
    """``wired``, ``wireless`` or ``virtual``."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python that jobs may run with."""

    python: str
    """Its path."""
    version: _Version
    """Empty: it does not run."""
    packages: tuple[tuple[str, str], ...]
    """Distributions that jobs may need, with their versions; empty: not told."""
    providers: tuple[str, ...]
    """Execution providers of its onnxruntime."""
    library: str
    """The MPI library that its mpi4py loads, or ``error:`` and why it, or the Python, does not
    run."""

    def version_of(self, package: str) -> str | None:
        """Return the version of a distribution, or nothing if it is not installed."""
        return dict(self.packages).get(package)


@dataclass(frozen=True, slots=True)
class OpenMpi:
    """An installation of Open MPI."""

    mpirun: str
    version: _Version
    has_daemon: bool
    """Whether there is what an mpirun of another machine starts."""


@dataclass(frozen=True, slots=True)
class BoardReport:
    """What a board says of itself."""

    hostname: str
    arch: _Word
    model: str
    model_source: str
    system: str
    cores: tuple[_Core, ...]
    """Those on which the account's programs may run."""
    clusters: tuple[Cluster, ...]
    memory_mb: _Megabytes
    available_mb: _Megabytes
    """Memory that programs can still get."""
    disk_free_mb: _Megabytes
    """In the account's home folder."""
    home: str
    devices: tuple[Device, ...]
    libraries: tuple[Library, ...]
    drivers: tuple[str, ...]
    """Files by which drivers of Vulkan and OpenCL are found."""
    zones: tuple[ThermalZone, ...]
    sensors: tuple[PowerSensor, ...]
    interfaces: tuple[Interface, ...]
    address: _NoAddress
    """At which it was reached over ssh; empty: it is this machine."""
    caller: _NoAddress
    """This machine's address, as the board sees it; empty: it is this machine."""
    has_rsync: bool
    environments: Annotated[tuple[Environment, ...], Only(len, "one or more")]
    """The first is the board's own Python; a second one is that of ``deploy --venv``."""
    open_mpi: tuple[OpenMpi, ...]

    @property
    def environment(self) -> Environment:
        """The Python that jobs run with."""
        return self.environments[-1]


@dataclass(frozen=True, slots=True)
class Addresses:
    """What a board answers that is asked for its addresses."""

    interfaces: tuple[Interface, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """What a board answers that is asked for the time."""

    now_us: int


@dataclass(frozen=True, slots=True)
class Complaints:
    """What a board answers that is asked to do several things."""

    complaints: tuple[str, ...]
    """What keeps it from each; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where a board listens."""

    port: Annotated[int, between(1, 65535)]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a board has measured towards another one."""

    latency_us: Annotated[int, between(0, 1 << 40)]
    bits_per_s: Annotated[int, between(0, 1 << 50)]


@dataclass(frozen=True, slots=True)
class ProbedBoard:
    """A board that was asked."""

    name: str
    """What mappings call it."""
    host: str
    """What ssh and mpirun call it."""
    user: str
    address: str
    """At which other boards reach it."""
    report: BoardReport


@dataclass(frozen=True, slots=True)
class Route:
    """What was measured from one board to another."""

    source: str
    target: str
    complaint: str = ""
    """What keeps the source from connecting to the target; empty: nothing."""
    latency_us: int = 0
    """Half of a small message's way there and back."""
    bits_per_s: int = 0
    """Rate at which the target received."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What is known of boards after asking and measuring."""

    boards: tuple[ProbedBoard, ...]
    routes: tuple[Route, ...]
    """One for each ordered pair of boards."""

    def to_json(self) -> dict[str, Any]:
        """Return the record for ``--json``."""
        return asdict(self)
