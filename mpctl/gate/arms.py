"""Compare the conditions of two arms: between baseline and candidate only speculation may differ.

Another model, device, engine version or argument explains a difference in speed that the gate would call a gain. The
texts show another model at temperature 0 only. A condition that is unknown of one arm is not compared.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpctl.errors import Refused
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.run import ArmConditions, Run
from mpctl.manifest import EngineCommand

# Flags that say where an engine answers, or how its speculation is set.
_FREE = (
    "--host",
    "--port",
    "--uds",
    "--root-path",
    "--served-model-name",
    "--api-key",
    "--model",
    "--tokenizer",
)
_SPECULATION = "--speculative"
_CONDITIONS = {
    "device": "device",
    "engine version": "engine_version",
    "served context": "context_tokens",
}


@dataclass(frozen=True)
class Difference:
    """A condition that differs between the arms. ``name``: by which it can be accepted."""

    name: str
    baseline: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.name}: {self.baseline} and {self.candidate}"


def is_difference(name: str) -> bool:
    """Return whether a name is one by which a difference between arms is accepted."""
    return name.startswith("--") or name in ("model", *_CONDITIONS)


def arm_differences(baseline: ArmConditions, candidate: ArmConditions) -> tuple[Difference, ...]:
    """Return the conditions other than speculation in which two arms are known to differ."""
    return tuple(_differences(baseline, candidate))


def _differences(baseline: ArmConditions, candidate: ArmConditions) -> Iterator[Difference]:
    # The engine's arguments by flag. Where one repeats the name of what is served, it reads NAME.
    flags: list[dict[str, str | None]] = [
        {
            flag: "NAME" if value == arm.model else value
            for flag, value in EngineCommand(arm.argv).flags().items()
        }
        for arm in (baseline, candidate)
    ]
    if baseline.model_digest and candidate.model_digest:
        if baseline.model_digest != candidate.model_digest:
            yield Difference(
                "model",
                *(f"{arm.model} ({arm.model_digest[:12]})" for arm in (baseline, candidate)),
            )
    else:  # a runtime may serve the model by the name of its object, which is another for a candidate
        targets = [
            EngineCommand(arm.argv).model if arm.argv else arm.model
            for arm in (baseline, candidate)
        ]
        if all(targets) and targets[0] != targets[1]:
            yield Difference("model", *map(str, targets))
    for name, condition in _CONDITIONS.items():
        first, second = getattr(baseline, condition), getattr(candidate, condition)
        if first and second and first != second:
            yield Difference(name, str(first), str(second))
    if baseline.argv and candidate.argv:
        for name in sorted(flags[0].keys() | flags[1].keys()):
            if (
                name in _FREE or name.startswith(_SPECULATION) or not name.startswith("--")
            ):  # as sh -c has
                continue
            values = ["absent" if name not in each else each[name] or "set" for each in flags]
            if values[0] != values[1]:
                yield Difference(name, *values)


def open_differences(
    arms: Mapping[str, ArmConditions], accepted: tuple[str, ...]
) -> tuple[Difference, ...]:
    """Return the differences between the arms of a measurement that nobody accepted; none while one arm is unknown."""
    if BASELINE not in arms or CANDIDATE not in arms:
        return ()
    different = arm_differences(arms[BASELINE], arms[CANDIDATE])
    return tuple(difference for difference in different if difference.name not in accepted)


def require_alike(arms: Mapping[str, ArmConditions], accepted: tuple[str, ...]) -> None:
    """Refuse to measure arms that differ in more than speculation.

    Raises:
        Refused: a difference is not accepted by its name.
    """
    different = open_differences(arms, accepted)
    if different:
        options = shlex.join(
            word for difference in different for word in ("--accept", difference.name)
        )
        raise Refused(
            f"baseline and candidate differ in more than speculation: {'; '.join(map(str, different))}",
            hint=f"make them alike, or accept it as a part of the change: {options}",
        )


def differences(first: Run, first_arm: str, second: Run, second_arm: str) -> tuple[str, ...]:
    """Return the conditions, other than speculation, in which an arm each of two measurements differ."""
    return tuple(_between(first, first_arm, second, second_arm))


def _between(first: Run, first_arm: str, second: Run, second_arm: str) -> Iterator[str]:
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
    yield from map(str, arm_differences(mine, other))
    for name, value, others in (
        ("device", mine.device, other.device),
        ("engine version", mine.engine_version, other.engine_version),
    ):
        if bool(value) != bool(others):  # two days apart an unknown one may be another
            yield f"{name}: {value or 'unknown'} and {others or 'unknown'}"
