"""What boards were found to have, and what lies between them: records of ``rankslice probe``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "BoardReport",
    "Cluster",
    "Device",
    "Environment",
    "Interface",
    "Library",
    "OpenMpi",
    "PowerSensor",
    "Probed",
    "ProbedBoard",
    "Route",
    "ThermalZone",
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cores of one kind, speed and capacity."""

    cores: tuple[int, ...]
    kind: str
    """``Cortex-A78``, or the processor's name; empty: unknown."""
    least_mhz: int | None
    most_mhz: int | None
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
    address: str
    prefix: int
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
    version: str
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
    version: str
    has_daemon: bool
    """Whether there is what an mpirun of another machine starts."""


@dataclass(frozen=True, slots=True)
class BoardReport:
    """What a board says of itself."""

    hostname: str
    arch: str
    model: str
    model_source: str
    system: str
    cores: tuple[int, ...]
    """Those on which the account's programs may run."""
    clusters: tuple[Cluster, ...]
    memory_mb: int
    available_mb: int
    """Memory that programs can still get."""
    disk_free_mb: int
    """In the account's home folder."""
    home: str
    devices: tuple[Device, ...]
    libraries: tuple[Library, ...]
    drivers: tuple[str, ...]
    """Files by which drivers of Vulkan and OpenCL are found."""
    zones: tuple[ThermalZone, ...]
    sensors: tuple[PowerSensor, ...]
    interfaces: tuple[Interface, ...]
    address: str
    """At which it was reached over ssh; empty: it is this machine."""
    caller: str
    """This machine's address, as the board sees it; empty: it is this machine."""
    has_rsync: bool
    environments: tuple[Environment, ...]
    """The first is the board's own Python; a second one is that of ``deploy --venv``."""
    open_mpi: tuple[OpenMpi, ...]

    @property
    def environment(self) -> Environment:
        """The Python that jobs run with."""
        return self.environments[-1]


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
