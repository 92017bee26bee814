"""What the benchmark that makes AutoDiCE's figures again works out, without measuring anything."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from problems import GIGABIT, board, platform, problem
from profiled_layers import kind_of

from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.problem import explored_layers
from rankslice.exploration.search.search_options import GeneticOptions
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.profile import (
    Profile,
    ProfiledModel,
    profile_from_json,
    profile_to_json,
)
from rankslice.frontend.formats import read_model

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "models" / "digits.onnx"
ONE_CORE_NS, TWO_CORES_NS = 3_000_000, 2_000_000
"""Of each layer."""


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("autodice_figures")


def profile_text() -> str:
    """Return a profile of the digits' model: every layer takes the same."""
    graph = read_model(DIGITS).graph
    layers = tuple(layer.name for layer in explored_layers(graph))
    one = kind_of(len(layers), (ONE_CORE_NS / 1e6,), "local_cpu0")
    two = replace(kind_of(len(layers), (TWO_CORES_NS / 1e6,), "local_cpu0-1"), threads=2)
    kinds = tuple(replace(kind, rank_bytes=50_000_000) for kind in (one, two))
    model = ProfiledModel(DIGITS.name, file_sha256(DIGITS), graph.inputs, layers)
    return profile_to_json(Profile(model, kinds))


def whole_s(profile: Profile, key: str) -> float:
    kind = profile.kind_of(key)
    assert kind is not None
    last = len(profile.model.layers) - 1
    seconds = next(span.seconds for span in kind.spans if (span.first, span.last) == (0, last))
    assert seconds is not None
    return seconds


def test_boards_with_the_papers_speed_take_what_the_paper_says(figures: ModuleType) -> None:
    paper = figures.TABLE_2["resnet101"]
    boards = figures.boards_profile(profile_from_json(profile_text()), paper, "paper")
    assert pytest.approx(1 / 5.786, rel=1e-6) == whole_s(boards, "edge01_cpu0-1")
    assert pytest.approx(1 / 21.767, rel=1e-6) == whole_s(boards, "edge08_gpu")
    assert pytest.approx(1.5 / 5.786, rel=1e-6) == whole_s(boards, "edge08_cpu0")


def test_boards_with_this_machines_speed_have_a_faster_gpu_alone(figures: ModuleType) -> None:
    paper = figures.TABLE_2["resnet101"]
    measured = profile_from_json(profile_text())
    boards = figures.boards_profile(measured, paper, "here")
    expected = whole_s(measured, "local_cpu0-1")
    assert expected == whole_s(boards, "edge01_cpu0-1")
    assert pytest.approx(expected * 5.786 / 21.767, rel=1e-6) == whole_s(boards, "edge01_gpu")
    assert whole_s(measured, "local_cpu0") == whole_s(boards, "edge01_cpu0")


def test_power_is_the_papers_energy_times_its_rate(figures: ModuleType) -> None:
    cpu = 0.905 * 7.987 - figures.IDLE_W
    gpu = 0.650 * 12.807 - figures.IDLE_W
    found = figures.active_w(figures.TABLE_2["densenet121"])
    np.testing.assert_allclose(found, [cpu, gpu, cpu / 2])


def test_without_overlap_a_rank_computes_and_sends_one_after_the_other(figures: ModuleType) -> None:
    given = problem(boards=platform(board("edge01"), board("edge02"), link=GIGABIT))
    wire_s = 16 / 1.25e8 + 0.2e-3  # a tensor of 16 bytes
    devices = {device.key: number for number, device in enumerate(given.devices)}
    first, second = (devices[key] for key in ("edge01_cpu0-1", "edge02_cpu0-1"))
    found = figures.blocking_fps(predict(given, [first, second, second]))
    assert pytest.approx(1 / (2.0 + 3.0 + wire_s), rel=1e-9) == found


def test_a_small_search_is_reported_with_the_papers_figures_beside_it(
    figures: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")
    monkeypatch.setattr(figures, "model_of", lambda network, folder: DIGITS)
    monkeypatch.setattr(figures, "BOARDS", 2)
    (tmp_path / "vgg19.profile.json").write_text(profile_text())
    figures.search("vgg19", tmp_path, "paper", GeneticOptions(population=8, generations=2), 2)
    figures.report(tmp_path, None)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| VGG-19 |")
    ]
    by_point = {row[1]: row for row in rows}
    simulated, paper = by_point["one board, GPU"][5], by_point["one board, GPU"][7]
    assert "11.7" == paper
    assert pytest.approx(11.664, rel=0.02) == float(simulated)
    assert "1.00" == by_point["1"][6]
    assert 1 < float(by_point["2"][6]) <= 2.1
