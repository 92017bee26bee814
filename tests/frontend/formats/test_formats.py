"""A model format is a folder and a row: one from outside is read, sliced, run and compared."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import write_mapping
from rooms import ROOMS

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats import FORMATS, read_model
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.build_options import Quantisation
from rankslice.session.building.cut_mapping import mapping_of_cuts
from rankslice.session.inspecting.inspect import inspect_model
from rankslice.session.run import prepare, run

ROOT = Path(__file__).parents[3]
TOY = "input x 1 4\nRelu a x\nNeg b a\nMul c a b\nAbs y c\noutput y\n"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of a format that the product does not know: its row is all that is added."""
    monkeypatch.setitem(FORMATS, "toy", "toy_format")
    path = tmp_path / "model.toy"
    path.write_text(TOY)
    return path


def test_a_model_of_a_format_from_outside_is_sliced_and_run(toy: Path) -> None:
    ranks = {"a": 0, "b": 1, "c": 1, "y": 0}
    mapping = write_mapping(toy.with_name("mapping.json"), ranks)
    built = build(toy, mapping, "local", toy.with_name("out"), BuildOptions(share_cores=True))
    assert {"onnx"} == {segment.file.rpartition(".")[2] for segment in built.plan.segments}
    assert {"onnxruntime"} == {rank.engine for rank in built.plan.ranks}
    assert "toys fall into 3 parts" in built.warnings
    ended = run(prepare(built.folder, RunOptions(frames=3)), verify=True)
    assert ended.summary.verify is not None
    assert ended.summary.verify.passed


def test_slices_get_no_types_that_it_does_not_convert_to(toy: Path) -> None:
    options = BuildOptions(quantisation=Quantisation("float16"))
    with pytest.raises(RankSliceError, match=r"cannot be float16; expected float32$"):
        build(toy, mapping_of_cuts([]), "local", toy.with_name("out"), options)


def test_what_its_layers_cost_is_known(toy: Path) -> None:
    assert [0, 0, 100, 0] == [cost.macs for cost in inspect_model(toy).costs]


def test_it_stands_among_the_suffixes_that_are_expected(toy: Path) -> None:
    with pytest.raises(RankSliceError, match=r"expected a model file, \.onnx, .* or \.toy"):
        read_model(toy.with_suffix(".other"))


@pytest.mark.parametrize("read", [read_model, inspect_model])
def test_frozen_graphs_are_refused_with_the_way_to_convert_them(read, tmp_path):
    (tmp_path / "frozen.pb").touch()
    with pytest.raises(RankSliceError, match=r"frozen graph of TensorFlow; .*from_frozen_graph"):
        read(tmp_path / "frozen.pb")


def test_the_name_of_a_format_is_one_of_its_suffixes() -> None:
    for suffix, module in FORMATS.items():
        name = importlib.import_module(module).FORMAT.name
        assert (module, module) == (FORMATS[suffix], FORMATS[name])


def test_a_format_is_imported_only_if_a_model_needs_it() -> None:
    """Reading one of a small format should not take the time that others need."""
    found = (
        "import sys; from pathlib import Path; from rankslice.frontend.formats import find_format;"
        " find_format(Path('m.tflite')); print(*(name for name in sys.modules if name in"
        " ('onnx', 'keras', 'rankslice.frontend.formats.onnx', 'rankslice.frontend.formats.keras',"
        " 'rankslice.frontend.formats.tflite')))"
    )
    ended = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True)
    assert ("rankslice.frontend.formats.tflite\n", "") == (ended.stdout, ended.stderr)


OF_ONE_FORMAT = {
    "commands/inspect/cli.py": "--object and --internals look into .tflite files",
    "session/internals.py": "which engine runs a model, to inspect it",
    "session/internals_process.py": "what onnxruntime and LiteRT make of their files",
    "session/verification/first_difference.py": "a Keras model is converted again",
    "session/versions.py": "the package onnx",
    "framework/engines.py": "the formats that each engine runs",
}
"""Files that may name a format, and why."""

# Platform files are YAML, too.
_NAME = re.compile(rf"(?!ai\.onnx)(\S*\.)?({'|'.join({*FORMATS} - {'yaml', 'yml'})})")
_FOLDER = re.compile(r"rankslice\.frontend\.formats\.(onnx|tflite|keras)\b.*")


def names_a_format(file: Path) -> bool:
    """Return whether a string is or ends in a model's suffix, or a format's folder is imported."""
    return any(
        (isinstance(node, ast.ImportFrom) and _FOLDER.fullmatch(node.module or ""))
        or (isinstance(node, ast.Constant) and _NAME.fullmatch(str(node.value)))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )


def test_no_other_file_names_a_format() -> None:
    """Whoever adds one would have to look for these."""
    files = [file for room in ROOMS if room != "networks" for file in (ROOT / room).rglob("*.py")]
    names = {file.relative_to(ROOT).as_posix() for file in files if names_a_format(file)}
    elsewhere = {name for name in names if not name.startswith("frontend/formats/")}
    assert set() == elsewhere - OF_ONE_FORMAT.keys()
    assert "commands/inspect/cli.py" in elsewhere
