"""Boards are machines of their own, as far as programs can tell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from boards import Board, Boards
from boards.transfer import bytes_per_second

pytestmark = pytest.mark.ci

MEGABYTE = 1_000_000
HEADERS = 1514 / 1448
"""Bytes on the wire for a byte of TCP payload: Ethernet, IP and TCP headers with time stamps."""


def printed(board: Board, *arguments: str) -> str:
    return board.run(arguments).stdout.strip()


def pings(address: str) -> bool:
    command = ["ping", "-c", "1", "-W", "2", address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_each_board_has_its_own_host_name(boards: Boards) -> None:
    assert ["board1", "board2"] == [printed(board, "hostname") for board in boards]


def test_each_board_has_its_own_address(boards: Boards) -> None:
    for board in boards:
        assert f"inet {board.address}/24" in printed(board, "ip", "address", "show", "dev", "eth0")


def test_a_board_has_no_other_network(boards: Boards) -> None:
    assert ["eth0", "lo"] == sorted(printed(boards[0], "ls", "/sys/class/net").split())


def test_what_one_board_writes_no_other_has(boards: Boards) -> None:
    boards[0].run(["touch", "/etc/only-here"])
    assert "/etc/only-here" == printed(boards[0], "ls", "/etc/only-here")
    assert 0 != boards[1].run(["ls", "/etc/only-here"], check=False).returncode
    assert not Path("/etc/only-here").exists()


def test_what_one_board_removes_the_others_keep(boards: Boards) -> None:
    boards[0].run(["rm", "/etc/debian_version"])
    assert 0 != boards[0].run(["cat", "/etc/debian_version"], check=False).returncode
    assert Path("/etc/debian_version").read_text().strip() == printed(
        boards[1], "cat", "/etc/debian_version"
    )


def test_a_board_has_nothing_of_what_lies_in_temporary_folders_and_in_the_checkout(
    boards: Boards, tmp_path: Path
) -> None:
    (tmp_path / "result").write_text("of the host")
    for path in (tmp_path, Path(__file__)):
        assert 0 != boards[0].run(["ls", path], check=False).returncode


def test_a_board_cannot_import_the_project(boards: Boards) -> None:
    refused = boards[0].run(["python3", "-c", "import rankslice"], check=False)
    assert "No module named 'rankslice'" in refused.stderr


def test_a_board_has_this_python_with_its_packages(boards: Boards) -> None:
    assert "" == boards[0].run(["python3", "-c", "import numpy, mpi4py"]).stderr


def test_a_board_sees_its_own_processes_alone(boards: Boards) -> None:
    seen = [int(name) for name in printed(boards[0], "ls", "/proc").split() if name.isdigit()]
    assert 1 == min(seen)
    assert len(seen) < 20


def test_a_board_has_its_own_shared_memory(boards: Boards) -> None:
    boards[0].run(["touch", "/dev/shm/segment"])
    assert "segment" == printed(boards[0], "ls", "/dev/shm")
    assert "" == printed(boards[1], "ls", "/dev/shm")
    assert not Path("/dev/shm/segment").exists()


def test_boards_have_been_up_for_different_times(boards: Boards) -> None:
    uptimes = [float(printed(board, "cat", "/proc/uptime").split()[0]) for board in boards]
    assert 1000 == pytest.approx(uptimes[1] - uptimes[0], abs=30)


def test_a_process_without_parent_is_reaped(boards: Boards) -> None:
    boards[0].ssh("sh", "-c", "(sleep 0.1 &) ; exit 0")
    boards[0].run(["sleep", "0.3"])
    assert "Z" not in printed(boards[0], "ps", "-e", "-o", "state=").split()


def test_the_host_reaches_boards_by_ping_and_ssh(boards: Boards) -> None:
    for board in boards:
        assert pings(board.address)
        assert f"{board.name}\n" == board.ssh("hostname").stdout


def test_boards_reach_each_other_by_ping_and_ssh(boards: Boards) -> None:
    for here, there in ((boards[0], boards[1]), (boards[1], boards[0])):
        here.run(["ping", "-c", "1", "-W", "2", there.name])
        assert f"{there.name}\n" == here.ssh("ssh", there.name, "hostname").stdout
        assert f"{there.name}\n" == here.run(["ssh", there.address, "hostname"]).stdout


def test_a_board_reaches_the_host(boards: Boards) -> None:
    boards[0].run(["ping", "-c", "1", "-W", "2", "host"])


def test_ssh_and_the_inside_give_the_same_path(boards: Boards) -> None:
    assert boards[0].ssh("printenv", "PATH").stdout == boards[0].run(["printenv", "PATH"]).stdout


def test_arguments_arrive_over_ssh_as_they_were(boards: Boards) -> None:
    assert "a b;$c 'd'\n" == boards[0].ssh("echo", "a b;$c 'd'").stdout


def test_a_folder_goes_to_a_board_and_back(boards: Boards, tmp_path: Path) -> None:
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "inner" / "file").write_text("content")
    boards[0].put(tmp_path / "package", "/root/deep/package")
    assert "content" == printed(boards[0], "cat", "/root/deep/package/inner/file")
    boards[0].get("/root/deep/package/inner/file", tmp_path / "fetched")
    assert "content" == (tmp_path / "fetched").read_text()


def test_a_command_that_fails_raises(boards: Boards) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        boards[0].run(["false"])
    with pytest.raises(subprocess.CalledProcessError):
        boards[0].ssh("false")


def test_a_command_that_takes_too_long_ends_on_the_board(boards: Boards) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        boards[0].run(["sleep", "4321"], timeout=0.5)
    boards[0].run(["sleep", "0.1"])
    assert "sleep 4321" not in printed(boards[0], "ps", "-e", "-o", "args=")


def test_the_users_own_ssh_is_not_touched(boards: Boards) -> None:
    del boards
    known = Path.home() / ".ssh" / "known_hosts"
    assert not known.exists() or "10.77." not in known.read_text()


def test_keys_are_for_root_alone(boards: Boards) -> None:
    assert 0o700 == boards.names.folder.stat().st_mode & 0o777
    assert 0o600 == boards.names.key.stat().st_mode & 0o777


def test_a_cable_has_about_the_rate_that_was_asked_for(boards: Boards) -> None:
    for board in boards:
        board.set_rate(200)
    rate = bytes_per_second(boards[0], boards[1], 10 * MEGABYTE) * HEADERS * 8 / 1e6
    for board in boards:
        board.set_rate(1000)
    assert 100 <= rate <= 220


def test_the_counters_tell_every_byte_on_the_wire(boards: Boards) -> None:
    before = [board.traffic() for board in boards]
    bytes_per_second(boards[0], boards[1], 5 * MEGABYTE)
    first, second = (board.traffic().since(old) for board, old in zip(boards, before, strict=True))
    assert 5 * MEGABYTE * HEADERS == pytest.approx(first.sent, rel=0.01)
    assert first.sent == pytest.approx(second.received, abs=2000)
    assert first.received < 0.1 * first.sent


def test_a_quiet_board_sends_nothing(boards: Boards) -> None:
    before = boards[0].traffic()
    boards[0].run(["sleep", "0.5"])
    assert boards[0].traffic().since(before).sent < 200
