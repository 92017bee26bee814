"""A folder that appears complete or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.new_folder import new_folder

HALF_WAY = """
import sys, time
from pathlib import Path
from rankslice.framework.files.new_folder import new_folder
with new_folder(Path(sys.argv[1]), replaces=lambda folder: "") as folder:
    (folder / "half").touch()
    print("half way", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def old_build(path: Path) -> Path:
    path.mkdir()
    (path / "plan.json").write_text("old")
    (path / "old").touch()
    return path


def without_plan(folder: Path) -> str:
    return "" if (folder / "plan.json").is_file() else "has no plan.json"


def write(path: Path, *, replaces: Callable[[Path], str] | None = None) -> None:
    with new_folder(path, replaces=replaces) as folder:
        (folder / "plan.json").write_text("new")


def refusal(path: Path, *, replaces: Callable[[Path], str] | None = None) -> str:
    with pytest.raises(RankSliceError) as error:
        write(path, replaces=replaces)
    return str(error.value)


def killed_half_way(path: Path) -> int:
    """Let a process die half way; return its number."""
    with subprocess.Popen(
        [sys.executable, "-c", HALF_WAY, str(path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert b"half way\n" == process.stdout.readline()
        process.kill()
        assert -signal.SIGKILL == process.wait()
    return process.pid


def test_the_folder_appears_when_the_block_has_ended_and_nothing_is_left_beside_it(
    tmp_path: Path,
) -> None:
    with new_folder(tmp_path / "out") as folder:
        (folder / "plan.json").touch()
        assert not (tmp_path / "out").exists()
    assert ["out"] == names(tmp_path)
    assert ["plan.json"] == names(tmp_path / "out")


def test_folders_above_it_are_made(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "out")
    assert ["plan.json"] == names(tmp_path / "a" / "b" / "out")


def test_a_failure_leaves_no_folders_above_it_either(tmp_path: Path) -> None:
    with pytest.raises(ValueError), new_folder(tmp_path / "a" / "b" / "out"):  # noqa: PT011
        raise ValueError
    assert [] == names(tmp_path)


@pytest.mark.parametrize("error", [ValueError, RankSliceError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "plan.json").touch()
            raise error

    with pytest.raises(error):
        fail()
    assert [] == names(tmp_path)


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError) as error, new_folder(tmp_path / "out"):
        raise OSError(28, "No space left on device", "model.onnx")
    assert ("model.onnx: cannot be written: No space left on device; choose another folder") == str(
        error.value
    )
    assert [] == names(tmp_path)


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    out = old_build(tmp_path / "out")
    assert f"{out}: exists; choose another --out, or give --force" == refusal(out)
    assert "old" == (out / "plan.json").read_text()


def test_force_replaces_a_build_folder_as_a_whole(tmp_path: Path) -> None:
    out = old_build(tmp_path / "out")
    write(out, replaces=without_plan)
    assert ["plan.json"] == names(out)
    assert "new" == (out / "plan.json").read_text()
    assert ["out"] == names(tmp_path)


def test_a_failure_with_force_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    out = old_build(tmp_path / "out")
    with pytest.raises(ValueError), new_folder(out, replaces=without_plan):  # noqa: PT011
        raise ValueError
    assert ["old", "plan.json"] == names(out)
    assert ["out"] == names(tmp_path)


def test_force_replaces_nothing_but_build_folders(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "file").touch()
    photos, file = tmp_path / "photos", tmp_path / "file"
    assert f"{photos}: has no plan.json; --force replaces build folders only" == refusal(
        photos, replaces=without_plan
    )
    assert f"{file}: is a file; choose another folder" == refusal(file, replaces=without_plan)


def test_force_does_not_follow_a_link(tmp_path: Path) -> None:
    old_build(tmp_path / "real")
    (tmp_path / "out").symlink_to("real")
    assert "is a link; choose another folder" in refusal(tmp_path / "out", replaces=without_plan)
    assert ["old", "plan.json"] == names(tmp_path / "real")


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("nothing")
    assert "is a link; choose another folder" in refusal(tmp_path / "out")


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file: is a file; choose another folder" == refusal(
        tmp_path / "file" / "out"
    )
    assert ["file"] == names(tmp_path)


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    assert f"{path}: cannot be written: File name too long; choose another folder" == refusal(path)


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    process = killed_half_way(tmp_path / "out")
    assert [f".out.{process}.partial"] == names(tmp_path)
    write(tmp_path / "out")
    assert ["out"] == names(tmp_path)


def test_a_killed_process_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    out = old_build(tmp_path / "out")
    killed_half_way(out)
    assert ["old", "plan.json"] == names(out)


def test_what_other_folders_and_living_processes_have_beside_it_stays(tmp_path: Path) -> None:
    dead = killed_half_way(tmp_path / "elsewhere")
    kept = [f".other.{dead}.partial", f".out.{os.getppid()}.partial", ".out.x.partial", ".out.1"]
    for name in kept:
        (tmp_path / name).mkdir()
    write(tmp_path / "out")
    assert sorted([*kept, f".elsewhere.{dead}.partial", "out"]) == names(tmp_path)


def test_letters_that_patterns_know_are_letters_here(tmp_path: Path) -> None:
    dead = killed_half_way(tmp_path / "aut")
    write(tmp_path / "[ab]*?t")
    assert [f".aut.{dead}.partial", "[ab]*?t"] == names(tmp_path)
