"""The shapes of outputs that change from frame to frame, for people and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sinks.results import Results, read_results
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.views.run_text import shape_lines, shapes_json

BOXES = Tensor("boxes", "float32", (99, 4), ("?", ""))
COUNT = Tensor("count", "int64", (1,))


def results(folder: Path, *rows: int) -> Results:
    """Return results of a detector with so many boxes in each frame."""
    writer = ResultsWriter(folder / "r", "f", [COUNT, BOXES])
    for frame, count in enumerate(rows):
        writer.write(frame, [np.array([count]), np.zeros((count, 4), np.float32)])
    writer.close()
    return read_results(folder / "r")


def test_the_sizes_of_an_open_output_are_told_from_the_least_to_the_largest(
    tmp_path: Path,
) -> None:
    assert ["output boxes: 0 to 37 x 4"] == list(shape_lines(results(tmp_path, 3, 0, 37)))


def test_a_size_that_did_not_change_is_one_number(tmp_path: Path) -> None:
    assert ["output boxes: 5 x 4"] == list(shape_lines(results(tmp_path, 5, 5)))


def test_without_frames_no_sizes_are_told(tmp_path: Path) -> None:
    assert [] == list(shape_lines(results(tmp_path)))


def test_files_have_the_shape_of_each_frame(tmp_path: Path) -> None:
    assert {"boxes": [[2, 4], [0, 4]]} == shapes_json(results(tmp_path, 2, 0))
