"""What serving costs: ``rankslice serve`` beside ``rankslice run``, and the forms of requests.

Three ranks that sleep for 20 ms per frame. First 8 clients of gRPC and 8 of HTTP ask as fast as
they are answered, and their rate is divided by that of a run just before. Then they ask at
three times that rate, as far as they are answered in time: most requests are refused, and the
others' time is bounded by the queue.
Last, one client sends a tensor in each of the protocol's forms, in turn, to a rank that does not
sleep. Run it as ``python benchmarks/serving.py``; it takes two minutes.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from null_jobs import null_folder
from timing import confident, confident_ratios, console, machine, ratios, spread
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
    """Yield the addresses of a server, by protocol."""
    line = [str(PROGRAM), "serve", str(folder), "--http", "0", "--grpc", "0", *options]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.search(r"http://(\S+)/v2/models/model, grpc (\S+)", told)
        assert found is not None, told
        yield {"http": found[1], "grpc": found[2]}
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


def served_fps(addresses: dict[str, str], seconds: float) -> float:
    """Return the rate at which clients are answered who ask again at once."""
    counts = [0] * CLIENTS
    ends = time.monotonic() + seconds

    def ask(number: int) -> None:
        infer = asker(addresses, ("grpc", "http")[number % 2], 16, 3)
        while time.monotonic() < ends:
            infer()
            counts[number] += 1

    together(ask)
    return sum(counts) / seconds


def run_fps(folder: Path, frames: int) -> float:
    """Return the rate of a run."""
    line = [str(PROGRAM), "run", str(folder), "--frames", str(frames), "--json", "-"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["throughput_fps"])


def overload(addresses: dict[str, str], fps: float, seconds: float) -> None:
    """Ask at a rate above that of the pipeline; print what became of the requests."""
    answered: list[float] = []
    outcomes: Counter[str] = Counter()
    began = time.monotonic()

    def ask(number: int) -> None:
        infer = asker(addresses, ("grpc", "http")[number % 2], 16, 3)
        for turn in range(int(seconds * fps / CLIENTS)):
            due = began + (turn * CLIENTS + number) / fps
            time.sleep(max(0.0, due - time.monotonic()))
            asked = time.monotonic()
            try:
                infer()
                answered.append(time.monotonic() - asked)
                outcomes["answered"] += 1
            except InferenceServerException as error:
                is_full = "have no result yet" in str(error)
                outcomes["refused: queue full" if is_full else f"failed: {error}"] += 1

    together(ask)
    took = time.monotonic() - began
    p50, p99 = np.percentile(answered, [50, 99]) * 1e3
    console.print(f"requests at {sum(outcomes.values()) / took:.0f}/s: {dict(outcomes)}")
    console.print(f"  answered at {len(answered) / took:.1f}/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms")


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
        ratio = confident_ratios(taken, times["grpc"])
        console.print(f"  {form}: {confident(taken).text()} ms; to gRPC: {ratio.text()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="pairs of a run and a server")
    parser.add_argument("--seconds", type=float, default=6.0, help="per measurement")
    options = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory() as place:
        folder = folder_of(Path(place) / "slow", 16, [SLEEP_MS] * 3)
        frames = int(options.seconds * 1e3 / SLEEP_MS)
        served, ran = [], []
        for _ in range(options.rounds):
            ran.append(run_fps(folder, frames))
            with server(folder, "--queue", str(CLIENTS)) as addresses:
                served.append(served_fps(addresses, options.seconds))
        shown = f"served {spread(served).text()} fps, run {spread(ran).text()} fps"
        console.print(f"{CLIENTS} clients: {shown}, ratio {ratios(served, ran).text(3)}")
        with server(folder, "--queue", "4") as addresses:
            overload(addresses, 3 * 1e3 / SLEEP_MS, options.seconds)
        large = folder_of(Path(place) / "large", VALUES, [0.0])
        with server(large) as addresses:
            console.print(f"a request of {VALUES} FP32 there and back:")
            forms(addresses, 40)


if __name__ == "__main__":
    main()
