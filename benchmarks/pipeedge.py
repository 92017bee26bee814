"""PipeEdge's scheduler inputs: three YAML files to the planner's arguments.

The files, and the rule by which a schedule is judged, are those of its ``sched-pipeline``: Hu et
al., "PipeEdge: Pipeline Parallelism for Large-Scale Model Inference on Heterogeneous Edge
Devices", DSD 2022. A slice costs the longer one of computing and sending. A message takes the
smaller bandwidth of its two devices, and 1 Mbps is 1024 * 1024 bits per second. A slice needs less
than the memory there is: its weights, two buffers for what it receives (but the first slice), two
for what it sends, its input and its output.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rankslice.exploration.planner.chain import Device, LayerChain

_MEGA = 1024 * 1024
_BUFFERS = 2
"""For messages on their way, and for those that wait, at either end."""
_PROFILE = {"dtype": "torch.float32", "batch_size": 8}
_VALUE_BYTES = 4 * 8
"""Of a value in a micro-batch, which times and bytes are of."""


def read_pipeedge(models: Path, device_types: Path, devices: Path, *, model: str) -> LayerChain:
    """Return what PipeEdge's files say of one model, for ``optimal_pipeline``.

    Types without a profile of it (float32, batches of 8) are left out.

    Args:
        models: ``models.yml``: layers, memory and outputs of each model.
        device_types: ``device_types.yml``: memory, bandwidth and profiles of each type.
        devices: ``devices.yml``: hosts by type.
        model: name of a model in these files.
    """
    layers, types = _read(models)[model], _read(device_types)
    memory = np.array(layers["mem_MB"], float) * _MEGA
    outputs = np.resize(layers["parameters_out"], memory.size).astype(float) * _VALUE_BYTES
    inputs = np.append(layers["parameters_in"] * _VALUE_BYTES, outputs[:-1])
    receive = inputs * (1 + _BUFFERS)
    receive[:1] = inputs[:1]
    times_s: list[Any] = []
    hosts: list[Device] = []
    for name, names in _read(devices).items():
        profiles = (types[name]["model_profiles"] or {}).get(model, [])
        profile = next((p for p in profiles if _PROFILE.items() <= p.items()), None)
        if profile is None:
            continue
        # A slice has to need less than all of it.
        below = math.nextafter(types[name]["mem_MB"] * _MEGA, 0.0)
        bandwidth = types[name]["bw_Mbps"] * _MEGA / 8
        hosts += [Device(host, len(times_s), host, below, bandwidth) for host in names]
        times_s.append(profile["time_s"])
    return LayerChain(
        times_s=np.array(times_s, float),
        output_bytes=outputs,
        memory_bytes=memory,
        receive_memory_bytes=receive,
        send_memory_bytes=outputs * (1 + _BUFFERS),
        devices=hosts,
    )


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return record
