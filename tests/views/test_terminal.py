"""What reaches a terminal: text, tables and our own colours, and nothing that others send to it."""

from __future__ import annotations

import io

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rankslice.views.terminal import new_console

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\b\u202e\u2028"


def on_a_terminal(*things: str | Text | Table) -> str:
    screen = io.StringIO()
    console = new_console(file=screen)
    console._force_terminal = True
    for thing in things:
        console.print(thing, soft_wrap=True)
    return screen.getvalue()


def test_no_text_steers_the_terminal() -> None:
    table = Table("name", STEERING)
    table.add_row(escape(STEERING), "x")
    printed = on_a_terminal(escape(STEERING), Text(STEERING), table)
    assert printed.replace("\n", "").isprintable()
    assert "owned" in printed


def test_names_stay_as_they_are() -> None:
    names = ["fd00:a::1", "add:x:0", "[red]", "[/]", "a\\"]
    table = Table("name")
    for name in names:
        table.add_row(escape(name))
    for printed in (on_a_terminal(*map(escape, names)), on_a_terminal(table)):
        assert all(name in printed for name in names)


def test_colours_and_tables_of_our_own_stay() -> None:
    table = Table("a", "b")
    table.add_row("[red]1[/red]", "2\n3")
    screen, plain = io.StringIO(), io.StringIO()
    console = new_console(file=screen)
    for one in (console, Console(file=plain, highlight=False)):
        one.print(table)
        one.print("[red]error:[/red] two\nlines", soft_wrap=True)
    assert plain.getvalue() == screen.getvalue()
