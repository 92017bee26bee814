"""What a run has found, on the frames of its video."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from command_line import succeed
from numpy.typing import NDArray

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import Results
from rankslice.framework.errors import RankSliceError
from rankslice.session.prepare import prepare
from rankslice.session.run import FinishedRun
from rankslice.views.boxes.video import LabelledVideo

MODELS = Path(__file__).parents[3] / "models"
FRAMES, FPS, SIZE = 12, 24.0, (128, 96)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of the digit classifier, and beside it a video with frames of rising grey."""
    path = tmp_path_factory.mktemp("video")
    succeed(
        *("build", MODELS / "digits.onnx", "--cuts", "4", "--platform", "local"),
        *("--share-cores", "--out", path / "out"),
    )
    writer = cv2.VideoWriter(str(path / "in.avi"), cv2.VideoWriter_fourcc(*"MJPG"), FPS, SIZE)
    for frame in range(FRAMES):
        writer.write(np.full((SIZE[1], SIZE[0], 3), 10 * frame, np.uint8))
    writer.release()
    return path / "out"


def labelled(folder: Path, target: Path) -> LabelledVideo:
    options = RunOptions(inputs=(str(folder.parent / "in.avi"),))
    names = [f"class {number}" for number in range(10)]
    return LabelledVideo(prepare(folder, options), target, None, names, 1)


def finished_with(arrivals: tuple[int, ...]) -> FinishedRun:
    """Return a run in which the best class of a frame is its number, modulo 10."""
    scores = np.eye(10, dtype=np.float32)[[index % 10 for index in arrivals]][:, None]
    results = Results("", (), np.empty(len(arrivals), [("frame", "<u8")]), (scores,))
    labels = tuple(map(str, arrivals))
    return FinishedRun(None, results, labels, arrivals)  # type: ignore[arg-type]


def frames_of(path: Path) -> tuple[float, list[NDArray[Any]]]:
    capture, frames = cv2.VideoCapture(str(path)), []
    while (read := capture.read())[0]:
        frames.append(read[1])
    return capture.get(cv2.CAP_PROP_FPS), frames


@pytest.mark.parametrize("name", ["out.avi", "out.mp4"])
@pytest.mark.parametrize("arrivals", [tuple(range(FRAMES)), (0, 3, 11)], ids=["all", "dropped"])
def test_each_frame_with_a_result_has_it_written_at_rate_and_size_of_the_video(
    folder: Path, tmp_path: Path, name: str, arrivals: tuple[int, ...]
) -> None:
    drawn: list[int] = []
    text = labelled(folder, tmp_path / name).write(finished_with(arrivals), drawn.append)
    assert f"{len(arrivals)} labelled frames, in {tmp_path / name}" == text
    assert list(range(1, len(arrivals) + 1)) == drawn
    fps, frames = frames_of(tmp_path / name)
    assert (FPS, len(arrivals)) == (fps, len(frames))
    for index, frame in zip(arrivals, frames, strict=True):
        assert (SIZE[1], SIZE[0]) == frame.shape[:2]
        assert abs(float(frame[60:].mean()) - 10 * index) < 4, "the frame of another time"
        assert np.ptp(frame[:40].astype(int), axis=(0, 1)).max() > 100, "nothing is written on it"
    assert [name] == [path.name for path in tmp_path.iterdir()]


def test_a_frame_that_cannot_be_read_any_more_leaves_no_video(folder: Path, tmp_path: Path) -> None:
    video = labelled(folder, tmp_path / "out.avi")
    with pytest.raises(RankSliceError, match=r"in.avi\[12\]: cannot be read any more"):
        video.write(finished_with((0, FRAMES)), lambda count: None)
    assert [] == list(tmp_path.iterdir())


def test_only_videos_become_videos(folder: Path, tmp_path: Path) -> None:
    prepared = prepare(folder, RunOptions())
    with pytest.raises(RankSliceError, match=r"o.mp4: is made from the frames of a video and all"):
        LabelledVideo(prepared, tmp_path / "o.mp4", None, (), 0)


@pytest.mark.ci
def test_boxes_are_drawn_on_the_frames_of_a_video(tmp_path: Path) -> None:
    succeed(
        *("build", MODELS / "digit_detector.onnx", "--cuts", "8", "--platform", "local"),
        *("--share-cores", "--out", tmp_path / "out"),
    )
    photograph = cv2.imread(str(sorted((MODELS / "photographs").glob("*.jpg"))[0]))
    assert photograph is not None
    still = cv2.resize(photograph, (512, 384))
    writer = cv2.VideoWriter(
        str(tmp_path / "in.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 25, (512, 384)
    )
    for _ in range(3):
        writer.write(still)
    writer.release()
    succeed(
        *("run", tmp_path / "out", "--input", tmp_path / "in.avi", "--pull"),
        *("--boxes", "boxes,scores,labels", "--output", tmp_path / "o.avi"),
    )
    _, before = frames_of(tmp_path / "in.avi")
    _, after = frames_of(tmp_path / "o.avi")
    changed = [
        float((np.abs(one.astype(int) - other).max(axis=2) > 60).mean())
        for one, other in zip(before, after, strict=True)
    ]
    assert all(0.001 < share < 0.2 for share in changed)
