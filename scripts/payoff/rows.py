"""The published rows as questions to the model with their measured answers; what is left out, and why.

`published.csv` keeps what the sources state, errors included. Every correction and exclusion is a rule here.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from mpctl.estimate.shape import find_gpu, model_shape
from mpctl.lab.payoff.scenario import (
    LOOKUPS,
    Acceptance,
    Scenario,
    check_rates,
    is_known,
    precision_of,
)
from mpctl.methods import parse_version

TABLE = Path(__file__).with_name("published.csv")
Record = dict[str, str]

# KV memory that the engines logged, GiB on one GPU (tomasruizt/vllm-scripts at d94d714, serve logs), as tokens.
_POOLS = {
    "": 69232.0,
    "RedHatAI/Qwen3-32B-speculator.eagle3": 47264.0,
    "Qwen/Qwen3-1.7B": 32528.0,
    "Qwen/Qwen3-4B": 18560.0,
}
_GPUS = {"H100-94GB": "H100-SXM-94", "H100-80GB SXM": "H100-SXM", "H100-80GB": "H100-SXM"}
# No GPU is stated; the baseline's time per token fits this one.
_INFERRED_GPU = {"angelslim": "H100-SXM", "vllm-issue20780": "H100-SXM"}
# Releases of the sets that name a commit, a range or nothing.
_ENGINES = {
    **{"vllm-issue20780": (0, 9, 2), "specdecode-bench": (0, 10, 1)},
    **dict.fromkeys(
        ("ruiz-qwen32b-mt-bench", "ruiz-qwen32b-instructcoder", "ruiz-profile-qwen32b"), (0, 14, 0)
    ),
}
# Prompt and output tokens where a source names only the data set: their usual means.
_LENGTHS = {
    "MT-Bench": (76, 256),
    "InstructCoder": (146, 200),
    "GSM8K": (110, 220),
    "ShareGPT": (220, 220),
    "CNN/DailyMail": (900, 100),
    "HumanEval": (150, 200),
    "Alpaca": (60, 256),
    "chat": (100, 256),
    "code refactor": (400, 300),
}
# Charts and tables that state gains over concurrency, and no acceptance: the gain at concurrency 1 implies it.
_IMPLIED = ("specdecode-bench", "modelplane", "dspark-adaptive-blog")
NEVER_FITTED = (
    "mtp",
    "dflash",
    "dspark",
    "suffix",
    "medusa",
    "pard",
)  # predicted where they can be, never fitted
_ONE_WAVE = 80  # prompts of the MT-Bench grid: from 16 on its throughput is a tail effect
_AUTHORS = ("ruiz", "specdecode-bench", "speculators", "kimi-k3-dspark")
_NOT_COMPARABLE = {
    "inferencex-dsv4": "compared at equal interactivity, not at equal concurrency",
    "inferencex-glm5": "compared at equal interactivity, not at equal concurrency",
    "inferencex-glm5-b300": "compared at equal interactivity, not at equal concurrency",
    "gpustack-qwen8b": "engine, precision and speculation change together",
    "vllm-issue49548": "its baseline speculates with K = 2",
    "spec-bench": "measured under Hugging Face transformers",
    "p-eagle-blog": "its baseline is EAGLE-3",
    "pr24322": "GPU unknown: the baseline's time per token fits none that was named",
}


@dataclass(frozen=True)
class Row:
    """A question with what was measured. ``system``: a source's target with one draft; ``source``: a machine.
    ``anchor``: the published ratio at concurrency 1 of the same series, in place of an acceptance not published;
    ``fitted``: False for a row that is only predicted."""

    id: str
    system: str
    source: str
    cell: Scenario
    base_tpot_ms: float | None = None
    time_per_token: float | None = None
    throughput: float | None = None
    anchor: float | None = None
    uncertain: bool = False
    fitted: bool = True
    dataset: str = ""


def author_of(name: str) -> str:
    """Who published a set or a source: several sets of one author are no independent figures of acceptance."""
    return next((author for author in _AUTHORS if name.startswith(author)), name)


def read() -> list[Record]:
    """Every published row."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def select(records: list[Record]) -> tuple[list[Row], dict[str, str]]:
    """The rows to fit, and the reason for each other row by its id."""
    anchors = {_series(r): gain for r in records if r["concurrency"] == "1" and (gain := _gain(r))}
    rows, reasons = [], {}
    for record in records:
        row_or_reason = _row(record, anchors)
        if isinstance(row_or_reason, Row):
            rows.append(row_or_reason)
        else:
            reasons[record["id"]] = row_or_reason
    return rows, reasons


def _gain(record: Record) -> float | None:
    """The gain of a record, whose two ratios are the same at concurrency 1."""
    if record["speedup"]:
        return float(record["speedup"])
    for before, after in (("spec_tpot_ms", "base_tpot_ms"), ("base_tok_s", "spec_tok_s")):
        if record[before] and record[after]:
            return float(record[after]) / float(record[before])
    return None


def _series(record: Record) -> str:
    return "/".join(record[key] for key in ("set", "target", "draft", "method", "k", "dataset"))


def _row(record: Record, anchors: dict[str, float]) -> Row | str:
    reason = _excluded(record)
    if reason is not None:
        return reason
    charted = record["set"] in _IMPLIED
    acceptance = Acceptance((0.5,), 0.5) if charted else _acceptance(record)
    if isinstance(acceptance, str):
        return acceptance
    cell = _cell(record, acceptance)
    if isinstance(cell, str):
        return cell
    times = _number(record, "base_tpot_ms"), _number(record, "spec_tpot_ms")
    rates = _number(record, "base_tok_s"), _number(record, "spec_tok_s")
    published = _number(record, "speedup")
    ratio = times[1] / times[0] if times[0] and times[1] else None
    through = rates[1] / rates[0] if rates[0] and rates[1] else None
    if charted and published:
        through = published  # a chart states throughput
    elif ratio is None and (gain := published or through):
        ratio, through = 1 / gain, None  # at concurrency 1 they are the same
    if ratio is None and through is None:
        return "no ratio to a baseline without speculation"
    cell, through = _effective(record, cell, through)
    anchor = anchors.get(_series(record)) if charted else None
    if charted and anchor is None:
        return "a chart without its point at concurrency 1"
    return Row(
        id=record["id"],
        system="/".join((record["set"], record["target"], record["draft"], record["method"])),
        source=record["set"].removesuffix("-mt-bench").removesuffix("-instructcoder"),
        cell=cell,
        base_tpot_ms=times[0] or (1000 / rates[0] if rates[0] and cell.concurrency == 1 else None),
        time_per_token=ratio,
        throughput=through,
        anchor=anchor,
        uncertain=record["kind"] == "stated",
        fitted=record["method"] not in NEVER_FITTED and not (anchor and cell.concurrency == 1),
        dataset=record["dataset"],
    )


def _excluded(record: Record) -> str | None:
    """Return the rule that leaves a row out before its figures are read."""
    reason = _NOT_COMPARABLE.get(record["set"])
    method = record["method"]
    if reason is None and record["engine"] not in ("", "vllm"):
        reason = f"measured on {record['engine']}"
    if reason is not None:
        return reason
    if not is_known(method) or "tree" in method:
        return f"method {method or 'unnamed'} has no term in the model"
    if method in NEVER_FITTED and record["set"] not in _IMPLIED:
        return f"{method}: too few rows with a baseline to fit its term"
    if record["baseline"] not in ("", "no-spec"):
        return f"its baseline is {record['baseline']}"
    for key, name in (("k", "K"), ("concurrency", "concurrency")):
        if not record[key].isdecimal() or int(record[key]) < 1:
            return f"{name} is not stated"
    if not any(record[key] for key in ("speedup", "spec_tpot_ms", "spec_tok_s")):
        return "no time and no ratio is stated"
    return None


def _acceptance(record: Record) -> Acceptance | str:
    k = int(record["k"])
    rates = (
        tuple(float(percent) / 100 for percent in record["per_position"].split("/"))
        if record["per_position"]
        else ()
    )
    length = _number(record, "acceptance_length")
    if record["method"] in LOOKUPS:
        if record["set"] == "alauda" and record["dataset"] == "chat":
            return Acceptance((0.05,), 0.5)  # novel text: next to nothing is accepted
        return "n-gram without tokens per step: acceptance length counts proposing steps only"
    if rates:
        if len(rates) != k:
            return f"K = {k} but {len(rates)} rates per position"
        wrong = check_rates(rates, length)
        if (
            wrong is not None and record["set"] != "alauda"
        ):  # there, the rates fit both published gains
            return f"acceptance contradicts itself: {wrong}"
        return Acceptance(rates)
    if length is None:
        return "no acceptance is stated"
    return Acceptance(tuple((length - 1) / k for _ in range(k)))


def _cell(record: Record, acceptance: Acceptance) -> Scenario | str:
    target = model_shape(record["target"])
    name = _INFERRED_GPU.get(record["set"], record["gpu"])
    gpu = find_gpu(_GPUS.get(name, name))
    if target is None:
        return f"dimensions of {record['target'] or 'the target'} are not in the table"
    if gpu is None:
        return (
            "GPU unknown" if not record["gpu"] else f"speed of {record['gpu']} is not in the table"
        )
    drafts = {
        "small Llama": "meta-llama/Llama-3.1-8B-Instruct" if "70B" in record["target"] else ""
    }
    named = drafts.get(record["draft"], record["draft"])
    draft = model_shape(named) if record["method"] == "draft_model" else None
    if record["method"] == "draft_model" and draft is None:
        return f"dimensions of the draft {record['draft']} are not in the table"
    prompt, output = _LENGTHS.get(record["dataset"].partition(" (")[0], (120, 256))
    cell = Scenario(
        target=target,
        gpu=gpu,
        method=record["method"],
        k=int(record["k"]),
        concurrency=float(record["concurrency"]),
        prompt=_number(record, "prompt") or prompt,
        output=_number(record, "output") or output,
        acceptance=acceptance,
        gpus=int(record["gpus"] or 1),
        draft=draft,
        precision=precision_of(record["precision"], target),
        engine=_ENGINES.get(record["set"]) or parse_version(record["engine_version"]),
    )
    if record["gpu"] == "H100-94GB":
        return replace(cell, pool=_POOLS[""], draft_pool=_POOLS[record["draft"]])
    return cell


def _effective(
    record: Record, cell: Scenario, through: float | None
) -> tuple[Scenario, float | None]:
    """The MT-Bench grid has 80 prompts; its throughput is not used from 16 on."""
    if record["set"] != "ruiz-qwen32b-mt-bench":
        return cell, through
    return replace(cell, requests=_ONE_WAVE), None if cell.concurrency >= 16 else through


def _number(record: Record, key: str) -> float | None:
    text = record[key].removeprefix("<=")  # a limit, of which nothing better is stated
    return float(text) if text else None
