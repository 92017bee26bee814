"""The versions of RankSlice, and of what it runs on this machine."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from rankslice import __version__
from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import RankSliceError

_NEEDED = ("mpi4py", "numpy", "onnx")


def versions() -> dict[str, str]:
    """Return the version of what computes on this machine, by name; without what is missing.

    Packages are not imported for it.
    """
    installed = {"rankslice": __version__, "Python": platform.python_version()}
    for name in (*_NEEDED, *(name for engine in ENGINES.values() for name in engine.distributions)):
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def version_lines() -> Iterator[str]:
    """Yield a line for each program and package that a job needs, ours first."""
    known = versions()
    missing = "is not installed"
    yield f"rankslice {known['rankslice']}"
    yield f"Python {known['Python']}"
    yield _open_mpi()
    for package in _NEEDED:
        yield f"{package} {known.get(package, missing)}"
    for engine in ENGINES.values():
        installed = [f"{name} {known[name]}" for name in engine.distributions if name in known]
        if engine.distributions:
            yield f"{engine.title}: {', '.join(installed) or missing}"


def _open_mpi() -> str:
    try:
        mpirun = find_mpirun()
    except RankSliceError as error:
        return f"Open MPI: {error.mistakes[0]}"
    return f"Open MPI {'.'.join(map(str, mpirun.version))} ({mpirun.path})"
