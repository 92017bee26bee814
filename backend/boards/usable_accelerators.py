"""Which GPUs and NPUs of a board a job could use, by the devices, libraries and engines found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from rankslice.backend.boards.probed import BoardReport, Device, Environment, Library
from rankslice.framework.engines import ENGINES
from rankslice.framework.wording import joined

_SOFTWARE_DRIVERS = ("lvp", "llvmpipe", "swiftshader", "pocl")
"""Parts of names of Vulkan and OpenCL drivers that compute on the CPU."""


@dataclass(frozen=True, slots=True)
class Usable:
    """A GPU or NPU for which all is there, as the platform file has it."""

    unit: str
    """``gpu`` or ``npu``."""
    spec: tuple[tuple[str, str], ...]
    """Keys and values besides options and environment."""
    options: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    source: str = ""
    """What was found that says so."""


@dataclass(frozen=True, slots=True)
class Accelerators:
    usable: tuple[Usable, ...]
    remarks: tuple[str, ...]
    """What was seen that lacks something, and what it lacks."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a kind of GPU or NPU is used, and what has to be there for it."""

    unit: str
    title: str
    devices: tuple[str, ...]
    """Patterns of device files, of which one is enough."""
    engine: str
    packages: tuple[str, ...] = ()
    """Distributions with the engine, of which one is enough; empty: any that has it."""
    delegate: str = ""
    libraries: tuple[str, ...] = ()
    """Patterns of libraries, all needed besides the delegate; ``a|b``: one of them."""
    driver: bool = False
    """Whether a hardware driver of Vulkan or OpenCL is needed."""
    provider: str = ""
    plugin: str = ""
    """Distribution that has the provider for any onnxruntime."""
    bundled: tuple[str, ...] = ()
    """Patterns of libraries that are needed, too, but come with the plug-in."""
    options: tuple[tuple[str, str], ...] = ()
    skeleton: str = ""
    """Pattern of a library for the NPU itself; its loader needs the folder."""


_GPU_NODES = ("/dev/kgsl-3d0", "/dev/dri/renderD*", "/dev/mali*")
_DSP_NODES = ("/dev/fastrpc-*", "/dev/adsprpc*")

_WAYS = (
    _Way(
        "gpu",
        "onnxruntime with CUDA",
        ("/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/dev/nvmap"),
        "onnxruntime",
        provider="CUDA",
    ),
    _Way(
        "gpu",
        "LiteRT's GPU delegate",
        _GPU_NODES,
        "litert",
        delegate="libtensorflowlite_gpu_delegate.so*",
        libraries=("libOpenCL.so*",),
    ),
    _Way(
        "gpu",
        "LiteRT's compiled models",
        _GPU_NODES,
        "litert",
        packages=("ai-edge-litert",),
        libraries=("libOpenCL.so*|libvulkan.so*",),
        driver=True,
    ),
    _Way(
        "gpu",
        "onnxruntime with WebGPU",
        _GPU_NODES,
        "onnxruntime",
        provider="WebGPU",
        plugin="onnxruntime-ep-webgpu",
        libraries=("libvulkan.so*",),
        driver=True,
    ),
    _Way(
        "npu",
        "Qualcomm's delegate for LiteRT",
        _DSP_NODES,
        "litert",
        delegate="libQnnTFLiteDelegate.so*",
        libraries=("libQnnHtp.so*",),
        options=(("backend_type", "htp"),),
        skeleton="libQnnHtpV*Skel.so*",
    ),
    _Way(
        "npu",
        "onnxruntime with QNN",
        _DSP_NODES,
        "onnxruntime",
        provider="QNN",
        plugin="onnxruntime-qnn",
        bundled=("libQnnHtp.so*",),
    ),
    _Way(
        "npu",
        "Coral's delegate for LiteRT",
        ("/dev/apex_*", "USB 1a6e:089a", "USB 18d1:9302"),
        "litert",
        delegate="libedgetpu.so*",
    ),
    _Way(
        "npu",
        "Ethos-U's delegate for LiteRT",
        ("/dev/ethosu*",),
        "litert",
        delegate="libethosu_delegate.so*",
    ),
    _Way(
        "npu",
        "VeriSilicon's delegate for LiteRT",
        ("/dev/galcore",),
        "litert",
        delegate="libvx_delegate.so*",
    ),
)
"""The first that is complete is taken, for each unit."""

_UNKNOWN = ("/dev/rknpu*", "/dev/hailo*", "/dev/accel/*")
"""Devices of NPUs to which no engine here has a way."""


def searched() -> dict[str, list[str]]:
    """Return patterns of the ``devices`` and ``libraries`` that boards search for."""
    devices = [pattern for way in _WAYS for pattern in way.devices]
    libraries = [
        pattern
        for way in _WAYS
        for text in (way.delegate, *way.libraries, *way.bundled, way.skeleton)
        for pattern in filter(None, text.split("|"))
    ]
    return {
        "devices": [*dict.fromkeys((*devices, *_UNKNOWN))],
        "libraries": [*dict.fromkeys(libraries)],
    }


@dataclass(slots=True)
class _Seen:
    way: _Way
    device: Device | None
    paths: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def accelerators_of(report: BoardReport) -> Accelerators:
    seen = [_seen(way, report) for way in _WAYS]
    usable: dict[str, Usable] = {}
    for candidate in seen:
        if not candidate.missing:
            usable.setdefault(candidate.way.unit, _usable(candidate, report))
    remarks = [
        f"{candidate.way.unit}: {_lack_text(candidate)}"
        for candidate in seen
        # Other libraries are on many boards.
        if candidate.device is not None
        or (candidate.way.delegate and _library(report.libraries, candidate.way.delegate))
        if candidate.way.unit not in usable
    ]
    remarks += [
        f"npu: {device.path} is there; RankSlice has no engine for it"
        for device in report.devices
        if any(fnmatchcase(device.path, pattern) for pattern in _UNKNOWN)
    ]
    return Accelerators(tuple(usable.values()), tuple(remarks))


def _seen(way: _Way, report: BoardReport) -> _Seen:
    device = _matching(report.devices, way.devices)
    seen = _Seen(way, device)
    if device is None:
        seen.missing.append(f"a device such as {way.devices[0].rstrip('*')}")
    elif not device.may_open:
        seen.missing.append(f"the right to open {device.path} (add the account to its group)")
    bundled = () if _has_plugin(way, report.environment) else way.bundled
    for pattern in filter(None, (way.delegate, *way.libraries, *bundled)):
        library = _library(report.libraries, pattern)
        if library is None:
            seen.missing.append(pattern.replace("*", "").replace("|", " or "))
        else:
            seen.paths.append(library.path)
    if way.driver and not _real_drivers(report):
        seen.missing.append("a driver of Vulkan or OpenCL for it")
    seen.missing += _missing_engine(way, report.environment)
    return seen


def _missing_engine(way: _Way, environment: Environment) -> list[str]:
    if way.provider:
        has = map(str.lower, environment.provider_names)
        if way.provider.lower() in has or _has_plugin(way, environment):
            return []
        wanted = f"{way.plugin}, or " if way.plugin else ""
        return [f"{wanted}an onnxruntime with {way.provider} in {environment.python}"]
    packages = way.packages or tuple(ENGINES[way.engine].distributions)
    if any(environment.version_of(package) is not None for package in packages):
        return []
    return [f"{joined(packages, 'or')} in {environment.python}"]


def _has_plugin(way: _Way, environment: Environment) -> bool:
    return bool(way.plugin) and environment.version_of(way.plugin) is not None


def _matching(devices: Sequence[Device], patterns: Sequence[str]) -> Device | None:
    """Return a device of the first pattern that has any; one that may be opened if there is."""
    kind = [
        device for pattern in patterns for device in devices if fnmatchcase(device.path, pattern)
    ]
    return next((device for device in kind if device.may_open), kind[0] if kind else None)


def _library(libraries: Sequence[Library], pattern: str) -> Library | None:
    """Return the first library that one of the patterns, parted by ``|``, matches."""
    return next(_libraries(libraries, pattern), None)


def _libraries(libraries: Sequence[Library], pattern: str) -> Iterator[Library]:
    for alternative in pattern.split("|"):
        yield from (library for library in libraries if fnmatchcase(library.name, alternative))


def _real_drivers(report: BoardReport) -> list[str]:
    names = [(path, PurePosixPath(path).name.lower()) for path in report.drivers]
    return [path for path, name in names if not any(part in name for part in _SOFTWARE_DRIVERS)]


def _usable(seen: _Seen, report: BoardReport) -> Usable:
    way = seen.way
    spec = [("engine", way.engine)]
    if way.delegate:
        spec.append(("delegate", seen.paths[0]))
    if way.provider:
        spec.append(("provider", way.provider))
    options = way.options
    if way.provider == "QNN":
        backend = ("backend_path", seen.paths[0]) if seen.paths else ("backend_type", "htp")
        options = (backend,)
    skeletons = _libraries(report.libraries, way.skeleton) if way.skeleton else iter(())
    folders = dict.fromkeys(str(PurePosixPath(library.path).parent) for library in skeletons)
    environment = (("ADSP_LIBRARY_PATH", ";".join(folders)),) if folders else ()
    assert seen.device is not None
    source = ", ".join([_device_text(seen.device), *seen.paths])
    return Usable(way.unit, tuple(spec), options, environment, source)


def _lack_text(seen: _Seen) -> str:
    there = [*([_device_text(seen.device)] if seen.device else []), *seen.paths]
    verb = "is" if len(there) == 1 else "are"
    return (
        f"{joined(there)} {verb} there; for {seen.way.title} is missing: {'; '.join(seen.missing)}"
    )


def _device_text(device: Device) -> str:
    return f"{device.path} ({device.driver})" if device.driver else device.path
