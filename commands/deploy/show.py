"""Deployments, printed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rankslice.backend.boards.board_packages import Deployed
from rankslice.session.deployment import Deployment
from rankslice.views.content import Table
from rankslice.views.terminal import show


def print_deployment(deployment: Deployment, console: Console) -> None:
    for shell, package in deployment.work:
        way = "this machine" if shell.is_here else "over ssh"
        show(
            console,
            f"{package.label}: {len(package.files)} files, {_megabytes(package.nbytes)} MB"
            f" to {shell.login.host} ({way}), ~/.rankslice/packages/{package.short_name}",
        )


def print_deployed(boards: Sequence[Deployed], console: Console) -> None:
    purposes = ("without",) if any(board.without for board in boards) else ()
    head = ("board", *purposes, "host", "package", "size", "sent", "seconds")
    rows = tuple(
        (
            board.board,
            *((board.without or "-",) if purposes else ()),
            *(board.host, board.state),
            *(_megabytes(board.package_bytes), _megabytes(board.bytes_sent)),
            f"{board.seconds:.1f}",
        )
        for board in boards
    )
    show(console, Table("sizes in MB", head, rows))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
