"""The options of ``rankslice serve``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from rankslice.backend.runtime.options import IMAGE_OPTIONS, RunOptions
from rankslice.commands.command import command
from rankslice.framework.option_records import about, offered, option
from rankslice.framework.wording import on_one_line
from rankslice.session.shared_options import Launching, Surviving
from rankslice.views.terminal import print_line, screen

if TYPE_CHECKING:
    from rankslice.serve.models import Model
    from rankslice.serve.server import ServeOptions, Serving
    from rankslice.session.callbacks import Callbacks

OfTheJob = Annotated[
    RunOptions,
    offered(
        *("window", "queue", "exact", "start_timeout_s", "frame_timeout_s", *IMAGE_OPTIONS),
        queue={"help": "Maximum number of waiting requests per model (default: --window)."},
    ),
]
_PORTS = {"--http": "8000", "--grpc": "8001"}


@dataclass(frozen=True, slots=True)
class Serves:
    """Where requests come in, and what is said of them."""

    http: str | None = option(
        None,
        "Serve over HTTP (default: 127.0.0.1:8000, if --grpc is not given either).",
        str,
        metavar="[HOST:]PORT",
    )
    grpc: str | None = option(
        None,
        "Serve over gRPC (default: 127.0.0.1:8001, if --http is not given either).",
        str,
        metavar="[HOST:]PORT",
    )
    max_delay: float | None = option(
        None,
        "For models built with a batch size: fill each batch from several requests, which wait at"
        " most this many milliseconds.",
        float,
        least=0,
        most=60_000,
    )
    watch: float | None = option(
        None,
        "Serve models and versions that are added to the folders, replaced or removed; look every"
        " so many seconds (default: 1).",
        float,
        least=0.05,
        most=3600,
        metavar="[SECONDS]",
        bare=("1", r"\d+(\.\d*)?|\.\d+"),
    )
    tls_cert: Path | None = option(None, "Certificate chain for TLS (PEM).", Path)
    tls_key: Path | None = option(None, "Private key of --tls-cert (PEM).", Path)
    token_file: Path | None = option(
        None, "File with the bearer token that requests must have.", Path
    )
    log: str = option(
        "human",
        "Format of messages; json: one object per line, including a line per request.",
        ("human", "json"),
    )


@command(
    "serve",
    "out",
    "models/ --watch",
    "out --http 0.0.0.0:8000 --tls-cert cert.pem --tls-key key.pem --token-file token",
)
def serve(
    folders: Annotated[
        tuple[Path, ...],
        about(
            "Build folders, or folders of versions: NAME/1/, NAME/2/.",
            many=lambda texts: tuple(map(Path, texts)),
            is_argument=True,
            metavar="OUT",
        ),
    ],
    serves: Serves,
    options: OfTheJob,
    surviving: Annotated[Surviving, offered(survive={"excludes": ()})],
    launching: Launching,
) -> None:
    import asyncio

    from rankslice.serve.log import mistakes_logged, start_log
    from rankslice.serve.repository import ServedJob
    from rankslice.serve.server import Served, check_installed, serve as serve_jobs
    from rankslice.session.pipeline import open_pipeline, prepare_fed_job

    as_json = serves.log == "json"
    start_log(as_json=as_json)
    start = partial(
        open_pipeline,
        options=options,
        launching=launching,
        surviving=surviving,
        callbacks=_callbacks(),
        wait=False,
    )
    check = partial(prepare_fed_job, options=options, launching=launching, check_memory=False)
    served = Served(folders, lambda version: ServedJob(version, start, check))
    with mistakes_logged(as_json=as_json):
        check_installed()
        serve_options = _serve_options(serves)
        try:
            served.open()
            code = asyncio.run(serve_jobs(served, serve_options, _tell))
        finally:
            served.abort()
    sys.exit(code)


def _callbacks() -> Callbacks:
    import logging

    from rankslice.serve.log import log
    from rankslice.session.callbacks import Callbacks

    return Callbacks(
        on_restart=lambda restart: log(
            logging.WARNING, "restart", str(restart), without=sorted(restart.without)
        ),
        on_warning=lambda text: log(logging.WARNING, "standby", text),
    )


def _serve_options(serves: Serves) -> ServeOptions:
    import logging

    from rankslice.serve.access import parse_address, read_access
    from rankslice.serve.log import log
    from rankslice.serve.server import ServeOptions

    texts = {"--http": serves.http, "--grpc": serves.grpc}
    if not any(texts.values()):
        texts = dict(_PORTS)
    http, grpc = (
        None if text is None else parse_address(option, text) for option, text in texts.items()
    )
    access = read_access(serves.token_file, serves.tls_cert, serves.tls_key)
    delay_s = None if serves.max_delay is None else serves.max_delay / 1e3
    options = ServeOptions(http, grpc, access, max_delay_s=delay_s, watch_s=serves.watch)
    for warning in _address_warnings(options):
        log(logging.WARNING, "exposed", warning)
    return options


def _address_warnings(options: ServeOptions) -> Iterator[str]:
    """Yield what is risky about addresses that other machines can reach."""
    for flag, address in (("--http", options.http), ("--grpc", options.grpc)):
        if address is None or address.is_local:
            continue
        if options.access.token is None:
            yield f"{flag} {address}: whoever can reach it may use it; give --token-file"
        if options.access.cert is None:
            yield f"{flag} {address}: requests travel unencrypted; give --tls-cert, --tls-key"


def _tell(serving: Serving) -> None:
    import logging

    for line in (*_serving_lines(serving), *_curl_example(serving)):
        print_line(screen, on_one_line(line))
    for model in serving.models:
        model.log(logging.INFO, "ready", " is ready")


def _serving_lines(serving: Serving) -> Iterator[str]:
    """Yield a line for each model: its tensors, and where it is served."""
    from rankslice.serve.protocol.tensors import datatype_of, shape_of

    for model in serving.models:
        places = []
        if serving.http is not None:
            places.append(_url(serving, model))
        if serving.grpc is not None:
            places.append(f"grpc {serving.grpc}")
        tensors = [
            ", ".join(f"{spec.name} {datatype_of(spec)}{shape_of(spec)}" for spec in specs)
            for specs in (model.inputs, model.outputs)
        ]
        yield f"{model.title}: {' -> '.join(tensors)}; {', '.join(places)}"


def _curl_example(serving: Serving) -> Iterator[str]:
    """Yield a command that asks the first model something, if that is possible in one line."""
    model = next(iter(serving.models))
    if serving.http is None or len(model.inputs) != 1 or model.inputs[0].is_open:
        return
    options = "-H 'Inference-Header-Content-Length: 0'"
    if serving.access.token is not None:
        options += ' -H "Authorization: Bearer $TOKEN"'
    if serving.access.cert is not None:
        options += f" --cacert {shlex.quote(str(serving.access.cert))}"
    url = shlex.quote(f"{_url(serving, model)}/infer")
    yield (
        f"try: head -c {model.inputs[0].nbytes} /dev/zero | curl --data-binary @- {options} {url}"
    )


def _url(serving: Serving, model: Model) -> str:
    kind = "http" if serving.access.cert is None else "https"
    path = f"/v2/models/{quote(model.name, safe='')}"
    has_others = model.place is not None and model.place.model
    return f"{kind}://{serving.http}{path}{f'/versions/{model.version}' if has_others else ''}"
