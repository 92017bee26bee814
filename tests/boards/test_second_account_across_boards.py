"""What other accounts of boards can do to mpirun and its daemons: they cannot even connect."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from real_jobs import debians_mpirun, wheels_mpirun
from second_account import ATTACKER, libpmix

from boards import Board, Boards
from boards.deployments import Launcher, chain_for, deploy, forget_results

pytestmark = pytest.mark.ci

CONNECTS = """
import json, os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for host, port in json.loads(sys.argv[1]):
    with socket.socket() as client:
        client.settimeout(5)
        client.connect((host, port))
        print("closed" if not client.recv(1) else "open")
"""


@pytest.fixture(scope="module")
def out(boards: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = chain_for(boards, tmp_path_factory.mktemp("job"))
    assert 0 == deploy(boards, folder).code
    for board in boards:
        board.put(ATTACKER, "/tmp/attacker.py")
    return folder


def on_board(board: Board, *words: object) -> list[str]:
    """Return the command line that runs a Python program on a board."""
    return [*board.entrance(), sys.executable, *map(str, words)]


def daemon_ports(process: int) -> list[int]:
    """Return the ports on which a process listens to other machines."""
    held = {str(path.readlink()) for path in Path(f"/proc/{process}/fd").iterdir()}
    lines = Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    listening = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]
    return [int(row[1].partition(":")[2], 16) for row in listening if row[1][:8] == "0" * 8]


def named(processes: list[int], *names: str) -> int:
    """Return the newest of some processes that runs one of these programs."""
    return max(p for p in processes if name_of(p) in names)


def name_of(process: int) -> str:
    """Return the program that a process runs; empty: it has ended meanwhile."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""


@pytest.mark.parametrize("mpirun", [wheels_mpirun, debians_mpirun])
def test_no_other_account_of_a_board_connects_to_mpirun_or_a_daemon(
    boards: Boards, out: Path, mpirun: Callable[[], Path]
) -> None:
    forget_results(boards[1])
    library = libpmix(wheels_mpirun())
    attackers = [
        subprocess.Popen(
            on_board(board, "/tmp/attacker.py", library, 0, "/tmp/mark"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for board in boards
    ]
    for attacker in attackers:
        assert attacker.stdout is not None
        assert "ready\n" == attacker.stdout.readline()
    launcher = Launcher(boards, out, "--frames", "1000000", "--mpirun", mpirun())
    try:
        launcher.wait_for_frames(boards[1])
        here = [child.pid for child in psutil.Process(launcher.process.pid).children()]
        daemons = {
            boards.names.host_address: named(here, "prterun", "mpirun"),
            boards[0].address: named(boards[0].processes(), "prted", "orted"),
        }
        targets = [
            (host, port) for host, process in daemons.items() for port in daemon_ports(process)
        ]
        across = boards[1].run([sys.executable, "-c", CONNECTS, json.dumps(targets)]).stdout
    finally:
        launcher.close()
        told = [json.loads(attacker.communicate()[0]) for attacker in attackers]
    assert 2 <= len(targets)
    assert ["closed"] * len(targets) == across.split()
    for found in told:
        assert {"closed", "kept out"} <= found.keys() <= {"closed", "kept out", "refused"}
