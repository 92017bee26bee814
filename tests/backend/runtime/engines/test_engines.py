"""Inference engines on memory that the runtime owns."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from rankslice.backend.runtime.direct.memory import make_memory, map_memory
from rankslice.backend.runtime.engines import Engine, EngineSettings, open_engine
from rankslice.backend.runtime.engines.onnxruntime_engine import session_options
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.engines.onnxruntime_providers import (
    Provider,
    count_operators,
    find_provider,
)
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures.acceleration import Acceleration, total
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.pipeline.slots import Ring

onnxruntime = load_onnxruntime()

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] a, float[1,4] b) => (float[1,4] total, float[1,4] product) {
  total = Add (a, b)
  product = Mul (a, b)
}
"""
A, B, TOTAL, PRODUCT = (Tensor(name, "float32", (1, 4)) for name in ("a", "b", "total", "product"))


def save(folder: Path, text: str = MODEL) -> Path:
    path = folder / "part.0.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def loaded(path: Path, inputs: list[Tensor], outputs: list[Tensor]) -> Engine:
    engine = open_engine("onnxruntime", EngineSettings())
    engine.load(path, inputs, outputs)
    return engine


def slot(spec: Tensor) -> NDArray[Any]:
    return Ring(spec, 1, 1).slots[0]


def refusal(path: Path, inputs: list[Tensor], outputs: list[Tensor]) -> str:
    with pytest.raises(JobError) as error:
        loaded(path, inputs, outputs)
    return str(error.value)


def test_outputs_land_in_the_memory_given_and_inputs_are_read_at_each_run(tmp_path: Path) -> None:
    engine = loaded(save(tmp_path), [A, B], [TOTAL, PRODUCT])
    inputs, outputs = [slot(A), slot(B)], [slot(TOTAL), slot(PRODUCT)]
    for value in (2.0, 3.0):
        inputs[0][...] = value
        inputs[1][...] = 10.0
        engine.run(inputs, outputs)
        assert [[value + 10] * 4, [value * 10] * 4] == [values[0].tolist() for values in outputs]
    engine.close()


def test_each_run_may_take_other_slots(tmp_path: Path) -> None:
    engine = loaded(save(tmp_path), [A, B], [TOTAL])
    rings = [Ring(spec, 9, 1) for spec in (A, B, TOTAL)]
    for number in range(200):
        a, b, total = (
            ring.slots[number % depth] for ring, depth in zip(rings, (9, 7, 4), strict=True)
        )
        a[...], b[...] = number, 1000
        engine.run([a, b], [total])
        assert [number + 1000] * 4 == total[0].tolist()
    engine.close()


def test_the_order_of_tensors_is_the_plans_and_not_the_models(tmp_path: Path) -> None:
    text = MODEL.replace("Add (a, b)", "Sub (a, b)")
    engine = loaded(save(tmp_path, text), [B, A], [PRODUCT, TOTAL])
    a, b, total, product = (slot(spec) for spec in (A, B, TOTAL, PRODUCT))
    a[...], b[...] = 7, 2
    engine.run([b, a], [product, total])
    assert (5, 14) == (total[0, 0], product[0, 0])
    engine.close()


FLOAT8 = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"]
TYPES = ["bfloat16", "float16", "float64", *FLOAT8, "int8", "uint64", "bool"]


@pytest.mark.parametrize("dtype", TYPES)
def test_values_of_every_type_are_read_where_they_are_though_read_only(
    tmp_path: Path, dtype: str
) -> None:
    name = {"float64": "double"}.get(dtype, dtype)
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> g ({name}[3] x) => ({name}[3] y)'
        " { y = Identity (x) }"
    )
    x, y = Tensor("x", dtype, (3,)), Tensor("y", dtype, (3,))
    engine = loaded(save(tmp_path, text), [x], [y])
    memory = make_memory(64)
    source = Ring(x, 1, 1, map_memory(memory.descriptor, 64))
    target = Ring(y, 1, 1)
    for run in range(2):
        # Its binding is that of the run before: a copy would be of that time.
        memory.content[: x.nbytes] = (np.arange(x.nbytes) + run) % 2
        engine.run([source.slots[0]], [target.slots[0]])
        assert source.raw[0].tobytes() == target.raw[0].tobytes()
    engine.close()
    os.close(memory.descriptor)


def test_values_of_four_bits_are_read_where_they_are(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (int4[3] x) => (float[3] y)
        <float scale = {1.}> { y = DequantizeLinear (x, scale) }"""
    x, y = Tensor("x", "int4", (3,)), Tensor("y", "float32", (3,))
    engine = loaded(save(tmp_path, text), [x], [y])
    source, target = Ring(x, 1, 1), slot(y)
    for low, high, last in ((1, 2, 3), (4, 5, 6)):
        source.raw[0][:] = low + 16 * high, last
        engine.run([source.slots[0]], [target])
        assert [low, high, last] == target.tolist()
    engine.close()


@pytest.mark.parametrize(
    ("inputs", "output", "expected"),
    [
        ([A, B], Tensor("x", "float32", (1, 4)), "has no output 'x'; it has 'total', 'product'"),
        ([A], TOTAL, "needs input 'b', which the job lacks"),
        (
            [Tensor("a", "float32", (4, 1)), B],
            TOTAL,
            "input 'a' is float32[1, 4], the job says float32[4, 1]",
        ),
        (
            [A, B],
            Tensor("total", "int8", (1, 4)),
            "output 'total' is float32[1, 4], the job says int8[1, 4]",
        ),
    ],
)
def test_tensors_that_differ_from_the_plans_are_told(
    tmp_path: Path, inputs: list[Tensor], output: Tensor, expected: str
) -> None:
    assert f"part.0.onnx: {expected}" == refusal(save(tmp_path), inputs, [output])


@pytest.mark.parametrize("content", [None, b"", b"no model", b"\x08\x08"])
def test_a_file_that_is_no_model_is_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "part.0.onnx").write_bytes(content)
    message = refusal(tmp_path / "part.0.onnx", [A, B], [TOTAL])
    assert message.startswith("part.0.onnx: onnxruntime cannot load it: ")


def test_an_unknown_engine_is_told_with_those_that_are_known() -> None:
    with pytest.raises(JobError) as error:
        open_engine("tensorrt", EngineSettings())
    assert str(error.value).startswith("engine 'tensorrt' is not one of ")
    assert "onnxruntime" in str(error.value)


VERSION = onnxruntime.__version__
HAS = ", ".join(
    name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers()
)
WITHOUT = "options of a provider need a provider in the platform file"


@pytest.mark.parametrize(
    ("options", "accelerator", "expected"),
    [
        *(
            (
                {"provider": name},
                "gpu",
                f"onnxruntime {VERSION} on this board has no provider CUDA, only {HAS}; it comes"
                " with onnxruntime-gpu",
            )
            for name in ("CUDA", "cuda", "CUDAExecutionProvider")
        ),
        (
            {"provider": "OpenVIN"},
            "cpu",
            f"onnxruntime {VERSION} knows no provider 'OpenVIN'; did you mean 'OpenVINO'?",
        ),
        (
            {"provider": "WebGPU", "plugin": "no-such-plugin"},
            "gpu",
            "the plug-in no-such-plugin is not installed on this board: pip install no-such-plugin",
        ),
        (
            {"provider": "Another", "plugin": "numpy"},
            "npu",
            "numpy has 0 libraries called *onnxruntime_providers_*.so",
        ),
        (
            {"provider": "Another", "plugin": __file__},
            "npu",
            f"onnxruntime {VERSION} cannot load {__file__}: ",
        ),
        (
            {},
            "gpu",
            "onnxruntime: the gpu needs a provider in the platform file, such as CUDA, TensorRT,"
            " QNN or OpenVINO",
        ),
        (
            {"device_id": "1"},
            "cpu",
            f"onnxruntime: the session has no option 'device_id'; {WITHOUT}",
        ),
        (
            {"enable_mem_patern": "1"},
            "cpu",
            "onnxruntime: the session has no option 'enable_mem_patern'; did you mean"
            f" 'enable_mem_pattern'?; {WITHOUT}",
        ),
        (
            {"inter_op_num_threads": "0"},
            "cpu",
            "onnxruntime: option inter_op_num_threads is '0', expected a number from 1",
        ),
        (
            {"enable_cpu_mem_arena": "no"},
            "cpu",
            "onnxruntime: option enable_cpu_mem_arena is 'no', expected true or false",
        ),
    ],
)
def test_options_that_are_wrong_here_are_told(
    options: dict[str, str], accelerator: str, expected: str
) -> None:
    with pytest.raises(JobError) as error:
        open_engine("onnxruntime", EngineSettings(options=options, accelerator=accelerator))
    assert str(error.value).startswith(expected)


def test_an_onnxruntime_that_takes_no_plugins_is_told() -> None:
    old = SimpleNamespace(
        __version__="1.19.2",
        get_all_providers=lambda: ["CPUExecutionProvider"],
        get_available_providers=lambda: ["CPUExecutionProvider"],
    )
    settings = EngineSettings(options={"provider": "Another", "plugin": "/x/y.so"})
    with pytest.raises(JobError) as error:
        find_provider(old, settings)
    assert (
        "onnxruntime 1.19.2 on this board takes no plug-ins, which AnotherExecutionProvider is;"
        " install 1.24.4 or later"
    ) == str(error.value)


def nvidia(version: str = "1.31.1") -> SimpleNamespace:
    """Return what an onnxruntime with NVIDIA's providers says of itself."""
    names = [f"{name}ExecutionProvider" for name in ("Tensorrt", "CUDA", "CPU")]
    return SimpleNamespace(
        __version__=version,
        get_all_providers=lambda: names,
        get_available_providers=lambda: names,
    )


def nvidias_provider(name: str, **options: str) -> Provider:
    settings = EngineSettings(options={"provider": name, **options}, accelerator="gpu")
    return find_provider(nvidia(), settings)


def test_cuda_computes_float32_as_such() -> None:
    provider = nvidias_provider("CUDA", device_id="1")
    assert ({"device_id": "1", "use_tf32": "0"}, False) == (provider.options, provider.tf32)


@pytest.mark.parametrize(("value", "tf32"), [("1", True), ("true", True), ("0", False)])
def test_the_platform_file_decides_on_tf32(value: str, tf32: bool) -> None:
    provider = nvidias_provider("cuda", use_tf32=value)
    assert ({"use_tf32": value}, tf32) == (provider.options, provider.tf32)


@pytest.mark.parametrize(("override", "tf32"), [(None, False), ("0", False), ("1", True)])
def test_tensorrt_which_has_no_option_for_tf32_is_told_by_the_environment(
    override: str | None, tf32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override or "")
    if override is None:
        monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    provider = nvidias_provider("TensorRT")
    assert ({}, tf32) == (provider.options, provider.tf32)
    assert (override or "0") == os.environ["NVIDIA_TF32_OVERRIDE"]


def test_what_is_accelerated_says_whether_float32_is_tf32() -> None:
    part = SimpleNamespace(
        ep_name="CUDAExecutionProvider", get_nodes=lambda: [SimpleNamespace(op_type="Conv")]
    )
    session = SimpleNamespace(
        get_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
        get_provider_graph_assignment_info=lambda: [part],
    )
    for value, tf32 in {"0": False, "1": True}.items():
        provider = nvidias_provider("CUDA", use_tf32=value)
        counted = count_operators(session, provider, Path("part.0.onnx"))
        assert Acceleration("CUDA", 1, 1, 1, tf32=tf32) == counted
        whole = total([None, counted])
        assert whole is not None
        assert tf32 == whole.tf32


def test_a_session_gets_its_options() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    chosen = {
        "inter_op_num_threads": "2",
        "enable_cpu_mem_arena": "false",
        "session.intra_op.allow_spinning": "1",
    }
    options = session_options(onnxruntime, EngineSettings(options=chosen))
    assert (2, False) == (options.inter_op_num_threads, options.enable_cpu_mem_arena)
    assert onnxruntime.ExecutionMode.ORT_PARALLEL == options.execution_mode
    assert "1" == options.get_session_config_entry("session.intra_op.allow_spinning")


def test_a_sub_model_on_the_cpu_is_not_accelerated(tmp_path: Path) -> None:
    engine = loaded(save(tmp_path), [A, B], [TOTAL])
    assert engine.acceleration() is None
    engine.close()


def test_the_null_engine_hands_the_first_bytes_on() -> None:
    engine = open_engine("null", EngineSettings())
    engine.load(Path("nowhere.onnx"), [A], [TOTAL])
    source, longer, shorter = np.arange(4.0), np.zeros((2, 3)), np.zeros(1)
    engine.run([source], [longer, shorter])
    assert [[0, 1, 2], [3, 0, 0]] == longer.tolist()
    assert [0] == shorter.tolist()


def test_the_null_engine_sleeps_as_long_as_its_option_says() -> None:
    engine = open_engine("null", EngineSettings(options={"sleep_ms": "30"}))
    begin = time.perf_counter()
    engine.run([], [])
    assert 0.03 <= time.perf_counter() - begin


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
def test_a_sleep_that_is_no_time_is_told(text: str) -> None:
    with pytest.raises(JobError) as error:
        open_engine("null", EngineSettings(options={"sleep_ms": text}))
    assert f"null: option sleep_ms is {text!r}, expected milliseconds" == str(error.value)


def test_a_model_may_leave_sizes_open_that_the_plan_fixes(tmp_path: Path) -> None:
    path = save(tmp_path, MODEL.replace("float[1,4]", "float[N,4]"))
    engine = loaded(path, [A, B], [TOTAL])
    a, b, total = slot(A), slot(B), slot(TOTAL)
    a[...], b[...] = 1, 2
    engine.run([a, b], [total])
    assert [[3] * 4] == total.tolist()
    assert "b" in refusal(path, [A, Tensor("b", "float32", (1, 5))], [TOTAL])
    engine.close()
