"""Boards come from nothing, leave nothing, and bear to be asked for twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from boards import Boards, BoardsError, RackNames, needs
from boards.fixtures import skip_without_boards
from boards.leftovers import PATIENCE_S, links_of, namespaces_of, remove_rack
from boards.system import is_running, mounts_below

pytestmark = pytest.mark.ci

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _boards_are_possible() -> None:
    skip_without_boards()


def traces(rack: RackNames) -> list[str]:
    """Return whatever of a rack this machine still has."""
    sockets = Path("/proc/net/unix").read_text().split()
    return [
        *namespaces_of(rack),
        *links_of(rack),
        *map(str, mounts_below(rack.folder)),
        *(name for name in sockets if name == f"@{rack.name}"),
        *([str(rack.folder)] if rack.folder.exists() else []),
        *processes_that_name(str(rack.folder)),
    ]


def assert_nothing_is_left(rack: RackNames) -> None:
    """Assert that a rack is gone; processes that were killed may take a moment to end."""
    until(lambda: not any(processes_that_name(str(rack.folder))), PATIENCE_S)
    assert [] == traces(rack)


def processes_that_name(text: str) -> Iterator[str]:
    for folder in Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_text() if folder.name.isdigit() else ""
        except OSError:  # it has ended
            continue
        if text in line:
            yield f"{folder.name}: {line}"


def first_processes(boards: Boards) -> list[int]:
    return [board.first_process() for board in boards]


def test_nothing_is_left_behind() -> None:
    boards = Boards(2)
    boards.up()
    rack, processes = boards.names, [process for board in boards for process in board.processes()]
    assert traces(rack)
    assert len(processes) > 4
    boards.down()
    assert_nothing_is_left(rack)
    assert [] == [process for process in processes if is_running(process)]


def test_nothing_is_left_behind_by_boards_that_came_to_harm() -> None:
    with Boards(4) as boards:
        rack = boards.names
        boards[0].cut_power()
        boards[1].stop()
        boards[2].unplug()
        boards[3].fill_disk()
    assert_nothing_is_left(rack)


def test_up_twice_keeps_the_boards() -> None:
    with Boards(2) as boards:
        before = first_processes(boards)
        boards.up()
        assert before == first_processes(boards)


def test_up_makes_boards_anew_that_are_not_as_wished() -> None:
    with Boards(1) as one:
        rack = one.names
        one.leave()
        with Boards(2, rate_mbit=100, rack=rack.number) as two:
            assert ["board1\n", "board2\n"] == [board.ssh("hostname").stdout for board in two]
    assert_nothing_is_left(rack)


def test_up_switches_a_dead_board_on_and_keeps_its_disk() -> None:
    with Boards(2) as boards:
        boards[1].ssh("touch", "/root/kept")
        boards[1].cut_power()
        boards.up()
        assert ["board1\n", "board2\n"] == [board.ssh("hostname").stdout for board in boards]
        assert "/root/kept\n" == boards[1].ssh("ls", "/root/kept").stdout


def test_down_twice_is_no_mistake() -> None:
    boards = Boards(1)
    boards.up()
    boards.down()
    boards.down()


def test_down_without_up_is_no_mistake() -> None:
    Boards(1).down()


def test_two_racks_live_side_by_side() -> None:
    with Boards(1) as first, Boards(1) as second:
        assert first.names != second.names
        first[0].run(["touch", "/root/first"])
        assert "" == second[0].run(["ls", "/root"]).stdout


def test_a_rack_that_somebody_holds_is_refused() -> None:
    with Boards(1) as held, pytest.raises(BoardsError, match="another process holds rack"):
        Boards(1, rack=held.names.number).up()


def test_a_creators_crash_leaves_nothing_that_the_next_does_not_remove() -> None:
    program = (
        "import time; from boards import Boards; boards = Boards(2); boards.up();"
        "print(boards.names.number, flush=True); time.sleep(600)"
    )
    crashing = [sys.executable, "-c", program]
    with subprocess.Popen(crashing, cwd=TESTS, stdout=subprocess.PIPE, text=True) as creator:
        assert creator.stdout is not None
        rack = RackNames(int(creator.stdout.readline()))
        os.kill(creator.pid, signal.SIGKILL)
    assert traces(rack)
    with Boards(1, rack=rack.number) as boards:
        assert "board1\n" == boards[0].ssh("hostname").stdout
        assert ["board1"] == [board.name for board in boards]
    assert_nothing_is_left(rack)


def test_half_a_rack_is_removed() -> None:
    boards = Boards(2)
    boards.up()
    rack = boards.names
    (rack.folder / "rack.json").unlink()
    subprocess.run(["ip", "link", "delete", rack.board(1).cable], check=True)
    boards.leave()
    assert remove_rack(rack)
    assert_nothing_is_left(rack)
    assert not remove_rack(rack)


def test_a_failing_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boards.disks.HERE", Path("/nowhere"))
    boards = Boards(2, rack=250)
    with pytest.raises(FileNotFoundError):
        boards.up()
    assert [] == traces(RackNames(250))


def test_the_command_line_brings_boards_up_and_down() -> None:
    def command(*arguments: str, code: int = 0) -> str:
        line = [sys.executable, "-W", "error", str(TESTS / "boards"), *arguments]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert code == done.returncode
        assert "" == (done.stdout if code else done.stderr)
        return done.stderr if code else done.stdout

    rack = RackNames(251)
    up = command("up", "--count", "2", "--rate", "500", "--rack", "251")
    assert "rsb251: 2 boards, 500 Mbit/s each, this machine is 10.77.251.1" in up
    assert f"ssh -F {rack.ssh_config} board2    # 10.77.251.12" in up
    assert up == command("up", "--count", "2", "--rate", "500", "--rack", "251")
    told = command("up", "--count", "3", "--rack", "251", code=1)
    assert "rack 251 is there with 2 boards, 500 Mbit/s and 2048 MiB each, and their disks" in told
    reached = ["ssh", "-F", str(rack.ssh_config), "board2", "hostname"]
    assert "board2\n" == subprocess.run(reached, capture_output=True, text=True, check=True).stdout
    assert up in command("status")
    assert "removed rsb251\n" == command("down", "--rack", "251")
    assert "there was nothing to remove\n" == command("down", "--rack", "251")
    assert_nothing_is_left(rack)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--count", "0"], "1 to 200 boards are possible, not 0"),
        (["up", "--rate", "-1"], "rate and disk must be above 0"),
        (["up", "--rack", "256"], "racks have numbers from 0 to 255, not 256"),
    ],
)
def test_the_command_line_refuses_what_cannot_be(arguments: list[str], message: str) -> None:
    line = [sys.executable, str(TESTS / "boards"), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (1, f"boards: {message}\n") == (done.returncode, done.stderr)


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    needs.why_not.cache_clear()
    assert "virtual boards need root" in needs.why_not()
    needs.why_not.cache_clear()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boards.needs.SYSTEM_PATH", "/nowhere")
    needs.why_not.cache_clear()
    assert (
        "virtual boards need Debian packages: apt-get install --yes"
        " ethtool iproute2 iputils-ping openssh-client openssh-server rsync"
    ) == needs.why_not()
    needs.why_not.cache_clear()
