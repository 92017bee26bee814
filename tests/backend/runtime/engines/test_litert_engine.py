"""LiteRT: the interpreter, delegates, and compiled models in their own process."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litert_engines import (
    IMAGE,
    NPU_ENVIRONMENT,
    NPU_OPTIONS,
    SCORES,
    gpu_environment,
    loaded,
    needs_litert,
    needs_openvino,
    needs_swiftshader,
    scores_of,
    slot,
    toy_delegate,
)
from numpy.typing import NDArray
from tflite_models import model_file

from rankslice.backend.runtime.engines import Acceleration, Engine, EngineSettings
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor

pytestmark = needs_litert

CPU = EngineSettings()
COMPILED = EngineSettings(options={"api": "compiled"})


def refusal(settings: EngineSettings, **arguments: object) -> str:
    with pytest.raises(JobError) as error:
        loaded(settings, **arguments)  # type: ignore[arg-type]
    return str(error.value)


def counted_while_running(engine: Engine, seconds: float) -> int:
    """Return how far a thread counts while another one runs the engine again and again."""
    inputs, outputs = [slot(IMAGE)], [slot(SCORES)]
    engine.run(inputs, outputs)
    over = time.monotonic() + seconds
    counts = [0]

    def count() -> None:
        while time.monotonic() < over:
            counts[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    while time.monotonic() < over:
        engine.run(inputs, outputs)
    thread.join()
    engine.close()
    return counts[0]


def test_the_interpreter_reads_the_slots_at_each_run_and_fills_the_others() -> None:
    scores = scores_of(loaded(CPU))
    assert (3, 5) == scores.shape
    assert np.allclose(1, scores.sum(axis=1))
    assert 3 == len({row.tobytes() for row in scores})


def test_a_compiled_model_gives_what_the_interpreter_gives() -> None:
    assert np.abs(scores_of(loaded(CPU)) - scores_of(loaded(COMPILED))).max() <= 1e-6


@pytest.mark.parametrize("settings", [CPU, COMPILED], ids=["interpreter", "compiled"])
def test_other_threads_go_on_while_it_computes(settings: EngineSettings) -> None:
    # A thread that sleeps for a millisecond in between gets far beyond this on an idle machine.
    assert counted_while_running(loaded(settings), 0.5) > 50


def signature(model: str) -> tuple[list[Tensor], list[Tensor]]:
    """Return a model's inputs and outputs as a plan would have them."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(model_file(model)))
    inputs, outputs = (
        [
            Tensor(item["name"], np.dtype(item["dtype"]).name, tuple(map(int, item["shape"])))
            for item in details
        ]
        for details in (interpreter.get_input_details(), interpreter.get_output_details())
    )
    return inputs, outputs


def output_of(settings: EngineSettings, model: str) -> NDArray[Any]:
    """Run a model on ones; return its first output."""
    inputs, outputs = signature(model)
    engine = loaded(settings, inputs, outputs, model=model)
    inputs_of_run, made = [slot(spec) for spec in inputs], [slot(spec) for spec in outputs]
    for values in inputs_of_run:
        values[...] = 1
    engine.run(inputs_of_run, made)
    engine.close()
    return made[0]


@pytest.mark.parametrize("settings", [CPU, COMPILED], ids=["interpreter", "compiled"])
def test_the_names_of_the_signature_are_known_too(settings: EngineSettings) -> None:
    engine = loaded(
        settings,
        [Tensor("keras_tensor", "float32", IMAGE.shape)],
        [Tensor("output_0", "float32", SCORES.shape)],
    )
    assert np.array_equal(scores_of(loaded(settings)), scores_of(engine))


@pytest.mark.parametrize("settings", [CPU, COMPILED], ids=["interpreter", "compiled"])
def test_tensors_that_are_not_the_plans_are_told(settings: EngineSettings) -> None:
    other = Tensor("logits", "float32", (1, 5))
    assert (
        "cnn_float32.tflite: has no output 'logits'; it has 'StatefulPartitionedCall_1:0'"
    ) == refusal(settings, outputs=[other])
    assert (
        "cnn_float32.tflite: input 'serving_default_keras_tensor:0' is float32[1, 16, 16, 3], the"
        " job says int8[1, 16, 16, 3]"
    ) == refusal(settings, inputs=[Tensor(IMAGE.name, "int8", IMAGE.shape)])


@pytest.mark.parametrize("content", [b"", b"no model", b"\0\0\0\x20TFL3" + bytes(8)])
@pytest.mark.parametrize("settings", [CPU, COMPILED], ids=["interpreter", "compiled"])
def test_a_file_that_is_no_model_is_told(
    tmp_path: Path, content: bytes, settings: EngineSettings
) -> None:
    path = tmp_path / "part.0.tflite"
    path.write_bytes(content)
    assert refusal(settings, model=path).startswith("part.0.tflite: ")


def test_a_custom_operator_that_is_not_there_is_named() -> None:
    message = refusal(CPU, model="custom_in_between")
    assert message.startswith("custom_in_between.tflite: needs the custom operator ")


def test_an_input_of_open_size_gets_the_plans_size() -> None:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(model_file("open_batch")))
    (details,) = interpreter.get_input_details()
    (made,) = interpreter.get_output_details()
    inputs = Tensor(details["name"], "float32", (4, *map(int, details["shape"][1:])))
    outputs = Tensor(made["name"], "float32", (4, *map(int, made["shape"][1:])))
    engine = loaded(CPU, [inputs], [outputs], model="open_batch")
    values, results = slot(inputs), slot(outputs)
    values[...] = np.random.default_rng(0).random(inputs.shape)
    engine.run([values], [results])
    assert 4 == len({row.tobytes() for row in results})
    engine.close()


def test_on_the_cpu_xnnpack_is_counted() -> None:
    engine = loaded(CPU)
    assert Acceleration("XNNPACK", 13, 13, 1) == engine.acceleration()
    engine.close()


# Delegates.


def with_toy(library: str, operator: int, *, allow_fallback: bool = False) -> EngineSettings:
    options = {"delegate": library, "operator": str(operator)}
    return EngineSettings(options=options, accelerator="npu", allow_fallback=allow_fallback)


ADD, LOGISTIC = 0, 14


@pytest.mark.parametrize("operator", [ADD, LOGISTIC])
def test_a_delegate_computes_its_operators_and_the_cpu_the_others(
    tmp_path: Path, operator: int
) -> None:
    engine = loaded(with_toy(toy_delegate(tmp_path), operator, allow_fallback=True))
    acceleration = engine.acceleration()
    assert acceleration is not None
    assert ("toy.so", 1, 13, 1) == (
        acceleration.by,
        acceleration.operators,
        acceleration.of,
        acceleration.partitions,
    )
    assert ("ADD" in acceleration.others, "LOGISTIC" in acceleration.others) == (
        operator != ADD,
        operator == ADD,
    )
    assert np.abs(scores_of(loaded(CPU)) - scores_of(engine)).max() <= 1e-6


def test_a_delegate_that_leaves_operators_to_the_cpu_is_refused_unless_that_is_allowed(
    tmp_path: Path,
) -> None:
    assert refusal(with_toy(toy_delegate(tmp_path), ADD)) == (
        "cnn_float32.tflite: toy.so runs 1 of 13 operators, but not CONV_2D, DEPTHWISE_CONV_2D,"
        " MAX_POOL_2D, LOGISTIC, CONCATENATION, RESHAPE, FULLY_CONNECTED, TANH, SOFTMAX; map the"
        " other layers to a CPU, or let them run on the host core with allow_fallback: true in the"
        " platform file"
    )


def test_a_delegates_own_complaint_is_told(tmp_path: Path) -> None:
    library = toy_delegate(tmp_path)
    settings = EngineSettings(
        options={"delegate": library, "backend_type": "htp"}, accelerator="npu"
    )
    assert (
        f"delegate {library} refuses to start with options {{'backend_type': 'htp'}}: the toy has"
        " one option, operator"
    ) == refusal(settings)


def test_a_delegate_library_that_is_not_there_or_none_is_told() -> None:
    missing = EngineSettings(options={"delegate": "libNoDelegate.so"}, accelerator="npu")
    assert refusal(missing).startswith("delegate libNoDelegate.so cannot be loaded: libNoDelegate")
    other = EngineSettings(options={"delegate": "libm.so.6"}, accelerator="npu")
    assert "libm.so.6 is not a delegate: it lacks tflite_plugin_create_delegate" == refusal(other)


# Options.


@pytest.mark.parametrize(
    ("accelerator", "options", "expected"),
    [
        ("cpu", {"delegat": "x.so"}, "the interpreter has no option 'delegat' without a delegate"),
        ("cpu", {"api": "compile"}, "option api is 'compile', expected interpreter or compiled"),
        ("gpu", {"api": "interpreter"}, "the interpreter needs a delegate library for the gpu"),
        ("npu", {}, "option vendor is '', expected openvino or qualcomm"),
        ("gpu", {"enforce_f32": "maybe"}, "option enforce_f32 is 'maybe', expected true or false"),
        ("gpu", {"enforcef32": "true"}, "the gpu has no option 'enforcef32'; did you mean"),
        (
            "npu",
            {"vendor": "qualcomm"},
            "has no dispatch library of qualcomm; name the folder of the vendor's with the option"
            " dispatch_library_path",
        ),
        (
            "npu",
            {**NPU_OPTIONS, "graph_backend": "TPU"},
            "option graph_backend is 'TPU', expected one of CPU, GPU, NPU",
        ),
        (
            "npu",
            {"vendor": "qualcomm", "dispatch_library_path": "/", "vtcm_size": "big"},
            "option vtcm_size is 'big', expected a whole number",
        ),
    ],
)
def test_options_that_are_wrong_are_told(
    accelerator: str, options: dict[str, str], expected: str
) -> None:
    message = refusal(EngineSettings(options=options, accelerator=accelerator))
    assert message.startswith("litert: ")
    assert expected in message


# GPU and NPU, played by software.


@needs_swiftshader
def test_a_gpu_gives_what_the_cpu_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in gpu_environment().items():
        monkeypatch.setenv(name, value)
    engine = loaded(EngineSettings(accelerator="gpu"))
    assert Acceleration("LiteRT's GPU accelerator", 13, 13) == engine.acceleration()
    assert np.abs(scores_of(loaded(CPU)) - scores_of(engine)).max() <= 1e-5


@pytest.mark.ci
@needs_swiftshader
def test_what_a_gpu_cannot_run_goes_to_the_cpu_only_if_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in gpu_environment().items():
        monkeypatch.setenv(name, value)
    inputs, outputs = signature("control_flow")
    assert (
        "control_flow.tflite: LiteRT's GPU accelerator runs 3 of 7 operators, but not IF, WHILE;"
    ) in refusal(
        EngineSettings(accelerator="gpu"), inputs=inputs, outputs=outputs, model="control_flow"
    )
    allowed = EngineSettings(accelerator="gpu", allow_fallback=True)
    engine = loaded(allowed, inputs, outputs, model="control_flow")
    acceleration = engine.acceleration()
    assert Acceleration("LiteRT's GPU accelerator", 3, 7, None, ("IF", "WHILE")) == acceleration
    engine.close()
    expected = output_of(CPU, "control_flow")
    assert np.abs(expected - output_of(allowed, "control_flow")).max() <= 1e-5


def test_a_gpu_without_a_driver_does_not_become_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(name, "/nowhere.json")
    message = refusal(EngineSettings(accelerator="gpu"))
    assert "cannot compile it for the gpu: " in message
    assert "Failed to initialize WebGPU environment" in message


@needs_openvino
def test_an_npu_gives_what_the_cpu_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NPU_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    engine = loaded(EngineSettings(options=NPU_OPTIONS, accelerator="npu"))
    assert Acceleration("LiteRT's NPU accelerator", 13, 13, 1) == engine.acceleration()
    assert np.abs(scores_of(loaded(CPU)) - scores_of(engine)).max() <= 1e-5
