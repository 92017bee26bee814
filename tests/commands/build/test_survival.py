"""``build --survive``: plans for boards that are left when some are lost."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from profiled_layers import kind_of, profile_of
from real_jobs import chain

from rankslice.commands.build.build import Build, BuildOptions, build
from rankslice.commands.build.survival import plan_afresh
from rankslice.commands.build_folder import read_plan
from rankslice.commands.survival import read_survival
from rankslice.framework.errors import RankSliceError

KEYS = ("a_cpu0-1", "b_cpu0-1", "c_cpu0-1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A chain of six layers on three boards; 10 ms a layer on two of them, 20 on the third."""
    boards(tmp_path)
    onnx.save(chain(6), tmp_path / "model.onnx")
    layers = {key: [f"L{2 * n}..L{2 * n + 1}"] for n, key in enumerate(KEYS)}
    (tmp_path / "mapping.json").write_text(json.dumps(layers))
    kinds = (kind_of(6, (10.0,), *KEYS[:2]), kind_of(6, (20.0,), KEYS[2]))
    (tmp_path / "profile.json").write_text(profile_of(tmp_path / "model.onnx", 6, *kinds))
    return tmp_path


def boards(folder: Path, memory_mb: float | None = None, names: str = "abc") -> None:
    memory = "" if memory_mb is None else f", memory_mb: {memory_mb}"
    lines = [f"  {name}: {{host: 10.0.0.{n}, cores: 2{memory}}}" for n, name in enumerate(names, 1)]
    (folder / "boards.yaml").write_text("\n".join(["boards:", *lines, ""]))


def built(folder: Path, *survive: str, **others: object) -> Build:
    options = BuildOptions(profile=folder / "profile.json", survive=survive, **others)  # type: ignore[arg-type]
    parts = (folder / name for name in ("model.onnx", "mapping.json", "boards.yaml", "out"))
    return build(*parts, options)


def boards_of(folder: Path) -> set[str]:
    return {rank.board for rank in read_plan(folder).ranks}


def test_each_board_that_may_go_has_a_plan_for_the_others(folder: Path) -> None:
    made = built(folder, "all")
    survival = read_survival(made.folder)
    assert {"a", "b", "c"} == survival.boards
    for board in survival.boards:
        other = survival.fallback(frozenset({board}))
        assert other == made.folder / "without" / board
        assert {"a", "b", "c"} - {board} == boards_of(other)
        assert (other / "model").resolve() == (folder / "model.onnx").resolve()
    assert {"a", "b", "c"} == boards_of(made.folder)


def test_a_second_loss_is_planned_afresh_from_what_was_kept(folder: Path) -> None:
    made = built(folder, "a")
    for name in ("profile.json", "boards.yaml", "mapping.json"):
        (folder / name).unlink()
    lost = frozenset({"b", "a"})
    assert read_survival(made.folder).fallback(lost) is None
    assert made.folder / "without" / "a+b" == plan_afresh(made.folder, lost)
    assert {"c"} == boards_of(made.folder / "without" / "a+b")
    assert made.folder / "without" / "a+b" == read_survival(made.folder).fallback(lost)
    with pytest.raises(RankSliceError, match="without a, b and c no board is left"):
        plan_afresh(made.folder, frozenset("abc"))
