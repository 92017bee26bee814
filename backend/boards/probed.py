"""Records of ``rankslice probe``: boards, and what was measured between them."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from rankslice.backend.agent.jobs.python_packages import MIN_PYTHON
from rankslice.backend.boards.answers import is_ipv4
from rankslice.framework.reading.records import Only, between


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return re.fullmatch(r"[0-9A-Za-z.:_%-]{1,80}", text, re.ASCII) is not None


_Core = Annotated[int, between(0, 1 << 16)]
_Megabytes = Annotated[int, between(0, 1 << 40)]
_Megahertz = Annotated[int, between(0, 1 << 40)]
_Word = Annotated[str, Only(re.compile(r"[\w.+-]{1,64}", re.ASCII).fullmatch, "one word")]
_Version = Annotated[
    str, Only(re.compile(r"(\d{1,6}(\.\d{1,9}){0,4}\S{0,64})?", re.ASCII).fullmatch, "a version")
]
_NoAddress = Annotated[str, Only(lambda text: not text or is_address(text), "an IP address")]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cores of one kind, speed and capacity."""

    cores: tuple[_Core, ...]
    kind: str
    """``Cortex-A78``, or the processor's name; empty: unknown."""
    least_mhz: _Megahertz | None
    most_mhz: _Megahertz | None
    capacity: int | None
    """As Linux rates it; the board's fastest cores have 1024."""
    source: str
    """The file with the frequencies."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device file, or a USB device, of a GPU or NPU."""

    path: str
    driver: str
    """Its name; empty: unknown."""
    may_open: bool


@dataclass(frozen=True, slots=True)
class Library:
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class ThermalZone:
    path: str
    kind: str
    """Its type; the numbers of zones may change at each start."""
    millicelsius: int | None


@dataclass(frozen=True, slots=True)
class PowerSensor:
    """A file with power, or a counter of energy."""

    path: str
    name: str
    microwatts: int | None
    """When it was read; ``None``: a counter, or not readable."""
    may_read: bool


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface with an IPv4 address."""

    name: str
    address: Annotated[str, Only(is_ipv4, "an IPv4 address")]
    prefix: Annotated[int, between(0, 32)]
    """Length of the network's part of the address, in bits."""
    mbps: int | None
    """Rate of the link in megabits per second; ``None``: unknown, or a virtual interface."""
    kind: str
    """``wired``, ``wireless`` or ``virtual``."""


@dataclass(frozen=True, slots=True)
class Environment:
    python: str
    version: _Version
    """Empty: it does not run."""
    packages: tuple[tuple[str, str], ...]
    """Distributions that jobs may need, with their versions; an empty version is unknown."""
    providers: tuple[str, ...]
    library: str
    """The MPI library that its mpi4py loads, or ``error:`` and why it or the Python fails."""

    @property
    def runs_jobs(self) -> bool:
        """Whether its version is one that jobs can run with."""
        return self.numbers >= MIN_PYTHON

    @property
    def numbers(self) -> tuple[int, ...]:
        """The first two of the version; none: it does not run."""
        return tuple(int(number) for number in re.findall(r"\d+", self.version)[:2])

    @property
    def provider_names(self) -> list[str]:
        """The execution providers of its onnxruntime, by their short names: ``CUDA``."""
        return [name.removesuffix("ExecutionProvider") for name in self.providers]

    def version_of(self, package: str) -> str | None:
        """Return the version of a distribution; ``None``: it is not installed."""
        return dict(self.packages).get(package)


@dataclass(frozen=True, slots=True)
class OpenMpi:
    mpirun: str
    version: _Version
    has_daemon: bool
    """Whether it has the daemon that the mpirun of another machine starts."""


@dataclass(frozen=True, slots=True)
class BoardReport:
    hostname: str
    arch: _Word
    model: str
    model_source: str
    system: str
    cores: tuple[_Core, ...]
    """Cores on which the account's programs may run."""
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
    """Address at which it was reached over ssh; empty: it is this machine."""
    caller: _NoAddress
    """This machine's address, as the board sees it; empty: it is this machine."""
    has_rsync: bool
    environments: Annotated[tuple[Environment, ...], Only(len, "one or more")]
    """The first is the board's own Python; a second one is that of ``deploy --venv``."""
    open_mpi: tuple[OpenMpi, ...]

    @property
    def environment(self) -> Environment:
        return self.environments[-1]


@dataclass(frozen=True, slots=True)
class Addresses:
    interfaces: tuple[Interface, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    now_us: int


@dataclass(frozen=True, slots=True)
class Complaints:
    """The answer to requests that try several things."""

    complaints: tuple[str, ...]
    """Why each of them failed; empty: it worked."""


@dataclass(frozen=True, slots=True)
class Port:
    port: Annotated[int, between(1, 65535)]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The answer to ``exchange``: latency and rate towards another board."""

    latency_us: Annotated[int, between(0, 1 << 40)]
    bits_per_s: Annotated[int, between(0, 1 << 50)]


@dataclass(frozen=True, slots=True)
class ProbedBoard:
    name: str
    """Its name in mappings."""
    host: str
    """Its name or address for ssh and mpirun."""
    user: str
    address: str
    """Address at which other boards reach it."""
    report: BoardReport


@dataclass(frozen=True, slots=True)
class Route:
    """What was measured from one board to another."""

    source: str
    target: str
    complaint: str = ""
    """Why the source cannot connect to the target; empty: it can."""
    latency_us: int = 0
    """Half of the round trip of a small message."""
    bits_per_s: int = 0
    """Rate at which the target received."""


@dataclass(frozen=True, slots=True)
class Probed:
    boards: tuple[ProbedBoard, ...]
    routes: tuple[Route, ...]
    """One for each ordered pair of boards."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
