"""``run --output``: a line of JSON for each frame, as its results come."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.keeper import Entered
from rankslice.backend.runtime.summary.rates import top_classes
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import LINES, STDOUT, Kind, check_output, is_null
from rankslice.framework.wording import printable
from rankslice.views.classes import named_classes

_SUFFIX = ".jsonl"


def check_streamed(path: Path) -> Path:
    """Return the target of ``--output``: a file, or :data:`STDOUT`."""
    return check_lines(path, "--output", LINES, "results", f"{_SUFFIX}, .npz, .mp4 or .avi")


def check_lines(path: Path, option: str, kind: Kind, what: str, suffixes: str = _SUFFIX) -> Path:
    """Return the target of an option; refuse a suffix of another format."""
    checked = check_output(path, option, kind)
    if checked != STDOUT and not is_null(path) and path.suffix.lower() != _SUFFIX:
        expected = f"expected a name that ends in {suffixes}, or - for standard output"
        raise RankSliceError(Mistake(str(path), f"does not name a format of {what}", expected))
    return checked


class LineFile:
    """Writes lines; each is whole in the file once it is written."""

    def __init__(self, target: Path, option: str) -> None:
        """Take a file, which is emptied at the first line, or STDOUT, and the option's name."""
        self._target = target
        self._option = option
        self._descriptor: int | None = None

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record as a line of JSON.

        Raises:
            RankSliceError: it cannot be written.
            SystemExit: nobody reads standard output any more.
        """
        self._write(json.dumps(record, allow_nan=False).encode() + b"\n")

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
            problem = f"cannot be written: {error.strerror}"
            raise RankSliceError(
                Mistake(place, problem, f"choose another {self._option}")
            ) from None

    def close(self) -> None:
        """Close the file; without lines it is empty."""
        self._write(b"")
        if self._target != STDOUT and self._descriptor is not None:
            os.close(self._descriptor)

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


class JsonLines:
    """Writes ``{"frame": ..., "input": ..., "outputs": {...}}`` line by line."""

    def __init__(
        self,
        target: Path,
        outputs: Sequence[Tensor],
        label_of: Callable[[int], str | None],
        names: Sequence[str] = (),
        best: int = 0,
        *,
        has_arrivals: bool = False,
    ) -> None:
        """Take a file, which is emptied when the first result comes, or :data:`STDOUT`.

        Args:
            target: the file.
            outputs: of the model.
            label_of: returns the label of a frame's input.
            names: of the classes.
            best: number of classes in a line, the best ones by the first output.
            has_arrivals: lines say when frames arrived; each frame is put into ``entered``, and
                ``None`` after the last one.
        """
        self.entered: SimpleQueue[Entered | None] = SimpleQueue()
        self._has_arrivals = has_arrivals
        self._file = LineFile(target, "--output")
        self._outputs = outputs
        self._label_of = label_of
        self._names, self._best = names, best

    def write(self, frame: int, outputs: Sequence[NDArray[Any]] | str) -> None:
        """Write the line of a frame: its outputs, or the ``error`` with which it has failed.

        It is whole in the file when this returns.
        """
        line: dict[str, Any] = {"frame": frame}
        line |= self._arrival(frame) if self._has_arrivals else {"input": self._label_of(frame)}
        if isinstance(outputs, str):
            self._file.write({**line, "error": printable(outputs)})
            return
        if self._best:
            best = top_classes(outputs[0], self._best)
            line["classes"] = named_classes(best, self._names)
        line["outputs"] = {
            spec.name: _listed(spec, values)
            for spec, values in zip(self._outputs, outputs, strict=True)
        }
        self._file.write(line)

    def _arrival(self, frame: int) -> dict[str, Any]:
        """Return arrival and name of a frame; the source sends them in order, before results."""
        while (entered := self.entered.get()) is not None:
            if entered.frame == frame:
                arrived_s = round(entered.arrived_s, 6)
                return {"input": entered.name, "arrival": entered.arrival, "arrived_s": arrived_s}
        self.entered.put(None)
        return {"input": None}

    def close(self) -> None:
        self._file.close()


def _listed(spec: Tensor, values: NDArray[Any]) -> Any:
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
