"""Whether a machine was quiet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks_made import MACHINE, MS, QUIET, bench, start

from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.measurement.bench.bench_records import BoardFacts, Noise
from rankslice.measurement.bench.quiet import (
    Counters,
    machine_facts,
    noise_between,
    noise_of,
    read_counters,
    unquiet,
    unseen,
)
from rankslice.measurement.bench.series import all_series
from rankslice.measurement.board_history import BoardHistory
from rankslice.views.bench_tables import notes_of

QUIETLY = bench([start([MS] * 60)])
FIGURES = all_series(QUIETLY)


def test_the_kernels_counters_are_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  100 10 30 5000 20 4 6 50 7 0\ncpu0 1 1\n")
    throttle = tmp_path / "sys/devices/system/cpu/cpu3/thermal_throttle"
    throttle.mkdir(parents=True)
    (throttle / "core_throttle_count").write_text("12\n")
    counters = read_counters(tmp_path)
    assert (1.5, 0.5, 12) == (counters.busy_s, counters.steal_s, counters.throttled)
    assert counters.own_s > 0


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu a b c d e f g h\n"])
def test_counters_that_are_not_there_are_zero(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(text)
    counters = read_counters(tmp_path)
    assert (0, 0, 0) == (counters.busy_s, counters.steal_s, counters.throttled)


def test_what_this_program_took_is_no_noise() -> None:
    before = Counters(10.0, busy_s=100.0, own_s=5.0, steal_s=0.0, throttled=0)
    after = Counters(20.0, busy_s=112.0, own_s=15.0, steal_s=0.0, throttled=0)
    assert 0.2 == noise_between(before, after).other_cores
    assert 0.0 == noise_between(before, replace(after, own_s=18.0)).other_cores


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        (
            Noise("", 1.4, 0.0, 0),
            "the machine was not quiet: 1 of 2 starts were disturbed: other processes took up to"
            " 1.4 cores",
        ),
        (Noise("", 0.0, 0.05, 0), "the hypervisor took up to 5 % of the processors"),
        (Noise("", 0.0, 0.0, 3), "cores were throttled 3 times"),
    ],
)
def test_a_disturbance_is_named(noise: Noise, text: str) -> None:
    (found,) = unquiet(bench([start([MS]), start([MS], noise=noise)]))
    assert text in found
    assert [] == unquiet(bench([start([MS])]))


def test_load_and_governor_are_named() -> None:
    busy = replace(MACHINE, load_before=1.5, governor="ondemand")
    found = " ".join(unquiet(replace(QUIETLY, machine=busy)))
    assert "1.5 processes were runnable" in found
    assert "'ondemand'" in found
    fast = replace(MACHINE, governor="performance")
    assert [] == unquiet(replace(QUIETLY, machine=fast))


BOARD = BoardFacts("edge02", 4, "powersave", 2.0)


def test_a_board_is_named() -> None:
    noisy = replace(start([MS]), noise=(QUIET, Noise("edge02", 1.4, 0.0, 2)))
    disturbances = unquiet(replace(bench([noisy, start([MS])]), boards=(BOARD,)))
    assert [
        "board edge02 was not quiet: before the first start 2.0 processes were runnable on average",
        "board edge02 was not quiet: 1 of 1 starts were disturbed: other processes took up to"
        " 1.4 cores, cores were throttled 2 times",
        "board edge02 was not quiet: the governor 'powersave' changes the processor's frequency",
    ] == disturbances


def test_a_board_of_which_starts_were_too_short_is_named() -> None:
    quietly = replace(QUIETLY, boards=(BOARD,))
    assert ["edge02"] == unseen(quietly)
    assert any("whether board edge02 was quiet" in note for note in notes_of(quietly, FIGURES))


NAN = float("nan")


def history(**series: tuple[float, ...]) -> BoardHistory:
    named = {name.replace("__", "."): values for name, values in series.items()}
    return BoardHistory("edge02", (0, 10**9, 2 * 10**9, 4 * 10**9), named, ())


def test_what_a_board_did_beside_its_ranks_is_told_by_its_samples() -> None:
    ranks = {"cpu_s__rank0": (NAN, 1.0, 1.5, 2.0), "cpu_s__rank2": (NAN, 0.5, 1.5, 3.0)}
    counted = {"processor_busy_s": (0.0, 10.0, 13.0, 17.5), "processor_steal_s": (0, 0, 0, 0.6)}
    noise = noise_of(history(**ranks, **counted, throttle_count__core=(1, 1, 1, 4)), cores=2)
    assert Noise("edge02", other_cores=round(4 / 3, 3), steal_share=0.1, throttled=3) == noise


@pytest.mark.parametrize(
    "series",
    [
        {},
        {"cpu_s__rank0": (NAN, 1.0, 2.0, 3.0)},
        {"processor_busy_s": (0.0, 1.0, 2.0, 3.0)},
        {"cpu_s__rank0": (NAN, 1.0, NAN, NAN), "processor_busy_s": (0.0, 1.0, 2.0, 3.0)},
    ],
)
def test_without_two_samples_of_board_and_ranks_nothing_is_known(
    series: dict[str, tuple[float, ...]],
) -> None:
    assert noise_of(history(**series), cores=2) is None


def test_a_counter_that_was_not_told_each_time_is_no_number() -> None:
    told = {"cpu_s__rank0": (0.0, 1.0, 2.0, 3.0), "processor_busy_s": (0.0, 1.0, 2.0, 3.0)}
    gaps = (NAN, 2.0, NAN, NAN)
    noise = noise_of(history(**told, processor_steal_s=gaps, throttle_count__core=gaps), cores=2)
    assert Noise("edge02", 0.0, 0.0, 0) == noise


def test_facts_of_this_machine_are_there() -> None:
    machine = machine_facts([("Python", "3")], 0.25, BoardMode("15W", 2))
    assert machine.processor
    assert machine.kernel.startswith("Linux")
    assert (0.25, (("Python", "3"),)) == (machine.load_before, machine.versions)
    assert BoardMode("15W", 2) == machine.mode
