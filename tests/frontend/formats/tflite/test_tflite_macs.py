"""MACs of TensorFlow Lite operators, by the textbook's formulas."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankslice.framework.graph import ByteRange, Layer, Tensor
from rankslice.frontend.costs.costs import layer_costs
from rankslice.frontend.costs.cuts import cuts
from rankslice.frontend.formats.tflite.macs import tflite_macs
from rankslice.frontend.formats.tflite.reader import read_tflite

MODELS = Path(__file__).parents[3] / "models" / "tflite"
LSTM = [(5, 2, 3), *[(4, 3)] * 4, *[(4, 4)] * 4]


def layer(op, operands, output, **attributes):
    given = [
        None if shape is None else Tensor(f"t{n}", "float32", shape)
        for n, shape in enumerate(operands)
    ]
    made = (Tensor("y", "float32", output),)
    inputs = tuple(tensor for tensor in given if tensor)
    record = ByteRange(Path("m.tflite"), 0, 0)
    settings = tuple(attributes.items())
    return Layer("n", op, inputs, made, (), record, True, tuple(given), settings)


CASES = {
    "a convolution": (
        layer("CONV_2D", [(1, 9, 9, 6), (8, 3, 3, 6), (8,)], (1, 7, 7, 8)),
        7 * 7 * 8 * 3 * 3 * 6,
    ),
    "a convolution in groups": (
        layer("CONV_2D", [(1, 9, 9, 6), (8, 3, 3, 3), (8,)], (1, 7, 7, 8)),
        7 * 7 * 8 * 3 * 3 * 3,
    ),
    "a depthwise convolution with a multiplier": (
        layer("DEPTHWISE_CONV_2D", [(1, 9, 9, 6), (1, 3, 3, 12), (12,)], (1, 7, 7, 12)),
        7 * 7 * 12 * 3 * 3,
    ),
    "a convolution of a volume": (
        layer("CONV_3D", [(1, 5, 5, 5, 2), (3, 3, 3, 2, 4)], (1, 3, 3, 3, 4)),
        3 * 3 * 3 * 4 * 3 * 3 * 3 * 2,
    ),
    "a transposed convolution": (
        layer("TRANSPOSE_CONV", [(4,), (6, 2, 2, 4), (1, 5, 5, 4)], (1, 10, 10, 6)),
        5 * 5 * 4 * 6 * 2 * 2,
    ),
    "a full connection": (
        layer("FULLY_CONNECTED", [(2, 3), (5, 3), None], (2, 5)),
        2 * 3 * 5,
    ),
    "a stack of matrix products": (
        layer("BATCH_MATMUL", [(7, 2, 3), (7, 3, 5)], (7, 2, 5)),
        7 * 2 * 3 * 5,
    ),
    "a product of a transposed matrix": (
        layer("BATCH_MATMUL", [(7, 3, 2), (7, 3, 5)], (7, 2, 5), adj_x=1),
        7 * 2 * 3 * 5,
    ),
    "an LSTM": (
        layer("UNIDIRECTIONAL_SEQUENCE_LSTM", LSTM, (5, 2, 4)),
        5 * 2 * 4 * 4 * (3 + 4),
    ),
    "an LSTM with coupled gates": (
        layer(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", [LSTM[0], None, *LSTM[2:5], None, *LSTM[6:]], (5, 2, 4)
        ),
        5 * 2 * 3 * 4 * (3 + 4),
    ),
    "an addition": (layer("ADD", [(2, 3), (2, 3)], (2, 3)), 0),
    "a loop": (layer("WHILE", [(2, 3)], (2, 3)), None),
    "a vendor's operator": (layer("Vendor.Special", [(2, 3)], (2, 3)), None),
    "a StableHLO operator": (layer("STABLEHLO_DOT_GENERAL", [(2, 3)], (2, 3)), None),
    "a convolution without a kernel": (layer("CONV_2D", [(1, 9, 9, 6)], (1, 7, 7, 8)), None),
    "a convolution of unknown size": (layer("CONV_2D", [(1, 9, 9, 6), (8, 3, 3, 6)], None), None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layer_takes_as_many_macs_as_its_formula_says(case):
    given, expected = CASES[case]
    assert expected == tflite_macs(given)


@pytest.mark.parametrize("name", ["cnn_float32", "cnn_int8", "cnn_int16x8"])
def test_a_network_costs_the_same_whatever_its_numbers_are(name):
    costs = layer_costs(read_tflite(MODELS / f"{name}.tflite").graph)
    expected = [13_824, 4_608, 4_096, 1_024, 3_072, 60]
    assert expected == [cost.macs for cost in costs if cost.macs]
    # The dense layers have no bias of their own; shapes are no parameters.
    assert [224, 80, 72, 72, 3_072, 60] == [cost.parameters for cost in costs if cost.parameters]


def test_layers_that_share_a_state_cannot_be_cut_apart():
    graph = read_tflite(MODELS / "variable.tflite").graph
    assert graph.bonds
    bond = graph.bonds[0]
    obstacles = {cut.after: cut.obstacle for cut in cuts(graph, layer_costs(graph))}
    assert bond.reason in obstacles[bond.layers[0]]
