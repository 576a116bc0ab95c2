"""The conditions of both arms side by side, and the differences between their arguments."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from mpctl import formatting
from mpctl.report.values import Report


def condition_rows(report: Report) -> list[dict[str, Any]]:
    """One row per condition: its name, both values, and whether they are the same."""
    rows: list[dict[str, Any]] = []
    for name, of in (
        ("Speculation", lambda arm: arm.spec),
        ("Engine", lambda arm: arm.engine_version),
        ("Device", lambda arm: arm.device),
        ("Model", lambda arm: arm.model),
        ("Model digest", lambda arm: arm.model_digest),
        ("KV cache, tokens", lambda arm: formatting.count(arm.kv_pool_tokens)),
    ):
        base, cand = _known(of(report.baseline)), _known(of(report.candidate))
        rows.append({"name": name, "baseline": base, "candidate": cand, "same": base == cand})
    return rows


def _known(text: str) -> str:
    return text or "?"


def argument_lines(baseline: Sequence[str], candidate: Sequence[str]) -> dict[str, Any]:
    """The arguments of both arms, a flag and its values to a line; ``new`` marks what the other arm was not given."""
    base_lines, cand_lines = _by_flag(baseline), _by_flag(candidate)
    matcher = difflib.SequenceMatcher(None, base_lines, cand_lines, autojunk=False)
    same_base = {i for block in matcher.get_matching_blocks() for i in range(block.a, block.a + block.size)}
    same_cand = {i for block in matcher.get_matching_blocks() for i in range(block.b, block.b + block.size)}
    return {
        "baseline": [{"text": text, "new": i not in same_base} for i, text in enumerate(base_lines)],
        "candidate": [{"text": text, "new": i not in same_cand} for i, text in enumerate(cand_lines)],
        "differ": base_lines != cand_lines,
    }


def _by_flag(argv: Sequence[str]) -> list[str]:
    import shlex

    lines: list[list[str]] = []
    for word in argv:
        if word.startswith("-") or not lines:
            lines.append([word])
        else:
            lines[-1].append(word)
    return [shlex.join(line) for line in lines] or ["?"]
