from __future__ import annotations

import json

from onnx_models import save
from rich.console import Console

from rankslice.framework.commands.inspect import (
    inspect_model,
    inspection_to_json,
    print_inspection,
)

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[2, 3] z) <float[3] w = {1.0, 2.0, 3.0}>
    { [add] y = Add(x, w)
      [mul] z = Mul(y, w) }"""


def test_totals_count_a_shared_weight_once(tmp_path):
    inspection = inspect_model(save(tmp_path, TEXT))
    assert (3, 12) == (inspection.parameters, inspection.weight_bytes)


def test_the_json_tells_layers_shapes_and_totals(tmp_path):
    record = inspection_to_json(inspect_model(save(tmp_path, TEXT)))
    assert json.loads(json.dumps(record)) == record
    assert [{"name": "x", "dtype": "float32", "shape": [2, 3]}] == record["inputs"]
    assert ["add", "mul"] == [layer["name"] for layer in record["layers"]]
    assert {"layers": 2, "parameters": 3, "weight_bytes": 12} == record["totals"]
    assert {"ai.onnx": 17} == record["opsets"]


def test_the_table_shows_names_as_text_and_never_as_commands(tmp_path):
    path = save(tmp_path, TEXT.replace("[add]", '["[red]a\\u001b[2Jb"]'))
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        print_inspection(inspect_model(path), console)
    assert "[red]a" in captured.get()
    assert "\x1b[2J" not in captured.get()
    assert "2 layers, 3 parameters, 0.000 MB of weights" in captured.get()
