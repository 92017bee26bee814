"""This machine has no ssh or no rsync: one line says so, however many boards there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankslice.backend.boards.answers import Room
from rankslice.backend.boards.login import Login
from rankslice.backend.boards.ssh import BoardShell, on_all
from rankslice.framework.errors import RankSliceError

BOARDS = [BoardShell(Login(name, f"{name}.invalid")) for name in ("edge01", "edge02")]


@pytest.mark.parametrize(("program", "package"), [("ssh", "openssh-client"), ("rsync", "rsync")])
def test_its_package_is_named_once(
    program: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    def work(board: BoardShell) -> None:
        if program == "ssh":
            board.ask(Room, "room", folder="packages")
        else:
            board.put(tmp_path, "packages/new")

    with pytest.raises(RankSliceError) as error:
        on_all(work, BOARDS)
    expected = f"{program}: is not installed on this machine; apt-get install {package}"
    assert expected == str(error.value)
