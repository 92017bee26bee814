"""``run --output``: a line of JSON for each frame, as its results come."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.keeper import Entered
from rankslice.commands.run.line_file import LineFile
from rankslice.framework.wording import printable


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

        Args:
            target: as :func:`~rankslice.framework.files.output_file.check_output` returns it.
            outputs: of the model.
            label_of: names the input of a frame.
            classes_of: finds the best classes in the first output; ``None``: lines have none.
            is_told: whether each frame is told to ``entered.put``, so that lines say when it
                arrived; ``None`` follows the last one.
        """
        self.entered: SimpleQueue[Entered | None] = SimpleQueue()
        self._is_told = is_told
        self._file = LineFile(target, "--output")
        self._outputs = outputs
        self._label_of = label_of
        self._classes_of = classes_of

    def write(self, frame: int, outputs: Sequence[NDArray[Any]] | str) -> None:
        """Write the line of a frame; it is whole in the file when this returns.

        That of a frame which has failed has an ``error`` instead: ``outputs`` say why.

        Raises:
            RankSliceError: it cannot be written.
            SystemExit: nobody reads standard output any more.
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
        """Close the file; without results it is empty.

        Raises:
            RankSliceError: it cannot be written.
        """
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
