"""Answers of a small seeded language model whose probabilities are known exactly, with faults planted in its engine, in
its parser, or in the gateway before it.

The model is a table of logits by the last two tokens. An engine decodes all requests of a pass as one batch; each
engine adds errors of its own to every logit, which stand for rounding. An answer is rendered to text, JSON or a tool
call from its token ids alone, so that a fault of the parser is a transformation of a rendered answer.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mpctl.experiment.answers import Answer, Ask, Pair, Repeat, Scored, ToolCall
from mpctl.gate.answer_forms import documents
from mpctl.platform.in_child import schemas

TOKENS, CONTEXTS, LIMIT, END = 64, 4093, 96, 0
PROMPT_TOKENS = 2
_DOCUMENT = 32  # tokens of a call or JSON document, at most
SCHEMA = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 63}},
        "checked": {"type": "boolean"},
        "state": {"type": "string", "enum": ["new", "used"]},
    },
    "required": ["rows", "checked", "state"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "record", "parameters": SCHEMA}}
_matches = schemas({})
FORMAT = {"type": "json_schema", "json_schema": {"name": "record", "schema": SCHEMA}}


def _table(seed: int = 7) -> np.ndarray:
    """Logits by context, with the figures of the demo's model on a real engine: 0.4 nats of entropy a token, one gap
    of twelve between the two best below 0.1 nats, answers of 90 tokens. One context of seventeen is open: twenty tokens
    are plausible."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-9.0, 1.0, (CONTEXTS, TOKENS))
    best = 1 + rng.permuted(np.tile(np.arange(TOKENS - 1), (CONTEXTS, 1)), axis=1)[:, :20]
    rows = np.arange(CONTEXTS)
    logits[rows, best[:, 0]] = 2.0
    logits[rows, best[:, 1]] = 2.0 - rng.gamma(0.8, 7.0, CONTEXTS)
    opened = np.flatnonzero(rng.random(CONTEXTS) < 0.06)
    logits[opened[:, None], best[opened, 2:]] = 2.0 - rng.gamma(1.0, 1.0, (len(opened), 18))
    ends = rng.random(CONTEXTS) < 0.003
    logits[ends, END] = 10.0
    return logits


TABLE = _table()


def ask_of(
    number: int, kind: str, *, temperature: float = 0.0, top_p: float = 1.0, stream: bool = False
) -> Ask:
    """A request; ``number`` decides its answer."""
    body: dict[str, object] = {"messages": [{"role": "user", "content": f"{kind} {number}"}]}
    if kind == "tools":
        body |= {"tools": [TOOL], "tool_choice": "required"}
    if kind == "json":
        body |= {"response_format": FORMAT}
    return Ask(kind, body, LIMIT, temperature, top_p, stream)


def asks_of(size: int, *, seed: int = 0) -> list[tuple[int, Ask]]:
    """A pass of about ``size`` requests with the seed of each answer: a quarter tools, an eighth JSON, a half sampled,
    streamed twins, four prompts sampled four times, and the turns of a session of which the first comes again."""
    numbers = iter(range(seed * 10_000, seed * 10_000 + 10_000))
    made: list[tuple[int, Ask]] = []
    for _ in range(size // 8):
        tool = next(numbers)
        made += [(tool, ask_of(tool, "tools", stream=True))]
        made += [(n, ask_of(n, "tools", stream=n % 2 == 0)) for n in [next(numbers)]]
        made += [(n, ask_of(n, "json", stream=n % 2 == 0)) for n in [next(numbers)]]
        made += [(n, ask_of(n, "own")) for n in (next(numbers), next(numbers))]
        made += [
            (n, ask_of(n, "prose", temperature=1.0))
            for n in (next(numbers), next(numbers), next(numbers))
        ]
        made += [
            (n, ask_of(n, "own", temperature=0.7, top_p=0.9))
            for n in (next(numbers), next(numbers))
        ]
    twins = [
        (n, replace(ask, stream=not ask.stream)) for n, ask in made if ask.kind in ("tools", "json")
    ][:4]
    same = [(n, ask_of(n, "same", temperature=1.0)) for n in [next(numbers) for _ in range(4)]] * 4
    turns = [next(numbers) for _ in range(3)]
    session = [(n, ask_of(n, "session")) for n in (*turns, turns[0])]
    return [*made, *twins, *same, *session]


@dataclass
class Engine:
    """An engine of the model. ``noise``: standard deviation in nats of the error of each logit. ``logits``,
    ``tokens``: faults, which change a step's logits, or the tokens chosen from them."""

    noise: float
    rng: np.random.Generator
    logits: Callable[["Step"], np.ndarray] | None = None
    tokens: Callable[["Step", np.ndarray], np.ndarray] | None = None
    seeds: np.random.Generator | None = None  # used anew for each request: a fault
    temperature: Callable[[float], float] = lambda t: t
    top_p: Callable[[float], float] = lambda p: p
    grammar: bool = True

    def answer(self, asks: Sequence[tuple[int, Ask]]) -> list[Answer]:
        """Decode all requests as one batch."""
        count = len(asks)
        prompts = np.array(
            [[(n * 31) % (TOKENS - 1) + 1, (n // 63 * 17 + n) % (TOKENS - 1) + 1] for n, _ in asks]
        )
        limits = np.array([ask.max_tokens for _, ask in asks])
        most = int(limits.max())
        history = np.zeros((count, PROMPT_TOKENS + most), dtype=np.int64)
        history[:, :PROMPT_TOKENS] = prompts
        chosen, best = np.zeros((count, most)), np.zeros((count, most))
        lengths = limits.copy()
        active = np.ones(count, dtype=bool)
        constrained = np.array([ask.constrained and self.grammar for _, ask in asks])
        temperatures = np.array([self.temperature(ask.temperature) for _, ask in asks])
        nuclei = np.array([self.top_p(ask.top_p) for _, ask in asks])
        salts = np.array([n for n, _ in asks])
        memory: dict[str, object] = {}
        for position in range(most):
            step = Step(self, asks, history, position, salts, memory, active)
            raw = step.clean() + self.rng.normal(0.0, self.noise or 1e-12, (count, TOKENS))
            step.raw = raw
            if self.logits is not None:
                raw = self.logits(step)
            logprobs = raw - _logsumexp(raw)
            shown = np.where(
                constrained[:, None] & _forbidden(position)[None, :], -np.inf, logprobs
            )
            tokens = _choose(shown, temperatures, nuclei, self._uniform(count, position, salts))
            if self.tokens is not None:
                tokens = self.tokens(step, tokens)
            rows = np.arange(count)
            chosen[:, position], best[:, position] = logprobs[rows, tokens], logprobs.max(axis=1)
            history[:, PROMPT_TOKENS + position] = tokens
            ended = active & ((tokens == END) | (position + 1 == limits))
            lengths[ended] = position + 1
            active &= ~ended
        return [
            rendered(
                asks[n][1],
                Answer(
                    prompt_ids=tuple(map(int, prompts[n])),
                    ids=tuple(map(int, history[n, PROMPT_TOKENS : PROMPT_TOKENS + lengths[n]])),
                    finish="stop"
                    if history[n, PROMPT_TOKENS + lengths[n] - 1] == END
                    else "length",
                    logprobs=tuple(map(float, chosen[n, : lengths[n]])),
                    best=tuple(map(float, best[n, : lengths[n]])),
                ),
            )
            for n in range(count)
        ]

    def _uniform(self, count: int, position: int, salts: np.ndarray) -> np.ndarray:
        if self.seeds is None:
            return self.rng.random(count)
        return np.array([np.random.default_rng([int(s), position]).random() for s in salts])

    def score(self, answers: Sequence[Answer], alternatives: int) -> list[Scored]:
        """The log probabilities of answers' tokens with fresh errors of each logit, as a prefill computes them."""
        scores = []
        for answer in answers:
            history = np.array([*answer.prompt_ids, *answer.ids])
            logits = TABLE[_context(history[:-2], history[1:-1])]
            logits = logits + self.rng.normal(0.0, self.noise or 1e-12, logits.shape)
            logprobs = logits - _logsumexp(logits)
            rows = np.arange(len(answer.ids))
            own = logprobs[rows, answer.ids]
            order = np.sort(logprobs, axis=1)[:, ::-1][:, :alternatives]
            tops = [
                tuple(top) if value >= top[-1] else (*top, value)
                for top, value in zip(order.tolist(), own.tolist(), strict=True)
            ]
            scores.append(
                Scored(tuple(own.tolist()), tuple(tops), tuple(logprobs.argmax(axis=1).tolist()))
            )
        return scores


@dataclass
class Step:
    """One step of a batch. ``memory``: what a fault remembers; ``active``: requests that have not ended."""

    engine: Engine
    asks: Sequence[tuple[int, Ask]]
    history: np.ndarray
    position: int
    salts: np.ndarray
    memory: dict[str, object]
    active: np.ndarray
    raw: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def clean(self, back: int = 0, zeroed: bool = False) -> np.ndarray:
        """The model's logits, ``back`` steps ago, or with the older token of the context lost."""
        end = max(self.position + PROMPT_TOKENS - back, PROMPT_TOKENS)
        older = self.history[:, end - 2]
        return TABLE[_context(np.zeros_like(older) if zeroed else older, self.history[:, end - 1])]

    def hits(self, share: float) -> np.ndarray:
        """Requests that a fault hits in this step."""
        return self.engine.rng.random(len(self.asks)) < share

    def stricken(self, share: float) -> np.ndarray:
        """Requests that a fault hits in every step."""
        if "stricken" not in self.memory:
            self.memory["stricken"] = self.hits(share)
        return self.memory["stricken"]  # type: ignore[return-value]


def _context(older: np.ndarray, newer: np.ndarray) -> np.ndarray:
    return (older * 61 + newer * 1009 + older * newer) % CONTEXTS


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    top = logits.max(axis=1, keepdims=True)
    return top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True))


def _forbidden(position: int) -> np.ndarray:
    """Tokens that the grammar of tools and JSON does not allow at a position; a call or document ends in time."""
    forbidden = (np.arange(TOKENS) % 3 != position % 3) | (position >= _DOCUMENT)
    forbidden[END] = position < 8
    return forbidden


def _choose(
    logprobs: np.ndarray, temperatures: np.ndarray, nuclei: np.ndarray, uniform: np.ndarray
) -> np.ndarray:
    tokens = logprobs.argmax(axis=1)
    sampled = np.flatnonzero(temperatures > 0)
    if not len(sampled):
        return tokens
    order = np.argsort(-logprobs[sampled], axis=1, kind="stable")
    law = np.take_along_axis(logprobs[sampled], order, axis=1)
    law = np.exp((law - law[:, :1]) / temperatures[sampled, None])
    law /= law.sum(axis=1, keepdims=True)
    law = np.where(np.cumsum(law, axis=1) - law < nuclei[sampled, None], law, 0.0)
    chosen = (np.cumsum(law, axis=1) <= (uniform[sampled] * law.sum(axis=1))[:, None]).sum(axis=1)
    tokens[sampled] = order[np.arange(len(sampled)), np.minimum(chosen, TOKENS - 1)]
    return tokens


def rendered(ask: Ask, answer: Answer) -> Answer:
    """The answer with what a right server makes of its token ids."""
    rows = [token for token in answer.ids if token != END]
    document = json.dumps(
        {"rows": rows, "checked": len(rows) % 2 == 0, "state": "new" if len(rows) % 3 else "used"}
    )
    if ask.kind == "tools":
        finish = "tool_calls" if answer.finish == "stop" else answer.finish
        return replace(answer, tool_calls=(ToolCall("record", document),), finish=finish)
    return replace(
        answer, text=document if ask.kind == "json" else " ".join(f"w{row}" for row in rows)
    )


def matched(ask: Ask, answer: Answer) -> Answer:
    """The answer with what its documents are by their schemas, as the platform tells it of every answer."""
    fits = [
        (document, *_matches((json.dumps(schema), [text])))
        for document, text, schema in documents(ask, answer)
    ]
    return replace(
        answer,
        document_fits=all(right for document, right in fits if document),
        arguments_fit=all(right for document, right in fits if not document),
    )


@dataclass(frozen=True)
class Fault:
    """A planted fault. ``engine``: makes an engine faulty, given the share; ``forms``: changes what a server renders.
    ``share``: of tokens, steps or answers; ``of``: kinds of requests that it hits, all where empty."""

    name: str
    share: float
    engine: Callable[[Engine, float], Engine] | None = None
    forms: Callable[[Ask, Answer, Answer], Answer] | None = None
    of: tuple[str, ...] = ()


def _by_logits(change: Callable[[Step, float], np.ndarray]) -> Callable[[Engine, float], Engine]:
    return lambda engine, share: replace(engine, logits=lambda step: change(step, share))


def _by_tokens(
    change: Callable[[Step, np.ndarray, float], np.ndarray],
) -> Callable[[Engine, float], Engine]:
    return lambda engine, share: replace(
        engine, tokens=lambda step, tokens: change(step, tokens, share)
    )


def _random(step: Step, tokens: np.ndarray, share: float) -> np.ndarray:
    return np.where(step.hits(share), step.engine.rng.integers(1, TOKENS, len(tokens)), tokens)


def _second(step: Step, tokens: np.ndarray, share: float) -> np.ndarray:
    return np.where(step.hits(share), np.argsort(step.raw, axis=1)[:, -2], tokens)


def _stale(step: Step, share: float) -> np.ndarray:
    return np.where(step.hits(share)[:, None], step.clean(back=1), step.raw)


def _unverified(step: Step, tokens: np.ndarray, share: float) -> np.ndarray:
    return np.where(step.hits(share), step.clean(zeroed=True).argmax(axis=1), tokens)


def _looping(step: Step, tokens: np.ndarray, share: float) -> np.ndarray:
    back = step.history[:, max(step.position + PROMPT_TOKENS - 3, 0)]
    return np.where(step.stricken(share) & (step.position > 8) & (back != END), back, tokens)


def _swapped(step: Step, share: float) -> np.ndarray:
    raw = step.raw.copy()
    running = np.flatnonzero(step.active)
    if len(running) > 1 and step.engine.rng.random() < share:
        first, second = step.engine.rng.choice(running, 2, replace=False)
        raw[[first, second]] = raw[[second, first]]
    return raw


def _garbled(step: Step, tokens: np.ndarray, share: float) -> np.ndarray:
    return np.where(step.stricken(share), step.engine.rng.integers(1, TOKENS, len(tokens)), tokens)


def _zeroed(step: Step, share: float) -> np.ndarray:
    raw = step.raw.copy()
    if step.engine.rng.random() < share:
        row = int(step.engine.rng.integers(len(raw)))
        raw[row] = step.clean(zeroed=True)[row]
    return raw


def _poisoned(step: Step, share: float) -> np.ndarray:
    """The prefix of one request in so many lost its blocks, and stays so."""
    hit = step.salts % round(1 / share) == 0
    return np.where(hit[:, None] & (step.position < 6), step.clean(zeroed=True), step.raw)


def _repoisoned(step: Step, share: float) -> np.ndarray:
    """The last request, a turn that was right the first time, meets damaged blocks."""
    del share
    last = np.arange(len(step.asks)) == len(step.asks) - 1
    return np.where(last[:, None], step.clean(zeroed=True), step.raw)


def _endless(step: Step, share: float) -> np.ndarray:
    raw = step.raw.copy()
    raw[step.stricken(share), END] = -30.0
    return raw


def _early(step: Step, tokens: np.ndarray, share: float) -> np.ndarray:
    return np.where(step.hits(share), END, tokens)


def _noisy(step: Step, share: float) -> np.ndarray:
    return step.raw + step.engine.rng.normal(0.0, share, step.raw.shape)


def _partly_greedy(step: Step, tokens: np.ndarray, share: float) -> np.ndarray:
    sampled = np.array([not ask.greedy for _, ask in step.asks])
    return np.where(step.hits(share) & sampled, step.raw.argmax(axis=1), tokens)


def _seeded(engine: Engine, share: float) -> Engine:
    return replace(engine, seeds=engine.rng)


def _heated(engine: Engine, share: float) -> Engine:
    return replace(engine, temperature=lambda t: t * share)


def _no_nucleus(engine: Engine, share: float) -> Engine:
    return replace(engine, top_p=lambda p: 1.0)


def _no_grammar(engine: Engine, share: float) -> Engine:
    return replace(engine, grammar=False)


ENGINE_FAULTS = (
    *(Fault("token random", share, _by_tokens(_random)) for share in (0.1, 0.01, 0.001)),
    *(Fault("second best token", share, _by_tokens(_second)) for share in (0.05, 0.01)),
    Fault("logits of the step before", 0.3, _by_logits(_stale)),
    Fault("drafts accepted unverified", 0.05, _by_tokens(_unverified)),
    Fault("repetition loop in answers", 0.07, _by_tokens(_looping)),
    Fault("rows of two requests swapped", 0.02, _by_logits(_swapped)),
    Fault("requests garbled", 0.04, _by_tokens(_garbled)),
    Fault("a KV block zeroed in steps", 0.2, _by_logits(_zeroed)),
    Fault("prefix cache poisoned", 0.1, _by_logits(_poisoned)),
    Fault("session poisoned after its first turn", 1.0, _by_logits(_repoisoned)),
    Fault("end of text suppressed", 0.3, _by_logits(_endless)),
    Fault("early end", 0.01, _by_tokens(_early)),
    Fault("noise of 0.5 nats", 0.5, _by_logits(_noisy)),
    *(Fault("temperature times", share, _heated) for share in (1.5, 0.6)),
    Fault("top_p ignored", 1.0, _no_nucleus),
    Fault("tokens taken greedily", 1.0, _by_tokens(_partly_greedy)),
    Fault("one token in ten taken greedily", 0.1, _by_tokens(_partly_greedy)),
    Fault("seed used again", 1.0, _seeded),
    Fault("grammar not applied", 1.0, _no_grammar),
)


def _call(change: Callable[[dict[str, object]], object]) -> Callable[[Ask, Answer, Answer], Answer]:
    def changed(ask: Ask, answer: Answer, other: Answer) -> Answer:
        calls = [
            ToolCall(c.name, json.dumps(change(json.loads(c.arguments)))) for c in answer.tool_calls
        ]
        return replace(answer, tool_calls=tuple(calls))

    return changed


def _of_text(change: Callable[[str], str]) -> Callable[[Ask, Answer, Answer], Answer]:
    def changed(ask: Ask, answer: Answer, other: Answer) -> Answer:
        calls = tuple(replace(c, arguments=change(c.arguments)) for c in answer.tool_calls)
        return replace(answer, text=change(answer.text), tool_calls=calls)

    return changed


def _digit(text: str) -> str:
    at = next((n for n, c in enumerate(text) if c.isdigit()), None)
    return text if at is None else f"{text[:at]}{(int(text[at]) + 1) % 6}{text[at + 1 :]}"


_TOOLS = ("tools",)
_TEXTS = ("json", "own", "prose", "session", "sentinel", "language")
FORM_FAULTS: tuple[tuple[str, tuple[str, ...], Callable[[Ask, Answer, Answer], Answer]], ...] = (
    ("argument lost", _TOOLS, _call(lambda a: {k: v for k, v in a.items() if k != "checked"})),
    ("arguments {}", _TOOLS, _call(lambda a: {})),
    (
        "key mangled",
        _TOOLS,
        _call(lambda a: {f"{k}=x" if k == "rows" else k: v for k, v in a.items()}),
    ),
    (
        "name mangled",
        _TOOLS,
        lambda ask, a, o: replace(
            a, tool_calls=tuple(replace(c, name=f"{c.name}=ls") for c in a.tool_calls)
        ),
    ),
    (
        "call leaks into the text",
        _TOOLS,
        lambda ask, a, o: replace(
            a, text=f"<tool_call>{a.tool_calls[0].arguments}</tool_call>", tool_calls=()
        ),
    ),
    ("last call lost", _TOOLS, lambda ask, a, o: replace(a, tool_calls=a.tool_calls[:-1])),
    ("JSON or text cut", _TEXTS, _of_text(lambda t: t[: len(t) // 2])),
    ("one digit changed", ("tools", *_TEXTS), _of_text(_digit)),
    ("stream chunk dropped", ("tools", *_TEXTS), _of_text(lambda t: t[:5] + t[9:])),
    ("stream chunk doubled", ("tools", *_TEXTS), _of_text(lambda t: t[:9] + t[5:])),
    ("start of the text dropped", _TEXTS, _of_text(lambda t: t[4:])),
    ("answer lost", _TEXTS, lambda ask, a, o: replace(a, text="")),
    (
        "another request's answer",
        ("tools", *_TEXTS),
        lambda ask, a, o: replace(
            o, prompt_ids=a.prompt_ids, ids=a.ids, logprobs=a.logprobs, best=a.best
        ),
    ),
    (
        "refusal instead of the answer",
        _TEXTS,
        lambda ask, a, o: replace(a, text="I cannot help with that."),
    ),
    (
        "finish reason wrong",
        ("tools", *_TEXTS),
        lambda ask, a, o: replace(a, finish="content_filter"),
    ),
    ("HTTP 500", (), lambda ask, a, o: Answer(error="HTTP 500")),
)
FAULTS = (
    *ENGINE_FAULTS,
    *(
        Fault(name, share, None, change, of)
        for name, of, change in FORM_FAULTS
        for share in (0.04, 0.1, 0.3)
    ),
)


def arms(fault: Fault | None, noise: float, rng: np.random.Generator) -> tuple[Engine, Engine]:
    """The baseline's engine, and the candidate's with the fault."""
    baseline, candidate = (
        Engine(noise, np.random.default_rng(rng.integers(2**63))) for _ in range(2)
    )
    if fault is not None and fault.engine is not None:
        candidate = fault.engine(candidate, fault.share)
    return baseline, candidate


def simulated_pass(
    fault: Fault | None,
    *,
    size: int,
    noise: float,
    seed: int,
    only: Sequence[tuple[int, Ask]] = (),
    first: int = 0,
) -> tuple[list[Pair], Engine, Engine]:
    """The pairs of a pass, scored as the contract of mpctl.experiment.answers says. ``only``: these requests;
    ``first``: the number of the first pair."""
    rng = np.random.default_rng([seed, len(only), first])
    baseline, candidate = arms(fault, noise, rng)
    asks = only or asks_of(size, seed=seed)
    own, mine = baseline.answer(asks), candidate.answer(asks)
    if fault is not None and fault.forms is not None:
        hits = rng.random(len(mine)) < fault.share
        mine = [
            fault.forms(ask, a, mine[n - 1])
            if hits[n] and (not fault.of or ask.kind in fault.of)
            else a
            for n, ((_, ask), a) in enumerate(zip(asks, mine, strict=True))
        ]
    pairs = []
    control = 0
    for n, ((_, ask), b, c) in enumerate(zip(asks, own, mine, strict=True)):
        control += ask.greedy
        scored = own_scored = None
        differs = not ask.greedy or b.ids != c.ids
        if c.ids and differs:
            scored = baseline.score([c], 2 if ask.greedy else 20)[0]
        if (ask.greedy and (control <= 16 or differs)) or ask.kind == "same":
            own_scored = baseline.score([b], 2)[0]
        pairs.append(Pair(first + n, ask, matched(ask, b), matched(ask, c), own_scored, scored))
    return pairs, baseline, candidate


def sampled_again(
    fault: Fault | None,
    pairs: Sequence[Pair],
    asks: Sequence[tuple[int, Ask]],
    *,
    noise: float,
    seed: int,
) -> tuple[list[Pair], list[tuple[int, Ask]]]:
    """The sampled requests of a pass once more, without those that bring a seed: their pairs, and the requests with the
    seeds of their answers."""
    drawn = [(n, ask) for n, ask in asks if not ask.greedy and "seed" not in ask.body]
    only = list({ask.digest: (n, ask) for n, ask in drawn}.values())
    further, _, _ = simulated_pass(
        fault, size=0, noise=noise, seed=seed, only=only, first=len(pairs)
    )
    return further, only


def repeats_of(
    fault: Fault | None,
    numbers: Sequence[int],
    pairs: Sequence[Pair],
    asks: Sequence[tuple[int, Ask]],
    noise: float,
) -> list[Repeat]:
    """The requests of a check's findings sent again alone, the first answers scored again."""
    repeats = []
    for number in numbers:
        first = pairs[number]
        (alone,), baseline, _ = simulated_pass(
            fault, size=0, noise=noise, seed=number + 1, only=[asks[number]]
        )
        again = 2 if first.ask.greedy else 20
        rescored = baseline.score([first.candidate], again)[0] if first.candidate.ids else None
        own = alone.own or (baseline.score([alone.baseline], 2)[0] if alone.baseline.ids else None)
        repeats.append(Repeat(replace(alone, number=number, own=own), rescored))
    return repeats
