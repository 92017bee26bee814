"""Measure a network on this machine, find its fastest mapping, and run that."""

from __future__ import annotations

import tempfile

import rankslice
from rankslice.networks.digits import digits_model


def main() -> None:
    model = digits_model()
    with tempfile.TemporaryDirectory() as folder:
        times = f"{folder}/profile.json"
        rankslice.profile(model, out=times, per_core=True, seconds=10)
        found = rankslice.explore(model, out=f"{folder}/explored", profile=times, turns=2)
        print(*found.answer, sep="\n")
        mapping = f"{folder}/explored/{found.candidates[0].file}"
        simulated = rankslice.simulate(model, mapping, profile=times, frames=500)
        built = rankslice.build(model, mapping, out=f"{folder}/out")
        finished = rankslice.run(built.folder, frames=500, verify=True)
        print(f"simulated: {simulated.simulation.throughput_fps:.0f} frames/s")
        print(f"measured: {finished.summary.throughput_fps:.0f} frames/s")


if __name__ == "__main__":
    main()
