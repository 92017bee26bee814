"""Networks of real size, sliced in many ways and run by mpirun, against the unsliced ones."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.plan import Plan
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.measurement.verify import Verification
from rankslice.networks.zoo import zoo_model, zoo_names
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.run import FinishedRun, prepare, run

pytestmark = pytest.mark.ci

CORES = sorted(os.sched_getaffinity(0))
KINDS = ("contiguous", "random", "interleaved")
FRAMES = 2

SMALL_WINDOW = 2
"""With every crossing tensor sent to the sink, a window as long as the path would hold some
gigabytes of them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network and how its layers are dealt out."""

    network: str
    kind: str
    ranks: int

    def __str__(self) -> str:
        return f"{self.network}-{self.kind}-{self.ranks}"

    def rank_of_layers(self, count: int) -> list[int]:
        """Return the rank of each of ``count`` layers, in file order."""
        if self.kind == "contiguous":
            return [layer * self.ranks // count for layer in range(count)]
        if self.kind == "interleaved":
            return [layer % self.ranks for layer in range(count)]
        draw = random.Random(f"{self}")
        return [draw.randrange(self.ranks) for _ in range(count)]


ALL = tuple(
    Case(network, kind, ranks=2 + (row + column) % 3)
    for row, network in enumerate(zoo_names())
    for column, kind in enumerate(KINDS)
)

Zoo = Callable[[str], Path]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    folder = tmp_path_factory.mktemp("zoo")
    yield lambda name: zoo_model(name, folder)
    shutil.rmtree(folder)  # up to 1.2 GB


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path)  # up to 1.2 GB


def key(rank: int) -> str:
    """Return a mapping key: ranks take the cores of this machine in turn."""
    turn, core = divmod(rank, len(CORES))
    return f"local_cpu{CORES[core]}" + (f".{turn + 1}" if turn else "")


def write_mapping(case: Case, model: Path, path: Path) -> Path:
    layers = [layer.name for layer in read_onnx(model).graph.layers]
    mapping: dict[str, list[str]] = {key(rank): [] for rank in range(case.ranks)}
    for layer, rank in zip(layers, case.rank_of_layers(len(layers)), strict=True):
        mapping[key(rank)].append(layer)
    path.write_text(json.dumps(mapping))
    return path


def run_case(
    case: Case, model: Path, workshop: Path, *, exact: bool, window: int | None = None
) -> tuple[Plan, FinishedRun]:
    mapping = write_mapping(case, model, workshop / "mapping.json")
    built = build(model, mapping, "local", workshop / "out", BuildOptions(share_cores=True))
    options = RunOptions(frames=FRAMES, window=window, exact=exact)
    return built.plan, run(prepare(built.folder, options), verify=True)


def verdict_of(finished: FinishedRun) -> Verification:
    assert finished.summary.verify is not None
    return finished.summary.verify


def crossing(plan: Plan) -> set[str]:
    """Return the tensors that go from one rank to another, model inputs and outputs aside."""
    ends = {*plan.inputs, *plan.outputs}
    return {channel.tensor for channel in plan.channels} - ends


def with_outputs(model: Path, names: set[str], path: Path) -> Path:
    """Write the model with ``names`` as further outputs; return the file."""
    content = onnx.load(model)
    tensors = {t.name: t for layer in read_onnx(model).graph.layers for t in layer.outputs}
    for name in sorted(names):
        dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensors[name].dtype))
        value = onnx.helper.make_tensor_value_info(name, dtype, tensors[name].shape)
        content.graph.output.append(value)
    onnx.save(content, path)
    return path


def check_exact(case: Case, model: Path, workshop: Path) -> None:
    _, finished = run_case(case, model, workshop, exact=True)
    verdict = verdict_of(finished)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)
    assert case.ranks == len(finished.summary.ranks)


def check_as_deployed(case: Case, model: Path, workshop: Path) -> None:
    _, finished = run_case(case, model, workshop, exact=False)
    verdict = verdict_of(finished)
    assert ("", FRAMES) == (verdict.complaint, verdict.frames)
    assert verdict.max_rel_diff <= 1e-5


def check_cuts(case: Case, model: Path, workshop: Path) -> Plan:
    """Compare what crosses the cuts of ``case`` too; return the plan that was run.

    Not one of these tensors is constant or saturated, so the check of the reference holds for all.
    """
    mapping = write_mapping(case, model, workshop / "mapping.json")
    plan = build(model, mapping, "local", workshop / "plain", BuildOptions(share_cores=True)).plan
    shutil.rmtree(workshop / "plain")
    expected = crossing(plan)
    declared = with_outputs(model, expected, workshop / "declared.onnx")
    ran, finished = run_case(case, declared, workshop, exact=True, window=SMALL_WINDOW)
    compared = {spec.name for spec in finished.results.outputs}
    verdict = verdict_of(finished)
    assert expected
    assert {*plan.outputs, *expected} == compared
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)
    return ran


@pytest.mark.parametrize(
    "case",
    [
        Case("squeezenet", "random", 3),
        Case("inception_v1", "contiguous", 2),
        Case("resnet50", "interleaved", 2),
    ],
    ids=str,
)
def test_tensors_that_cross_cuts_are_bit_equal(zoo: Zoo, workshop: Path, case: Case) -> None:
    check_cuts(case, zoo(case.network), workshop)


@pytest.mark.parametrize(
    "case",
    [
        Case("shufflenet", "interleaved", 4),
        Case("inception_v1", "random", 3),
        Case("resnet50", "random", 3),
    ],
    ids=str,
)
def test_optimised_engines_agree_within_tolerance(zoo: Zoo, workshop: Path, case: Case) -> None:
    check_as_deployed(case, zoo(case.network), workshop)


def test_weights_that_differ_in_their_last_bit_are_noticed(zoo: Zoo, workshop: Path) -> None:
    case = Case("squeezenet", "contiguous", 2)
    model = zoo(case.network)
    mapping = write_mapping(case, model, workshop / "mapping.json")
    built = build(model, mapping, "local", workshop / "out", BuildOptions(share_cores=True))
    path = built.folder / built.plan.segments[0].file
    content = onnx.load(path)
    weight = content.graph.initializer[0]
    changed = np.nextafter(numpy_helper.to_array(weight), np.float32(9))
    weight.CopyFrom(numpy_helper.from_array(changed, weight.name))
    path.unlink()  # the package has a link to it
    onnx.save(content, path)
    finished = run(prepare(built.folder, RunOptions(frames=FRAMES, exact=True)), verify=True)
    complaint = "results are not bit-equal to those of the unsliced model"
    assert (False, complaint) == (verdict_of(finished).passed, verdict_of(finished).complaint)


@pytest.mark.skipif(not {0, 1} <= set(CORES), reason="the shipped mappings name cores 0 and 1")
@pytest.mark.parametrize("network", ["resnet50", "squeezenet"])
def test_shipped_mappings_fit_their_networks(zoo: Zoo, workshop: Path, network: str) -> None:
    mapping = Path(str(files("rankslice") / "mappings" / f"{network}-two-ranks.json"))
    built = build(zoo(network), mapping, "local", workshop / "out")
    finished = run(prepare(built.folder, RunOptions(frames=FRAMES)), verify=True)
    assert "" == verdict_of(finished).complaint
    assert 2 == len(built.plan.segments)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_any_mapping_of_any_network_is_bit_equal(zoo: Zoo, workshop: Path, case: Case) -> None:
    check_exact(case, zoo(case.network), workshop)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_any_mapping_of_any_network_is_bit_equal_at_its_cuts(
    zoo: Zoo, workshop: Path, case: Case
) -> None:
    check_cuts(case, zoo(case.network), workshop)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_any_mapping_of_any_network_agrees_as_deployed(
    zoo: Zoo, workshop: Path, case: Case
) -> None:
    check_as_deployed(case, zoo(case.network), workshop)


@pytest.mark.slow
def test_cuts_around_every_layer_are_bit_equal(zoo: Zoo, workshop: Path) -> None:
    model = zoo("squeezenet")
    layers = len(read_onnx(model).graph.layers)
    plan = check_cuts(Case("squeezenet", "interleaved", layers), model, workshop)
    assert [1] * layers == [len(segment.layers) for segment in plan.segments]
