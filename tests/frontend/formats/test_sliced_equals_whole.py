from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from hypothesis import given, strategies as st
from onnx_models import random_inputs, run
from strategies import assignments, networks

from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.frontend.formats.onnx.writer import onnx_submodel
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import partition


@st.composite
def mapped_networks(draw):
    network = draw(networks())
    return network, draw(assignments(network.graph()))


@given(mapped_networks())
def test_segments_run_one_by_one_give_the_bits_of_the_whole_model(mapped):
    network, ranks = mapped
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(network.model(), path)
        model = read_onnx(path)
        inputs = random_inputs(model.graph.inputs)
        values = dict(inputs)
        for number, segment in enumerate(partition(model.graph, ranks).segments):
            part = path.with_name(f"{number}.onnx")
            write_submodel(onnx_submodel(model, segment, part.name), part)
            values |= run(part, {tensor.name: values[tensor.name] for tensor in segment.inputs})
        for name, expected in run(path, inputs).items():
            np.testing.assert_array_equal(expected, values[name], strict=True)


@given(networks())
def test_a_random_network_is_the_same_as_a_record_and_as_a_file(network):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(network.model(), path)
        onnx.checker.check_model(path, full_check=True)
        read = read_onnx(path).graph
    made = network.graph()
    assert (made.inputs, made.outputs) == (read.inputs, read.outputs)
    assert [(x.name, x.op, x.inputs, x.outputs) for x in made.layers] == [
        (x.name, x.op, x.inputs, x.outputs) for x in read.layers
    ]
    assert [[w.name for w in x.weights] for x in made.layers] == [
        [w.name for w in x.weights] for x in read.layers
    ]
