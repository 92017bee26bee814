"""Deployments, printed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankslice.backend.boards.board_packages import Deployed
from rankslice.commands.output import print_line, shortened
from rankslice.session.deployment import Deployment


def print_deployment(deployment: Deployment, console: Console) -> None:
    """Print which package would go where."""
    for shell, package in deployment.work:
        way = "this machine" if shell.is_here else "over ssh"
        print_line(
            console,
            f"{package.label}: {len(package.files)} files, {_megabytes(package.nbytes)} MB"
            f" to {shell.login.host} ({way}), ~/.rankslice/packages/{package.short_name}",
        )


def print_deployed(boards: Sequence[Deployed], console: Console) -> None:
    """Print what was done on each board."""
    purposes = ("without",) if any(board.without for board in boards) else ()
    columns = ("board", *purposes, "host", "package", "size", "sent", "seconds")
    table = Table(*columns, caption="sizes in MB")
    for column in table.columns[-3:]:
        column.justify = "right"
    for board in boards:
        table.add_row(
            escape(shortened(board.board)),
            *((escape(shortened(board.without)) or "-",) if purposes else ()),
            escape(shortened(board.host)),
            board.state,
            _megabytes(board.package_bytes),
            _megabytes(board.bytes_sent),
            f"{board.seconds:.1f}",
        )
    console.print(table)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
