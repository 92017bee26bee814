"""Engines of LiteRT with the test models loaded, and the accelerators that stand in for boards'."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts_of_tflite
from numpy.typing import NDArray
from tflite_models import model_file
from toys import toy_library

from rankslice.backend.runtime.engines import Engine, EngineSettings, open_engine
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.pipeline.slots import Ring

IMAGE = Tensor("serving_default_keras_tensor:0", "float32", (1, 16, 16, 3))
SCORES = Tensor("StatefulPartitionedCall_1:0", "float32", (1, 5))

_SWIFTSHADER = "vk_swiftshader_icd.json"


def has_litert() -> bool:
    return importlib.util.find_spec("ai_edge_litert") is not None


needs_litert = pytest.mark.skipif(not has_litert(), reason="ai-edge-litert is not installed")


def swiftshader() -> Path | None:
    """Return the folder with SwiftShader, a GPU in software, if it is on this machine."""
    folders = [Path("/usr/lib/chromium"), Path(__file__).parents[2] / ".venv" / "swiftshader"]
    if given := os.environ.get("RANKSLICE_SWIFTSHADER"):
        folders.insert(0, Path(given))
    return next((folder for folder in folders if (folder / _SWIFTSHADER).exists()), None)


needs_swiftshader = pytest.mark.skipif(
    not has_litert() or swiftshader() is None,
    reason="SwiftShader is not installed (Debian: chromium-common)",
)


def gpu_environment() -> dict[str, str]:
    folder = swiftshader()
    assert folder is not None
    driver = str(folder / _SWIFTSHADER)
    return {
        "VK_DRIVER_FILES": driver,
        "VK_ICD_FILENAMES": driver,
        "LD_LIBRARY_PATH": str(folder),
    }


def openvino_fits() -> bool:
    """Return whether OpenVINO is there in the version that this LiteRT was linked with."""
    litert, openvino = (importlib.util.find_spec(name) for name in ("ai_edge_litert", "openvino"))
    if litert is None or openvino is None or litert.origin is None or openvino.origin is None:
        return False
    vendor = Path(litert.origin).parent / "vendors" / "intel_openvino" / "dispatch"
    plugins = list(vendor.glob("*.so"))
    libraries = (Path(openvino.origin).parent / "libs").glob("libopenvino.so.*")
    names = [library.name.encode() for library in libraries]
    return any(name in plugin.read_bytes() for plugin in plugins for name in names)


needs_openvino = pytest.mark.skipif(
    not openvino_fits(), reason="OpenVINO is not installed in the version that LiteRT wants"
)

NPU_OPTIONS = {"vendor": "openvino", "graph_backend": "CPU"}
NPU_ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Without it OpenVINO computes with fewer bits where the processor offers that."""


def toy_delegate(folder: Path) -> str:
    """Compile the delegate for tests and return its path."""
    return toy_library("toy_delegate.c", folder)


def loaded(
    settings: EngineSettings,
    inputs: list[Tensor] | None = None,
    outputs: list[Tensor] | None = None,
    *,
    model: str | Path = "cnn_float32",
) -> Engine:
    path = model if isinstance(model, Path) else model_file(model)
    engine = open_engine("litert", replace(settings, facts=facts_of_tflite(path)))
    try:
        engine.load(path, inputs or [IMAGE], outputs or [SCORES])
    except BaseException:
        engine.close()
        raise
    return engine


def scores_of(engine: Engine, frames: int = 3) -> NDArray[np.float32]:
    """Run frames of random values and return the scores, closing the engine."""
    random = np.random.default_rng(0)
    inputs, outputs = slot(IMAGE), slot(SCORES)
    found = []
    for _ in range(frames):
        inputs[...] = random.random(IMAGE.shape, np.float32)
        engine.run([inputs], [outputs])
        found.append(outputs.copy())
    engine.close()
    return np.concatenate(found)


def slot(spec: Tensor) -> NDArray[Any]:
    return Ring(spec, 1, 1).slots[0]
