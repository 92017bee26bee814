"""``rankslice explore``: from a profile to mapping files, a table and a page."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import onnx
import pytest
from chain_problems import write_chain
from command_line import Ended, rankslice, succeed
from conv_networks import write_network
from kept_runs import rank_run, run_record
from needed import NEEDS_FIRST_CORES
from predicted_plans import predict_plan
from real_jobs import give_sensors

from rankslice.exploration.objectives import OBJECTIVES
from rankslice.exploration.problem.devices import default_keys, kinds_and_devices
from rankslice.exploration.problem.make_problem import profiled_problem
from rankslice.exploration.problem.problem import explored_layers
from rankslice.exploration.results.candidates import Candidate
from rankslice.exploration.times.span_times import first_spans
from rankslice.framework.errors import InterruptedRunError, RankSliceError
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.plan import Plan
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
from rankslice.measurement.summary import RunSummary
from rankslice.session.build_folder import read_plan
from rankslice.session.building.build import Build, build
from rankslice.session.building.planning import read_profile
from rankslice.session.exploring import evaluators
from rankslice.session.exploring.evaluators import MappingRunner

PLATFORM = """
boards:
  edge01: {host: 10.0.0.1, cores: 0-3, memory_mb: 4000, idle_w: 2, busy_w: 9}
  edge02: {host: 10.0.0.2, cores: 0-3, memory_mb: 4000, idle_w: 2, busy_w: 9}
links:
  default: {bandwidth_mbps: 1000, latency_ms: 0.2}
"""
LAYERS = 6
MODELS = Path(__file__).parents[3] / "models"
DIGITS, PARTS = MODELS / "digits.tflite", MODELS / "digit_detector-parts.yaml"


@pytest.fixture(autouse=True)
def first_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search by the cost model, before one by trials, take less time."""
    monkeypatch.setattr("rankslice.exploration.search.methods._FIRST_GENERATIONS", 5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a platform, and a profile: the n-th layer takes n ms."""
    write_chain(tmp_path / "chain.onnx", LAYERS)
    (tmp_path / "boards.yaml").write_text(PLATFORM)
    write_profile(tmp_path, "boards.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_profile(
    folder: Path, platform: str, *, per_core: bool = False, model: str = "chain.onnx"
) -> None:
    where = platform if platform == "local" else str(folder / platform)
    boards = read_platform(where)
    keys = default_keys(boards, per_core=per_core)
    kinds, devices = kinds_and_devices(keys, boards)
    graph = read_model(folder / model).graph
    names = tuple(layer.name for layer in explored_layers(graph))
    profile = Profile(
        ProfiledModel(model, file_sha256(folder / model), graph.inputs, names),
        tuple(
            profiled(kind.key, tuple(p.key for p in devices if p.kind == number), len(names))
            for number, kind in enumerate(kinds)
        ),
    )
    (folder / "profile.json").write_text(profile_to_json(profile))


def ms(first: int, last: int) -> int:
    """Return what layers take together: the first 1 ms, the second 2 ms and so on."""
    return sum(range(first + 1, last + 2))


def profiled(key: str, keys: tuple[str, ...], layers: int = LAYERS) -> ProfiledKind:
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
            for first in range(layers)
            for last in range(first, layers)
        ),
    )


def sleeping_board(folder: Path) -> None:
    """Let the platform be this machine with a core that sleeps 2 ms for each slice."""
    cpu = {"engine": "null", "options": {"sleep_ms": "2"}}
    board = {"host": "localhost", "cores": [0], "cpu": cpu}
    (folder / "boards.yaml").write_text(json.dumps({"boards": {"local": board}}))
    (folder / "profile.json").unlink()


def explore_unmeasured(*options: str) -> Ended:
    return rankslice("explore", "chain.onnx", "--platform", "boards.yaml", *options)


def spans(profile: Profile) -> list[Span]:
    return [span for kind in profile.kinds for span in kind.spans]


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


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
    # 1 + 2 + 3 + 4 ms on one board, 5 + 6 on the other; 0.05 ms for a frame, 0.02 for a message of
    # 256 bytes, 3 ns for each of these, and 0.2 ms by which a slice takes longer in a pipeline.
    first = record(folder)["mappings"][0]  # type: ignore[index]
    assert first["figures"][0]["throughput_fps"] == pytest.approx(1 / (0.01127 + 256 * 3e-9))
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
        "One board with CPU gives 47.1 frames/s, your camera needs 60.0: use mapping" in ended.out
    )
    assert "on two boards" in ended.out


def test_the_rate_is_shown_for_each_number_of_equal_boards(folder: Path) -> None:
    ended = explore("--scaling", "1-3", "--like", "edge02")
    assert (0, "") == (ended.code, ended.err)
    points = record(folder)["scaling"]
    assert [1, 2, 3] == [point["number_of_boards"] for point in points]  # type: ignore[index]
    rates = [point["figures"][0]["throughput_fps"] for point in points]  # type: ignore[index]
    # 21 ms on one board; of two one has 1 + 2 + 3 + 4 ms; of three one has 1 + 2 + 3 + 4 or 5 or 6.
    assert rates[0] < rates[1] < rates[2]
    assert rates[1] == pytest.approx(1 / (0.01127 + 256 * 3e-9))
    boards = {board for point in points for board in point["boards"]}  # type: ignore[index]
    assert {"edge02", "edge02-2", "edge02-3"} == boards
    assert "speed-up" in ended.out
    assert "Scaling" in (folder / "explored" / "index.html").read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--scaling", "3-1"), "numbers of boards from 1 to 64, the smaller first"),
        (("--scaling", "two"), "expected two numbers of boards, such as 1-8"),
        (("--scaling", "1-2", "--like", "edge1"), "no board 'edge1'"),
        (("--like", "edge01"), "--scaling"),
        (("--scaling", "1-2", "--evaluate", "run"), "cannot be combined"),
    ],
)
def test_scaling_that_cannot_be_is_refused(
    folder: Path, options: tuple[str, ...], expected: str
) -> None:
    ended = explore(*options)
    assert ended.code
    assert expected in " ".join(ended.err.split())
    assert not (folder / "explored").exists()


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
    assert "Energy is left out: the profile has none, and boards.yaml gives no power" in ended.out
    found = record(folder)
    assert ["throughput", "memory"] == found["objectives"]
    assert found["mappings"][0]["figures"][0]["worst_energy_j"] is None  # type: ignore[index]


def test_energy_from_power_figures_is_modelled(folder: Path) -> None:
    ended = explore()
    assert "energy is modelled in predicted figures\n" in ended.out
    figures = record(folder)["mappings"][0]["figures"][0]  # type: ignore[index]
    assert "modelled" == figures["energy_source"]
    assert 0 < figures["worst_energy_j"] < 1


def test_the_same_seed_finds_the_same(folder: Path) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    options = ["--method", "nsga2", "--generations", "5", "--population", "20", "--seed", "7"]
    explore(*options)
    explore(*options, "--out", "again")
    first, second = (
        {file.name: file.read_bytes() for file in (folder / name).iterdir()}
        for name in ("explored", "again")
    )
    assert first == second


@NEEDS_FIRST_CORES
def test_without_a_profile_layers_are_measured_first(folder: Path) -> None:
    sleeping_board(folder)
    ended = explore_unmeasured()
    assert 0 == ended.code
    assert "no --profile is given: the times of all layers are measured first" in ended.err
    assert "kept as explored/profile.json" in ended.err
    assert "expected and measured times differ by" in ended.err
    profile = read_profile(folder / "explored" / "profile.json")
    assert {("local_cpu0",)} == {kind.keys for kind in profile.kinds}
    found = record(folder)
    assert "explored/profile.json" == found["profile"]
    # Each slice sleeps 2 ms.
    fps = found["mappings"][0]["figures"][0]["throughput_fps"]  # type: ignore[index]
    assert fps == pytest.approx(1 / 0.0022, rel=0.1)
    assert [] == list(folder.glob("explored.*"))


@pytest.mark.ci
def test_what_was_measured_is_gone_on_with(folder: Path) -> None:
    sleeping_board(folder)
    explore_unmeasured()
    first = read_profile(folder / "explored" / "profile.json")
    ended = explore_unmeasured("--force")
    assert "missing times of layers are measured first" in ended.err
    again = read_profile(folder / "explored" / "profile.json")
    # The fastest pipeline's one slice alone is looked at once more.
    assert 1 == sum(
        before != after for before, after in zip(spans(first), spans(again), strict=True)
    )


@pytest.mark.ci
def test_what_was_measured_before_an_interruption_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping_board(folder)
    monkeypatch.setattr("rankslice.commands.explore.explore.find_mappings", interrupt)
    ended = explore_unmeasured()
    assert 130 == ended.code
    assert "the measurements so far are in" in ended.err
    assert "explored.profile.json: run the same command to continue" in ended.err
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert 0 == explore_unmeasured().code
    assert [] == list(folder.glob("explored.*"))


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
    assert "has no front.json; --force replaces folders of explorations only" in ended.err


@pytest.mark.parametrize(
    ("model", "found"),
    [("nothere.onnx", "no such file"), (".", "is a folder without saved_model.pb")],
)
def test_a_wrong_model_is_told_before_a_folder_that_exists(
    folder: Path, model: str, found: str
) -> None:
    (folder / "explored").mkdir()
    ended = rankslice("explore", model)
    assert 1 == ended.code
    assert f"error: {model}: {found}; expected" in ended.err


def test_a_single_accelerator_is_told_with_the_way_to_more(folder: Path) -> None:
    one = {"edge01": {"host": "10.0.0.1", "cores": [0, 1, 2, 3]}}
    (folder / "boards.yaml").write_text(json.dumps({"boards": one}))
    write_profile(folder, "boards.yaml")
    hint = "There is only one accelerator, edge01_cpu0-3, so there is nothing to distribute:"
    ended = explore()
    assert hint in ended.out
    assert "least memory" not in ended.out
    assert hint not in explore("--accelerators", "edge01_cpu0-3", "--force").out
    write_profile(folder, "boards.yaml", per_core=True)
    assert "nothing to distribute" not in explore("--per-core", "--force").out


def test_rates_are_called_rough_where_layers_take_less_than_the_runtime(folder: Path) -> None:
    rough = "Rates are rough for layers this short"
    assert rough not in explore().out
    measured = read_profile(folder / "profile.json")
    kinds = (
        replace(kind, spans=tuple(replace(span, samples_ns=(9_000,)) for span in kind.spans))
        for kind in measured.kinds
    )
    quick = profile_to_json(replace(measured, kinds=tuple(kinds)))
    (folder / "profile.json").write_text(quick)
    told = explore("--force").out
    assert f"{rough}: of the 0.259 ms per frame of the fastest mapping, 0.25 ms are" in told


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


@pytest.mark.parametrize(
    "options",
    [[], ["--evaluate", "simulator"], ["--evaluate", "simulator", "--objectives", "latency"]],
    ids=" ".join,
)
def test_boards_without_enough_memory_have_no_mapping(folder: Path, options: list[str]) -> None:
    (folder / "boards.yaml").write_text(PLATFORM.replace("4000", "10"))
    ended = explore(*options)
    assert 1 == ended.code
    assert "no mapping of chain.onnx that can run was found" in ended.err
    assert not (folder / "explored").exists()


def test_an_exploration_of_a_profile_cut_short_says_what_it_is_worth(folder: Path) -> None:
    assert "extrapolated" not in explore().out
    profile = json.loads((folder / "profile.json").read_text())
    for kind in profile["kinds"]:
        ends = [(0, LAYERS - 1), (0, 0)]
        kind["spans"] = [s for s in kind["spans"] if (s["first"], s["last"]) in ends]
    (folder / "profile.json").write_text(json.dumps(profile))
    ended = explore("--force")
    of = len(first_spans(LAYERS))
    told = f"the times of {of - 2} of {of} slices are extrapolated from the 2 that were measured"
    assert 1 == ended.out.count(told)
    assert "; `rankslice profile -o profile.json` measures on" in ended.out
    assert told in " ".join(record(folder)["answer"])  # type: ignore[arg-type]


def test_json_on_stdout_stands_alone(folder: Path) -> None:
    ended = explore("--json", "-")
    assert "rankslice-front" == json.loads(ended.out)["format"]


SMALL = ["--generations", "3", "--population", "8"]


@pytest.mark.parametrize(
    "options",
    [
        ["--method", "exact"],
        pytest.param(["--method", "nsga2", *SMALL], marks=pytest.mark.ci),
        ["--method", "exhaustive"],
    ],
    ids=" ".join,
)
def test_mappings_can_be_simulated(folder: Path, options: list[str]) -> None:
    if "nsga2" in options:
        pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    ended = explore("--evaluate", "simulator", "--frames", "50", *options)
    assert (0, "") == (ended.code, ended.err)
    found = record(folder)
    predicted, simulated = found["mappings"][0]["figures"]  # type: ignore[index]
    assert "simulated" == simulated["source"]
    assert simulated["throughput_fps"] == pytest.approx(1 / (0.01127 + 256 * 3e-9))
    assert predicted["latency_ms"] < simulated["latency_ms"]
    assert predicted["worst_memory_bytes"] == simulated["worst_memory_bytes"]
    assert ("simulator", []) == (found["tried_by"], found["failures"])
    assert f"{found['tried']} mappings were simulated." in ended.out


def test_a_mapping_has_the_same_figures_wherever_it_is_predicted(folder: Path) -> None:
    explore("--objectives", "throughput,latency")
    known = ("--mapping", "explored/mapping-01.json", "--platform", "boards.yaml")
    known = (*known, "--profile", "profile.json", "--json", "-")
    figures = record(folder)["mappings"][0]["figures"][0]  # type: ignore[index]
    full = json.loads(rankslice("simulate", "chain.onnx", *known).out)
    assert figures["throughput_fps"] == pytest.approx(full["throughput_fps"])
    alone = json.loads(rankslice("simulate", "chain.onnx", *known, "--fps", "5").out)
    # The source wakes up and reads a frame first, and hears of its end 0.2 ms after the sink.
    read_ms = 0.3 + 0.06 + 256 * 0.2e-6
    assert read_ms + figures["latency_ms"] + 0.2 == pytest.approx(alone["latency_ms"]["p50"])
    # As benchmarks/prediction.py does it.
    boards = read_platform("boards.yaml")
    graph = read_model(folder / "chain.onnx").graph
    problem = profiled_problem(read_profile(folder / "profile.json"), graph, boards)
    mapping = folder / "explored" / "mapping-01.json"
    plan = build(folder / "chain.onnx", mapping, folder / "boards.yaml", folder / "out").plan
    prediction = predict_plan(problem, plan)
    assert figures["throughput_fps"] == pytest.approx(prediction.throughput_fps)
    assert figures["latency_ms"] == pytest.approx(1e3 * prediction.latency_s)


@pytest.mark.ci
def test_a_search_can_run_its_mappings(folder: Path) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    write_profile(folder, "local", per_core=True)
    run = ("explore", "chain.onnx", "--profile", "profile.json", "--evaluate", "run")
    options = ("--method", "nsga2", "--evaluations", "2", "--frames", "30")
    ended = rankslice(*run, *options)
    assert (0, "") == (ended.code, ended.err)
    found = record(folder)
    assert ("run", 2, []) == (found["tried_by"], found["tried"], found["failures"])
    first = found["mappings"][0]  # type: ignore[index]
    assert ["predicted", "measured"] == [each["source"] for each in first["figures"]]
    assert 0 < first["figures"][1]["throughput_fps"]
    assert 10e6 < first["figures"][1]["worst_memory_bytes"]
    assert 0 < first["ranks"][0]["measured_ms"]
    assert "2 mappings were built and run." in ended.out
    assert 2 == len((folder / "explored" / "runs.jsonl").read_text().splitlines())


def test_energy_of_runs_is_what_the_boards_sensor_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chip = folder / "sys" / "class" / "hwmon" / "hwmon0"
    chip.mkdir(parents=True)
    (chip / "name").write_text("ina219")
    (chip / "power1_input").write_text("5000000")

    def build_with_sensor(*arguments: Any, **options: Any) -> Build:
        built = build(*arguments, **options)
        give_sensors(built.folder, folder / "sys")
        return built

    monkeypatch.setattr("rankslice.session.exploring.evaluators.build", build_with_sensor)
    write_profile(folder, "local", per_core=True)
    run = ("explore", "chain.onnx", "--profile", "profile.json", "--evaluate", "run")
    ended = rankslice(*run, "--runs", "1", "--frames", "200")
    assert (0, "") == (ended.code, ended.err)
    assert "Energy is left out: the profile has none" in ended.out
    tried = [found for found in record(folder)["mappings"] if len(found["figures"]) > 1]  # type: ignore[attr-defined]
    (predicted, measured) = tried[0]["figures"]
    assert (None, "measured") == (predicted["energy_source"], measured["energy_source"])
    # 5 W; the start and the end of the run are in it, but not in the rate.
    assert 2 < measured["worst_energy_j"] * measured["throughput_fps"] < 20
    (line,) = (folder / "explored" / "runs.jsonl").read_text().splitlines()
    (told,) = json.loads(line)["run"]["energy"]
    assert ("local", measured["worst_energy_j"]) == (told["board"], told["mj_per_frame"] / 1e3)
    assert "energy is measured in measured figures\n" in ended.out
    assert "mJ (measured)" in (folder / "explored" / "index.html").read_text()


class TestRuns:
    """Runs that take what the model predicts, so that they take no time."""

    @pytest.fixture
    def ran(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the first keys of the mappings that are run."""
        told: list[str] = []

        def run(runs: MappingRunner, candidate: Candidate) -> RunSummary:
            told.append(candidate.ranks[0].key)
            return run_record(*(rank_run(0, load.key) for load in candidate.ranks)).summary

        monkeypatch.setattr(MappingRunner, "_run", run)
        return told

    def test_what_ran_is_not_run_again(self, folder: Path, ran: list[str]) -> None:
        assert 0 == explore("--evaluate", "run").code
        count = len(ran)
        assert count == record(folder)["tried"]
        assert 0 == explore("--evaluate", "run", "--force").code
        assert count == len(ran)
        assert count == record(folder)["tried"]

    def test_another_platform_is_another_run(self, folder: Path, ran: list[str]) -> None:
        explore("--evaluate", "run")
        count = len(ran)
        (folder / "boards.yaml").write_text(PLATFORM.replace("1000", "100"))
        explore("--evaluate", "run", "--force")
        assert count < len(ran)

    def test_after_an_interruption_the_same_command_goes_on(
        self, folder: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        explore("--evaluate", "run", "--out", "whole")
        count, undisturbed = len(ran), MappingRunner._run
        ran.clear()

        def run(runs: MappingRunner, candidate: Candidate) -> RunSummary:
            if ran:
                raise InterruptedRunError("interrupted")
            return undisturbed(runs, candidate)

        monkeypatch.setattr(MappingRunner, "_run", run)
        ended = explore("--evaluate", "run")
        assert 130 == ended.code
        assert "explored.runs.jsonl: run the same command to continue" in ended.err
        assert not (folder / "explored").exists()
        monkeypatch.setattr(MappingRunner, "_run", undisturbed)
        assert 0 == explore("--evaluate", "run").code
        assert count == len(ran)
        assert [] == list(folder.glob("explored.*"))

    def test_no_more_are_run_than_are_allowed(self, folder: Path, ran: list[str]) -> None:
        assert 0 == explore("--evaluate", "run", "--runs", "1").code
        assert 1 == len(ran)


def test_a_mapping_that_does_not_run_is_named_and_is_no_choice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(runs: MappingRunner, candidate: Candidate) -> RunSummary:
        if len(candidate.boards) > 1:
            raise RankSliceError("rank 1 on edge02 was killed: out of memory")
        return run_record(*(rank_run(0, load.key) for load in candidate.ranks)).summary

    monkeypatch.setattr(MappingRunner, "_run", run)
    ended = explore("--evaluate", "run")
    assert 0 == ended.code
    assert "l5..l6) did not run: rank 1 on edge02 was killed: out of memory." in ended.out
    found = record(folder)
    assert {1} == {len(each["boards"]) for each in found["mappings"]}  # type: ignore[attr-defined]
    reasons = [failure["reason"] for failure in found["failures"]]  # type: ignore[attr-defined]
    assert {"rank 1 on edge02 was killed: out of memory"} == set(reasons)
    assert "out of memory" in (folder / "explored" / "index.html").read_text()


@pytest.mark.parametrize(("mbps", "wire"), [(0.15, "float16"), (1000.0, "none")])
def test_float32_is_converted_where_a_link_would_limit(
    folder: Path, mbps: float, wire: str
) -> None:
    (folder / "boards.yaml").write_text(PLATFORM.replace("1000", str(mbps)))
    ended = explore("--wire", "auto")
    assert (0, "") == (ended.code, ended.err)
    link, _ = read_platform(folder / "explored" / "platform.yaml").link("edge01", "edge02")
    assert link
    assert (mbps, wire) == (link.bandwidth_mbps, link.wire)
    assert ("between edge01 and edge02 (float16)" in ended.out) == (wire == "float16")
    assert ("No link limits the rate" in ended.out) == (wire == "none")


def test_the_explored_platform_differs_in_its_links_alone(folder: Path) -> None:
    text = PLATFORM.replace("edge01", "on").replace("edge02", "off")
    (folder / "boards.yaml").write_text(text)
    write_profile(folder, "boards.yaml")
    assert 0 == explore("--wire", "float16").code
    given = read_platform(folder / "boards.yaml").with_wire("float16")
    assert replace(given, name="platform.yaml") == read_platform(
        folder / "explored" / "platform.yaml"
    )


@pytest.mark.parametrize("shape", ["1, 64", "4, 64", "4"])
def test_runs_with_integers_between_boards_get_frames_of_the_shape_of_inputs(
    shape: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"g (float[{shape}] x) => (float[{shape}] y) {{ [one] a = Relu(x) [two] y = Relu(a) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    onnx.save(model, folder / "chain.onnx")
    hosts = PLATFORM.replace("10.0.0.1", "localhost").replace("10.0.0.2", "localhost")
    (folder / "boards.yaml").write_text(hosts)
    write_profile(folder, "boards.yaml")
    converted = []

    def run(plan: Plan) -> SimpleNamespace:
        converted.append([one.max_error for one in plan.conversions])
        return SimpleNamespace(
            summary=run_record(*(rank_run(r.rank, r.key) for r in plan.ranks)).summary
        )

    monkeypatch.setattr(evaluators, "prepare", lambda built, *_: read_plan(built))
    monkeypatch.setattr(evaluators, "run", run)
    ended = explore("--wire", "int8", "--evaluate", "run", "--method", "exhaustive")
    assert (0, []) == (ended.code, record(folder)["failures"])
    assert any(None not in errors for errors in converted if errors)


def test_boards_that_are_not_there_run_nothing(folder: Path) -> None:
    (folder / "boards.yaml").write_text(PLATFORM.replace("10.0.0.", "no-such-board-"))
    ended = explore("--evaluate", "run", "--runs", "1", "--objectives", "throughput")
    # One mapping was tried; the others count as predicted.
    assert 0 == ended.code
    assert "1 mapping was built and run; 1 of them failed and counts as" in ended.out
    assert "did not run" in ended.out


@pytest.mark.ci
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


def test_an_objective_of_runs_alone_says_so_before_anything_is_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OBJECTIVES, "latency", replace(OBJECTIVES["latency"], evaluated=None))
    ended = explore_unmeasured("--objectives", "latency", "--method", "exhaustive")
    assert (1, "") == (ended.code, ended.out)
    assert (
        "error: --objectives: only runs tell 'latency', and mappings are not run;"
        " add --evaluate run\n"
    ) == ended.err
    assert not (folder / "explored").exists()


SURGE = ("--fps", "30", "--surge-fps", "80", "--turns", "2")


def test_a_pair_of_mappings_for_a_surge_can_be_built(folder: Path) -> None:
    command = ("explore", "chain.onnx", "--platform", "boards.yaml", "--profile", "profile.json")
    ended = succeed(*command, "--out", "found", *SURGE)
    numbers = json.loads((folder / "found/front.json").read_text())["routes"]
    assert ["normal", "surge"] == list(numbers)
    normal, surge = (f"mapping-{number:02}.json" for number in numbers.values())
    assert normal != surge
    assert f"--mapping {normal} --surge {surge}" in ended.out.replace("\n", " ")
    build = ("build", "chain.onnx", "--platform", "boards.yaml", "--out", "built")
    ended = succeed(*build, "--mapping", f"found/{normal}", "--surge", f"found/{surge}")
    assert "for a surge:" in ended.out


def compare(folder: Path, *options: str, model: str) -> Ended:
    known = ("--platform", "boards.yaml", "--profile", "profile.json", "--out", "explored")
    paths = [part if part.startswith("-") else str(folder / part) for part in known]
    return rankslice("explore", str(folder / model), "--splits", *paths, *options)


Compared = tuple[Path, Ended]


def compare_network(folder: Path, *options: str) -> Compared:
    """Compare strategies for a network of images whose n-th layer takes n ms, too."""
    write_network(folder / "network.onnx", size=16, hidden=256)
    (folder / "boards.yaml").write_text(PLATFORM)
    write_profile(folder, "boards.yaml", model="network.onnx")
    return folder, compare(folder, *options, model="network.onnx")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return compare_network(tmp_path_factory.mktemp("network"))


def test_each_strategy_has_its_best_mappings(network: Compared) -> None:
    folder, ended = network
    assert (0, "") == (ended.code, ended.err)
    strategies: Any = record(folder)["strategies"]
    wins = {strategy["name"]: strategy["wins"] for strategy in strategies}
    assert {"one accelerator", "pipeline", "ranks in turn", "outputs", "rows"} < {*wins}
    assert "throughput" in wins["ranks in turn"]
    assert "latency" in wins["rows and outputs"]


def test_build_takes_mappings_that_split_layers(network: Compared, tmp_path: Path) -> None:
    folder, _ = network
    model, boards = folder / "network.onnx", folder / "boards.yaml"
    count = 0
    for file, mapping in zip(
        sorted((folder / "explored").glob("mapping-*.json")),
        record(folder)["mappings"],  # type: ignore[call-overload]
        strict=True,
    ):
        items = json.loads(file.read_text())
        if any(isinstance(item, dict) for listed in items.values() for item in listed):
            assert items == {rank["key"]: rank["layers"] for rank in mapping["ranks"]}
            plan = build(model, file, boards, tmp_path / file.stem).plan
            assert list(items) == [rank.key for rank in plan.ranks]
            assert any("[1/2]" in name for s in plan.segments for name in s.layers)
            count += 1
    assert 3 <= count


def test_the_terminal_and_the_page_say_which_strategy_is_best(network: Compared) -> None:
    folder, ended = network
    (number,) = {
        strategy["best"]["throughput"]
        for strategy in record(folder)["strategies"]  # type: ignore[attr-defined]
        if "throughput" in strategy["wins"]
    }
    text = f"The best strategy by objective: throughput ranks in turn (mapping {number}); latency"
    page = (folder / "explored" / "index.html").read_text()
    for shown in (" ".join(ended.out.split()), page):
        assert text in shown
        assert "rows and outputs" in shown
        assert "by each objective; *: no strategy is better" in shown


@pytest.mark.ci
def test_mappings_of_all_strategies_can_be_simulated(tmp_path: Path) -> None:
    folder, ended = compare_network(tmp_path, "--evaluate", "simulator")
    assert (0, "") == (ended.code, ended.err)
    mappings: Any = record(folder)["mappings"]
    assert {"simulated"} == {one["figures"][-1]["source"] for one in mappings}
    assert record(folder)["tried"] == len(mappings)


def test_strategies_of_a_tflite_model_are_compared(folder: Path) -> None:
    shutil.copyfile(DIGITS, folder / "digits.tflite")
    write_profile(folder, "boards.yaml", model="digits.tflite")
    ended = compare(folder, model="digits.tflite")
    assert (0, "") == (ended.code, ended.err)
    strategies: Any = record(folder)["strategies"]
    assert {"rows", "outputs"} < {strategy["name"] for strategy in strategies}


def test_models_of_several_files_are_explored_on_several_boards(folder: Path) -> None:
    write_profile(folder, "boards.yaml", model=str(PARTS))
    ended = rankslice(
        *("explore", str(PARTS), "--platform", "boards.yaml", "--profile", "profile.json"),
        *("--out", "explored"),
    )
    assert (0, "") == (ended.code, ended.err)
    mappings: Any = record(folder)["mappings"]
    assert {1, 2} <= {len({load["board"] for load in one["ranks"]}) for one in mappings}


@pytest.mark.parametrize(
    ("model", "options", "complaint"),
    [
        ("chain.onnx", [], "--splits: no layers of chain.onnx can be split: "),
        (
            "chain.onnx",
            ["--accelerators", "edge01_cpu0-3"],
            "--splits: chain.onnx can run on 'edge01_cpu0-3' alone, so its layers cannot be split;"
            " expected two accelerators without a common core: --per-core uses single cores",
        ),
        (str(PARTS), [], "--splits: layers of .yaml models cannot be split"),
    ],
)
def test_models_that_cannot_be_split_are_refused(
    folder: Path, model: str, options: list[str], complaint: str
) -> None:
    ended = compare(folder, *options, model=model)
    assert (1, "") == (ended.code, ended.out)
    assert complaint in ended.err
    assert not (folder / "explored").exists()
