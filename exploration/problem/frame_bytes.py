"""Bytes of tensors in slots and on wires; with open sizes they differ from frame to frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.sizes import HEADER_BYTES
from rankslice.framework.graph import AnyTensor
from rankslice.framework.profile import SeenTensor
from rankslice.framework.wording import listed


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
        """Take the open tensors of a profile."""
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
        return {each.name: self.of(each)[which] for each in tensors if each.name in self._seen}

    def mean(self, tensor: AnyTensor) -> float:
        """Return the mean size of a tensor's messages in bytes."""
        return float(self.of(tensor).mean())


BOUNDS = FrameBytes()
"""What is known of sizes where no frame showed them."""
