"""What frames show of tensors whose sizes change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice, succeed
from line_graphs import line_graph, opened
from litert_engines import needs_litert
from open_tflite_models import rows_model

from rankslice.backend.boards.accelerator import InputOfFrame
from rankslice.framework.errors import RankSliceError
from rankslice.framework.profile import SeenTensor
from rankslice.frontend.formats import read_model
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.partition.partition import SpanSegments
from rankslice.session.building.planning import read_profile
from rankslice.session.profiling.frames import SeenFrames, frames_of
from rankslice.session.profiling.profile_options import ProfileOptions

GRAPH = opened(line_graph("a: x -> t\nb: t -> u\nc: u -> v\nd: v -> y", outputs="y"), "t", "u")
SEGMENTS = SpanSegments(GRAPH)
SIZES = [9, 3, 7, 1, 5, 8, 0, 6, 2, 4]
SEEN = SeenFrames(
    tuple(SeenTensor(name, "float32", tuple((1, size) for size in SIZES)) for name in "tu"),
    tuple({"u": np.int64(size).tobytes()} for size in SIZES),
)


def test_a_span_is_measured_on_frames_from_small_to_large_ones() -> None:
    given = SEEN.inputs_of(SEGMENTS.segment(1, 1))
    assert [(InputOfFrame((1, size)),) for size in (1, 3, 5, 7, 9)] == [*given]


def test_small_whole_numbers_of_the_frame_are_given_with_it() -> None:
    first, *_ = SEEN.inputs_of(SEGMENTS.segment(2, 2))
    assert (InputOfFrame((1, 1), np.int64(1).tobytes()),) == first


def test_inputs_of_fixed_sizes_are_as_the_model_says() -> None:
    assert [(InputOfFrame((1, 4)),)] * 5 == [*SEEN.inputs_of(SEGMENTS.segment(0, 0))]


def test_a_span_without_open_sizes_needs_no_frames() -> None:
    assert () == SEEN.inputs_of(SEGMENTS.segment(3, 3))
    assert () == SeenFrames().inputs_of(SEGMENTS.segment(1, 1))


POSITIVE = [12, 1, 7, 3]
"""How many rows of each frame have a positive sum, which are those that the model keeps."""


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Path, Path]:
    """A model that keeps some of its rows, and frames for it."""
    frames = np.full((len(POSITIVE), 12, 4), -1, np.float32)
    for frame, count in zip(frames, POSITIVE, strict=True):
        frame[:count] = 1
    np.savez(tmp_path / "frames.npz", rows=frames)
    return rows_model(tmp_path), tmp_path / "frames.npz"


def seen_in(model: Path, frames: Path, at_most: int = 12) -> SeenFrames:
    loaded = read_model(model, GivenSizes(at_most={"places": (at_most, 1)}))
    options = ProfileOptions(input=(str(frames),))
    return frames_of(loaded, SpanSegments(loaded.graph), options)


@needs_litert
def test_frames_show_the_sizes_that_their_data_decide(rows: tuple[Path, Path]) -> None:
    seen = seen_in(*rows)
    shapes = {tensor.name: tensor.shapes for tensor in seen.tensors}
    assert tuple((count, 4) for count in POSITIVE) == shapes["kept"]
    chosen = [np.frombuffer(frame["chosen"], np.int64).tolist() for frame in seen.values]
    assert [[*range(count)] for count in POSITIVE] == chosen


@needs_litert
def test_a_frame_beyond_a_bound_is_named_with_tensor_and_bound(rows: tuple[Path, Path]) -> None:
    with pytest.raises(RankSliceError) as raised:
        seen_in(*rows, at_most=5)
    message = str(raised.value)
    assert "--input" in message
    assert "frames.npz" in message
    assert "'places' of shape [12, 1] is beyond its bound [5, 1]" in message


@pytest.mark.ci
@needs_litert
def test_a_profile_has_the_sizes_of_frames_and_wants_these_again(rows: tuple[Path, Path]) -> None:
    model, frames = rows
    out = model.with_name("profile.json")
    line = ("profile", model, "-o", out, "--no-refine", "--per-core", "--alone")
    succeed(*line, "--input", frames)
    profile = read_profile(out)
    assert all(span.problem is None for kind in profile.kinds for span in kind.spans)
    assert [count * 16 for count in POSITIVE] == [
        nbytes for tensor in profile.seen if tensor.name == "kept" for nbytes in tensor.nbytes
    ]
    ended = rankslice(*line)
    assert (1, True) == (ended.code, "was measured on frames; give them again" in ended.err)


def test_how_images_are_read_says_nothing_without_frames(tmp_path: Path) -> None:
    done = rankslice("profile", "model.onnx", "--mean", "3", "--size", "4x4")
    assert 1 == done.code
    for option in ("--size", "--mean"):
        assert f"{option}: is given without --input; also give --input" in done.err
