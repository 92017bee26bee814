"""``rankslice explore``: from a profile to mapping files, a table and a page."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chain_problems import write_chain
from command_line import Ended, rankslice

from rankslice.exploration.places import default_keys, kinds_and_places
from rankslice.exploration.problem import explored_layers
from rankslice.framework.commands.build import build
from rankslice.framework.hashing import file_sha256
from rankslice.framework.profile import (
    Core,
    MeasuredBoard,
    Profile,
    ProfiledKind,
    ProfiledModel,
    Span,
    profile_to_json,
)
from rankslice.framework.specs.read_platform import read_platform
from rankslice.frontend.formats import read_model

PLATFORM = """
boards:
  edge01: {host: 10.0.0.1, cores: 0-3, memory_mb: 4000, idle_w: 2, busy_w: 9}
  edge02: {host: 10.0.0.2, cores: 0-3, memory_mb: 4000, idle_w: 2, busy_w: 9}
links:
  default: {bandwidth_mbps: 1000, latency_ms: 0.2}
"""
LAYERS = 6


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a platform, and a profile: the n-th layer takes n ms."""
    write_chain(tmp_path / "chain.onnx", LAYERS)
    (tmp_path / "boards.yaml").write_text(PLATFORM)
    write_profile(tmp_path, "boards.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_profile(folder: Path, platform: str, *, per_core: bool = False) -> None:
    where = platform if platform == "local" else str(folder / platform)
    boards = read_platform(where)
    keys = default_keys(boards, per_core=per_core)
    kinds, places = kinds_and_places(keys, boards)
    graph = read_model(folder / "chain.onnx").graph
    names = tuple(layer.name for layer in explored_layers(graph))
    digest = file_sha256(folder / "chain.onnx")
    profile = Profile(
        ProfiledModel("chain.onnx", digest, graph.inputs, names),
        tuple(
            profiled(kind.key, tuple(p.key for p in places if p.kind == number))
            for number, kind in enumerate(kinds)
        ),
    )
    (folder / "profile.json").write_text(profile_to_json(profile))


def ms(first: int, last: int) -> int:
    """Return what layers take together: the first 1 ms, the second 2 ms and so on."""
    return sum(range(first + 1, last + 2))


def profiled(key: str, keys: tuple[str, ...]) -> ProfiledKind:
    return ProfiledKind(
        key=key,
        keys=keys,
        accelerator="cpu",
        threads=4,
        engine="onnxruntime",
        engine_version="1.31.1",
        options=(),
        environment=(),
        allow_fallback=False,
        neighbours=(),
        rank_bytes=50_000_000,
        board=MeasuredBoard(
            "edge01", "edge01", "aarch64", "", "3.11", 4 << 30, (Core(0, None, None),), None, None
        ),
        spans=tuple(
            Span(first, last, (ms(first, last) * 1_000_000,), (1,), None, None, None, False)
            for first in range(LAYERS)
            for last in range(first, LAYERS)
        ),
    )


def span_ns(first: int, last: int) -> int:
    return sum(range(first + 1, last + 2)) * 1_000_000


def explore(*options: str) -> Ended:
    return rankslice(
        *("explore", "chain.onnx", "--platform", "boards.yaml", "--profile", "profile.json"),
        *options,
    )


def record(folder: Path, name: str = "explored") -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / name / "front.json").read_text())
    return found


def mapping_files(folder: Path) -> Iterator[Path]:
    yield from sorted((folder / "explored").glob("mapping-*.json"))


METHODS = [
    ["--method", "exact"],
    ["--method", "nsga2", "--generations", "20", "--population", "20"],
    ["--method", "nsga2", "--generations", "20", "--population", "20", "--coarse"],
    ["--method", "exhaustive"],
]


@pytest.mark.parametrize("options", METHODS, ids=" ".join)
def test_each_method_finds_the_best_cut(folder: Path, options: list[str]) -> None:
    if "nsga2" in options:
        pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    ended = explore(*options)
    assert (0, "") == (ended.code, ended.err)
    # 1 + 2 + 3 + 4 ms on one board, 5 + 6 on the other; 0.2 ms for a frame and 0.05 for a message.
    first = record(folder)["mappings"][0]  # type: ignore[index]
    assert first["figures"][0]["throughput_fps"] == pytest.approx(1 / 0.01125)
    assert {"edge01", "edge02"} == set(first["boards"])


@pytest.mark.parametrize("options", METHODS[:1] + METHODS[3:], ids=" ".join)
def test_build_takes_each_mapping_as_it_is(folder: Path, options: list[str]) -> None:
    assert 0 == explore(*options).code
    files = list(mapping_files(folder))
    assert 2 <= len(files)
    for number, file in enumerate(files):
        built = build(folder / "chain.onnx", file, folder / "boards.yaml", folder / f"out{number}")
        assert list(json.loads(file.read_text())) == [rank.key for rank in built.plan.ranks]


def test_the_question_of_the_camera_is_answered(folder: Path) -> None:
    ended = explore("--fps", "60")
    assert (
        "One board with CPU gives 47.2 frames/s, your camera needs 60.0: use mapping" in ended.out
    )
    assert "on two boards" in ended.out


def test_the_folder_has_a_table_and_a_page(folder: Path) -> None:
    explore()
    rows = list(csv.DictReader((folder / "explored" / "front.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == [file.name for file in mapping_files(folder)]
    page = (folder / "explored" / "index.html").read_text()
    assert "Mappings of chain.onnx on boards.yaml" in page


def test_energy_without_power_figures_is_left_out_and_said_so(folder: Path) -> None:
    text = PLATFORM.replace(", idle_w: 2, busy_w: 9", "")
    (folder / "boards.yaml").write_text(text)
    ended = explore()
    assert "Energy is left out: no sensor told it, and boards.yaml gives no power" in ended.out
    found = record(folder)
    assert ["throughput", "memory"] == found["objectives"]
    assert found["mappings"][0]["figures"][0]["worst_energy_j"] is None  # type: ignore[index]


def test_energy_from_power_figures_is_modelled(folder: Path) -> None:
    explore()
    figures = record(folder)["mappings"][0]["figures"][0]  # type: ignore[index]
    assert "modelled" == figures["energy_source"]
    assert 0 < figures["worst_energy_j"] < 1


def test_the_same_seed_finds_the_same(folder: Path) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    options = ["--method", "nsga2", "--generations", "5", "--seed", "7"]
    explore(*options)
    explore(*options, "--out", "again")
    first, second = (
        {file.name: file.read_bytes() for file in (folder / name).iterdir()}
        for name in ("explored", "again")
    )
    assert first == second


def test_a_model_that_nobody_measured_gives_the_command_that_measures_it(folder: Path) -> None:
    ended = rankslice("explore", "chain.onnx", "--platform", "boards.yaml")
    assert 1 == ended.code
    assert "rankslice profile chain.onnx --platform boards.yaml -o profile.json" in ended.err


def test_an_older_exploration_is_replaced_only_with_force(folder: Path) -> None:
    assert 0 == explore().code
    assert 1 == explore().code
    assert 0 == explore("--force").code
    (folder / "explored" / "notes.txt").write_text("mine")
    ended = explore("--force")
    assert 1 == ended.code
    assert "also holds 'notes.txt'" in ended.err
    assert (folder / "explored" / "notes.txt").exists()


def test_force_replaces_nothing_but_explorations(folder: Path) -> None:
    (folder / "explored").mkdir()
    ended = explore("--force")
    assert "has no front.json" in ended.err


def test_a_profile_of_another_model_is_refused(folder: Path) -> None:
    write_chain(folder / "chain.onnx", 9)
    ended = explore()
    assert 1 == ended.code
    assert "profile.json: is a profile of chain.onnx, whose layers are others" in ended.err
    assert not (folder / "explored").exists()


def test_an_accelerator_that_was_not_measured_is_named(folder: Path) -> None:
    ended = explore("--accelerators", "edge01_cpu0;edge02_cpu0-3")
    assert 1 == ended.code
    assert "no accelerator like edge01_cpu0 was measured" in ended.err


def test_boards_without_enough_memory_have_no_mapping(folder: Path) -> None:
    (folder / "boards.yaml").write_text(PLATFORM.replace("4000", "10"))
    ended = explore()
    assert 1 == ended.code
    assert "no mapping of chain.onnx that can run was found" in ended.err
    assert not (folder / "explored").exists()


def test_an_unknown_objective_is_refused(folder: Path) -> None:
    ended = explore("--objectives", "throughput,memmory")
    assert 1 == ended.code
    assert "there is no objective 'memmory'; did you mean 'memory'?" in ended.err


def test_exhaustive_search_tells_how_many_mappings_there_are(folder: Path) -> None:
    write_chain(folder / "chain.onnx", 40)
    global LAYERS
    LAYERS = 40
    try:
        write_profile(folder, "boards.yaml")
    finally:
        LAYERS = 6
    ended = explore("--method", "exhaustive")
    assert 1 == ended.code
    assert "40 layers on 2 accelerators can be mapped in 1.10 T ways" in ended.err


def test_json_on_stdout_stands_alone(folder: Path) -> None:
    ended = explore("--json", "-")
    assert "rankslice-front" == json.loads(ended.out)["format"]


def test_the_front_can_be_simulated(folder: Path) -> None:
    ended = explore("--evaluate", "simulator", "--frames", "50")
    assert (0, "") == (ended.code, ended.err)
    predicted, simulated = record(folder)["mappings"][0]["figures"]  # type: ignore[index]
    assert "simulated" == simulated["source"]
    assert simulated["throughput_fps"] == pytest.approx(predicted["throughput_fps"], rel=0.05)
    assert predicted["worst_memory_bytes"] == simulated["worst_memory_bytes"]


def test_the_front_can_be_run_for_real(folder: Path) -> None:
    write_profile(folder, "local")
    ended = rankslice(
        *("explore", "chain.onnx", "--profile", "profile.json", "--evaluate", "run"),
        *("--runs", "1", "--frames", "30"),
    )
    assert (0, "") == (ended.code, ended.err)
    first = record(folder)["mappings"][0]  # type: ignore[index]
    assert ["predicted", "measured"] == [each["source"] for each in first["figures"]]
    assert 0 < first["figures"][1]["throughput_fps"]
    assert 0 < first["ranks"][0]["measured_ms"]
    assert "Rates of mapping 1 are measured" in ended.out


def test_a_mapping_that_does_not_run_is_named_and_the_others_stay(folder: Path) -> None:
    # These boards are not there.
    ended = explore("--evaluate", "run", "--runs", "1")
    assert 0 == ended.code
    assert "did not run" in ended.out
    assert 2 <= len(list(mapping_files(folder)))


def test_what_was_measured_is_what_may_be_used(folder: Path) -> None:
    write_profile(folder, "boards.yaml", per_core=True)
    ended = explore("--objectives", "throughput")
    assert (0, "") == (ended.code, ended.err)
    keys = {rank["key"] for rank in record(folder)["mappings"][0]["ranks"]}  # type: ignore[index]
    assert keys <= {f"edge0{board}_cpu{core}" for board in (1, 2) for core in range(4)}


def test_a_profile_of_other_boards_is_refused(folder: Path) -> None:
    (folder / "boards.yaml").write_text(PLATFORM.replace("edge0", "pi"))
    ended = explore()
    assert 1 == ended.code
    assert "profile.json: measured no accelerator of these boards" in ended.err
