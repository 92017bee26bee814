"""Nothing of ours, and nothing that we start, calls anybody."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from name_server import Asked, questions_of, why_not

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.networks.digits import digits_model

ROOT = Path(__file__).parents[1]

SWITCHED_OFF = "from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime"
AS_IT_COMES = "def load_onnxruntime(): import onnxruntime; return onnxruntime"
LOAD = f"load_onnxruntime().InferenceSession({str(digits_model())!r}).get_inputs()"

VENDOR = "mobile.events.data.microsoft.com"
ASKS_AFTER_S = 9.1
"""When onnxruntime 1.32 resolves its vendor's host for the first time."""

has_name_server = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it has")
has_telemetry = pytest.mark.skipif(
    tuple(map(int, load_onnxruntime().__version__.split(".")[:2])) < (1, 32),
    reason="onnxruntime before 1.32 has no telemetry on Linux",
)


def surroundings(home: Path) -> dict[str, str]:
    """Return the variables of a user whose machine nobody would take for a build server."""
    home.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "PATH": path}


def python(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(lines)]


def kept(home: Path) -> Iterator[str]:
    return (path.name for path in sorted(home.rglob("*")) if path.is_file())


@has_name_server
def test_the_name_server_sees_who_is_asked_for(tmp_path: Path) -> None:
    asks = "import socket; socket.getaddrinfo('some.host.example', 443)"
    asked = questions_of(python(asks), surroundings(tmp_path))
    assert ("some.host.example",) == asked.names
    assert "Name or service not known" in asked.output


@pytest.mark.ci
@has_name_server
def test_build_run_and_profile_ask_for_nobody_and_keep_nothing(tmp_path: Path) -> None:
    mapping = ROOT / "mappings" / "digits-two-ranks.json"
    commands = (
        ("build", digits_model(), "--mapping", mapping, "--out", "out"),
        ("run", "out", "--frames", "20", "--verify"),
        ("profile", digits_model(), "--per-core", "-o", "profile.json", "--seconds", "1"),
    )
    lines = [shlex.join(["rankslice", *map(str, command)]) for command in commands]
    script = ["sh", "-ec", "\n".join((f"cd {shlex.quote(str(tmp_path))}", *lines))]
    asked = questions_of(script, surroundings(tmp_path / "home"))
    assert Asked(0, asked.output, ()) == asked
    assert [] == list(kept(tmp_path / "home"))


@has_telemetry
@has_name_server
@pytest.mark.parametrize(
    ("loading", "files"), [(AS_IT_COMES, ["deviceid", "onnxruntime.db"]), (SWITCHED_OFF, [])]
)
def test_only_without_the_switch_onnxruntime_keeps_what_it_would_send(
    loading: str, files: list[str], tmp_path: Path
) -> None:
    asked = questions_of(python(loading, LOAD), surroundings(tmp_path))
    assert (0, "") == (asked.code, asked.output)
    assert files == list(kept(tmp_path))


@has_telemetry
@has_name_server
def test_a_probe_of_a_board_keeps_nothing(tmp_path: Path) -> None:
    loading = "from rankslice.backend.agent.probe import environments as board; import sys"
    asks = python(loading, "print(board.environment(sys.executable, {})['providers'])")
    asked = questions_of(asks, surroundings(tmp_path))
    assert "CPUExecutionProvider" in asked.output
    assert ([], ()) == (list(kept(tmp_path)), asked.names)


@pytest.mark.slow
@has_telemetry
@has_name_server
@pytest.mark.parametrize(("loading", "names"), [(AS_IT_COMES, (VENDOR,)), (SWITCHED_OFF, ())])
def test_only_without_the_switch_onnxruntime_asks_for_its_vendor(
    loading: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    waits = f"import time; time.sleep({ASKS_AFTER_S + 3})"
    asked = questions_of(python(loading, LOAD, waits), surroundings(tmp_path))
    assert (0, names) == (asked.code, asked.names)
