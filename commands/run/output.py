"""``run --output``: where results go as they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rankslice.backend.runtime.records import RecordForm
from rankslice.backend.runtime.summary.texts import top_classes
from rankslice.commands.run.classes import named_classes
from rankslice.commands.run.json_lines import JsonLines
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import LINES, STDOUT, check_output, is_null
from rankslice.framework.quantities import bytes_text
from rankslice.session.prepare import PreparedRun

_SUFFIX = ".jsonl"


def check_streamed(path: Path) -> Path:
    """Return where lines go: ``path``, or ``-`` for standard output.

    Raises:
        RankSliceError: no file can be made there, or its name tells no format.
    """
    checked = check_output(path, "--output", LINES)
    if checked != STDOUT and not is_null(path) and path.suffix.lower() != _SUFFIX:
        expected = (
            f"expected a name that ends in {_SUFFIX}, .npz, .mp4 or .avi, or - for standard output"
        )
        raise RankSliceError(Mistake(str(path), "does not name a format of results", expected))
    return checked


def json_lines(
    prepared: PreparedRun, target: Path, names: Sequence[str], best: int, *, is_told: bool
) -> JsonLines:
    """Return what writes the line of each frame.

    Args:
        prepared: the run.
        target: from :func:`check_streamed`.
        names: of the classes; empty: unknown.
        best: how many classes a line has.
        is_told: whether the job's source can tell this program what enters.
    """

    def classes_of(scores: NDArray[Any]) -> list[dict[str, Any]]:
        return named_classes(top_classes(scores, best), names)

    outputs = prepared.plan.job.outputs
    return JsonLines(
        target,
        outputs,
        prepared.source.label,
        classes_of if best else None,
        is_told=is_told and prepared.options.announce,
    )


def growth_text(prepared: PreparedRun) -> str:
    """Return what a frame adds to the results of a run without a known end, and what helps."""
    outputs = prepared.plan.job.outputs
    most = RecordForm(outputs).head.size + sum(spec.nbytes for spec in outputs)
    return f"each frame adds {bytes_text(most)} to the results; --results /dev/null keeps none"
