"""What happens to real boards can be done to these."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from boards import Board, Boards, BoardsError
from boards.board import faketime_library
from boards.disks import PYENV
from boards.system import is_running, status_field

pytestmark = pytest.mark.ci


def pings(board: Board) -> bool:
    command = ["ping", "-c", "1", "-W", "1", board.address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def greeted(board: Board) -> socket.socket:
    """Return a connection to a board's sshd, which has said who it is."""
    connection = socket.create_connection((board.address, 22), timeout=1)
    try:
        assert connection.recv(100).startswith(b"SSH-2.0-")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def ended_at_last(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Lend a process; kill it if it is still there afterwards."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_board_without_power_is_gone(fresh_boards: Boards) -> None:
    board = fresh_boards[0]
    processes = board.processes()
    board.cut_power()
    assert not board.is_on()
    assert not pings(board)
    assert [] == [process for process in processes if is_running(process)]
    with pytest.raises(BoardsError, match="board1 is off"):
        board.run(["true"])


def test_nobody_hears_a_goodbye_when_power_is_cut(fresh_boards: Boards) -> None:
    with greeted(fresh_boards[0]) as connection:
        fresh_boards[0].cut_power()
        with pytest.raises(TimeoutError):
            connection.recv(100)


def test_a_power_cut_does_not_touch_the_other_board(fresh_boards: Boards) -> None:
    fresh_boards[0].cut_power()
    assert "board2\n" == fresh_boards[1].ssh("hostname").stdout


def test_a_power_cut_ends_a_command(fresh_boards: Boards) -> None:
    board = fresh_boards[0]
    command = [*board.entrance(), "sleep", "60"]
    with ended_at_last(subprocess.Popen(command, text=True)) as running:
        time.sleep(0.2)
        board.cut_power()
        assert 0 != running.wait(timeout=5)


def test_the_disk_outlives_a_power_cut(fresh_boards: Boards) -> None:
    board = fresh_boards[0]
    board.run(["touch", "/root/kept", "/dev/shm/lost"])
    board.cut_power()
    board.power_on()
    assert "/root/kept\n" == board.run(["ls", "/root/kept"]).stdout
    assert 0 != board.run(["ls", "/dev/shm/lost"], check=False).returncode
    assert "board1\n" == fresh_boards[1].ssh("ssh", "board1", "hostname").stdout


def test_peers_find_a_board_again_after_a_power_cut(fresh_boards: Boards) -> None:
    hardware = ["cat", "/sys/class/net/eth0/address"]
    board, before = fresh_boards[0], [machine.run(hardware).stdout for machine in fresh_boards]
    board.cut_power()
    board.power_on()
    assert before == [machine.run(hardware).stdout for machine in fresh_boards]
    assert before[0] != before[1]


def test_a_stopped_board_pings_but_does_nothing(boards: Boards) -> None:
    boards[0].stop()
    try:
        assert pings(boards[0])
        with pytest.raises(subprocess.TimeoutExpired):
            boards[0].ssh("true", timeout=1)
    finally:
        boards[0].resume()


def test_a_board_goes_on_where_it_was_stopped(boards: Boards) -> None:
    count = "for number in 1 2 3 4 5 6; do echo $number; sleep 0.1; done"
    command = [*boards[0].entrance(), "sh", "-c", count]
    with ended_at_last(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as running:
        assert running.stdout is not None
        assert "1\n" == running.stdout.readline()
        boards[0].stop()
        time.sleep(0.8)
        assert running.poll() is None
        boards[0].resume()
        assert "2\n3\n4\n5\n6\n" == running.communicate(timeout=20)[0]


SPAWN = """
import os
os.mkfifo("/tmp/pipe")
print("ready", flush=True)
read_pipe = (os.POSIX_SPAWN_OPEN, 0, "/tmp/pipe", os.O_RDONLY, 0)
child = os.posix_spawn("/bin/cat", ["cat"], os.environ, file_actions=[read_pipe])
os.waitpid(child, 0)
"""


def test_a_board_stops_while_a_program_is_being_started(boards: Boards) -> None:
    board = boards[0]
    command = [*board.entrance(), "python3", "-c", SPAWN]
    with ended_at_last(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as running:
        assert running.stdout is not None
        assert "ready\n" == running.stdout.readline()
        # The parent waits where no signal reaches it, until its child has opened the pipe.
        while not any(status_field(process, "State")[:1] == "D" for process in board.processes()):
            time.sleep(0.01)
        board.stop()
        board.resume()
        board.run(["sh", "-c", "echo hello > /tmp/pipe; rm /tmp/pipe"], timeout=20)
        assert "hello\n" == running.communicate(timeout=20)[0]


def test_a_board_whose_cable_is_pulled_reaches_nobody(boards: Boards) -> None:
    boards[0].unplug()
    try:
        assert not pings(boards[0])
        assert "0\n" == boards[0].run(["cat", "/sys/class/net/eth0/carrier"]).stdout
        lost = boards[0].run(["ping", "-c", "1", "-W", "1", "board2"], check=False)
        assert 0 != lost.returncode
    finally:
        boards[0].plug_in()
    # This machine may be between two questions for the board's Ethernet address, a second apart.
    assert any(pings(boards[0]) for _ in range(10))


def test_a_connection_outlives_a_pulled_cable(boards: Boards) -> None:
    with greeted(boards[0]) as connection:
        boards[0].unplug()
        connection.sendall(b"SSH-2.0-test\r\n")
        boards[0].plug_in()
        connection.settimeout(10)
        assert connection.recv(100)


def test_a_plugged_in_cable_has_its_rate(boards: Boards) -> None:
    boards[0].unplug()
    boards[0].plug_in()
    shown = boards[0].run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
    assert "rate 1Gbit" in shown


def test_a_full_disk_takes_no_more(boards: Boards) -> None:
    write = ["dd", "if=/dev/zero", "of=/root/block", "bs=64k", "count=4"]
    boards[0].fill_disk(leave_bytes=100_000)
    try:
        refused = boards[0].run(write, check=False)
        assert "No space left on device" in refused.stderr
        boards[1].run(write)
    finally:
        boards[0].empty_disk()
    boards[0].run(write)


def test_a_disk_has_the_size_that_was_asked_for() -> None:
    with Boards(1, disk_mb=32) as boards:
        assert 30 * 2**20 <= boards[0].free_bytes() <= 32 * 2**20


def test_a_hidden_package_is_missing_on_one_board(fresh_boards: Boards) -> None:
    fresh_boards[0].hide_package("numpy")
    refused = fresh_boards[0].ssh("python3", "-c", "import numpy", check=False)
    assert "No module named 'numpy'" in refused.stderr
    fresh_boards[1].ssh("python3", "-c", "import numpy")
    import_here = [fresh_boards[1].ssh("which", "python3").stdout.strip(), "-c", "import numpy"]
    subprocess.run(import_here, check=True)


def test_a_board_can_have_another_python(fresh_boards: Boards) -> None:
    others = sorted(PYENV.glob("3.10.*")) if PYENV.is_dir() else []
    if not others:
        pytest.skip(f"there is no Python 3.10 in {PYENV} (pyenv install 3.10)")
    fresh_boards[0].use_python(others[0])
    told = fresh_boards[0].ssh("python3", "--version").stdout
    assert f"Python {others[0].name}\n" == told
    assert told == fresh_boards[0].run(["python3", "--version"]).stdout


def test_a_board_can_have_a_wrong_clock(fresh_boards: Boards) -> None:
    if faketime_library() is None:
        pytest.skip("a wrong clock needs a Debian package: apt-get install faketime")
    fresh_boards[0].set_clock_ahead(86_400)
    clock = ["python3", "-c", "import time; print(time.time())"]
    ahead = float(fresh_boards[0].ssh(*clock).stdout) - time.time()
    assert 86_400 == pytest.approx(ahead, abs=30)
    assert 0 == pytest.approx(float(fresh_boards[1].ssh(*clock).stdout) - time.time(), abs=30)


def test_sessions_with_a_wrong_clock_wait_as_long_as_they_should(fresh_boards: Boards) -> None:
    if faketime_library() is None:
        pytest.skip("a wrong clock needs a Debian package: apt-get install faketime")
    fresh_boards[0].set_clock_ahead(-3600)
    start = time.monotonic()
    fresh_boards[0].ssh("python3", "-c", "import threading; threading.Event().wait(0.5)")
    assert 0.5 <= time.monotonic() - start < 5
