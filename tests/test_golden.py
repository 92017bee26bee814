"""What is generated from fixed plans, byte by byte; and that it means what the plan says.

``pytest tests/test_golden.py --regenerate-golden`` writes the golden folders anew.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from line_graphs import line_graph
from placements import placements
from plans import FIGURE_2, FIGURE_2_RANKS, planned, plans, routed

from rankslice.backend.codegen import Literal, render_driver
from rankslice.backend.package import write_driver, write_packages
from rankslice.backend.runtime.job import Facts, Rank
from rankslice.exploration.simulator.schedule import schedule
from rankslice.framework.graph import ByteRange, Graph, Layer, Tensor
from rankslice.framework.plan import ModelInfo, Plan, plan_from_json
from rankslice.framework.reading.read_driver import read_driver
from rankslice.frontend.partition.partition import partition
from rankslice.frontend.plan.make_plan import make_plan, with_facts
from rankslice.frontend.plan.tables import (
    hostfile,
    rankfile,
    receiver_table,
    sender_table,
    table_to_json,
)

GOLDEN = Path(__file__).parent / "golden"

HOSTILE = (
    '"',
    '"""',
    "'",
    "'''",
    """it's "both\" """,
    "two\nlines\r\n",
    "\\",
    "\\n",
    'ends in \\"',
    "{{ source }}",
    "{% for x in y %}{# #}",
    "{0} %s $HOME `id`",
    "NUL\0",
    "\x1b[31mred",
    "right to left \u202e\u2066",
    "line \u2028 separators \u0085",
    "beyond the BMP \U0001f600\U00020000",
    "../../etc/passwd",
    "-oProxyCommand=id",
    "# comment",
    "__import__('os').abort()",
    "L" * 10_000,
)


def one_rank() -> Plan:
    graph = line_graph("conv: x -> a\nrelu: a -> y", outputs="y")
    return planned(graph, {"conv": 0, "relu": 0}, placements("board_cpu0"))


def figure_2() -> Plan:
    board = {"engine": "onnxruntime"}
    places = (
        Rank(0, "edge01_arm123", "edge01", "192.168.1.11", "cpu", (1, 2, 3), **board),
        Rank(
            1,
            "edge01_gpu",
            "edge01",
            "192.168.1.11",
            "gpu",
            (0,),
            options=(("provider", "CUDAExecutionProvider"),),
            **board,
        ),
        Rank(2, "edge04_arm45", "edge04", "192.168.1.14", "cpu", (4, 5), **board),
    )
    return planned(FIGURE_2, FIGURE_2_RANKS, places)


def hostile() -> Plan:
    """Return a chain of layers, one per bad name, that two ranks of bad boards take turns in."""
    places = (
        Rank(0, "../x_cpu0", "../x", "host-0", '"""', (0,), "onnxruntime"),
        Rank(1, "-oProxy\n{{ }}'\"_cpu1", "-oProxy\n{{ }}'\"", "::1", "\\", (1,), "null"),
    )
    tensors = [Tensor("", "float32", (1, 4))]
    tensors += [Tensor(f"t {name}", "float32", (1, 4)) for name in HOSTILE]
    layers = tuple(
        Layer(name, "Op", (before,), (after,), (), ByteRange(Path("m.onnx"), 0, 0))
        for name, before, after in zip(HOSTILE, tensors, tensors[1:], strict=False)
    )
    name = 'm """ \\ {{ model }} \u202e \0.onnx'
    graph = Graph(name, "onnx", layers, (tensors[0],), (tensors[-1],), ())
    return planned(graph, {layer.name: n % 2 for n, layer in enumerate(layers)}, places)


def in_turns() -> Plan:
    """Return a plan in which two ranks take turns in the middle, and one result goes past them."""
    graph = line_graph("conv: x -> a b\nfc: a -> c\nadd: b c -> y", outputs="y")
    keys = ("edge01_cpu0", "edge02_cpu0-2", "edge03_cpu0", "edge01_cpu3")
    return planned(graph, {"conv": 0, "fc": 1, "add": 2}, placements(*keys), weights={1: (2, 1)})


def surge() -> Plan:
    """Return a plan with two routes: the whole model on one rank, or three stages, one in turn."""
    return routed(
        FIGURE_2, dict.fromkeys(FIGURE_2_RANKS, 0), FIGURE_2_RANKS, surge_weights={1: (2, 1)}
    )


def npu() -> Plan:
    """Return a plan whose second rank has an NPU, with a delegate of its own."""
    graph = line_graph("conv: x -> a\nrelu: a -> y", outputs="y")
    host = "10.0.0.5"
    places = (
        Rank(0, "edge05_cpu0-3", "edge05", host, "cpu", (0, 1, 2, 3), "litert", shared=True),
        Rank(
            1,
            "edge05_npu@3",
            "edge05",
            host,
            "npu",
            (3,),
            "litert",
            options=(("delegate", "libQnnTFLiteDelegate.so"), ("backend_type", "htp")),
            environment=(("ADSP_LIBRARY_PATH", "/opt/qairt/dsp"),),
            allow_fallback=True,
            shared=True,
        ),
    )
    plan = planned(graph, {"conv": 0, "relu": 1}, places)
    facts = Facts("it keeps variables", operators=1)
    return with_facts(plan, {segment.file: facts for segment in plan.segments})


CASES = {"one-rank": one_rank, "figure2": figure_2, "hostile": hostile}
CASES |= {"in-turns": in_turns, "surge": surge, "npu": npu}


def generate(plan: Plan, folder: Path) -> Path:
    """Write all that is generated from a plan alone; sub-models are empty files."""
    write_driver(folder, plan, schedule(plan))
    texts = {
        "sender.json": table_to_json(sender_table(plan)),
        "receiver.json": table_to_json(receiver_table(plan)),
        "rankfile": rankfile(plan.ranks),
        "hostfile": hostfile(plan.ranks),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "submodels").mkdir()
    for route in plan.routes:
        for segment in route.segments:
            (folder / segment.file).touch()
    write_packages(folder, plan)
    return folder


def golden_files(folder: Path) -> dict[str, bytes]:
    """Return what is compared: not the runtime's code, nor the copies of it all in packages."""
    paths = [path for path in folder.iterdir() if path.is_file()]
    paths += folder.glob("packages/*/requirements.txt")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(paths)}


def string_constants(source: str) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def generated(case: str, tmp_path: Path) -> Path:
    return generate(CASES[case](), tmp_path)


def test_a_plan_gives_the_golden_files(
    case: str, generated: Path, request: pytest.FixtureRequest
) -> None:
    files = golden_files(generated)
    if request.config.getoption("--regenerate-golden"):
        shutil.rmtree(GOLDEN / case, ignore_errors=True)
        for name, content in files.items():
            (GOLDEN / case / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / case / name).write_bytes(content)
    expected = golden_files(GOLDEN / case)
    assert list(expected) == list(files)
    for name, content in expected.items():
        assert content == files[name], name


def test_generated_files_are_ascii(generated: Path) -> None:
    for name, content in golden_files(generated).items():
        assert content.isascii(), name


def test_the_plan_that_was_written_reads_back_as_it_was(case: str, generated: Path) -> None:
    assert CASES[case]() == plan_from_json((generated / "plan.json").read_text())


def test_the_drivers_job_is_the_plans(case: str, generated: Path) -> None:
    assert CASES[case]().job == read_driver(generated / "driver.py")


def test_the_driver_runs_with_the_runtime_beside_it_and_the_job_that_is_read_of_it(
    generated: Path,
) -> None:
    check = (
        "import runpy, sys; driver = runpy.run_path('driver.py');"
        "from runtime.job.check import sound;"
        "print(sys.modules['runtime'].__file__, sound(driver['JOB'], 'driver.py').sha256)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", check],
        cwd=generated,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    digest = read_driver(generated / "driver.py").sha256
    assert [str(generated / "runtime" / "__init__.py"), digest] == answer.stdout.split()


def test_the_driver_shows_the_whole_job_in_one_statement(generated: Path) -> None:
    body = ast.parse((generated / "driver.py").read_text()).body
    kinds = [type(statement).__name__ for statement in body]
    assert ["Expr", "ImportFrom", "Assign", "If"] == kinds


def test_packages_of_hostile_boards_stay_inside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    generate(hostile(), tmp_path / "out")
    boards = {path.name for path in tmp_path.glob("out/packages/*")}
    assert {"%2E.%2Fx", "%2DoProxy%0A%7B%7B%20%7D%7D%27%22"} == boards
    assert [tmp_path / "out"] == list(tmp_path.iterdir())


def two_ranks(names: tuple[str, str, str, str, str]) -> Plan:
    """Return a plan with these names of the model, the board, the layers and two tensors."""
    model, board, layer, *_ = names
    tensors = [Tensor(f"{place}{name}", "float32", (1,)) for place, name in enumerate(names[2:])]
    record = ByteRange(Path("m.onnx"), 0, 0)
    graph = Graph(
        model,
        "onnx",
        (
            Layer(f"0{layer}", "Op", (tensors[0],), (tensors[1],), (), record),
            Layer(f"1{layer}", "Op", (tensors[1],), (tensors[2],), (), record),
        ),
        (tensors[0],),
        (tensors[2],),
        (),
    )
    places = tuple(
        Rank(rank, f"{board}_cpu{rank}", board, "host", "cpu", (rank,), "onnxruntime")
        for rank in range(2)
    )
    info = ModelInfo(model, "0" * 64, "onnx")
    cut = partition(graph, {f"0{layer}": 0, f"1{layer}": 1})
    return make_plan(info, cut, places)


bad_text = st.text() | st.sampled_from(HOSTILE)


@given(bad_text)
def test_the_literal_of_any_text_reads_back_as_that_text(text: str) -> None:
    assert text == ast.literal_eval(str(Literal(text)))


@given(st.lists(bad_text).map(tuple) | st.lists(st.integers()).map(tuple))
def test_the_literal_of_any_tuple_reads_back_as_that_tuple(
    values: tuple[str, ...] | tuple[int, ...],
) -> None:
    assert values == ast.literal_eval(str(Literal(values)))


@given(bad_text)
def test_the_literal_of_any_text_is_one_line_of_printable_ascii(text: str) -> None:
    source = str(Literal(text))
    assert source.isascii()
    assert source.isprintable()


@given(st.characters(categories=["Cs"]))
def test_half_a_surrogate_pair_is_a_text_like_any_other(half: str) -> None:
    assert half == ast.literal_eval(str(Literal(half)))


@given(st.tuples(bad_text, bad_text, bad_text, bad_text, bad_text))
def test_any_names_reach_the_driver_as_the_strings_they_are(
    names: tuple[str, str, str, str, str],
) -> None:
    plan = two_ranks(names)
    source = render_driver(plan)
    wanted = {plan.model.name, *(tensor.name for tensor in plan.job.tensors.values())}
    wanted |= {placement.key for placement in plan.ranks}
    assert wanted <= string_constants(source)
    assert source.isascii()


@given(plans())
def test_the_drivers_job_of_any_plan_is_the_plans(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "driver.py").write_text(render_driver(plan))
        assert plan.job == read_driver(folder / "driver.py")


def comments(source: str) -> Iterator[str]:
    return (line.strip() for line in source.splitlines() if line.strip().startswith("#"))


def test_layers_stand_in_comments_shortened_and_on_one_line() -> None:
    lines = list(comments(render_driver(hostile())))
    half = len(HOSTILE) // 2
    assert "#!/usr/bin/env python3" == lines[0]
    assert f"# {half} layers, {Literal(HOSTILE[0])} to {Literal(HOSTILE[-2])}" == lines[1]
    assert lines[2].endswith(f'to "{"L" * 60}"')
    assert 3 == len(lines)


def test_text_enters_generated_code_as_a_literal_and_nothing_unknown_does() -> None:
    from rankslice.backend.codegen import _source

    assert '"a\\nb"' == str(_source("a\nb"))
    with pytest.raises(TypeError, match="NoneType may not enter generated code: None"):
        _source(None)
