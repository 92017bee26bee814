"""The options of ``rankslice serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import (
    FrameTimeout,
    Mpirun,
    SshConfig,
    Standby,
    StartTimeout,
    Survive,
    Window,
)
from rankslice.commands.output import print_line, screen, talk
from rankslice.framework.wording import on_one_line

if TYPE_CHECKING:
    from rankslice.commands.pipeline.pipeline import Pipeline
    from rankslice.commands.serve.serve import Serving

_PORTS = {"--http": "8000", "--grpc": "8001"}


@command("out", "out --http 0.0.0.0:8000 --tls-cert cert.pem --tls-key key.pem --token-file token")
def serve(
    folders: Annotated[
        list[Path], Argument(metavar="OUT...", readable=False, help="Build folders.")
    ],
    http: Annotated[
        str | None,
        Option(
            metavar="[HOST:]PORT",
            help="Serve over HTTP (default: 127.0.0.1:8000, if --grpc is not given either).",
        ),
    ] = None,
    grpc: Annotated[
        str | None,
        Option(
            metavar="[HOST:]PORT",
            help="Serve over gRPC (default: 127.0.0.1:8001, if --http is not given either).",
        ),
    ] = None,
    queue: Annotated[
        int | None,
        Option(min=1, help="Maximum number of waiting requests per model (default: --window)."),
    ] = None,
    window: Window = None,
    exact: Annotated[
        bool, Option("--exact", help="Switch off the engines' graph optimisation.")
    ] = False,
    frame_timeout: FrameTimeout = None,
    start_timeout: StartTimeout = None,
    tls_cert: Annotated[
        Path | None, Option(readable=False, help="Certificate chain for TLS (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, Option(readable=False, help="Private key of --tls-cert (PEM).")
    ] = None,
    token_file: Annotated[
        Path | None,
        Option(readable=False, help="File with the bearer token that requests must have."),
    ] = None,
    survive: Survive = False,
    standby: Standby = False,
    mpirun: Mpirun = None,
    ssh_config: SshConfig = None,
) -> None:
    from rankslice.commands.serve.serve import check_installed

    check_installed()
    import asyncio

    from rankslice.commands.pipeline.pipeline import open_pipeline
    from rankslice.commands.serve.access import read_access
    from rankslice.commands.serve.address import parse_address
    from rankslice.commands.serve.serve import ServeOptions
    from rankslice.commands.serve.serve import serve as serve_pipelines
    from rankslice.commands.serve.show import address_warnings, curl_example, serving_lines

    texts = {"--http": http, "--grpc": grpc}
    if not any(texts.values()):
        texts = dict(_PORTS)
    addresses = {
        option: None if text is None else parse_address(option, text)
        for option, text in texts.items()
    }
    access = read_access(token_file, tls_cert, tls_key)
    options = ServeOptions(addresses["--http"], addresses["--grpc"], access)
    for warning in address_warnings(options):
        print_line(talk, warning, "warning")
    pipelines: list[Pipeline] = []

    def tell(serving: Serving) -> None:
        for line in (*serving_lines(serving, access), *curl_example(serving, access)):
            print_line(screen, on_one_line(line))

    try:
        for folder in folders:
            pipelines.append(
                open_pipeline(
                    folder,
                    window=window,
                    queue=queue,
                    exact=exact,
                    start_timeout_s=start_timeout,
                    frame_timeout_s=frame_timeout,
                    mpirun=mpirun,
                    ssh_config=ssh_config,
                    survive=survive,
                    standby=standby,
                    on_restart=lambda restart: print_line(
                        talk, on_one_line(str(restart)), "warning"
                    ),
                    wait=False,
                )
            )
        code = asyncio.run(serve_pipelines(pipelines, options, tell))
    finally:
        for pipeline in pipelines:
            pipeline.abort()
    raise typer.Exit(code)
