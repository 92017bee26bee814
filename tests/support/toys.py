"""Libraries of other makers that tests have in C, compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def toy_library(source: str, folder: Path) -> str:
    """Compile a file of ``tests/backend`` into a folder and return the library's path."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    library = folder / f"{Path(source).stem.partition('_')[0]}.so"
    path = Path(__file__).parent / source
    arguments = ["-shared", "-fPIC", "-O1", "-o", str(library), str(path), "-lm"]
    subprocess.run([compiler, *arguments], check=True)
    return str(library)
