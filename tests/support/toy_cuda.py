"""An NVIDIA GPU in software: ``toy_cuda.c`` as its driver, and an onnxruntime that computes there.

The provider called CUDA is onnxruntime's own for CPUs, on memory of the driver's, which is this
process's. It takes the real one's options, and refuses what the real one refuses.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_KNOWN = {"device_id", "use_tf32", "user_compute_stream", "enable_cuda_graph"}
_REFUSES_CPU = "session.disable_cpu_ep_fallback"
_RUNS_BEFORE_REPLAY = 2
NOT_PARTITIONED = (
    "This session cannot use the graph capture feature as requested by the user as all compute"
    " graph nodes have not been partitioned to the CUDAExecutionProvider"
)
NOT_CAPTURED = "CUDA failure 900: operation not permitted when stream is capturing"


class ToyDriver:
    """What a test asks of the driver, and tells it."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.toy_calls.restype = ctypes.c_char_p

    def calls(self) -> str:
        """Return the calls since this was asked last, one letter each."""
        found = self._library.toy_calls()
        assert isinstance(found, bytes)
        return found.decode()

    def held(self) -> int:
        """Return how many things have not been given back."""
        return int(self._library.toy_held())

    def sleeps(self) -> bool:
        """Whether threads that wait for the GPU sleep."""
        return self._library.toy_context_flags() == 4

    def registered_flags(self) -> list[int]:
        """Return the flags with which memory that still is has been page-locked."""
        return [flags for n in range(4096) if (flags := self._library.toy_flags_of(n)) >= 0]

    def fail(self, letter: str, code: int = 2) -> None:
        """Let calls with a letter fail from now on."""
        self._library.toy_fail(ctypes.c_char(letter.encode()), code)

    def reset(self) -> None:
        """Let all calls succeed, and forget what was called."""
        self.fail("-")
        self._library.toy_set_context_flags(0)
        self.calls()


PACKAGE = """
import importlib, sys
from pathlib import Path
from toy_cuda import ToyOnnxRuntime

sys.path.remove(str(Path(__file__).parents[1]))
del sys.modules["onnxruntime"]
sys.modules["onnxruntime"] = ToyOnnxRuntime(importlib.import_module("onnxruntime"))
"""


def install_toy_gpu(library: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that start from now on find the toy in the place of the real ones."""
    for name in ("onnxruntime", "lib"):
        (folder / name).mkdir()
    (folder / "onnxruntime" / "__init__.py").write_text(PACKAGE)
    Path(library).rename(folder / "lib" / "libcuda.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder / "lib"), prepend=os.pathsep)
    for place in (str(Path(__file__).parent), str(folder)):
        monkeypatch.setenv("PYTHONPATH", place, prepend=os.pathsep)


class ToyOnnxRuntime:
    """onnxruntime with a CUDA provider."""

    def __init__(self, onnxruntime: Any) -> None:
        self._real = onnxruntime
        self.left: set[str] = set()
        """Kinds of operators that the provider leaves to the CPU."""
        self.knows_streams = True
        """Whether it has the option for a stream, as newer versions."""
        self.tells_nodes = True
        """Whether it tells which provider has which node, as from 1.24 on."""
        self.can_capture = True
        self.sessions: list[ToySession] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_all_providers(self) -> list[str]:
        return [CUDA, CPU]

    get_available_providers = get_all_providers

    def InferenceSession(  # noqa: N802
        self, path: str, options: Any, providers: Sequence[Any], **rest: Any
    ) -> Any:
        if providers == [CPU]:
            return self._real.InferenceSession(path, options, providers, **rest)
        ((_, wanted),) = providers
        known = _KNOWN if self.knows_streams else _KNOWN - {"user_compute_stream"}
        if unknown := sorted(set(wanted) - known):
            raise ValueError(f"Unknown provider option: {unknown[0]}.")
        if wanted.get("enable_cuda_graph") == "1" and self.left:
            raise RuntimeError(NOT_PARTITIONED)
        if self.left and _refuses_cpu(options):
            raise RuntimeError("This session contains graph nodes that are assigned to the CPU.")
        options.add_session_config_entry(_REFUSES_CPU, "0")
        real = self._real.InferenceSession(path, options, [CPU])
        self.sessions.append(ToySession(self, real, wanted))
        return self.sessions[-1]


def _refuses_cpu(options: Any) -> bool:
    try:
        return bool(options.get_session_config_entry(_REFUSES_CPU) == "1")
    except RuntimeError:  # there is no such entry
        return False


class ToySession:
    """A session of the provider."""

    def __init__(self, runtime: ToyOnnxRuntime, real: Any, options: dict[str, str]) -> None:
        self.options = options
        self.computed = 0
        """How often it has computed, replays of a graph included."""
        self.replayed = 0
        self._runtime = runtime
        self._real = real
        self._captured: dict[int, ToyBinding] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_providers(self) -> list[str]:
        return [CUDA, CPU]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        if not self._runtime.tells_nodes:
            raise AttributeError
        return list(self._parts())

    def _parts(self) -> Iterator[Any]:
        nodes = [n for p in self._real.get_provider_graph_assignment_info() for n in p.get_nodes()]
        for node in nodes:
            provider = CPU if node.op_type in self._runtime.left else CUDA
            yield SimpleNamespace(ep_name=provider, get_nodes=lambda node=node: [node])

    def io_binding(self) -> ToyBinding:
        return ToyBinding(self._real.io_binding())

    def run_with_iobinding(self, binding: ToyBinding, options: Any = None) -> None:
        if options is not None:
            assert "1" == options.get_run_config_entry("disable_synchronize_execution_providers")
        if self.options.get("enable_cuda_graph") != "1":
            self._compute(binding, 1)
            return
        captured = self._captured.get(threading.get_ident())
        if captured is None:
            self._compute(binding, _RUNS_BEFORE_REPLAY)
            if not self._runtime.can_capture:
                raise RuntimeError(NOT_CAPTURED)
            captured = self._captured[threading.get_ident()] = binding
        self._compute(captured, 1)
        self.replayed += 1

    def _compute(self, binding: ToyBinding, times: int) -> None:
        for _ in range(times):
            self._real.run_with_iobinding(binding.real)
            self.computed += 1


class ToyBinding:
    """A binding whose memory on the GPU is that of the process."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.devices: set[str] = set()

    def bind_input(self, name: str, device: str, *place: Any) -> None:
        self.devices.add(device)
        self.real.bind_input(name, "cpu", *place)

    def bind_output(self, name: str, device: str, *place: Any) -> None:
        self.devices.add(device)
        self.real.bind_output(name, "cpu", *place)
