"""Runs that record, under a real mpirun."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice, succeed
from jobs import routed_figure

import rankslice as package
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.recorded_tensors import read_tensors
from rankslice.session import recording_folder as recording
from rankslice.session.recording_folder import prepare_recording, read_recording
from rankslice.session.run import prepare
from rankslice.session.verification.replay import replay


def test_a_run_records_and_each_rank_can_be_replayed(built: Path, tmp_path: Path) -> None:
    folder, results = tmp_path / "recorded", tmp_path / "r.bin"
    ended = succeed(
        *("run", built, "--frames", "8", "--record", folder, "--record-frames", "3"),
        *("--results", results, "--no-direct"),
    )
    assert "note: the tensors of 3 frames will take at most 12.9 kB\n" == ended.err
    assert [] == [*built.glob(".rankslice*")]
    recorded = read_recording(folder)
    ranks = read_tensors(folder, recorded.job, recorded.info.wanted, recorded.info.completed)
    for frame in range(3):
        expected = read_results(results).frames(0)[frame]
        np.testing.assert_array_equal(expected, ranks[2].values(frame, "y"))
    assert all(replay(folder, rank).bit_equal for rank in range(3))


@pytest.mark.ci
def test_fewer_frames_than_wanted_replace_an_older_recording(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    for frames in (5, 2):
        package.run(built, frames=frames, record=folder, record_frames=100)
        assert range(frames) == read_recording(folder).info.numbers
        assert (*range(frames),) == replay(folder, 1).frames


@pytest.mark.ci
def test_a_job_that_fails_leaves_no_recording(built: Path, tmp_path: Path) -> None:
    ended = rankslice(
        *("run", built, "--frames", "500", "--fps", "100000", "--queue", "2"),
        *("--record", tmp_path / "recorded"),
    )
    assert 1 == ended.code
    assert "arrived while 2 frames were waiting" in ended.err
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.ci
def test_the_first_frames_of_an_endless_run_are_recorded(built: Path, tmp_path: Path) -> None:
    frames = np.random.default_rng(1).standard_normal((6, 1, 4, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", frames)
    folder = tmp_path / "recorded"
    package.run(built, input=str(tmp_path / "x.npy"), record=folder, record_frames=2)
    recorded = read_recording(folder)
    ranks = read_tensors(folder, recorded.job, recorded.info.wanted, recorded.info.completed)
    np.testing.assert_array_equal(frames[1], ranks[0].values(1, "x"))


def test_room_is_looked_for_before_the_start(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(recording.shutil, "disk_usage", lambda _: usage(9000, 0, 9000))
    options = RunOptions(frames=100, record=tmp_path / "recorded", record_frames=50)
    prepared = prepare(built, options)
    with pytest.raises(RankSliceError, match=r"--record: needs \d+ kB, and 9.00 kB are free in"):
        prepare_recording(prepared)
    monkeypatch.undo()
    prepared, text = prepare_recording(prepared)
    assert f"{tmp_path}/recorded" == str(prepared.options.record)
    assert text.startswith("the tensors of 50 frames will take at most ")


def test_frames_that_may_change_the_route_are_not_recorded(tmp_path: Path) -> None:
    prepared = prepare(routed_figure(tmp_path), RunOptions(record=tmp_path / "recorded"))
    with pytest.raises(RankSliceError, match=r"--record: .* --switch normal or --switch surge"):
        prepare_recording(prepared)
