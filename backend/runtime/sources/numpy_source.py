"""Frames from numpy's files, ``.npz`` and ``.npy``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from . import FileSource, only_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot
    from .numpy_files import FileStack, Stack


class NumpySource(FileSource):
    """Arrays of a ``.npz`` or ``.npy`` file: single frames, stacks, or an array for each frame."""

    usage = ("FILE.npz", "FILE.npy")
    suffixes = (".npy", ".npz")
    description = "an .npz or an .npy file"

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        from ..sizes import differing_size
        from .numpy_files import open_npy, read_npz

        self._path = path = Path(options.inputs[0])
        self._stacks: Sequence[Stack | FileStack] = (
            read_npz(path, inputs)
            if path.suffix.lower() == ".npz"
            else [open_npy(path, only_input(options, inputs))]
        )
        lengths = {len(stack) for stack in self._stacks}
        if len(lengths) != 1 or not min(lengths):
            raise JobError(
                f"{path}: its arrays hold {sorted(lengths)} frames; one number > 0 needed"
            )
        self._count_frames(lengths.pop(), options)
        self._has_open_sizes = any(spec.is_open for spec in inputs)
        for index in range(self._count if self._has_open_sizes else 0):
            shapes = [stack.shape_of(index) for stack in self._stacks]
            if problem := differing_size(zip(inputs, shapes, strict=True)):
                raise JobError(f"{path}: frame {index}: {problem}")

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        for stack, slot in zip(self._stacks, slots, strict=True):
            stack.read(index, slot)

    def lent(self, limit: int) -> Sequence[Sequence[NDArray[Any]]]:
        """Return the arrays; those of a ``.npy`` file are read for that, if they are small."""
        if self._has_open_sizes or self._count > limit:
            return ()
        frames = [stack.lent() for stack in self._stacks]
        return frames if all(frames) else ()

    def label(self, index: int) -> str:
        return f"{self._path.name}[{index % self._count}]"

    def note(self) -> str:
        return next((stack.note for stack in self._stacks if stack.note), "")

    def close(self) -> None:
        for stack in self._stacks:
            stack.close()


SOURCE = NumpySource
