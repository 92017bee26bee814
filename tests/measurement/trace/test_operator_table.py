"""How long operators took, as rows."""

from __future__ import annotations

import csv
import io

from traces import chain_plan

from rankslice.backend.runtime.figures.operator_profile import (
    DeviceRuns,
    OperatorSpans,
    RankOperators,
)
from rankslice.measurement.trace.operator_table import operators_csv, records_of, table_of

RUNS = ((0, 100), (200, 100))
CPU = OperatorSpans(
    names=("Conv a", "Relu b"),
    spans=((0, 10, 20), (1, 30, 4), (0, 210, 40), (1, 250, 4)),
    runs=RUNS,
    shapes=("1x2, 2x2 -> 1x2", ""),
    kernels=("CPU", "CPU"),
)
QUEUED = OperatorSpans(
    names=("Conv a",),
    spans=((0, 10, 1), (0, 210, 1)),
    runs=RUNS,
    device=DeviceRuns("WebGpu", True, ("conv2d a",), (((0, 5, 7000),), ((0, 9, 9000),)), (0, 0)),
    queued_by="WebGpu",
)


def test_rows_have_times_in_milliseconds_where_the_work_was_done() -> None:
    plan = chain_plan()
    operators = [RankOperators(0, "", (CPU,)), RankOperators(1, "", (QUEUED,))]
    rows = list(csv.DictReader(io.StringIO(operators_csv(table_of(plan, operators, 2)))))
    assert [plan.ranks[0].key] * 2 + [plan.ranks[1].key] == [row["accelerator"] for row in rows]
    assert ["Conv a", "Relu b", "conv2d a"] == [row["operator"] for row in rows]
    assert ["0.030000", "0.004000", "0.008000"] == [row["mean_ms"] for row in rows]
    assert ["0.039000", "0.004000", "0.008900"] == [row["p95_ms"] for row in rows]
    assert ["1x2, 2x2 -> 1x2", "", ""] == [row["shapes"] for row in rows]
    assert ["CPU", "CPU", "conv2d a"] == [row["kernel"] for row in rows]


def test_records_have_the_columns_of_the_table_and_leave_the_warm_up_out() -> None:
    (first, _) = records_of(table_of(chain_plan(), [RankOperators(0, "", (CPU,))], 1))
    assert ("Conv a", 1, 0.04) == (first["operator"], first["count"], first["mean_ms"])
