"""Combine one arm each of two measurements into one measurement, if they were measured alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mpctl.errors import InputError
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.block import Block
from mpctl.experiment.run import Calibration, Run


def arm_of(run: Run, asked: str | None) -> str:
    """Return the arm asked for, else the only arm, else the candidate.

    Raises:
        InputError: the run has no such arm.
    """
    arms = sorted({b.arm for b in run.blocks})
    if not arms:
        raise InputError(f"{run.id} holds no block")
    chosen = asked or (arms[0] if len(arms) == 1 else CANDIDATE)
    if chosen not in arms:
        raise InputError(f"{run.id} has no arm {chosen}; known: {', '.join(arms)}")
    return chosen


def combine(first: Run, first_arm: str, second: Run, second_arm: str) -> Run:
    """Return ``first_arm`` of ``first`` as baseline and ``second_arm`` of ``second`` as candidate, over the blocks with
    the same prompts; repeats are numbered anew.

    Raises:
        InputError: the two have no block with the same prompts.
    """
    blocks: list[Block] = []
    theirs: dict[object, list[Block]] = {}
    for block in second.blocks:
        if block.arm == second_arm:
            theirs.setdefault((block.cell, _sent(block)), []).append(block)
    numbers: dict[object, int] = {}
    for block in first.blocks:
        matching = theirs.get((block.cell, _sent(block)), []) if block.arm == first_arm else []
        if matching:
            repeat = numbers.get(block.cell, 0)
            numbers[block.cell] = repeat + 1
            blocks.append(replace(block, arm=BASELINE, repeat=repeat))
            blocks.append(replace(matching.pop(0), arm=CANDIDATE, repeat=repeat))
    if not blocks:
        raise InputError(
            f"{first.id} and {second.id} have no block with the same prompts under the same conditions",
            hint="measure both with the same --prompts, --requests, --concurrency and --temperature",
        )
    arms = {BASELINE: first.arms.get(first_arm), CANDIDATE: second.arms.get(second_arm)}
    return replace(
        second,
        id=f"{first.id}:{first_arm} and {second.id}:{second_arm}",
        arms={name: arm for name, arm in arms.items() if arm is not None},
        blocks=tuple(blocks),
        calibration=_worse(first.calibration, second.calibration),
        planned=0,
    )


def differences(first: Run, first_arm: str, second: Run, second_arm: str) -> tuple[str, ...]:
    """Return the conditions, other than the arms, in which two measurements differ and mislead."""
    return tuple(_differences(first, first_arm, second, second_arm))


def _differences(first: Run, first_arm: str, second: Run, second_arm: str) -> Iterator[str]:
    for name in sorted({*first.prompts, *second.prompts}):
        in_first, in_second = first.prompts.get(name), second.prompts.get(name)
        if in_first is None or in_second is None:
            yield f"prompts of {name}: only in {(second if in_first is None else first).id}"
        elif in_first.digest != in_second.digest:
            yield f"prompts of {name}: {in_first.digest[:12]} and {in_second.digest[:12]}"
    if first.max_tokens != second.max_tokens:
        yield f"limit of an answer: {first.max_tokens or 'unknown'} and {second.max_tokens or 'unknown'} tokens"
    cells = {c.label for c in first.cells} ^ {c.label for c in second.cells}
    if cells:
        yield f"traffic: {'; '.join(sorted(cells))} in one of them only"
    mine, other = first.arms.get(first_arm), second.arms.get(second_arm)
    if mine is None or other is None:
        yield "conditions: not recorded in both"
        return
    if (mine.model_digest and other.model_digest) and mine.model_digest != other.model_digest:
        yield f"model: {mine.model} ({mine.model_digest[:12]}) and {other.model} ({other.model_digest[:12]})"
    elif not (mine.model_digest and other.model_digest) and mine.model != other.model:
        yield f"model: {mine.model} and {other.model}"
    for word, first_value, second_value in (
        ("device", mine.device, other.device),
        ("engine version", mine.engine_version, other.engine_version),
    ):
        if first_value != second_value:
            yield f"{word}: {first_value or 'unknown'} and {second_value or 'unknown'}"


def _worse(first: Calibration | None, second: Calibration | None) -> Calibration | None:
    """Return the calibration with the larger error; None where one is missing."""
    return max(first, second, key=lambda c: (c.p99_ms, -c.concurrency)) if first and second else None


def _sent(block: Block) -> tuple[str, ...]:
    return tuple(s.prompt for s in block.samples)
