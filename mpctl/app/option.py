"""Options of the command line as values, each declared beside the field of the request that it sets.

The command line makes its own options of them. What a text means is said here, so that a default is written as a user
would type it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what ``mpctl --help`` loads is loaded without the module typing
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


# The section of options without a flag, which a variable or a settings file sets: what is chosen once.
SETTINGS = "Settings"


class Option:
    """An option: its flags, its text in ``--help`` and the section that lists it. ``type``: a type, an enumeration, a
    tuple of words, or one of this module, whose name in capitals stands for a value in ``--help``. ``settings``: rarer
    ones, in the words of click: metavar (another word than that name), default, multiple, required, show_default,
    envvar (None: no variable sets it), shell_complete and so on."""

    __slots__ = ("flags", "help", "section", "settings", "type")

    def __init__(
        self,
        *flags: str,
        help: str,  # noqa: A002
        section: str = "Options",
        type: Any = str,  # noqa: A002
        **settings: Any,
    ) -> None:
        self.flags, self.help, self.section, self.type = flags, help, section, type
        self.settings: Mapping[str, Any] = settings

    @property
    def long(self) -> str:
        """The long flag, such as ``--max-time``."""
        return next(flag for flag in self.flags if flag.startswith("--")).split("/")[0]

    def unused(self) -> Any:
        """The value of a field whose option nobody uses: its default, () for a repeatable one, False for a flag that
        has no opposite."""
        default = self.settings.get("default")
        if default is not None:
            return self.type.parse(default) if hasattr(self.type, "parse") else default
        if self.settings.get("multiple"):
            return ()
        return False if self.type is bool and "/" not in self.flags[0] else None


def option(*flags: str, unused: Any = None, **settings: Any) -> Any:
    """A field that an option sets. ``unused``: its value without the option, where ``default`` is not it."""
    declared = Option(*flags, **settings)
    return _field(
        default=declared.unused() if unused is None else unused, metadata={"option": declared}
    )


def group(request: type[Any], *, required: str = "") -> Any:
    """A field whose options are those of another request. ``required``: the flag that must be used."""
    return _field(default_factory=request, metadata={"group": request, "required": required})


def _field(**settings: Any) -> Any:
    from dataclasses import field

    return field(**settings)


class File:
    """A path, which shells complete."""


class Whole:
    """A whole number from ``least`` to ``most``."""

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least, self.most = least, most


class Duration:
    """``90s``, ``10m``, ``1h30m``, ``2d`` or plain seconds, as seconds above 0; ``zero``: 0 is one, too."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def parse(self, value: Any) -> float:
        import re

        match = re.fullmatch(
            r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", str(value).strip()
        )
        if not match or not any(match.groups()):
            raise ValueError(f"{value!r} is no duration; write 90s, 10m, 1h30m or 2d")
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        total = days * 86400 + hours * 3600 + minutes * 60 + seconds
        if not total and not self._zero:
            raise ValueError(f"{value!r} must be above 0")
        return total


class Numbers:
    """``1,8,32`` as numbers; ``whole`` ones, at least ``least``, or above it where ``above``; each once, unless they
    ``repeat``."""

    name = "numbers"

    def __init__(
        self, *, whole: bool, least: float, above: bool = False, repeat: bool = False
    ) -> None:
        self._whole, self._least, self._above, self._repeat = whole, least, above, repeat

    def parse(self, value: Any) -> tuple[float, ...]:
        texts = value if isinstance(value, list) else str(value).split(",")
        place = f" in {value!r}" if len(texts) > 1 else ""
        numbers = tuple(self._number(text, place) for text in texts)
        if not self._repeat and len(set(numbers)) != len(numbers):
            raise ValueError(f"{value!r} names a number twice")
        return numbers

    def _number(self, text: Any, place: str) -> float:
        try:
            number = int(str(text)) if self._whole else float(str(text))
        except ValueError:
            raise ValueError(
                f"{str(text).strip()!r}{place} is no {'whole ' * self._whole}number"
            ) from None
        low = number <= self._least if self._above else number < self._least
        if low or not abs(number) < float("inf"):
            raise ValueError(
                f"{text} must be {'above' if self._above else 'at least'} {self._least:g}"
            )
        return number


class AboveZero:
    """A finite number above zero."""

    name = "number"

    def parse(self, value: Any) -> float:
        return Numbers(whole=False, least=0, above=True).parse([value])[0]


class Contexts(Numbers):
    """``2k,8k,32768`` as tokens; k is 1024."""

    name = "contexts"

    def __init__(self) -> None:
        super().__init__(whole=True, least=64)

    def parse(self, value: Any) -> tuple[float, ...]:
        import re

        lengths = re.sub(
            r"\b(\d+)k\b", lambda m: str(1024 * int(m[1])), str(value), flags=re.IGNORECASE
        )
        return super().parse(lengths)


class Names:
    """``a,b`` as names, each once."""

    name = "names"

    def parse(self, value: Any) -> tuple[str, ...]:
        names = tuple(name.strip() for name in str(value).split(","))
        if not all(names) or len(set(names)) != len(names):
            raise ValueError(f"{value!r} must be names, each once")
        return names


class Percentages(Numbers):
    """``1,5,10`` as whole percentages, 1 to 100, each larger than the one before."""

    name = "percentages"

    def __init__(self) -> None:
        super().__init__(whole=True, least=1)

    def parse(self, value: Any) -> tuple[float, ...]:
        percentages = super().parse(value)
        if any(percentage > 100 for percentage in percentages):
            raise ValueError(f"{max(percentages)} in {value!r} is more than 100 percent")
        if list(percentages) != sorted(percentages):
            raise ValueError(f"{value!r} must rise from step to step")
        return percentages


def is_enumeration(kind: Any) -> bool:
    """Return whether a type is an enumeration, whose values are the words of its option."""
    return hasattr(kind, "__members__")
