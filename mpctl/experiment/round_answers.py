"""The answers of rounds that both arms have not finished yet: token ids and texts, which no record has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mpctl.experiment.answers import Answer, Ask, Pair
from mpctl.experiment.arm import NO_TEXT
from mpctl.experiment.block import Block, LoadResult, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.prompt_files import Prompt, body_of
from mpctl.json_types import JsonView

_Key = tuple[str, str, int]  # arm, cell, round


@dataclass(frozen=True)
class _Received:
    """Prompt ids and ids of an answer, empty where the client got none, and its text."""

    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    text: str = ""


@dataclass
class RoundAnswers:
    """The answers of rounds that both arms have not finished yet."""

    _received: dict[_Key, list[_Received]] = field(default_factory=dict)

    def keep(self, block: Block, result: LoadResult) -> None:
        """Keep the answers of a block. Ids count where they are as many as the tokens that the engine reports."""
        self._received[block.arm, block.cell.key, block.repeat] = [
            _Received(request.prompt_ids, request.ids)
            if request.prompt_ids and len(request.ids) == sample.tokens
            else _Received(text=request.text)
            for request, sample in zip(result.requests, block.samples, strict=True)
        ]

    def rounds(self, cell: Cell) -> list[int]:
        """Return the numbers of the cell's rounds of which answers wait for the other arm's."""
        return sorted({repeat for _, key, repeat in self._received if key == cell.key})

    def pairs(
        self, baseline: Block, candidate: Block, prompts: Sequence[Prompt], max_tokens: int
    ) -> list[Pair]:
        """Return the pairs of one cell of a round that both arms answered; their texts are digests. Answers that an
        interrupted command has lost are known by their digests alone."""
        bodies = [body_of(prompt) for prompt in prompts]
        arms = [self._answers(block, bodies, max_tokens) for block in (baseline, candidate)]
        pairs = []
        for number, (body, *both) in enumerate(zip(bodies, *arms, strict=True)):
            base, cand = both
            textless = base.text == cand.text == NO_TEXT and not (base.ids and cand.ids)
            if not base.error and not cand.error and not textless:
                ask = Ask(baseline.cell.traffic, body, max_tokens, stream=True)
                pairs.append(Pair(number, ask, base, cand))
        return pairs

    def _answers(self, block: Block, bodies: Sequence[JsonView], max_tokens: int) -> list[Answer]:
        received = self._received.get((block.arm, block.cell.key, block.repeat)) or [
            _Received()
        ] * len(block.samples)
        answers = (
            _answer(mine, sample, max_tokens)
            for mine, sample in zip(received, block.samples, strict=True)
        )
        return [
            replace(answer, model=body.get("model", ""))
            for answer, body in zip(answers, bodies, strict=True)
        ]

    def texts(self, pair: Pair, block: Block) -> str:
        """Return the text of an answer without ids; "" where it is not known any more."""
        received = self._received.get((block.arm, block.cell.key, block.repeat))
        return received[pair.number].text if received else ""

    def forget(self, *blocks: Block) -> None:
        """Drop the answers of blocks that were compared."""
        for block in blocks:
            self._received.pop((block.arm, block.cell.key, block.repeat), None)


def _answer(received: _Received, sample: Sample, max_tokens: int) -> Answer:
    finish = "length" if sample.tokens >= max_tokens else "stop"
    return Answer(
        received.prompt_ids, received.ids, sample.text_digest, finish=finish, error=sample.error
    )
