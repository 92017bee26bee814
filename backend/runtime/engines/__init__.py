"""Inference engines: one file ``<name>_engine.py`` each, found by its name."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..discovery import find_names, import_kind
from ..errors import JobError
from ..figures.acceleration import Acceleration
from ..figures.operator_profile import OperatorSpans
from ..job import NO_FACTS, Facts, Rank, Tensor
from ..version import RUNTIME_VERSION

if TYPE_CHECKING:
    from ..direct.memory import Memory


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine is to run a sub-model."""

    threads: int = 1
    exact: bool = False
    """Run without graph optimisation, so that slicing changes no bit."""
    options: dict[str, str] = field(default_factory=dict)
    accelerator: str = "cpu"
    allow_fallback: bool = False
    facts: Facts = NO_FACTS
    profile: str = ""
    """How the paths of files begin into which the engine writes when its operators run, if it
    tells; empty: it need not."""


class Engine(ABC):
    """Runs one sub-model on memory that the runtime owns.

    ``run`` is called by one thread and releases the GIL while it computes.
    """

    _acceleration: Acceleration | None = None

    def share(self, memories: Sequence[Memory]) -> None:  # noqa: B027 - most run in this process
        """Receive the memory in which slots lie, before :meth:`load`."""

    @abstractmethod
    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Load the sub-model and check that it has these inputs and outputs.

        Raises:
            JobError: the file is no sub-model that this engine runs, a tensor differs, or the
                accelerator cannot run all of it and may not leave the rest to the CPU.
        """

    @abstractmethod
    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Any]) -> None:
        """Compute ``outputs`` from ``inputs``, in the order given to :meth:`load`.

        Tensors without open sizes are slots: the same few arrays come again and again. Inputs with
        open sizes have the shape of this frame; an output with open sizes is an
        :class:`~..sizes.OpenSlot`, which is given its shape here.

        Raises:
            FrameError: it refuses these values, and nothing of that is left for the next frame.
            BoundError: an output is beyond its bound; likewise.
            JobError: it fails in another way, which ends the job.
        """

    def bind(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Any]) -> Callable[[], None]:
        """Return a function that does the same as ``run`` on these slots, at each call."""
        return partial(self.run, inputs, outputs)

    def failure(self, error: RuntimeError) -> Exception:
        """Return the exception of ``run`` for an error that a bound function has raised."""
        return error

    def warm_up_hindrance(self) -> str:
        """Return why the loaded sub-model must not run on zeros before frame 0; empty: it may."""
        return ""

    def acceleration(self) -> Acceleration | None:
        """Return how much of the sub-model is accelerated; ``None``: nothing is meant to be."""
        return self._acceleration

    def operators(self) -> OperatorSpans | None:
        """End the profile that the settings ask for; ``None``: there is none."""
        return None

    def close(self) -> None:  # noqa: B027 - some hold nothing
        """Release the sub-model."""


def engine_settings(rank: Rank, *, exact: bool, engine: str = "") -> EngineSettings:
    """Return the settings of a rank's engine, or of another one on its cores."""
    return EngineSettings(
        threads=max(1, len(rank.cores)),
        exact=exact,
        options=dict(rank.options) if engine in ("", rank.engine) else {},
        accelerator=rank.accelerator.rstrip("0123456789"),
        allow_fallback=rank.allow_fallback,
    )


def open_engine(name: str, settings: EngineSettings) -> Engine:
    """Return the engine called ``name``, with nothing loaded yet.

    Raises:
        JobError: the name is unknown, the engine's package is not installed here, or an option
            is not one of the engine's.
    """
    if name not in _names():
        raise JobError(f"engine {name!r} is not one of {', '.join(_names())}")
    try:
        engine: Engine = _module(name).open_engine(settings)
    except ImportError as error:
        raise JobError(
            f"engine {name!r} cannot be loaded on this board: {error}; install what its package's"
            " requirements.txt lists"
        ) from None
    return engine


def wrong_option(engine: str, option: str, value: str, expected: str) -> JobError:
    return JobError(f"{engine}: option {option} is {value!r}, expected {expected}")


_TRUTHS = {"1": True, "true": True, "0": False, "false": False}


def truth(engine: str, option: str, text: str) -> bool:
    """Read the value of an option that is on or off.

    Raises:
        JobError: it is neither.
    """
    if text.lower() not in _TRUTHS:
        raise wrong_option(engine, option, text, "true or false")
    return _TRUTHS[text.lower()]


def hint(word: str, known: Iterable[str]) -> str:
    """Return the known word closest to an unknown one: ``; did you mean 'CUDA'?``, or nothing."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


# The inputs and outputs of a sub-model's file, matched with those of the job.


@dataclass(frozen=True, slots=True)
class FileTensor:
    name: str
    dtype: str
    """numpy's name of the type."""
    shape: tuple[int, ...] | None
    """-1: any size; ``None``: the file does not tell."""
    number: int = 0
    """By which the engine knows it, unless that is the name."""
    alias: str = ""
    """Its other name, in the model's signature."""


def match_tensors(
    file: str, side: str, planned: Sequence[Tensor], present: Sequence[FileTensor]
) -> list[FileTensor]:
    """Return the file's tensors in the order of the job's.

    Tensors are matched by name, else by their name in the signature. A ``.tflite`` file may have
    several tensors of one name, or nameless ones; these are matched in the order in which they
    stand in the file with the job's that are left.

    Raises:
        JobError: a tensor is missing, has another type or shape, or is an input that the job
            lacks.
    """
    left = list(present)
    matched = [_take(spec.name, left) for spec in planned]
    times = Counter(tensor.name for tensor in present)
    unclear = [tensor for tensor in left if not tensor.name or times[tensor.name] > 1]
    result = []
    for spec, known in zip(planned, matched, strict=True):
        if known is None and not unclear:
            names = ", ".join(repr(tensor.name) for tensor in present) or "none"
            raise JobError(f"{file}: has no {side} {spec.name!r}; it has {names}")
        tensor = known or unclear.pop(0)
        if known is None:
            left.remove(tensor)
        if tensor.dtype != spec.dtype or not _admits(tensor.shape, spec):
            sizes = "[...]" if tensor.shape is None else list(tensor.shape)
            raise JobError(
                f"{file}: {side} {spec.name!r} is {tensor.dtype}{sizes}, the job says"
                f" {spec.dtype}{list(spec.shape)}"
            )
        result.append(tensor)
    if side == "input" and left:
        raise JobError(f"{file}: needs input {left[0].name!r}, which the job lacks")
    return result


def _take(name: str, left: list[FileTensor]) -> FileTensor | None:
    for key in ("name", "alias"):
        fitting = [tensor for tensor in left if getattr(tensor, key) == name]
        if len(fitting) == 1:
            left.remove(fitting[0])
            return fitting[0]
        if fitting:
            return None
    return None


def _admits(declared: tuple[int, ...] | None, spec: Tensor) -> bool:
    if declared is None:
        return True
    symbols = spec.symbols or ("",) * len(spec.shape)
    return len(declared) == len(spec.shape) and all(
        symbol or size in (-1, planned)
        for size, planned, symbol in zip(declared, spec.shape, symbols, strict=True)
    )


def refuse_open_sizes(file: str, specs: Iterable[Tensor], used: str) -> None:
    """Raise an error if a tensor has open sizes, as what is ``used`` takes fixed ones only."""
    for spec in specs:
        if spec.is_open:
            raise JobError(
                f"{file}: the sizes of {spec.name!r} may change from frame to frame, and {used}"
                " takes fixed ones only: map its layers to a CPU, or fix the sizes (build --shape)"
            )


# Which engines there are.


def prepare_engine(name: str, settings: EngineSettings, sub_models: int) -> None:
    """Start what must be started before MPI is: processes that engines run in, if there are any.

    Wrong settings are reported later, by :func:`open_engine`.
    """
    if has_own_process(name, settings):
        from .own_process import start_processes

        start_processes(sub_models)


def check_options(name: str, settings: EngineSettings) -> None:
    """Check what can be known of an engine's options without its package.

    Raises:
        JobError: the engine has no such option, or it cannot have such a value.
    """
    _asked(name, "check_options", settings)


def has_own_process(name: str, settings: EngineSettings) -> bool:
    return bool(_asked(name, "has_own_process", settings))


def _asked(name: str, function: str, settings: EngineSettings) -> object:
    """Call a function that some engines' modules have; ``None``: this one has none."""
    asked = getattr(_module(name), function, None) if name in _names() else None
    return asked and asked(settings)


def engine_version(name: str) -> str:
    """Return the package that the engine called ``name`` uses here, and its version.

    Raises:
        ImportError: the package is not installed here, or cannot be loaded.
    """
    version = getattr(_module(name), "version", None)
    return str(version()) if version is not None else f"{name} {RUNTIME_VERSION}"


def _names() -> list[str]:
    return find_names(__name__, "engine")


def _module(name: str) -> Any:
    return import_kind(__name__, name, "engine")
