"""LiteRT: the interpreter for CPUs and delegate libraries; compiled models for GPU and NPU.

An interpreter runs in the rank's process, and releases the GIL. A compiled model holds it while
it runs, so it lives in a process of its own (``own_process.py``).
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import JobError
from . import Engine, EngineSettings, wrong_option
from .litert_interpreter import InterpreterEngine
from .litert_package import COMPILED_MODELS, file_of_package, find_package
from .litert_profiled import LIBRARY, ProfiledEngine
from .own_process import OwnProcessEngine

_APIS = ("interpreter", "compiled")
_COMPILED = "litert_compiled"


def version() -> str:
    return find_package().name


def open_engine(settings: EngineSettings) -> Engine:
    """Return the interpreter, or compiled models if the accelerator has no delegate library.

    Options: ``delegate``, a library, whose options all others are then; else ``api``,
    ``interpreter`` (CPU only, and the default there) or ``compiled``, and that one's options.

    Raises:
        ImportError: no package of LiteRT is installed.
        JobError: an option is wrong, or the package is too old for it.
    """
    check_options(settings)
    if _api(settings) == "interpreter":
        if settings.profile and "delegate" not in settings.options and file_of_package(LIBRARY):
            return ProfiledEngine(settings, find_package())
        return InterpreterEngine(settings, find_package())
    if file_of_package(COMPILED_MODELS):
        options = {name: value for name, value in settings.options.items() if name != "api"}
        return OwnProcessEngine(_COMPILED, replace(settings, options=options))
    raise JobError(
        f"litert: {find_package().name} has no compiled models, which the {settings.accelerator}"
        " needs without a delegate library: install ai-edge-litert, or name a delegate"
    )


def has_own_process(settings: EngineSettings) -> bool:
    return _api(settings) == "compiled"


def _api(settings: EngineSettings) -> str:
    usual = "interpreter" if settings.accelerator == "cpu" else "compiled"
    if "delegate" in settings.options:
        return "interpreter"
    return settings.options.get("api", usual)


def check_options(settings: EngineSettings) -> None:
    """Check the choice of the API, and that the interpreter has no options without a delegate."""
    if _api(settings) not in _APIS:
        raise wrong_option("litert", "api", settings.options["api"], " or ".join(_APIS))
    if "delegate" in settings.options or _api(settings) != "interpreter":
        return
    unknown = sorted(set(settings.options) - {"api"})
    if unknown:
        raise JobError(f"litert: the interpreter has no option {unknown[0]!r} without a delegate")
    if settings.accelerator != "cpu":
        raise JobError(
            f"litert: the interpreter needs a delegate library for the {settings.accelerator}"
        )
