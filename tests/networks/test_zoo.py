"""The zoo: networks of real size with calibrated random weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.framework.errors import RankSliceError
from rankslice.networks.zoo import NETWORKS, cache_folder, zoo_model, zoo_names

onnxruntime = load_onnxruntime()

PARAMETERS = {
    "alexnet": 60_965_224,
    "densenet121": 8_146_152,  # 7 978 856 trained ones, and two BatchNormalization moments each
    "inception_v1": 6_998_552,
    "inception_v2": 11_234_792,
    "resnet50": 25_610_152,
    "shufflenet": 1_420_152,
    "squeezenet": 1_235_496,
    "vgg19": 143_667_240,
    "zfnet512": 87_250_536,
}
LARGE = ("alexnet", "vgg19", "zfnet512")
FIRST = "squeezenet"
"""The one that `make test` makes."""


@pytest.fixture(
    scope="module",
    params=[
        FIRST,
        *(
            pytest.param(name, marks=pytest.mark.slow if name in LARGE else pytest.mark.ci)
            for name in sorted({*PARAMETERS} - {FIRST})
        ),
    ],
)
def network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    path = zoo_model(request.param, tmp_path_factory.mktemp("zoo"))
    yield request.param, path
    path.unlink()  # up to 575 MB


def noise(session: Any, seed: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return {
        entry.name: random.standard_normal(entry.shape, np.float32)
        for entry in session.get_inputs()
    }


def session_of(model: onnx.ModelProto | Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = model if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def probabilities(output: NDArray[np.float32]) -> NDArray[np.float64]:
    """Apply a softmax to what the network gives, unless it has one (DenseNet-121 has none)."""
    values = output.ravel().astype(np.float64)
    if abs(values.sum() - 1) < 1e-3:
        return values
    exponentials = np.exp(values - values.max())
    return exponentials / exponentials.sum()


def test_nine_networks_are_known() -> None:
    assert tuple(sorted(PARAMETERS)) == zoo_names()


def test_a_network_has_as_many_parameters_as_the_real_one(network: tuple[str, Path]) -> None:
    name, path = network
    tensors = onnx.load(path).graph.initializer
    floats = [prod(t.dims) for t in tensors if t.data_type == onnx.TensorProto.FLOAT]
    assert PARAMETERS[name] == sum(floats)


def test_a_network_keeps_the_layers_of_the_light_file(network: tuple[str, Path]) -> None:
    name, path = network
    light = onnx.load(str(files("onnx") / "backend/test/data/light" / NETWORKS[name].file))
    model = onnx.load(path)
    expected = [node for node in light.graph.node if node.op_type != "ConstantOfShape"]
    assert expected == list(model.graph.node)
    assert list(light.graph.output) == list(model.graph.output)
    assert (light.ir_version, list(light.opset_import)) == (
        model.ir_version,
        list(model.opset_import),
    )


def test_a_network_is_valid_and_onnxruntime_warns_of_nothing(
    network: tuple[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    _, path = network
    onnx.checker.check_model(path)
    session = session_of(path)
    assert 1 == len(session.get_inputs())
    assert capfd.readouterr() == ("", "")


def test_a_network_gives_an_uncertain_answer_that_depends_on_the_frame(
    network: tuple[str, Path],
) -> None:
    _, path = network
    session = session_of(path)
    outputs = [session.run(None, noise(session, seed))[0] for seed in (1, 2)]
    for output in outputs:
        assert output.size == 1000
        assert np.isfinite(output).all()
        assert 2 / 1000 < probabilities(output).max() < 0.5
    spread = np.ptp(outputs[0])
    assert np.abs(outputs[0] - outputs[1]).max() > 0.05 * spread


def test_every_activation_is_of_order_one(network: tuple[str, Path]) -> None:
    _, path = network
    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    layers = [node for node in model.graph.node if not weights.issuperset(node.input)]
    names = [node.output[0] for node in layers if node.op_type != "Softmax"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=each) for each in names)
    session = session_of(model)
    activations = session.run(names, noise(session, 3))
    scales = {key: float(value.std()) for key, value in zip(names, activations, strict=True)}
    assert {key: scale for key, scale in scales.items() if not 0.05 < scale < 10} == {}


def test_no_channel_is_dead(network: tuple[str, Path]) -> None:
    _, path = network
    model = onnx.load(path)
    names = [node.output[0] for node in model.graph.node if node.op_type == "Relu"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=each) for each in names)
    session = session_of(model)
    peaks: dict[str, NDArray[np.float32]] = {}
    for seed in range(3):
        for key, value in zip(names, session.run(names, noise(session, seed)), strict=True):
            if value.ndim == 4:
                peak = value.max(axis=(0, 2, 3))
                peaks[key] = np.maximum(peaks.get(key, peak), peak)
    dead = Counter({key: int((peak <= 0).sum()) for key, peak in peaks.items()})
    assert dead.total() <= 0.01 * sum(peak.size for peak in peaks.values())


def test_the_same_bytes_are_made_again(tmp_path: Path) -> None:
    first, second = (zoo_model("squeezenet", tmp_path / part) for part in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_file_that_is_there_is_used_again_and_nothing_else_is_left(tmp_path: Path) -> None:
    first = zoo_model("squeezenet", tmp_path)
    made = first.stat()
    second = zoo_model("squeezenet", tmp_path)
    assert (first, made.st_mtime_ns, made.st_ino) == (
        second,
        second.stat().st_mtime_ns,
        second.stat().st_ino,
    )
    assert [first] == list(tmp_path.iterdir())


def test_an_unknown_network_is_named_with_its_nearest() -> None:
    with pytest.raises(RankSliceError, match="no network 'resnet5'; did you mean 'resnet50'"):
        zoo_model("resnet5")


def test_the_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RANKSLICE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert Path.home() / ".cache" / "rankslice" == cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "rankslice" == cache_folder()
    monkeypatch.setenv("RANKSLICE_CACHE", str(tmp_path / "own"))
    assert tmp_path / "own" == cache_folder()


def test_a_relative_xdg_cache_home_is_ignored_as_its_standard_demands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RANKSLICE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert Path.home() / ".cache" / "rankslice" == cache_folder()
