"""What ranks record: every tensor that they have of a frame, once, as it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from jobs import FIGURE_2_RANKS, build_folder, figure_2, routed_figure
from recorded import record, recorded

from rankslice.backend.runtime import recording
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Job, Rank, Segment, Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.recording import RecordedFrames, Recorder, max_bytes
from rankslice.backend.runtime.sizes import OpenSlot, Slot, make_slot, values_in
from rankslice.framework.reading.read_driver import read_driver
from rankslice.measurement.recorded_tensors import read_rank_tensors

DTYPES = [
    *("float32", "float64", "float16", "bfloat16", "float8e4m3fn", "complex64", "bool"),
    *("int8", "uint8", "int64", "uint64", "int4", "uint4"),
]
OPEN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,3] x) => (float[n,3] y) { a = Relu(x) y = Sigmoid(a) }
"""


def job_of(given: Tensor, made: Tensor) -> Job:
    runs = (Segment("submodels/a.onnx", (given.name,), (made.name,)),)
    rank = Rank(0, "key", "board", "host", "cpu", (0,), "onnxruntime", runs=runs)
    return Job("m", 2, 0, 0, (given,), (), (made,), (rank,))


def filled(spec: Tensor, seed: int) -> Slot:
    raw = np.random.default_rng(seed).integers(0, 2, recording_bytes(spec), np.uint8)
    return make_slot(spec, raw)


def recording_bytes(spec: Tensor) -> int:
    return max(1, spec.nbytes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_type_come_back_bit_by_bit(dtype: str, tmp_path: Path) -> None:
    x, y = Tensor("x", dtype, (3, 5)), Tensor("y", dtype, ())
    job, frames = job_of(x, y), RecordedFrames(2, 2)
    recorder = Recorder(tmp_path, job, 0, frames)
    take = recorder.of_stage(("x",), ("y",))
    kept = {frame: (filled(x, frame), filled(y, frame)) for frame in range(6)}
    for frame, (given, made) in kept.items():
        take(frame, [values_in(given)], [made])
    recorder.close()
    tensors = read_rank_tensors(tmp_path, job, 0, frames, 6)
    assert [2, 3] == tensors.frames_of("x") == tensors.frames_of("y")
    for frame in (2, 3):
        for name, slot in zip("xy", kept[frame], strict=True):
            expected = values_in(slot)
            values = tensors.values(frame, name)
            assert (expected.dtype, expected.shape) == (values.dtype, values.shape)
            assert expected.tobytes() == values.tobytes()
    assert tensors.path.stat().st_size == max_bytes(job, 0, frames)


def test_a_tensor_without_elements_comes_back_in_its_shape(tmp_path: Path) -> None:
    spec = Tensor("x", "float32", (4, 3), ("n", ""))
    job, frames = job_of(spec, Tensor("y", "float32", (0, 2))), RecordedFrames(0, 1)
    recorder = Recorder(tmp_path, job, 0, frames)
    slot = make_slot(spec)
    assert isinstance(slot, OpenSlot)
    slot.shaped((0, 3))
    recorder.of_stage(("x",), ("y",))(0, [values_in(slot)], [np.empty((0, 2), np.float32)])
    recorder.close()
    tensors = read_rank_tensors(tmp_path, job, 0, frames, 1)
    assert [(0, 3), (0, 2)] == [tensors.values(0, name).shape for name in "xy"]
    assert tensors.path.stat().st_size < max_bytes(job, 0, frames)


def test_ranks_have_what_they_read_and_make_of_the_first_frames(
    built: Path, tmp_path: Path
) -> None:
    results, ranks = recorded(built, tmp_path / "ran", RunOptions(frames=5, record_frames=3))
    assert 5 == len(results)
    assert [{"x", "pooled", "convolved", "fc", "added"}, {"pooled", "fc"}] == [
        {*tensors.kept} for tensors in ranks[:2]
    ]
    assert {"pooled", "convolved", "added", "y"} == {*ranks[2].kept}
    for tensors in ranks:
        assert all([0, 1, 2] == tensors.frames_of(name) for name in tensors.kept)
    for frame in range(3):
        made = ranks[0].values(frame, "pooled")
        for reader in ranks[1:]:
            np.testing.assert_array_equal(made, reader.values(frame, "pooled"))
        np.testing.assert_array_equal(results.frames(0)[frame], ranks[2].values(frame, "y"))


def test_messages_bring_what_was_made_and_both_ends_are_recorded(
    built: Path, tmp_path: Path
) -> None:
    options = RunOptions(frames=2, record_first=1, record_frames=5)
    record(built, tmp_path / "ran", options, direct=())
    job = read_driver(built / "driver.py")
    frames = RecordedFrames(1, 5)
    ranks = [read_rank_tensors(tmp_path / "ran", job, rank, frames, 2) for rank in range(3)]
    np.testing.assert_array_equal(ranks[1].values(1, "fc"), ranks[0].values(1, "fc"))
    assert not ranks[1].has(0, "fc")


def test_ranks_in_turn_have_the_frames_that_they_handle(tmp_path: Path) -> None:
    weights = {1: (1, 2)}
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS, weights=weights)
    results, ranks = recorded(folder, tmp_path / "ran", RunOptions(frames=9, record_frames=6))
    of_one, of_other = (set(ranks[rank].frames_of("fc")) for rank in (1, 2))
    assert (2, 4) == (len(of_one), len(of_other))
    assert set(range(6)) == of_one | of_other
    assert [*range(6)] == ranks[0].frames_of("fc")
    for frame in of_one:
        np.testing.assert_array_equal(ranks[1].values(frame, "fc"), ranks[0].values(frame, "fc"))
    assert 9 == len(results)


def test_tensors_have_the_shape_of_their_frame(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(OPEN)
    folder = build_folder(tmp_path, model, {"Relu_0": 0, "Sigmoid_1": 1}, {"n": (6,)})
    results, ranks = recorded(folder, tmp_path / "ran", RunOptions(frames=8, record_frames=8))
    shapes = results.shapes(0)
    assert len({*shapes}) > 1
    assert shapes == [ranks[0].values(frame, "a").shape for frame in range(8)]
    assert shapes == [ranks[1].values(frame, "y").shape for frame in range(8)]


def test_one_of_two_routes_is_recorded_if_it_is_the_only_one(tmp_path: Path) -> None:
    folder = routed_figure(tmp_path)
    with pytest.raises(JobError, match="--switch normal or --switch surge"):
        record(folder, tmp_path / "auto", RunOptions(frames=2))
    for switch, tensors in (("normal", {"x", "y"}), ("surge", {"x", "pooled", "convolved"})):
        _, ranks = recorded(folder, tmp_path / switch, RunOptions(frames=3, switch=switch))
        assert tensors <= {*ranks[0].kept}
        assert [0, 1, 2] == ranks[0].frames_of("x")
    assert "pooled" in ranks[1].kept


def test_a_disk_without_room_ends_the_job_before_frame_0(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(recording.os, "posix_fallocate", full)
    with pytest.raises(JobError, match=r"recording .*tensors-0: .*No space left"):
        record(built, tmp_path / "ran", RunOptions(frames=2))
