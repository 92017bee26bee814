"""All scripts of ``benchmarks/`` can be loaded: they are seldom run."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TELL_ALL = """
import importlib, pathlib, sys

for script in sorted(pathlib.Path(sys.path[0]).glob("*.py")):
    if "from . import" in script.read_text():  # an engine, for the folder of engines
        continue
    try:
        module = importlib.import_module(script.stem)
        sys.argv = [script.name, "--help"]
        if hasattr(module, "main") and "parse_args" in script.read_text():
            module.main()
    except SystemExit as end:
        if end.code:
            print(f"{script.name}: {end.code}", file=sys.stderr)
    except Exception as error:
        print(f"{script.name}: {error!r}", file=sys.stderr)
"""
"""In one process: most of its time is that of imports."""


@pytest.mark.ci
def test_each_script_finds_what_it_imports_and_tells_its_options() -> None:
    code = f"import sys; sys.path[0] = {str(BENCHMARKS)!r}\n{TELL_ALL}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (0, "") == (ended.returncode, ended.stderr)
    assert 20 < ended.stdout.count("usage: ")
