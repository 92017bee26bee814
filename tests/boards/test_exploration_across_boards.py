"""An exploration that measures layers on boards, and then runs mappings there, over ssh."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from command_line import succeed
from real_jobs import chain

from boards import Boards

pytestmark = pytest.mark.ci


@pytest.mark.slow
def test_every_mapping_is_run_on_the_boards(rack: Boards, tmp_path: Path) -> None:
    onnx.save(chain(2), tmp_path / "chain.onnx")
    cpu = {"engine": "null", "options": {"sleep_ms": "2"}}
    hosts = {board.name: {"host": board.address, "cores": 1, "cpu": cpu} for board in rack}
    (tmp_path / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    succeed(
        *("explore", tmp_path / "chain.onnx", "--platform", tmp_path / "platform.yaml"),
        *("--method", "exhaustive", "--evaluate", "run", "--frames", "50"),
        *("--out", tmp_path / "out", "--ssh-config", rack.ssh_config),
    )
    found = json.loads((tmp_path / "out" / "front.json").read_text())
    assert (4, []) == (found["tried"], found["failures"])
    fastest = {
        len(mapping["boards"]): mapping["figures"][-1] for mapping in reversed(found["mappings"])
    }
    assert {1, 2} == fastest.keys()
    # Each slice sleeps 2 ms, on one board or on two.
    assert {"measured"} == {figures["source"] for figures in fastest.values()}
    assert all(100 < figures["throughput_fps"] < 500 for figures in fastest.values())
