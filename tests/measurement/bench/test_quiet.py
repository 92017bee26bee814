"""Whether a machine was quiet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks_made import MACHINE, MS, QUIET, start

from rankslice.measurement.bench.quiet import (
    Counters,
    is_quiet,
    machine_facts,
    noise_between,
    read_counters,
    unquiet,
)
from rankslice.measurement.bench.records import Noise


def test_the_kernels_counters_are_read(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 10 30 5000 20 4 6 50 7 0\ncpu0 1 1\n")
    throttle = tmp_path / "cpu3" / "thermal_throttle"
    throttle.mkdir(parents=True)
    (throttle / "core_throttle_count").write_text("12\n")
    found = read_counters(tmp_path, tmp_path)
    assert (1.5, 0.5, 12) == (found.busy_s, found.steal_s, found.throttled)
    assert found.own_s > 0


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu a b c d e f g h\n"])
def test_counters_that_are_not_there_are_zero(tmp_path: Path, text: str) -> None:
    (tmp_path / "stat").write_text(text)
    found = read_counters(tmp_path, tmp_path)
    assert (0, 0, 0) == (found.busy_s, found.steal_s, found.throttled)


def test_what_this_program_took_is_no_noise() -> None:
    before = Counters(10.0, busy_s=100.0, own_s=5.0, steal_s=0.0, throttled=0)
    after = Counters(20.0, busy_s=112.0, own_s=15.0, steal_s=0.0, throttled=0)
    assert 0.2 == noise_between(before, after).other_cores
    assert 0.0 == noise_between(before, replace(after, own_s=18.0)).other_cores


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        (Noise(1.4, 0.0, 0), "1 of 2 starts were disturbed: other processes took up to 1.4 cores"),
        (Noise(0.0, 0.05, 0), "the hypervisor took up to 5 % of the processors"),
        (Noise(0.0, 0.0, 3), "cores were too warm and slowed down 3 times"),
    ],
)
def test_a_disturbance_is_named(noise: Noise, text: str) -> None:
    assert is_quiet(QUIET)
    assert not is_quiet(noise)
    (found,) = unquiet(MACHINE, [start([MS]), start([MS], noise=noise)])
    assert text in found
    assert [] == unquiet(MACHINE, [start([MS])])


def test_load_and_governor_are_named() -> None:
    busy = replace(MACHINE, load_before=1.5, governor="ondemand")
    found = " ".join(unquiet(busy, [start([MS])]))
    assert "1.5 processes could run" in found
    assert "'ondemand'" in found
    assert [] == unquiet(replace(MACHINE, governor="performance"), [start([MS])])


def test_facts_of_this_machine_are_there() -> None:
    found = machine_facts([("Python", "3")], 0.25)
    assert found.processor
    assert found.kernel.startswith("Linux")
    assert (0.25, (("Python", "3"),)) == (found.load_before, found.versions)
