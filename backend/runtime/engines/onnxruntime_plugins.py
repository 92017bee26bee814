"""Execution providers that are no part of onnxruntime, but come as a library of their own."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..errors import JobError

if TYPE_CHECKING:
    from importlib.metadata import PackagePath

PLUGINS = {
    "OpenVINO": "onnxruntime-ep-openvino",
    "QNN": "onnxruntime-qnn",
    "WebGpu": "onnxruntime-ep-webgpu",
}
"""Provider -> the distribution with its library, unless the platform file names another."""

_LIBRARY = "*onnxruntime_providers_*.so"
_registered: set[str] = set()
"""Providers from libraries: onnxruntime lists them like its own from then on."""


def plugin_of(provider: str) -> str:
    """Return the installed distribution that usually has a provider; empty: there is none."""
    package = PLUGINS.get(provider, "")
    return package if package and _files_of(package) is not None else ""


def is_library(plugin: str) -> bool:
    return "/" in plugin or plugin.endswith(".so")


def is_plugin(name: str) -> bool:
    """Tell whether a provider, by its full name, comes from a library that is in use."""
    return name in _registered


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
    found = f"the provider of {plugin} offers no {wanted} on this board"
    if not kinds:
        raise JobError(f"{found}: it finds no device that it can use")
    offered = " and ".join(dict.fromkeys(kinds))
    raise JobError(
        f"{found}, only {offered}; if it is to compute on that, add device_type: {kinds[0]} to its"
        " options"
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
