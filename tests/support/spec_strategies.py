"""Values as they might stand in spec files, right and wrong."""

from __future__ import annotations

from hypothesis import strategies as st

TEXT = st.text(max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
FIELDS = st.sampled_from(
    ["boards", "links", "default", "pairs", "between", "bandwidth_mbps", "latency_ms", "edge01"]
) | st.sampled_from(
    ["host", "user", "arch", "cores", "memory_mb", "engine", "gpu", "npu", "delegate", "options"]
)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["edge01", "0-3", "litert", "1,1", "-1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | TEXT, inner, max_size=4),
    max_leaves=20,
)
BOARDS = st.dictionaries(TEXT | FIELDS, VALUES | st.dictionaries(FIELDS, VALUES), max_size=3)
LINKS = st.dictionaries(FIELDS, VALUES | st.lists(st.dictionaries(FIELDS, VALUES), max_size=2))
PLATFORMS = st.fixed_dictionaries({"boards": BOARDS}, optional={"links": LINKS})
MARKUP = st.text(alphabet="{}[]:,-&*!|>\"'#%@ \n\t0189.abxe_~<=", max_size=40)
BYTES = st.binary(max_size=40) | (MARKUP | TEXT).map(lambda text: text.encode("utf-8", "replace"))
RESOURCES = st.from_regex(r"(cpu|arm|x86|gpu|npu)[0-9,@.-]{0,6}", fullmatch=True)
KEYS = st.builds("{}_{}".format, st.sampled_from(["edge01", "a_b", "pc"]), RESOURCES) | TEXT
WEIGHTS = st.just("") | st.from_regex(r"\*[0-9]{0,3}\*?|\*[0-9]{6,7}|\*a_", fullmatch=True)
KEYS_OF_ENTRIES = KEYS | st.lists(
    st.builds("{}{}".format, KEYS, WEIGHTS), min_size=1, max_size=3
).map("|".join)
"""Of ranks that take turns, too."""

FULL_PLATFORM = """
boards:
  edge01:
    host: 1.10
    user: no
    arch: aarch64
    cores: 0-5, 7
    memory_mb: 8192
    engine: litert
    gpu: {engine: litert, delegate: libgpu.so, options: {precision: fp16, cache: true, n: 3}}
    npu: [{engine: litert}, {engine: onnxruntime, provider: CUDA, allow_fallback: true}]
    idle_w: 2.5
    busy_w: 12
  edge_02.lan: {cores: [1, 0, 4-5]}
  edge-03: {cores: 3, gpu: , user: ~}
  edge04:
links:
  default: {bandwidth_mbps: 1000, latency_ms: 0.2}
  pairs:
    - {between: [edge01, edge-03], bandwidth_mbps: 100, latency_ms: 0}
"""
"""A platform file with all that one can have."""
