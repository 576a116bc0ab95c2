"""YAML files that people write: a mapping, each key once, with the lines the keys stand in."""

from __future__ import annotations

from typing import Any

from mpctl.errors import InputError

_TIMESTAMP, _NULL = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:null"


def read_mapping(text: str, *, file: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The mapping and the line of each of its keys; empty for an empty file. Dates stay the text that they are.

    Raises:
        InputError: it is no YAML, no mapping, or names a key twice; file, line and field are named.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor(_TIMESTAMP, lambda _, node: str(node.value))
    lines: dict[str, int] = {}
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None or node.tag == _NULL:
            return {}, lines
        if not isinstance(node, yaml.MappingNode):
            raise InputError("must be a mapping of names to values", file=file)
        for key, _ in node.value:
            name, line = str(getattr(key, "value", key)), key.start_mark.line + 1
            if name in lines:
                raise InputError(f"stands in line {lines[name]} too", file=file, line=line, field=name)
            lines[name] = line
        record = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise InputError(f"not YAML: {error.problem}", file=file, line=mark.line + 1 if mark else None) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"not YAML: {error}", file=file) from error
    return {str(key): value for key, value in record.items()}, lines
