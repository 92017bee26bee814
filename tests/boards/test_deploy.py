"""Packages come to boards whole or not at all, and only what has changed travels."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import rankslice, succeed
from real_jobs import DIGITS

from boards import Boards
from boards.deployments import (
    MAPPING,
    board_path,
    build_for,
    damage,
    deploy,
    home,
    package,
    run,
    submodel,
)
from boards.fixtures import skip_without_boards

pytestmark = pytest.mark.ci

THIS_KIND = {"arch": platform.machine(), "python": ".".join(platform.python_version_tuple()[:2])}
UNANSWERED_BYTES = 60_000
"""What a deployment that moves no data sends to a board: ssh's handshake, and our program."""

SILENCE_RSYNC = r"""
mv /usr/bin/rsync /usr/bin/rsync.whole
printf '#!/bin/sh\nexec rsync.whole "$@" 2>/dev/null\n' > /usr/bin/rsync
chmod +x /usr/bin/rsync
"""
"""What rsync on a board says of an error does not always get through; here it never does."""


Reports = list[dict[str, object]]


@pytest.fixture(scope="module")
def out(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of the digit classifier on two boards."""
    return build_for(rack, tmp_path_factory.mktemp("digits"), DIGITS, MAPPING)


@pytest.fixture(scope="module")
def first(rack: Boards, out: Path, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """What the first deployment of that folder says."""
    return report_of(rack, out, tmp_path_factory.mktemp("first"))


@pytest.fixture
def deployed(rack: Boards, out: Path, first: Reports) -> Path:
    """That folder, which both boards have as their newest package, undamaged."""
    assert ["copied", "copied"] == [entry["state"] for entry in first]
    assert 0 == deploy(rack, out).code
    return out


@pytest.fixture
def fresh() -> Iterator[Boards]:
    """Two boards for one test, which nothing was deployed to."""
    skip_without_boards()
    with Boards(2, disk_mb=64) as boards:
        yield boards


@pytest.fixture
def fresh_out(fresh: Boards, tmp_path: Path) -> Path:
    """A build folder of the digit classifier on these boards."""
    return build_for(fresh, tmp_path, DIGITS, MAPPING)


def report_of(rack: Boards, out: Path, folder: Path) -> Reports:
    """Deploy; return what ``--json`` says."""
    assert 0 == deploy(rack, out, "--json", str(folder / "d.json")).code
    boards: Reports = json.loads((folder / "d.json").read_text())["boards"]
    return boards


def test_a_second_deployment_moves_no_data(
    rack: Boards, out: Path, first: Reports, tmp_path: Path
) -> None:
    assert ["copied", "copied"] == [entry["state"] for entry in first]
    before = rack[0].traffic()
    second = report_of(rack, out, tmp_path)
    assert [("there", 0, 0)] * 2 == [
        (entry["state"], entry["files_sent"], entry["bytes_sent"]) for entry in second
    ]
    assert rack[0].traffic().since(before).received < UNANSWERED_BYTES


@pytest.mark.usefixtures("deployed")
def test_only_the_files_that_differ_travel(rack: Boards, tmp_path: Path) -> None:
    again = build_for(
        rack,
        tmp_path,
        DIGITS,
        {**MAPPING, "board2_cpu1": ["softmax"], "board2_cpu0": ["conv3..dense"]},
    )
    sent = {entry["board"]: entry["files_sent"] for entry in report_of(rack, again, tmp_path)}
    # board1 keeps sub-model and runtime: driver, plan, tables, rankfile and manifest differ.
    assert 7 >= int(str(sent["board1"]))


def test_times_that_lie_are_not_believed(rack: Boards, deployed: Path, tmp_path: Path) -> None:
    before = submodel(rack[0]).stat().st_mtime_ns
    damage(rack[0], submodel(rack[0]))
    assert before == submodel(rack[0]).stat().st_mtime_ns
    states = [entry["state"] for entry in report_of(rack, deployed, tmp_path)]
    assert ["copied", "there"] == states
    assert 0 == run(rack, deployed, "--frames", "5", "--verify").code


def test_a_damaged_package_is_not_run(rack: Boards, deployed: Path) -> None:
    damage(rack[1], submodel(rack[1]))
    ended = run(rack, deployed)
    assert 1 == ended.code
    assert "board board2" in ended.err
    assert "its package is damaged" in ended.err
    assert f"rankslice deploy {deployed}" in ended.err


def test_what_was_never_deployed_is_not_run(fresh: Boards, fresh_out: Path) -> None:
    ended = run(fresh, fresh_out)
    assert 1 == ended.code
    expected = f"does not have this package; deploy it: rankslice deploy {fresh_out}"
    assert 2 == ended.err.count(expected)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_copy_that_breaks_off_changes_nothing(
    fresh: Boards, fresh_out: Path, tmp_path: Path, *, is_silent: bool
) -> None:
    deploy(fresh, fresh_out)
    if is_silent:
        fresh[0].run(["sh", "-c", SILENCE_RSYNC])
    before = package(fresh[0])
    other = build_for(
        fresh,
        tmp_path / "other",
        DIGITS,
        {"board1_cpu0": ["conv1..conv3"], "board2_cpu0": ["relu3..softmax"]},
    )
    fresh[0].fill_disk(leave_bytes=60_000)
    ended = deploy(fresh, other)
    fresh[0].empty_disk()
    assert 1 == ended.code
    assert "its disk is full" in ended.err
    assert before == package(fresh[0])
    assert 0 == run(fresh, fresh_out, "--frames", "5", "--verify").code


def test_boards_are_chosen_by_name(fresh: Boards, fresh_out: Path) -> None:
    assert 0 == deploy(fresh, fresh_out, "--boards", "board2").code
    assert not home(fresh[0]).exists()
    assert package(fresh[1]).is_dir()
    assert "did you mean 'board2'" in deploy(fresh, fresh_out, "--boards", "bord2").err


def test_a_board_without_rsync_is_told_of(fresh: Boards, fresh_out: Path) -> None:
    fresh[0].run(["rm", "/usr/bin/rsync"])
    ended = deploy(fresh, fresh_out, "--boards", "board1")
    assert 1 == ended.code
    assert "board board1" in ended.err
    assert "apt-get install rsync" in ended.err


def test_a_board_that_is_off_is_told_of(fresh: Boards, fresh_out: Path) -> None:
    fresh[1].cut_power()
    ended = deploy(fresh, fresh_out)
    assert 1 == ended.code
    assert "board board2" in ended.err
    assert "is it on" in ended.err
    assert package(fresh[0]).is_dir()


def test_old_packages_are_removed(fresh: Boards, fresh_out: Path) -> None:
    """Seven older ones are there; the eighth comes, and the oldest goes."""
    packages = home(fresh[0]) / "packages"
    names = [f"{number:012x}" for number in range(7)]
    for number, name in enumerate(names):
        folder = board_path(packages / name)
        fresh[0].run(["sh", "-c", f"mkdir -p {folder} && touch -d @{1000 + number} {folder}"])
    assert 0 == deploy(fresh, fresh_out, "--boards", "board1").code
    assert {*names[1:], package(fresh[0]).name} == {path.name for path in packages.iterdir()}


def test_a_dry_run_changes_nothing(fresh: Boards, fresh_out: Path) -> None:
    ended = deploy(fresh, fresh_out, "--dry-run")
    assert "over ssh" in ended.out
    assert not home(fresh[0]).exists()


def test_hosts_that_look_like_options_are_refused(fresh: Boards, fresh_out: Path) -> None:
    driver = fresh_out / "driver.py"
    text = driver.read_text().replace(fresh[0].address, "-oProxyCommand=touch /tmp/owned")
    driver.unlink()
    driver.write_text(text)
    ended = rankslice("deploy", fresh_out)
    assert 1 == ended.code
    assert "cannot read '-oProxyCommand=touch /tmp/owned' as a host" in ended.err
    assert not Path("/tmp/owned").exists()


def test_this_machine_needs_no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "mapping.json").write_text(json.dumps({"local_cpu0": ["conv1..softmax"]}))
    mapping = tmp_path / "mapping.json"
    succeed("build", DIGITS, "--mapping", mapping, "--out", tmp_path / "o")
    succeed("deploy", tmp_path / "o")
    (package,) = (tmp_path / "home" / ".rankslice" / "packages").iterdir()
    assert (package / "driver.py").is_file()


def test_the_sub_model_of_ranks_in_turn_travels_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps({"local_cpu0|local_cpu0.2": ["conv1..softmax"]}))
    options = ("--mapping", mapping, "--share-cores", "--out", tmp_path / "o")
    succeed("build", DIGITS, *options)
    succeed("deploy", tmp_path / "o", "--json", tmp_path / "deploy.json")
    (package,) = (tmp_path / "home" / ".rankslice" / "packages").iterdir()
    first, second = (package / "submodels").iterdir()
    assert first.samefile(second)
    (report,) = json.loads((tmp_path / "deploy.json").read_text())["boards"]
    assert report["bytes_sent"] < report["package_bytes"] - first.stat().st_size // 2


def test_an_environment_that_cannot_be_filled_is_not_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps({"local_cpu0": ["conv1..softmax"]}))
    succeed("build", DIGITS, "--mapping", mapping, "--out", tmp_path / "out")
    ended = rankslice("deploy", tmp_path / "out", "--venv")
    assert 1 == ended.code
    assert f"rankslice build --wheels, then rankslice deploy {tmp_path / 'out'} --venv" in ended.err
    assert not (tmp_path / ".rankslice" / "venv").exists()


@pytest.mark.slow
def test_a_board_without_internet_installs_from_its_package(tmp_path: Path) -> None:
    skip_without_boards()
    with Boards(2, disk_mb=1024) as rack:
        out = build_for(rack, tmp_path, DIGITS, MAPPING, kind=THIS_KIND, wheels="download")
        assert 0 == deploy(rack, out, "--venv").code
        assert 0 == run(rack, out, "--frames", "20", "--verify").code
        start = next((home(rack[0]) / "runs").glob("*/start")).read_text()
    assert ".rankslice/venv/bin/python3" in start
