"""Channels between boards that carry other types: sub-models against the unsliced model."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import pytest
from litert_engines import needs_litert

from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sizes import make_slot
from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Scales
from rankslice.framework.mapping import LayerPart, Mapping, MappingEntry
from rankslice.framework.platform import Wire
from rankslice.frontend.formats import read_model
from rankslice.session.build_folder import with_wires_name
from rankslice.session.building.build import Build, BuildOptions, build
from rankslice.session.building.build_options import Quantisation
from rankslice.session.building.wires import through_wire
from rankslice.session.run import prepare, run

MODELS = Path(__file__).parents[3] / "models"
DIGITS, TFLITE_DIGITS = MODELS / "digits.onnx", MODELS / "digits.tflite"
BOARDS = """
boards: {{a: {{host: localhost, cores: 2}}, b: {{host: localhost, cores: 2}}}}
links: {{default: {{bandwidth_mbps: 100, latency_ms: 0.2, wire: {wire}}}}}
"""
CHAIN = {"a_cpu0": ("conv1..pool1",), "b_cpu1": ("conv3..softmax",)}
SKIPS = {"a_cpu0": ("conv1..conv3", "shortcut"), "b_cpu1": ("relu3..conv4", "add..softmax")}
TFLITE_CHAIN = {"a_cpu0": ("CONV_2D_0..MAX_POOL_2D_2",), "b_cpu1": ("CONV_2D_3..SOFTMAX_10",)}
TFLITE_ROWS = {
    "a_cpu0": (LayerPart(("CONV_2D_0..MAX_POOL_2D_2",), "rows"),),
    "b_cpu1": (LayerPart(("CONV_2D_0..MAX_POOL_2D_2",), "rows"), "CONV_2D_3..SOFTMAX_10"),
}
DETECTOR_CHAIN = {"a_cpu0": ("PAD_0..PAD_4",), "b_cpu1": ("CONV_2D_5..LOGISTIC_16",)}
THERE_AND_BACK = {"b_cpu0": ("conv1..relu2", "add..softmax"), "a_cpu1": ("pool1..shortcut",)}
SUMMANDS = {
    "a_cpu0": ("conv1..flatten", LayerPart(("dense",), "inputs")),
    "b_cpu0": (LayerPart(("dense",), "inputs"),),
    "b_cpu1": (LayerPart(("dense",), "inputs"), "softmax"),
}


Layers: TypeAlias = dict[str, tuple[str | LayerPart, ...]]


def built(
    tmp_path: Path,
    mapping: Layers,
    link: str,
    wire: Wire | None = None,
    model: Path = DIGITS,
    largest: float = 1,
) -> Build:
    shape = read_model(model).graph.inputs[0].shape or ()
    frames = largest * np.random.default_rng(1).random((8, *shape[1:]), np.float32)
    np.save(tmp_path / "frames.npy", frames)
    platform = tmp_path / "boards.yaml"
    platform.write_text(BOARDS.format(wire=link))
    wanted = Quantisation(representative=tmp_path / "frames.npy")
    entries = tuple(MappingEntry(key, layers) for key, layers in mapping.items())
    return build(
        model,
        Mapping("mapping", entries),
        platform,
        tmp_path / "out",
        BuildOptions(quantisation=wanted, wire=wire),
    )


def computed(
    file: Path, made: Build, inputs: tuple[str, ...], outputs: tuple[str, ...], slots
) -> None:
    specs = made.plan.job.tensors
    engine = open_engine(made.plan.ranks[0].engine, EngineSettings(exact=True))
    engine.load(file, *([specs[name] for name in names] for names in (inputs, outputs)))
    engine.run(*([slots[name] for name in names] for names in (inputs, outputs)))
    engine.close()


@pytest.mark.parametrize("wire", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("mapping", [CHAIN, SKIPS, THERE_AND_BACK, SUMMANDS])
def test_segments_are_bit_equal_to_the_unsliced_model_with_the_same_conversions(
    tmp_path: Path, mapping: Layers, wire: str
) -> None:
    check_segments(built(tmp_path, mapping, wire), tmp_path, wire)


@needs_litert
@pytest.mark.parametrize("wire", ["float16", "int8"])
@pytest.mark.parametrize(
    ("model", "mapping"),
    [
        (TFLITE_DIGITS, TFLITE_CHAIN),
        (TFLITE_DIGITS, TFLITE_ROWS),
        (MODELS / "digit_detector.tflite", DETECTOR_CHAIN),
    ],
)
def test_segments_of_tflite_models_are_bit_equal_to_the_unsliced_model_with_the_same_conversions(
    tmp_path: Path, model: Path, mapping: Layers, wire: str
) -> None:
    check_segments(built(tmp_path, mapping, wire, model=model), tmp_path, wire)


def check_segments(made: Build, tmp_path: Path, wire: str) -> None:
    job = made.plan.job
    slots = {name: make_slot(spec) for name, spec in job.tensors.items()}
    inputs, outputs = made.plan.inputs, made.plan.outputs
    slots[inputs[0]][:] = np.load(tmp_path / "frames.npy")[:1]
    for segment in made.plan.segments:
        file = made.folder / segment.file
        computed(file, made, segment.inputs, segment.outputs, slots)
    sliced = {name: slots[name].copy() for name in outputs}
    whole = made.folder / with_wires_name(made.plan.model.format)
    computed(whole, made, inputs, outputs, slots)
    for name in outputs:
        assert sliced[name].tobytes() == slots[name].tobytes()
    board_of = [rank.board for rank in made.plan.ranks]
    crossing = [c for c in job.channels if board_of[c.source] != board_of[c.destination]]
    assert {wire} == {job.tensors[channel.tensor].dtype for channel in crossing}
    for conversion in made.plan.conversions:
        assert 0 < conversion.max_error < 0.02 * conversion.value_range


@needs_litert
def test_bfloat16_of_tflite_models_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match=r"digits\.tflite: LiteRT has no bfloat16"):
        built(tmp_path, TFLITE_CHAIN, "bfloat16", model=TFLITE_DIGITS)


def test_channels_of_one_board_and_with_wire_none_stay_float32(tmp_path: Path) -> None:
    one_board = {"a_cpu0": CHAIN["a_cpu0"], "a_cpu1": CHAIN["b_cpu1"]}
    (tmp_path / "1").mkdir()
    made = built(tmp_path / "1", one_board, "float16")
    assert () == made.plan.conversions
    other = built(tmp_path, CHAIN, "float16", wire="none")
    assert {"float32"} == {tensor.dtype for tensor in other.plan.job.tensors.values()}
    assert not (other.folder / with_wires_name("onnx")).exists()


def test_values_beyond_float16_are_refused(tmp_path: Path) -> None:
    found = r"tensor 'pool1': a frame has values beyond float16; choose bfloat16"
    with pytest.raises(RankSliceError, match=found):
        built(tmp_path, CHAIN, "float16", largest=1e7)
    made = built(tmp_path, CHAIN, "bfloat16", largest=1e7)
    assert made.plan.conversions[0].value_range > float(np.finfo(np.float16).max)


def test_int8_needs_representative_frames(tmp_path: Path) -> None:
    platform = tmp_path / "boards.yaml"
    platform.write_text(BOARDS.format(wire="int8"))
    entries = tuple(MappingEntry(key, layers) for key, layers in CHAIN.items())
    with pytest.raises(RankSliceError, match="int8 between boards needs the range of each tensor"):
        build(DIGITS, Mapping("mapping", entries), platform, tmp_path / "out")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_errors_are_those_of_the_engine(dtype: str) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    scales = Scales((0.02, 0.03, 0.04), (-3, 0, 5), 1) if dtype == "int8" else None
    there, back = {
        "float16": ("Cast<to = 10>(x)", "Cast<to = 1>(h)"),
        "bfloat16": ("Cast<to = 16>(x)", "Cast<to = 1>(h)"),
        "int8": (
            "QuantizeLinear<axis = 1>(x, scale, zero)",
            "DequantizeLinear<axis = 1>(h, scale, zero)",
        ),
    }[dtype]
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3,5] x) => (float[2,3,5] y)'
        " <float[3] scale = {0.02, 0.03, 0.04}, int8[3] zero = {-3, 0, 5}>"
        f" {{ h = {there}  y = {back} }}"
    )
    session = load_onnxruntime().InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": values})
    assert expected.tobytes() == through_wire(values, dtype, scales).tobytes()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("model", "mapping"),
    [
        (DIGITS, CHAIN),
        pytest.param(TFLITE_DIGITS, TFLITE_CHAIN, marks=needs_litert),
    ],
)
def test_a_job_agrees_with_both_unsliced_models(
    tmp_path: Path, model: Path, mapping: Layers
) -> None:
    made = built(tmp_path, mapping, "float16", model=model)
    options = RunOptions((str(tmp_path / "frames.npy"),), exact=True)
    verdict = run(prepare(made.folder, options), verify=True).summary.verify
    assert verdict is not None
    assert verdict.passed
    assert verdict.bit_equal
    assert verdict.unconverted is not None
    assert 0 < verdict.unconverted.max_rel_diff < 0.01
    assert (8, 8) == (verdict.unconverted.rows, verdict.unconverted.agreeing)
