"""What crosses channel board's cable is what the plan says, and what TCP adds to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

from boards import Boards, Traffic
from boards.deployments import build_for, deploy, run
from rankslice.backend.runtime.job import ALL, Turns
from rankslice.framework.plan import Plan, plan_from_json
from rankslice.frontend.formats import read_model
from rankslice.networks.keras_zoo import keras_file, keras_model
from rankslice.networks.zoo import zoo_model

pytestmark = pytest.mark.ci

RACK = {"count": 3, "disk_mb": 256}

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
LEAST_BYTES = 1_000_000
"""Of less there is more in acknowledgements of what comes the other way."""
ON_THE_WIRE = 1 + 66 / 1448
"""Of a byte: 1448 to a segment, with 66 of Ethernet, IP and TCP."""


def traffic_of(rack: Boards, out: Path, frames: int) -> list[Traffic]:
    """Return what crosses channel board's cable during a run."""
    before = [board.traffic() for board in rack]
    ended = run(rack, out, "--frames", str(frames))
    assert 0 == ended.code, ended.err
    return [board.traffic().since(earlier) for board, earlier in zip(rack, before, strict=True)]


def payload(plan: Plan, frames: int) -> dict[str, tuple[int, int]]:
    """Return the bytes of tensors that channel host sends and receives.

    A tensor for several ranks of a board travels once, and only in the frames that its maker and
    its readers handle.
    """
    sizes = {tensor.name: tensor.nbytes or 0 for tensor in plan.job.tensors.values()}
    ways = defaultdict(set)
    for channel in plan.channels:
        source, target = plan.ranks[channel.source], plan.ranks[channel.destination]
        is_input = channel.tensor in plan.inputs
        is_result = channel.tensor in plan.outputs and channel.destination == plan.job.sink
        made = handled(ALL if is_input else source.turns, frames)
        needed = handled(ALL if is_result else target.turns, frames)
        if source.host != target.host:
            ways[channel.tensor, source.host, target.host] |= made & needed
    return {
        host: (
            sum(sizes[way[0]] * len(carried) for way, carried in ways.items() if way[1] == host),
            sum(sizes[way[0]] * len(carried) for way, carried in ways.items() if way[2] == host),
        )
        for host in (rank.host for rank in plan.ranks)
    }


def handled(turns: Turns, frames: int) -> set[int]:
    """Return the frames that a rank handles."""
    return {frame for frame in range(frames) if frame % turns.period in turns.positions}


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a tensor that two layers take in."""
    model = onnx.parser.parse_model(FORKED)
    for number, node in enumerate(model.graph.node):
        node.name = f"L{number}"
    path = tmp_path_factory.mktemp("forked") / "model.onnx"
    onnx.save(model, path)
    return path


def test_each_cable_carries_each_tensor_once(rack: Boards, forked: Path, tmp_path: Path) -> None:
    mapping = {
        "board1_cpu0": ["L0"],
        "board2_cpu0": ["L1"],
        "board2_cpu1": ["L2"],
        "board3_cpu0": ["L3", "L4"],
    }
    check_traffic(rack, build_for(rack, tmp_path, forked, mapping), FRAMES)


WHOLE = {"board1_cpu0|board2_cpu0|board2_cpu1|board3_cpu0": ["L0..L4"]}
STAGE = {
    "board1_cpu0": ["L0"],
    "board2_cpu0*2|board3_cpu0": ["L1"],
    "board1_cpu1": ["L2..L4"],
}
BOTH = {"board1_cpu0|board2_cpu0": ["L0", "L2"], "board3_cpu0|board2_cpu1": ["L1", "L3", "L4"]}


@pytest.mark.parametrize(
    "mapping",
    [
        pytest.param(STAGE, id="a stage"),
        pytest.param(WHOLE, id="the whole", marks=pytest.mark.slow),
        pytest.param(BOTH, id="both stages", marks=pytest.mark.slow),
    ],
)
def test_a_cable_carries_the_frames_of_the_ranks_in_turn_behind_it(
    mapping: dict[str, list[str]], rack: Boards, forked: Path, tmp_path: Path
) -> None:
    out = build_for(rack, tmp_path, forked, mapping)
    check_traffic(rack, out, FRAMES)
    ended = run(rack, out, "--frames", "60", "--verify", "exact")
    assert 0 == ended.code, ended.err
    assert "60 frames compared, bit-equal" in ended.out


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
    """Compare what crosses channel cable with the plan."""
    assert 0 == deploy(rack, out).code
    traffic_of(rack, out, 0)  # what Python compiles and caches is there now
    idle, busy = traffic_of(rack, out, 0), traffic_of(rack, out, frames)
    predicted = payload(plan_from_json((out / "plan.json").read_text()), frames)
    for board, quiet, loud in zip(rack, idle, busy, strict=True):
        (sends, receives), more = predicted[board.address], loud.since(quiet)
        if sends > LEAST_BYTES:
            assert sends * ON_THE_WIRE == pytest.approx(more.sent, rel=0.03)
        if receives > LEAST_BYTES:
            assert receives * ON_THE_WIRE == pytest.approx(more.received, rel=0.03)
