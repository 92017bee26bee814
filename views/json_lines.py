"""``run --output``: a line of JSON for each frame, as its results come."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.keeper import Entered
from rankslice.backend.runtime.records import RecordForm
from rankslice.backend.runtime.summary.texts import top_classes
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import LINES, STDOUT, Kind, check_output, is_null
from rankslice.framework.quantities import bytes_text
from rankslice.framework.wording import printable
from rankslice.session.prepare import PreparedRun
from rankslice.views.classes import named_classes

_SUFFIX = ".jsonl"


def check_streamed(path: Path) -> Path:
    """Return where lines go: ``path``, or ``-`` for standard output."""
    return check_lines(path, "--output", LINES, "results", f"{_SUFFIX}, .npz, .mp4 or .avi")


def check_lines(path: Path, option: str, kind: Kind, what: str, suffixes: str = _SUFFIX) -> Path:
    """Return where the lines of an option go; refuse a name that tells no format."""
    checked = check_output(path, option, kind)
    if checked != STDOUT and not is_null(path) and path.suffix.lower() != _SUFFIX:
        expected = f"expected a name that ends in {suffixes}, or - for standard output"
        raise RankSliceError(Mistake(str(path), f"does not name a format of {what}", expected))
    return checked


def json_lines(prepared: PreparedRun, target: Path, names: Sequence[str], best: int) -> JsonLines:
    def classes_of(scores: NDArray[Any]) -> list[dict[str, Any]]:
        return named_classes(top_classes(scores, best), names)

    return JsonLines(
        target,
        prepared.plan.job.outputs,
        prepared.source.label,
        classes_of if best else None,
        is_told=prepared.options.announce,
    )


def growth_text(prepared: PreparedRun) -> str:
    """Return what a frame adds to the results of a run without a known end, and what helps."""
    outputs = prepared.plan.job.outputs
    most = RecordForm(outputs).head.size + sum(spec.nbytes for spec in outputs)
    return f"each frame adds {bytes_text(most)} to the results; --results /dev/null keeps none"


class LineFile:
    """Writes lines; each is whole in the file once it is written."""

    def __init__(self, target: Path, option: str) -> None:
        """Take a file, which is emptied at the first line, or STDOUT, and the option's name."""
        self._target = target
        self._option = option
        self._descriptor: int | None = None

    def write(self, text: bytes) -> None:
        """Write a text with its line ends.

        Raises:
            RankSliceError: it cannot be written.
            SystemExit: nobody reads standard output any more.
        """
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
            raise RankSliceError(Mistake(place, found, f"choose another {self._option}")) from None

    def close(self) -> None:
        """Close the file; without lines it is empty."""
        self.write(b"")
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
        classes_of: Callable[[NDArray[Any]], list[dict[str, Any]]] | None = None,
        *,
        is_told: bool = False,
    ) -> None:
        """Take a file, which is emptied when the first result comes, or :data:`STDOUT`.

        Lines have the classes that ``classes_of`` finds in the first output. If each frame
        ``is_told`` to ``entered.put``, and ``None`` after the last one, lines say when it arrived.
        """
        self.entered: SimpleQueue[Entered | None] = SimpleQueue()
        self._is_told = is_told
        self._file = LineFile(target, "--output")
        self._outputs = outputs
        self._label_of = label_of
        self._classes_of = classes_of

    def write(self, frame: int, outputs: Sequence[NDArray[Any]] | str) -> None:
        """Write the line of a frame: its outputs, or the ``error`` with which it has failed.

        It is whole in the file when this returns.
        """
        line: dict[str, Any] = {"frame": frame}
        line |= self._told(frame) if self._is_told else {"input": self._label_of(frame)}
        if isinstance(outputs, str):
            line["error"] = printable(outputs)
            self._file.write(json.dumps(line).encode() + b"\n")
            return
        if self._classes_of is not None:
            line["classes"] = self._classes_of(outputs[0])
        line["outputs"] = {
            spec.name: _listed(spec, values)
            for spec, values in zip(self._outputs, outputs, strict=True)
        }
        self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")

    def _told(self, frame: int) -> dict[str, Any]:
        """Return what the source has told of a frame; frames are told in order, before results."""
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
