"""Where the results of a run go, and as what."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import FIGURE_2_RANKS, build_folder, figure_2
from namespaces import run_all_with_mounts, small_disk
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.framework.errors import RankSliceError
from rankslice.session.results_files import write_npz


def written(path: Path, specs: list[Tensor], frames: int) -> list[list[NDArray[Any]]]:
    """Write random results; return them, by output."""
    random = np.random.default_rng(0)
    stacks: list[list[NDArray[Any]]] = [[] for _ in specs]
    writer = ResultsWriter(path, "f", specs)
    for frame in range(frames):
        for spec, stack in zip(specs, stacks, strict=True):
            dtype, shape = spec.storage
            stack.append(random.integers(0, 100, shape).astype(dtype))
        writer.write(frame, [stack[-1] for stack in stacks])
    writer.close()
    return stacks


@pytest.mark.parametrize("frames", [0, 1, 5])
def test_numpy_reads_what_was_written_whatever_the_outputs_are_called(
    tmp_path: Path, frames: int
) -> None:
    names = ["y", "a/b:0", "../../y", "", "x.npy", "Größe", "nul\0"]
    dtypes = ["float32", "int64", "bool", "float16", "bfloat16", "int4", "uint8"]
    shapes: list[tuple[int, ...]] = [(1, 3), (), (2, 0), (4,), (2, 2), (3,), (1,)]
    specs = [Tensor(*fields) for fields in zip(names, dtypes, shapes, strict=True)]
    expected = written(tmp_path / "r", specs, frames)
    file = io.BytesIO()
    write_npz(read_results(tmp_path / "r"), file)
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        assert [*names[:-1], "nul%00"] == archive.files
        for name, spec, stack in zip(archive.files, specs, expected, strict=True):
            assert (frames, *spec.storage[1]) == archive[name].shape
            assert spec.storage[0] == archive[name].dtype
            np.testing.assert_array_equal(
                np.array(stack, spec.storage[0]).reshape(frames, *spec.storage[1]), archive[name]
            )


def test_open_outputs_have_an_array_for_each_frame(tmp_path: Path) -> None:
    boxes = Tensor("boxes", "float32", (9, 4), ("?", ""))
    count = Tensor("count", "int64", (1,))
    writer = ResultsWriter(tmp_path / "r", "f", [boxes, count])
    for frame, rows in enumerate((2, 0, 9)):
        writer.write(frame, [np.full((rows, 4), frame, np.float32), np.array([rows])])
    writer.close()
    file = io.BytesIO()
    write_npz(read_results(tmp_path / "r"), file)
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        assert ["boxes/0", "boxes/1", "boxes/2", "count"] == archive.files
        assert [(2, 4), (0, 4), (9, 4)] == [archive[f"boxes/{frame}"].shape for frame in range(3)]
        np.testing.assert_array_equal(np.full((9, 4), 2, np.float32), archive["boxes/2"])
        assert [[2], [0], [9]] == archive["count"].tolist()


def test_outputs_whose_arrays_would_have_one_name_are_refused(tmp_path: Path) -> None:
    specs = [Tensor("a", "int8", (9,), ("?",)), Tensor("a/0", "int8", ())]
    writer = ResultsWriter(tmp_path / "r", "f", specs)
    writer.write(0, [np.ones(3, np.int8), np.ones((), np.int8)])
    writer.close()
    with pytest.raises(RankSliceError, match="two outputs would be 'a/0'"):
        write_npz(read_results(tmp_path / "r"), io.BytesIO())


def test_memory_does_not_grow_with_the_results(tmp_path: Path) -> None:
    spec = Tensor("y", "float32", (1 << 16,))
    writer = ResultsWriter(tmp_path / "r", "f", [spec])
    for frame in range(200):  # 52 MB
        writer.write(frame, [np.full(1 << 16, frame, np.float32)])
    writer.close()
    tracemalloc.start()
    try:
        with (tmp_path / "r.npz").open("wb") as file:
            write_npz(read_results(tmp_path / "r"), file)
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()
    assert (tmp_path / "r.npz").stat().st_size > 52e6


@pytest.mark.ci
def test_results_that_cannot_become_an_npz_are_kept_as_they_are(tmp_path: Path) -> None:
    built = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    place, kept = tmp_path / "place", tmp_path / "kept"
    place.mkdir()
    command = ["run", built, "--frames", "120", "--results", place / "r.npz"]
    after = [f"cp -a {place} {kept}"]
    (ended,) = run_all_with_mounts(small_disk(place), [command], after)
    (file,) = kept.iterdir()
    expected = (
        f"error: {place}/r.npz: cannot be written: No space left on device\n"
        f"error: the results are in {place}/{file.name}\n"
    )
    assert (1, expected) == (ended.code, ended.err)
    assert 120 == len(read_results(file))
