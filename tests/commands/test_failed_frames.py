"""Frames whose values an engine refuses, in real jobs: they fail alone."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice as command
from damage import change_weight
from poisoned import LAYERS, REASON, check_a_thousand, frame, poisoned_model, result
from real_jobs import digits_folder, shared_keys
from served import served

import rankslice
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.networks.digits import write_digit_images
from rankslice.session.building.build import BuildOptions, build

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("poisoned")
    mapping = {key: [layer] for key, layer in zip(shared_keys(3), LAYERS, strict=True)}
    (place / "mapping.json").write_text(json.dumps(mapping))
    model, options = poisoned_model(place), BuildOptions(share_cores=True)
    np.savez(place / "frames.npz", i=np.stack([frame(number) for number in range(50)]))
    return build(model, place / "mapping.json", "local", place / "out", options).folder


def test_a_frame_that_fails_ends_a_run(folder: Path) -> None:
    ended = command("run", folder, "--input", folder.parent / "frames.npz")
    assert 1 == ended.code
    assert "segment 0, frame 0: RuntimeError: Error in execution" in ended.err
    assert REASON in ended.err


@pytest.mark.parametrize("direct", [True, False])
def test_frames_that_fail_are_left_out_of_a_run_if_it_may(
    folder: Path, tmp_path: Path, direct: bool
) -> None:
    ended = command(
        *("run", folder, "--input", folder.parent / "frames.npz", "--skip-failed"),
        *("--verify", "--tolerance", 0.0, "--results", tmp_path / "r.bin"),
        *("--output", tmp_path / "lines.jsonl", "--json", tmp_path / "run.json"),
        *([] if direct else ["--no-direct"]),
    )
    assert "45 frames, " in ended.out
    assert "5 frames failed, without results:" in ended.out
    assert "verify passed: 45 frames compared, bit-equal" in ended.out
    assert (0, "") == (ended.code, ended.err)
    results = read_results(tmp_path / "r.bin")
    computed = [number for number in range(50) if number % 10]
    assert computed == results.numbers
    assert [[result(number)] for number in computed] == results.values(0).tolist()
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert list(range(50)) == [line["frame"] for line in lines]
    for number, line in enumerate(lines):
        assert f"frames.npz[{number}]" == line["input"]
        listed = line.get("outputs", {}).get("y")
        assert ([result(number)] if number % 10 else None) == listed
        assert (REASON in line.get("error", "")) == (number % 10 == 0)
    record = json.loads((tmp_path / "run.json").read_text())
    assert (50, 45, 5) == (record["frames"], record["completed"], record["failed"])
    assert [0, 10, 20, 30, 40] == [
        int(text.partition("frame ")[2].partition(":")[0]) for text in record["failures"]
    ]


def test_a_difference_is_told_with_the_number_of_its_frame(folder: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed, symlinks=True)
    (submodel,) = (path for path in changed.glob("submodels/*.onnx") if b"two" in path.read_bytes())
    change_weight(submodel, 0.5)
    ended = command(
        *("run", changed, "--input", folder.parent / "frames.npz", "--skip-failed", "--verify"),
        *("--json", tmp_path / "run.json"),
    )
    assert 1 == ended.code
    verdict = json.loads((tmp_path / "run.json").read_text())["verify"]
    assert 1 == verdict["first_frame"]
    assert "first difference: tensor 'h' " in verdict["first_difference"]
    assert " (frame 1) differs by " in verdict["first_difference"]


def test_npz_results_say_which_frames_they_are_of(folder: Path, tmp_path: Path) -> None:
    rankslice.run(
        folder, input=folder.parent / "frames.npz", skip_failed=True, results=tmp_path / "r.npz"
    )
    with np.load(tmp_path / "r.npz") as arrays:
        computed = [number for number in range(50) if number % 10]
        assert computed == arrays["frames"].tolist()
        assert [[result(number)] for number in computed] == arrays["y"].tolist()


def test_the_future_of_a_frame_that_fails_raises_and_the_others_have_results(folder: Path) -> None:
    with rankslice.open(folder) as pipeline:
        futures = [pipeline.submit(frame(number)) for number in range(100)]
        for number, future in enumerate(futures):
            if number % 10:
                assert [result(number)] == future.result()["y"].tolist()
            else:
                with pytest.raises(rankslice.FailedFrameError, match=REASON) as caught:
                    future.result()
                error = caught.value
                assert (number, 0, 0) == (error.frame, error.rank, error.segment)
                assert error.reason in str(error)
                assert f"segment 0, frame {number}: " in str(error)
        results = pipeline.map([frame(1), frame(2), frame(0), frame(3)])
        assert [3.0, 6.0] == [next(results)["y"][0, 0], next(results)["y"][0, 0]]
        with pytest.raises(rankslice.FailedFrameError):
            next(results)
        assert [result(4)] == pipeline(frame(4))["y"].tolist()
        assert "ready" == pipeline.state


def test_a_thousand_requests_are_answered_or_refused_each_by_itself(folder: Path) -> None:
    pipeline = rankslice.open(folder)
    with served(pipeline) as server:
        check_a_thousand(server.http)
        ready = urllib.request.urlopen(f"http://{server.http}/v2/health/ready")
        assert 200 == ready.status
        assert ("ready", None, 0) == (pipeline.state, pipeline.error, pipeline.restarts)
        assert 1000 == pipeline.completed


def test_a_picture_that_cannot_be_decoded_is_left_out_if_it_may(tmp_path: Path) -> None:
    digits = digits_folder(tmp_path)
    write_digit_images(tmp_path / "images", 4)
    (sorted((tmp_path / "images").iterdir())[2]).write_bytes(b"no image")
    arguments = {"input": tmp_path / "images", "scale": 1 / 256}
    with pytest.raises(rankslice.RankSliceError, match=r"source, frame 2: .*not an image"):
        rankslice.run(digits, **arguments)
    finished = rankslice.run(digits, skip_failed=True, **arguments)
    assert [0, 1, 3] == finished.results.numbers
    assert 3 == len(finished.labels)
    (failure,) = finished.summary.failures
    assert "source, frame 2: " in failure


def test_recording_does_not_go_with_frames_that_fail(folder: Path, tmp_path: Path) -> None:
    ended = command("run", folder, "--skip-failed", "--record", tmp_path / "recorded")
    assert 1 == ended.code
    assert "--skip-failed: cannot be combined with --record" in ended.err
