"""Runs side by side: their figures, and what must not be compared."""

from __future__ import annotations

from kept_runs import CONDITIONS, kept_run, plan, rank_run
from line_graphs import line_graph
from plans import planned

from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.framework.plan import Plan
from rankslice.views.side_by_side import differences, figures, moves


def ratio(name: str, **others: object) -> float | None:
    rows = figures([kept_run(), kept_run("faster", **others)])
    return next(figure for figure in rows if figure.name == name).ratios[0]


def test_ratios_are_to_the_first_run() -> None:
    assert 1.5 == ratio("throughput, frames/s", throughput_fps=150.0)
    assert 2.0 == ratio("slowest rank, compute mean, ms", ranks=(rank_run(0, "a_cpu0", 6.0),))
    assert 1.0 == ratio("hottest zone, °C")
    assert 0.5 == ratio("memory of all ranks, MB", ranks=(rank_run(0, "a_cpu0"),))


def test_what_is_not_known_has_neither_value_nor_ratio() -> None:
    assert ratio("throughput, frames/s", throughput_fps=None) is None
    assert ratio("energy per frame", energy=()) is None
    assert ratio("latency p50, ms", completed=0) is None
    assert "latency p99.9, ms" not in [figure.name for figure in figures([kept_run()])]
    (row,) = [figure for figure in figures([kept_run(energy=())]) if figure.name == "window"]
    assert ("window", ("4",)) == (row.name, row.texts)


def test_runs_that_differ_in_the_mapping_alone_are_comparable() -> None:
    assert [] == differences([kept_run(), kept_run("other", plan(Add1=1))])


def test_what_else_differs_is_told() -> None:
    other = kept_run(
        "other",
        model="other.onnx",
        model_sha256="f" * 64,
        conditions=tuple({**CONDITIONS, "arrival": "as fast as they are taken"}.items()),
        versions=(("rankslice", "0.1.0"), ("onnxruntime", "1.19.0")),
        modes={"edge01": BoardMode("10W", 1), "edge02": BoardMode("15W", 2)},
        ranks=(rank_run(0, "edge01_cpu0", processor="EPYC", engine="litert"),),
    )
    assert [
        "The models: net.onnx (000000000000) in out; other.onnx (ffffffffffff) in other.",
        "Arrival: 30 frames/s in out; as fast as they are taken in other.",
        "Board edge01 ran with power mode 15W (2), policy0 schedutil from 300 to 1958.4 MHz in out"
        " and with power mode 10W (1), policy0 unknown in other.",
        "The processors: Cortex-A78 in out; EPYC in other.",
        "The engines: onnxruntime in out; litert in other.",
        "The versions of onnxruntime: 1.32.0 in out; 1.19.0 in other.",
    ] == differences([kept_run(), other])


def test_a_run_whose_conditions_nobody_knows_is_not_comparable() -> None:
    (difference,) = differences([kept_run(), kept_run("other", conditions=(), versions=())])
    assert difference.startswith("other: only the ranks' report of its last run is available")


def test_layers_that_moved_are_told_as_groups() -> None:
    first = plan()
    assert [] == moves(first, plan())
    assert [
        "one layer, 'Conv1': board_cpu1 instead of board_cpu2",
        "one layer, 'Relu1': board_cpu1 instead of board_cpu2",
    ] == moves(first, plan(Conv1=1, Relu1=1))


def test_layers_that_follow_each_other_and_moved_together_are_one_group() -> None:
    def chain(rank: int) -> Plan:
        ranks = dict.fromkeys("abc", rank) | {"d": 0, "e": 1}
        lines = "\n".join(f"{name}: t{n} -> t{n + 1}" for n, name in enumerate("dabce"))
        return planned(line_graph(lines, outputs="t5", inputs="t0"), ranks)

    before, after = chain(0), chain(1)
    assert ["3 layers, 'a' to 'c': board_cpu1 instead of board_cpu0"] == moves(before, after)
