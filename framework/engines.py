"""The inference engines: a row for each.

An engine's code is ``<name>_engine.py`` in :mod:`rankslice.backend.runtime.engines`, which is
copied to boards and imports nothing of the launcher's. What the launcher knows of it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the launcher knows of an engine."""

    name: str
    """Its name in platform files and plans."""
    title: str
    formats: tuple[str, ...] | None
    """Formats of the sub-models that it runs; ``None``: it runs all of them."""
    computes: bool = True
    """Whether it computes anything; only then does it need its packages and a core's time."""
    requirements: tuple[str, ...] = ()
    """What pip installs on a board for it."""
    special_requirements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of an execution provider or a vendor, in lower case -> what pip installs for it."""
    plugin_requirements: tuple[str, ...] = ()
    """What pip installs instead, besides the plug-in itself, if the platform file names one."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """Packages that contain the engine; the first one that is installed is used. Each has its
    module, by which it is found without a description of the package; empty: not at all."""
    plugins: tuple[str, ...] = ()
    """Packages that extend it."""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """A package that is required -> a module that will do instead."""
    platform_keys: tuple[str, ...] = ()
    """Keys of the platform file that only some engines take: ``delegate``, ``provider``,
    ``plugin``."""
    needs_provider: bool = False
    """Whether a GPU or NPU needs a ``provider`` in the platform file."""
    any_gpu: Mapping[str, str] = field(default_factory=dict)
    """Options that make it drive GPUs of all makers."""
    accelerates_fixed_sizes_only: bool = False
    """Whether GPUs, NPUs and delegate libraries take no tensors of open sizes."""
    lacks_flex: bool = False
    """Whether it lacks TensorFlow's own operators, which a ``.tflite`` file may hold."""

    def runs(self, submodels: str) -> bool:
        return self.formats is None or submodels in self.formats

    @property
    def packages(self) -> tuple[str, ...]:
        return (*self.distributions, *self.plugins)


_TAKES_PLUGINS = "onnxruntime>=1.24.4"

ENGINES = {
    engine.name: engine
    for engine in (
        EngineInfo(
            name="onnxruntime",
            title="onnxruntime",
            formats=("onnx",),
            requirements=("onnxruntime>=1.19",),
            special_requirements={
                "cuda": ("onnxruntime-gpu>=1.19",),
                "tensorrt": ("onnxruntime-gpu>=1.19",),
                "openvino": ("onnxruntime-openvino>=1.19",),
                "qnn": (_TAKES_PLUGINS, "onnxruntime-qnn>=2.3"),
                "webgpu": (_TAKES_PLUGINS, "onnxruntime-ep-webgpu>=0.4"),
            },
            plugin_requirements=(_TAKES_PLUGINS,),
            distributions={
                "onnxruntime": "onnxruntime",
                "onnxruntime-gpu": "",
                "onnxruntime-openvino": "",
            },
            plugins=("onnxruntime-ep-openvino", "onnxruntime-ep-webgpu", "onnxruntime-qnn"),
            platform_keys=("provider", "plugin"),
            needs_provider=True,
            any_gpu={"provider": "WebGPU", "plugin": "onnxruntime-ep-webgpu"},
        ),
        EngineInfo(
            name="litert",
            title="LiteRT",
            formats=("tflite",),
            requirements=("ai-edge-litert>=2.0",),
            special_requirements={
                # Linked with each other.
                "openvino": ("ai-edge-litert==2.3.0", "openvino==2026.3.1"),
            },
            distributions={
                "ai-edge-litert": "ai_edge_litert",
                "tflite-runtime": "tflite_runtime",
                "tensorflow": "tensorflow",
            },
            stand_ins={"ai-edge-litert": "tflite_runtime"},
            platform_keys=("delegate",),
            accelerates_fixed_sizes_only=True,
            lacks_flex=True,
        ),
        EngineInfo(name="null", title="null", formats=None, computes=False),
    )
}
"""The engines by name. The first one that names a format is the usual one for it."""

USUAL_ENGINE = "onnxruntime"
"""The engine of CPU ranks where neither the board nor the model says which."""


def engines_for(submodels: str) -> tuple[str, ...]:
    return tuple(engine.name for engine in ENGINES.values() if engine.runs(submodels))


def default_engine(submodels: str) -> str:
    """Return the engine of CPU ranks whose board names none, by the format of the sub-models.

    It also runs the unsliced model. For an unknown format, it is :data:`USUAL_ENGINE`.
    """
    named = (
        engine.name for engine in ENGINES.values() if engine.formats and submodels in engine.formats
    )
    return next(named, USUAL_ENGINE)


def engine_for(engine: str, submodels: str) -> str:
    """Return the engine of a CPU rank's sub-model: the rank's own, if it runs that format."""
    if engine not in ENGINES or ENGINES[engine].runs(submodels):
        return engine
    return default_engine(submodels)


def other_engine(engine: str, submodels: str) -> str:
    """Return the engine that runs a sub-model instead of the rank's; empty: the rank's does."""
    chosen = engine_for(engine, submodels)
    return "" if chosen == engine else chosen


def reference_engine(submodels: str, used: Iterable[str]) -> str:
    """Return the engine that runs the unsliced model for a comparison.

    If all ranks that compute have the same one, it is this one.
    """
    computing = {name for name in used if computes(name)}
    if len(computing) == 1 and computing <= set(engines_for(submodels)):
        return computing.pop()
    return default_engine(submodels)


def computes(engine: str) -> bool:
    """Return whether an engine computes anything; an unknown one does."""
    return engine not in ENGINES or ENGINES[engine].computes


def submodel_formats() -> tuple[str, ...]:
    formats = (name for engine in ENGINES.values() for name in engine.formats or ())
    return tuple(dict.fromkeys(formats))
