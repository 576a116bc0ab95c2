"""The engine's container in a pod: which one it is, how it starts, and whether its service specifies that. Pure.

A preset of an LLMInferenceService evaluates its arguments in a shell; Knative replaces the tag of an image by its
digest. Both are followed here, so that everything else compares plain values.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from mpctl.json_fields import list_at, mapping_at
from mpctl.json_types import JsonView
from mpctl.manifest.engine.engine_port import CONTAINER, has_certificate
from mpctl.manifest.engine.locate import VARIABLE
from mpctl.manifest.engine.recognition import is_vllm_start

LLM_CONTAINER = "main"  # the engine in KServe's presets for LLMInferenceService
_KEY_VARIABLE = "VLLM_API_KEY"  # vLLM takes its key from here without --api-key
_SPECULATION = ("--speculative", "-sc")
_DOCKER_HUB = ("index.docker.io/", "docker.io/")


def engine_container(containers: Sequence[JsonView]) -> JsonView:
    """Return the engine's container: the one with KServe's name, else the first that starts vLLM, else the one that
    KServe's presets name, else the first."""
    tests = (
        lambda c: c.get("name") == CONTAINER,
        starts_vllm,
        lambda c: c.get("name") == LLM_CONTAINER,
    )
    container = next((c for test in tests for c in containers if test(c)), None)
    return container if container is not None else next(iter(containers), {})


def starts_vllm(container: JsonView) -> bool:
    """Return whether a container starts vLLM: by its command, or by the entrypoint of its image."""
    command, args = (
        [str(word) for word in container.get(key) or ()] for key in ("command", "args")
    )
    return is_vllm_start(str(container.get("image") or ""), command or None, args)


def answers_tls(container: JsonView) -> bool:
    """Return whether the engine answers over HTTPS alone: its probes ask so, or KServe's server has a certificate."""
    probes = (
        mapping_at(container.get(f"{when}Probe"), "httpGet")
        for when in ("startup", "readiness", "liveness")
    )
    return has_certificate(container) or any(
        str(probe.get("scheme")).upper() == "HTTPS" for probe in probes
    )


def key_of(container: JsonView) -> tuple[str | None, str | None]:
    """Source of an engine's API key: (variable name, None), (None, the key itself), or (None, None).

    ``$(NAME)`` in an argument refers to the variable, as the kubelet expands it.
    """
    for value in _values(container, "--api-key"):
        return (
            (value[2:-1], None) if value.startswith("$(") and value.endswith(")") else (None, value)
        )
    named = any(e.get("name") == _KEY_VARIABLE for e in list_at(container, "env"))
    return (_KEY_VARIABLE, None) if named else (None, None)


def _values(container: JsonView, flag: str) -> Iterator[str]:
    """Yield the values of a flag in the arguments."""
    words = [str(argument) for argument in list_at(container, "args")]
    for argument, following in zip_longest(words, words[1:]):
        if argument.startswith(f"{flag}="):
            yield argument.partition("=")[2]
        elif argument == flag and following is not None:
            yield following


def argv_of(container: JsonView) -> tuple[str, ...]:
    """Command and arguments of a container; vLLM's own where a preset of KServe's evaluates them in a shell, and where
    an image starts vLLM with a model in front."""
    if (evaluated := _evaluated_argv(container)) is not None:
        return evaluated
    command, args = list_at(container, "command"), list_at(container, "args")
    if not command and args and not str(args[0]).startswith("-") and starts_vllm(container):
        command = ("vllm", "serve")
    return (*command, *args)


def _evaluated_argv(container: JsonView) -> tuple[str, ...] | None:
    """The arguments that vLLM gets from the variable and ``args`` through a preset's ``eval``; None for another start,
    and where a quote is not closed."""
    script = " ".join(map(str, list_at(container, "command")))
    if "eval" not in script or "$@" not in script:
        return None
    variables = [e for e in list_at(container, "env") if e.get("name") == VARIABLE]
    texts = (*(str(e.get("value", "")) for e in variables), *list_at(container, "args"))
    try:
        return ("vllm", "serve", *(word for text in texts for word in shlex.split(str(text))))
    except ValueError:
        return None


@dataclass(frozen=True)
class ExpectedContainer:
    """The start of the engine's container that a service specifies."""

    command: tuple[str, ...] | None
    args: tuple[str, ...]
    image: str | None
    env: Mapping[str, str] = field(default_factory=dict)  # literal values only
    whole: bool = (
        True  # the arguments are complete; otherwise they follow those of a ServingRuntime
    )
    inherited: tuple[str, ...] | None = (
        None  # the runtime's own speculation arguments; None if it cannot be read
    )
    by_digest: bool = False  # the image may name the digest of its tag
    appended: tuple[str, ...] = ()  # flags that a controller may append, with what follows

    @property
    def speculates(self) -> bool:
        """Return whether any of it sets speculation."""
        words = (*self.args, *(self.inherited or ()), *self.env.values())
        return any(_SPECULATION[0] in str(word) for word in words)


def expected(container: JsonView, **properties: Any) -> ExpectedContainer:
    """Return the start that a container specifies. ``properties``: further fields of :class:`ExpectedContainer`."""
    command = container.get("command")
    return ExpectedContainer(
        command=None if command is None else tuple(command),
        args=tuple(list_at(container, "args")),
        image=container.get("image"),
        env={
            e["name"]: e.get("value", "") for e in list_at(container, "env") if "valueFrom" not in e
        },
        **properties,
    )


def speculation_args(args: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that set speculation."""
    return tuple(word for word in args if str(word).startswith(_SPECULATION))


def matches_expected(container: JsonView, expected: ExpectedContainer) -> bool:
    """Return whether a container starts as expected. Placeholders of KServe such as ``{{.Name}}`` match any value."""
    args = tuple(list_at(container, "args"))
    added = [
        args.index(flag) for flag in expected.appended if flag in args and flag not in expected.args
    ]
    args = args[: min(added, default=None)]
    if len(args) < len(expected.args) or (expected.whole and len(args) != len(expected.args)):
        return False
    # A service without own arguments would match any Deployment, including that of the previous arm.
    head, tail = args[: len(args) - len(expected.args)], args[len(args) - len(expected.args) :]
    if expected.inherited is not None and speculation_args(head) != expected.inherited:
        return False
    if not _same_words(expected.args, tail):
        return False
    command = tuple(list_at(container, "command"))
    if expected.command is not None and not _same_words(expected.command, command):
        return False
    if expected.whole and expected.image is not None:
        image = str(container.get("image"))
        if not (
            same_image(expected.image, image) if expected.by_digest else expected.image == image
        ):
            return False
    have = {e["name"]: e.get("value", "") for e in list_at(container, "env")}
    return all(_same_value(value, have.get(name, "")) for name, value in expected.env.items())


def _same_words(wanted: Sequence[str], actual: Sequence[str]) -> bool:
    return len(wanted) == len(actual) and all(map(_same_value, wanted, actual))


def _same_value(wanted: str, actual: str) -> bool:
    return wanted == actual or "{{" in wanted


def matches_template(pod: JsonView, template: JsonView) -> bool:
    """Return whether a pod's container starts as the Deployment's template specifies.

    Additions of admission are ignored: variables (EKS adds the service account's role) and another spelling of the
    image (a mirror, a digest). Pods of an older template with the same start are counted by the Deployment's
    ``updatedReplicas``.
    """
    have, wanted = (
        {e["name"]: e for e in list_at(container, "env")} for container in (pod, template)
    )  # the last of a name counts
    return all(
        tuple(pod.get(key) or ()) == tuple(template.get(key) or ()) for key in ("command", "args")
    ) and all(
        (have.get(name) or {}).get("value", "") == e.get("value", "")
        for name, e in wanted.items()
        if "valueFrom" not in e
    )


def same_image(wanted: str, actual: str) -> bool:
    """Return whether a container has the requested image. Knative replaces a tag by its digest; then only the
    repository can be compared."""
    return wanted == actual or ("@sha256:" in actual and _repository(wanted) == _repository(actual))


def _repository(image: str) -> str:
    """Return an image name without tag and digest, and without the address of Docker Hub."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    name = head + slash + last.partition(":")[0]
    for host in _DOCKER_HUB:
        name = name.removeprefix(host)
    return name.removeprefix("library/")
