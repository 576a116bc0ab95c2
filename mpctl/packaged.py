"""Tables that come with the package: YAML files next to the code that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import Any, TypeVar

import msgspec
import yaml

Row = TypeVar("Row")


def packaged(package: str, file: str) -> Any:
    """Return the content of a YAML file in a package."""
    text = resources.files(package).joinpath(file).read_bytes()
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def packaged_rows(package: str, file: str, kind: type[Row]) -> tuple[Row, ...]:
    """Return the list in a YAML file of a package as dataclasses."""
    return rows_of(packaged(package, file), kind)


def rows_of(values: Iterable[Any], kind: type[Row]) -> tuple[Row, ...]:
    """Return mappings as dataclasses, whose annotations their values must have."""
    return tuple(msgspec.convert(value, kind) for value in values)
