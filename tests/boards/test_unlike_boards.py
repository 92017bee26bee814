"""Boards need not be alike: names, hosts, accounts, Pythons; one of them may be this machine."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from command_line import Ended, rankslice, succeed
from real_jobs import DIGITS, debians_mpirun, wheels_mpirun
from rooms import ROOMS

from boards import Board, Boards
from boards.accounts import add_account
from boards.deployments import build_on, deploy, of_job, run
from boards.disks import CHECKOUT, PYENV
from boards.fixtures import skip_without_boards
from boards.system import command

pytestmark = pytest.mark.ci

HALVES = (["conv1..pool1"], ["conv3..softmax"])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder on this machine."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def build_halves(
    hosts: Mapping[str, Mapping[str, object]], folder: Path, **settings: object
) -> Path:
    """Return a build folder of the digit classifier, a half for each of two boards."""
    mapping = {f"{name}_cpu0": half for name, half in zip(hosts, HALVES, strict=True)}
    return build_on(hosts, folder, DIGITS, mapping, **settings)


def deployed_and_run(rack: Boards, out: Path, *arguments: str | Path) -> Ended:
    """Deploy a build folder; return how its run ended, results compared."""
    deployed = deploy(rack, out)
    assert 0 == deployed.code, deployed.err
    return run(rack, out, "--frames", "20", "--verify", "exact", *arguments)


def test_boards_may_have_hyphens_and_underscores_in_their_names(
    rack: Boards, tmp_path: Path
) -> None:
    names = ("edge-01_a", "pi_cpu0-1.local")
    hosts = {name: {"host": board.address} for name, board in zip(names, rack, strict=True)}
    ended = deployed_and_run(rack, build_halves(hosts, tmp_path))
    assert 0 == ended.code, ended.err
    assert "20 frames compared" in ended.out


@pytest.mark.parametrize(
    "open_mpi", [wheels_mpirun, pytest.param(debians_mpirun, marks=pytest.mark.slow)]
)
def test_hosts_may_be_names_of_the_ssh_configuration(
    open_mpi: Callable[[], Path], rack: Boards, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match=r"not known|resolution"):
        socket.getaddrinfo(rack[0].name, 22)
    hosts = {f"edge{index}": {"host": board.name} for index, board in enumerate(rack)}
    lines = tmp_path / "lines.jsonl"  # come by a connection from the sink to this machine
    out, options = build_halves(hosts, tmp_path), ("--mpirun", open_mpi(), "--output", lines)
    ended = deployed_and_run(rack, out, *options)
    assert 0 == ended.code, ended.err
    assert 20 == len(lines.read_text().splitlines())
    rack[1].run(["ip", "link", "set", "dev", "lo", "down"])
    try:
        ended = run(rack, out)
    finally:
        rack[1].run(["ip", "link", "set", "dev", "lo", "up"])
    assert 1 == ended.code
    assert f"board edge1 ({rack[1].name}): its loopback interface is down" in ended.err
    assert "bring it up: sudo ip link set dev lo up" in ended.err


@pytest.mark.slow
def test_names_of_the_users_own_ssh_configuration_need_no_option(tmp_path: Path) -> None:
    skip_without_boards()
    with Boards(2, disk_mb=256) as rack:
        hosts = {"one": {"host": rack[0].name}, "two": {"host": rack[1].name}}
        starter = rack[0]  # it has ~/.ssh/config, and is one of the boards itself
        for folder in PROGRAM:
            starter.put(CHECKOUT / folder, CHECKOUT / folder)
        starter.put(build_halves(hosts, tmp_path), "/root/out")
        program = [sys.executable, "-c", "from rankslice.commands import main; main()"]
        starter.ssh(*program, "deploy", "/root/out")
        ended = starter.ssh(*program, "run", "/root/out", "--frames", "20", "--verify", "exact")
        assert "20 frames compared" in ended.stdout
        assert [] == [line for board in rack for line in of_job(board)]


PROGRAM = (*ROOMS, "templates", "platforms", "mappings", "models", "src")
"""Folders of the checkout that a machine needs to start jobs."""


@pytest.fixture
def ipv6_config(rack: Boards, tmp_path: Path) -> Path:
    """A configuration for ssh with which the boards answer at fd77::11 and fd77::12, too."""
    command(["ip", "address", "replace", "fd77::1/64", "dev", rack.names.name, "nodad"])
    text = ""
    for board in rack:
        address = ipv6_address(board)
        board.run(["ip", "address", "replace", f"{address}/64", "dev", "eth0", "nodad"])
        listen = ["-f", "/etc/ssh/board_config", "-o", f"ListenAddress={address}"]
        board.run(["/usr/sbin/sshd", *listen], check=False)
        text += f"Host {address}\n  HostKeyAlias {board.name}\n"
    config = tmp_path / "ssh_config"
    config.write_text(f"{text}Match all\n  Include {rack.ssh_config}\n")
    return config


def ipv6_address(board: Board) -> str:
    """Return the second address of a board."""
    return f"fd77::{10 + board.names.index}"


def test_boards_may_be_reached_at_ipv6_addresses(
    rack: Boards, ipv6_config: Path, tmp_path: Path
) -> None:
    mpirun_4 = debians_mpirun()
    hosts = {board.name: {"host": ipv6_address(board)} for board in rack}
    out = build_halves(hosts, tmp_path)
    options = ("--ssh-config", ipv6_config)
    succeed("deploy", out, *options)
    succeed("run", out, *options, "--frames", "20", "--verify")
    refused = rankslice("run", out, *options, "--mpirun", mpirun_4)
    assert 1 == refused.code
    assert (
        "board board1 (fd77::11): Open MPI 4.1 cannot use IPv6 addresses; use a name" in refused.err
    )


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("localhost", 0),
        ("its address", 1),
        pytest.param("localhost", 1, marks=pytest.mark.slow),
        pytest.param("its name", 0, marks=pytest.mark.slow),
        pytest.param("its name", 1, marks=pytest.mark.slow),
        pytest.param("its address", 0, marks=pytest.mark.slow),
    ],
)
def test_this_machine_may_be_one_of_the_boards(
    name: str, place: int, rack: Boards, tmp_path: Path
) -> None:
    own = {"its name": socket.gethostname(), "its address": rack.names.host_address}
    hosts = [{"host": rack[0].address}, {"host": own.get(name, name)}]
    if place == 0:
        hosts.reverse()
    out = build_halves({"first": hosts[0], "second": hosts[1]}, tmp_path)
    ended = deployed_and_run(rack, out)
    assert 0 == ended.code, ended.err
    assert "20 frames compared" in ended.out
    assert [] == of_job(rack[0])


@pytest.mark.parametrize("open_mpi", [wheels_mpirun, debians_mpirun])
def test_who_logs_in_differs_from_board_to_board(
    open_mpi: Callable[[], Path], rack: Boards, tmp_path: Path
) -> None:
    mpirun = open_mpi()
    if rack[1].run(["id", "pi"], check=False).returncode:
        add_account(rack[1], "pi")
    hosts = {"one": {"host": rack[0].address}, "two": {"host": rack[1].address, "user": "pi"}}
    out = build_halves(hosts, tmp_path)
    ended = deployed_and_run(rack, out, "--mpirun", mpirun)
    assert 0 == ended.code, ended.err
    owners = rack[1].run(["stat", "--format=%U", "/home/pi/.rankslice/packages"]).stdout
    assert "pi" == owners.strip()


def test_an_account_that_is_not_there_is_told(rack: Boards, tmp_path: Path) -> None:
    hosts = {"one": {"host": rack[0].address}, "two": {"host": rack[1].address, "user": "nobody1"}}
    ended = deploy(rack, build_halves(hosts, tmp_path))
    assert 1 == ended.code
    assert f"board two ({rack[1].address}): ssh cannot log in" in ended.err


def other_python(version: str) -> Path:
    """Return the folder of a Python of another version; skip the test where there is none."""
    found = sorted(PYENV.glob(f"{version}.*"))
    if not found:
        pytest.skip(f"there is no Python {version} in {PYENV}")
    return found[-1]


@pytest.mark.parametrize("version", ["3.9", "3.6"])
def test_a_python_that_is_too_old_is_told(version: str, tmp_path: Path) -> None:
    skip_without_boards()
    python = other_python(version)
    with Boards(1, disk_mb=64) as rack:
        out = build_on({"one": {"host": rack[0].address}}, tmp_path, DIGITS, EVERYTHING)
        assert 0 == deploy(rack, out).code
        rack[0].use_python(python)
        ended = run(rack, out)
    assert 1 == ended.code
    assert f"its Python is {version}" in ended.err
    assert "3.10 or later is needed" in ended.err


EVERYTHING = {"one_cpu0": ["conv1..softmax"]}


@pytest.mark.slow
def test_boards_of_unlike_pythons_run_one_job(tmp_path: Path) -> None:
    skip_without_boards()
    versions = ("3.10", "3.12")
    pythons = [other_python(version) for version in versions]
    with Boards(2, disk_mb=1024) as rack:
        for board, python in zip(rack, pythons, strict=True):
            board.use_python(python)
        hosts = {
            board.name: {"host": board.address, "arch": platform.machine(), "python": version}
            for board, version in zip(rack, versions, strict=True)
        }
        out = build_halves(hosts, tmp_path, wheels="download")
        deployed = deploy(rack, out, "--venv")
        assert 0 == deployed.code, deployed.err
        ended = run(rack, out, "--frames", "20", "--verify", "exact")
        assert 0 == ended.code, ended.err
        assert list(versions) == [environment_python(board) for board in rack]


def environment_python(board: Board) -> str:
    """Return the version of Python in a board's environment: ``3.12``."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    return board.run(["/root/.rankslice/venv/bin/python3", "-c", ask]).stdout.strip()


def test_a_board_without_the_open_mpi_of_debian_is_told(rack: Boards, tmp_path: Path) -> None:
    mpirun = debians_mpirun()
    hosts = {board.name: {"host": board.address} for board in rack}
    out = build_halves(hosts, tmp_path)
    assert 0 == deploy(rack, out).code
    daemon = rack[1].run(["sh", "-c", "command -v orted"]).stdout.strip()
    rack[1].run(["mv", daemon, f"{daemon}.away"])
    try:
        ended = run(rack, out, "--mpirun", mpirun)
    finally:
        rack[1].run(["mv", f"{daemon}.away", daemon])
    assert 1 == ended.code
    assert "board board2" in ended.err
    assert "mpirun here is of Open MPI 4.1, and it has /" in ended.err
    assert "prted of another series: all must be of one series" in ended.err
    assert "apt-get install openmpi-bin there" in ended.err
