"""How long the exact planner takes, and how that grows with layers, kinds of device, and hosts.

The layers are those of ViT-Large, profiled on two types of device, of the planner's tests; the
third type is scaled from the second. Longer chains repeat them, and more kinds are scaled, too;
what is drawn makes each kind's times differ by up to a tenth, layer by layer. PipeEdge's figures
were measured earlier on a machine of this kind, and stand beside ours as they are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pipeedge import read_pipeedge
from plotting import new_figure, save_figure
from timing import Interval, console, machine, print_table, spread

from rankslice.exploration import (
    Device,
    LayerChain,
    Pipeline,
    optimal_pipeline,
)

CASES = Path(__file__).parents[1] / "tests" / "benchmarks" / "planner_cases"
VIT_BASE, VIT_LARGE = "google/vit-base-patch16-224", "google/vit-large-patch16-224"
SPEEDS = (1.0, 0.8, 0.6, 0.45, 0.3)
"""Time of each kind, as a share of the first one's."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A figure of PipeEdge's scheduler: its process, reading included."""

    title: str
    seconds: float
    case: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Growth:
    """Times for ever larger cases."""

    title: str
    axis: str
    sizes: tuple[int, ...]
    seconds: tuple[Interval, ...]


def planned(case: dict[str, Any]) -> Pipeline:
    """Return the best pipeline of a case: fields of a chain, and options of the planner."""
    names = {field.name for field in fields(LayerChain)}
    chain = LayerChain(**{name: value for name, value in case.items() if name in names})
    return optimal_pipeline(chain, **{k: v for k, v in case.items() if k not in names})


def profiled(model: str, types: int, hosts: int) -> dict[str, Any]:
    """Return one of the tests' cases."""
    names = ("Minnowboard-E3845", "RCC-VE-C2000", "TypeC-scaled")[:types]
    with TemporaryDirectory() as folder:
        devices = Path(folder) / "devices.yml"
        lines = (f"{name}: [{', '.join(f'{name}-{i}' for i in range(hosts))}]" for name in names)
        devices.write_text("\n".join(lines), encoding="utf-8")
        files = (CASES / "models.yml", CASES / "device_types.yml", devices)
        case = read_pipeedge(*files, model=model)
        return {field.name: getattr(case, field.name) for field in fields(case)}


def chain(layers: int, kinds: int, hosts: int) -> dict[str, Any]:
    """Return ViT-Large's layers over and over, on kinds of device that differ a little by layer."""
    draw = np.random.default_rng(0)
    case = profiled(VIT_LARGE, 1, 1)
    times = np.outer(SPEEDS[:kinds], np.resize(case["times_s"][0], layers))
    return {
        "times_s": times * draw.uniform(0.9, 1.1, times.shape),
        "output_bytes": np.resize(case["output_bytes"], layers),
        "memory_bytes": np.resize(case["memory_bytes"], layers),
        "devices": [
            Device(f"{kind}-{host}", kind, bandwidth_bytes_s=1.25e8 / (1 + kind % 2))
            for kind in range(kinds)
            for host in range(hosts)
        ],
    }


def apart(boards: int) -> dict[str, Any]:
    """Return 96 layers on boards that are all of one kind, with links that all differ."""
    draw = np.random.default_rng(0)
    rates = draw.uniform(1e6, 1e8, (boards, boards))
    return {**chain(96, 1, boards), "bandwidth_bytes_s": np.minimum(rates, rates.T)}


def hard() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield cases in which the bound is not reached at once, so that states are searched."""
    for layers, kinds in ((96, 3), (910, 2)):
        case, size = chain(layers, kinds, 8), f"{layers} layers x {kinds} kinds x 8 hosts"
        draw = np.random.default_rng(1)
        best = planned(case).bottleneck_s
        slow = [
            replace(device, bandwidth_bytes_s=1e6 / 3**device.kind) for device in case["devices"]
        ]
        sent = draw.uniform(0.05, 1.5, layers) * best * 1e6
        yield f"{size}, slow links", {**case, "devices": slow, "output_bytes": sent}
        least = {"objective": "latency", "throughput_floor_fps": 0.8 / best}
        yield f"{size}, least latency at 80 % of the rate", {**case, **least}
    yield "96 layers x 3 kinds on 8 boards, their memory 95 % full", on_full_boards(96, 3)


def crowded() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield cases with many combinations of numbers of devices, beyond what tables hold, too."""
    for layers, number, kinds in (
        (200, 16, 16),
        (500, 48, 6),
        (5000, 256, 3),
        (1000, 100, 5),
        (300, 64, 8),
        (300, 60, 12),
        (200, 40, 20),
    ):
        yield f"{layers} layers x {number} devices of {kinds} kinds", drawn(layers, number, kinds)


def drawn(layers: int, number: int, kinds: int) -> dict[str, Any]:
    """Return random layers, on kinds of device of which the last takes three times the first."""
    draw = np.random.default_rng(0)
    return {
        "times_s": draw.random((kinds, layers)) * np.linspace(1, 3, kinds)[:, None],
        "output_bytes": draw.random(layers) / 10,
        "memory_bytes": np.ones(layers),
        "devices": [Device(f"{index}", index % kinds) for index in range(number)],
        "bandwidth_bytes_s": 1.0,
    }


def in_turn() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield cases in which up to eight devices of a kind may take turns on a slice."""
    for layers, kinds in ((96, 3), (910, 2)):
        case, size = chain(layers, kinds, 8), f"{layers} layers x {kinds} kinds x 8 hosts"
        yield size, {**case, "most_turns": 8}
    for title, case in list(hard())[:2]:
        yield title, {**case, "most_turns": 8}
    for boards, rate in ((4, 1.25e7), (8, 1.25e7), (8, 1.25e6)):
        case = on_boards(96, 2, boards, {"bandwidth_bytes_s": rate})
        size = f"96 layers on {boards} boards with 2 kinds each, {rate:.2g} bytes/s"
        yield size, {**case, "most_turns": 8}


def turns_row(title: str, case: dict[str, Any], rounds: int) -> tuple[str, str, str]:
    """Return a case, how long it takes, and what turns gain."""
    plan, alone = planned(case), planned({**case, "most_turns": 1})
    latency = plan.objective == "latency"
    least, without = (one.latency_s if latency else one.bottleneck_s for one in (plan, alone))
    text = f"{plan.objective}: {100 * (least / without - 1):+.1f} %"
    proof = "proven" if plan.proven else "not proven"
    return title, milliseconds(measure(case, rounds, proven=plan.proven)), f"{text}, {proof}"


def crowded_row(title: str, case: dict[str, Any], rounds: int) -> tuple[str, str, str]:
    """Return a case, how long it takes, and how far its plan may be from the best."""
    plan = planned(case)
    assert plan.bound_s
    above = 100 * (plan.bottleneck_s / plan.bound_s - 1)
    text = "proven" if plan.proven else f"{above:.1f} % above the bound"
    return title, milliseconds(measure(case, rounds, proven=plan.proven)), text


def on_full_boards(layers: int, kinds: int) -> dict[str, Any]:
    """Return layers on boards with a device of each kind, whose memory they nearly fill."""
    memory = 1.05 * chain(layers, kinds, 8)["memory_bytes"].sum() / 8
    return on_boards(layers, kinds, 8, {"memory_bytes": memory, "bandwidth_bytes_s": 1.25e8})


def on_boards(layers: int, kinds: int, boards: int, what: dict[str, float]) -> dict[str, Any]:
    """Return layers on boards with a device of each kind."""
    case = chain(layers, kinds, boards)
    devices = [
        replace(device, board=device.name.rpartition("-")[2], **what) for device in case["devices"]
    ]
    return {**case, "devices": devices}


def measure(case: dict[str, Any], rounds: int, *, proven: bool = True) -> Interval:
    """Return how long planning takes; the first round, in which numpy warms up, does not count."""
    seconds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        plan = planned(case)
        seconds.append(time.perf_counter() - begin)
        assert plan.proven == proven
    return spread(seconds[1:])


def peers() -> Iterator[Peer]:
    """Yield the cases of which PipeEdge's figures are known."""
    yield Peer("48 layers x 1 kind x 4 hosts", 0.003, profiled(VIT_BASE, 1, 4))
    yield Peer("96 layers x 3 kinds x 8 hosts", 0.154, profiled(VIT_LARGE, 3, 8))
    yield Peer("910 layers x 2 kinds x 8 hosts", 13.7, chain(910, 2, 8))


def growths(rounds: int) -> Iterator[Growth]:
    """Yield how the time grows, one number growing at a time."""
    for title, axis, sizes, make in (
        ("2 kinds x 8 hosts", "layers", (48, 96, 192, 455, 910, 1820), lambda n: chain(n, 2, 8)),
        ("96 layers x 8 hosts", "kinds", (1, 2, 3, 4, 5), lambda n: chain(96, n, 8)),
        ("96 layers x 2 kinds", "hosts", (2, 4, 8, 16, 32, 64), lambda n: chain(96, 2, n)),
        ("96 layers, links that all differ", "boards", (2, 4, 6, 8, 10), apart),
    ):
        seconds = tuple(measure(make(size), rounds) for size in sizes)
        yield Growth(title, axis, sizes, seconds)


def milliseconds(seconds: Interval) -> str:
    return Interval(*(1e3 * part for part in (seconds.value, seconds.low, seconds.high))).text()


def plot(results: Sequence[Growth], file: Path) -> None:
    """Draw the growths side by side."""
    figure, axes = new_figure(13, 3.4, 1, len(results), sharey=True)
    for axis, growth in zip(axes, results, strict=True):
        middle = [1e3 * one.value for one in growth.seconds]
        least = [1e3 * one.low for one in growth.seconds]
        greatest = [1e3 * one.high for one in growth.seconds]
        axis.fill_between(growth.sizes, least, greatest, alpha=0.25, linewidth=0)
        axis.plot(growth.sizes, middle, marker="o")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(growth.sizes, [str(size) for size in growth.sizes])
        axis.minorticks_off()
        axis.set_title(growth.title, fontsize=10)
        axis.set_xlabel(growth.axis)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("planning time, ms")
    axes[0].set_ylim(0.5, 100)
    axes[0].set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    save_figure(figure, [file])


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=7, help="how often each case is planned")
    add("--plot", type=Path, help="also draw the growth, as .svg or .png (needs matplotlib)")
    args = parser.parse_args()
    console.print(machine())
    rows = []
    for peer in peers():
        seconds = measure(peer.case, args.rounds)
        ratio = f"{peer.seconds / seconds.value:.1f}"
        rows.append((peer.title, milliseconds(seconds), f"{1e3 * peer.seconds:.0f}", ratio))
    columns = ("", "RankSlice, ms", "PipeEdge's figure, ms", "PipeEdge / RankSlice")
    print_table(f"Planning, proven optimal, {args.rounds} rounds", columns, rows)
    rows = [(title, milliseconds(measure(case, min(args.rounds, 3)))) for title, case in hard()]
    print_table("Where states are searched", ("", "ms"), rows)
    rows = [crowded_row(title, case, min(args.rounds, 3)) for title, case in crowded()]
    print_table("Many devices", ("", "ms", "bottleneck"), rows)
    rows = [turns_row(title, case, args.rounds) for title, case in in_turn()]
    print_table("Up to eight devices take turns on a slice", ("", "ms", "against none"), rows)
    results = tuple(growths(args.rounds))
    for growth in results:
        sizes = zip(growth.sizes, growth.seconds, strict=True)
        lines = [(str(size), milliseconds(seconds)) for size, seconds in sizes]
        print_table(growth.title, (growth.axis, "ms"), lines)
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
