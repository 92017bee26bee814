"""What serving costs: ``rankslice serve`` beside ``rankslice run``, and the forms of requests.

Three ranks that sleep for 20 ms per frame. First 8 clients of gRPC and 8 of HTTP ask as fast as
they are answered, and their rate is divided by that of a run just before. Then requests come at
three times that rate, whether earlier requests are answered or not: most are refused, and the
others' time is bounded by the queue. ``--minutes 10`` does this alone, for ten minutes.
Last, one client sends a tensor in each of the protocol's forms, in turn, to a rank that does not
sleep. Run it as ``python benchmarks/serving.py``; it takes two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from null_jobs import null_folder
from timing import console, in_turns, machine, ratios, spread
from tritonclient.utils import InferenceServerException

PROGRAM = Path(sys.executable).with_name("rankslice")
SLEEP_MS = 20.0
CLIENTS = 16
VALUES = 3 * 224 * 224


def identities(values: int, count: int) -> str:
    """Return a model of layers that change nothing."""
    lines = [f"x{number + 1} = Identity(x{number})" for number in range(count)]
    return (
        (
            '<ir_version: 8, opset_import: ["" : 17]>\n'
            f"null (float[1,{values}] x0) => (float[1,{values}] x{count}) {{ {'; '.join(lines)} }}"
        )
        .replace("; ", "\n")
        .replace("{ ", "{\n")
        .replace(" }", "\n}")
    )


def folder_of(place: Path, values: int, sleeps_ms: list[float]) -> Path:
    """Build a pipeline of a rank per sleep."""
    place.mkdir()
    layers = [f"layer{number}" for number in range(len(sleeps_ms))]
    ranks = {layer: number for number, layer in enumerate(layers)}
    return null_folder(place, identities(values, len(layers)), layers, ranks, sleeps_ms)


@contextmanager
def server(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """Yield the addresses of a server, by protocol, and the number of its process."""
    line = [str(PROGRAM), "serve", str(folder), "--http", "0", "--grpc", "0", *options]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        match = re.search(r"http://(\S+)/v2/models/model, grpc (\S+)", first_line)
        assert match is not None, first_line
        yield {"http": match[1], "grpc": match[2], "pid": str(process.pid)}
        process.send_signal(signal.SIGTERM)


def asker(addresses: dict[str, str], form: str, values: int, last: int) -> Callable[[], Any]:
    """Return what asks once, with a client of its own.

    Args:
        addresses: of the server.
        form: ``grpc``, ``http`` (binary data) or ``json``.
        values: of the input.
        last: number of the model's last layer.
    """
    kind: Any = tritonclient.grpc if form == "grpc" else tritonclient.http
    client = kind.InferenceServerClient(addresses["grpc" if form == "grpc" else "http"])
    tensor = kind.InferInput("x0", [1, values], "FP32")
    numbers = np.random.default_rng(0).random((1, values), np.float32)
    if form == "grpc":
        tensor.set_data_from_numpy(numbers)
        outputs = None
    else:
        tensor.set_data_from_numpy(numbers, binary_data=form == "http")
        outputs = [kind.InferRequestedOutput(f"x{last}", binary_data=form == "http")]
    return lambda: client.infer("model", [tensor], outputs=outputs)


def together(work: Callable[[int], None]) -> None:
    """Do work in a thread per client."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def served_fps(folder: Path, seconds: float) -> float:
    """Return the rate at which clients are answered who ask again at once."""
    counts = [0] * CLIENTS
    with server(folder, "--queue", str(CLIENTS)) as addresses:
        ends = time.monotonic() + seconds

        def ask(number: int) -> None:
            infer = asker(addresses, ("grpc", "http")[number % 2], 16, 3)
            while time.monotonic() < ends:
                infer()
                counts[number] += 1

        together(ask)
    return sum(counts) / seconds


def run_latency_ms(folder: Path) -> float:
    """Return the time of a frame from end to end, if frames come slowly."""
    line = [str(PROGRAM), "run", str(folder), "--frames", "20", "--fps", "5", "--json", "-"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["latency_ms"]["mean"])


def run_fps(folder: Path, frames: int) -> float:
    """Return the rate of a run."""
    line = [str(PROGRAM), "run", str(folder), "--frames", str(frames), "--json", "-"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["throughput_fps"])


async def overload(
    process: psutil.Process, addresses: dict[str, str], fps: float, seconds: float
) -> Load:
    """Ask at a rate above that of the pipeline, whether earlier requests are answered or not."""
    load = Load()
    clients = {
        "grpc": tritonclient.grpc.aio.InferenceServerClient(addresses["grpc"]),
        "http": tritonclient.http.aio.InferenceServerClient(addresses["http"], conn_limit=200),
    }
    kinds: dict[str, Any] = {"grpc": tritonclient.grpc, "http": tritonclient.http}

    async def ask(form: str) -> None:
        tensor = kinds[form].InferInput("x0", [1, 16], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 16), np.float32))
        asked = time.monotonic()
        try:
            await clients[form].infer("model", [tensor])
            load.answered_ms.append(1e3 * (time.monotonic() - asked))
            load.outcomes["answered"] += 1
        except InferenceServerException as error:
            is_full = "have no result yet" in str(error)
            load.outcomes["refused" if is_full else f"failed: {error}"] += 1

    began = time.monotonic()
    asked = []
    for number in range(int(seconds * fps)):
        await asyncio.sleep(max(0.0, began + number / fps - time.monotonic()))
        asked.append(asyncio.create_task(ask(("grpc", "http")[number % 2])))
        if number % int(10 * fps) == 0:
            load.memory_mib.append(process.memory_info().rss / 2**20)
    await asyncio.gather(*asked)
    load.seconds = time.monotonic() - began
    for client in clients.values():
        await client.close()
    load.memory_mib.append(process.memory_info().rss / 2**20)
    return load


@dataclass
class Load:
    """What became of the requests, as their clients saw it."""

    outcomes: Counter[str] = field(default_factory=Counter)
    answered_ms: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    """Of the server, every ten seconds."""
    seconds: float = 0.0


def counted(addresses: dict[str, str]) -> Counter[str]:
    """Return how many requests the server has answered and refused."""
    with urlopen(f"http://{addresses['http']}/metrics") as answer:
        text = answer.read().decode()
    pairs = re.findall(
        r'^rankslice_requests_total\{.*outcome="(\w+)".*\} (\S+)$', text, re.MULTILINE
    )
    counts: Counter[str] = Counter()
    for outcome, count in pairs:
        counts[outcome] += int(float(count))
    return counts


def limit(addresses: dict[str, str]) -> int:
    """Return how many requests the server keeps at most."""
    with urlopen(f"http://{addresses['http']}/metrics") as answer:
        match = re.search(
            r"^rankslice_frames_limit\{.*\} (\S+)$", answer.read().decode(), re.MULTILINE
        )
    assert match is not None
    return int(float(match[1]))


def show_overload(folder: Path, seconds: float, latency_ms: float) -> None:
    """Print what becomes of requests at three times the pipeline's rate.

    Args:
        folder: of the pipeline.
        seconds: how long requests come.
        latency_ms: of a single frame.
    """
    queue = 4
    with server(folder, "--queue", str(queue)) as addresses:
        process = psutil.Process(int(addresses["pid"]))
        load = asyncio.run(overload(process, addresses, 3 * 1e3 / SLEEP_MS, seconds))
        most, counts = limit(addresses), counted(addresses)
    p50, p99 = np.percentile(load.answered_ms, [50, 99])
    rate = sum(load.outcomes.values()) / load.seconds
    console.print(f"requests at {rate:.1f}/s for {load.seconds:.0f} s: {dict(load.outcomes)}")
    console.print(f"  counted by the server: {dict(counts)}")
    console.print(
        f"  answered at {len(load.answered_ms) / load.seconds:.1f}/s, p50 {p50:.0f} ms,"
        f" p99 {p99:.0f} ms; {most} requests are kept: at most"
        f" {most * SLEEP_MS + latency_ms:.0f} ms"
    )
    tenth = max(1, len(load.memory_mib) // 10)
    shown = ", ".join(f"{mib:.1f}" for mib in load.memory_mib[::tenth])
    console.print(f"  memory of the server in MiB: {shown}")


def forms(addresses: dict[str, str], rounds: int) -> None:
    """Time the forms of a request of a large tensor, in turn."""
    askers = {form: asker(addresses, form, VALUES, 1) for form in ("grpc", "http", "json")}
    times: dict[str, list[float]] = {form: [] for form in askers}
    for number in range(rounds + 3):
        for form, infer in askers.items():
            began = time.perf_counter()
            infer()
            if number >= 3:
                times[form].append(1e3 * (time.perf_counter() - began))
    for form, taken in times.items():
        ratio = ratios(taken, times["grpc"])
        console.print(f"  {form}: {spread(taken).text()} ms; to gRPC: {ratio.text()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="pairs of a run and a server")
    parser.add_argument("--seconds", type=float, default=6.0, help="per measurement")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="only the requests at three times the rate"
    )
    options = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory() as place:
        folder = folder_of(Path(place) / "slow", 16, [SLEEP_MS] * 3)
        frames = int(options.seconds * 1e3 / SLEEP_MS)
        if not options.minutes:
            ways = {
                "run": partial(run_fps, folder, frames),
                "served": partial(served_fps, folder, options.seconds),
            }
            results = in_turns(options.rounds, ways)
            served, ran = results["served"], results["run"]
            shown = f"served {spread(served).text()} fps, run {spread(ran).text()} fps"
            console.print(f"{CLIENTS} clients: {shown}, ratio {ratios(served, ran).text(3)}")
        show_overload(folder, 60 * options.minutes or options.seconds, run_latency_ms(folder))
        if options.minutes:
            return
        large = folder_of(Path(place) / "large", VALUES, [0.0])
        with server(large) as addresses:
            console.print(f"a request of {VALUES} FP32 there and back:")
            forms(addresses, 40)


if __name__ == "__main__":
    main()
