"""The versions of RankSlice, and of what it runs on this machine."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from rankslice import __version__
from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import RankSliceError

_NEEDED = ("mpi4py", "numpy", "onnx")


def versions() -> dict[str, str]:
    """Return the version of what computes on this machine, by name; without what is missing."""
    packages = [*_NEEDED, *(name for engine in ENGINES.values() for name in engine.distributions)]
    installed = {name: _version(name) for name in packages}
    own = {"rankslice": __version__, "Python": platform.python_version()}
    return {**own, **{name: number for name, number in installed.items() if number}}


def version_lines() -> Iterator[str]:
    """Yield a line for each program and package that a job needs, ours first.

    Packages are not imported for it.
    """
    yield f"rankslice {__version__}"
    yield f"Python {platform.python_version()}"
    yield _open_mpi()
    for package in _NEEDED:
        yield f"{package} {_version(package) or 'is not installed'}"
    for engine in ENGINES.values():
        packages = engine.distributions
        installed = [f"{name} {number}" for name in packages if (number := _version(name))]
        if packages:
            yield f"{engine.title}: {', '.join(installed) or 'is not installed'}"


def _open_mpi() -> str:
    try:
        mpirun = find_mpirun()
    except RankSliceError as error:
        return f"Open MPI: {error.mistakes[0]}"
    return f"Open MPI {'.'.join(map(str, mpirun.version))} ({mpirun.path})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
