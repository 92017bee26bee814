from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from hypothesis import given
from strategies import networks

from rankslice.frontend.formats.onnx.reader import read_onnx


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
