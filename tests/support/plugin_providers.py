"""Execution providers that onnxruntime loads from libraries of their own, as GPU and NPU."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from litert_engines import swiftshader

PACKAGES = ("onnxruntime-ep-webgpu", "onnxruntime-qnn")

_PLATFORM = Path(__file__).parents[2] / "platforms" / "virtual-rubikpi-onnx.yaml"
_SWIFTSHADER = "/usr/lib/chromium"
"""Where the platform file has it."""


def has_plugins() -> bool:
    installed = {found.metadata["Name"] for found in importlib.metadata.distributions()}
    return installed.issuperset(PACKAGES)


needs_plugins = pytest.mark.skipif(
    not has_plugins(), reason=f"not installed: {' or '.join(PACKAGES)}"
)
needs_plugins_and_gpu = pytest.mark.skipif(
    not has_plugins() or swiftshader() is None,
    reason=f"not installed: {', '.join(PACKAGES)} or SwiftShader (Debian: chromium-common)",
)

WEBGPU = Path(__file__).parents[2] / ".venv" / "webgpu"
"""A build of onnxruntime that has WebGPU itself."""
needs_webgpu = pytest.mark.skipif(
    not WEBGPU.is_dir() or swiftshader() is None,
    reason="not installed: onnxruntime-webgpu or SwiftShader; see .ci/accelerators",
)


def plugin_board() -> dict[str, Any]:
    """Return the shipped board for ONNX models, with SwiftShader from where it is here."""
    text = _PLATFORM.read_text().replace(_SWIFTSHADER, str(swiftshader() or _SWIFTSHADER))
    board: dict[str, Any] = yaml.load(text, yaml.BaseLoader)["boards"]["virtual"]
    return {**board, "cores": min(2, os.cpu_count() or 1)}
