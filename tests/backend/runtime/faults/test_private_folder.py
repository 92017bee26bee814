"""Folders that no other user can enter, tried by a second one; and the end of those left behind."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from second_account import TRIES_EVERYTHING, as_stranger, open_place, process_of_stranger

from rankslice.backend.runtime.faults import pages, private_folder, watchdog
from rankslice.backend.runtime.faults.pages import StatusPage
from rankslice.backend.runtime.faults.private_folder import (
    make_private,
    make_shared,
    open_private,
    sweep,
)
from rankslice.backend.runtime.faults.watched_process import Process, process_start

OLD_S = 3600
LOCK = private_folder._LOCK

USES = """
import sys, time
from pathlib import Path
from rankslice.backend.runtime.faults.private_folder import make_private
with make_private(Path(sys.argv[1])) as folder:
    (folder.path / "file").touch()
    print(folder.path, flush=True)
    time.sleep(1000)
"""
"""A process that uses a folder."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place where all users may make files; it is the one for files in memory."""
    with open_place() as folder:
        monkeypatch.setattr(private_folder, "_MEMORY", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        yield folder


def used_and_killed(place: Path) -> Path:
    """Return a folder whose user was killed long ago."""
    command = [sys.executable, "-c", USES, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        process.kill()
    age(folder)
    return folder


def age(path: Path) -> None:
    then = time.time() - OLD_S
    os.utime(path, (then, then), follow_symlinks=False)


def test_nobody_else_may_enter_and_it_goes_with_its_only_user(place: Path) -> None:
    with make_private(place) as first, make_private(place) as second:
        assert first.path != second.path
        assert 0o700 == stat.S_IMODE(first.path.stat().st_mode)
        (first.path / "file").touch()
    assert [] == list(place.iterdir())


def test_the_last_user_removes_it(place: Path) -> None:
    first = make_private(place)
    second = open_private(first.path)
    first.release()
    assert first.path.is_dir()
    second.release()
    assert not first.path.exists()


def test_a_folder_is_in_use_while_a_process_has_its_lock_open(place: Path) -> None:
    folder = make_private(place)
    with subprocess.Popen(["sleep", "1000"], pass_fds=[folder.lock]) as process:
        os.close(folder.lock)
        age(folder.path)
        sweep(place)
        assert folder.path.is_dir()
        process.kill()
    sweep(place)
    assert not folder.path.exists()
    os.close(folder.descriptor)


def test_what_a_killed_process_left_is_removed_at_the_next_start(place: Path) -> None:
    left = used_and_killed(place)
    assert left.is_dir()
    with make_private(place) as folder:
        assert [folder.path] == list(place.iterdir())


def test_what_a_process_still_writes_into_can_be_removed_later(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, remove = make_private(place), shutil.rmtree
    session = folder.path / "session"
    session.mkdir()

    def remove_too_early(path: Path, *, ignore_errors: bool) -> None:
        remove(path, ignore_errors=ignore_errors)
        session.mkdir(parents=True)

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", remove_too_early)
        folder.release()
    age(folder.path)
    sweep(place)
    assert not folder.path.exists()


def test_nothing_else_is_swept(place: Path) -> None:
    kept = [place / "rankslice-abcdefgh", place / "rankslice-notes", place / "other-abcdefgh"]
    for folder in kept:
        folder.mkdir(mode=0o700)
    for folder in kept[1:]:  # the first one has our kind of name, and no lock
        (folder / LOCK).touch()
    target = used_and_killed(place).rename(place / "precious")
    link = place / "rankslice-abcdefg1"
    link.symlink_to(target)
    young = make_private(place)
    os.close(young.lock)
    in_use = make_private(place)
    file = place / "rankslice-abcdefg2"
    file.touch()
    kept += [target, link, in_use.path, file]
    for path in kept:
        age(path)
    sweep(place)
    assert sorted([*kept, young.path]) == sorted(place.iterdir())
    assert (target / "file").exists()
    in_use.release()
    os.close(young.descriptor)


def test_what_another_user_may_enter_is_not_entered(place: Path) -> None:
    folder = make_private(place).path
    open_private(folder).release()
    folder.chmod(0o770)
    with pytest.raises(PermissionError, match="another user, or other users may access it"):
        open_private(folder)


@pytest.mark.parametrize("name", ["precious", "rankslice-abcdefgh"])
def test_a_folder_that_was_not_made_here_is_neither_used_nor_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = place / name
    folder.mkdir(mode=0o700)
    (folder / "file").touch()
    monkeypatch.setenv(watchdog.SESSION, str(folder))
    session = watchdog._session(os.getppid())
    assert session is not None
    assert session.path != folder
    session.release()
    assert [folder / "file"] == list(folder.iterdir())


def test_processes_of_one_user_get_one_folder_for_a_name(place: Path) -> None:
    first, second, other = make_shared("a" * 8), make_shared("a" * 8), make_shared("b" * 8)
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.path == second.path != other.path
    for folder in (first, second, other):
        folder.release()
    assert not first.path.exists()


TAKES_THE_NAME = """
place, name, kind, victim = sys.argv[1:]
path = pathlib.Path(place, name)
if kind == "folder":
    path.mkdir(mode=0o777)
    path.chmod(0o777)
if kind == "link":
    path.symlink_to(victim)
if kind == "FIFO":
    os.mkfifo(path)
    path.chmod(0o777)
if kind == "file":
    path.touch()
    path.chmod(0o777)
"""


@pytest.mark.parametrize("kind", ["folder", "link", "FIFO", "file"])
def test_a_name_that_another_user_has_taken_is_left_alone(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    victim = tmp_path / "precious"
    victim.mkdir()
    (victim / f"rankslice-{'a' * 8}").mkdir(mode=0o700)
    as_stranger(TAKES_THE_NAME, place, f"rankslice-user-{os.geteuid()}", kind, victim)
    assert make_shared("a" * 8) is None
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder = make_shared("a" * 8)
    assert folder is not None
    assert folder.path.is_relative_to(runtime)
    folder.release()
    assert [f"rankslice-{'a' * 8}"] == [path.name for path in victim.iterdir()]
    assert [] == list((victim / f"rankslice-{'a' * 8}").iterdir())


def test_what_another_user_made_under_our_kind_of_name_is_not_swept(place: Path) -> None:
    made = as_stranger(
        "path = pathlib.Path(sys.argv[1], 'rankslice-abcdefgh'); path.mkdir(mode=0o700);"
        " (path / sys.argv[2]).touch(); os.utime(path, (0, 0)); print(path)",
        place,
        LOCK,
    ).strip()
    sweep(place)
    assert Path(made, LOCK).exists()


def test_another_user_can_do_nothing_in_a_jobs_folder(place: Path) -> None:
    with make_private(place) as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(folder.path / watchdog.MESSAGES))
        heard.setblocking(False)
        StatusPage(folder.descriptor, 0, "rank 0")
        assert "" == as_stranger(TRIES_EVERYTHING, folder.path, LOCK)
        with pytest.raises(BlockingIOError):
            heard.recv(100)
        (page,) = pages.read_pages(folder.descriptor)
        assert ("rank 0", os.getpid()) == (page.rank_name, page.process.number)


def test_a_process_of_another_user_is_none_of_the_jobs(place: Path) -> None:
    with process_of_stranger() as process:
        theirs = Process(process.pid, process_start(process.pid))
        assert not theirs.is_alive
        theirs.kill()
        time.sleep(0.1)
        assert process.poll() is None


def test_pages_that_are_links_or_fifos_are_not_opened(place: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"p" * 2000)
    with make_private(place) as folder:
        (folder.path / "rank-0").symlink_to(tmp_path / "precious")
        os.mkfifo(folder.path / "rank-1")
        assert [] == pages.read_pages(folder.descriptor)
        StatusPage(folder.descriptor, 0, "rank 0")
    assert b"p" * 2000 == (tmp_path / "precious").read_bytes()
