"""What the runtime takes of a rank's cores besides computing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rankslice.framework.engines import computes


@dataclass(frozen=True, slots=True)
class Overheads:
    """Processor time of a rank besides computing; it is taken from the rank's own cores."""

    frame_s: float = 0.0
    """For each frame, in seconds."""
    message_s: float = 0.0
    """For each message to another board, at each of its ends, in seconds."""
    source: str = "left out"
    """Where the figures are from."""
    slice_s: float = 0.0
    """For each span of layers, in seconds: how much longer it takes in a pipeline than when it is
    measured, because other threads interrupt it and use its caches in between."""
    network_s_per_byte: float = 0.0
    """For each byte sent to another board or received from one, in seconds: the system's network
    code runs on the rank's cores."""
    token_s: float = 0.0
    """For each tensor that another rank of the board reads, at each end, in seconds; its bytes take
    nothing, because that rank reads the writer's slots."""
    read_s: float = 0.0
    read_s_per_byte: float = 0.0
    """To read a frame, in seconds, and for each byte of the model's inputs."""
    arrival_s: float = 0.0
    """From a frame's arrival by the clock until the source, which sleeps, has woken up, and from
    when it has read the frame until the rank, which sleeps, computes; in seconds."""


WAKE_UP_S = 50e-6
"""From what a rank writes until another rank of its board, which sleeps, has woken up."""

NO_OVERHEADS = Overheads()

SLEEPING_OVERHEADS = Overheads(
    frame_s=0.1e-3,
    message_s=20e-6,
    token_s=15e-6,
    read_s=60e-6,
    read_s_per_byte=0.2e-9,
    arrival_s=0.3e-3,
    source="the runtime as measured on two cores of an AMD EPYC",
)
"""Default overheads of a rank that sleeps."""

DEFAULT_OVERHEADS = replace(
    SLEEPING_OVERHEADS, frame_s=50e-6, slice_s=0.2e-3, network_s_per_byte=3e-9
)
"""Default overheads of a rank that computes; ``benchmarks/message_cost.py`` measures them."""


def default_overheads(engines: Iterable[str]) -> Overheads:
    """Return the default overheads of ranks of these engines."""
    computing = {computes(engine) for engine in engines}
    return SLEEPING_OVERHEADS if computing == {False} else DEFAULT_OVERHEADS
