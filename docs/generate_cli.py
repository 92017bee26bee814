"""Write what ``docs/command-line.md`` says of each command anew: ``python docs/generate_cli.py``.

The text between the page's markers comes from the declarations in ``commands``; all else on the
page is written by hand. A test fails when the page does not say what they say.
"""

from __future__ import annotations

import re
from dataclasses import MISSING
from pathlib import Path

from rankslice.commands.app import COMMANDS, load_command, shown_default, summary, usage, value_name
from rankslice.framework.option_records import Option

PAGE = Path(__file__).with_name("command-line.md")


def generated_page(page: str) -> str:
    """Return the page with the text between its markers made anew.

    A command without markers gets a section at the end.

    Raises:
        ValueError: the page has a command's markers several times.
    """
    for command in COMMANDS:
        begin, end = f"<!-- {command} -->\n", f"<!-- end of {command} -->\n"
        if begin not in page:
            page = f"{page}\n## {command}\n\n{begin}{end}"
        parts = re.split(f"(?s){re.escape(begin)}.*?{re.escape(end)}", page)
        if len(parts) != 2:
            raise ValueError(f"{PAGE.name} has {len(parts) - 1} pairs of markers for {command}")
        page = f"{parts[0]}{begin}\n{_description(command)}\n{end}{parts[1]}"
    return page


def _description(command: str) -> str:
    """Return usage, summary and a table of a command's arguments and options."""
    loaded = load_command(command)
    options = loaded.options
    rows = ["| option | meaning |", "|---|---|"]
    rows += [f"| `{_argument(each)}` | {each.help} |" for each in options if each.is_argument]
    rows += [
        f"| {_flag(each)} | {_meaning(each)} |"
        for each in options
        if not each.is_argument and "typed_as" not in each.about
    ]
    return "\n".join(["```text", usage(loaded), "```", "", summary(command), "", *rows, ""])


def _argument(option: Option) -> str:
    return f"{option.flag}..." if "many" in option.about else option.flag


def _flag(option: Option) -> str:
    known = option.about["kind"]
    value = "|".join(known) if isinstance(known, tuple) else value_name(option)
    flag = f"{option.flag}/--no-{option.name}" if option.about.get("has_both") else option.flag
    return f"`{flag} {value}`".replace(" `", "`").replace("|", "\\|")


def _meaning(option: Option) -> str:
    notes = [option.help]
    if option.usual is MISSING:
        notes.append("Required.")
    elif default := shown_default(option):
        notes.append(f"Default: `{default}`.")
    if "many" in option.about:
        notes.append("May be given several times.")
    return " ".join(notes).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(generated_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
