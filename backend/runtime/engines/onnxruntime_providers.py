"""onnxruntime's execution providers: which one a rank wants, and how much it has taken over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from ..figures.acceleration import Acceleration
from . import EngineSettings, hint, truth, wrong_option

if TYPE_CHECKING:
    from importlib.metadata import PackagePath

CPU = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
_CUDA = f"CUDA{_SUFFIX}"
_TF32_OPTION = "use_tf32"
_TF32_VARIABLE = "NVIDIA_TF32_OVERRIDE"
"""NVIDIA's libraries read it when they are loaded; 0 forbids TF32, whatever a program asks for."""

_PACKAGES = {
    "CUDA": "onnxruntime-gpu",
    "Tensorrt": "onnxruntime-gpu",
    "OpenVINO": "onnxruntime-openvino",
    "Xnnpack": "a build of onnxruntime with XNNPACK",
}
"""Where onnxruntime has a provider from, if it is not in the usual package."""

PLUGINS = {
    "OpenVINO": "onnxruntime-ep-openvino",
    "QNN": "onnxruntime-qnn",
    "WebGpu": "onnxruntime-ep-webgpu",
}
"""Provider -> the distribution with its library, unless the platform file names another."""

SESSION_OPTIONS: dict[str, type[int]] = {
    "inter_op_num_threads": int,
    "enable_cpu_mem_arena": bool,
    "enable_mem_pattern": bool,
    "enable_mem_reuse": bool,
    "use_deterministic_compute": bool,
}
"""Options of a session, with or without a provider -> the type of their values. How many threads
compute an operator is up to the rank's cores."""
ENTRIES = ("session.", "memory.", "optimization.", "mlas.")
"""How onnxruntime's further options of a session begin, which it takes as texts."""

_LIBRARY = "*onnxruntime_providers_*.so"
_registered: set[str] = set()
"""Providers from libraries: onnxruntime lists them like its own from then on."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An execution provider that is there, with its options."""

    name: str
    """onnxruntime's name of it: ``CUDAExecutionProvider``."""
    options: dict[str, str] = field(default_factory=dict)
    device: Any = None
    """What it computes on, if it comes from a library of its own; otherwise it chooses itself."""

    @property
    def is_cpu(self) -> bool:
        """Whether it is onnxruntime's own, which runs every operator."""
        return self.name == CPU

    @property
    def is_cuda(self) -> bool:
        """Whether it is onnxruntime's own for NVIDIA's GPUs."""
        return self.name == _CUDA and self.device is None

    @property
    def tf32(self) -> bool | None:
        """Whether it computes float32 as TF32; ``None``: it is none of NVIDIA's."""
        if self.name == _CUDA:
            return self.options[_TF32_OPTION].lower() not in ("0", "false")
        return os.environ.get(_TF32_VARIABLE) != "0" if _is_tensorrt(self.name) else None


def check_options(settings: EngineSettings) -> None:
    """Check that options without a provider are the session's, and what values these have.

    Raises:
        JobError: they are not, or a GPU or NPU has no provider.
    """
    for name, text in settings.options.items():
        if name in SESSION_OPTIONS:
            session_value(name, text)
    if settings.options.get("provider"):
        return
    if settings.accelerator != "cpu":
        raise JobError(
            f"onnxruntime: the {settings.accelerator} needs a provider in the platform file,"
            " such as CUDA, TensorRT, QNN or OpenVINO"
        )
    for name in settings.options:
        if not _is_of_session(name):
            raise JobError(
                f"onnxruntime: the session has no option {name!r}{hint(name, SESSION_OPTIONS)};"
                " options of a provider need a provider in the platform file"
            )


def _is_of_session(name: str) -> bool:
    return name in SESSION_OPTIONS or name.startswith(ENTRIES)


def session_value(name: str, text: str) -> int | bool:
    """Return the value of one of the :data:`SESSION_OPTIONS`.

    Raises:
        JobError: it cannot have this value.
    """
    if SESSION_OPTIONS[name] is int:
        if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 16:
            raise wrong_option("onnxruntime", name, text, "a number from 1")
        return int(text)
    return truth("onnxruntime", name, text)


def find_provider(onnxruntime: Any, settings: EngineSettings) -> Provider:
    """Return the provider that the platform file names: ``CUDA``, ``TensorRT``, ``OpenVINO``, ...

    Raises:
        JobError: onnxruntime does not know it, or has it not here; or a GPU or NPU has none.
    """
    check_options(settings)
    options = {name: v for name, v in settings.options.items() if not _is_of_session(name)}
    wanted = options.pop("provider", "")
    if not wanted:
        return Provider(CPU)
    plugin = options.pop("plugin", "")
    name = _full_name(onnxruntime, wanted, is_known=not plugin)
    _keep_float32(name, options)
    available, short = onnxruntime.get_available_providers(), short_name(name)
    if not plugin and (name not in available or name in _registered):
        usual = PLUGINS.get(short, "")
        plugin = usual if usual and _files_of(usual) is not None else ""
    if plugin:
        kind = options.pop("device_type", settings.accelerator).upper()
        return Provider(name, options, find_device(onnxruntime, name, plugin, kind))
    if name not in available:
        packages = {**PLUGINS, **_PACKAGES}
        advice = f"; it comes with {packages[short]}" if short in packages else ""
        raise JobError(
            f"onnxruntime {onnxruntime.__version__} on this board has no provider {short}, only"
            f" {', '.join(map(short_name, available))}{advice}"
        )
    on_cpu = options.get("device_type", "CPU").upper().startswith("CPU")
    if short == "Xnnpack":
        options.setdefault("intra_op_num_threads", str(settings.threads))
    elif short == "OpenVINO" and on_cpu:
        options.setdefault("num_of_threads", str(settings.threads))
    return Provider(name, options)


def qnn_profile(profile: str) -> Path:
    """Return the file into which QNN writes its own profile."""
    return Path(f"{profile}-qnn.csv")


def with_profile(provider: Provider, profile: str) -> Provider:
    """Return a provider that also reports when its accelerator ran operators, if it can.

    Others than QNN put it into onnxruntime's profile.
    """
    if short_name(provider.name) != "QNN":
        return provider
    usual = {"profiling_level": "detailed", **provider.options}
    return replace(provider, options={**usual, "profiling_file_path": str(qnn_profile(profile))})


def _full_name(onnxruntime: Any, wanted: str, *, is_known: bool) -> str:
    """Return onnxruntime's name of a provider, or what it would be if it need not be known."""
    known: dict[str, str] = {
        short_name(name).lower(): name for name in onnxruntime.get_all_providers()
    }
    name = known.get(short_name(wanted).lower())
    if name is not None:
        return name
    if not is_known:
        return f"{short_name(wanted)}{_SUFFIX}"
    problem = f"onnxruntime {onnxruntime.__version__} knows no provider {wanted!r}"
    raise JobError(problem + hint(wanted, map(short_name, known.values())))


def short_name(name: str) -> str:
    return name.removesuffix(_SUFFIX)


def _keep_float32(name: str, options: dict[str, str]) -> None:
    """Switch TF32 off unless the platform file has it: by an option, or in the environment.

    TF32 has float32's range, and 10 of its 23 bits. It is the default of both providers;
    TensorRT's has no option for it.
    """
    if name == _CUDA:
        options.setdefault(_TF32_OPTION, "0")
    elif _is_tensorrt(name):
        os.environ.setdefault(_TF32_VARIABLE, "0")


def _is_tensorrt(name: str) -> bool:
    return "tensorrt" in name.lower()


def count_operators(session: Any, provider: Provider, path: Path) -> Acceleration:
    """Count the operators of a session that its provider runs.

    onnxruntime before 1.24 does not tell; the numbers are ``None`` then.

    Raises:
        JobError: the provider could not start, and onnxruntime went on without it.
    """
    by = short_name(provider.name)
    if provider.name not in session.get_providers():
        raise JobError(
            f"{path.name}: the provider {by} cannot start on this board: its libraries or its"
            " device are missing, or an option is wrong"
        )
    try:
        parts = session.get_provider_graph_assignment_info()
    except Exception:  # no such method, or not recorded: versions differ
        return Acceleration(by, None, None, tf32=provider.tf32)
    mine = [len(part.get_nodes()) for part in parts if part.ep_name == provider.name]
    left = [
        node.op_type for part in parts if part.ep_name != provider.name for node in part.get_nodes()
    ]
    others = tuple(dict.fromkeys(left))
    total, pieces = sum(mine) + len(left), _partitions(mine, left)
    return Acceleration(by, sum(mine), total, pieces, others, provider.tf32)


def _partitions(mine: Sequence[int], left: Sequence[str]) -> int | None:
    """Return in how many pieces a provider runs its operators, by how many each entry has.

    Providers that compile list a piece as a whole; others list each of their operators.
    """
    if any(count > 1 for count in mine) or len(mine) < 2:
        return len(mine)
    return None if left else 1


# Providers that are no part of onnxruntime, but come as a library of their own.


def is_library(plugin: str) -> bool:
    return "/" in plugin or plugin.endswith(".so")


def find_device(onnxruntime: Any, name: str, plugin: str, wanted: str) -> Any:
    """Return the device of a kind (``CPU``, ``GPU``, ``NPU``) on which a plug-in is to compute.

    ``plugin``: the file of its library, or the distribution that has it.

    Raises:
        JobError: the library is not there, does not fit, or offers no such device here.
    """
    _register(onnxruntime, name, _library_of(plugin))
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    kinds = [device.device.type.name for device in devices]
    if wanted in kinds:
        return devices[kinds.index(wanted)]
    problem = f"the provider of {plugin} offers no {wanted} on this board"
    if not kinds:
        raise JobError(f"{problem}: it finds no device that it can use")
    offered = " and ".join(dict.fromkeys(kinds))
    raise JobError(
        f"{problem}, only {offered}; if it is to compute on that, add device_type: {kinds[0]} to"
        " its options"
    )


def _library_of(plugin: str) -> str:
    if is_library(plugin):
        return plugin
    files = _files_of(plugin)
    if files is None:
        raise JobError(f"the plug-in {plugin} is not installed on this board: pip install {plugin}")
    libraries = [file for file in files if fnmatchcase(file.name, _LIBRARY)]
    if len(libraries) != 1:
        raise JobError(
            f"{plugin} has {len(libraries)} libraries called {_LIBRARY}, expected one; name the"
            " library's file as plugin"
        )
    return str(libraries[0].locate())


def _files_of(package: str) -> Sequence[PackagePath] | None:
    """Return the files of a distribution, which is not imported; ``None``: not installed."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        return files(package) or ()
    except PackageNotFoundError:
        return None


def _register(onnxruntime: Any, name: str, library: str) -> None:
    if name in _registered:
        return
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise JobError(
            f"onnxruntime {onnxruntime.__version__} on this board takes no plug-ins, which"
            f" {name} is; install 1.24.4 or later"
        )
    try:
        # Some libraries name their provider by what they are registered as.
        onnxruntime.register_execution_provider_library(name, library)
    except Exception as error:  # onnxruntime's exceptions have no common base class
        raise JobError(
            f"onnxruntime {onnxruntime.__version__} cannot load {library}: {error}"
        ) from None
    _registered.add(name)
