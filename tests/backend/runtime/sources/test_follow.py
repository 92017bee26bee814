"""Frames from files that appear in a folder."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources import EndOfStreamError, Source, follow_source, open_source

PIXEL = Tensor("x", "float32", (1, 1, 1, 1))


def put(path: Path, level: int, time_s: int = 1_700_000_000) -> None:
    """Write an image of one pixel with a time of change."""
    Image.new("L", (1, 1), level).save(path.with_name(".part.png"))
    os.utime(path.with_name(".part.png"), (time_s, time_s))
    path.with_name(".part.png").rename(path)


def follow(folder: Path, **options: Any) -> Source:
    source = open_source(RunOptions((f"follow:{folder}",), **options), [PIXEL])
    source.start(None)  # type: ignore[arg-type]
    return source


def level(source: Source, index: int) -> int:
    slot: NDArray[Any] = np.empty(PIXEL.shape, np.float32)
    source.read(index, [slot])
    return round(255 * float(slot.item()))


def later(work: Callable[[], None], seconds: float = 0.1) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


def test_files_come_in_the_order_of_their_time_and_then_by_name(tmp_path: Path) -> None:
    for name, value, time_s in (("b.png", 1, 50), ("a.png", 2, 50), ("c.png", 0, 40)):
        put(tmp_path / name, value, time_s)
    (tmp_path / "notes.txt").write_text("no frame")
    source = follow(tmp_path)
    assert [0, 2, 1] == [level(source, index) for index in range(3)]


def test_a_frame_has_the_name_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_source, "_NAMES_KEPT", 2)
    for number in range(4):
        put(tmp_path / f"{number}.png", number)
    source = follow(tmp_path)
    for index in (0, 2, 3):
        level(source, index)
    assert ["frame 0", "frame 1", "2.png", "3.png", "frame 4"] == list(map(source.label, range(5)))


def test_a_file_that_appears_is_waited_for_and_the_wait_is_told(tmp_path: Path) -> None:
    source = follow(tmp_path)
    np.save(tmp_path / "first.npy", np.full(PIXEL.shape, 7 / 255, np.float32))
    assert 7 == level(source, 0)
    timer = later(lambda: put(tmp_path / "second.PNG", 9))
    before_s = source.waited_s
    assert 9 == level(source, 1)
    assert 0.1 <= source.waited_s - before_s < 5
    timer.join()


def test_a_file_is_taken_once_it_does_not_change_any_more(tmp_path: Path) -> None:
    source = follow(tmp_path)
    put(tmp_path / "whole.bmp", 5)
    content = (tmp_path / "whole.bmp").read_bytes()
    (tmp_path / "whole.bmp").unlink()

    def write_slowly() -> None:
        with (tmp_path / "slow.bmp").open("wb") as file:
            for begin in range(0, len(content), 4):
                file.write(content[begin : begin + 4])
                file.flush()
                time.sleep(0.02)

    writer = later(write_slowly, 0.0)
    assert 5 == level(source, 0)
    assert not writer.is_alive()
    writer.join()


def test_files_dropped_by_the_queue_are_passed_over(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path / f"{number}.png", number, number)
    source = follow(tmp_path)
    assert [1, 3] == [level(source, index) for index in (1, 3)]


def test_the_end_ends_a_wait(tmp_path: Path) -> None:
    source = follow(tmp_path)
    timer = later(source.end)
    with pytest.raises(EndOfStreamError):
        level(source, 0)
    timer.join()


def test_a_folder_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="nowhere: cannot be followed: No such file or directory"):
        follow(tmp_path / "nowhere")


def test_an_array_of_several_frames_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "stack.npy", np.zeros((3, *PIXEL.shape), np.float32))
    with pytest.raises(JobError, match=r"stack\.npy: its array holds 3 frames; expected one"):
        level(follow(tmp_path), 0)


def test_only_one_input_is_followed(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="must be the only input"):
        open_source(RunOptions((f"follow:{tmp_path}", "other")), [PIXEL])
    with pytest.raises(JobError, match="feeds models of one input; this one has 2"):
        open_source(RunOptions((f"follow:{tmp_path}",)), [PIXEL, PIXEL])
