"""The program, whose commands are loaded when they are called."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING
from importlib import import_module
from inspect import Parameter as Argument, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Group, Parameter
from cyclopts.config import Toml
from cyclopts.exceptions import CycloptsError
from rich.markup import escape

from rankslice.commands.command import LOADED, Command
from rankslice.framework.errors import Mistake, nearest
from rankslice.framework.option_records import MisuseError, Option
from rankslice.framework.wording import quoted

COMMANDS = (
    *("inspect", "build", "run", "report", "replay", "trace", "probe", "deploy", "profile"),
    *("explore", "simulate", "bench", "serve", "demo"),
)
"""In the order of the help. Each is a folder beside this file: its docstring is the line in the
help, and its ``cli.py`` has the options."""

CONFIG = "rankslice.toml"
_MAX_CONFIG_BYTES = 1 << 20
_CONFIG_HELP = (
    f"Options may also stand in [b]{CONFIG}[/], in the working directory or beside the build"
    ' folder: a table per command, such as "\\[run]", with "fps = 30".'
)
_SHOWS_VALUES = "metavar" in signature(Parameter).parameters
"""Whether cyclopts can be told how a value is called: version 4, for Python 3.10, cannot."""
_VALUES = {Path: "PATH", str: "TEXT", int: "N", float: "X"}


def summary(name: str) -> str:
    """Return the line that says what a command does."""
    return import_module(f"rankslice.commands.{name}").__doc__ or ""


def load_command(name: str) -> Command:
    """Return a command with its options, from the ``cli.py`` of its folder."""
    import_module(f"rankslice.commands.{name}.cli")
    return LOADED[name]


def value_name(option: Option) -> str:
    """Return the placeholder of a value in the help: ``PATH``; empty for switches and choices."""
    known = option.about["kind"]
    has_none = option.is_switch or isinstance(known, tuple)
    return str(option.about.get("metavar", "" if has_none else _VALUES.get(known, "TEXT")))


def shown_default(option: Option) -> str:
    """Return the default as the help shows it; empty: it is not shown."""
    usual = option.about.get("shown", option.usual)
    if usual is MISSING or usual is None or isinstance(usual, (bool, tuple)):
        return ""
    return str(usual)


def usage(command: Command) -> str:
    """Return the synopsis of a command: ``rankslice run OUT [OPTIONS]``."""
    arguments = [option for option in command.options if option.is_argument]
    names = [f"{option.flag}{'...' if 'many' in option.about else ''}" for option in arguments]
    return " ".join(["rankslice", command.name, *names, "[OPTIONS]"])


def run_program(words: Sequence[str]) -> None:
    """Run a command line.

    Raises:
        MisuseError: it makes no sense.
        RankSliceError: the command fails.
    """
    # The script for a shell has the options of all commands.
    program = make_program(COMMANDS if words[:1] == ["--install-completion"] else words[:1])
    if not words:
        program.help_print([])
        sys.exit(2)
    if words[0] in COMMANDS:
        words = [words[0], *_spelled_out(load_command(words[0]), words[1:])]
    try:
        call, bound, _ = program.parse_args(words, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        said = " ".join(str(error).split()).partition(" Available commands:")[0]
        is_guessed = "Did you mean" in said or not said.startswith("Unknown command")
        listed = "" if is_guessed else "; 'rankslice --help' lists the commands"
        raise MisuseError(said.rstrip(".") + listed) from None
    call(*bound.args, **bound.kwargs)


def make_program(loaded: Iterable[str] = COMMANDS) -> App:
    """Return the program, with the options of some commands."""
    program = App(
        name="rankslice",
        help="Run neural networks across the accelerators of several boards, one MPI rank per"
        f" slice.\n\n{_CONFIG_HELP}",
        help_format="rich",
        help_flags=["--help"],
        version_flags=[],
        default_parameter=Parameter(negative=(), show_env_var=False),
        group_commands=Group("Commands", sort_key=0),
    )
    program.command(_print_versions, name="--version", group="Options", sort_key=2)
    program.register_install_completion_command(
        help="Install completion of words for this shell.", group="Options", sort_key=3
    )
    program["--help"].group, program["--help"].sort_key = ("Options",), 1
    for place, name in enumerate(COMMANDS):
        command = _command_app(name) if name in loaded else App(name, help=summary(name))
        command.sort_key = place
        program.command(command)
        command["--help"].show, command["--help"].group = True, ("Options",)
    return program


def _print_versions() -> None:
    """Show the versions of RankSlice, Python, Open MPI and the engines."""
    from rankslice.session.versions import version_lines

    print(*version_lines(), sep="\n")


def _command_app(name: str) -> App:
    command = load_command(name)
    title = "Example:" if len(command.examples) == 1 else "Examples:"
    lines = [f"rankslice {name} {example}".rstrip() for example in command.examples]
    return App(
        name,
        help=f"{summary(name)}\n\n{_CONFIG_HELP}",
        usage=f"Usage: {escape(usage(command))}",
        help_epilogue="\n".join([title, *lines]),
        default_command=_typed_function(command),
        config=_Config(command),
        group_parameters=Group("Options", sort_key=1),
    )


def _typed_function(command: Command) -> Callable[..., None]:
    """Return a function for cyclopts, with one parameter per option; values are texts."""
    options = {_parameter(option).name: option for option in command.options}

    def call(*positional: Any, **named: Any) -> None:
        bound = call.__signature__.bind(*positional, **named)  # type: ignore[attr-defined]
        texts = {
            options[name].name: text
            for name, value in bound.arguments.items()
            if (text := _text(options[name], value)) is not None
        }
        command.run(texts)

    parameters = sorted(map(_parameter, command.options), key=lambda parameter: parameter.kind)
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__name__ = command.name
    return call


def _parameter(option: Option) -> Argument:
    """Return an option as a parameter of a function that cyclopts calls."""
    about, default, kind = option.about, None, str
    if option.is_switch:
        default = False if option.is_negated else option.usual
        kind = bool if isinstance(default, bool) else bool | None  # type: ignore[assignment]
    elif isinstance(about["kind"], tuple):
        kind = Literal[about["kind"]]  # type: ignore[assignment]
    position: Any = Argument.KEYWORD_ONLY
    if option.is_argument:
        position = Argument.VAR_POSITIONAL if "many" in about else Argument.POSITIONAL_ONLY
    is_needed = option.usual is MISSING
    called: dict[str, Any] = {"metavar": value_name(option) or None} if _SHOWS_VALUES else {}
    said = Parameter(
        name=(option.flag, *about.get("alias", ())),
        help=escape(option.help),
        **called,
        negative=f"--no-{option.name}" if about.get("has_both") else (),
        required=is_needed or None,
        show="typed_as" not in about,
        show_default=(lambda _: shown_default(option)) if shown_default(option) else False,
        allow_leading_hyphen=False,
    )
    if position is Argument.VAR_POSITIONAL:
        return Argument(option.name, position, annotation=Annotated[kind, said])
    if "many" in about:
        kind = list[str]  # type: ignore[assignment]
    if not is_needed and not option.is_switch:
        kind = kind | None  # type: ignore[assignment]
    default = Argument.empty if is_needed else default
    return Argument(option.name, position, annotation=Annotated[kind, said], default=default)


def _text(option: Option, value: Any) -> Any:
    """Return the value from cyclopts as :meth:`Command.run` takes it; ``None``: not typed."""
    if option.is_switch:
        return not value if option.is_negated else value
    if value in (None, (), []):
        return None
    return value if isinstance(value, (tuple, list)) else [value]


def _spelled_out(command: Command, words: Sequence[str]) -> list[str]:
    """Return words of a command in which each option is one word, with its value, and stands once.

    Options that may stand without a value get one. Of an option that is given several times, and
    has but one value, the last counts.
    """
    options = {
        name: option
        for option in command.options
        if not option.is_argument
        for name in (option.flag, *option.about.get("alias", ()))
    }
    switches = {
        "=".join(option.about["typed_as"]): option.flag
        for option in command.options
        if "typed_as" in option.about
    }
    spelled: dict[object, str] = {}
    left = [*words]
    while left:
        word = left.pop(0)
        option = options.get(word.partition("=")[0])
        following = left[0] if left else ""
        if option is not None and word in options and not option.is_switch:
            text, values = option.about.get("bare", ("", ""))
            if "bare" in option.about and not re.fullmatch(values, following):
                word = f"{option.flag}={text}"
            elif left and not following.startswith("--"):
                word = f"{option.flag}={left.pop(0)}"
        word = switches.get(word, word)
        is_one = option is not None and "many" not in option.about
        key: object = word.partition("=")[0] if is_one else len(left)
        spelled.pop(key, None)
        spelled[key] = word
    return [*spelled.values()]


def _beside(path: Path) -> Path | None:
    """Return the file of options beside a build folder; ``None``: what is named is none."""
    file = path.parent / CONFIG
    if not file.is_file():
        return None
    from rankslice.session.build_folder import is_build_folder

    return file if is_build_folder(path) else None


def _read_config(file: Path) -> Toml:
    """Return a file of options, which has tables of commands.

    Raises:
        MisuseError: it cannot be read, or has other tables.
    """
    toml = Toml(path=file)
    try:
        if file.stat().st_size > _MAX_CONFIG_BYTES:
            raise MisuseError("is larger than 1 MiB")
        tables = toml.config
    except (OSError, UnicodeError, RecursionError) as error:
        raise MisuseError(f"cannot be read: {str(error) or type(error).__name__}") from None
    for table in tables:
        if table not in COMMANDS:
            expected = nearest(table, COMMANDS) or "expected a table per command"
            raise MisuseError(f"no command {quoted(table)}; {expected}")
    return toml


class _Config:
    """Options of a command in a file, which are those of the command line where it has none."""

    def __init__(self, command: Command) -> None:
        self._options = {option.name: option for option in command.options}

    def __call__(self, app: App, commands: tuple[str, ...], arguments: Any) -> None:
        paths = [
            Path(token.value)
            for argument in arguments
            if self._options[argument.field_info.name].is_argument
            for token in argument.tokens[:1]
        ]
        for file in dict.fromkeys([*map(_beside, paths), Path(CONFIG)]):
            if file is None or not file.is_file():
                continue
            typed = {id(argument) for argument in arguments if argument.tokens}
            try:
                _read_config(file)(app, commands, arguments)
                for argument in arguments:
                    if argument.tokens and id(argument) not in typed:
                        self._check(argument)
            except (CycloptsError, MisuseError) as error:
                if isinstance(error, CycloptsError):
                    error.verbose = False
                text = str(error)
                raise CycloptsError(text if str(file) in text else f"{file}: {text}") from None

    def _check(self, argument: Any) -> None:
        option = self._options[argument.field_info.name]
        if option.about.get("is_executed"):
            problem = "is not taken from a file, as it names what is executed"
            raise MisuseError(Mistake(option.flag, problem, "type it"))
        if not option.is_switch:
            option.read([token.value for token in argument.tokens])
