"""Runs the editor over texts and counts what comes out."""

from __future__ import annotations

import json
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpctl.errors import MpctlError
from mpctl.manifest import Service, load, load_values
from mpctl.manifest.draft_storage import with_claim, with_entry, with_speculation, without_draft
from mpctl.manifest.speculation.setting import Style
from tests.corpus.oracle import documents, wrong

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 16}
ODD = {
    "method": "eagle3",
    "num_speculative_tokens": 2,
    "model": '/mnt/it\'s "odd": $HOME #1 \u00fc\U0001f600\\',
    "draft_sample_method": "greedy",
    "disable_padded_drafter_batch": True,
    "speculative_token_tree": "[(0,), (0, 0)]",
}
EAGLE = {"method": "eagle3", "num_speculative_tokens": 3, "model": "/mnt/mpctl/draft"}
KINDS = (
    "InferenceService", "LLMInferenceService", "ServingRuntime", "ClusterServingRuntime", "ModelDeployment",
    "Deployment", "StatefulSet", "LeaderWorkerSet", "VLLMRuntime", "DynamoGraphDeployment", "Values",
)  # fmt: skip
STAGINGS: dict[str, Callable[[Service], Service]] = {
    "storageUris": lambda service: with_entry(service, "hf://org/draft"),
    "claim": lambda service: with_claim(service, "drafts", "head"),
}
_ENDINGS = (".yaml", ".yml", ".md", ".mdx", ".adoc", ".rst", ".txt", ".sh")
_FENCE = re.compile(
    r"^([ \t]*)(?:```+|~~~+|----)[^\n]*\n(.*?)^\1(?:```+|~~~+|----)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?[^\n]*\n(.*?)^\s*\1\s*$", re.MULTILINE | re.DOTALL)
_VALUES = re.compile(r"^(?:servingEngineSpec|decode|catalog):", re.MULTILINE)
Read = Callable[[str], tuple[Service, ...]]


@dataclass
class Counts:
    """``problems``: what is wrong, with the name of the text. ``kinds``: counts by kind and column."""

    texts: int = 0
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    not_edited: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def total(self, column: str) -> int:
        """The sum of a column over the kinds."""
        return sum(count for (_, one), count in self.kinds.items() if one == column)

    def refuse(self, kind: str, why: str) -> None:
        """Count a document that was not read: another workload, or a refusal."""
        if not why or "no served model in this file" in why:
            self.kinds[kind, "no engine"] += 1
        else:
            self.kinds[kind, "refused"] += 1
            self.refused[_without_names(why)] += 1

    @property
    def services(self) -> int:
        """Services that were read."""
        return self.total("read")

    @property
    def edits(self) -> int:
        """Edits that were made."""
        return self.total("edits")

    @property
    def clean(self) -> bool:
        """Whether nothing came out wrong."""
        return not any(self.total(column) for column in _WRONG)

    def lines(self) -> Iterator[str]:
        """The counts for a terminal."""
        yield f"texts {self.texts}"
        yield f"{'kind':22}" + "".join(f"{column:>15}" for column in _COLUMNS)
        for kind in sorted({kind for kind, _ in self.kinds}):
            yield f"{kind:22}" + "".join(f"{self.kinds[kind, column]:15}" for column in _COLUMNS)
        yield f"{'sum':22}" + "".join(f"{self.total(column):15}" for column in _COLUMNS)
        yield "refused:"
        yield from (f"  {count:6} {why}" for why, count in self.refused.most_common(16))
        yield f"not edited: {sum(self.not_edited.values())}"
        yield from (f"  {count:6} {why}" for why, count in self.not_edited.most_common(12))
        yield from self.problems[:20]


_WRONG = ("wrong edits", "wrong returns", "tracebacks")
_COLUMNS = ("documents", "read", "no engine", "refused", "edits", *_WRONG)


def texts_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Every YAML file of a folder, and the YAML inside of its documents and scripts; each text once."""
    items: set[str] = set()
    files = (
        [folder]
        if folder.is_file()
        else sorted(p for p in folder.rglob("*") if p.suffix.lower() in _ENDINGS)
    )
    for path in files:
        try:
            text = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if path.suffix.lower() in (".yaml", ".yml"):
            texts = [text]
        else:
            texts = [match[2] for pattern in (_FENCE, _HEREDOC) for match in pattern.finditer(text)]
            texts += re.findall(
                r"^apiVersion:.*?(?=^[^\s#-][^:\n]*$|\Z)", text, re.MULTILINE | re.DOTALL
            )
        for number, one in enumerate(texts):
            if (
                re.search(r"^\s*kind:", one, re.MULTILINE) or _VALUES.search(one)
            ) and one not in items:
                items.add(one)
                yield f"{path}#{number}", one


def judge(name: str, text: str, counts: Counts) -> None:
    """Edit every service of a text in several ways, and go back."""
    counts.texts += 1
    if _is_values(text):
        _judge(name, text, lambda text: load_values(text, None), counts)
        return
    _judge(name, text, load, counts)
    if "ServingRuntime" in text:
        _judge(name, text, lambda text: load(text, runtimes=True), counts, runtimes=True)


def _is_values(text: str) -> bool:
    return not re.search(r"^\s*['\"]?kind['\"]?\s*:", text, re.MULTILINE) and bool(
        _VALUES.search(text)
    )


def _judge(name: str, text: str, read: Read, counts: Counts, *, runtimes: bool = False) -> None:
    attempt, why = _attempt(lambda: read(text), counts, name)
    present = [one for one in _identities(text) if ("ServingRuntime" in one[0]) is runtimes]
    if attempt is not None:
        for index, service in enumerate(attempt):
            counts.kinds[service.kind, "read"] += 1
            _cycles(f"{name} {service.name}", index, text, read, service.kind, counts)
        counter = Counter(service.kind for service in attempt)
        for kind, number in (
            counter if read is not load and not runtimes else Counter(k for k, _ in present)
        ).items():
            counts.kinds[kind, "documents"] += number
            counts.kinds[kind, "no engine"] += number - counter[kind]
    elif len(present) <= 1 or not why:
        kind = present[0][0] if present else "no YAML" if documents(text) is None else "other"
        counts.kinds[kind, "documents"] += 1
        counts.refuse(kind, why)
    else:
        for kind, own_name in present:
            _judge_one(f"{name} {own_name}", text, (kind, own_name), runtimes, counts)


def _judge_one(
    name: str, text: str, wanted: tuple[str, str], runtimes: bool, counts: Counts
) -> None:
    """One service of a file with others that cannot be read."""

    def read(text: str) -> tuple[Service, ...]:
        return load(text, name=wanted[1], runtimes=runtimes)

    attempt, why = _attempt(lambda: read(text), counts, name)
    counts.kinds[wanted[0], "documents"] += 1
    index = next((i for i, one in enumerate(attempt or ()) if (one.kind, one.name) == wanted), None)
    if index is not None:
        counts.kinds[wanted[0], "read"] += 1
        _cycles(name, index, text, read, wanted[0], counts)
    else:
        counts.refuse(wanted[0], why)


def _identities(text: str) -> list[tuple[str, str]]:
    """Kind and name of the documents that may be services, by PyYAML."""
    rows = []
    for document in documents(text) or ():
        kind = document.get("kind") if isinstance(document, dict) else None
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if isinstance(kind, str) and kind in KINDS:
            rows.append((kind, str(metadata.get("name")) if isinstance(metadata, dict) else ""))
    return rows


def served(text: str) -> list[Any] | None:
    """The data of a file with a service that can be read; None for any other."""
    data = documents(text)
    if not data or len(text) > 20_000 or not all(isinstance(one, dict) for one in data):
        return None
    try:
        values = load_values(text, None) if _is_values(text) else load(text)
    except MpctlError:
        return None
    return json.loads(json.dumps(data, default=str)) if values else None


def _cycles(name: str, index: int, text: str, read: Read, kind: str, counts: Counts) -> None:
    for config in (NGRAM, SUFFIX, ODD):
        _cycle(f"{name} {config['method']}", index, text, read, config, None, kind, counts)
    for style in (None, "dotted", "json"):
        _rewrite(name, index, text, read, None if style is None else NGRAM, style, kind, counts)
    for staging, stage in STAGINGS.items():
        if staging == "claim" or kind == "InferenceService":
            _cycle(f"{name} {staging}", index, text, read, EAGLE, stage, kind, counts)


def _rewrite(
    name: str,
    index: int,
    text: str,
    read: Read,
    config: dict[str, Any] | None,
    style: Style | None,
    kind: str,
    counts: Counts,
) -> None:
    """Another spelling for a setting, and a setting that goes."""
    edited, _ = _attempt(
        lambda: read(text)[index].with_speculation(config, style=style).to_yaml(),
        counts,
        name,
        kind,
    )
    if edited is None or edited == text:
        return
    counts.kinds[kind, "edits"] += 1
    if why := wrong(text, edited, config):
        counts.kinds[kind, "wrong edits"] += 1
        counts.problems.append(f"{name} {style or 'removed'}: {why}")


def _cycle(
    name: str,
    index: int,
    text: str,
    read: Read,
    config: dict[str, Any],
    stage: Callable[[Service], Service] | None,
    kind: str,
    counts: Counts,
) -> None:
    def forth() -> str:
        service = read(text)[index]
        return with_speculation(service if stage is None else stage(service), config).to_yaml()

    def back(edited: str, original: dict[str, Any] | None) -> Callable[[], str]:
        return lambda: without_draft(read(edited)[index]).with_speculation(original).to_yaml()

    before, why = _attempt(lambda: (read(text)[index].speculation(),), counts, name, kind)
    edited, why = (None, why) if before is None else _attempt(forth, counts, name, kind)
    if edited is None:
        counts.not_edited[_without_names(why)] += 1
        return
    counts.kinds[kind, "edits"] += 1
    if why := wrong(text, edited, config, staged=stage is not None):
        counts.kinds[kind, "wrong edits"] += 1
        counts.problems.append(f"{name}: {why}")
    if (
        stage is None and before[0] is None and config is not ODD
    ):  # another setting in its place, before it goes
        another, _ = _attempt(
            lambda: read(edited)[index].with_speculation(ODD).to_yaml(), counts, name, kind
        )
        if another is not None and (why := wrong(text, another, ODD)):
            counts.kinds[kind, "wrong edits"] += 1
            counts.problems.append(f"{name}, then another: {why}")
        edited = another or edited
    returned, why = _attempt(back(edited, before[0]), counts, name, kind)
    if before[0] is None and not (stage is not None and re.search(r"storageUri\b", text)):
        same = returned == text
    else:  # the place of a storageUri that moved, and the spelling of another setting, are only in a recorded text
        same = returned is not None and not wrong(
            text, returned, before[0], staged=stage is not None
        )
    if not same:
        counts.kinds[kind, "wrong returns"] += 1
        counts.problems.append(f"{name}: does not return to what it was {why}")


def _attempt(
    act: Callable[[], Any], counts: Counts, name: str, kind: str = "other"
) -> tuple[Any, str]:
    """What came out, or why nothing did."""
    try:
        return act(), ""
    except MpctlError as error:
        return None, error.message
    except Exception:  # noqa: BLE001 - a traceback is what is counted
        counts.kinds[kind, "tracebacks"] += 1
        counts.problems.append(f"{name}: {traceback.format_exc().splitlines()[-1]}")
        return None, "traceback"


def _without_names(message: str) -> str:
    """A refusal without names, numbers and quoted text."""
    message = re.sub(r"^<input>:(\d+: )?", "", message)
    message = re.sub(r'"[^"]*"|\'[^\']*\'|`[^`]*`', "...", message)
    return re.sub(r"[\w.\[\]-]*\d[\w.\[\]-]*", "N", message)[:110]
