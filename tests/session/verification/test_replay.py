"""One rank alone, on what it read in a recorded run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import succeed
from damage import change_weight
from jobs import FIGURE_2_RANKS, build_folder, figure_2
from real_jobs import let_ranks_sleep, replace_file
from recorded import litert_in_halves, recording_of

import rankslice as package
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.hashing import file_sha256
from rankslice.session.recording_folder import read_recording
from rankslice.session.verification.replay import replay


@pytest.fixture(scope="module")
def recorded(built: Path) -> Path:
    """Frames 0 to 3 of AutoDiCE's example on three ranks."""
    return recording_of(built, built.parent, RunOptions(frames=6, record_frames=4))


@pytest.fixture
def copied(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the recording, to be changed."""
    return Path(shutil.copytree(recorded, tmp_path / "copied"))


@pytest.mark.parametrize("rank", range(3))
def test_a_rank_alone_makes_what_it_made(rank: int, recorded: Path) -> None:
    replayed = replay(recorded, rank)
    assert (0, 1, 2, 3) == replayed.frames
    made = {0: ["pooled", "added"], 1: ["fc"], 2: ["convolved", "y"]}[rank]
    assert made == [tensor.name for tensor in replayed.tensors]
    assert replayed.bit_equal
    assert all((4, 0.0) == (t.difference.frames, t.difference.absolute) for t in replayed.tensors)
    assert [4] * len(replayed.segments) == [segment.frames for segment in replayed.segments]
    assert all(segment.compute_ms["p50"] > 0 for segment in replayed.segments)


def test_ranks_that_take_turns_replay_their_own_frames_alone(tmp_path: Path) -> None:
    entries = dict.fromkeys(FIGURE_2_RANKS, 1) | {"MaxPool1": 0}
    out = build_folder(tmp_path, figure_2(), entries, weights={1: (1, 1)})
    folder = recording_of(out, tmp_path, RunOptions(frames=6, record_frames=6))
    replayed = [replay(folder, rank) for rank in (1, 2)]
    assert [(0, 2, 4), (1, 3, 5)] == sorted(one.frames for one in replayed)
    assert all(one.bit_equal for one in replayed)


def test_only_some_frames_are_replayed(recorded: Path) -> None:
    shown = succeed("replay", recorded, "--rank", "1", "--frames", "3,0-1", "--json", "-")
    record = json.loads(shown.out)
    assert ([0, 1, 3], True) == (record["frames"], record["bit_equal"])
    with pytest.raises(RankSliceError, match=r"frame 4 of rank 1 was not recorded.* 0, 1, 2, 3"):
        replay(recorded, 1, frames=[2, 4])
    with pytest.raises(RankSliceError, match="names no frame"):
        package.replay(recorded, 1, frames=[])


def test_other_submodels_show_where_and_how_much_they_differ(
    built: Path, recorded: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(built, tmp_path / "out", symlinks=True))
    (submodel,) = other.glob("submodels/*.3.0.onnx")
    change_weight(submodel, 0.5)
    conv, relu = package.replay(recorded, 2, build=other).tensors
    assert "convolved" == conv.name
    assert not conv.difference.bit_equal
    assert 0 == conv.difference.first
    assert 0 < conv.difference.relative < 1
    # Its inputs are the recorded ones, whatever the segment before made.
    assert relu.difference.bit_equal
    shown = succeed("replay", recorded, "--rank", "2", "--build", other)
    assert "not what was recorded, first in 'convolved' (onnxruntime" in shown.out
    assert "no, from" in shown.out


def test_a_build_with_other_cuts_is_refused(recorded: Path, tmp_path: Path) -> None:
    other = build_folder(tmp_path, figure_2(), {**FIGURE_2_RANKS, "Relu1": 1})
    with pytest.raises(
        RankSliceError, match="reads or makes different tensors than the recorded one"
    ):
        replay(recorded, 1, build=other)


def another_submodel(folder: Path) -> str:
    (submodel,) = folder.glob("submodels/*.3.0.onnx")
    change_weight(submodel, 0.5)
    return "has changed since it was recorded"


def another_tensor(folder: Path) -> str:
    file = folder / "tensors-2"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    replace_file(file, bytes(raw))
    return "has changed since it was recorded"


def another_plan(folder: Path) -> str:
    text = (folder / "plan.json").read_text()
    replace_file(folder / "plan.json", text.replace('"window": ', '"window": 1').encode())
    return "has changed since it was recorded"


def no_tensors(folder: Path) -> str:
    (folder / "tensors-2").unlink()
    return "cannot be read: No such file"


def another_route(folder: Path) -> str:
    record = json.loads((folder / "recording.json").read_text())
    (folder / "recording.json").write_text(json.dumps({**record, "route": 1}))
    return "names a second route"


def a_path_elsewhere(folder: Path) -> str:
    record = json.loads((folder / "recording.json").read_text())
    record["files"] = {f"../{name}": value for name, value in record["files"].items()}
    (folder / "recording.json").write_text(json.dumps(record))
    return "files: 'submodels/.*' is missing"


@pytest.mark.parametrize(
    "change",
    [another_submodel, another_tensor, another_plan, no_tensors, another_route, a_path_elsewhere],
)
def test_a_recording_that_has_changed_is_refused(
    change: Callable[[Path], str], copied: Path
) -> None:
    reason = change(copied)
    with pytest.raises(RankSliceError, match=reason):
        replay(copied, 2)


def test_frames_without_end_that_a_recording_claims_to_have_are_refused(copied: Path) -> None:
    many = 1 << 47
    record = json.loads((copied / "recording.json").read_text())
    tensors = copied / "tensors-2"
    raw = tensors.read_bytes().replace(b'"frames": 4', f'"frames": {many}'.encode())
    replace_file(tensors, raw)
    record["files"]["tensors-2"] = file_sha256(tensors)
    record |= {"frames": many, "completed": many}
    (copied / "recording.json").write_text(json.dumps(record))
    with pytest.raises(RankSliceError, match="lacks 'pooled' of frame 4"):
        replay(copied, 2)


def test_engines_that_do_not_fit_are_refused(recorded: Path) -> None:
    for engine, reason in (
        ("litert", "'litert' does not run .onnx sub-models; expected onnxruntime"),
        ("null", "'null' does not run .onnx sub-models; expected onnxruntime"),
        ("onnxruntme", "'onnxruntme' is unknown; did you mean 'onnxruntime'?"),
    ):
        with pytest.raises(RankSliceError) as caught:
            replay(recorded, 1, engine=engine)
        assert f"--engine: {reason}" == str(caught.value)
    assert replay(recorded, 1, engine="onnxruntime").bit_equal


def test_a_rank_that_only_slept_is_replayed_by_an_engine_that_computes(
    built: Path, tmp_path: Path
) -> None:
    asleep = Path(shutil.copytree(built, tmp_path / "out", symlinks=True))
    let_ranks_sleep(asleep, 0.0)
    folder = recording_of(asleep, tmp_path, RunOptions(frames=2))
    with pytest.raises(RankSliceError, match="'null' computed nothing; choose one with --engine"):
        replay(folder, 0)
    replayed = replay(folder, 0, engine="onnxruntime")
    assert "null" == replayed.recorded_engine
    assert not replayed.bit_equal


def test_a_rank_without_layers_has_nothing_to_replay(tmp_path: Path) -> None:
    from jobs import routed_figure

    folder = recording_of(routed_figure(tmp_path), tmp_path, RunOptions(frames=2, switch="normal"))
    assert replay(folder, 0).bit_equal
    with pytest.raises(RankSliceError, match="rank 1: has no layers on the recorded route"):
        replay(folder, 1)


def test_litert_replays_its_own_submodels(tmp_path: Path) -> None:
    folder = litert_in_halves("cnn_float32", tmp_path)
    folder = recording_of(folder, tmp_path, RunOptions(frames=3))
    assert all(replay(folder, rank).bit_equal for rank in (0, 1))
    with pytest.raises(RankSliceError, match=r"'onnxruntime' does not run .tflite sub-models"):
        replay(folder, 0, engine="onnxruntime")


def test_a_recording_is_complete_in_itself(recorded: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(recorded, tmp_path / "elsewhere"))
    assert replay(moved, 0).bit_equal
    info = read_recording(moved).info
    assert replace(info, files=()) == replace(read_recording(recorded).info, files=())
    assert {f"tensors-{rank}" for rank in range(3)} <= {name for name, _ in info.files}
    assert np.isfinite(replay(moved, 0).segments[0].first_ms)
