"""Networks of real size, sliced in many ways and run by mpirun, against the unsliced ones."""

from __future__ import annotations

import json
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
from real_jobs import CORES, check_as_deployed, check_exact, shared_keys, verified

from rankslice.framework.plan import Plan
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.networks.zoo import zoo_model, zoo_names
from rankslice.session.building.build import Build, BuildOptions, build

pytestmark = pytest.mark.ci

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


def write_mapping(case: Case, model: Path, path: Path) -> Path:
    layers = [layer.name for layer in read_onnx(model).graph.layers]
    keys = shared_keys(case.ranks)
    mapping: dict[str, list[str]] = {key: [] for key in keys}
    for layer, rank in zip(layers, case.rank_of_layers(len(layers)), strict=True):
        mapping[keys[rank]].append(layer)
    path.write_text(json.dumps(mapping))
    return path


def built_case(case: Case, model: Path, workshop: Path) -> Build:
    mapping = write_mapping(case, model, workshop / "mapping.json")
    return build(model, mapping, "local", workshop / "out", BuildOptions(share_cores=True))


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


def check_cuts(case: Case, model: Path, workshop: Path) -> Plan:
    """Compare what crosses the cuts of ``case`` too; return the plan that was run.

    Not one of these tensors is constant or saturated, so the check of the reference holds for all.
    """
    plan = built_case(case, model, workshop).plan
    shutil.rmtree(workshop / "out")
    expected = crossing(plan)
    built = built_case(case, with_outputs(model, expected, workshop / "declared.onnx"), workshop)
    assert expected
    assert {*plan.outputs, *expected} == {*built.plan.outputs}
    check_exact(built.folder, FRAMES, window=SMALL_WINDOW)
    return built.plan


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
    check_as_deployed(built_case(case, zoo(case.network), workshop).folder, FRAMES)


def test_weights_that_differ_in_their_last_bit_are_noticed(zoo: Zoo, workshop: Path) -> None:
    case = Case("squeezenet", "contiguous", 2)
    built = built_case(case, zoo(case.network), workshop)
    path = built.folder / built.plan.segments[0].file
    content = onnx.load(path)
    weight = content.graph.initializer[0]
    changed = np.nextafter(numpy_helper.to_array(weight), np.float32(9))
    weight.CopyFrom(numpy_helper.from_array(changed, weight.name))
    path.unlink()  # the package has a link to it
    onnx.save(content, path)
    verdict = verified(built.folder, FRAMES)
    complaint = "results are not bit-equal to those of the unsliced model"
    assert (False, complaint) == (verdict.passed, verdict.complaint)


@pytest.mark.skipif(not {0, 1} <= set(CORES), reason="the shipped mappings name cores 0 and 1")
@pytest.mark.parametrize("network", ["resnet50", "squeezenet"])
def test_shipped_mappings_fit_their_networks(zoo: Zoo, workshop: Path, network: str) -> None:
    mapping = Path(str(files("rankslice") / "mappings" / f"{network}-two-ranks.json"))
    built = build(zoo(network), mapping, "local", workshop / "out")
    assert "" == verified(built.folder, FRAMES, exact=False).complaint
    assert 2 == len(built.plan.segments)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_any_mapping_of_any_network_is_bit_equal(zoo: Zoo, workshop: Path, case: Case) -> None:
    built = built_case(case, zoo(case.network), workshop)
    assert case.ranks == len(built.plan.ranks)
    check_exact(built.folder, FRAMES)


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
    check_as_deployed(built_case(case, zoo(case.network), workshop).folder, FRAMES)


@pytest.mark.slow
def test_cuts_around_every_layer_are_bit_equal(zoo: Zoo, workshop: Path) -> None:
    model = zoo("squeezenet")
    layers = len(read_onnx(model).graph.layers)
    plan = check_cuts(Case("squeezenet", "interleaved", layers), model, workshop)
    assert [1] * layers == [len(segment.layers) for segment in plan.segments]
