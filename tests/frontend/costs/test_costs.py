"""What layers cost, alone and in networks whose figures are published."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import onnx
import pytest
from onnx_models import LIGHT_MODELS, read

from rankslice.frontend.costs.costs import LayerCost, layer_costs
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.networks.zoo import zoo_model

PUBLISHED_GMACS = {
    "densenet121": 2.834,
    "resnet50": 4.089,  # with the stride in the 3x3 convolutions
    "squeezenet": 0.349,  # version 1.1
    "vgg19": 19.632,
}


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    return importlib.import_module("published_networks")


def gmacs(costs: tuple[LayerCost, ...]) -> float:
    assert [] == [cost.layer for cost in costs if cost.macs is None]
    return sum(cost.macs or 0 for cost in costs) / 1e9


def parameters(costs: tuple[LayerCost, ...]) -> int:
    return sum(cost.new_parameters for cost in costs)


def trained(costs: tuple[LayerCost, ...]) -> int:
    return parameters(costs) - sum(cost.moments for cost in costs)


@pytest.mark.parametrize("name", PUBLISHED_GMACS)
def test_a_network_takes_as_many_macs_as_published(name):
    (path,) = (path for path in LIGHT_MODELS if name in path.name)
    found = gmacs(layer_costs(read_onnx(path).graph))
    assert pytest.approx(PUBLISHED_GMACS[name], abs=5e-4) == found


def test_alexnet_takes_the_macs_of_its_layers():
    (path,) = (path for path in LIGHT_MODELS if "alexnet" in path.name)
    convolutions = (
        *(54 * 54 * 96 * 11 * 11 * 3, 26 * 26 * 256 * 5 * 5 * 48),
        *(12 * 12 * 384 * 3 * 3 * 256, 12 * 12 * 384 * 3 * 3 * 192, 12 * 12 * 256 * 3 * 3 * 192),
    )
    products = (9216 * 4096, 4096 * 4096, 4096 * 1000)
    costs = layer_costs(read_onnx(path).graph)
    assert [*convolutions, *products] == [cost.macs for cost in costs if cost.macs]


def test_mobilenet_v2_costs_what_is_published(tmp_path, published):
    onnx.save(published.mobilenet_v2(), tmp_path / "m.onnx")
    costs = layer_costs(read_onnx(tmp_path / "m.onnx").graph)
    assert pytest.approx(0.3008, abs=5e-5) == gmacs(costs)
    assert (3_504_872, 3_538_984) == (trained(costs), parameters(costs))


@pytest.mark.slow
def test_resnet101_costs_what_is_published(tmp_path, published):
    onnx.save(published.resnet101(), tmp_path / "m.onnx")
    costs = layer_costs(read_onnx(tmp_path / "m.onnx").graph)
    assert pytest.approx(7.801, abs=5e-4) == gmacs(costs)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("resnet50", 25_557_032), ("vgg19", 143_667_240)])
def test_a_network_has_as_many_parameters_as_published(name, expected, tmp_path):
    path = zoo_model(name, tmp_path)
    assert expected == trained(layer_costs(read_onnx(path).graph))
    path.unlink()  # 575 MB


def test_a_weight_of_two_layers_is_new_at_the_first_one_only(tmp_path):
    model = read(
        tmp_path,
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] z)'
        "<float[3] w = {1.0, 2.0, 3.0}> { [add] y = Add(x, w) [mul] z = Mul(y, w) }",
    )
    add, mul = layer_costs(model.graph)
    assert (3, 12, 3, 12) == (
        add.parameters,
        add.weight_bytes,
        add.new_parameters,
        add.new_weight_bytes,
    )
    assert (3, 12, 0, 0) == (
        mul.parameters,
        mul.weight_bytes,
        mul.new_parameters,
        mul.new_weight_bytes,
    )


def test_shapes_and_single_numbers_are_weights_but_no_parameters(tmp_path):
    model = read(
        tmp_path,
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[6] z)'
        "<int64[1] shape = {6}, float limit = {1.0}>"
        "{ [clip] y = Clip(x, limit) [flat] z = Reshape(y, shape) }",
    )
    assert [(0, 4), (0, 8)] == [
        (cost.parameters, cost.weight_bytes) for cost in layer_costs(model.graph)
    ]


def test_the_value_of_a_constant_is_its_weight(tmp_path):
    model = read(
        tmp_path,
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] z)'
        "{ [c] w = Constant<value = float[3] {1.0, 2.0, 3.0}>() [add] z = Add(x, w) }",
    )
    constant, add = layer_costs(model.graph)
    assert (3, 12, 0) == (constant.parameters, constant.weight_bytes, add.parameters)


def test_a_product_of_constants_takes_nothing_per_frame(tmp_path):
    model = read(
        tmp_path,
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 2] x) => (float[2, 2] z)'
        "<float[2, 2] a = {1.0, 2.0, 3.0, 4.0}>"
        "{ [square] b = MatMul(a, a) [product] z = MatMul(x, b) }",
    )
    assert [0, 8] == [cost.macs for cost in layer_costs(model.graph)]


def test_the_size_of_what_a_layer_makes_is_that_of_all_its_outputs(tmp_path):
    model = read(
        tmp_path,
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 6] x) => (float[4, 2] a)'
        "{ [split] a, b = Split<axis = 1>(x, sizes) [odd] c = NonZero(x) }".replace(
            "{", "<int64[2] sizes = {2, 4}> {", 1
        ),
    )
    assert [96, 384] == [cost.output_bytes for cost in layer_costs(model.graph)]
