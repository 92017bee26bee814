"""MLPerf's scenarios across boards."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import succeed

from boards import Boards
from boards.deployments import build_for, deploy
from rankslice.measurement.bench.bench_records import read_bench
from rankslice.measurement.bench.scenarios import arrival_times

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"
MAPPING = {"board1_cpu0": ["conv1..pool1"], "board2_cpu0": ["conv3..softmax"]}


@pytest.mark.ci
def test_a_server_across_boards_gets_its_queries_by_the_schedule(
    rack: Boards, tmp_path: Path
) -> None:
    out = build_for(rack, tmp_path, DIGITS, MAPPING)
    assert 0 == deploy(rack, out).code
    given = ("--ssh-config", rack.ssh_config)
    server = ("--scenario", "server", "--target-fps", "300", "--latency-limit-ms", "60000")
    ended = succeed("bench", out, *server, *given)
    assert "p99 <= 60000 ms with 99 % confidence: 0 of 662 queries" in ended.out
    (start,) = read_bench(out / "bench.json").starts
    scheduled = arrival_times(300, 662, seed=0)
    assert list(start.arrived_ns) == pytest.approx(list(1e9 * scheduled), abs=2)
