"""``rankslice trace``, as a user types it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from pathlib import Path

import pytest
from command_line import rankslice, succeed
from litert_engines import needs_litert
from needed import NEEDS_FIRST_CORES
from real_jobs import FAILING_ENGINE, chain_folder, let_ranks_sleep

import rankslice as rankslice_package
from rankslice.commands.trace.trace import cut_advice
from rankslice.views.trace_timeline import OPERATOR

FRAMES = 30
DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_folder(tmp_path_factory.mktemp("chain"), 2)


def test_a_trace_says_what_limits_and_writes_its_files(out: Path, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    record, perfetto = tmp_path / "trace.json", tmp_path / "trace.pftrace"
    arguments = ("--frames", str(FRAMES), "--json", record, "--perfetto", perfetto)
    ended = succeed("trace", out, *arguments)
    figures = json.loads(record.read_text())
    assert figures["words"][0] in ended.out.replace("\n", " ")
    assert [*range(FRAMES)] == [frame["frame"] for frame in figures["frames"]]
    steps = [(step["what"], step["rank"]) for step in figures["frames"][9]["steps"]]
    assert [("read", 0), ("segment", 0), ("segment", 1), ("write", 1)] == steps
    for frame in figures["frames"]:
        times = [step["begin_ms"] for step in frame["steps"]]
        assert times == sorted(times)
        assert frame["out_ms"] >= frame["steps"][-1]["begin_ms"]
    assert math.isclose(1, sum(part["share"] for part in figures["critical_path"]))
    assert (out / "trace.html").read_text().startswith("<!DOCTYPE html>")
    assert perfetto.stat().st_size > 1000
    assert not (out / "results.bin").exists()


@pytest.mark.ci
def test_operators_are_shown_within_the_steps_of_their_segments(tmp_path: Path) -> None:
    mapping = {"local_cpu0": ["conv1..pool1"], "local_cpu0.2": ["conv3..softmax"]}
    built = rankslice_package.build(DIGITS, mapping, out=tmp_path / "out", share_cores=True)
    shown = rankslice_package.trace(built.folder, frames=FRAMES, operators=True)
    assert 2 == len([track for track in shown.drawn.tracks if track.kind == OPERATOR])
    steps = {
        (shown.drawn.tracks[step.track].rank, step.frame): step
        for step in shown.drawn.slices
        if step.name == "segment 0"
    }
    operators = [step for step in shown.drawn.slices if step.kind == OPERATOR]
    assert any(operator.name.startswith("Conv ") for operator in operators)
    assert {*range(FRAMES)} == {operator.frame for operator in operators}
    for operator in operators:
        step = steps[shown.drawn.tracks[operator.track].rank, operator.frame]
        assert step.begin_ns <= operator.begin_ns <= operator.end_ns <= step.end_ns
    (note,) = shown.notes
    assert note.startswith("timestamps of operators are accurate to ")


@pytest.mark.ci
@needs_litert
def test_operators_and_kernels_of_litert_are_shown_and_written(tmp_path: Path) -> None:
    mapping = {
        "local_cpu0": ["CONV_2D_0..MAX_POOL_2D_2"],
        "local_cpu0.2": ["CONV_2D_3..SOFTMAX_10"],
    }
    rankslice_package.build(
        DIGITS.with_suffix(".tflite"), mapping, out=tmp_path / "out", share_cores=True
    )
    table, record = tmp_path / "operators.csv", tmp_path / "trace.json"
    arguments = ("--frames", str(FRAMES), "--operators", "--csv", table, "--json", record)
    ended = succeed("trace", tmp_path / "out", *arguments)
    assert "ranks 0 and 1 ran on a compiled model of LiteRT" in ended.out.replace("\n", " ")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert {"local_cpu0", "local_cpu0.2"} == {row["accelerator"] for row in rows}
    assert all(float(row["p50_ms"]) <= float(row["p95_ms"]) for row in rows)
    assert any(row["kernel"].startswith("Convolution (NHWC, F32)") for row in rows)
    assert len(rows) == len(json.loads(record.read_text())["operators"])


@pytest.mark.ci
def test_an_engine_that_tells_no_operators_is_named(tmp_path: Path) -> None:
    out = let_ranks_sleep(chain_folder(tmp_path, 2), 1)
    shown = rankslice_package.trace(out, frames=FRAMES, operators=True)
    expected = "ranks 0 and 1 show no operators: the engine null does not report when they run"
    assert (expected,) == shown.notes


@pytest.mark.ci
def test_the_last_failure_is_shown_without_a_run(tmp_path: Path) -> None:
    out = let_ranks_sleep(
        chain_folder(tmp_path, 3),
        3,
        engine=FAILING_ENGINE,
        options={1: {"sleep_ms": "9", "fails": "40"}},
    )
    failed = rankslice("run", out, "--frames", "100")
    assert 1 == failed.code
    assert f"rankslice trace {out} --failure" in failed.err
    page = tmp_path / "failure.html"
    ended = succeed("trace", out, "--failure", "--html", page)
    assert "rank 1 (" in ended.out
    assert "bottleneck" in ended.out
    assert "this is the end of a job that failed at 20" in ended.out
    assert "the accelerator is gone" in ended.out
    assert page.is_file()


@pytest.mark.ci
def test_the_last_failure_with_two_routes_is_of_the_frames_that_took_the_last_one(
    tmp_path: Path,
) -> None:
    out = let_ranks_sleep(
        chain_folder(tmp_path, 3, usually_whole=True),
        3,
        engine=FAILING_ENGINE,
        options={1: {"fails": "40"}},
    )
    assert 1 == rankslice("run", out, "--frames", "100", "--switch", "surge").code
    shown = rankslice_package.trace(out, failure=True)
    assert any(
        note.startswith("this shows frames 0 to 4") and "the last on the surge route" in note
        for note in shown.notes
    )
    tracks = {step.track for step in shown.drawn.slices if step.name.startswith("segment")}
    assert {0, 1, 2} == {shown.drawn.tracks[track].rank for track in tracks}


def test_few_frames_are_told_to_be_few(out: Path) -> None:
    ended = rankslice("trace", out, "--frames", "1")
    assert 2 == ended.code
    assert "--frames" in ended.err
    shown = succeed("trace", out, "--frames", "2")
    assert "too few frames for a steady state: give 21 --frames or more" in shown.out


@NEEDS_FIRST_CORES
def test_advice_names_a_nearer_cut_that_sends_less(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    from rankslice.session.building.build import BuildOptions, build

    def value(name: str, width: int) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])

    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [4, 64])
    names = ["narrow", *(f"t{number}" for number in range(9)), "y"]
    nodes = [
        helper.make_node("Relu", ["x"], ["wide"], name="first"),
        helper.make_node("Reshape", ["wide", "shape"], ["folded"], name="fold"),
        helper.make_node("ReduceMax", ["folded"], ["narrow"], name="pool", axes=[0]),
        *(
            helper.make_node("Relu", [before], [after], name=f"to {after}")
            for before, after in itertools.pairwise(names)
        ),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", 256)], [value("y", 64)], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, tmp_path / "m.onnx")
    mapping = {"local_cpu0": ["first"], "local_cpu0.2": ["fold..to y"]}
    (tmp_path / "map.json").write_text(json.dumps(mapping))
    folder = build(
        tmp_path / "m.onnx",
        tmp_path / "map.json",
        "local",
        tmp_path / "out",
        BuildOptions(share_cores=True),
    ).folder
    advice = cut_advice(folder, (1,))
    assert "a cut after 'pool' would send a quarter: 256 B instead of 1.02 kB per frame" == advice
    assert "" == cut_advice(folder, ())
    (tmp_path / "m.onnx").unlink()
    assert "" == cut_advice(folder, (1,))
