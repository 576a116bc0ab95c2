"""YAML files that people write: a mapping, each key once, with the lines the keys stand in."""

from __future__ import annotations

from typing import Any

from mpctl.errors import InputError

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def read_mapping(text: str, *, file: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The mapping and the line of each of its keys; empty for an empty file. Dates stay the text that they are.

    Raises:
        InputError: it is no YAML, no mapping, or names a key twice; file, line and field are named.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != _TIMESTAMP]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        node = yaml.compose(text, Loader=Loader)
        record = yaml.load(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(f"not YAML: {error.problem}", file=file, line=line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"not YAML: {error}", file=file) from error
    if record is None:
        return {}, {}
    if not isinstance(node, yaml.MappingNode) or not isinstance(record, dict):
        raise InputError("must be a mapping of names to values", file=file)
    lines: dict[str, int] = {}
    for key, _ in node.value:
        name, line = str(getattr(key, "value", key)), key.start_mark.line + 1
        if name in lines:
            raise InputError(f"stands in line {lines[name]} too", file=file, line=line, field=name)
        lines[name] = line
    return {str(key): value for key, value in record.items()}, lines
