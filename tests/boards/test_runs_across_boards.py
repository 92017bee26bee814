"""``rankslice run`` across boards, as a user runs it."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import COMMAND
from needed import NEEDS_FIRST_CORES
from real_jobs import DIGITS, debians_mpirun, wheels_mpirun
from waiting import until

import rankslice
from boards import Board, Boards
from boards.deployments import (
    MAPPING,
    build_for,
    deploy,
    deployed_digits,
    forget_results,
    run,
    set_version,
)
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.measurement.recorded_tensors import read_tensors
from rankslice.session.recording_folder import read_recording
from rankslice.session.verification.replay import replay


@pytest.fixture(scope="module")
def out(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of the digit classifier, deployed."""
    return deployed_digits(rack, tmp_path_factory.mktemp("job"))


@NEEDS_FIRST_CORES
@pytest.mark.parametrize(
    "open_mpi", [wheels_mpirun, pytest.param(debians_mpirun, marks=pytest.mark.ci)]
)
def test_boards_give_what_the_unsliced_model_gives(
    open_mpi: Callable[[], Path], rack: Boards, out: Path, tmp_path: Path
) -> None:
    record = tmp_path / "run.json"
    arguments = ("--frames", "50", "--verify", "exact", "--json", record)
    ended = run(rack, out, "--mpirun", open_mpi(), *arguments)
    assert 0 == ended.code, ended.err
    told = json.loads(record.read_text())
    assert told["verify"]["bit_equal"]
    assert 50 == told["completed"]
    assert ["board1", "board2"] == [rank["host"] for rank in told["ranks"]]


@pytest.mark.ci
def test_boards_run_a_model_of_parts_each_with_its_engine_and_compress_what_they_send(
    rack: Boards, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra: litert)")
    detector = DIGITS.with_name("digit_detector-parts.yaml")
    mapping = {"board1_cpu0-1": ["backbone"], "board2_cpu0-1": ["head"]}
    folder = build_for(rack, tmp_path / "parts", detector, mapping, compress="zstd")
    assert 0 == deploy(rack, folder).code
    record = tmp_path / "run.json"
    photographs = DIGITS.with_name("photographs")
    arguments = ("--input", photographs, "--verify", "exact", "--json", record)
    ended = run(rack, folder, *arguments)
    assert 0 == ended.code, ended.err
    told = json.loads(record.read_text())
    assert told["verify"]["bit_equal"]
    assert ["litert", "onnxruntime"] == [rank["engine"] for rank in told["ranks"]]
    assert told["ranks"][0]["compression_ratio"] > 1.2
    assert "zstd" in ended.out


@pytest.mark.ci
def test_tensors_are_recorded_on_both_sides_of_a_cut_and_a_board_is_replayed_here(
    rack: Boards, out: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "recorded"
    # As deployed, slices differ in the last bits, which a tolerance of 0 takes for a failure.
    arguments = ("--frames", "6", "--verify", "--tolerance", "0", "--results", tmp_path / "r.bin")
    ended = run(rack, out, *arguments, "--record", folder, "--record-frames", "2")
    found = read_recording(folder)
    ranks = read_tensors(folder, found.job, found.info.wanted, found.info.completed)
    ((tensor,),) = ([channel.tensor for channel in found.plan.channels],)
    for frame in range(2):
        np.testing.assert_array_equal(*(rank.values(frame, tensor) for rank in ranks))
    for rank in range(2):
        assert max(tensor.difference.relative for tensor in replay(folder, rank).tensors) < 1e-5
    if ended.code:
        again = run(rack, out, *arguments)
        for told in (ended, again):
            assert "first difference: " in told.out or "no tensor at a cut differs" in told.out
            assert "not known" not in told.out


@pytest.mark.ci
@pytest.mark.parametrize("open_mpi", [wheels_mpirun, debians_mpirun])
def test_a_program_feeds_boards(
    open_mpi: Callable[[], Path], rack: Boards, out: Path, tmp_path: Path
) -> None:
    images = np.random.default_rng(2).random((30, 1, 1, 8, 8), np.float32)
    np.save(tmp_path / "images.npy", images)
    ended = run(rack, out, "--input", tmp_path / "images.npy", "--results", tmp_path / "r.bin")
    assert 0 == ended.code, ended.err
    expected = read_results(tmp_path / "r.bin").values(0)
    with rankslice.open(out, ssh_config=rack.ssh_config, mpirun=open_mpi()) as pipeline:
        results = [result["probabilities"] for result in pipeline.map(images)]
        assert (expected == np.stack(results)).all()
        secret = pipeline._keeper._listener.secret_of(0)
        for board in rack:
            lines = board.run(["sh", "-c", "cat /proc/[0-9]*/cmdline"]).stdout
            assert "driver.py" in lines
            assert secret not in lines


@pytest.mark.ci
@pytest.mark.parametrize("open_mpi", [wheels_mpirun, debians_mpirun])
def test_a_signal_ends_an_endless_run_over_boards_once_all_results_are_here(
    open_mpi: Callable[[], Path], rack: Boards, out: Path, tmp_path: Path
) -> None:
    lines, results, live, record = (
        tmp_path / name for name in ("r.jsonl", "r.bin", "live.jsonl", "run.json")
    )
    options = ("--frames", "unlimited", "--fps", "50", "--results", results, "--output", lines)
    values = ("--live", live, "--json", record)
    given = ("--mpirun", open_mpi(), "--ssh-config", rack.ssh_config)
    job = subprocess.Popen(
        [*COMMAND, "run", *map(str, (out, *options, *values, *given))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(
        lambda: lines.exists() and lines.read_text().count("\n") > 10 and have_been_seen(live), 60
    )
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=60)
    assert 0 == job.returncode, err
    assert "ended by SIGTERM: every frame that had entered has come out" in err
    found = [
        json.loads(line)["outputs"]["probabilities"] for line in lines.read_text().splitlines()
    ]
    np.testing.assert_array_equal(read_results(results).values(0), np.array(found, np.float32))
    boards = {history["board"]: history for history in json.loads(record.read_text())["hardware"]}
    for number, name in enumerate(("board1", "board2")):
        series = boards[name]["series"]
        assert 0 < series[f"compute_share.rank{number}"]["mean"] < 1
        assert 1 < series[f"memory_mb.rank{number}"]["max"] < 500
    assert "rate_fps" in boards["board1"]["series"]
    assert "rate_fps" not in boards["board2"]["series"]


def have_been_seen(live: Path) -> bool:
    """Return whether both boards have sent samples of their ranks at work."""
    text = live.read_text() if live.exists() else ""
    told = [json.loads(line)["values"] for line in text.splitlines(keepends=True) if "\n" in line]
    return all(any(f"wait_share.rank{n}" in values for values in told) for n in (0, 1))


@pytest.mark.ci
def test_a_burst_takes_a_route_over_both_boards(rack: Boards, tmp_path: Path) -> None:
    surge = {"board1_cpu0": ["conv1..pool1"], "board2_cpu0|board2_cpu1": ["conv3..softmax"]}
    (tmp_path / "surge.json").write_text(json.dumps(surge))
    whole = {"board1_cpu0": ["conv1..softmax"]}
    folder = build_for(rack, tmp_path, DIGITS, whole, surge=tmp_path / "surge.json")
    assert 0 == deploy(rack, folder).code
    trace, record = tmp_path / "times of arrivals.txt", tmp_path / "run.json"
    trace.write_text("0\n" * 40 + "".join(f"{2 + number / 20}\n" for number in range(20)))
    options = ("--arrivals", trace, "--surge-queue", "10", "--normal-after", "0.1")
    ended = run(rack, folder, *options, "--verify", "exact", "--json", record)
    assert 0 == ended.code, ended.err
    told = json.loads(record.read_text())
    assert told["verify"]["bit_equal"]
    assert 60 == told["completed"]
    assert "surge" == told["switches"][0]["route"]
    assert told["switches"][0]["frame"] <= 1
    # Both boards loaded the route for a surge; only the first has the other one.
    assert ["board1", "board2", "board2"] == [rank["host"] for rank in told["ranks"]]


@pytest.mark.ci
@pytest.mark.parametrize("source", ["board1", "board2"])
def test_frames_of_a_file_enter_on_the_board_that_was_chosen(
    source: str, rack: Boards, tmp_path: Path
) -> None:
    folder = build_for(rack, tmp_path, DIGITS, MAPPING, source_board=source)
    assert 0 == deploy(rack, folder).code
    frames = tmp_path / "frames of mine; $(touch x).npz"
    np.savez(frames, image=np.random.default_rng(1).random((7, 1, 8, 8), np.float32))
    ended = run(rack, folder, "--input", frames, "--verify")
    assert 0 == ended.code, ended.err
    assert "7 frames compared" in ended.out


@pytest.mark.ci
def test_the_line_of_a_dry_run_can_be_typed(rack: Boards, out: Path) -> None:
    assert 0 == run(rack, out, "--frames", "3").code
    line = shlex.split(run(rack, out, "--frames", "3", "--dry-run").out)
    for board in rack:
        forget_results(board)
    subprocess.run(line, capture_output=True, timeout=120, check=True)
    # mpirun may end before it has forwarded the last lines, so the results tell.
    lists = [board.run(["sh", "-c", "ls /root/.rankslice/runs/*"]).stdout for board in rack]
    assert 1 == sum("results.bin" in entries.split() for entries in lists)


@pytest.mark.ci
def test_a_wrong_version_of_the_engine_is_found_before_the_start(rack: Boards, out: Path) -> None:
    set_version(rack[1], "onnxruntime", "1.2.3")
    try:
        ended = run(rack, out)
    finally:
        set_version(rack[1], "onnxruntime", "1.99.0")
    assert 1 == ended.code
    assert "board board2" in ended.err
    assert "has onnxruntime 1.2.3, and 1.19 or later is needed" in ended.err
    assert f"rankslice deploy {out} --venv" in ended.err


@pytest.mark.ci
def test_a_missing_open_mpi_is_found_before_the_start(rack: Boards, out: Path) -> None:
    daemon = str(wheels_mpirun().with_name("prted"))
    rack[1].run(["mv", daemon, f"{daemon}.away"])
    try:
        ended = run(rack, out)
    finally:
        rack[1].run(["mv", f"{daemon}.away", daemon])
    assert 1 == ended.code
    assert "board board2" in ended.err
    assert "all must be of one series" in ended.err


@pytest.mark.ci
def test_a_missing_engine_is_found_before_the_start(out: Path) -> None:
    with Boards(2, disk_mb=64) as boards:
        folder = build_for(boards, out.parent / "bare", DIGITS, MAPPING)
        boards[1].run(["sh", "-c", 'rm -r "$1"/onnxruntime*', "sh", str(packages(boards[1]))])
        deploy(boards, folder)
        ended = run(boards, folder)
    assert 1 == ended.code
    assert "board board2" in ended.err
    assert "has no onnxruntime" in ended.err


def packages(board: Board) -> Path:
    """Return where a board's Python has its packages."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(board.run(["python3", "-c", ask]).stdout.strip())
