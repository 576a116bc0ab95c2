"""Variants of the classes of traffic that contexts, thinking and adapters ask for, as far as they are served."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mpctl.app.requests import MeasurementRequest
from mpctl.errors import InputError
from mpctl.experiment.prompt_files import body_of, text_of
from mpctl.experiment.variants import Variant, most_characters
from mpctl.experiment.workload import Traffic, Workload
from mpctl.json_types import JsonView
from mpctl.manifest.engine.engine_command import EngineCommand
from mpctl.platform.answers import prompt_tokens
from mpctl.platform.meter import served_models
from mpctl.rollout.ports import Endpoint
from mpctl.stats.sequential import FIRST_LOOK

ALL = "all"
_MOST = 6  # variants of a class: with more, each has too few prompts for a verdict
_AT_ONCE = 8
_SAMPLE_CHARACTERS, _FEWEST = 2**18, 8  # of the prompts that are tokenized to find a length
_SLACK, _SLACK_TOKENS = (
    0.03,
    8,
)  # of a length, by which prompts with as many characters may have more tokens
_TRIES = 6


def with_variants(
    workload: Workload,
    request: MeasurementRequest,
    endpoints: Sequence[Endpoint],
    command: EngineCommand | None = None,
) -> Workload:
    """Return the workload with its classes divided into the variants that are asked for. ``endpoints``: of the arms
    that run, the baseline first. ``command``: of the manifest with which the candidate starts; its adapters are
    served by both arms.

    Raises:
        InputError: something that is asked for is not served, or there are too many variants or too few prompts.
    """
    if not request.asks_for_variants:
        return workload
    named = adapters_named(command) if command is not None else frozenset()
    served = [_Served.by(endpoint) for endpoint in endpoints]
    adapters = _adapters(request.adapters, served, named)
    for context in request.contexts:
        _require_context(context, served, request.max_tokens)
    modes: tuple[bool | None, ...] = {"on": (True,), "off": (False,), "both": (True, False)}.get(
        request.thinking or "", (None,)
    )
    if request.thinking:
        _require_thinking(endpoints[0])
    chosen = list(itertools.product(request.contexts or (0,), modes, adapters))
    if len(chosen) > _MOST:
        raise InputError(
            f"{len(chosen)} variants of a class leave each too few prompts (at most {_MOST})",
            hint="name fewer lengths or adapters",
        )
    traffic = tuple(
        kind for base in workload.traffic for kind in _divided(base, chosen, endpoints[0], request)
    )
    divided = replace(workload, traffic=traffic, repeats=request.rounds or 1)
    if request.rounds is None:
        _require_cost(workload, divided)
        divided = replace(divided, repeats=divided.default_rounds)
    return divided


def adapters_named(command: EngineCommand) -> frozenset[str]:
    """The adapters of an engine's --lora-modules, each ``NAME=PATH`` or a JSON object."""
    words = itertools.dropwhile(lambda word: not word.startswith("--lora-modules"), command.argv)
    first = next(words, "").partition("=")[2]
    values = [
        *filter(None, [first]),
        *itertools.takewhile(lambda word: not word.startswith("--"), words),
    ]
    names = set()
    for value in values:
        try:
            names.add(str(json.loads(value)["name"]))
        except (ValueError, KeyError, TypeError):
            names.add(value.partition("=")[0])
    return frozenset(names)


@dataclass(frozen=True)
class _Served:
    """An engine's ``model``, the adapters on it, and the longest request with its answer in tokens."""

    address: str
    model: str
    adapters: tuple[str, ...]
    context: int | None

    @classmethod
    def by(cls, endpoint: Endpoint) -> _Served:
        models: Mapping[str, JsonView] = served_models(endpoint)
        adapters = tuple(name for name, record in models.items() if record.get("parent"))
        context = models.get(endpoint.model, {}).get("max_model_len")
        return cls(
            endpoint.base_url,
            endpoint.model,
            adapters,
            context if isinstance(context, int) else None,
        )


def _adapters(
    asked: tuple[str, ...], served: Sequence[_Served], named: frozenset[str]
) -> tuple[str, ...]:
    """The names that requests carry; one empty name for the model where no adapter is asked for."""
    if not asked:
        return ("",)
    first = served[0]
    possible = [name for name in first.adapters if all(name in other.adapters for other in served)]
    if named:
        possible = [name for name in possible if name in named]
    if not possible:
        raise InputError(
            f"{first.address} serves no LoRA adapter that the candidate has, too",
            field="MPCTL_ADAPTERS",
            hint="start the engine with --enable-lora --lora-modules NAME=PATH",
        )
    if asked == (ALL,):
        return (first.model, *possible)
    for name in asked:
        if name not in (first.model, *possible):
            raise InputError(
                f"adapter {name} is not served by {first.address} and the candidate",
                field="MPCTL_ADAPTERS",
                hint=f"served: {', '.join((first.model, *possible))}",
            )
    return asked


def _require_context(context: int, served: Sequence[_Served], max_tokens: int) -> None:
    for engine in served:
        if engine.context is None:
            raise InputError(
                f"{engine.address}/v1/models does not tell how many tokens a request may have",
                field="MPCTL_CONTEXTS",
                hint="try again, or give prompts of that length with --prompts",
            )
        if context > engine.context:
            raise InputError(
                f"{context} tokens are more than the {engine.context} tokens that {engine.address} serves",
                field="MPCTL_CONTEXTS",
            )
    if context <= max_tokens + _SLACK_TOKENS:
        raise InputError(
            f"{context} tokens leave no room for a prompt beside an answer of {max_tokens}",
            field="MPCTL_CONTEXTS",
            hint=f"lower --max-tokens, or ask for more than {max_tokens + _SLACK_TOKENS}",
        )


def _require_thinking(endpoint: Endpoint) -> None:
    """Refuse where the rendered prompt does not depend on ``enable_thinking``."""
    bodies = [
        {**body_of("Say something"), "chat_template_kwargs": {"enable_thinking": on}}
        for on in (True, False)
    ]
    thinking, direct = _tokenized(endpoint, bodies)
    if thinking == direct:
        raise InputError(
            f"the chat template of {endpoint.model} does not read enable_thinking",
            field="MPCTL_THINKING",
            hint="leave out thinking; the model always answers alike",
        )


def _tokenized(endpoint: Endpoint, bodies: Sequence[JsonView]) -> list[tuple[int, ...]]:
    tokens = prompt_tokens(endpoint, bodies, concurrency=_AT_ONCE)
    if any(ids is None for ids in tokens):
        raise InputError(
            f"{endpoint.base_url}/tokenize does not answer, which contexts and thinking need"
        )
    return [ids for ids in tokens if ids is not None]


def _divided(
    base: Traffic,
    chosen: Sequence[tuple[int, bool | None, str]],
    endpoint: Endpoint,
    request: MeasurementRequest,
) -> list[Traffic]:
    """The variants of a class, each with an equal share of it."""
    kinds = []
    characters: dict[int, int] = {0: 0}
    for part, (context, thinking, adapter) in enumerate(chosen):
        variant = Variant(
            base.name, base.digest(), part, len(chosen), context, 0, thinking, adapter
        )
        if context not in characters:
            characters[context] = _characters(variant, base, endpoint, context - request.max_tokens)
        variant = replace(variant, characters=characters[context])
        share = base.share / len(chosen)
        kinds.append(Traffic(variant.name, variant.prompts(base.prompts), share, variant=variant))
    return kinds


def _characters(variant: Variant, base: Traffic, endpoint: Endpoint, most_tokens: int) -> int:
    """Characters of a prompt that has at most ``most_tokens`` tokens, by the engine's own count."""

    def most(characters: int, count: int) -> int:
        sample = replace(variant, part=0, parts=1, characters=characters).prompts(
            base.prompts[:count]
        )
        bodies = [body_of(prompt) for prompt in sample]
        return max(map(len, _tokenized(endpoint, bodies)))

    wanted = most_tokens - max(int(_SLACK * most_tokens), _SLACK_TOKENS)
    shortest = most(0, base.count)
    if shortest > wanted:
        raise InputError(
            f"prompts of {base.name} have up to {shortest} tokens, and {variant.context} leave {wanted}",
            field="MPCTL_CONTEXTS",
            hint="ask for longer contexts, lower --max-tokens, or take shorter prompts such as --prompts fresh",
        )
    characters = 2 * wanted
    for _ in range(_TRIES):
        tokens = most(characters, _FEWEST)
        if 1 - 2 * _SLACK <= tokens / wanted <= 1:
            break
        characters = int(characters * wanted / tokens * (1 - _SLACK / 3))
    while most(characters, max(_SAMPLE_CHARACTERS // characters, _FEWEST)) > most_tokens:
        characters = int(characters * (1 - _SLACK))
    if characters > most_characters() - max(len(text_of(prompt)) for prompt in base.prompts):
        raise InputError(
            f"the built-in sets have no {variant.context} tokens without repeating a passage",
            field="MPCTL_CONTEXTS",
            hint="give prompts of that length with --prompts NAME=FILE; mpctl's have about "
            f"{wanted * most_characters() // characters} tokens",
        )
    return characters


def _require_cost(alone: Workload, divided: Workload) -> None:
    """Refuse variants that even the fewest rounds cannot measure at the cost of one and a half classes."""
    single = replace(alone, repeats=1)
    most = 1.5 * single.default_rounds * single.per_round
    if divided.per_round * FIRST_LOOK > most:
        raise InputError(
            f"{divided.variants} variants in {FIRST_LOOK} rounds take {divided.per_round * FIRST_LOOK} prompts, and "
            f"{most:.0f} are one and a half times those of one",
            field="--concurrency",
            hint="lower --concurrency or name fewer variants, or accept the cost with --repeats",
        )
