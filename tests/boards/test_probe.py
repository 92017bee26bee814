"""``rankslice probe`` and ``probe --check`` over ssh, as a user runs them."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from command_line import COMMAND, Ended, rankslice, succeed
from real_jobs import DIGITS, wheels_mpirun
from waiting import until

from boards import Board, Boards
from boards.board import faketime_library
from boards.deployments import MAPPING, build_for, deploy
from boards.disks import PYENV
from boards.firewalls import closed_high_ports
from rankslice.framework.platform import Link
from rankslice.framework.specs.read_platform import read_platform

pytestmark = pytest.mark.ci

RACK = {"count": 3, "disk_mb": 512}

CUT_OFF = "it cannot be reached; is it on, and its cable plugged in?"
THIS_PYTHON = ".".join(platform.python_version_tuple()[:2])
Row = tuple[str, str, str]


def probe(rack: Boards, *arguments: str | Path) -> Ended:
    """Return how ``rankslice probe`` ended."""
    return rankslice("probe", *arguments, "--ssh-config", rack.ssh_config)


def checked(
    rack: Boards, tmp_path: Path, spec: object, *arguments: str | Path
) -> tuple[Ended, dict[Row, str]]:
    """Check a platform; return how that ended, and remedies by place, check and state."""
    file, told = tmp_path / "boards.yaml", tmp_path / "checks.json"
    file.write_text(spec if isinstance(spec, str) else json.dumps(spec))
    ended = probe(rack, "--check", file, *arguments, "--json", told)
    findings = json.loads(told.read_text())["findings"]
    return ended, {
        (row["place"], row["check"], row["state"]): f"{row['found']}; {row['remedy']}"
        for row in findings
    }


def platform_of(*boards: Board, **more: object) -> dict[str, object]:
    """Return a platform file's data."""
    return {"boards": {board.name: {"host": board.address, **more} for board in boards}}


def test_three_boards_become_a_platform_file(rack: Boards, tmp_path: Path) -> None:
    file, record = tmp_path / "boards.yaml", tmp_path / "boards.json"
    ended = probe(rack, "board1", "board2", "root@board3", "-o", file, "--json", record)
    assert (0, "") == (ended.code, ended.err)
    assert ended.out.endswith(f"written to {file}\n")
    found = read_platform(file)
    assert [("board1", "board1", ""), ("board2", "board2", ""), ("board3", "board3", "root")] == [
        (board.name, board.host, board.user) for board in found.boards
    ]
    (kind,) = {(board.arch, board.python, board.cores) for board in found.boards}
    assert (platform.machine(), THIS_PYTHON) == kind[:2]
    routes = json.loads(record.read_text())["routes"]
    assert 6 == len(routes)
    # The boards share this machine's cores with whatever else it does.
    assert all(200e6 < route["bits_per_s"] < 1200e6 for route in routes)
    assert all(0 < route["latency_us"] < 20_000 for route in routes)
    assert isinstance(found.default_link, Link)


def test_a_slower_cable_is_measured(rack: Boards, tmp_path: Path) -> None:
    rack[1].set_rate(50)
    try:
        assert 0 == probe(rack, "board1", "board2", "-o", tmp_path / "b.yaml").code
    finally:
        rack[1].set_rate(1000)
    link = read_platform(tmp_path / "b.yaml").default_link
    assert link is not None
    assert 25 < link.bandwidth_mbps < 55


def test_a_probed_platform_is_what_build_takes(rack: Boards, tmp_path: Path) -> None:
    file = tmp_path / "boards.yaml"
    assert 0 == probe(rack, rack[0].address, rack[1].address, "-o", file).code
    (tmp_path / "mapping.json").write_text(json.dumps(MAPPING))
    mapping = ("--mapping", tmp_path / "mapping.json")
    succeed("build", DIGITS, *mapping, "--platform", file, "--out", tmp_path / "out")


def test_this_machine_is_a_board_among_others(rack: Boards, tmp_path: Path) -> None:
    ended = probe(rack, "local", "board1", "-o", tmp_path / "b.yaml")
    assert 0 == ended.code, ended.err
    found = read_platform(tmp_path / "b.yaml")
    hosts = {board.name: board.host for board in found.boards}
    assert {"local": rack.names.host_address, "board1": "board1"} == hosts


def test_a_second_probe_replaces_no_file(rack: Boards, tmp_path: Path) -> None:
    file = tmp_path / "boards.yaml"
    file.write_text("boards: {mine: {}}")
    ended = probe(rack, "board1", "-o", file)
    expected = f"error: {file}: exists; choose another --out, or give --force"
    assert (1, expected, "boards: {mine: {}}") == (ended.code, ended.err.strip(), file.read_text())
    assert 0 == probe(rack, "board1", "-o", file, "--force").code
    assert "board1" in yaml.safe_load(file.read_text())["boards"]


def test_yaml_goes_to_stdout(rack: Boards) -> None:
    ended = probe(rack, "board1", "-o", "-")
    assert ["board1"] == list(yaml.safe_load(ended.out)["boards"])


def test_boards_that_do_not_answer_are_told_and_the_others_are_shown(tmp_path: Path) -> None:
    hosts = ("board1", "board2", "board3", "board4", "board9")
    with Boards(4, disk_mb=32) as boards:
        boards[1].cut_power()
        boards[2].unplug()
        boards[3].stop()
        ended = probe(boards, *hosts, "-o", tmp_path / "b.yaml")
        boards[3].resume()
    assert 1 == ended.code
    for name in hosts[1:4]:
        assert f"board {name} ({name}): {CUT_OFF}" in ended.err
    assert "board board9 (board9): there is no such host" in ended.err
    assert "board1" in ended.out
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "IdentityFile {key}\nUserKnownHostsFile /nowhere/known_hosts",
            "its host key is not known yet; log in once with ssh",
        ),
        (
            "IdentityFile /nowhere/key\nUserKnownHostsFile {known_hosts}",
            "ssh cannot log in without a password; copy your key there: ssh-copy-id",
        ),
    ],
)
def test_what_ssh_refuses_is_told_with_its_remedy(
    settings: str, message: str, rack: Boards, tmp_path: Path
) -> None:
    names = rack.names
    config = tmp_path / "ssh_config"
    text = settings.format(key=names.key, known_hosts=names.known_hosts)
    config.write_text(f"User root\nIdentitiesOnly yes\nGlobalKnownHostsFile /dev/null\n{text}\n")
    ended = rankslice("probe", rack[0].address, "--ssh-config", config, "-o", tmp_path / "b.yaml")
    assert 1 == ended.code
    assert message in ended.err


def test_another_host_key_than_before_is_told(rack: Boards, tmp_path: Path) -> None:
    names = rack.names
    known = names.known_hosts.read_text().splitlines()
    keys = [line.split(" ", 1)[1] for line in known]
    (tmp_path / "known_hosts").write_text(f"{rack[0].address} {keys[1]}\n")
    config = tmp_path / "ssh_config"
    config.write_text(
        f"User root\nIdentityFile {names.key}\nUserKnownHostsFile {tmp_path}/known_hosts\n"
    )
    ended = rankslice("probe", rack[0].address, "--ssh-config", config, "-o", "-")
    assert 1 == ended.code
    assert "its host key has changed" in ended.err


def pyenv(version: str) -> Path:
    """Return a Python of pyenv's; skip the test if it has none of this version."""
    found = sorted(PYENV.glob(f"{version}.*")) if PYENV.is_dir() else []
    if not found:
        pytest.skip(f"there is no Python {version} in {PYENV} (pyenv install {version})")
    return found[-1]


def test_python_3_8_tells_all_and_is_too_old_for_jobs(rack: Boards, tmp_path: Path) -> None:
    rack[0].use_python(pyenv("3.8"))
    try:
        told = probe(rack, "board1", "-o", "-")
        ended, rows = checked(rack, tmp_path, platform_of(rack[0]))
    finally:
        rack[0].use_python(Path(sys.prefix))
    assert "3.8" == yaml.safe_load(told.out)["boards"]["board1"]["python"]
    assert 1 == ended.code
    assert "install Python 3.10 or later there" in rows["board1", "Python", "fail"]


def test_an_even_older_python_is_told(rack: Boards) -> None:
    rack[0].use_python(pyenv("3.6"))
    try:
        ended = probe(rack, "board1", "-o", "-")
    finally:
        rack[0].use_python(Path(sys.prefix))
    assert 1 == ended.code
    assert "board board1 (board1): its Python is 3.6, and 3.10 or later is needed" in ended.err


def pythons(board: Board) -> list[str]:
    """Return where a board has a python3, each place once: /bin is a link as a rule."""
    found = board.run(["which", "-a", "python3"]).stdout.split()
    return list({str(Path(name).parent.resolve()): name for name in found}.values())


def test_a_board_without_python_is_told(rack: Boards, tmp_path: Path) -> None:
    names = pythons(rack[0])
    for name in names:
        rack[0].run(["mv", name, f"{name}.away"])
    try:
        ended = probe(rack, "board1", "-o", tmp_path / "b.yaml")
    finally:
        for name in names:
            rack[0].run(["mv", f"{name}.away", name])
    assert 1 == ended.code
    assert "there is no python3; install Python 3.10 or later there" in ended.err


def test_the_environment_of_deploy_is_asked_too(rack: Boards) -> None:
    folder = "/root/.rankslice/venv/bin"
    rack[0].run(["mkdir", "-p", folder])
    rack[0].run(["ln", "-s", f"{sys.prefix}/bin/python3", f"{folder}/python3"])
    try:
        ended = probe(rack, "board1", "-o", "-")
    finally:
        rack[0].run(["rm", "-r", "/root/.rankslice/venv"])
    assert 0 == ended.code, ended.err
    assert f"# {sys.prefix}/bin/python3 has " in ended.out
    assert f'python: "{THIS_PYTHON}"  # {folder}/python3, ' in ended.out


def test_an_interrupted_probe_ends_at_once(rack: Boards, tmp_path: Path) -> None:
    names = pythons(rack[0])
    for name in names:
        rack[0].run(["mv", name, f"{name}.away"])
        rack[0].run(["sh", "-c", f"printf '#!/bin/sh\nexec sleep 60\n' > {name}; chmod +x {name}"])
    command = [*COMMAND, "probe", "board1", "-o", "b.yaml", "--ssh-config", str(rack.ssh_config)]
    try:
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            await_process(rack[0], "sleep 60")
            process.send_signal(signal.SIGINT)
            begin = time.monotonic()
            _, errors = process.communicate(timeout=30)
    finally:
        for name in names:
            rack[0].run(["mv", f"{name}.away", name])
    assert time.monotonic() - begin < 5
    assert process.returncode in (1, 130)
    assert "Traceback" not in errors
    assert [] == list(tmp_path.iterdir())


def await_process(board: Board, line: str) -> None:
    """Return once a process with this command line runs on a board."""
    until(lambda: any(line in command_line(process) for process in board.processes()), 20)


def command_line(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:  # it has ended
        return ""


def test_two_names_of_one_board_are_told(rack: Boards) -> None:
    ended = probe(rack, "board1", rack[0].address, "-o", "-")
    assert 1 == ended.code
    assert f"is the same machine as board1, {rack[0].address}; name it once" in ended.err


def test_a_firewall_is_found_while_the_other_boards_are_measured(
    rack: Boards, tmp_path: Path
) -> None:
    file = tmp_path / "boards.yaml"
    with closed_high_ports(rack[1]):
        ended = probe(rack, "board1", "board2", "board3", "-o", file)
        check, rows = checked(rack, tmp_path, file.read_text())
    assert 0 == ended.code
    assert "board1 cannot connect to board2: timed out; is there a firewall?" in ended.err
    assert "# no link: board2 cannot connect to board3: timed out" in file.read_text()
    assert read_platform(file).default_link is not None  # between board1 and board3
    assert (1, 3) == (check.code, sum(row[1:] == ("firewall", "fail") for row in rows))
    between = rows["board1 - board2", "firewall", "fail"]
    assert f"open all TCP ports of board1 to {rack[1].address}" in between
    assert "open this machine's TCP ports to it" in rows["board2", "firewall", "fail"]
    assert ("board1 - board3", "link", "ok") in rows


def test_good_boards_pass_every_check(rack: Boards, tmp_path: Path) -> None:
    link = {"bandwidth_mbps": 10, "latency_ms": 100, "compress": "zstd"}
    ended, rows = checked(rack, tmp_path, {**platform_of(*rack), "links": {"default": link}})
    assert 0 == ended.code, rows
    assert {"ok"} == {state for _, _, state in rows}
    made = {"ssh", "Python", "cores", "disk", "memory", "Open MPI", "mpi4py", "numpy", "engine"}
    assert made | {"clock", "firewall", "zstandard"} == {
        check for place, check, _ in rows if place == "board1"
    }
    assert 3 == sum(check == "link" for _, check, _ in rows)


def test_a_board_that_is_off_fails_its_check_and_the_others_are_checked(
    rack: Boards, tmp_path: Path
) -> None:
    rack[1].cut_power()
    try:
        ended, rows = checked(rack, tmp_path, platform_of(*rack))
    finally:
        rack[1].power_on()
    assert 1 == ended.code
    assert CUT_OFF in rows["board2", "ssh", "fail"]
    assert ("board1 - board3", "link", "ok") in rows
    assert "error: 1 of " in ended.err


def test_what_the_platform_file_says_is_compared(rack: Boards, tmp_path: Path) -> None:
    spec = {
        "boards": {
            "board1": {
                "host": rack[0].address,
                "cores": "0-1000",
                "arch": "riscv64",
                "python": "3.99",
                "memory_mb": 1e9,
            },
            "board2": {"host": rack[1].address},
        },
        "links": {"default": {"bandwidth_mbps": 10_000, "latency_ms": 0.1}},
    }
    ended, rows = checked(rack, tmp_path, spec)
    assert 1 == ended.code
    assert "write `cores: " in rows["board1", "cores", "fail"]
    assert f"write `arch: {platform.machine()}`" in rows["board1", "arch", "warn"]
    assert "which --wheels goes by" in rows["board1", "Python", "warn"]
    assert "write `memory_mb: " in rows["board1", "memory", "warn"]
    assert "the platform file says 10000 Mbit/s" in rows["board1 - board2", "link", "warn"]


def test_accelerators_that_lack_a_library_or_a_provider_fail(rack: Boards, tmp_path: Path) -> None:
    gpu = {"engine": "litert", "delegate": "libtensorflowlite_gpu_delegate.so"}
    qnn = {"engine": "onnxruntime", "provider": "QNN"}
    npu = [
        {**qnn, "provider": "CUDA"},
        {**qnn, "plugin": "onnxruntime-ep-other"},
        {**qnn, "plugin": "/no/such.so"},
    ]
    ended, rows = checked(rack, tmp_path, platform_of(rack[0], gpu=gpu, npu=npu))
    assert 1 == ended.code
    assert "cannot open shared object file" in rows["board1", "gpu", "fail"]
    assert "give its path as `delegate`" in rows["board1", "gpu", "fail"]
    assert "not CUDA; install an onnxruntime with CUDA" in rows["board1", "npu", "fail"]
    assert "has onnxruntime-ep-other" in rows["board1", "npu1", "warn"]
    assert "/no/such.so cannot be loaded" in rows["board1", "npu2", "fail"]


def test_a_delegate_that_can_be_loaded_is_ok(rack: Boards, tmp_path: Path) -> None:
    cpu = {"engine": "litert", "delegate": "libc.so.6"}
    _, rows = checked(rack, tmp_path, platform_of(rack[0], cpu=cpu))
    assert ("board1", "cpu", "ok") in rows


def test_missing_programs_and_packages_fail(tmp_path: Path) -> None:
    with Boards(1, disk_mb=64) as boards:
        boards[0].hide_package("numpy")
        daemon = str(wheels_mpirun().with_name("prted"))
        boards[0].run(["rm", "/usr/bin/rsync", daemon])
        ended, rows = checked(boards, tmp_path, platform_of(boards[0]))
        boards[0].fill_disk(leave_bytes=1 << 20)
        _, full = checked(boards, tmp_path, platform_of(boards[0]))
    assert 1 == ended.code
    assert "apt-get install rsync" in rows["board1", "rsync", "fail"]
    assert "all must be of one series" in rows["board1", "Open MPI", "fail"]
    assert "make room" in rows["board1", "disk", "warn"]
    assert "make room" in full["board1", "disk", "fail"]


def test_a_wrong_clock_is_told(tmp_path: Path) -> None:
    if faketime_library() is None:
        pytest.skip("a wrong clock needs a Debian package: apt-get install faketime")
    with Boards(2, disk_mb=512) as boards:
        boards[1].set_clock_ahead(3600)
        # What else a board's programs do with a library that fakes their clock is not tested.
        _, rows = checked(boards, tmp_path, platform_of(*boards))
    assert "timedatectl set-ntp true" in rows["board2", "clock", "warn"]
    assert ("board1", "clock", "ok") in rows


def test_a_build_folder_is_checked_as_run_would(rack: Boards, tmp_path: Path) -> None:
    out = build_for(rack, tmp_path / "job", DIGITS, MAPPING)
    spec = platform_of(*rack)
    ended, rows = checked(rack, tmp_path, spec, out)
    assert 1 == ended.code
    assert f"deploy it: rankslice deploy {out}" in rows["board1", "package", "fail"]
    assert not any(place == "board3" for place, _, _ in rows)  # no rank is there
    assert 0 == deploy(rack, out).code
    ended, rows = checked(rack, tmp_path, spec, out)
    assert (0, True) == (ended.code, ("board2", "package", "ok") in rows), rows


def test_a_build_folder_for_other_boards_is_told(rack: Boards, tmp_path: Path) -> None:
    out = build_for(rack, tmp_path / "job", DIGITS, MAPPING)
    ended, rows = checked(rack, tmp_path, platform_of(rack[0]), out)
    assert 1 == ended.code
    assert "the build folder needs it" in rows["board2", "platform", "fail"]
