"""Build folders under a real mpirun: through the library, the command line, and by hand."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from command_line import Ended, rankslice, rankslice_process, succeed
from jobs import FIGURE_2_RANKS, build_folder, figure_2, unsliced_outputs, write_mapping
from PIL import Image
from real_jobs import debians_mpirun

from rankslice.backend.launch.mpirun import MpiRun, find_mpirun
from rankslice.backend.runtime.figures.rank_figures import SourceFigures
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.version import RUNTIME_VERSION
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.verify import Verification
from rankslice.session.run import Callbacks, _arrivals, prepare, run

TIMEOUT_S = 20
"""No job here may take longer, whatever happens to it."""

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ENVIRONMENT |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

IMAGE_MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,4,4] x) => (float[1,3,4,4] y) { a = Relu(x) y = Sigmoid(a) }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder with blanks and quotes in its path; never changed."""
    parent = tmp_path_factory.mktemp("run") / 'it\'s "here"'
    return build_folder(parent, figure_2(), FIGURE_2_RANKS)


def docstrings_line(folder: Path) -> str:
    """Return the mpirun line that the driver's docstring shows."""
    text = ast.get_docstring(ast.parse((folder / "driver.py").read_text()))
    assert text is not None
    (line,) = (line.strip() for line in text.splitlines() if line.strip().startswith("mpirun"))
    return line


def documented_line(version: str) -> str:
    """Return the mpirun line that the documentation shows for a version of Open MPI."""
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"(?m)^\| {re.escape(version)} \| `(mpirun .*)` \|$", page)
    return str(line)


def typed(folder: Path, line: str, mpirun: MpiRun) -> Ended:
    """Run an mpirun line in a build folder."""
    variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [str(mpirun.path), *line.split()[1:]]
    if mpirun.library is not None:
        variables["MPI4PY_LIBMPI"] = str(mpirun.library)
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def as_in_the_docstring(folder: Path) -> Ended:
    """Run the mpirun line that the driver's docstring shows."""
    return typed(folder, docstrings_line(folder), find_mpirun())


def messages(ended: Ended) -> list[str]:
    # mpirun now and then forwards a NUL before the first line of a rank.
    return [line.lstrip("\0") for line in ended.err.splitlines() if "rankslice: " in line]


def assert_no_process_is_left(folder: Path) -> None:
    """Wait for what is about to end; fail if anything that was started in the folder stays."""
    deadline = time.monotonic() + 10
    while left := processes_of(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def processes_of(folder: Path) -> list[list[str]]:
    commands = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) or str(folder) in " ".join(process.cmdline()):
                commands.append(process.cmdline())
        except psutil.Error:
            continue
    return commands


def test_a_folder_counts_by_the_version_of_its_runtime_and_not_by_the_wording(
    copied: Path,
) -> None:
    version = copied / "runtime" / "version.py"
    version.write_text(f'__all__ = ["RUNTIME_VERSION"]\n\nRUNTIME_VERSION = {RUNTIME_VERSION}\n')
    prepare(copied, RunOptions(frames=1))

    version.write_text(f"RUNTIME_VERSION = {RUNTIME_VERSION}0\n")
    with pytest.raises(RankSliceError, match="another version of RankSlice; build it again"):
        prepare(copied, RunOptions(frames=1))


def test_the_command_line_builds_and_runs_and_every_bit_is_the_unsliced_models(
    tmp_path: Path,
) -> None:
    onnx.save(figure_2(), tmp_path / "model.onnx")
    mapping = write_mapping(tmp_path / "mapping.json", FIGURE_2_RANKS)
    out = tmp_path / "out"
    made = rankslice_process(
        *("build", tmp_path / "model.onnx", "--mapping", mapping, "--platform", "local"),
        *("--share-cores", "--out", out),
    )
    assert (0, "") == (made.code, made.err.replace("\n", ""))
    ended = rankslice_process("run", out, "--frames", "40", "--verify", "exact", "--json", "-")
    assert 0 == ended.code, ended.err
    record = json.loads(ended.out)
    assert (40, 40, []) == (record["frames"], record["completed"], record["dropped"])
    assert {"passed": True, "bit_equal": True, "max_abs_diff": 0, "frames": 40}.items() <= record[
        "verify"
    ].items()
    assert list(json.loads(mapping.read_text())) == [rank["key"] for rank in record["ranks"]]
    assert record["throughput_fps"] > 0
    assert 0 < record["latency_ms"]["p50"] <= record["latency_ms"]["max"]


def test_the_library_runs_a_build_folder(built: Path) -> None:
    counts: list[int] = []
    finished = run(prepare(built, RunOptions(frames=40, exact=True)), Callbacks(counts.append))
    assert 40 == counts[-1]
    assert sorted(counts) == counts
    assert ("random 0", "random 39") == (finished.labels[0], finished.labels[-1])
    assert list(range(40)) == finished.results.records["frame"].tolist()
    expected = unsliced_outputs(built, ["random"], 40)
    np.testing.assert_array_equal(expected[0], finished.results.values(0))


@pytest.mark.ci
def test_a_window_of_one_frame_gives_every_frame_in_order(built: Path) -> None:
    progress: list[Verification | int | None] = []
    finished = run(
        prepare(built, RunOptions(frames=30, window=1)),
        Callbacks(
            on_ran=lambda ran: progress.append(ran.summary.verify), on_verified=progress.append
        ),
        verify=True,
    )
    # The figures are there before the comparison, which takes its time.
    assert [None, *range(1, 31)] == progress
    assert 1 == finished.summary.window
    assert list(range(30)) == finished.results.records["frame"].tolist()
    assert finished.summary.verify is not None
    assert finished.summary.verify.passed


@pytest.mark.ci
def test_frames_of_an_npz_file_come_out_as_its_arrays_say(built: Path, tmp_path: Path) -> None:
    frames = np.random.default_rng(5).standard_normal((7, 1, 4, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "frames.npz", x=frames)
    frames = str(tmp_path / "frames.npz")
    finished = run(prepare(built, RunOptions(inputs=(frames,), exact=True)))
    assert 7 == finished.summary.completed
    expected = unsliced_outputs(built, [frames], 7)
    np.testing.assert_array_equal(expected[0], finished.results.values(0))


@pytest.mark.ci
def test_the_line_in_the_drivers_docstring_runs_the_job_without_the_launcher(
    copied: Path,
) -> None:
    if find_mpirun().version[0] < 5:
        pytest.skip("the line is for Open MPI 5")
    ended = as_in_the_docstring(copied)
    assert (0, "") == (ended.code, ended.err)
    assert_is_summary(ended.out, 10)
    assert docstrings_line(copied) == documented_line("5").replace("--frames 30", "--frames 10")
    expected = unsliced_outputs(copied, ["random"], 10)
    np.testing.assert_allclose(
        expected[0], read_results(copied / "results.bin").values(0), rtol=1e-4, atol=1e-5
    )


def assert_is_summary(text: str, frames: int) -> None:
    rate, latency, *ranks, bottleneck = text.splitlines()
    assert rate.startswith(f"{frames} frames, ")
    assert latency.startswith("latency p50 ")
    assert ["rank 0", "rank 1", "rank 2"] == [line.partition(" (")[0] for line in ranks]
    assert bottleneck.startswith("bottleneck: ")


@pytest.mark.ci
def test_the_documented_line_for_open_mpi_4_runs_the_job(copied: Path) -> None:
    mpirun = find_mpirun(debians_mpirun())
    ended = typed(copied, documented_line("4.1"), mpirun)
    assert (0, "") == (ended.code, ended.err)
    assert_is_summary(ended.out, 30)
    quiet = typed(copied, f"{documented_line('4.1')} --quiet", mpirun)
    assert (0, "", "") == (quiet.code, quiet.out, quiet.err)


@pytest.mark.ci
def test_a_dry_run_prints_a_line_that_a_shell_runs(built: Path, tmp_path: Path) -> None:
    results = tmp_path / "my results.bin"
    shown = rankslice("run", built, "--frames", "5", "--results", results, "--dry-run")
    assert (0, "") == (shown.code, shown.err)
    (line,) = shown.out.splitlines()
    subprocess.run(
        ["sh", "-c", line], timeout=TIMEOUT_S, check=True, stdout=subprocess.PIPE, cwd="/"
    )
    assert 5 == len(read_results(results))


def damaged_submodel(folder: Path) -> str:
    (path,) = folder.glob("submodels/*.3.0.onnx")
    content = path.read_bytes()
    path.unlink()  # its package has the same file under another name
    path.write_bytes(content[:-40])
    return r"rankslice: rank 2 (KEY2 on "


@pytest.mark.ci
@pytest.mark.parametrize("damage", [damaged_submodel])
def test_a_rank_that_fails_ends_the_job_with_one_message_and_leaves_no_process(
    copied: Path, damage: object
) -> None:
    assert callable(damage)
    expected = damage(copied)
    for rank, key in enumerate(json.loads((copied / "sender.json").read_text())):
        expected = expected.replace(f"KEY{rank}", key)
    ended = as_in_the_docstring(copied)
    assert 1 == ended.code
    (message,) = messages(ended)
    assert message.startswith(expected), message
    assert "Traceback" not in ended.err
    assert_no_process_is_left(copied)


def test_the_command_line_tells_why_a_rank_failed_in_one_line(copied: Path) -> None:
    damaged_submodel(copied)
    ended = rankslice("run", copied, "--frames", "5")
    assert (1, "") == (ended.code, ended.out)
    (error,) = (line for line in ended.err.splitlines() if line.strip())
    assert error.startswith("error: rank 2 (local_cpu")
    assert "onnxruntime cannot load it" in error
    assert_no_process_is_left(copied)


@pytest.mark.ci
def test_a_frame_rate_beyond_the_pipelines_fails_and_names_the_frame(built: Path) -> None:
    ended = rankslice("run", built, *("--frames", "500", "--fps", "100000", "--queue", "2"))
    assert 1 == ended.code
    assert "error: rank 0 (local_cpu" in ended.err
    assert "arrived while 2 frames were waiting" in ended.err
    assert "--overflow drop" in ended.err


@pytest.mark.ci
def test_dropped_frames_are_named_and_the_others_verified(built: Path) -> None:
    ended = succeed(
        *("run", built, "--frames", "500", "--fps", "100000", "--queue", "2"),
        *("--overflow", "drop", "--verify", "--json", "-"),
    )
    record = json.loads(ended.out)
    assert record["dropped"]
    assert 500 == record["completed"] + len(record["dropped"])
    assert record["completed"] == record["verify"]["frames"]
    assert record["verify"]["passed"]


@pytest.mark.ci
def test_results_before_a_broken_image_are_kept(tmp_path: Path) -> None:
    folder = build_folder(
        tmp_path, onnx.parser.parse_model(IMAGE_MODEL), {"Relu_0": 0, "Sigmoid_1": 1}
    )
    images = tmp_path / "images"
    images.mkdir()
    for number in range(30):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(images / f"{number:02}.png")
    (images / "30.png").write_bytes(b"no image")
    ended = rankslice("run", folder, "--input", images, "--window", "2")
    assert 1 == ended.code
    kept = read_results(folder / "results.bin")
    assert 28 <= len(kept) <= 30
    assert "source, frame 30" in ended.err
    assert "30.png: not an image that can be read" in ended.err
    assert f"the results of {len(kept)} finished frames are in {folder}/results.bin" in ended.err
    red = kept.values(0)[:, 0, 0, 0, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-np.arange(len(kept)) / 255)), red, rtol=1e-4)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder whose model has 48 classes, beside a folder of two images."""
    parent = tmp_path_factory.mktemp("pictures")
    (parent / "images").mkdir()
    Image.new("RGB", (4, 4), (255, 0, 0)).save(parent / "images" / "a.png")
    Image.new("RGB", (8, 4), (0, 0, 255)).save(parent / "images" / "b, \x1b.png")
    ranks = {"Relu_0": 0, "Sigmoid_1": 1}
    return build_folder(parent, onnx.parser.parse_model(IMAGE_MODEL), ranks)


def test_a_result_of_a_frame_that_did_not_enter_is_refused() -> None:
    times: dict[str, float] = {}
    source = SourceFigures(
        frames=4, window=1, fps=None, latency_ms=times, preprocess_ms=times, dropped=(1,)
    )
    assert [0, 2, 4] == _arrivals(source, [0, 1, 3])
    with pytest.raises(RankSliceError, match=r"has frame 4, and 4 frames entered"):
        _arrivals(source, [0, 4])


@pytest.mark.ci
def test_a_broken_image_in_a_followed_folder_does_not_give_its_name_to_another_frame(
    pictures: Path, tmp_path: Path
) -> None:
    for number, name in enumerate(["first.png", "broken.png", "last.png"]):
        path = tmp_path / name
        Image.new("RGB", (4, 4), (number, 0, 0)).save(path)
        if name == "broken.png":
            path.write_bytes(b"no image")
        os.utime(path, (number, number))
    options = RunOptions((f"follow:{tmp_path}",), frames=3, skip_failed=True)
    finished = run(prepare(pictures, options))
    assert [0, 2] == finished.results.numbers
    assert ("first.png", "last.png") == finished.labels


@pytest.mark.ci
def test_classes_of_all_frames_are_in_the_json_and_in_a_table(
    pictures: Path, tmp_path: Path
) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"class {number}\n" for number in range(48)))
    ended = rankslice(
        *("run", pictures, "--input", pictures.parent / "images", "--labels", labels),
        *("--frames", "30", "--top", "2", "--json", "-", "--classes", tmp_path / "classes.csv"),
    )
    note = "b, \\x1b.png has 4x8 pixels, the model takes 4x4: images of other sizes are resized\n"
    assert (0, note) == (ended.code, ended.err)
    frames = json.loads(ended.out)["classes"]
    assert list(range(30)) == [frame["frame"] for frame in frames]
    assert ["a.png", "b, \x1b.png"] == [frame["input"] for frame in frames[:2]]
    # Channels come one after the other: red is in classes 0 to 15, blue in 32 to 47.
    assert [[0, 1], [32, 33]] * 15 == [[c["class"] for c in f["classes"]] for f in frames]
    assert {"class": 0, "name": "class 0"}.items() <= frames[0]["classes"][0].items()
    assert 1 / (1 + np.exp(-1)) == pytest.approx(frames[0]["classes"][0]["score"], rel=1e-4)
    with (tmp_path / "classes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(c["class"], c["name"], c["score"]) for f in frames for c in f["classes"]] == [
        (int(row["class"]), row["name"], float(row["score"])) for row in rows
    ]
    assert ["0", "b, \x1b.png", "1", "2"] == [
        *(rows[0]["frame"], rows[2]["input"], rows[2]["place"], rows[3]["place"])
    ]


@pytest.mark.ci
def test_a_comparison_that_failed_says_why_in_the_same_line(pictures: Path, tmp_path: Path) -> None:
    frames = np.zeros((2, 1, 3, 4, 4), np.float32)
    np.save(tmp_path / "frames.npy", frames)
    ended = rankslice("run", pictures, "--input", tmp_path / "frames.npy", "--verify")
    assert 1 == ended.code
    reason = "the unsliced model's output 'y' is constant: inconclusive"
    assert f"verify failed: 2 frames compared, bit-equal: {reason}\n" in ended.out
    assert f"error: verify: {reason}\n" == ended.err
