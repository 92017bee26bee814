"""Weights of ranks in turn that a profile decides."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from command_line import rankslice, succeed
from profiled_layers import kind_of, profile_of
from real_jobs import chain

from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.inspecting.inspect import inspect_model

BOTH = "fast_cpu0|slow_cpu0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A chain of four layers, two boards, and a profile: 10 ms a layer on one, 20 on the other."""
    (tmp_path / "boards.yaml").write_text("boards: {fast: {cores: 2}, slow: {cores: 2}}\n")
    onnx.save(chain(4), tmp_path / "model.onnx")
    mapping(tmp_path, {BOTH: "L0..L3"})
    kinds = (kind_of(4, (10.0,), "fast_cpu0"), kind_of(4, (20.0,), "slow_cpu0"))
    (tmp_path / "profile.json").write_text(profile_of(tmp_path / "model.onnx", 4, *kinds))
    return tmp_path


def mapping(folder: Path, layers: dict[str, str], name: str = "mapping.json") -> Path:
    file = folder / name
    file.write_text(json.dumps({key: [text] for key, text in layers.items()}))
    return file


def planned(folder: Path, surge: Path | None = None) -> Plan:
    options = BuildOptions(profile=folder / "profile.json", surge=surge)
    parts = (folder / name for name in ("model.onnx", "mapping.json", "boards.yaml", "out"))
    return build(*parts, options).plan


def turns_of(plan: Plan) -> list[str]:
    return [str(rank.turns) for rank in plan.ranks]


def test_build_prints_the_weights_and_what_they_rest_on(folder: Path) -> None:
    options = {name: folder / f"{name}.json" for name in ("mapping", "profile")}
    given = [text for name, file in options.items() for text in (f"--{name}", str(file))]
    ended = succeed(
        *("build", folder / "model.onnx", *given, "--platform", folder / "boards.yaml"),
        *("--out", folder / "out"),
    )
    lines = ended.out.splitlines()
    assert "weights: fast_cpu0*2|slow_cpu0*1 (40 and 80 ms a frame, by profile.json)" in lines


def test_the_layers_of_the_entry_count(folder: Path) -> None:
    file = folder / "profile.json"
    profile = json.loads(file.read_text())
    slow = next(kind for kind in profile["kinds"] if kind["key"] == "slow_cpu0")
    for span in slow["spans"]:
        if span["first"] >= 2:
            span["samples_ns"] = [3 * sample for sample in span["samples_ns"]]
    file.write_text(json.dumps(profile))
    mapping(folder, {"fast_cpu1": "L0..L1", BOTH: "L2..L3"})
    assert ["all", "0, 1, 2, 4, 5, 6 of 7", "3 of 7"] == turns_of(planned(folder))


@pytest.mark.parametrize("key", ["fast_cpu0*1|slow_cpu0*1", "fast_cpu0|slow_cpu0*1"])
def test_weights_of_a_mapping_stay(folder: Path, key: str) -> None:
    mapping(folder, {key: "L0..L3"})
    assert ["0 of 2", "1 of 2"] == turns_of(planned(folder))


def test_each_route_has_weights_of_its_own(folder: Path) -> None:
    mapping(folder, {"fast_cpu0": "L0..L3"})
    plan = planned(folder, mapping(folder, {BOTH: "L0..L3"}, "surge.json"))
    assert ["all", "all"] == turns_of(plan)
    assert plan.surge is not None
    assert ["0, 2 of 3", "1 of 3"] == [str(rank.turns) for rank in plan.surge.ranks]


def test_inspect_shows_the_same_ranks_as_build(folder: Path) -> None:
    files = [folder / name for name in ("mapping.json", "boards.yaml", "profile.json")]
    mapped, boards, profile = files
    options = BuildOptions(profile=profile)
    found = inspect_model(folder / "model.onnx", mapped, boards, options).plan
    assert found is not None
    assert ["0, 2 of 3", "1 of 3"] == turns_of(found)


def test_simulate_takes_the_same_weights(folder: Path) -> None:
    ended = rankslice(
        *("simulate", folder / "model.onnx", "--mapping", folder / "mapping.json"),
        *("--profile", folder / "profile.json", "--platform", folder / "boards.yaml"),
    )
    assert "0, 2 of 3" in ended.out


def test_a_rank_too_slow_to_help_is_told(folder: Path) -> None:
    kinds = (kind_of(4, (1.0,), "fast_cpu0"), kind_of(4, (20.0,), "slow_cpu0"))
    (folder / "profile.json").write_text(profile_of(folder / "model.onnx", 4, *kinds))
    options = BuildOptions(profile=folder / "profile.json")
    parts = (folder / name for name in ("model.onnx", "mapping.json", "boards.yaml", "out"))
    assert [
        "fast_cpu0 alone would handle more frames than in turn with slower ones:"
        " fast_cpu0*11|slow_cpu0*1 (4 and 80 ms a frame, by profile.json)"
    ] == [*build(*parts, options).warnings]


def refused(folder: Path) -> str:
    with pytest.raises(RankSliceError) as caught:
        planned(folder)
    assert not (folder / "out").exists()
    return str(caught.value)


def test_an_accelerator_that_was_not_profiled_is_named_with_both_ways_out(folder: Path) -> None:
    kind = kind_of(4, (10.0,), "fast_cpu0")
    (folder / "profile.json").write_text(profile_of(folder / "model.onnx", 4, kind))
    text = refused(folder)
    assert "profile.json: the accelerator 'slow_cpu0' was not measured; " in text
    assert "or name weights in the mapping, such as edge01_gpu*2|edge02_gpu*1" in text


def test_accelerators_of_other_entries_need_no_profile(folder: Path) -> None:
    mapping(folder, {"slow_cpu1": "L0..L1", BOTH: "L2..L3"})
    assert ["all", "0, 2 of 3", "1 of 3"] == turns_of(planned(folder))


def test_a_profile_of_another_model_decides_nothing(folder: Path) -> None:
    onnx.save(chain(4, 32), folder / "model.onnx")
    assert "profile.json: is a profile of another 'model.onnx'" in refused(folder)
