"""What a board gets."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned

from rankslice.backend.package import requirements, write_driver, write_packages
from rankslice.backend.runtime.job import Rank
from rankslice.frontend.plan.tables import (
    hostfile,
    rankfile,
    receiver_table,
    sender_table,
    table_to_json,
)

PLAN = planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)


def written(folder: Path, *, archive: bool = False) -> Path:
    """Write a build folder for three ranks on two boards; sub-models hold their own names."""
    folder.mkdir(exist_ok=True)
    write_driver(folder, PLAN)
    (folder / "sender.json").write_text(table_to_json(sender_table(PLAN)))
    (folder / "receiver.json").write_text(table_to_json(receiver_table(PLAN)))
    (folder / "rankfile").write_text(rankfile(PLAN.ranks))
    (folder / "hostfile").write_text(hostfile(PLAN.ranks))
    (folder / "submodels").mkdir()
    for segment in PLAN.segments:
        (folder / segment.file).write_text(segment.file)
    (folder / "submodels" / "edge04_arm45.0.onnx.data").write_text("weights")
    write_packages(folder, PLAN, archive=archive)
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("package") / "out", archive=True)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_there_is_a_package_for_each_board(out: Path) -> None:
    assert {"edge01", "edge01.tar", "edge04", "edge04.tar"} == {
        path.name for path in (out / "packages").iterdir()
    }


def test_a_package_has_what_its_board_runs_and_nothing_of_other_boards(out: Path) -> None:
    runtime = {f"runtime/{name}" for name in files(out / "runtime")}
    common = {"driver.py", "sender.json", "receiver.json", "rankfile", "hostfile"}
    own = {"requirements.txt", "manifest.json"}
    models = {
        "edge01": {"edge01_arm123.0.onnx", "edge01_arm123.1.onnx", "edge01_gpu.0.onnx"},
        "edge04": {"edge04_arm45.0.onnx", "edge04_arm45.0.onnx.data", "edge04_arm45.1.onnx"},
    }
    for board, names in models.items():
        expected = runtime | common | own | {f"submodels/{name}" for name in names}
        assert expected == files(out / "packages" / board)


def test_the_runtime_of_a_package_is_all_of_it_and_nothing_else(out: Path) -> None:
    source = Path(__file__).parents[2] / "backend" / "runtime"
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert expected == files(out / "packages" / "edge01" / "runtime")


def test_the_manifest_has_size_and_hash_of_every_other_file(out: Path) -> None:
    for board in ("edge01", "edge04"):
        package = out / "packages" / board
        manifest = json.loads((package / "manifest.json").read_text())
        assert board == manifest["board"]
        assert files(package) - {"manifest.json"} == set(manifest["files"])
        for name, entry in manifest["files"].items():
            content = (package / name).read_bytes()
            assert {
                "sha256": hashlib.sha256(content).hexdigest(),
                "bytes": len(content),
            } == entry


def test_nothing_is_stored_twice(out: Path) -> None:
    for name in (
        "driver.py",
        "runtime/pipeline/rank.py",
        "submodels/edge01_gpu.0.onnx",
    ):
        assert (out / name).samefile(out / "packages" / "edge01" / name)


def test_the_driver_of_a_package_can_be_executed(out: Path) -> None:
    assert os.access(out / "packages" / "edge01" / "driver.py", os.X_OK)


def test_an_archive_has_the_packages_files_with_their_content(out: Path) -> None:
    package = out / "packages" / "edge04"
    with tarfile.open(out / "packages" / "edge04.tar") as archive:
        members = archive.getmembers()
        assert files(package) == {member.name for member in members}
        for member in members:
            content = archive.extractfile(member)
            assert content is not None
            assert (package / member.name).read_bytes() == content.read()


def test_an_archive_tells_nothing_of_who_made_it_and_when(out: Path) -> None:
    with tarfile.open(out / "packages" / "edge04.tar") as archive:
        for member in archive.getmembers():
            assert (0, 0, 0, "", "") == (
                member.mtime,
                member.uid,
                member.gid,
                member.uname,
                member.gname,
            )


def test_archives_made_twice_are_equal_byte_by_byte(out: Path, tmp_path: Path) -> None:
    again = written(tmp_path / "again", archive=True)
    for board in ("edge01", "edge04"):
        name = f"packages/{board}.tar"
        assert (out / name).read_bytes() == (again / name).read_bytes()


def test_where_the_file_system_has_no_hard_links_files_are_copied(tmp_path: Path) -> None:
    if Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    from rankslice.backend.package import link_or_copy

    (tmp_path / "a").write_text("content")
    target = Path("/dev/shm", f"rankslice-test-{os.getpid()}")
    try:
        link_or_copy(tmp_path / "a", target)
        assert "content" == target.read_text()
    finally:
        target.unlink()


def rank_with(engine: str, **options: str) -> Rank:
    return Rank(0, "b_npu", "b", "b", "npu", (0,), engine, tuple(options.items()))


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([rank_with("onnxruntime")], ["onnxruntime>=1.19"]),
        ([rank_with("null")], []),
        (
            [rank_with("onnxruntime"), rank_with("onnxruntime", provider="CUDAExecutionProvider")],
            ["onnxruntime-gpu>=1.19"],
        ),
        (
            [rank_with("onnxruntime", provider="TensorRT"), rank_with("litert")],
            ["ai-edge-litert>=2.0", "onnxruntime-gpu>=1.19"],
        ),
        ([rank_with("onnxruntime", provider="XNNPACK")], ["onnxruntime>=1.19"]),
        (
            [rank_with("onnxruntime"), rank_with("onnxruntime", provider="QNN")],
            ["onnxruntime>=1.24.4", "onnxruntime-qnn>=2.3"],
        ),
        (
            [
                rank_with("onnxruntime", provider="WebGPU"),
                rank_with("onnxruntime", provider="Other", plugin="onnxruntime-ep-other"),
            ],
            ["onnxruntime>=1.24.4", "onnxruntime-ep-other", "onnxruntime-ep-webgpu>=0.4"],
        ),
        (
            [rank_with("onnxruntime", provider="QNN", plugin="/usr/lib/libqnn.so")],
            ["onnxruntime>=1.24.4"],
        ),
        (
            [rank_with("litert"), rank_with("litert", vendor="openvino")],
            ["ai-edge-litert==2.3.0", "openvino==2026.3.1"],
        ),
    ],
)
def test_a_board_installs_what_its_ranks_need(ranks: list[Rank], expected: list[str]) -> None:
    assert ("mpi4py>=4.0", "numpy>=1.26", *expected) == requirements(ranks)


def test_opencv_is_wanted_where_frames_of_videos_enter(tmp_path: Path) -> None:
    folder = written(tmp_path / "out")
    shutil.rmtree(folder / "packages")
    write_packages(folder, PLAN, video=True)
    source = PLAN.ranks[PLAN.job.source].board
    for package in (folder / "packages").iterdir():
        wanted = (package / "requirements.txt").read_text().splitlines()
        assert (package.name == source) == ("opencv-python-headless>=4.8" in wanted)
