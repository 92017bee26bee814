"""What ``rankslice serve`` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from urllib.parse import quote

from rankslice.serve.access import Access
from rankslice.serve.models import Model
from rankslice.serve.protocol.tensors import datatype_of, shape_of
from rankslice.serve.server import ServeOptions, Serving


def address_warnings(options: ServeOptions) -> Iterator[str]:
    """Yield what is risky about addresses that other machines can reach."""
    for option, address in (("--http", options.http), ("--grpc", options.grpc)):
        if address is None or address.is_local:
            continue
        if options.access.token is None:
            yield f"{option} {address}: whoever can reach it may use it; give --token-file"
        if options.access.cert is None:
            yield f"{option} {address}: requests travel unencrypted; give --tls-cert, --tls-key"


def serving_lines(serving: Serving, access: Access) -> Iterator[str]:
    """Yield a line for each model: its tensors, and where it is served."""
    for model in serving.models:
        places = []
        if serving.http is not None:
            places.append(_url(serving, model, access))
        if serving.grpc is not None:
            places.append(f"grpc {serving.grpc}")
        tensors = [
            ", ".join(f"{spec.name} {datatype_of(spec)}{shape_of(spec)}" for spec in specs)
            for specs in (model.inputs, model.outputs)
        ]
        yield f"{model.name}: {' -> '.join(tensors)}; {', '.join(places)}"


def curl_example(serving: Serving, access: Access) -> Iterator[str]:
    """Yield a command that asks the first model something, if that is possible in one line."""
    model = next(iter(serving.models))
    if serving.http is None or len(model.inputs) != 1 or model.inputs[0].is_open:
        return
    options = "-H 'Inference-Header-Content-Length: 0'"
    if access.token is not None:
        options += ' -H "Authorization: Bearer $TOKEN"'
    if access.cert is not None:
        options += f" --cacert {shlex.quote(str(access.cert))}"
    url = shlex.quote(f"{_url(serving, model, access)}/infer")
    yield (
        f"try: head -c {model.inputs[0].nbytes} /dev/zero | curl --data-binary @- {options} {url}"
    )


def _url(serving: Serving, model: Model, access: Access) -> str:
    kind = "http" if access.cert is None else "https"
    return f"{kind}://{serving.http}/v2/models/{quote(model.name, safe='')}"
