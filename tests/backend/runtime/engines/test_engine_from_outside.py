"""An engine is a row and a file: one from outside runs beside onnxruntime in one job."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import onnx
import pytest
from jobs import FIRST_CORE
from rooms import ROOMS

import rankslice.backend.runtime.engines as engines
from rankslice.backend.boards.conversation import packages_of_jobs
from rankslice.backend.runtime.engines import EngineSettings, engine_version, open_engine
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.engines import (
    ENGINES,
    EngineInfo,
    default_engine,
    engines_for,
    reference_engine,
)
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.run import prepare, run
from rankslice.session.versions import version_lines

ROOT = Path(__file__).parents[4]
FILE = Path(__file__).with_name("toy_engine.py")
ROW = EngineInfo(
    name="toy",
    title="Toy",
    formats=("onnx",),
    requirements=("toy>=3",),
    special_requirements={"fast": ("toy-fast>=3",)},
    distributions={"toy": "toy", "numpy": "numpy"},
    platform_keys=("delegate",),
)
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x) => (float[1,4] y) {
  first = Sigmoid(x)
  second = Add(first, x)
  third = Relu(second)
  y = Neg(third)
}
"""
MAPPING = {f"local_cpu{FIRST_CORE}": ["first", "y"], "local_npu": ["second", "third"]}


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row: all that is added to the launcher."""
    monkeypatch.setitem(ENGINES, "toy", ROW)


TWO_SEGMENTS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x) => (float[1,4] y)
<float[9] many = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
  first = Sigmoid(x)
  second = Add(first, x)
  third = ReduceSum(many)
  y = Mul(second, third)
}
"""


def build_job(
    folder: Path,
    npu: dict[str, object],
    text: str = MODEL,
    mapping: dict[str, list[str]] = MAPPING,
    **board: object,
) -> tuple[Path, Plan]:
    """Slice a model over onnxruntime and an NPU; give the build folder the toy engine's file."""
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.output[0]
    onnx.save(model, folder / "model.onnx")
    (folder / "mapping.json").write_text(json.dumps(mapping))
    boards = {
        "boards": {"local": {"host": "localhost", "cores": [FIRST_CORE], "npu": npu, **board}}
    }
    (folder / "platform.yaml").write_text(json.dumps(boards))
    built = build(
        folder / "model.onnx",
        folder / "mapping.json",
        str(folder / "platform.yaml"),
        folder / "out",
        BuildOptions(share_cores=True),
    )
    shutil.copy(FILE, built.folder / "runtime" / "engines")
    return built.folder, built.plan


def test_it_runs_a_rank_beside_one_of_onnxruntime(tmp_path: Path) -> None:
    folder, plan = build_job(tmp_path, {"engine": "toy"})
    assert ["onnxruntime", "toy"] == [rank.engine for rank in plan.ranks]
    ended = run(prepare(folder, RunOptions(frames=5, exact=True)), verify=True)
    assert ended.summary.verify is not None
    assert ended.summary.verify.bit_equal


def test_a_rank_loads_its_largest_sub_model_first(tmp_path: Path) -> None:
    mapping = {"local_npu": ["first", "third", "y"], f"local_cpu{FIRST_CORE}": ["second"]}
    folder, _ = build_job(tmp_path, {"engine": "toy"}, TWO_SEGMENTS, mapping)
    small, large = (folder / "submodels" / f"local_npu.{number}.onnx" for number in range(2))
    assert small.stat().st_size < large.stat().st_size
    with pytest.raises(RankSliceError, match=r"local_npu\.1\.onnx: the toy engine has no"):
        run(prepare(folder, RunOptions(frames=1)))


def test_a_board_may_name_it_for_its_cpu(tmp_path: Path) -> None:
    _, plan = build_job(tmp_path, {"engine": "toy"}, engine="toy")
    assert ["toy", "toy"] == [rank.engine for rank in plan.ranks]


def test_what_it_needs_is_installed_with_what_the_others_need(tmp_path: Path) -> None:
    folder, _ = build_job(tmp_path, {"engine": "toy"})
    wanted = (folder / "packages" / "local" / "requirements.txt").read_text().splitlines()
    assert ["mpi4py>=4.0", "numpy>=1.26", "onnxruntime>=1.19", "toy>=3"] == wanted


def test_a_vendor_may_need_another_package(tmp_path: Path) -> None:
    folder, _ = build_job(tmp_path, {"engine": "toy", "options": {"vendor": "Fast"}})
    wanted = (folder / "packages" / "local" / "requirements.txt").read_text().splitlines()
    assert "toy-fast>=3" in wanted
    assert "toy>=3" not in wanted


def test_it_takes_the_keys_of_platform_files_that_its_row_has(tmp_path: Path) -> None:
    _, plan = build_job(tmp_path, {"engine": "toy", "delegate": "libtoy.so"})
    assert (("delegate", "libtoy.so"),) == plan.ranks[1].options
    (tmp_path / "again").mkdir()
    with pytest.raises(RankSliceError, match="toy takes no provider, only onnxruntime does"):
        build_job(tmp_path / "again", {"engine": "toy", "provider": "CUDA"})


def test_boards_and_this_machine_are_asked_for_its_packages() -> None:
    assert "toy" == packages_of_jobs()["toy"]
    (line,) = (line for line in version_lines() if line.startswith("Toy: "))
    assert line.startswith("Toy: numpy ")


def test_the_runtime_finds_it_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match="'toy' is not one of litert, null, onnxruntime"):
        open_engine("toy", EngineSettings())
    shutil.copy(FILE, tmp_path)
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(tmp_path)])
    assert engine_version("toy").startswith("numpy ")


def test_two_engines_run_one_format() -> None:
    assert ("onnxruntime", "null", "toy") == engines_for("onnx")
    assert "onnxruntime" == default_engine("onnx")


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (["toy", "toy", "null"], "toy"),
        (["toy", "onnxruntime"], "onnxruntime"),
        (["null"], "onnxruntime"),
        (["litert"], "onnxruntime"),
    ],
)
def test_results_are_compared_with_those_of_the_engine_that_all_ranks_have(
    used: list[str], expected: str
) -> None:
    assert expected == reference_engine("onnx", used)


def test_a_model_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match="'litert', which runs models of another format; "):
        build_job(tmp_path, {"engine": "litert"})
    assert not (tmp_path / "out").exists()


def test_an_engine_without_a_row_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match="unknown; expected onnxruntime or toy for this model"):
        build_job(tmp_path, {"engine": "tory"})


NAMED = {
    "session/internals.py": "which engine can be asked, and how",
    "session/internals_process.py": "what asks each engine",
    "backend/boards/usable_accelerators.py": "the ways to GPUs and NPUs that probe looks for",
    "framework/engines.py": "the table",
    "framework/specs/read_platform.py": "what AutoDiCE's words for a GPU mean",
}


def test_no_other_file_names_an_engine() -> None:
    naming = set()
    for room in {*ROOMS} - {"networks"}:
        for file in (ROOT / room).rglob("*.py"):
            name = file.relative_to(ROOT).as_posix()
            texts = (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            named = {"onnxruntime", "litert"} & {
                node.value for node in texts if isinstance(node, ast.Constant)
            }
            if named and not name.startswith("backend/runtime/engines/"):
                naming.add(name)
    assert NAMED.keys() == naming
