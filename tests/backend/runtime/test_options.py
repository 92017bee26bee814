"""The driver's command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rankslice.backend.runtime.options import Preprocessing, RunOptions, parse_options

counts = st.integers(1, 10**9)
floats = st.lists(st.floats(allow_nan=False), min_size=1, max_size=4).map(tuple)
rates = st.floats(min_value=0, exclude_min=True, allow_infinity=False)

options = st.builds(
    RunOptions,
    inputs=st.lists(st.text(), min_size=1, max_size=3).map(tuple),
    frames=st.none() | counts,
    seed=st.integers(0),
    unlimited=st.booleans(),
    samples_per_query=st.none() | st.integers(1, 9),
    drain=st.booleans(),
    stream=st.booleans(),
    fps=st.none() | rates,
    overflow=st.sampled_from(["fail", "drop"]),
    window=st.none() | counts,
    exact=st.booleans(),
    preprocessing=st.builds(
        Preprocessing,
        layout=st.sampled_from(["nchw", "nhwc"]),
        size=st.none() | st.tuples(counts, counts),
        mean=floats,
        scale=floats,
    ),
    results=st.text().map(Path),
    report=st.none() | st.text().map(Path),
    quiet=st.booleans(),
    progress=st.booleans(),
    queue=st.none() | counts,
    start_timeout_s=st.none() | rates,
    frame_timeout_s=st.none() | rates,
    bind=st.booleans(),
    arrivals=st.none() | st.text().map(Path),
    switch=st.sampled_from(["auto", "normal", "surge"]),
    normal_fps=st.none() | rates,
    surge_queue=st.none() | st.integers(2),
    surge_above=rates,
    normal_below=rates,
    normal_after_s=rates,
)


@given(options)
def test_the_command_line_of_any_options_reads_back_as_these_options(chosen: RunOptions) -> None:
    assert chosen == parse_options(chosen.to_arguments())


def test_no_arguments_are_the_default_options() -> None:
    assert RunOptions() == parse_options([])


def test_one_number_makes_a_square() -> None:
    assert (224, 224) == parse_options(["--size", "224"]).preprocessing.size


@pytest.mark.parametrize(
    "arguments",
    [
        ["--frames=-1"],
        ["--frames=1.5"],
        ["--window=0"],
        ["--fps=0"],
        ["--fps=nan"],
        ["--fps=inf"],
        ["--size=4x0"],
        ["--size=x"],
        ["--mean=1,"],
        ["--layout=chwn"],
        ["--overflow=wait"],
        ["--switch=both"],
        ["--surge-queue=0"],
        ["--surge-above=0"],
        ["--normal-fps=-1"],
        ["--normal-after=nan"],
        ["--unknown"],
        ["model.onnx"],
    ],
)
def test_what_makes_no_sense_is_misuse(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_options(arguments)
    assert 2 == end.value.code
    assert arguments[0].partition("=")[0] in capsys.readouterr().err
