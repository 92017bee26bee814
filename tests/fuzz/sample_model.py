"""A small model with something of all that the reader of ONNX files follows.

It lies here because the fuzzers, programs of their own, see nothing else of the tests.
"""

from __future__ import annotations

import onnx

SAMPLE_MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17, "local" : 1], producer_name: "test">
    g (bool condition, float[2, 3] x) => (float[2, 3] y)
    <float[3] w = {1.0, 2.0, 3.0}, int64[2] shape = {3, 2}>
    { [a] a = Add(x, w)
      [b] b = Reshape(a, shape)
      [c] c = local.Twice(b)
      [d] d = Transpose<perm = [1, 0]>(c)
      [e] y = If (condition) <
        then_branch = t () => (float[2, 3] p) { p = Neg(d) },
        else_branch = e () => (float[2, 3] q) { q = Add(d, w) }> }
    <domain: "local", opset_import: ["" : 17]>
    Twice (v) => (u) { u = Add(v, v) }
    """
)
