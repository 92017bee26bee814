"""Profiles of boards are measured there, over ssh, by the runtime that is brought to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Ended, rankslice
from real_jobs import DIGITS

from boards import Boards
from boards.deployments import home
from rankslice.exploration.times.span_times import first_spans
from rankslice.framework.profile import Profile
from rankslice.session.building.planning import read_profile

pytestmark = pytest.mark.ci

UNANSWERED_BYTES = 100_000
"""What a board that has all it needs is sent at most: ssh's handshakes, and our programs."""


@pytest.fixture(scope="module")
def folder(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the platform file of both boards."""
    folder = tmp_path_factory.mktemp("profiles")
    hosts = {board.name: {"host": board.address, "cores": 1} for board in rack}
    (folder / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    return folder


def profile(rack: Boards, folder: Path, *arguments: str | Path) -> Ended:
    """Return how ``rankslice profile`` of the digit classifier ended."""
    return rankslice(
        *("profile", DIGITS, "--platform", folder / "platform.yaml", "-o", folder / "p.json"),
        *("--no-refine", "--ssh-config", rack.ssh_config, *arguments),
    )


@pytest.fixture(scope="module")
def profiled(rack: Boards, folder: Path) -> Profile:
    """The profile of the digit classifier on both boards."""
    ended = profile(rack, folder)
    assert 0 == ended.code, ended.err
    return read_profile(folder / "p.json")


def test_of_equal_boards_the_first_is_measured_through_its_own_runtime(
    rack: Boards, profiled: Profile
) -> None:
    (kind,) = profiled.kinds
    assert ("board1_cpu0", ("board1_cpu0", "board2_cpu0")) == (kind.key, kind.keys)
    assert rack[0].run(["hostname"]).stdout.strip() == kind.board.host
    assert len(first_spans(len(profiled.model.layers))) == len(kind.spans)
    assert all(len(span.samples_ns) >= 5 for span in kind.spans)
    assert (True, False) == tuple((home(board) / "packages").is_dir() for board in rack)


def test_the_next_profile_sends_no_data(rack: Boards, folder: Path, profiled: Profile) -> None:
    before = rack[0].traffic()
    ended = profile(rack, folder)
    assert 0 == ended.code, ended.err
    assert rack[0].traffic().since(before).received < UNANSWERED_BYTES
    assert profiled == read_profile(folder / "p.json")
