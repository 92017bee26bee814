"""What one assignment of layers to devices costs, with the source of every figure: the records."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankslice.backend.runtime.job import ALL, Turns


@dataclass(frozen=True, slots=True)
class SegmentCost:
    """A segment: what it runs and how long that takes."""

    device: int
    """Index of the problem's device."""
    index: int
    """Number within the device, from 0."""
    layers: tuple[int, ...]
    compute_s: float
    busy_s: float
    """With the messages that it takes and gives, and what the runtime takes of each frame."""


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """What a device is busy with for each frame that it handles, in seconds."""

    key: str
    board: str
    layers: int
    segments: int
    compute_s: float
    copy_s: float
    """Copying tensors into and out of the network."""
    runtime_s: float
    """What the runtime takes for each frame and each message."""
    source: str
    """Where the times of computing are from."""
    gpu_bytes: int | None
    """Memory of the GPU; ``None``: not measured, or there is none."""
    turns: Turns = ALL
    """The frames that it handles."""

    @property
    def busy_s(self) -> float:
        """All of it."""
        return self.compute_s + self.copy_s + self.runtime_s

    @property
    def load_s(self) -> float:
        """For how long it is busy for each frame of the stream, on average."""
        return self.busy_s * float(self.turns.share)


@dataclass(frozen=True, slots=True)
class ChannelCost:
    """A tensor that goes from one device to another, once for each frame of both."""

    tensor: str
    origin: str
    """Mapping key of the device that sends it, or whose slots are read."""
    target: str
    nbytes: float
    seconds: float
    """Bytes over bandwidth, and latency; inside a board how long waking up takes."""
    source: str
    """Where bandwidth and latency are from."""
    share: float = 1.0
    """Of how many frames."""


@dataclass(frozen=True, slots=True)
class LinkCost:
    """One direction of a board's link to the others."""

    board: str
    is_outgoing: bool
    nbytes: float
    seconds: float
    """How long the messages of a frame take of it, on average."""
    source: str


@dataclass(frozen=True, slots=True)
class SharedCore:
    """A core that several used devices share."""

    board: str
    core: int
    keys: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class BoardCost:
    """What a used board holds, and takes for each frame."""

    name: str
    memory_bytes: float
    weight_bytes: float
    capacity_bytes: int | None
    memory_source: str
    energy_j: float | None
    """``None``: neither measured nor given."""
    energy_source: str | None
    """``measured``, ``modelled``, or ``None``."""
    energy_from: str
    """The lines or measurements that it rests on, or what is missing."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one assignment costs, and where each figure is from."""

    devices: tuple[DeviceCost, ...]
    """Those that have layers, in the order of the problem's."""
    segments: tuple[SegmentCost, ...]
    """In a topological order."""
    channels: tuple[ChannelCost, ...]
    links: tuple[LinkCost, ...]
    """Those that are used."""
    boards: tuple[BoardCost, ...]
    bottleneck_s: float
    bottleneck: str
    """The busiest part, described."""
    latency_s: float
    """Time of a frame that is alone in the pipeline, of the slowest ranks if some take turns."""
    notes: tuple[str, ...]
    """Costs that are not known and so count as nothing."""

    @property
    def throughput_fps(self) -> float:
        """Frames per second; 0 if it cannot run."""
        return 1 / self.bottleneck_s if self.bottleneck_s else math.inf
