"""An exploration that measures layers on boards, and then runs mappings there, over ssh."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import rankslice

from boards import Boards

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"


def test_mappings_are_run_on_the_boards(rack: Boards, tmp_path: Path) -> None:
    hosts = {board.name: {"host": board.address, "cores": 1} for board in rack}
    (tmp_path / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    ended = rankslice(
        *("explore", DIGITS, "--platform", tmp_path / "platform.yaml", "--out", tmp_path / "out"),
        *("--evaluate", "run", "--evaluations", "2", "--frames", "100"),
        *("--ssh-config", rack.ssh_config),
    )
    assert 0 == ended.code, ended.err
    found = json.loads((tmp_path / "out" / "front.json").read_text())
    assert (2, []) == (found["tried"], found["failures"])
    measured = {
        len(each["boards"]): each["figures"][-1]
        for each in found["mappings"]
        if each["figures"][-1]["source"] == "measured"
    }
    # The fastest of each number of boards comes first.
    assert {1, 2} == measured.keys()
    assert all(figures["throughput_fps"] > 0 for figures in measured.values())
