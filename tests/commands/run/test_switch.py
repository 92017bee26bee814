"""Options that choose a route, and arrivals from a file: what is refused before the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.session.run import prepare


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (RunOptions(switch="normal"), "--switch"),
        (RunOptions(switch="surge"), "--switch"),
        (RunOptions(normal_fps=20.0), "--normal-fps"),
        (RunOptions(surge_queue=3), "--surge-queue"),
        (RunOptions(surge_above=0.8), "--surge-above"),
        (RunOptions(normal_below=0.5), "--normal-below"),
        (RunOptions(normal_after_s=2.0), "--normal-after"),
    ],
)
def test_where_there_is_one_route_none_is_chosen(
    built: Path, options: RunOptions, flag: str
) -> None:
    with pytest.raises(RankSliceError) as error:
        prepare(built, options)
    expected = f"{built}: {flag}: there is one route; build with --surge MAPPING for a second one"
    assert expected == str(error.value)


def test_a_trace_is_read_where_there_is_one_route(built: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text("0\n0.5\n")
    prepared = prepare(built, RunOptions(arrivals=tmp_path / "trace.txt"))
    assert f"--arrivals={tmp_path}/trace.txt" in prepared.command
    (tmp_path / "trace.txt").write_text("0.5\n0\n")
    with pytest.raises(RankSliceError, match=r"trace.txt, line 2: 0 comes after 0.5"):
        prepare(built, RunOptions(arrivals=tmp_path / "trace.txt"))
