"""``rankslice bench`` across boards, against the unsliced model on one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import rankslice

from boards import Boards
from boards.deployments import build_for, deploy
from rankslice.measurement.bench.records import read_bench

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"
MAPPING = {"board1_cpu0": ["conv1..pool1"], "board2_cpu0": ["conv3..softmax"]}


@pytest.mark.ci
def test_boards_are_measured_in_turns_with_the_unsliced_model_on_the_first(
    rack: Boards, tmp_path: Path
) -> None:
    out = build_for(rack, tmp_path, DIGITS, MAPPING)
    assert 0 == deploy(rack, out).code
    options = ("--starts", "1", "--frames", "40", "--load-levels", "none")
    given = ("--against", "unsliced", "--ssh-config", rack.ssh_config)
    ended = rankslice("bench", out, *options, *given)
    assert 0 == ended.code, ended.err
    found = read_bench(out / "bench.json")
    sliced, unsliced = found.subjects
    assert ["board1", "board2"] == [rank.board for rank in sliced.ranks]
    assert ["board1"] == [rank.board for rank in unsliced.ranks]
    assert {0: 2, 1: 1} == {start.subject: len(start.stages) for start in found.starts}
    for start in found.starts:
        assert 40 == len(start.latency_ns)
        assert min(start.latency_ns) > max(min(stage.compute_ns) for stage in start.stages)
