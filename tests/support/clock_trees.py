"""Folders that look like those in which Linux shows the clocks of cores and GPUs."""

from __future__ import annotations

from pathlib import Path

CPUFREQ = "sys/devices/system/cpu/cpufreq"
LIMITS = ("scaling_min_freq", "scaling_max_freq")


def put_policy(
    root: Path,
    cores: tuple[int, ...],
    steps: tuple[int, ...],
    *,
    limits: tuple[int, int] | None = None,
    has_steps: bool = True,
) -> Path:
    """Make the folder of a clock that cores share; frequencies are in kHz."""
    policy = root / CPUFREQ / f"policy{cores[0]}"
    policy.mkdir(parents=True)
    files: dict[str, object] = {
        "related_cpus": " ".join(map(str, cores)),
        "scaling_governor": "schedutil",
        "cpuinfo_min_freq": min(steps),
        "cpuinfo_max_freq": max(steps),
        **dict(zip(LIMITS, limits or (min(steps), max(steps)), strict=True)),
    }
    if has_steps:
        files["scaling_available_frequencies"] = " ".join(map(str, steps))
    for name, content in files.items():
        (policy / name).write_text(f"{content}\n")
    return policy


def limits_of(policy: Path) -> tuple[int, ...]:
    return tuple(int((policy / name).read_text() or 0) for name in LIMITS)
