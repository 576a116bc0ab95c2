"""A plan rendered: its lines and tables, the page that they make, and that page as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mpctl.formatting import plural
from mpctl.json_types import JsonView

Record = JsonView
Rows = list[list[str]]
_NO_CALL = "measure first"


def band(ratio: Record) -> str:
    """``1.31 [1.19-1.41]``."""
    return f"{ratio['value']:.2f} [{ratio['low']:.2f}-{ratio['high']:.2f}]"


def answer_rows(answers: Sequence[Record]) -> list[list[str]]:
    """A line per answer: concurrency, K, both ratios and the call; ``*`` marks where the KV pool limits the batch."""
    rows = [["CONCURRENCY", "K", "THROUGHPUT RATIO", "TIME-PER-TOKEN RATIO", "CALL"]]
    for answer in answers:
        mark = "*" if answer["poolBound"] else ""
        through, time = band(answer["throughputRatio"]), band(answer["timePerTokenRatio"])
        concurrency = f"{answer['concurrency']:g}"
        rows.append([concurrency, str(answer["k"]), through + mark, time + mark, answer["call"]])
    return rows


def k_rows(answers: Sequence[Record]) -> list[list[str]]:
    """Throughput ratios without their bands, concurrency by K; empty with one K."""
    ks = sorted({answer["k"] for answer in answers})
    if len(ks) < 2:
        return []
    points = {(answer["concurrency"], answer["k"]): answer for answer in answers}
    rows = [["THROUGHPUT RATIO", *(f"K={k}" for k in ks)]]
    for concurrency in dict.fromkeys(answer["concurrency"] for answer in answers):
        row = [points[(concurrency, k)] for k in ks]
        cells = [
            f"{answer['throughputRatio']['value']:.2f}{'*' * answer['poolBound']}" for answer in row
        ]
        rows.append([f"{concurrency:g} at once", *cells])
    return rows


def tables(method: Record) -> list[list[list[str]]]:
    """The advised K of each concurrency with its bands, then every K."""
    return [rows for rows in (answer_rows(chosen(method)), k_rows(method["answers"])) if rows]


def chosen(method: Record) -> list[Record]:
    """The answers that are advised: one per concurrency."""
    best = {(choice["concurrency"], choice["k"]) for choice in method["best"]}
    return [answer for answer in method["answers"] if (answer["concurrency"], answer["k"]) in best]


def answer_line(record: Record) -> str:
    """Say what to do, and why: the first sentence of a plan."""
    methods = record["methods"]
    usable = [method for method in methods if method.get("best") and method.get("canRun", True)]
    if not usable:
        return f"No figure: {_missing(methods[0])}." if methods else "No method was asked for."
    calls = {method["best"][-1]["call"] for method in usable}
    first = next((method for method in usable if not method["notice"]), usable[0])
    last = first["best"][-1]
    name, ratio = f"{first['method']} with K={last['k']}", band(last["throughputRatio"])
    where = f"at concurrency {last['concurrency']:g}"
    if last["call"] == "gain":
        return f"Turn on {name}: throughput ratio {ratio} {where}, by {first['levelMeans']}."
    if calls == {"loss"}:
        return f"Leave speculation off: the best, {name}, has throughput ratio {ratio} {where}."
    return f"Measure first, {name}: throughput ratio {ratio} {where} is a screening; missing: {_missing(first)}."


def summary_rows(record: Record) -> Rows:
    """A row per method, the best first: draft, K, ratio at the lowest and the highest concurrency, call."""
    ends = next(
        ([c["concurrency"] for c in m["best"]] for m in record["methods"] if m.get("best")), []
    )
    ends = list(dict.fromkeys((*ends[:1], *ends[-1:])))
    rows = [["METHOD", "DRAFT", *(f"RATIO AT {end:g}" for end in ends), "CALL"]]
    for rank, method in enumerate(record["methods"], 1):
        draft = (method.get("draft") or "-").rpartition("/")[2]
        if not method.get("best"):
            rows.append(
                [f"{rank} {method['method']}", draft, *("-" for _ in ends), "no figure, see below"]
            )
            continue
        choices = {choice["concurrency"]: choice for choice in method["best"]}
        call = choices[ends[-1]]["call"] if method.get("canRun", True) else "cannot run"
        lacks = f": {_missing(method)}" if call in (_NO_CALL, "cannot run") else ""
        ratios = [band(choices[end]["throughputRatio"]) for end in ends]
        rows.append(
            [f"{rank} {method['method']} K={choices[ends[-1]]['k']}", draft, *ratios, call + lacks]
        )
    return rows


def _missing(method: Record) -> str:
    """Say in a few words what keeps a method from a call."""
    if method.get("refused"):
        return str(method["refused"]["reason"])
    if not method.get("canRun", True):
        return ", ".join(
            finding["id"] for finding in method["findings"] if finding["severity"] == "refuse"
        )
    last = method["best"][-1]
    answer = next(a for a in chosen(method) if a["concurrency"] == last["concurrency"])
    if answer["level"] == "L0":
        return "own acceptance"
    return next(
        (gap["reason"] for gap in answer["outsideTheEvidence"]), "a pair, as the band includes 1"
    )


def summary_lines(record: Record) -> Iterator[str]:
    """Break-even per method, what a method's licence or patents limit, and the command that settles it."""
    usable = [method for method in record["methods"] if method.get("best")]
    needed = [
        f"{method['method']} {even['tokensPerStep']:.2f} of {even['assumed']:.2f} ({even['acceptanceRate']:.0%})"
        if even["tokensPerStep"]
        else f"{method['method']} none"
        for method in usable
        for even in (method["best"][-1]["breakEven"],)
    ]
    if needed:
        load = f"{usable[0]['best'][-1]['concurrency']:g}"
        yield f"break-even at concurrency {load}, tokens per step of those expected (accepted): {'; '.join(needed)}"
    without: dict[str, list[str]] = {}
    for method in record["methods"]:
        if refused := method.get("refused"):
            reason = (
                f"{refused['reason']}; {refused['hint']}" if refused["hint"] else refused["reason"]
            )
            without.setdefault(reason, []).append(method["method"])
    for reason, names in without.items():
        yield f"{', '.join(names)}, no figure: {reason}"
    for method in record["methods"]:
        if (caches := method.get("prefixCache")) and caches["matters"]:
            yield f"{method['method']}: {caches['text']}"
        if method["notice"]:
            yield f"{method['method']}: {method['notice']}"
    if drafts := [(m["draft"], m["licence"]) for m in record["methods"] if m.get("draft")]:
        yield "licences of drafts: " + "; ".join(
            f"{name.rpartition('/')[2]} {licence}" for name, licence in drafts
        )
    if record["settles"]:
        yield f"what would settle it: {record['settles']}"


def best_lines(method: Record) -> Iterator[str]:
    """The advised K, the crossover, and the evidence behind the figures."""
    parts = []
    for choice in method["best"]:
        equal = choice["equalK"]
        same = f" (equal: {', '.join(map(str, equal))})" if len(equal) > 1 else ""
        parts.append(f"{choice['concurrency']:g}: K={choice['k']}{same}")
    yield "smallest K within 2 % of the best, by concurrency: " + "; ".join(parts)
    yield f"crossover: {method['crossover']['text']}"
    rows = sorted({(answer["regime"], answer["publishedRows"]) for answer in method["answers"]})
    behind = "; ".join(f"{count or 'no'} published ratios of {regime}" for regime, count in rows)
    share = "{ofOneAuthor} of {rows} fitted rows are one author's, of one target".format(
        **method["fittedTo"]
    )
    yield f"evidence: {method['level']}, {method['levelMeans']}; {behind}; {share}"
    if any(answer["poolBound"] for answer in method["answers"]):
        yield "* the KV pool limits the batch: throughput and time per token part there"


def outside_lines(method: Record) -> Iterator[str]:
    """The reasons why evidence does not cover the answers, each once, with the measurement that would."""
    reasons: dict[str, str] = {}
    for answer in chosen(method):
        for gap in answer["outsideTheEvidence"]:
            reasons.setdefault(gap["reason"], gap["toDo"])
    for reason, todo in reasons.items():
        yield f"outside the evidence: {reason}; to bring it inside: {todo}"


def detail_lines(method: Record) -> Iterator[str]:
    """All lines of a method below its table."""
    yield from best_lines(method)
    yield from outside_lines(method)
    if method.get("evidence"):
        yield method["evidence"]
    if method.get("learned"):
        yield f"learned: {method['learned']}"
    for text in method.get("assumed") or ():
        yield f"assumed: {text}"
    if method.get("prefixCache"):
        yield method["prefixCache"]["text"]
    if method.get("schedule"):
        yield f"K by load: {method['schedule']}"


def run_lines(method: Record) -> Iterator[str]:
    """Preflight verdict, memory estimate and needs of the rollout."""
    if "canRun" in method:
        findings = [f for f in method["findings"] if f["severity"] != "note"]
        verdict = "can run" if method["canRun"] else "cannot run"
        yield f"preflight: {verdict}" + ("" if findings else ", no finding against it")
        for finding in findings:
            yield f"  {finding['severity']} {finding['id']}: {finding['reason']}; {finding['todo']}"
        if method["unchecked"]:
            names = ", ".join(dict.fromkeys(text.partition(":")[0] for text in method["unchecked"]))
            yield f"  unchecked, for lack of facts (-v of a preflight says which): {names}"
    pool = method.get("kvPoolTokens")
    if pool:
        before, after = (
            " to ".join(dict.fromkeys(f"{v:,.0f}" for v in pool[key]))
            for key in ("before", "after")
        )
        yield f"memory: KV pool {before} tokens without the draft, {after} with it (by {pool['basis']})"
    needs = method.get("needs")
    if needs:
        gpus = plural(needs["gpus"], "GPU")
        yield f"the rollout needs: {gpus} more; {needs['staging']}; " + "; ".join(needs["notes"])
    refused = method.get("refused")
    if refused:
        yield f"no figure: {refused['reason']}" + (
            f"; {refused['hint']}" if refused["hint"] else ""
        )


def headline(method: Record) -> str:
    """A method with its verdict for the highest concurrency."""
    if method.get("refused") or not method.get("best"):
        return f"{method['method']}: no figure"
    last = method["best"][-1]
    ratio = band(last["throughputRatio"])
    runs = "" if method.get("canRun", True) else "cannot run; "
    return f"{method['method']}: {runs}{last['call']} at concurrency {last['concurrency']:g}, throughput {ratio}"


def history_rows(record: Record) -> list[list[str]]:
    """Predicted against measured, a line per ratio."""
    head = [
        "OPERATION",
        "SPEC",
        "CONCURRENCY",
        "LEVEL",
        "RATIO",
        "PREDICTED",
        "MEASURED",
        "INSIDE",
        "ENDING",
    ]
    return [head, *(_checked_row(comparison) for comparison in record["history"])]


def _checked_row(comparison: Record) -> list[str]:
    return [
        comparison["operation"],
        comparison["spec"],
        f"{comparison['concurrency']:g}",
        comparison["level"],
        comparison["ratio"],
        band(comparison["predicted"]),
        f"{comparison['measured']:.2f}",
        "yes" if comparison["insideTheBand"] else "no",
        comparison["ending"],
    ]


def history_lines(record: Record) -> Iterator[str]:
    """The share of measurements inside their band, and the rollouts without a prediction."""
    count = len(record["history"])
    if count:
        inside, error = record["inside"], record["medianError"]
        yield f"{inside} of {count} measured ratios inside their band; median error {error:.1%}"
    else:
        yield "no rollout with a prediction has measured yet"
    if record["withoutPrediction"]:
        yield "without a prediction: " + ", ".join(record["withoutPrediction"])


def methods_of(record: Record) -> list[Record]:
    """The methods of a service's plan, or the cells of a file as if each were one."""
    if "cells" in record:
        return [{**cell, "method": _name_of(cell)} for cell in record["cells"]]
    return list(record["methods"])


def _name_of(cell: Record) -> str:
    return f"{cell['id']}: {cell['answers'][0]['method']}" if "answers" in cell else str(cell["id"])


def title_of(record: Record) -> str:
    """The service, or what was asked."""
    if "history" in record:
        return f"{record['service']}, predicted against measured"
    return f"{record['service']} ({record['target']})" if "service" in record else "cells of a file"


def head_lines(record: Record) -> Iterator[str]:
    """GPU, lengths and notes of a service's plan."""
    if "gpu" not in record:
        return
    yield (
        f"GPU {record['gpu']}, prompts of {record['promptTokens']:.0f} tokens, answers of {record['outputTokens']:.0f}"
    )
    yield from record["notes"]


@dataclass(frozen=True)
class Section:
    """A method: whether it runs, its tables, what they rest on. ``answered``: its record, None without a figure."""

    title: str
    runs: tuple[str, ...]
    tables: tuple[Rows, ...] = ()
    details: tuple[str, ...] = ()
    answered: Record | None = None


@dataclass(frozen=True)
class Page:
    """A plan, or the comparison of earlier ones, which has no section. ``answer``: the sentence that comes first;
    ``rows``: the table that compares, ``below`` it what it rests on and what would settle it."""

    title: str
    head: tuple[str, ...]
    sections: tuple[Section, ...] = ()
    rows: Rows | None = None
    answer: str = ""
    below: tuple[str, ...] = ()


def page_of(record: Record) -> Page:
    """The page of a record."""
    if "history" in record:
        return Page(title_of(record), tuple(history_lines(record)), rows=history_rows(record))
    sections = tuple(map(_section, methods_of(record)))
    if "cells" in record:
        return Page(title_of(record), tuple(head_lines(record)), sections)
    rows, below = summary_rows(record), tuple(summary_lines(record))
    return Page(
        title_of(record), tuple(head_lines(record)), sections, rows, answer_line(record), below
    )


def _section(method: Record) -> Section:
    title, runs = headline(method), tuple(run_lines(method))
    if not method.get("answers"):
        return Section(title, runs)
    return Section(title, runs, tuple(tables(method)), tuple(detail_lines(method)), method)


def plan_text(page: Page, table: Callable[[Rows, str], str], width: int, *, details: bool) -> str:
    """The page for a terminal of that width; ``table`` aligns and indents a table. The sections only as ``details``."""
    parts = [f"Plan: {page.title}", page.answer and _wrapped([page.answer], width, "")]
    if page.rows is not None:
        parts += [
            _wrapped(page.head, width),
            "",
            table(page.rows, ""),
            "",
            _wrapped(page.below, width),
        ]
    else:
        parts.append(_wrapped(page.head, width))
    for section in page.sections if details else ():
        parts += ["", section.title, _wrapped(section.runs, width)]
        for rows in section.tables:
            parts += ["", table(rows, "  ")]
        if section.details:
            parts += ["", _wrapped(section.details, width)]
    return "\n".join(
        part for index, part in enumerate(parts) if part or (index and parts[index - 1])
    ).rstrip("\n")


def _wrapped(lines: Sequence[str], width: int, indent: str = "  ") -> str:
    """Lines wrapped to the width, continued with a deeper indent."""
    deeper = indent + "  "
    wrapper = textwrap.TextWrapper(
        width,
        initial_indent=indent,
        subsequent_indent=deeper,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapper.fill(line) for line in lines)
