"""Building: all mistakes at once, the same bytes every time, all or nothing."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import COMMAND, succeed
from jobs import FIGURE_2_RANKS, figure_2, shared_core_key, write_mapping
from needed import NEEDS_FIRST_CORES

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.plan import plan_from_json
from rankslice.session.build_folder import (
    BENCH,
    BENCH_PAGE,
    LAST_FAILURE,
    LINKS,
    OWN_ENTRIES,
    SSH_CONFIG,
    SURVIVAL,
    SURVIVAL_FILES,
    TRACE,
    WITHOUT,
)
from rankslice.session.building.build import Build, BuildOptions, build
from rankslice.session.run import prepare, run

BIG = 200_000_000
"""Bytes of weights: copying and hashing them takes long enough to be interrupted."""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder with model.onnx and mapping.json."""
    onnx.save(figure_2(), tmp_path / "model.onnx")
    write_mapping(tmp_path / "mapping.json", FIGURE_2_RANKS)
    return tmp_path


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a model of many bytes and a mapping for it."""
    folder = tmp_path_factory.mktemp("big")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        " g (float[1,1] x) => (float[1,1] z) { y = Gather (w, n) z = Mul (x, y) }"
    )
    weights = np.zeros((BIG // 4, 1), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "n"))
    onnx.save(model, folder / "model.onnx")
    write_mapping(folder / "mapping.json", {"Gather_0": 0, "Mul_1": 0})
    yield folder
    shutil.rmtree(folder)


def built(inputs: Path, out: Path, *, force: bool = False, archive: bool = False) -> Build:
    return build(
        inputs / "model.onnx",
        inputs / "mapping.json",
        "local",
        out,
        BuildOptions(share_cores=True, force=force, archive=archive),
    )


def mistakes(inputs: Path, platform: str | Path = "local", **options: object) -> list[str]:
    with pytest.raises(RankSliceError) as error:
        build(
            inputs / "model.onnx",
            inputs / "mapping.json",
            platform,
            inputs / "out",
            BuildOptions(**options),
        )
    assert not (inputs / "out").exists()
    return [str(mistake) for mistake in error.value.mistakes]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_ranks_in_turn_share_one_sub_model_on_the_disk(tmp_path: Path) -> None:
    onnx.save(figure_2(), tmp_path / "model.onnx")
    write_mapping(tmp_path / "mapping.json", FIGURE_2_RANKS, {1: (1, 1)})
    made = built(tmp_path, tmp_path / "out", archive=True)
    first, second = (s.file for s in made.plan.segments if s.layers == ("FC1",))
    for folder in (made.folder, *made.packages):
        assert (folder / first).samefile(folder / second)
        assert not (folder / first).samefile(folder / made.plan.segments[0].file)
    with tarfile.open(f"{made.packages[0]}.tar") as archive:
        files = {
            member.name.removeprefix("./"): file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }
    assert tree(made.packages[0]) == files


def test_a_build_folder_has_what_ranks_and_people_need(inputs: Path) -> None:
    out = built(inputs, inputs / "out").folder
    names = {path.name for path in out.iterdir()}
    assert {
        *("plan.json", "sender.json", "receiver.json", "rankfile", "hostfile", "boards.json"),
        *("driver.py", "runtime", "submodels", "packages", "model"),
    } == names
    assert 5 == len(list((out / "submodels").iterdir()))
    assert ["local"] == [path.name for path in (out / "packages").iterdir()]


def test_the_result_of_a_build_is_what_was_written(inputs: Path) -> None:
    result = built(inputs, inputs / "out")
    assert result.plan == plan_from_json((inputs / "out" / "plan.json").read_text())
    assert file_sha256(inputs / "model.onnx") == result.plan.model.sha256
    assert (inputs / "out" / "packages" / "local",) == result.packages
    assert all(package.is_dir() for package in result.packages)


def test_building_twice_gives_the_same_bytes(inputs: Path) -> None:
    first = tree(built(inputs, inputs / "a" / "out", archive=True).folder)
    second = tree(built(inputs, inputs / "b" / "other name", archive=True).folder)
    assert "packages/local.tar" in first
    assert list(first) == list(second)
    assert first == second


def test_an_archive_is_made_only_when_asked_for(inputs: Path) -> None:
    assert [] == list(built(inputs, inputs / "out").folder.glob("packages/*.tar"))


def test_mistakes_of_model_mapping_and_platform_are_told_all_at_once(inputs: Path) -> None:
    (inputs / "model.onnx").write_bytes(b"no model")
    (inputs / "mapping.json").write_text('{"local_cpu0": 3, "local_tpu": ["Conv1"]}')
    (inputs / "platform.yaml").write_text("boards: {local: {cores: none, slots: 3}}")
    found = mistakes(inputs, inputs / "platform.yaml")
    for place in ("model.onnx", "mapping.json: local_cpu0", "platform.yaml: boards.local.cores"):
        assert any(place in text for text in found), (place, found)
    assert any("platform.yaml: boards.local" in text and "slots" in text for text in found)


def test_unknown_layers_and_unknown_boards_are_told_all_at_once(inputs: Path) -> None:
    (inputs / "mapping.json").write_text(
        '{"local_cpu9999": ["MaxPool1", "Conv"], "lokal_cpu0": ["FC1", "Add1", "Relu9"]}'
    )
    found = "\n".join(mistakes(inputs))
    for name in ("'Conv'", "'Relu9'", "9999", "lokal"):
        assert name in found
    assert "did you mean" in found


def test_a_layer_that_nobody_has_is_told(inputs: Path) -> None:
    write_mapping(
        inputs / "mapping.json",
        {layer: rank for layer, rank in FIGURE_2_RANKS.items() if layer != "Conv1"},
    )
    (text,) = mistakes(inputs, share_cores=True)
    assert "Conv1" in text


def test_ranks_share_cores_only_when_told_to(inputs: Path) -> None:
    assert any("share" in text for text in mistakes(inputs))


def test_an_unknown_source_board_is_told(inputs: Path) -> None:
    expected = "--source-board: no rank is on board 'locl'; did you mean 'local'?"
    assert [expected] == mistakes(inputs, share_cores=True, source_board="locl")


def test_force_replaces_an_older_build_and_all_its_traces(inputs: Path) -> None:
    out = built(inputs, inputs / "out").folder
    (out / "results.bin").touch()
    write_mapping(inputs / "mapping.json", dict.fromkeys(FIGURE_2_RANKS, 0))
    built(inputs, out, force=True)
    assert not (out / "results.bin").exists()
    assert 1 == len(list((out / "submodels").iterdir()))
    assert [] == hidden(inputs)


def test_the_folder_has_a_link_to_the_model_for_verifying(inputs: Path) -> None:
    (inputs / "link.onnx").symlink_to("model.onnx")
    out = build(
        inputs / "link.onnx",
        inputs / "mapping.json",
        "local",
        inputs / "out",
        BuildOptions(share_cores=True),
    ).folder
    assert (out / "model").is_symlink()
    assert inputs / "model.onnx" == (out / "model").readlink()
    assert [] == list(out.glob("packages/*/model"))


def test_a_model_that_has_changed_or_gone_verifies_nothing(inputs: Path) -> None:
    out = built(inputs, inputs / "out").folder
    prepared = prepare(out, RunOptions(frames=1))
    with (inputs / "model.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(RankSliceError) as error:
        run(prepared, verify=True)
    expected = "model.onnx: has changed since it was sliced; build again to verify a run"
    assert f"{inputs}/{expected}" == str(error.value)
    (inputs / "model.onnx").unlink()
    with pytest.raises(RankSliceError, match=r"model: does not lead to model\.onnx; build again"):
        run(prepared, verify=True)


def killed(folder: Path, number: signal.Signals) -> int:
    """Kill a build once its partial folder is there; return its exit code."""
    words = ["build", "model.onnx", "--mapping", "mapping.json", "--out", "out"]
    with subprocess.Popen([*COMMAND, *words], cwd=folder, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not hidden(folder):
            time.sleep(0.001)
        process.send_signal(number)
        return process.wait()


@pytest.mark.ci
def test_a_terminated_build_leaves_nothing(big: Path) -> None:
    assert 128 + signal.SIGTERM == killed(big, signal.SIGTERM)
    assert ["mapping.json", "model.onnx"] == sorted(path.name for path in big.iterdir())


def test_a_killed_build_leaves_no_folder_and_the_next_one_cleans_up(big: Path) -> None:
    assert -signal.SIGKILL == killed(big, signal.SIGKILL)
    assert not (big / "out").exists()
    assert 1 == len(hidden(big))
    succeed(*("build", big / "model.onnx", "--mapping", big / "mapping.json", "--out", big / "out"))
    assert [] == hidden(big)
    manifest = json.loads((big / "out" / "packages" / "local" / "manifest.json").read_text())
    assert max(entry["bytes"] for entry in manifest["files"].values()) > BIG


@pytest.mark.ci
def test_what_builds_and_runs_leave_is_known_so_that_force_may_replace_it(inputs: Path) -> None:
    out = built(inputs, inputs / "out").folder
    run(prepare(out, RunOptions(frames=2)), verify=True)
    others = {"model.onnx", "model.tflite", SSH_CONFIG, SURVIVAL, SURVIVAL_FILES, WITHOUT}
    others |= {BENCH, BENCH_PAGE, LAST_FAILURE, LINKS, TRACE}
    others |= {name for name in OWN_ENTRIES if name.startswith("model-with-conversions.")}
    assert OWN_ENTRIES - others == {path.name for path in out.iterdir()}
    built(inputs, out, force=True)


HOSTILE = (
    "../../etc/passwd",
    "a/b",
    "'\"",
    "two\nlines",
    "right to left \u202e\u2066",
    "$(id) `id` %s {0} {{ x }}",
    "# -x",
    "..",
    "\u00e9\U0001f600",
    "L" * 10_000,
)


def test_layers_and_tensors_may_have_any_names_and_the_model_still_runs(tmp_path: Path) -> None:
    tensors = ["x \n/", *(f"t {name}" for name in HOSTILE)]
    nodes = [
        onnx.helper.make_node("Tanh" if number % 2 else "Exp", [before], [after], name=name)
        for number, (name, before, after) in enumerate(
            zip(HOSTILE, tensors, tensors[1:], strict=False)
        )
    ]
    ends = [
        onnx.helper.make_tensor_value_info(name, 1, [1, 4]) for name in (tensors[0], tensors[-1])
    ]
    graph = onnx.helper.make_graph(nodes, "../g\n", ends[:1], ends[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "model.onnx"
    )
    write_mapping(tmp_path / "mapping.json", {name: n % 2 for n, name in enumerate(HOSTILE)})
    out = built(tmp_path, tmp_path / "out").folder
    assert {"mapping.json", "model.onnx", "out"} == {path.name for path in tmp_path.iterdir()}
    verdict = run(prepare(out, RunOptions(frames=3, exact=True)), verify=True).summary.verify
    assert verdict is not None
    assert verdict.bit_equal


@NEEDS_FIRST_CORES
def test_two_spellings_of_one_board_and_core_are_two_ranks_with_files_of_their_own(
    tmp_path: Path,
) -> None:
    """Keys become file names: those that differ in little must not share a file."""
    onnx.save(figure_2(), tmp_path / "model.onnx")
    keys = ["local_cpu0", "local_arm0", "local_x860"]
    layers = [["MaxPool1", "Add1"], ["FC1"], ["Conv1", "Relu1"]]
    (tmp_path / "mapping.json").write_text(json.dumps(dict(zip(keys, layers, strict=True))))
    result = built(tmp_path, tmp_path / "out")
    assert 5 == len({segment.file for segment in result.plan.segments})


def surge_mapping(inputs: Path, keys: dict[str, list[str]]) -> Path:
    path = inputs / "surge.json"
    path.write_text(json.dumps(keys))
    return path


HALVES = (list(FIGURE_2_RANKS)[:3], list(FIGURE_2_RANKS)[3:])


def test_ranks_of_the_route_for_a_surge_share_cores_only_when_told_to(inputs: Path) -> None:
    write_mapping(inputs / "mapping.json", dict.fromkeys(FIGURE_2_RANKS, 0))
    keys = dict(zip(map(shared_core_key, range(2)), HALVES, strict=True))
    assert any("share" in text for text in mistakes(inputs, surge=surge_mapping(inputs, keys)))


def test_ranks_of_two_routes_may_have_the_same_cores(inputs: Path) -> None:
    platform = inputs / "boards.yaml"
    platform.write_text("boards: {edge01: {cores: 0-3}}")
    (inputs / "mapping.json").write_text(json.dumps({"edge01_cpu1": list(FIGURE_2_RANKS)}))
    surge = surge_mapping(inputs, dict(zip(("edge01_cpu0-1", "edge01_cpu3"), HALVES, strict=True)))
    options = BuildOptions(surge=surge)
    made = build(inputs / "model.onnx", inputs / "mapping.json", platform, inputs / "out", options)
    assert [True, True, False] == [rank.shared for rank in made.plan.ranks]
    files = {segment.file for route in made.plan.routes for segment in route.segments}
    for folder in (inputs / "out", inputs / "out" / "packages" / "edge01"):
        assert files == {f"submodels/{path.name}" for path in (folder / "submodels").iterdir()}


def test_mistakes_in_both_mappings_are_told_together(inputs: Path) -> None:
    write_mapping(inputs / "mapping.json", {**FIGURE_2_RANKS, "Conv99": 0})
    surge = surge_mapping(inputs, {"local_tpu": list(FIGURE_2_RANKS), "local_cpu0": ["Conv98"]})
    found = "\n".join(mistakes(inputs, share_cores=True, surge=surge))
    assert all(name in found for name in ("Conv99", "local_tpu", "Conv98"))


def test_a_model_that_takes_something_along_has_one_route(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        " g (float[1,4] x) => (float[1,4] z) { y = RandomNormalLike (x) z = Add (x, y) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    layers = {"RandomNormalLike_0": 0, "Add_1": 0}
    write_mapping(tmp_path / "mapping.json", layers)
    surge = surge_mapping(tmp_path, {shared_core_key(1): list(layers)})
    assert [
        "model.onnx: layer 'RandomNormalLike_0': it keeps a generator of random numbers from"
        " frame to frame, and segments of two routes share no state; build without --surge"
    ] == mistakes(tmp_path, surge=surge, share_cores=True)
