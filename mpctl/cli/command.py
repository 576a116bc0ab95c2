"""The commands of the program: options made from what requests declare, and the request made from the options.

Every option can be set by flag, by environment variable, in a project file, in the user's file, in this order of
precedence. A --measurement file comes before the project file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from mpctl.app.option import SETTINGS, File, Option, Whole, is_enumeration
from mpctl.cli.group import FittedHelp, path_of
from mpctl.cli.printer import FORMATS
from mpctl.cli.registry import SHARED, load
from mpctl.cli.settings import configure
from mpctl.errors import InputError, nearest

if TYPE_CHECKING:
    from dataclasses import Field

    from click.shell_completion import CompletionItem

    from mpctl.cli.terminal import Terminal

Request = TypeVar("Request")
Parameter = type[Any] | Option | click.Argument
SECTIONS = (
    "Services",
    "Arms",
    "Cluster",
    "Options",
    "Speculation",
    "Draft and staging",
    "Measurement",
    "Gate",
    "Traffic",
    "Execution",
    "Output",
    SETTINGS,
    "Global",
)
_EVERY = "every option"  # in the meta data of a call: --help-all
_COLUMN = 26  # width of the options' names; a longer name has a line of its own

OUTPUT = Option(
    "-o", "--output", section="Output", type=FORMATS, default="table", help="Format of the result."
)
ASKS = (
    Option("-y", "--yes", section="Execution", type=bool, help="Do not ask for confirmation."),
    Option("--no-input", section="Execution", type=bool, help="Never prompt; fail instead."),
)
FILE = Option(
    "-f",
    "--file",
    type=File,
    metavar="FILE|-",
    help="Read a manifest instead of a running service; offline.",
)
# It stands before the options that the file sets: click reads their defaults later.
MEASUREMENT = Option(
    "--measurement",
    section="Measurement",
    type=File,
    expose_value=False,
    callback=lambda ctx, _, file: file and ctx.obj.files.add_measurement(ctx, path_of(ctx), file),
    help="YAML file that describes the measurement (docs/reference/measurement.md).",
)
SHOW_SECRETS = Option(
    "--show-secrets",
    type=bool,
    help="Print secrets of the manifest instead of <hidden>; needed to apply it.",
)


SELECTION = (
    Option(
        "-l",
        "--selector",
        envvar=None,
        default="",
        show_default=False,
        metavar="SELECTOR",
        section="Services",
        help="Services with these labels, such as team=search.",
    ),
    Option(
        "--all",
        "every",
        section="Services",
        type=bool,
        envvar=None,
        help="All services of the namespace.",
    ),
)
_KEEP_GOING = Option(
    "--keep-going",
    section="Services",
    type=bool,
    envvar=None,
    help="With several services: continue after a rejection or a failure.",
)


def service_argument(
    name: str = "name", *, nargs: int = 1, metavar: str = "[SERVICE]"
) -> click.Argument:
    """``[SERVICE]``, which shells complete with the services of this machine."""
    return click.Argument(
        [name],
        required=False,
        nargs=nargs,
        shell_complete=lambda _c, _p, text: _service_names(text),
        metavar=metavar,
    )


SERVICE_AND_RUN = service_argument("words", nargs=-1, metavar="[SERVICE] [RUN]")


def formats_option(*formats: str, text: str) -> Option:
    """``-o`` of a command with formats of its own. MPCTL_OUTPUT and the settings files are for the others and not
    read."""
    return Option("-o", "--output", "form", section="Output", type=formats, envvar=None, help=text)


def command(
    name: str,
    *parameters: Parameter,
    common: str = "",
    shared: bool = True,
    hidden: bool = False,
    many: bool = False,
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command of the function below. It is called with the :class:`CliContext` of this call, with ``request``, where
    the class of one is among the parameters, and with the values of the other parameters by name. ``common``: the
    options that ``--help`` lists, in this order; ``--help-all`` lists every one. ``shared``: the command takes the
    shared options, too. ``many``: it also takes several services, and is then called for one after another."""
    if many:
        parameters = (*parameters, *SELECTION, _KEEP_GOING)
    requests = [parameter for parameter in parameters if isinstance(parameter, type)]

    def decorate(function: Callable[..., Any]) -> click.Command:
        def call(**values: Any) -> Any:
            ctx = click.get_current_context()
            arguments = [configure(ctx, values)] if shared else []
            if many and (choice := _choice(values)).services:
                return load("many:run_each")(ctx, values, choice, run_single)
            return run_single(*arguments, **values)

        def run_single(*arguments: Any, **values: Any) -> Any:
            for request in requests:
                values["request"] = read_request(request, values)
            return function(*arguments, **values)

        options = [
            option
            for parameter in (*parameters, *(SHARED if shared else ()))
            for option in _parameters(parameter)
        ]
        return SectionedCommand(
            name,
            callback=call,
            params=options,
            help=function.__doc__,
            hidden=hidden,
            common=common,
        )

    return decorate


class Choice(NamedTuple):
    """The services of a command that takes several: by labels, or all; neither for the one that the argument names."""

    selector: str
    every: bool
    keep_going: bool

    @property
    def services(self) -> bool:
        """Whether several services are meant."""
        return self.every or bool(self.selector)


def _choice(values: dict[str, Any]) -> Choice:
    """Take the options that choose several services out of the values."""
    choice = Choice(*(values.pop(name) for name in Choice._fields))
    if choice.keep_going and not choice.services:
        raise InputError("is for several services: add -l SELECTOR or --all", field="--keep-going")
    return choice


def require_no_name(name: str | None, *, selector: str, every: bool) -> None:
    """Refuse a service's name next to an option that chooses services, and two such options.

    Raises:
        InputError: of two, one must go.
    """
    if selector and every:
        raise InputError("cannot be combined with --all", field="--selector")
    if name is not None and (selector or every):
        flag = "--selector" if selector else "--all"
        raise InputError(f"cannot be combined with the service {name}", field=flag)


def _parameters(parameter: Parameter) -> Iterator[click.Parameter]:
    if isinstance(parameter, click.Argument):
        yield parameter
    elif isinstance(parameter, Option):
        yield click_option(parameter)
    else:
        for name, declared, required in _declared(parameter):
            yield click_option(declared, name, required=required)


def _declared(request: type[Any], required: str = "") -> Iterator[tuple[str, Option, bool]]:
    """Yield the options of a request by field, those of its groups with them. ``required``: a flag."""
    for member in _members(request):
        if declared := member.metadata.get("option"):
            yield member.name, declared, required in declared.flags
        elif below := member.metadata.get("group"):
            yield from _declared(below, member.metadata["required"])


def _members(request: type[Any]) -> tuple[Field[Any], ...]:
    from dataclasses import fields

    return fields(request)


def read_request(request: type[Request], values: dict[str, Any]) -> Request:
    """Take the fields of a request from the values of options and arguments; an option that nobody used leaves its
    field's default."""
    arguments = {}
    for member in _members(request):
        if below := member.metadata.get("group"):
            arguments[member.name] = read_request(below, values)
        elif (value := values.pop(member.name, None)) is not None:
            arguments[member.name] = value
    result: Request = request(**arguments)
    return result.completed() if hasattr(result, "completed") else result


def click_option(declared: Option, name: str = "", *, required: bool = False) -> SectionedOption:
    """click's option of a declared one. It also reads ``MPCTL_<NAME>`` and shows its default in the help."""
    variable = "MPCTL_" + declared.long.lstrip("-").replace("-", "_").upper()
    settings = {
        "envvar": variable,
        "show_default": True,
        "required": required,
        "help": declared.help,
    }
    kind, flags = declared.type, [*declared.flags, *([name] if name else [])]
    if kind is bool:
        settings["is_flag"] = True
    elif kind is not str:
        settings["type"] = _type(kind)
    kind_of_option = Setting if declared.section == SETTINGS else SectionedOption
    return kind_of_option(flags, section=declared.section, **{**settings, **declared.settings})


def _type(kind: Any) -> Any:
    if isinstance(kind, tuple) or is_enumeration(kind):
        return Word(kind)
    if isinstance(kind, Whole):
        return click.IntRange(kind.least, kind.most)
    if kind is File:
        return FileName()
    if isinstance(kind, File):
        return ParsedFile(kind)
    return Parsed(kind) if hasattr(kind, "parse") else kind


class SectionedOption(click.Option):
    """An option with the section of ``--help`` that lists it."""

    def __init__(self, *args: Any, section: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section = section


class Setting(SectionedOption):
    """An option without a flag; help names its variable."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.opts, self.secondary_opts = [str(self.envvar)], []

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Take nothing from the command line."""


class SectionedCommand(FittedHelp):
    """A command whose ``--help`` lists the common options, and ``--help-all`` every option by section."""

    def __init__(self, *args: Any, common: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._common = common

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and note which of the two helps they ask for."""
        ctx.meta[_EVERY] = "--help-all" in args
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options: the common ones, or all of them section by section."""
        options = {o.opts[-1]: o for o in self.get_params(ctx) if isinstance(o, click.Option)}
        short = "" if ctx.meta.get(_EVERY) else self._common
        sections = (
            {"Common options": [options[f"--{name}"] for name in short.split()]}
            if short
            else {
                name: [o for o in options.values() if getattr(o, "section", "Global") == name]
                for name in SECTIONS
            }
        )
        for name, listed in sections.items():
            if records := [record for option in listed if (record := option.get_help_record(ctx))]:
                with formatter.section(name):
                    widest = min(max(len(option) for option, _ in records), _COLUMN)
                    formatter.write_dl(records, col_max=_COLUMN, col_spacing=_COLUMN + 2 - widest)
        if short:
            flags = sum(name.startswith("-") for name in options)
            formatter.write(f"\n{ctx.command_path} --help-all lists all {flags} options.\n")


class Word(click.Choice[Any]):
    """A choice of a few words, with did-you-mean; of an enumeration its member."""

    def __init__(self, kind: Any) -> None:
        super().__init__([str(word) for word in kind])
        self._kind = kind if is_enumeration(kind) else str

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word."""
        if value not in self.choices:
            near = nearest(str(value), self.choices)
            meant = f"; did you mean {near}" if near else ""
            self.fail(f"{str(value)!r} is not one of {', '.join(self.choices)}{meant}", param, ctx)
        return self._kind(value)


class FileName(click.types.StringParamType):
    """A path, which shells complete."""

    name = "file"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Whatever the shell finds."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class Parsed(click.ParamType[Any]):
    """A text with a meaning of its own, such as a duration."""

    def __init__(self, kind: Any) -> None:
        self.name, self._kind = kind.name, kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value that the text means."""
        try:
            return self._kind.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ParsedFile(Parsed, FileName):
    """A path, which shells complete, with the meaning of the file's text."""


def presentable(terminal: Terminal, text: str, *, show_secrets: bool) -> str:
    """Return a manifest of a running or recorded service for printing; warn when secrets are hidden in it."""
    if show_secrets:
        return text
    from mpctl.manifest import masked

    hidden = masked(text)
    if hidden != text:
        terminal.warn(
            "secrets are hidden, so this manifest cannot be applied; --show-secrets prints them"
        )
    return hidden


def _service_names(text: str) -> list[str]:
    """Names for completion; empty when nothing can be read."""
    from mpctl.platform.state_files import service_dirs

    return sorted({d.name for d in service_dirs() if d.name.startswith(text)})
