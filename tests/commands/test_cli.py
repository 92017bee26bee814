"""The command line: exit codes, messages, and what goes to stdout and to stderr."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import onnx
import pytest
from command_line import COMMAND, rankslice, rankslice_process, succeed
from jobs import FIGURE_2_RANKS, build_folder, figure_2, write_mapping

from rankslice import __version__
from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.commands.app import COMMANDS

CONSTANT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x) => (float[1,4] y) { n = Sub (x, x) y = Cos (n) }
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files; a build folder in out/out."""
    folder = tmp_path_factory.mktemp("cli")
    onnx.save(figure_2(), folder / "model.onnx")
    write_mapping(folder / "mapping.json", FIGURE_2_RANKS)
    build_folder(folder / "out", figure_2(), FIGURE_2_RANKS)
    for name, content in {
        "empty": b"",
        "text.onnx": b"hello",
        "model.pb": b"",
        "list.json": b"[]",
        "twice.json": b'{"a_cpu0": ["Conv1"], "a_cpu0": ["FC1"]}',
        "bytes.json": b"\xff",
        "bad.yaml": b"boards: [}",
        "bytes/plan.json": b"\xff",
        "no/plan.json": b"{}",
        "folder/notes.txt": b"",
        "bytes.txt": b"\xff",
        "mpich": b"#!/bin/sh\necho 'HYDRA build details:'\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "mpich").chmod(0o755)
    (folder / "loop").symlink_to("loop")
    return folder


@pytest.fixture(autouse=True)
def in_bench(bench: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(bench)
    yield
    os.chdir(before)


MISUSE = {
    "": "Usage",
    "serves": 'Unknown command "serves". Did you mean "serve"?',
    "inspect": "requires an argument",
    "inspect model.onnx more": "more",
    "inspect --bad model.onnx": "Unknown option: --bad",
    "inspect model.onnx --sumary": "Did you mean --summary?",
    "inspect model.onnx --shape x": "--shape: 'x' is not of the form IN=1,3,224,224",
    "inspect model.onnx --shape x=1,": "'x=1,' is not of the form IN=1,3,224,224",
    "inspect model.onnx --shape =1": "'=1' is not of the form IN=1,3,224,224",
    "inspect model.onnx --shape x=-1": "'x=-1' is not of the form IN=1,3,224,224",
    "inspect model.onnx --shape x=²": "'x=²' is not of the form IN=1,3,224,224",
    "inspect model.onnx --cuts -1": "--cuts: is -1; expected 0 or more",
    "inspect model.onnx --cuts many": "--cuts: 'many' is not a whole number",
    "build model.onnx": "--mapping: neither this nor --cuts is given",
    "run": "requires an argument",
    "run out/out --frames -1": "--frames: is -1",
    "run out/out --frames many": "--frames: 'many' is not",
    "run out/out --fps 0": "--fps: is 0; expected 0.001 to 1e+09",
    "run out/out --fps inf": "--fps: is inf",
    "run out/out --fps nan": "--fps: is nan",
    "run out/out --window 0": "--window: is 0",
    f"run out/out --window 1{'0' * 400}": "--window: is 1000",
    "run out/out --seed -1": "--seed: is -1",
    "run out/out --top -1": "--top: is -1",
    "run out/out --size 0x4": "'0x4' is not of the form HxW",
    "run out/out --size 4x0": "'4x0' is not of the form HxW",
    "run out/out --size ²": "'²' is not of the form HxW",
    "run out/out --mean 1,x": "'1,x' is not a list of numbers",
    "run out/out --scale ,": "',' is not a list of numbers",
    "run out/out --layout chw": "--layout",
    "run out/out --overflow wait": "--overflow",
    "run out/out --verify=fast": "fast",
}


@pytest.mark.parametrize("line", MISUSE)
def test_misuse_ends_with_code_2_and_says_what_is_wrong(line: str) -> None:
    ended = rankslice(*line.split())
    assert 2 == ended.code
    assert MISUSE[line] in ended.out + ended.err


def test_every_mistake_has_a_line_of_its_own() -> None:
    ended = rankslice("build", "text.onnx", "--mapping", "list.json", "--platform", "bad.yaml")
    assert 1 == ended.code
    lines = ended.err.splitlines()
    assert 3 == len(lines)
    assert ["text.onnx", "list.json", "bad.yaml"] == [
        line.removeprefix("error: ").partition(":")[0] for line in lines
    ]


def test_what_looks_like_markup_in_a_message_is_shown_as_it_is() -> None:
    ended = rankslice("inspect", "[red]x[/red].onnx")
    assert "error: [red]x[/red].onnx: no such file; expected an ONNX model file\n" == ended.err


def test_a_path_that_is_no_text_is_named_all_the_same() -> None:
    ended = rankslice_process("inspect", os.fsdecode(b"\xff.onnx"))
    assert 1 == ended.code
    assert "\\udcff.onnx: no such file" in ended.err
    assert "Traceback" not in ended.err


def test_a_name_that_the_terminal_cannot_show_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = figure_2()
    model.graph.node[0].name = "größe"
    onnx.save(model, tmp_path / "m.onnx")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ended = rankslice_process("inspect", tmp_path / "m.onnx")
    assert (0, "") == (ended.code, ended.err)
    assert "gr\\xf6\\xdfe" in ended.out


def test_the_versions_are_those_of_what_jobs_run_with() -> None:
    ended = rankslice("--version")
    assert (0, "") == (ended.code, ended.err)
    mpirun = find_mpirun()
    lines = ended.out.splitlines()
    assert [
        f"rankslice {__version__}",
        f"Python {platform.python_version()}",
        f"Open MPI {'.'.join(map(str, mpirun.version))} ({mpirun.path})",
        f"mpi4py {version('mpi4py')}",
    ] == lines[:4]
    assert f"onnxruntime: onnxruntime {version('onnxruntime')}" in lines
    assert any(line.startswith("LiteRT: ") for line in lines)


def test_an_mpirun_that_is_missing_is_told_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = succeed("--version")
    assert "Open MPI: mpirun: not found; install one with" in ended.out
    assert "LiteRT: " in ended.out


def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash"}
    ended = subprocess.run(
        [*COMMAND, "--install-completion"], env=home, capture_output=True, text=True, check=True
    )
    assert "Completion script installed" in ended.stdout
    (script,) = (path for path in (tmp_path / ".local").rglob("rankslice"))
    assert str(script) in (tmp_path / ".bashrc").read_text()

    def completed(*words: str) -> list[str]:
        program = (
            f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
            " _rankslice; echo ${COMPREPLY[@]}"
        )
        return subprocess.check_output(["bash", "-c", program], text=True).split()

    assert ["probe", "profile"] == completed("rankslice", "pro")
    assert ["--switch"] == completed("rankslice", "run", "out", "--sw")
    assert ["nchw", "nhwc"] == completed("rankslice", "run", "out", "--layout", "n")


def test_options_stand_in_a_file_beside_the_build_folder(
    tmp_path: Path, bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = bench / "out" / "rankslice.toml"
    config.write_text("[run]\nframes = 4\nverify = true\nsize = '8x8'\nstart-timeout = 50.5\n")
    monkeypatch.chdir(tmp_path)
    try:
        succeed("run", bench / "out/out", "--json", tmp_path / "r.json", "--size", "4")
        record = json.loads((tmp_path / "r.json").read_text())
        assert (4, True) == (record["completed"], record["verify"]["passed"])
    finally:
        config.unlink()


def test_a_file_beside_a_model_is_not_read(
    tmp_path: Path, bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    model = tmp_path / "model.onnx"
    model.write_bytes((bench / "model.onnx").read_bytes())
    (tmp_path / "rankslice.toml").write_text("[inspect]\ninternals = true\ndelegate = 'x.so'\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    succeed("inspect", model)
    monkeypatch.chdir(tmp_path)
    ended = rankslice("inspect", model)
    assert 2 == ended.code
    assert "rankslice.toml: --delegate: is not taken from a file" in ended.err


WRONG_CONFIGS = {
    "[run]\nfames = 4": 'error: Unknown option: "[fames]"',
    "[rnu]\nframes = 4": "rankslice.toml: no command 'rnu'; did you mean 'run'?",
    "[run]\nframes = 'many'": "--frames: 'many' is not a whole number",
    "run = 3": "must be a mapping",
    "[run]\nmpirun = './mpirun'": "--mpirun: is not taken from a file",
    "[run]\nssh-config = 'config'": "--ssh-config: is not taken from a file",
    f"[run]\ninput = {'[' * 100_000}": "rankslice.toml: ",
    f"# {'x' * (1 << 20)}": "rankslice.toml: is larger than 1 MiB",
    "[run\n": "rankslice.toml",
}


@pytest.mark.parametrize("text", WRONG_CONFIGS, ids=lambda text: text[:30])
def test_wrong_options_in_a_file_are_told(
    text: str, tmp_path: Path, bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rankslice.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    ended = rankslice("run", bench / "out/out")
    assert 2 == ended.code
    assert 1 == ended.err.count("\n")
    assert WRONG_CONFIGS[text] in ended.err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_an_example_and_no_kind_of_value_for_switches(
    command: str,
) -> None:
    ended = rankslice(command, "--help")
    assert (0, "") == (ended.code, ended.err)
    assert "--help" in ended.out
    assert "bool" not in ended.out.lower()
    shown = " ".join(ended.out.split()).replace("Examples:", "Example:")
    assert f"Example: rankslice {command}" in shown


def test_help_names_every_command() -> None:
    ended = succeed("--help")
    assert all(word in ended.out for word in (*COMMANDS, "--help"))
    assert "bool" not in ended.out.lower()


def test_inspect_tells_people_of_layers_on_stdout() -> None:
    ended = rankslice("inspect", "model.onnx")
    assert (0, "") == (ended.code, ended.err)
    for word in ("MaxPool1", "Conv1", "1x4x8x8 float32", "5 layers"):
        assert word in ended.out


def test_inspect_gives_json_alone_on_stdout() -> None:
    ended = rankslice("inspect", "model.onnx", "--json", "-")
    assert (0, "") == (ended.code, ended.err)
    record = json.loads(ended.out)
    assert set(FIGURE_2_RANKS) == {layer["name"] for layer in record["layers"]}
    x = {"name": "x", "dtype": "float32", "shape": [1, 4, 8, 8], "symbols": [], "bytes": 1024}
    assert [x] == record["inputs"]


def test_inspect_writes_json_beside_what_it_shows(tmp_path: Path) -> None:
    ended = rankslice("inspect", "model.onnx", "--json", tmp_path / "i.json")
    assert "5 layers" in ended.out
    assert 5 == json.loads((tmp_path / "i.json").read_text())["totals"]["layers"]


def test_build_gives_the_plan_as_json_alone_on_stdout(tmp_path: Path) -> None:
    ended = succeed(
        *("build", "model.onnx", "--mapping", "mapping.json", "--share-cores"),
        *("--out", tmp_path / "out", "--json", "-"),
    )
    assert json.loads((tmp_path / "out" / "plan.json").read_text()) == json.loads(ended.out)


def test_build_tells_people_what_each_rank_does(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = succeed(
        *("build", "model.onnx", "--mapping", "mapping.json", "--share-cores", "--out", out)
    )
    for key in json.loads(Path("mapping.json").read_text()):
        assert key in ended.out
    assert str(out) in ended.out


def test_run_tells_people_on_stdout_and_talks_on_stderr_alone(bench: Path) -> None:
    ended = succeed("run", "out/out", "--frames", "8", "--verify")
    for word in ("8 frames", "latency p50", "bottleneck:", "verify passed: 8 frames compared"):
        assert word in ended.out
    assert "" == ended.err.strip()


def test_a_run_that_proves_nothing_fails_and_gives_its_numbers_all_the_same(
    tmp_path: Path,
) -> None:
    folder = build_folder(tmp_path, onnx.parser.parse_model(CONSTANT), {"Sub_0": 0, "Cos_1": 0})
    ended = rankslice("run", folder, "--frames", "3", "--verify", "exact", "--json", "-")
    assert 1 == ended.code
    expected = "error: verify: the unsliced model's output 'y' is constant: inconclusive"
    assert expected == ended.err.strip()
    record = json.loads(ended.out)
    assert (3, False) == (record["completed"], record["verify"]["passed"])


def test_sigterm_ends_a_command_that_is_importing(tmp_path: Path) -> None:
    (tmp_path / "swallowing.py").write_text("""
import contextlib, os, signal, time
with contextlib.suppress(SystemExit):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
""")
    program = """
import time
from rankslice import commands

def importing(words):
    import swallowing
    time.sleep(30)

commands.run_program = importing
commands.main()
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (143, b"") == (ended.returncode, ended.stderr)
