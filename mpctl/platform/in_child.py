"""The program of a child process that handles what others wrote: schemas, chat templates and tokenizers.

:mod:`mpctl.platform.bounded_process` starts it by its path, so it imports nothing of mpctl. Standard input has a line
with the task and its settings, then a line per item; standard output gets a line for the settings and one per item:
``[true, VALUE]``, or ``[false, REASON]``. An item beyond its CPU time ends the process by SIGPROF, also inside a
library; memory beyond the limit is a MemoryError, or ends the process inside a library.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_VALUE_CHARACTERS = 16 * 2**20  # of one result, as JSON
_REASON_CHARACTERS = 300


def schemas(settings: dict[str, Any]) -> Callable[[Any], list[bool]]:
    """Match texts with a JSON schema; no reference is fetched."""
    import jsonschema
    import referencing

    def match(item: tuple[str, list[str]]) -> list[bool]:
        schema = json.loads(item[0])
        try:
            kind = jsonschema.validators.validator_for(
                schema, default=jsonschema.Draft202012Validator
            )
            validator = kind(schema, registry=referencing.Registry())
            return [
                _is_json(text) and bool(validator.is_valid(json.loads(text))) for text in item[1]
            ]
        except RecursionError:
            raise ValueError("it refers to itself, or is nested too deeply") from None
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  its message quotes the schema, which is a user's
            raise ValueError("it is no JSON schema") from None

    return match


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def tokens(settings: dict[str, Any]) -> Callable[[Any], list[list[int]]]:
    """Return the token ids of a conversation: of its messages with the chat template, and of the answer with its
    end."""
    from tokenizers import Tokenizer

    folder = Path(settings["folder"])
    reader: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = _config(folder / "tokenizer_config.json")
    render = _template(folder, config)
    ending = _token(config.get("eos_token"))
    last = reader.token_to_id(ending) if ending else None

    def conversation(item: tuple[list[dict[str, Any]], str]) -> list[list[int]]:
        messages, answer = item
        prompt = reader.encode(render(messages), add_special_tokens=False).ids
        ids = reader.encode(answer, add_special_tokens=False).ids
        return [prompt, ids if last is None else [*ids, last]]

    return conversation


def _config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _token(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")


def _template(folder: Path, config: dict[str, Any]) -> Callable[[list[dict[str, Any]]], str]:
    """Return the chat template, run in a sandbox; without one the contents of the messages."""
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if not isinstance(source, str):
        return lambda messages: "".join(str(message.get("content", "")) for message in messages)
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    specials = {key: _token(config.get(key)) for key in ("bos_token", "eos_token")}

    def render(messages: list[dict[str, Any]]) -> str:
        try:
            template = ImmutableSandboxedEnvironment(
                trim_blocks=True, lstrip_blocks=True
            ).from_string(source)
            return template.render(messages=messages, add_generation_prompt=True, **specials)
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"chat template: {error or type(error).__name__}") from error

    return render


TASKS = {"schemas": schemas, "tokens": tokens}


def main() -> None:
    """Handle the lines of standard input."""
    order = json.loads(sys.stdin.readline())
    sys.path[:] = order["path"]
    with contextlib.suppress(ValueError, OSError):  # macOS knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_s"], order["cpu_s"]))
    limit = order["item_s"]
    task = _answered(limit, lambda: TASKS[order["task"]](order["settings"]))
    for line in sys.stdin if task else ():
        _answered(limit, partial(lambda text: task(json.loads(text)), line))


def _answered(seconds: float, act: Callable[[], Any]) -> Any:
    """Write the result of an action, and return it; None if it has none."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    value: Any = None
    try:
        value = act()
        line = json.dumps([True, None if callable(value) else value])
        if len(line) > _VALUE_CHARACTERS:
            raise ValueError("the result is too large")
    except MemoryError:
        line = json.dumps([False, "it needs too much memory"])
    except BaseException as error:  # noqa: BLE001  a panic of a library in Rust is no Exception
        reason = str(error).partition("\n")[0] or type(error).__name__
        line = json.dumps([False, reason[:_REASON_CHARACTERS]])
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(line, flush=True)  # noqa: T201
    return value


if __name__ == "__main__":
    main()
