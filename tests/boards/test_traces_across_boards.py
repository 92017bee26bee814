"""``rankslice trace`` across boards: a slow link is named, and how well clocks agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import succeed

from boards import Boards
from boards.deployments import deploy, deployed_digits, sleeping_chain
from rankslice import trace
from rankslice.views.trace_timeline import OPERATOR

pytestmark = pytest.mark.ci

WIDTH = 1 << 16
"""Numbers of a tensor, of four bytes: 42 ms at 50 Mbit/s."""


@pytest.fixture(scope="module")
def out(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job whose ranks take 10 ms, deployed."""
    folder = sleeping_chain(rack, tmp_path_factory.mktemp("trace"), 10, WIDTH)
    assert 0 == deploy(rack, folder).code
    yield folder
    rack[1].set_rate(1000)


def test_a_slow_link_is_named(rack: Boards, out: Path, tmp_path: Path) -> None:
    rack[1].set_rate(50)
    record, page = tmp_path / "trace.json", tmp_path / "trace.html"
    given = ("--frames", "40", "--json", record, "--html", page)
    ended = succeed("trace", out, "--ssh-config", rack.ssh_config, *given)
    told = json.loads(record.read_text())
    first, second = rack[0].name, rack[1].name
    assert ("link", [0, 1], [1]) == tuple(
        told["limit"][key] for key in ("kind", "ranks", "channels")
    )
    assert told["words"][0].startswith(f"the link from {first} to {second}: 't0' is in")
    assert "rank 1 waits" in told["words"][-1]
    assert "in transit" in told["words"][-1]
    assert 40 < told["period_ms"]
    assert 0.5 < told["ranks"][0]["send"] <= 1
    (note,) = [note for note in told["notes"] if "different boards" in note]
    assert all(error is not None for error in told["clock_error_us"])
    assert 0 == told["clock_error_us"][0]
    assert note in ended.out.replace("\n", " ")


def test_operators_come_from_each_board(rack: Boards, tmp_path: Path) -> None:
    folder = deployed_digits(rack, tmp_path)
    shown = trace(folder, frames=30, operators=True, ssh_config=rack.ssh_config)
    ranks = {
        shown.drawn.tracks[each.track].rank for each in shown.drawn.slices if each.kind == OPERATOR
    }
    assert {0, 1} == ranks
    clocks, operators = shown.notes
    assert "different boards" in clocks
    assert operators.startswith("timestamps of operators are accurate to ")
