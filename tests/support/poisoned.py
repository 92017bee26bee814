"""A model that refuses some values: it looks up numbers by indices, which may be out of bounds."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx_models import save

LAYERS = ("L0", "L1", "L2")
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
agraph (int64[1,4] i) => (float[1,4] y) <float[8] w = {0,1,2,3,4,5,6,7}, float[1] two = {2}> {
  [L0] g = Gather(w, i)
  [L1] h = Mul(g, two)
  [L2] y = Add(h, g)
}"""
POISON = 99
REASON = f"idx={POISON} must be within"


def poisoned_model(folder: Path) -> Path:
    """Write the model; its output is three times its indices, which are 0 to 7."""
    path = save(folder, TEXT)
    assert LAYERS == tuple(node.name for node in onnx.load(path).graph.node)
    return path


def frame(number: int, every: int = 10) -> NDArray[np.int64]:
    """Return the frame of a number; each tenth one cannot be computed."""
    first = number % 8 if number % every else POISON
    return np.array([[first, 0, 1, 2]])


def result(number: int) -> list[float]:
    """Return the result of a frame that can be computed."""
    return [3.0 * (number % 8), 0.0, 3.0, 6.0]


def ask(address: str, numbers: Sequence[int]) -> list[tuple[int, object]]:
    """Ask a server for frames, one after the other; return status and answer of each."""
    found: list[tuple[int, object]] = []
    connection = http.client.HTTPConnection(address, timeout=60)
    for number in numbers:
        data = frame(number).reshape(-1).tolist()
        tensor = {"name": "i", "shape": [1, 4], "datatype": "INT64", "data": data}
        body = json.dumps({"inputs": [tensor]})
        connection.request("POST", "/v2/models/model/infer", body)
        response = connection.getresponse()
        answer = json.loads(response.read())
        outputs = answer["outputs"][0]["data"] if response.status == 200 else answer["error"]
        found.append((response.status, outputs))
    connection.close()
    return found


def check_a_thousand(address: str) -> None:
    """Send a thousand requests, each tenth of them poisoned, by four clients at once."""
    shares = [range(first, 1000, 4) for first in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for numbers, answers in zip(
            shares, pool.map(lambda n: ask(address, n), shares), strict=True
        ):
            for number, (status, answer) in zip(numbers, answers, strict=True):
                if number % 10:
                    assert (200, result(number)) == (status, answer)
                else:
                    assert 400 == status
                    assert REASON in str(answer)
