"""What crosses each board's cable is what the plan says, and what TCP adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

from boards import Boards, Traffic
from boards.deployments import build_for, deploy, run
from boards.fixtures import skip_without_boards
from rankslice.framework.plan import Plan, plan_from_json
from rankslice.frontend.formats import read_model
from rankslice.networks.keras_zoo import keras_file, keras_model
from rankslice.networks.zoo import zoo_model

pytestmark = pytest.mark.ci

WIDTH = 1 << 16
FORKED = f"""
<ir_version: 8, opset_import: ["" : 17]>
forked (float[1,{WIDTH}] x) => (float[1,1] y) {{
  first = Relu (x)
  second = Relu (first)
  greatest = ReduceMax <axes = [1]> (first)
  least = ReduceMin <axes = [1]> (second)
  y = Add (greatest, least)
}}
"""
"""A model with a tensor that two layers take in."""
FRAMES = 200
ON_THE_WIRE = 1 + 66 / 1448
"""Of a byte: 1448 to a segment, with 66 of Ethernet, IP and TCP."""


@pytest.fixture(scope="module")
def rack() -> Iterator[Boards]:
    """Three boards."""
    skip_without_boards()
    with Boards(3, disk_mb=256) as boards:
        yield boards


def traffic_of(rack: Boards, out: Path, frames: int) -> list[Traffic]:
    """Return what crosses each board's cable during a run."""
    before = [board.traffic() for board in rack]
    ended = run(rack, out, "--frames", str(frames))
    assert 0 == ended.code, ended.err
    return [board.traffic().since(earlier) for board, earlier in zip(rack, before, strict=True)]


def payload(plan: Plan, frames: int) -> dict[str, tuple[int, int]]:
    """Return the bytes of tensors that each host sends and receives.

    A tensor for several ranks of a board travels once.
    """
    sizes = {tensor.name: tensor.nbytes or 0 for tensor in plan.tensors}
    hosts = [rank.host for rank in plan.ranks]
    ways = {(each.tensor, hosts[each.source], hosts[each.destination]) for each in plan.channels}
    return {
        host: (
            frames * sum(sizes[tensor] for tensor, source, _ in ways if source == host),
            frames * sum(sizes[tensor] for tensor, _, target in ways if target == host),
        )
        for host in hosts
    }


def test_each_cable_carries_each_tensor_once(rack: Boards, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(FORKED)
    for number, node in enumerate(model.graph.node):
        node.name = f"L{number}"
    onnx.save(model, tmp_path / "model.onnx")
    mapping = {
        "board1_cpu0": ["L0"],
        "board2_cpu0": ["L1"],
        "board2_cpu1": ["L2"],
        "board3_cpu0": ["L3", "L4"],
    }
    check_traffic(rack, build_for(rack, tmp_path, tmp_path / "model.onnx", mapping), FRAMES)


def resnet50() -> Path:
    """Return ResNet-50 as ONNX."""
    return zoo_model("resnet50")


def mobilenet_v2() -> Path:
    """Return MobileNetV2 as ``.tflite``."""
    if find_spec("ai_edge_litert") is None:
        pytest.skip("ai-edge-litert is not installed (extra: litert)")
    if not keras_file("mobilenetv2").exists() and find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed, and the file was not made before")
    return keras_model("mobilenetv2")


@pytest.mark.slow
@pytest.mark.parametrize("network", [resnet50, mobilenet_v2])
def test_each_cable_carries_what_the_plan_of_a_network_predicts(
    network: Callable[[], Path], rack: Boards, tmp_path: Path
) -> None:
    model = network()
    layers = [layer.name for layer in read_model(model).graph.layers]
    third = -(-len(layers) // 3)
    mapping = {
        f"{board.name}_cpu{number % 2}": layers[number * third : (number + 1) * third]
        for number, board in enumerate(rack)
    }
    check_traffic(rack, build_for(rack, tmp_path, model, mapping), 50)


def check_traffic(rack: Boards, out: Path, frames: int) -> None:
    """Compare what crosses each cable with the plan."""
    assert 0 == deploy(rack, out).code
    traffic_of(rack, out, 0)  # what Python compiles and caches is there now
    idle, busy = traffic_of(rack, out, 0), traffic_of(rack, out, frames)
    predicted = payload(plan_from_json((out / "plan.json").read_text()), frames)
    for board, quiet, loud in zip(rack, idle, busy, strict=True):
        (sends, receives), more = predicted[board.address], loud.since(quiet)
        if sends:
            assert sends * ON_THE_WIRE == pytest.approx(more.sent, rel=0.03)
        if receives:
            assert receives * ON_THE_WIRE == pytest.approx(more.received, rel=0.03)
