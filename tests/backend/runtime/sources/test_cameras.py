"""Cameras: here a video file stands for the device."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from in_process import run_in_process
from jobs import build_folder
from videos import PICTURE, RELUS, number_of, write_video

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sources import camera_source, open_source


@pytest.fixture
def camera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A device that gives 30 frames."""
    path = tmp_path / "video.avi"
    write_video(path, 30)
    monkeypatch.setattr(camera_source, "_device", lambda name: path)
    monkeypatch.setattr(Path, "is_char_device", lambda path: True)
    monkeypatch.setattr(camera_source, "_BACKEND", "CAP_FFMPEG")
    # As a camera does, it sees something all the time: frames before the start are none.
    arrive = camera_source.Live.arrive

    def arrive_when_begun(arrivals: Any, pixels: Any) -> None:
        while not arrivals._has_begun:
            time.sleep(0.001)
        arrive(arrivals, pixels)

    monkeypatch.setattr(camera_source.Live, "arrive", arrive_when_begun)
    return path


def folder_in(tmp_path: Path, last_rank: int = 1) -> Path:
    return build_folder(tmp_path, RELUS, {"a": 0, "y": last_rank})


@pytest.mark.usefixtures("camera")
def test_a_job_takes_what_the_camera_sees(tmp_path: Path) -> None:
    results = tmp_path / "results.bin"
    run_in_process(
        folder_in(tmp_path), RunOptions(("camera:0",), frames=20, queue=30, results=results)
    )
    assert list(range(20)) == [number_of(frame) for frame in read_results(results).values(0)]


@pytest.mark.usefixtures("camera")
def test_with_drop_the_rest_comes_in_order(tmp_path: Path) -> None:
    results = tmp_path / "results.bin"
    options = RunOptions(
        ("camera:0",), frames=30, queue=1, overflow="drop", results=results, window=1
    )
    records = run_in_process(folder_in(tmp_path), options)
    (source,) = (rank.source for rank in records if rank.source)
    kept = [number for number in range(30) if number not in source.dropped]
    assert kept == [number_of(frame) for frame in read_results(results).values(0)]
    assert len(kept) == source.frames


@pytest.mark.usefixtures("camera")
def test_a_camera_that_is_gone_fails_the_job_and_all_before_comes_out(tmp_path: Path) -> None:
    results = tmp_path / "results.bin"
    with pytest.raises(JobError, match="camera:0: gives no more frames: was it unplugged"):
        run_in_process(
            folder_in(tmp_path, last_rank=0), RunOptions(("camera:0",), queue=30, results=results)
        )
    numbers = [number_of(frame) for frame in read_results(results).values(0)]
    assert list(range(len(numbers))) == numbers
    assert len(numbers) >= 25


def test_a_camera_that_is_not_there_is_told_before_frame_0(tmp_path: Path) -> None:
    for number, name in enumerate(("camera:987", "camera:/dev/video987", "camera:/dev/fd")):
        with pytest.raises(JobError, match=f"{name}: there is no camera /dev/"):
            run_in_process(folder_in(tmp_path / str(number)), RunOptions((name,)))


def test_a_device_that_is_no_camera_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="/dev/null cannot be opened as a camera"):
        run_in_process(folder_in(tmp_path), RunOptions(("camera:/dev/null",)))


@pytest.mark.parametrize(
    ("inputs", "options", "expected"),
    [
        (("camera:",), {}, "'camera:' names no camera"),
        (("camera:photos/",), {}, "'camera:photos/' names no camera"),
        (("camera:0", "camera:1"), {}, "must be the only input"),
        (("camera:0",), {"fps": 3.0}, "frames of a camera come when it makes them"),
        (("camera:0",), {"pull": True}, "frames of a camera come when it makes them"),
    ],
)
def test_options_that_fit_no_camera_are_refused(
    inputs: tuple[str, ...], options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(JobError, match=expected):
        open_source(RunOptions(inputs, **options), [PICTURE])


@pytest.mark.usefixtures("camera")
def test_frames_that_wait_have_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(camera_source, "_MAX_BYTES", 10_000)
    with pytest.raises(JobError, match="30 waiting frames of 24x32 pixels take"):
        run_in_process(folder_in(tmp_path), RunOptions(("camera:0",)))
