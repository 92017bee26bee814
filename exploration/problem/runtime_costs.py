"""What a frame takes besides computing: of cores, of links, and bytes of its messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.sizes import HEADER_BYTES
from rankslice.framework.engines import computes
from rankslice.framework.graph import AnyTensor
from rankslice.framework.platform import WIRE_SHARE, Link, Platform
from rankslice.framework.profile import SeenTensor
from rankslice.framework.wording import listed


@dataclass(frozen=True, slots=True)
class Overheads:
    """Processor time of a rank besides computing; it is taken from the rank's own cores."""

    frame_s: float = 0.0
    message_s: float = 0.0
    """For each message to another board, at each of its ends, in seconds."""
    source: str = "left out"
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
    convert_s_per_byte: float = 0.0
    """For each byte of a float32 tensor that a link carries as another type, at each end, in
    seconds."""
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

DEFAULT_OVERHEADS = replace(
    SLEEPING_OVERHEADS,
    frame_s=50e-6,
    slice_s=0.2e-3,
    network_s_per_byte=3e-9,
    convert_s_per_byte=0.1e-9,
)
"""Default overheads of a rank that computes; ``benchmarks/message_cost.py`` measures them, and
``benchmarks/wire_types.py --times`` what conversions take."""


def default_overheads(engines: Iterable[str]) -> Overheads:
    computing = {computes(engine) for engine in engines}
    return SLEEPING_OVERHEADS if computing == {False} else DEFAULT_OVERHEADS


UNKNOWN_LINK = Link(bandwidth_mbps=float("inf"), latency_ms=0.0)
"""Between boards of a platform that describes no links."""


@dataclass(frozen=True, slots=True)
class LinkSpeeds:
    """The links of a platform."""

    platform: Platform
    wake_up_s: float = WAKE_UP_S
    """Between two ranks of one board, whatever the size: one reads the slots of the other."""
    converts: bool = False
    """Whether tensors are still float32 that links carry as other types; in plans they are not."""

    def figures(
        self, pairs: Iterable[tuple[str, str]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return figures of the links between pairs of boards, (pairs,) each.

        They are bandwidths in bytes/s, latencies in s, and how much of the bytes of a float32
        tensor crosses.
        """
        links = [self.described(*pair)[0] for pair in pairs]
        return (
            np.array([link.bandwidth_mbps * 1e6 / 8 for link in links]),
            np.array([link.latency_ms / 1e3 for link in links]),
            np.array([WIRE_SHARE[link.wire] if self.converts else 1.0 for link in links]),
        )

    def described(self, origin: str, target: str) -> tuple[Link, str]:
        """Return the link from a board to another or to itself, and where its figures are from."""
        if origin == target:
            link = Link(bandwidth_mbps=float("inf"), latency_ms=1e3 * self.wake_up_s)
            return link, "shared memory, as measured on another machine"
        name = self.platform.name
        between, where = self.platform.link(origin, target)
        if between is not None:
            return between, f"{name}: {where}"
        return UNKNOWN_LINK, f"{name} describes no such link: counted as nothing"


def header_bytes(tensor: AnyTensor) -> int:
    """Return the size of what lies before a tensor's values in slots and in messages."""
    return HEADER_BYTES if tensor.is_open else 0


def slot_bytes(tensor: AnyTensor) -> int:
    """Return the size of a slot for a tensor; 0 where type or shape are unknown."""
    return 0 if tensor.nbytes is None else tensor.nbytes + header_bytes(tensor)


def bounds_text(names: Sequence[str]) -> str:
    """Return the note on messages of which no size is known but the largest."""
    measured = "'rankslice profile --input FRAMES' measures"
    if len(names) == 1:
        what = f"the size of tensor {listed(names)} changes from frame to frame"
        return f"{what}, and counts with its bound; {measured} it"
    what = f"the sizes of tensors {listed(names)} change from frame to frame"
    return f"{what}, and count with their bounds; {measured} them"


class FrameBytes:
    """Sizes of messages, frame by frame where frames showed them; elsewhere the bound's."""

    def __init__(self, seen: Iterable[SeenTensor] = ()) -> None:
        self._seen = {tensor.name: np.array(tensor.nbytes, np.float64) for tensor in seen}

    @property
    def frames(self) -> int:
        """How many frames showed sizes; 0: none."""
        return max(map(len, self._seen.values()), default=0)

    def is_bound(self, tensor: AnyTensor) -> bool:
        """Whether a tensor's sizes are open and no frame showed them."""
        return tensor.is_open and tensor.name not in self._seen

    def of(self, tensor: AnyTensor) -> NDArray[np.float64]:
        """Return a tensor's messages in bytes: (frames,), or (1,) if all are counted alike."""
        if tensor.name in self._seen:
            return self._seen[tensor.name] + header_bytes(tensor)
        return np.array([slot_bytes(tensor)], np.float64)

    def drawn(
        self, tensors: Iterable[AnyTensor], frames: int, random: np.random.Generator
    ) -> dict[str, NDArray[np.float64]]:
        """Return the messages of frames drawn at random, in bytes, (frames,) by tensor.

        A frame is drawn with the sizes of all its tensors, because they depend on each other. Left
        out are tensors whose messages are all counted alike.
        """
        if not self.frames:
            return {}
        which = random.integers(self.frames, size=frames)
        return {
            tensor.name: self.of(tensor)[which] for tensor in tensors if tensor.name in self._seen
        }

    def mean(self, tensor: AnyTensor) -> float:
        return float(self.of(tensor).mean())


BOUNDS = FrameBytes()
"""What is known of sizes where no frame showed them."""
