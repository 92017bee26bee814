"""The options of ``rankslice serve``."""

from __future__ import annotations

from functools import partial
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
from rankslice.serve.log import LogForm

if TYPE_CHECKING:
    from rankslice.serve.server import Serving

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
    max_delay: Annotated[
        float | None,
        Option(
            min=0,
            max=60_000,
            help="For models built with a batch size: fill each batch from several requests,"
            " which wait at most this many milliseconds.",
        ),
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
    log_form: Annotated[
        LogForm,
        Option(
            "--log",
            help="Format of messages; json: one object per line, including a line per request.",
        ),
    ] = LogForm.human,
    survive: Survive = False,
    standby: Standby = False,
    mpirun: Mpirun = None,
    ssh_config: SshConfig = None,
) -> None:
    import asyncio
    import logging

    from rankslice.backend.runtime.options import RunOptions
    from rankslice.commands.run.open import fail_over_of
    from rankslice.commands.serve.show import address_warnings, curl_example, serving_lines
    from rankslice.serve.access import parse_address, read_access
    from rankslice.serve.log import log, mistakes_logged, start_log
    from rankslice.serve.server import ServedJob, ServeOptions, check_installed, serve as serve_jobs
    from rankslice.session.callbacks import Callbacks
    from rankslice.session.pipeline import open_pipeline, prepare_fed_job

    start_log(log_form, partial(print_line, talk))

    def tell(serving: Serving) -> None:
        for line in (*serving_lines(serving, access), *curl_example(serving, access)):
            print_line(screen, on_one_line(line))
        for model in serving.models:
            log(logging.INFO, "ready", f"{model.name} is ready", model=model.name)

    with mistakes_logged(log_form):
        check_installed()
        texts = {"--http": http, "--grpc": grpc}
        if not any(texts.values()):
            texts = dict(_PORTS)
        addresses = {
            option: None if text is None else parse_address(option, text)
            for option, text in texts.items()
        }
        access = read_access(token_file, tls_cert, tls_key)
        delay_s = None if max_delay is None else max_delay / 1e3
        options = ServeOptions(
            addresses["--http"], addresses["--grpc"], access, max_delay_s=delay_s
        )
        for warning in address_warnings(options):
            log(logging.WARNING, "exposed", warning)
        job_options = RunOptions(
            window=window,
            queue=queue,
            exact=exact,
            start_timeout_s=start_timeout,
            frame_timeout_s=frame_timeout,
        )
        start = partial(
            open_pipeline,
            options=job_options,
            mpirun=mpirun,
            ssh_config=ssh_config,
            fail_over=fail_over_of(survive=survive, standby=standby),
            callbacks=Callbacks(
                on_restart=lambda restart: log(
                    logging.WARNING, "restart", str(restart), without=sorted(restart.without)
                ),
                on_warning=lambda text: log(logging.WARNING, "standby", text),
            ),
            wait=False,
        )
        check = partial(
            prepare_fed_job,
            options=job_options,
            mpirun=mpirun,
            ssh_config=ssh_config,
            check_memory=False,
        )
        jobs = [ServedJob(folder, start, check) for folder in folders]
        try:
            for job in jobs:
                job.open()
            code = asyncio.run(serve_jobs(jobs, options, tell))
        finally:
            for job in jobs:
                job.abort()
    raise typer.Exit(code)
