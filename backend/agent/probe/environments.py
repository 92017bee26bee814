"""Pythons of the board and what is installed for them, and its Open MPI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..protocol import Answer
from ..system import ASK_S, ask, home, open_mpi_version

ANSWER = "environment: "
"""Begins the line of the answer: libraries may print lines of their own."""
ASK_ENVIRONMENT = """
import importlib.metadata, importlib.util, json, os, platform, sys
found = {}
for name, module in json.loads(sys.argv[1]).items():
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if module and importlib.util.find_spec(module):
            found[name] = ""
providers, library = [], ""
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
try:
    import onnxruntime
    providers = list(onnxruntime.get_available_providers())
except Exception:
    pass
try:
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    library = MPI.Get_library_version().split("\\0")[0].split(",")[0].strip()
except Exception as error:
    library = "error: " + (str(error).strip().splitlines() or [type(error).__name__])[0]
print("\\n" + sys.argv[2] + json.dumps([platform.python_version(), found, providers, library]))
"""


def pythons() -> list[str]:
    """Return the Pythons that may run jobs: the board's own, and that of ``deploy --venv``."""
    own = home() / ".rankslice" / "venv" / "bin" / "python3"
    return [sys.executable] + ([str(own)] if own.exists() else [])


def environment(python: str, packages: dict[str, str]) -> Answer:
    """List the packages for jobs that a Python has, its providers and its MPI library.

    Args:
        packages: by name, the module that shows that a package is there if it has no description
            of itself; empty: nothing does.
    """
    ended = ask([python, "-c", ASK_ENVIRONMENT, json.dumps(packages), ANSWER])
    lines = ended.stdout.splitlines() if ended is not None else []
    answers = [line[len(ANSWER) :] for line in lines if line.startswith(ANSWER)]
    if not answers:
        why = f"error: {why_unusable(ended)}"
        return {"python": python, "version": "", "packages": {}, "providers": [], "library": why}
    version, found, providers, library = json.loads(answers[0])
    return {
        "python": python,
        "version": version,
        "packages": without_doubles(found),
        "providers": providers,
        "library": library,
    }


def why_unusable(ended: subprocess.CompletedProcess[str] | None) -> str:
    if ended is None:
        return f"it gave no answer in {ASK_S} s"
    lines = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    return lines[-1] if lines else f"it ended with exit code {ended.returncode}"


def without_doubles(packages: dict[str, str]) -> dict[str, str]:
    """Return packages without entries that are only another package's module.

    ``onnxruntime-gpu`` has the module ``onnxruntime``, too, and describes itself alone.
    """
    return {
        name: version
        for name, version in packages.items()
        if version or not any(other.startswith(f"{name}-") for other in packages)
    }


def mpiruns() -> list[str]:
    beside = [str(Path(python).with_name("mpirun")) for python in pythons()]
    others = [shutil.which("mpirun") or "", "/usr/bin/mpirun", "/usr/lib64/openmpi/bin/mpirun"]
    there = [path for path in beside + others if path and os.access(path, os.X_OK)]
    return list(dict.fromkeys(there))


def open_mpi(mpirun: str) -> Answer | None:
    ended = ask([mpirun, "--version"])
    version = open_mpi_version(ended.stdout) if ended is not None else []
    if not version:
        return None
    has_daemon = Path(mpirun).with_name("prted" if version[0] >= 5 else "orted").exists()
    text = ".".join(map(str, version))
    return {"mpirun": mpirun, "version": text, "has_daemon": has_daemon}
