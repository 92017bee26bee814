"""Frames of video files, read with OpenCV."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from in_process import run_in_process
from jobs import build_folder
from numpy.typing import NDArray
from PIL import Image
from videos import PICTURE, RELUS, leave_out_first, number_of, prolong, write_video

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sources import (
    EndOfStreamError,
    Source,
    open_source as open_source_of,
    video_source,
)
from rankslice.backend.runtime.sources.video_source import is_cut_short

GREY = Tensor("x", "float32", (1, 1, 4, 4))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A video of 12 frames at 50 frames/s."""
    return write_video(tmp_path_factory.mktemp("video") / "clip.mp4", 12, fps=50.0)


def open_source(name: str, spec: Tensor = PICTURE, **options: Any) -> Source:
    return open_source_of(RunOptions((name,), **options), [spec])


def read(source: Source, index: int, spec: Tensor = PICTURE) -> NDArray[Any]:
    slot = np.empty(spec.shape, np.float32)
    source.read(index, [slot])
    return slot


def message(name: str, specs: list[Tensor] | None = None, **options: Any) -> str:
    with pytest.raises(JobError) as error:
        open_source_of(RunOptions((name,), **options), specs or [PICTURE])
    return str(error.value)


@pytest.mark.parametrize("suffix", [".mp4", ".avi", ".mkv", ".mov"])
def test_all_frames_come_in_order_and_then_the_stream_ends(tmp_path: Path, suffix: str) -> None:
    source = open_source(write_video(tmp_path / f"v{suffix}", 12))
    assert (25.0, None, "v" + suffix + "[3]") == (source.fps, source.frames, source.label(3))
    assert list(range(12)) == [number_of(read(source, index)) for index in range(12)]
    with pytest.raises(EndOfStreamError):
        read(source, 12)


def test_frames_may_be_left_out_and_read_again(clip: str) -> None:
    source = open_source(clip)
    assert [2, 7, 7, 3] == [number_of(read(source, index)) for index in (2, 7, 7, 3)]


def test_frames_beyond_the_last_begin_again_at_the_first(clip: str) -> None:
    source = open_source(clip, frames=30)
    assert 30 == source.frames
    assert [11, 0, 2, 5] == [number_of(read(source, index)) for index in (11, 12, 26, 29)]


def test_a_frame_has_the_values_of_an_image_of_the_same_pixels(tmp_path: Path) -> None:
    pixels = np.zeros((20, 30, 3), np.uint8)
    pixels[:, :15] = 200, 30, 90  # blue, green, red
    writer = cv2.VideoWriter(str(tmp_path / "v.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 5, (30, 20))
    writer.write(pixels)
    writer.release()
    _, decoded = cv2.VideoCapture(str(tmp_path / "v.avi")).read()
    Image.fromarray(np.ascontiguousarray(decoded[:, :, ::-1])).save(tmp_path / "v.png")
    asked = Preprocessing(size=(8, 12), mean=(1, 2, 3), scale=(0.1, 0.2, 0.3))
    for spec in (PICTURE, GREY):
        pre = asked if spec is PICTURE else Preprocessing()
        frames = [
            read(open_source(str(tmp_path / f"v.{kind}"), spec, preprocessing=pre), 0, spec)
            for kind in ("avi", "png")
        ]
        np.testing.assert_array_equal(frames[1], frames[0])


def test_the_user_is_told_that_frames_are_resized(clip: str) -> None:
    expected = "clip.mp4 has 24x32 pixels, the model takes 4x4: images of other sizes are resized"
    assert expected == open_source(clip).note()
    assert "" == open_source(clip, preprocessing=Preprocessing(size=(4, 4))).note()


def test_what_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    write_video(tmp_path / "a.mp4", 3)
    (tmp_path / "list.mp4").write_text("ffconcat version 1.0\nfile a.mp4\n")
    for name in ("text.mp4", "list.mp4"):
        assert f"{name}: not a video that can be read" in message(str(tmp_path / name))
    empty = write_video(tmp_path / "empty.avi", 0)
    assert message(empty).endswith("empty.avi: has no frame that can be read")
    (tmp_path / "folder.mp4").mkdir()
    assert "is not a regular file" in message(str(tmp_path / "folder.mp4"))


def numbers(source: Source) -> list[int]:
    """Return all frames of a video, up to its end."""
    numbers: list[int] = []
    while True:
        try:
            numbers.append(number_of(read(source, len(numbers))))
        except EndOfStreamError:
            return numbers


def test_frames_that_a_cut_leaves_out_are_not_missing(tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    source = open_source(write_video(path, 30))
    assert list(range(30)) == numbers(source)
    leave_out_first(path, 8)
    assert list(range(8, 30)) == numbers(open_source(str(path)))


def test_sound_that_is_longer_than_the_pictures_makes_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "long.mkv"
    write_video(path, 12)
    prolong(path, 60.0)
    assert list(range(12)) == numbers(open_source(str(path)))


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    noise = np.random.default_rng(0).bytes(1000)
    changed = {
        "cut short": content[:middle],
        "noise": content[:middle] + noise + content[middle + 1000 :],
        "zeros": content[:middle] + bytes(len(content) - middle),
    }
    path.write_bytes(changed[how])


@pytest.mark.parametrize(
    ("suffix", "how"),
    [
        (".avi", "cut short"),
        (".mkv", "cut short"),
        (".mkv", "noise"),
        (".mp4", "noise"),
        (".avi", "zeros"),
    ],
)
def test_a_damaged_frame_is_an_error_after_the_frames_before_it(
    tmp_path: Path, suffix: str, how: str
) -> None:
    path = tmp_path / f"v{suffix}"
    write_video(path, 30, size=(96, 128))
    damage(path, how)
    source = open_source(str(path))
    with pytest.raises(JobError, match=r"only \d+ frames can be read: the next one is damaged, or"):
        all(read(source, index).size for index in range(31))
    count = source._count  # type: ignore[attr-defined]
    assert 0 < count < 30
    whole = range(count - 2)  # decoders hide the beginning of the damage
    assert list(whole) == [number_of(read(source, index)) for index in whole]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\0\0\0\x08free\0\0\0\x10mdat" + bytes(8), False),
        (b"\0\0\0\x08free\0\0\0\x10mdat" + bytes(7), True),
        (b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x18" + bytes(8), False),
        (b"\0\0\0\x01mdat\0\0\0\0\0\0\1\0", True),
        (b"\0\0\0\0mdat", False),  # up to the end of the file
        (b"RIFF\x08\0\0\0AVI " + bytes(4), False),
        (b"RIFF\x08\0\0\0AVI " + bytes(3), True),
        (b"\x1a\x45\xdf\xa3\x81\0\x18\x53\x80\x67\x42\0" + bytes(512), False),
        (b"\x1a\x45\xdf\xa3\x81\0\x18\x53\x80\x67\x42\0" + bytes(511), True),
        (b"\x1a\x45\xdf\xa3\x81\0\x18\x53\x80\x67\xff", False),  # of unknown length
        (b"\x1a\x45\xdf\xa3\xff", False),
        (b"", False),
        (b"\0\0\0", False),
        (b"\0\0\0\x08free" * 65_535 + b"\0\0\0\x10mdat", True),
        (b"\0\0\0\x08free" * 65_536 + b"\0\0\0\x10mdat", False),  # no more parts are looked at
    ],
    ids=lambda value: str(value)[:40],
)
def test_containers_say_how_long_they_should_be(
    tmp_path: Path, content: bytes, expected: bool
) -> None:
    (tmp_path / "v").write_bytes(content)
    assert expected == is_cut_short(tmp_path / "v")


def test_only_frames_that_are_there_count_as_dropped(clip: str, tmp_path: Path) -> None:
    folder = build_folder(tmp_path, RELUS, {"a": 0, "y": 1})
    options = RunOptions(
        (clip,), fps=20_000.0, queue=1, overflow="drop", results=tmp_path / "results.bin"
    )
    records = run_in_process(folder, options)
    (source,) = (rank.source for rank in records if rank.source)
    assert set(source.dropped) < set(range(12))
    assert 12 == source.frames + len(source.dropped)


def test_frames_too_large_are_refused_before_one_is_decoded(
    clip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_source, "MAX_PIXELS", 24 * 32 - 1)
    assert "has frames of 24x32 pixels; expected at most 767 pixels" in message(clip)


def test_without_opencv_the_message_says_what_to_install(
    clip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert "need the package opencv-python-headless on the source board" in message(clip)


def test_models_that_take_no_single_image_are_refused(clip: str) -> None:
    assert "clip.mp4 feeds models of one input; this one has 2" in message(clip, [PICTURE, GREY])
    assert "accepts no images" in message(clip, [Tensor("x", "float32", (1, 7))])


@pytest.mark.parametrize(
    ("options", "fps", "least_s"),
    [({}, 50.0, 11 / 50), ({"fps": 100.0}, 100.0, 11 / 100), ({"pull": True}, None, 0.0)],
)
def test_frames_arrive_at_the_rate_of_the_video_unless_told_otherwise(
    clip: str, tmp_path: Path, options: dict[str, Any], fps: float | None, least_s: float
) -> None:
    folder = build_folder(tmp_path, RELUS, {"a": 0, "y": 1})
    results = tmp_path / "results.bin"
    records = run_in_process(folder, RunOptions((clip,), results=results, **options))
    (source,) = (rank.source for rank in records if rank.source)
    kept = read_results(results)
    assert (fps, 12, ()) == (source.fps, source.frames, source.dropped)
    assert list(range(12)) == [number_of(frame) for frame in kept.values(0)]
    assert kept.completed_s[-1] - kept.completed_s[0] >= 0.8 * least_s


def test_frames_of_a_video_may_come_at_the_times_of_a_trace(clip: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("0\n0.01\n0.03\n")
    folder = build_folder(tmp_path, RELUS, {"a": 0, "y": 0})
    options = RunOptions((clip,), arrivals=trace, results=tmp_path / "results.bin")
    records = run_in_process(folder, options)
    (source,) = (rank.source for rank in records if rank.source)
    assert (3, None, True) == (source.frames, source.fps, source.timed_by_file)
