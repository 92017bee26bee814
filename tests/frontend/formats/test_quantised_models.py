"""Quantised models: quantisers go with the layers that they serve, and integers cross cuts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import read
from quantised import KINDS, averaging_cnn, images, quantised_cnn
from slices import check_slices, random_values, run_sliced, run_whole

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.quantisers import is_quantiser
from rankslice.framework.specs.assign import assign
from rankslice.frontend.formats.onnx.quantised_cuts import (
    parted_groups,
    parted_signed_averages,
    quantised_cut_warnings,
)
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.partition.partition import Partition, in_turns, partition

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
PAIRS = (
    HEAD
    + """g (float[1, 4] x) => (float[1, 4] y)
    <float s = {0.1}, uint8 z = {128}, int8[4] wq = {10, -20, 30, 40}, int8 wz = {0}>
    { [xq] a = QuantizeLinear(x, s, z)
      [xd] b = DequantizeLinear(a, s, z)
      [wd] w = DequantizeLinear(wq, s, wz)
      [first] c = Mul(b, w)
      [cq] d = QuantizeLinear(c, s, z)
      [cd] e = DequantizeLinear(d, s, z)
      [second] f = Neg(e)
      [third] g = Add(e, w)
      [fq] h = QuantizeLinear(f, s, z)
      [fd] i = DequantizeLinear(h, s, z)
      [fourth] j = Mul(i, g)
      [jq] k = QuantizeLinear(j, s, z)
      [jd] y = DequantizeLinear(k, s, z) }"""
)


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return read_onnx(quantised_cnn(request.param, tmp_path_factory.mktemp(request.param)))


def cut(graph: Graph, **layers: str) -> Partition:
    """Return the partition of a mapping with a rank per word, its layers separated by spaces."""
    entries = tuple(MappingEntry(key, tuple(names.split())) for key, names in layers.items())
    return partition(graph, assign(Mapping("mapping.json", entries), graph).entry_of)


def held(found: Partition) -> list[tuple[int, str]]:
    return [(s.rank, " ".join(layer.name for layer in s.layers)) for s in found.segments]


def crossing(found: Partition) -> list[tuple[str, str]]:
    return [(t.name, t.dtype) for segment in found.segments for t in segment.outputs]


def real_layers(graph: Graph) -> list[str]:
    return [layer.name for layer in graph.layers if not is_quantiser(layer)]


def test_quantisers_go_with_what_makes_and_dequantisers_with_what_reads(tmp_path: Path) -> None:
    found = cut(read(tmp_path, PAIRS).graph, a_cpu0="first second", a_cpu1="third fourth")
    assert [(0, "xq xd wd first cq cd second fq"), (1, "wd cd third fd fourth jq jd")] == held(
        found
    )
    assert [("d", "uint8"), ("h", "uint8"), ("y", "float32")] == crossing(found)


def test_a_quantiser_of_a_model_input_goes_with_the_first_layer_that_reads(tmp_path: Path) -> None:
    text = PAIRS.replace("[third] g = Add(e, w)", "[third] g = Add(b, w)")
    found = cut(read(tmp_path, text).graph, a_cpu0="third", a_cpu1="first second fourth")
    assert [(1, "xq xd wd first cq cd second fq"), (0, "xd wd third")] == held(found)[:2]
    assert [("a", "uint8"), ("h", "uint8"), ("g", "float32")] == crossing(found)[:3]


def test_quantisers_that_a_mapping_names_go_where_it_says(tmp_path: Path) -> None:
    found = cut(
        read(tmp_path, PAIRS).graph, a_cpu0="first cq cd second", a_cpu1="third fourth jd fd jq"
    )
    assert [(0, "xq xd wd first cq cd second fq"), (1, "wd third fd fourth jq jd")] == held(found)
    assert [("e", "float32"), ("h", "uint8"), ("y", "float32")] == crossing(found)


def test_a_quantiser_between_dequantisers_goes_with_the_data(tmp_path: Path) -> None:
    text = PAIRS.replace(
        "[second] f = Neg(e)",
        "[cr] q = QuantizeLinear(e, s, z) [cs] r = DequantizeLinear(q, s, z) [second] f = Neg(r)",
    )
    found = cut(read(tmp_path, text).graph, a_cpu0="first", a_cpu1="second third fourth")
    assert (0, "xq xd wd first cq cd cr") == held(found)[0]
    check_slices(
        read(tmp_path, text),
        tmp_path,
        {"first": 0, "second": 1, "third": 1, "fourth": 0}
        | {"xq": 0, "cq": 0, "cr": 0, "fq": 1, "jq": 0, "jd": 0},
    )


def test_a_layer_that_computes_is_still_missed_and_its_quantisers_are_not_told(
    tmp_path: Path,
) -> None:
    with pytest.raises(RankSliceError) as caught:
        cut(read(tmp_path, PAIRS).graph, a_cpu0="first second third")
    assert (
        "mapping.json: layer 'fourth' of model.onnx is in no key; add what is missing to the lists"
    ) == str(caught.value)


def test_mappings_of_layers_that_compute_are_bit_equal(model: OnnxModel, tmp_path: Path) -> None:
    names = real_layers(model.graph)
    found = cut(model.graph, a_cpu0=" ".join(names[::2]), a_cpu1=" ".join(names[1::2]))
    ranks = {
        layer.name: segment.rank
        for segment in found.segments
        for layer in segment.layers
        if layer.name not in segment.copies
    }
    check_slices(model, tmp_path, ranks)


def test_every_layer_may_be_a_segment(model: OnnxModel, tmp_path: Path) -> None:
    check_slices(model, tmp_path)


def test_a_quantised_model_agrees_as_deployed(model: OnnxModel, tmp_path: Path) -> None:
    names = real_layers(model.graph)
    found = cut(model.graph, a_cpu0=" ".join(names[::2]), a_cpu1=" ".join(names[1::2]))
    for image in images(3):
        expected = run_whole(model, image, exact=False)["scores"]
        sliced = run_sliced(model, found, tmp_path, image, exact=False)["scores"]
        difference = np.abs(expected - sliced).max() / np.ptp(expected)
        assert difference <= 1e-5
        if "dynamic" not in model.path.name:
            assert expected.tobytes() == sliced.tobytes()


@pytest.mark.parametrize("kind", ["qdq", "qoperator"])
def test_integers_cross_all_cuts_between_layers_that_compute(kind: str, tmp_path: Path) -> None:
    model = read_onnx(quantised_cnn(kind, tmp_path))
    found = cut(
        model.graph,
        **{f"a_cpu{n}": name for n, name in enumerate(real_layers(model.graph))},
    )
    assert {"int8"} == {dtype for name, dtype in crossing(found) if name != "scores"}
    assert len(real_layers(model.graph)) == len(found.segments)
    check = random_values(model.graph)
    assert run_whole(model, check)["scores"].tobytes() == (
        run_sliced(model, found, tmp_path, check)["scores"].tobytes()
    )


@pytest.mark.parametrize("named", ["those that compute", "all"])
@pytest.mark.parametrize("activations", ["QInt8", "QUInt8"])
def test_every_cut_after_which_results_differ_is_told(
    activations: str, named: str, tmp_path: Path
) -> None:
    model = read_onnx(averaging_cnn(tmp_path, activations))
    names = [layer.name for layer in model.graph.layers if layer.inputs]
    if named != "all":
        names = real_layers(model.graph)
    (image,) = images(1)
    expected = run_whole(model, image, exact=False)["scores"]
    for number in range(1, len(names)):
        found = cut(model.graph, a_cpu0=" ".join(names[:number]), a_cpu1=" ".join(names[number:]))
        sliced = run_sliced(model, found, tmp_path, image, exact=False)["scores"]
        told = (*parted_groups(found), *parted_signed_averages(found))
        assert told or np.abs(expected - sliced).max() <= 1e-5 * np.ptp(expected), names[number]


@pytest.mark.parametrize(("activations", "told"), [("QInt8", ["pool", "conv3"]), ("QUInt8", [])])
def test_of_cuts_between_layers_that_compute_those_beside_signed_averages_are_told(
    activations: str, told: list[str], tmp_path: Path
) -> None:
    graph = read_onnx(averaging_cnn(tmp_path, activations)).graph
    names = real_layers(graph)
    found = []
    for number in range(1, len(names)):
        parts = cut(graph, a_cpu0=" ".join(names[:number]), a_cpu1=" ".join(names[number:]))
        assert () == parted_groups(parts)
        found += [names[number]] if parted_signed_averages(parts) else []
    assert told == found


def test_quantisers_apart_from_the_layers_that_they_serve_are_told(tmp_path: Path) -> None:
    graph = read(tmp_path, PAIRS).graph
    left_out = cut(graph, a_cpu0="first second", a_cpu1="third fourth")
    assert () == parted_groups(left_out)
    named = cut(graph, a_cpu0="first second cd", a_cpu1="cq third fourth jd fd jq")
    assert ("cq", "cd") == parted_groups(named)


def test_what_a_cut_parts_is_told_once_though_ranks_take_turns(tmp_path: Path) -> None:
    signed = read_onnx(averaging_cnn(tmp_path, "QInt8")).graph
    names = real_layers(signed)
    at = names.index("pool")
    parted = cut(
        read(tmp_path, PAIRS).graph,
        a_cpu0="first second cd",
        a_cpu1="cq third fourth jd fd jq",
    )
    for found in (
        parted,
        cut(signed, a_cpu0=" ".join(names[:at]), a_cpu1=" ".join(names[at:])),
    ):
        (expected,) = quantised_cut_warnings(found)
        assert [expected] == [*quantised_cut_warnings(in_turns(found, [(0, 1), (2, 3, 4)]))]
