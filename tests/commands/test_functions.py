"""The functions of the package that are named like the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needed import NEEDS_FIRST_CORES

import rankslice
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.commands.app import load_command
from rankslice.framework.specs.read_platform import read_platform
from rankslice.session.build_folder import read_plan

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bench": rankslice.bench,
    "build": rankslice.build,
    "deploy": rankslice.deploy,
    "explore": rankslice.explore,
    "inspect": rankslice.inspect,
    "profile": rankslice.profile,
    "report": rankslice.report,
    "replay": rankslice.replay,
    "run": rankslice.run,
    "simulate": rankslice.simulate,
    "trace": rankslice.trace,
}
MODEL = Path(__file__).parents[2] / "models" / "digits.onnx"
LAYERS = {"local_cpu0": ["conv1..pool1"], "local_cpu1": ("conv3..softmax",)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_options_and_defaults_of_its_command(name: str) -> None:
    function, command = FUNCTIONS[name], load_command(name)
    parameters = inspect.signature(function).parameters
    assert command.function is inspect.unwrap(function)
    for option in (known for known in command.options if known.name in parameters):
        default = parameters[option.name].default
        assert default in (option.usual, inspect.Parameter.empty)
        assert f"    {option.name}: {option.help}" in (function.__doc__ or "")
    assert len(parameters.keys() & {option.name for option in command.options}) > 0


def test_records_are_taken_as_well_as_their_fields() -> None:
    options = RunOptions(fps=-1, preprocessing=Preprocessing(size=(0, 1)))
    with pytest.raises(rankslice.RankSliceError, match="fps: is -1") as refused:
        rankslice.run("out", options=options)
    assert "size: is 0; expected 1 or more" in str(refused.value)
    with pytest.raises(rankslice.RankSliceError, match="no such folder"):
        rankslice.run("nowhere", options=options, fps=3, size=8)
    with pytest.raises(TypeError, match="fsp"):
        rankslice.run("out", fsp=3)


@NEEDS_FIRST_CORES
def test_a_dictionary_is_a_mapping(tmp_path: Path) -> None:
    built = rankslice.build(MODEL, LAYERS, out=tmp_path / "out")
    assert [2, 2] == [len(built.plan.ranks), len(read_plan(tmp_path / "out").segments)]
    assert ["local_cpu0", "local_cpu1"] == [rank.key for rank in built.plan.ranks]


@NEEDS_FIRST_CORES
def test_a_platform_that_was_read_is_taken() -> None:
    inspection = rankslice.inspect(str(MODEL), LAYERS, read_platform("local"))
    assert inspection.plan is not None
    assert ["conv1", "conv3"] == [segment.layers[0] for segment in inspection.plan.segments]


def test_cuts_are_layer_numbers(tmp_path: Path) -> None:
    built = rankslice.build(MODEL, cuts=[6], out=tmp_path / "out", share_cores=True)
    assert [5, 10] == [len(segment.layers) for segment in built.plan.segments]


OPTIONS = [
    (function, name)
    for function in (*FUNCTIONS.values(), rankslice.bench_scenario, rankslice.open)
    for name in inspect.signature(function).parameters
    if name != "listener"
]


@pytest.mark.parametrize(
    ("function", "name"), OPTIONS, ids=[f"{function.__name__}-{name}" for function, name in OPTIONS]
)
def test_a_value_of_another_type_is_refused(function: Callable[..., Any], name: str) -> None:
    positional = [1j] if name == "targets" else []
    needed = {
        parameter.name: "x"
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is inspect.Parameter.empty and parameter.name not in (name, "targets")
    }
    with pytest.raises(rankslice.RankSliceError) as refused:
        function(*positional, **needed, **({} if positional else {name: 1j}))
    assert f"{name}: is 1j; expected " in str(refused.value)


def test_numbers_of_numpy_are_numbers_and_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(rankslice.RankSliceError) as refused:
        rankslice.open(
            MODEL,
            window=np.int64(3),
            queue="3",  # type: ignore[arg-type]
            frame_timeout_s=np.float32(0.5),
            start_timeout_s=True,
            survive=np.bool_(False),  # type: ignore[arg-type]
        )
    expected = "queue: is '3'; expected a whole number\nstart_timeout_s: is True; expected a number"
    assert expected == str(refused.value)


WRONG: dict[str, Callable[[], object]] = {
    "mapping: is missing": lambda: rankslice.build(MODEL),
    "cuts: cannot be combined with mapping": lambda: rankslice.build(MODEL, LAYERS, cuts=[2]),
    "found the key 1": lambda: rankslice.inspect(MODEL, {1: ["conv1"]}),  # type: ignore[dict-item]
    "local_cpu0: found 'conv1'": lambda: rankslice.inspect(MODEL, {"local_cpu0": "conv1"}),
    "mapping: is ['conv1']; expected": lambda: rankslice.inspect(MODEL, ["conv1"]),  # type: ignore[arg-type]
    "the mapping is empty": lambda: rankslice.inspect(MODEL, {}),
    "shape 'image': found": lambda: rankslice.inspect(MODEL, shape={"image": (1, -1)}),
    "did you mean 'exact'": lambda: rankslice.explore(MODEL, method="exakt"),
    "surge_fps: is 2, and fps 3": lambda: rankslice.explore(MODEL, fps=3, surge_fps=2),
    "quantize: found 'int4'": lambda: rankslice.build(MODEL, LAYERS, quantize="int4"),
    "layout: found 'nhcw'": lambda: rankslice.run("out", layout="nhcw"),
    "size: cannot be combined": lambda: rankslice.run("out", size=8, keep_size=True),
    "size: is 0": lambda: rankslice.run("out", size=(8, 0)),
    "frames: is -1": lambda: rankslice.run("out", frames=-1),
    "seed: is -1": lambda: rankslice.explore(MODEL, seed=-1),
    "fps: is 0": lambda: rankslice.run("out", fps=0),
    "arrivals: cannot be combined with fps": lambda: rankslice.run("out", fps=5, arrivals="t"),
    "tolerance: is given without verify": lambda: rankslice.run("out", tolerance=0.1),
    "frames: is 0": lambda: rankslice.simulate("out", frames=0),
    "again: cannot be combined": lambda: rankslice.profile(MODEL, fresh=True, again=True),
    "is given twice": lambda: rankslice.report("out", "out"),
    "scenario: found 'singel'": lambda: rankslice.bench_scenario("out", "singel"),
    "needs --target-fps": lambda: rankslice.bench_scenario("out", "server", latency_limit_ms=9),
    "load: found 'disk'": lambda: rankslice.bench("out", load="disk"),
    "busy: is 0": lambda: rankslice.bench("out", load="cpu", busy=(0,)),
    "against: cannot be combined": lambda: rankslice.bench("out", "unsliced", load="cpu"),
    "starts: is 0": lambda: rankslice.bench("out", starts=0),
    "load_levels: is 1.5": lambda: rankslice.bench("out", load_levels=(0.5, 1.5)),
    "no such": lambda: rankslice.deploy("nowhere"),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_makes_no_sense_is_refused(
    message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rankslice.RankSliceError) as caught:
        WRONG[message]()
    assert message in str(caught.value)
    assert [] == list(tmp_path.iterdir())


def test_the_package_offers_what_it_lists() -> None:
    for name in rankslice.__all__:
        assert callable(getattr(rankslice, name))
    assert set(rankslice.__all__) <= set(dir(rankslice))
