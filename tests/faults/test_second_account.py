"""What other users and machines can do to a job: nothing, under both versions of Open MPI."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from command_line import COMMAND, rankslice, succeed
from real_jobs import chain_folder, debians_mpirun, let_ranks_sleep, replace_file, wheels_mpirun
from second_account import (
    AS_STRANGER,
    STRANGER,
    TRIES_EVERYTHING,
    as_stranger,
    attacked,
    libpmix,
    needs_root,
    open_place,
    process_of_victim,
)
from waiting import until

from rankslice.backend.runtime.faults.private_folder import _LOCK as LOCK

pytestmark = pytest.mark.ci

START_S = 30
LOOPBACK = ("127.0.0.1", "[::1]")

both_mpiruns = pytest.mark.parametrize("mpirun", [wheels_mpirun, debians_mpirun])

TAKES_ALL_NAMES = """
process, user, victim, pid, start, *places = sys.argv[1:]
for place in places:
    for name in (f"rankslice-{user}-{process}-{start}", f"rankslice-user-{user}"):
        folder = pathlib.Path(place, name)
        folder.mkdir()
        folder.chmod(0o777)
        for file in (".rank-0", ".rank-1", "rank-2", ".rankslice-lock"):
            (folder / file).symlink_to(victim)
        os.mkfifo(folder / "rank-3")
        # A page of a job that has failed, with another process of the victim's.
        page = int(pid).to_bytes(8, sys.byteorder) + bytes(8) + (2).to_bytes(8, sys.byteorder)
        (folder / "rank-4").write_bytes(page.ljust(1048, b"x"))
"""

IN_A_NAMESPACE = """
mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 77
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)
"$1" -c "$2" $$ "$(id -u)" "$3" "$4" "$start" /dev/shm "$TMPDIR" || exit 78
shift 4
exec "$@"
"""
"""Become mpirun, once the stranger has taken each name that its process number tells."""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("job"), 2), 1)


def running(out: Path, place: Path, mpirun: Path) -> subprocess.Popen[bytes]:
    """Start an unending job whose temporary files are in ``place``."""
    return subprocess.Popen(
        [*COMMAND, "run", out, "--frames", "1000000", "--mpirun", mpirun],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def session_of(launcher: subprocess.Popen[bytes]) -> Path:
    """Return the folder of a job in memory, once its ranks share memory there."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert launcher.poll() is None
        with suppress(psutil.Error, KeyError, StopIteration, OSError):
            mpirun = next(iter(psutil.Process(launcher.pid).children()))
            session = Path(mpirun.environ()["RANKSLICE_SESSION"])
            if 2 <= len(list(session.glob("*_segment.*"))):
                return session
        time.sleep(0.05)
    raise AssertionError("the job has not started")


def heard_from_outside(launcher: subprocess.Popen[bytes]) -> list[str]:
    """Return the sockets on which a job listens to more than this machine itself."""
    needs_ss()
    job = psutil.Process(launcher.pid).children(recursive=True)
    numbers = {f"pid={process.pid}," for process in job}
    listed = subprocess.run(["ss", "-Hlntup"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in listed.splitlines() if any(each in line for each in numbers)]
    assert lines, "not even mpirun's own socket for its ranks is seen"
    addresses = [line.split()[4].rpartition(":")[0] for line in lines]
    return [each for each in addresses if not each.endswith("%lo") and each not in LOOPBACK]


def needs_ss() -> None:
    if shutil.which("ss") is None:
        pytest.skip("needs ss to see who listens (apt-get install iproute2)")


@both_mpiruns
def test_a_running_job_is_closed_to_others_and_what_it_leaves_when_killed_is_swept(
    out: Path, mpirun: Callable[[], Path]
) -> None:
    with open_place() as place:
        launcher = running(out, place, mpirun())
        try:
            session = session_of(launcher)
            assert [] == heard_from_outside(launcher)
            if os.geteuid() == 0:
                assert "" == as_stranger(TRIES_EVERYTHING, session, LOCK)
        finally:
            launcher.kill()
            launcher.wait()
        until(lambda: not session.exists(), START_S)  # the watchdog removes it with the last rank
        (left,) = place.iterdir()
        with (left / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # mpirun may end after the last rank
        os.utime(left, (0, 0))
        environment = {**os.environ, "TMPDIR": str(place)}
        command = [*COMMAND, "run", out, "--frames", "1", "--mpirun", mpirun()]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert [] == list(place.iterdir())


@both_mpiruns
def test_no_other_account_connects_to_mpirun_before_during_or_after_the_start(
    out: Path, tmp_path: Path, mpirun: Callable[[], Path]
) -> None:
    job = [*COMMAND, "run", out, "--frames", "100", "--mpirun", mpirun()]
    with open_place() as place:
        code, found = attacked(job, libpmix(wheels_mpirun()), place / "mark")
        assert not (place / "mark").exists()
    assert 0 == code
    assert {"closed", "kept out"} <= found.keys() <= {"closed", "kept out", "refused"}
    assert 20 < found["closed"], "it was attacked for a moment only"


def test_the_attack_succeeds_against_an_mpirun_line_that_is_typed() -> None:
    job = [wheels_mpirun(), "--allow-run-as-root", "-n", "1", "sleep", "3"]
    with open_place() as place:
        code, found = attacked(job, libpmix(wheels_mpirun()), place / "mark")
        assert found["let in"], found
        assert "0\n" == (place / "mark").read_text()
    assert 0 == code


@both_mpiruns
def test_a_typed_mpirun_line_does_without_names_that_another_user_has_taken(
    out: Path, tmp_path: Path, mpirun: Callable[[], Path]
) -> None:
    needs_root()
    shown = rankslice("run", out, "--dry-run", "--frames", "3", "--mpirun", mpirun())
    precious = tmp_path / "precious"
    precious.write_bytes(b"p" * 5000)
    with open_place() as place, process_of_victim() as victim:
        before = [sys.executable, AS_STRANGER + TAKES_ALL_NAMES, precious, str(victim.pid)]
        in_namespace = ["unshare", "--mount", "sh", "-c", IN_A_NAMESPACE, "sh"]
        ended = subprocess.run(
            [*in_namespace, *before, *shlex.split(shown.out)],
            env={**os.environ, "TMPDIR": str(place), "XDG_RUNTIME_DIR": ""},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if ended.returncode == 77:
            pytest.skip(f"needs a mount namespace of its own: {ended.stderr}")
        assert 0 == ended.returncode, ended.stderr
        assert "completed 3" in ended.stdout
        assert (
            "rankslice: there is no private folder for status pages:"
            " the job runs without a watchdog"
        ) in ended.stderr
        assert victim.poll() is None
    assert b"p" * 5000 == precious.read_bytes()


def test_ranks_of_two_accounts_on_one_board_exchange_messages_and_say_so(
    out: Path, tmp_path: Path
) -> None:
    needs_root()
    folder = tmp_path / "out"
    shutil.copytree(out, folder)
    code = folder / "runtime" / "pipeline" / "collectives.py"
    text = code.read_text()
    assert 1 == text.count("    listener = ") == text.count("    reason = ")
    # Only while the ranks meet: what it loads later is closed to others.
    text = text.replace(
        "    listener = ", f"    os.seteuid({STRANGER} if transport.rank else 0)\n    listener = "
    )
    replace_file(code, text.replace("    reason = ", "    os.seteuid(0)\n    reason = ").encode())
    ended = succeed("run", folder, "--frames", "20")
    assert re.search(
        r"^ranks of one board exchange messages: rank 0 \(.*\) and rank 1 \(.*\)"
        r" belong to two accounts$",
        ended.out,
        re.MULTILINE,
    )
