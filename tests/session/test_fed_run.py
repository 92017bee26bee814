"""Where the frames of a run come from that goes on without a board that is lost."""

from __future__ import annotations

import itertools
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sizes import Slot, make_slot
from rankslice.backend.runtime.sources import Source
from rankslice.backend.runtime.sources.arrivals import Live
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.read_driver import read_driver
from rankslice.session.build_folder import read_plan
from rankslice.session.fail_over import Restart
from rankslice.session.fed_frames import FedFrames
from rankslice.session.fed_run import _frames
from rankslice.session.prepare import PreparedRun
from rankslice.views.run_text import restart_lines


class Camera(Source):
    """Gives frames by itself; the test says when."""

    usage = ()
    is_live = True
    arrivals: Live

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        return False

    def __init__(self) -> None:
        self.is_started = threading.Event()

    def start(self, arrivals: Any) -> None:
        self.arrivals = arrivals
        self.is_started.set()

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        np.asarray(slots[0])[...] = self.arrivals.content.pop(index)


class Files(Camera):
    """Has frames of its own."""

    is_live = False
    frames = 3
    fps = 50.0

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        np.asarray(slots[0])[...] = index


def prepared(built: Path, source: Source, **options: Any) -> PreparedRun:
    return PreparedRun(built, read_plan(built), RunOptions(**options), source)


def slots_of(built: Path) -> list[Slot]:
    return [make_slot(spec) for spec in read_driver(built / "driver.py").inputs]


def test_frames_of_a_camera_wait_while_another_job_takes_over(built: Path) -> None:
    camera, slots = Camera(), slots_of(built)
    frames = _frames(prepared(built, camera), slots, threading.Event(), FedFrames())
    taking = threading.Thread(target=next, args=(frames,))
    taking.start()
    assert camera.is_started.wait(10)
    while not camera.arrivals.counts()[0]:  # what comes before the first look is no frame
        camera.arrivals.arrive(7)
    for value in (8, 9):
        camera.arrivals.arrive(value)
    taking.join()
    assert 7 == np.asarray(slots[0]).flat[0]
    values = [np.asarray(slots[0]).flat[0] for _ in range(2) if next(frames)]
    assert [8, 9] == values


def test_a_frame_of_a_camera_without_room_ends_the_run(built: Path) -> None:
    camera, slots = Camera(), slots_of(built)
    frames = _frames(prepared(built, camera, queue=1), slots, threading.Event(), FedFrames())
    taking = threading.Thread(target=next, args=(frames,))
    taking.start()
    assert camera.is_started.wait(10)
    while not camera.arrivals.counts()[0]:
        camera.arrivals.arrive(7)
    taking.join()
    for value in (8, 9):
        camera.arrivals.arrive(value)
    with pytest.raises(JobError, match="frame 2 arrived while 1 frames were waiting"):
        list(itertools.islice(frames, 3))


def test_other_frames_come_at_the_rate_of_their_source(built: Path) -> None:
    slots = slots_of(built)
    arrived = list(_frames(prepared(built, Files()), slots, threading.Event(), FedFrames()))
    assert [0, 1, 2] == [number for number, _ in arrived]
    assert [pytest.approx(0.02)] * 2 == list(np.diff([at_s for _, at_s in arrived]))
    is_over = threading.Event()
    is_over.set()
    assert [] == list(_frames(prepared(built, Files()), slots, is_over, FedFrames()))


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (0, "without b from frame 0 on"),
        (1, "without b after 1 frame: the next result came 4.0 s later"),
        (2, "without b after 2 frames"),
    ],
)
def test_a_takeover_is_told_as_far_as_results_show_it(number: int, line: str) -> None:
    """There may be no result before it, or none after it."""
    restart = Restart(RankSliceError("board b is off"), frozenset("b"), Path(), number)
    frames = FedFrames(completed_s=array("d", (1.0, 5.0)))
    assert line == next(restart_lines(frames.with_recovery([restart])))
