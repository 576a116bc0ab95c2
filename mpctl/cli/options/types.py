"""Types of options, and the decorator that declares one.

Every option can be set by flag, by environment variable, in a project file, in the user's file, in this order of
precedence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


class Option(click.Option):
    """An option with the section of ``--help`` that lists it."""

    def __init__(self, *args: Any, section: str = "Options", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section = section


class Word(click.Choice[str]):
    """One of a few words, with did-you-mean."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word."""
        if value not in self.choices:
            import difflib

            near = difflib.get_close_matches(str(value), self.choices, n=1)
            meant = f"; did you mean {near[0]}" if near else ""
            self.fail(f"{str(value)!r} is not one of {', '.join(self.choices)}{meant}", param, ctx)
        return str(value)


class File(click.types.StringParamType):
    """A path, which shells complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Whatever the shell finds."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class Duration(click.ParamType[float]):
    """``90s``, ``10m``, ``1h30m`` or plain seconds, as seconds above 0; ``zero``: 0 is one, too."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        import re

        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", str(value).strip())
        if not match or not any(match.groups()):
            self.fail(f"{value!r} is no duration; write 90s, 10m or 1h30m", param, ctx)
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        total = hours * 3600 + minutes * 60 + seconds
        if not total and not self._zero:
            self.fail(f"{value!r} must be above 0", param, ctx)
        return total


class Numbers(click.ParamType[tuple[float, ...]]):
    """``1,8,32`` as numbers; ``whole`` ones, at least ``least``, or above it where ``above``; each once, unless they
    ``repeat``."""

    name = "numbers"

    def __init__(self, *, whole: bool, least: float, above: bool = False, repeat: bool = False) -> None:
        self._whole, self._least, self._above, self._repeat = whole, least, above, repeat

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The numbers, in their order."""
        if isinstance(value, tuple):
            return value
        words = value if isinstance(value, list) else str(value).split(",")
        numbers = []
        for word in words:
            try:
                number = int(str(word)) if self._whole else float(str(word))
            except ValueError:
                self.fail(f"{str(word).strip()!r} in {value!r} is no {'whole ' * self._whole}number", param, ctx)
            low = number <= self._least if self._above else number < self._least
            if low or not math.isfinite(number):
                self.fail(f"{word} must be {'above' if self._above else 'at least'} {self._least:g}", param, ctx)
            numbers.append(number)
        if not self._repeat and len(set(numbers)) != len(numbers):
            self.fail(f"{value!r} names a number twice", param, ctx)
        return tuple(numbers)


class AboveZero(click.ParamType[float]):
    """A finite number above zero; click's own range lets "nan" through."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        (number,) = Numbers(whole=False, least=0, above=True).convert([value], param, ctx)
        return number


class Percentage(click.ParamType[float]):
    """``10%`` or ``10`` as the share 0.1; at least 1 %, at most 90 %."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share."""
        try:
            share = float(str(value).strip().removesuffix("%")) / 100
        except ValueError:
            share = math.nan
        if not 0.01 <= share <= 0.9:
            self.fail(f"{value!r} is no percentage from 1% to 90%", param, ctx)
        return share


class Percentages(Numbers):
    """``1,5,10`` as whole percentages, 1 to 100, each larger than the one before."""

    name = "percentages"

    def __init__(self) -> None:
        super().__init__(whole=True, least=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The percentages, in their order."""
        percentages = super().convert(value, param, ctx)
        if any(percentage > 100 for percentage in percentages):
            self.fail(f"{max(percentages)} in {value!r} is more than 100 percent", param, ctx)
        if list(percentages) != sorted(percentages):
            self.fail(f"{value!r} must rise from step to step", param, ctx)
        return percentages


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """An option that also reads ``MPCTL_<NAME>`` and shows its default in the help. ``section``: of the help."""
    long = next(n for n in names if n.startswith("--")).split("/")[0].lstrip("-")
    settings.setdefault("envvar", "MPCTL_" + long.replace("-", "_").upper())
    settings.setdefault("show_default", True)
    return click.option(*names, cls=Option, **settings)


def all_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator for several, in their order."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
