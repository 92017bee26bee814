"""``run --output``: a line of JSON for each frame, as its results come."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import TensorSpec
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, is_null


class JsonLines:
    """Writes ``{"frame": ..., "input": ..., "outputs": {...}}`` line by line."""

    def __init__(
        self,
        target: Path,
        outputs: Sequence[TensorSpec],
        label_of: Callable[[int], str | None],
        classes_of: Callable[[NDArray[Any]], list[dict[str, Any]]] | None = None,
    ) -> None:
        """Take a file, which is emptied when the first result comes, or :data:`STDOUT`.

        Args:
            target: as :func:`~rankslice.framework.files.output_file.check_output` returns it.
            outputs: of the model.
            label_of: names the input of a frame.
            classes_of: finds the best classes in the first output; ``None``: lines have none.
        """
        self._target = target
        self._outputs = outputs
        self._label_of = label_of
        self._classes_of = classes_of
        self._descriptor: int | None = None

    def write(self, frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        """Write the line of a frame; it is whole in the file when this returns.

        Raises:
            RankSliceError: it cannot be written.
            SystemExit: nobody reads standard output any more.
        """
        line: dict[str, Any] = {"frame": frame, "input": self._label_of(frame)}
        if self._classes_of is not None:
            line["classes"] = self._classes_of(outputs[0])
        line["outputs"] = {
            spec.name: _listed(spec, values)
            for spec, values in zip(self._outputs, outputs, strict=True)
        }
        self._write(json.dumps(line, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """Close the file; without results it is empty.

        Raises:
            RankSliceError: it cannot be written.
        """
        self._write(b"")
        if self._target != STDOUT and self._descriptor is not None:
            os.close(self._descriptor)

    def _write(self, text: bytes) -> None:
        # By its number: a thread that waits in Python's stdout would keep the program from ending.
        left = memoryview(text)
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            raise SystemExit(1) from None
        except OSError as error:
            place = "standard output" if self._target == STDOUT else str(self._target)
            found = f"cannot be written: {error.strerror}"
            raise RankSliceError(Mistake(place, found, "choose another --output")) from None

    def _open(self) -> int:
        if self._target == STDOUT:
            sys.stdout.flush()
            return sys.stdout.fileno()
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self._target, flags, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
        elif not is_null(self._target):
            os.close(descriptor)
            raise OSError(0, "is not a regular file")
        return descriptor


def _listed(spec: TensorSpec, values: NDArray[Any]) -> Any:
    """Return values as nested lists; what is not finite is ``None``, as JSON has no word for it."""
    if spec.dtype == "bfloat16":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if values.dtype.kind == "c":
        values = np.stack((values.real, values.imag), axis=-1)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        listed = values.astype(object)
        listed[~np.isfinite(values)] = None
        return listed.tolist()
    return values.tolist()
