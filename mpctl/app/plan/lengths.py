"""Lengths of the requests of a service."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.plan.evidence import Evidence
from mpctl.app.requests import PlanRequest
from mpctl.app.workload import read_traffic

_PROMPT, _OUTPUT = 512.0, 256.0
_CHARACTERS = 4.0  # of a token of English text or code


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a prompt and of an answer, how many classes of traffic there are, and what was assumed."""

    prompt: float
    output: float
    classes: int
    notes: tuple[str, ...]


def lengths_of(request: PlanRequest, evidence: Evidence) -> Lengths:
    """Return the lengths as given, else from transcripts, prompt files or measured runs, else assumed.

    Raises:
        InputError: a file of prompts cannot be used.
    """
    traffic = [read_traffic(text) for text in request.prompts]
    notes = []
    prompt = request.prompt_tokens or evidence.prompt_tokens
    if prompt is None and traffic:
        every = [text for kind in traffic for text in kind.prompts]
        prompt = max(sum(map(len, every)) / len(every) / _CHARACTERS, 1.0)
        notes.append(f"prompts of {prompt:.0f} tokens on average, at {_CHARACTERS:g} characters each")
    output = request.output_tokens or evidence.output_tokens
    missing = [name for name, value in (("--prompt-tokens", prompt), ("--output-tokens", output)) if value is None]
    if missing:
        notes.append(
            f"{' and '.join(missing)} not given: "
            + " and ".join(f"{_PROMPT if 'prompt' in option else _OUTPUT:g}" for option in missing)
            + " assumed"
        )
    return Lengths(prompt or _PROMPT, output or _OUTPUT, max(len(traffic), 1), tuple(notes))
