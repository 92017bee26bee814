"""``build --survive``: plans for boards that are left when some are lost."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from command_line import succeed
from profiled_layers import kind_of, profile_of
from real_jobs import chain

from rankslice.framework.errors import RankSliceError
from rankslice.session.build_folder import read_plan
from rankslice.session.building.build import Build, BuildOptions, build
from rankslice.session.building.plan_afresh import plan_afresh
from rankslice.session.deployment import plan_deployment
from rankslice.session.survival import read_survival

KEYS = ("a_cpu0-1", "b_cpu0-1", "c_cpu0-1")
ARCHITECTURES = {"a": "aarch64", "b": "aarch64", "c": "x86_64"}


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
    lines = [
        f"  {name}: {{host: 10.0.0.{n}, cores: 2, arch: {ARCHITECTURES[name]}{memory}}}"
        for n, name in enumerate(names, 1)
    ]
    (folder / "boards.yaml").write_text("\n".join(["boards:", *lines, ""]))


def built(folder: Path, *survive: str, **others: object) -> Build:
    given = {"profile": folder / "profile.json", "survive": survive, **others}
    options = BuildOptions(**given)  # type: ignore[arg-type]
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
    made = built(folder, "a", compress="zstd")
    (channel,) = read_plan(made.folder / "without" / "a").channels
    assert "zstd" == channel.compress == read_survival(made.folder).record.options.compress
    for name in ("profile.json", "boards.yaml", "mapping.json"):
        (folder / name).unlink()
    lost = frozenset({"b", "a"})
    assert read_survival(made.folder).fallback(lost) is None
    assert made.folder / "without" / "a+b" == plan_afresh(made.folder, lost)
    assert {"c"} == boards_of(made.folder / "without" / "a+b")
    assert made.folder / "without" / "a+b" == read_survival(made.folder).fallback(lost)
    with pytest.raises(RankSliceError, match="without a, b and c no board is left"):
        plan_afresh(made.folder, frozenset("abc"))


def test_the_line_of_a_fallback_says_what_is_lost_in_rate(folder: Path) -> None:
    names = ("mapping", "profile")
    given = [text for name in names for text in (f"--{name}", folder / f"{name}.json")]
    ended = succeed(
        *("build", folder / "model.onnx", *given, "--platform", folder / "boards.yaml"),
        *("--survive", "c,a", "--out", folder / "out"),
    )
    lines = [line for line in ended.out.splitlines() if line.startswith("without")]
    # 40 ms on the slowest now; without a: L0..L3 on b, or without c: three layers each.
    assert lines == [
        "without a: 2 ranks, predicted 24.8 frames/s (now 24.8)",
        "without c: 2 ranks, predicted 33.0 frames/s (now 24.8)",
    ]


@pytest.mark.parametrize(
    ("survive", "message"),
    [
        (("d",), r"no board 'd'; ranks are on a, b and c"),
        (("d", "e"), r"no board 'e'"),
    ],
)
def test_a_board_that_no_rank_is_on_is_refused(
    folder: Path, survive: tuple[str, ...], message: str
) -> None:
    with pytest.raises(RankSliceError, match=message):
        built(folder, *survive)
    assert not (folder / "out").exists()


def test_a_spare_board_may_take_over_but_cannot_be_lost(folder: Path) -> None:
    layers = {KEYS[0]: ["L0..L2"], KEYS[2]: ["L3..L5"]}
    (folder / "mapping.json").write_text(json.dumps(layers))
    made = built(folder, "a")
    assert {"b", "c"} == boards_of(made.fallbacks[0].folder)
    with pytest.raises(RankSliceError, match="no rank is on board 'b'"):
        built(folder, "b", force=True)


@pytest.mark.parametrize("option", ["profile", "surge", "source_board", "standby", "wire"])
def test_what_cannot_survive_is_refused(folder: Path, option: str) -> None:
    options, survive, message = {
        "profile": ({"profile": None}, ("a",), "give --profile"),
        "surge": ({"surge": folder / "mapping.json"}, ("a",), "build without --surge"),
        "source_board": ({"source_board": "a"}, ("a",), "that is what --source-board says"),
        "standby": ({"standby": True}, (), "give --survive, too"),
        "wire": ({"wire": "float16"}, ("a",), "keep float32 with --wire none"),
    }[option]
    with pytest.raises(RankSliceError, match=message):
        built(folder, *survive, **options)  # type: ignore[arg-type]


def test_frames_enter_where_they_did(folder: Path) -> None:
    made = built(folder, "a", source_board="c")
    for plan in (made.plan, made.fallbacks[0].plan):
        assert "c" == plan.ranks[plan.job.source].board


def test_the_only_board_cannot_be_lost(folder: Path) -> None:
    boards(folder, names="a")
    (folder / "mapping.json").write_text(json.dumps({KEYS[0]: ["L0..L5"]}))
    with pytest.raises(RankSliceError, match="a is the only board"):
        built(folder, "all")


def test_a_model_that_the_others_cannot_hold_is_an_error_of_the_build(folder: Path) -> None:
    boards(folder, memory_mb=0.5)  # a rank alone is counted with a megabyte
    with pytest.raises(RankSliceError, match="does not fit into the memory of the others"):
        built(folder, "a")


@pytest.mark.parametrize(("memory_mb", "fits"), [(9.0, True), (2.5, False)])
def test_standby_needs_memory_for_all_plans_at_once(
    folder: Path, memory_mb: float, fits: bool
) -> None:
    boards(folder, memory_mb=memory_mb)
    if fits:
        made = built(folder, "all", standby=True)
        assert read_survival(made.folder).record.standby
    else:
        with pytest.raises(RankSliceError, match=r"all plans at once need 3 MB of a, which has 2"):
            built(folder, "all", standby=True)


def test_ranks_may_take_turns_where_they_did(folder: Path) -> None:
    kinds = [kind_of(6, (10.0,), *KEYS)]
    (folder / "profile.json").write_text(profile_of(folder / "model.onnx", 6, *kinds))
    (folder / "mapping.json").write_text(json.dumps({"|".join(KEYS): ["L0..L5"]}))
    made = built(folder, "c")
    assert made.survival is not None
    assert made.survival.options.most_turns == 3
    assert made.survival.predicted_fps is not None
    assert made.survival.fallbacks[0].predicted_fps == pytest.approx(
        2 / 3 * made.survival.predicted_fps, rel=0.05
    )


def test_a_folder_built_again_keeps_no_older_fallback(folder: Path) -> None:
    built(folder, "all")
    made = built(folder, force=True)
    assert not (made.folder / "without").exists()
    with pytest.raises(RankSliceError, match="was built without --survive"):
        read_survival(made.folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 4}, "survival of version 4"),
        ({"standby": 1}, "expected true or false"),
        ({"fallbacks": [{"board": "../a", "predicted_fps": 1.0}]}, "the name of a board"),
        ({"model_sha256": "0"}, "belongs to another"),
    ],
)
def test_a_damaged_record_is_refused(folder: Path, change: dict[str, object], message: str) -> None:
    made = built(folder, "a")
    file = made.folder / "survival.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(RankSliceError, match=message):
        read_survival(made.folder)


def test_all_packages_are_deployed_with_what_they_are_for(folder: Path) -> None:
    made = built(folder, "a", "c")
    work = plan_deployment(made.folder, with_fallbacks=True).work
    assert ["a", "b", "c", "b (without a)", "c (without a)", "a (without c)", "b (without c)"] == [
        package.label for _, package in work
    ]
    assert ["b", "b", "b"] == [
        package.board
        for _, package in plan_deployment(made.folder, ["b"], with_fallbacks=True).work
    ]


def test_inspect_shows_the_fallbacks(folder: Path) -> None:
    built(folder, "a")
    ended = succeed("inspect", folder / "out")
    assert ended.out.endswith("without a: 2 ranks, predicted 24.8 frames/s (now 24.8)\n")
