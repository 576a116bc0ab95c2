"""``mpctl methods``: what ``--spec`` accepts, and the same in the words of other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import Word, option
from mpctl.cli.settings import terminal_of

if TYPE_CHECKING:
    from mpctl.cli.terminal import Terminal
    from mpctl.methods.dialects import Dialect

ENGINES = ("vllm", "sglang", "tensorrt-llm")


@click.command("methods")
@click.argument("method", required=False, metavar="[METHOD]")
@option("--engine", type=Word(ENGINES), default=ENGINES[0], help="Whose words to print.")
@option("--draft", metavar="PATH|REPOSITORY", help="The draft to name, with METHOD.")
@option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="One setting, with METHOD; repeatable.")
@output_option
@shared_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    method: str | None,
    engine: str,
    draft: str | None,
    sets: tuple[str, ...],
    output: str,
    **shared: Any,
) -> None:
    """List speculation methods, what they need and their defaults; with METHOD, print its setting.

    Rollouts need vLLM, whose counters the gate reads. --engine writes the same setting for SGLang or TensorRT-LLM and
    refuses by name what they cannot express.

    \b
    Examples:
      mpctl methods
      mpctl methods eagle3 --draft org/head
      mpctl methods eagle3 --draft org/head --engine sglang
      mpctl methods --engine tensorrt-llm        which methods it can run
    """
    terminal = terminal_of(ctx, shared)
    from mpctl.errors import InputError

    if method is not None:
        _one(terminal, method, engine, draft, sets, output)
        return
    for given, flag in ((draft, "--draft"), (sets, "--set")):
        if given:
            raise InputError("needs a method before it", field=flag, hint="mpctl methods eagle3 --draft org/head")
    if engine != "vllm":
        from mpctl.methods.dialects import DIALECTS

        _support(terminal, DIALECTS[engine], output)
        return
    _list(terminal, output)


def _one(terminal: Terminal, method: str, engine: str, draft: str | None, sets: tuple[str, ...], output: str) -> None:
    """The setting of one method, as the engine takes it."""
    import json

    from mpctl.methods import build
    from mpctl.methods.dialects import DIALECTS

    spec, _ = build(method, draft=draft, sets=sets)
    if engine == "vllm":
        text = json.dumps(spec.config())
        where, source = "argument of --speculative-config", "vLLM docs, Speculative Decoding"
    else:
        dialect = DIALECTS[engine]
        text, where, source = dialect.text(spec), dialect.where, dialect.source
    if output in ("json", "yaml"):
        terminal.record("MethodSetting", {"engine": engine, "text": text, "where": where, "source": source}, output)
        return
    terminal.result(text)
    terminal.note(f"{where} ({source})")


def _support(terminal: Terminal, dialect: Dialect, output: str) -> None:
    """Which methods another engine can run, and why not the others."""
    from mpctl.methods import METHODS, Spec

    rows = []
    for method in METHODS.values():
        settings: dict[str, Any] = {"num_speculative_tokens": 3}
        if method.needs_draft in ("head", "model"):
            settings["model"] = "draft"
        spec = Spec("none") if method.name == "none" else Spec(method.name, settings)
        rows.append((method.name, dialect.unsupported(spec)))
    if output in ("json", "yaml"):
        items = [{"name": name, "unsupported": why} for name, why in rows]
        terminal.record("MethodList", {"engine": dialect.name, "source": dialect.source, "items": items}, output)
    elif output == "name":
        terminal.result("\n".join(name for name, why in rows if why is None))
    else:
        terminal.table(["METHOD", dialect.title.upper()], [[name, why or "yes"] for name, why in rows])
        terminal.note(f"source: {dialect.source}; a rollout needs vLLM, whose counters the gate reads")


def _list(terminal: Terminal, output: str) -> None:
    import json

    from mpctl.methods.table import METHODS

    if output in ("json", "yaml"):
        body = [
            {"name": m.name, "draft": m.needs_draft, "defaults": dict(m.defaults), "summary": m.summary}
            for m in METHODS.values()
        ]
        terminal.record("MethodList", {"items": body}, output)
    elif output == "name":
        terminal.result("\n".join(METHODS))
    else:
        rows = [
            [m.name, m.needs_draft, json.dumps(dict(m.defaults)) if m.defaults else "-", m.summary]
            for m in METHODS.values()
        ]
        terminal.table(["METHOD", "DRAFT", "DEFAULTS", "SUMMARY"], rows)
