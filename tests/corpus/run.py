"""Runs the editor over texts and counts what comes out."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpctl.errors import MpctlError
from mpctl.manifest import Service, load
from mpctl.manifest.storage.edits import with_claim, with_entry, without_draft
from tests.corpus.oracle import wrong

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 16}
EAGLE = {"method": "eagle3", "num_speculative_tokens": 3, "model": "/mnt/mpctl/draft"}
STAGINGS: dict[str, Callable[[Service], Service]] = {
    "storageUris": lambda service: with_entry(service, "hf://org/draft"),
    "claim": lambda service: with_claim(service, "drafts", "head"),
}
_ENDINGS = (".yaml", ".yml", ".md", ".mdx", ".adoc", ".rst", ".txt", ".sh")
_FENCE = re.compile(r"^([ \t]*)(?:```+|~~~+|----)[^\n]*\n(.*?)^\1(?:```+|~~~+|----)[ \t]*$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?[^\n]*\n(.*?)^\s*\1\s*$", re.MULTILINE | re.DOTALL)


@dataclass
class Counts:
    """``problems``: what is wrong, with the name of the text."""

    texts: int = 0
    services: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    edits: int = 0
    not_edited: Counter[str] = field(default_factory=Counter)
    wrong_edits: int = 0
    wrong_returns: int = 0
    tracebacks: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing came out wrong."""
        return not (self.wrong_edits or self.wrong_returns or self.tracebacks)

    def lines(self) -> Iterator[str]:
        """The counts for a terminal."""
        yield f"texts {self.texts}, services read {self.services}, refused {sum(self.refused.values())}"
        yield from (f"  {count:6} {why}" for why, count in self.refused.most_common(12))
        yield f"edits {self.edits}, not edited {sum(self.not_edited.values())}"
        yield from (f"  {count:6} {why}" for why, count in self.not_edited.most_common(8))
        yield (f"wrong edits {self.wrong_edits}, wrong returns {self.wrong_returns}, tracebacks {self.tracebacks}")
        yield from self.problems[:20]


def texts_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Every YAML file of a folder, and the YAML inside of its documents and scripts; each text once."""
    seen: set[str] = set()
    files = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.suffix.lower() in _ENDINGS)
    for path in files:
        try:
            text = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if path.suffix.lower() in (".yaml", ".yml"):
            found = [text]
        else:
            found = [match[2] for pattern in (_FENCE, _HEREDOC) for match in pattern.finditer(text)]
            found += re.findall(r"^apiVersion:.*?(?=^[^\s#-][^:\n]*$|\Z)", text, re.MULTILINE | re.DOTALL)
        for number, one in enumerate(found):
            if re.search(r"^\s*kind:", one, re.MULTILINE) and one not in seen:
                seen.add(one)
                yield f"{path}#{number}", one


def judge(name: str, text: str, counts: Counts) -> None:
    """Edit every service of a text in several ways, and go back."""
    counts.texts += 1
    services = _attempt(lambda: load(text), counts, counts.refused, name, text)
    for index, service in enumerate(services or ()):
        counts.services += 1
        for config in (NGRAM, SUFFIX):
            _cycle(f"{name} {service.name} {config['method']}", index, text, config, None, counts)
        for staging, stage in STAGINGS.items():
            _cycle(f"{name} {service.name} {staging}", index, text, EAGLE, stage, counts)


def _cycle(
    name: str,
    index: int,
    text: str,
    config: dict[str, Any],
    stage: Callable[[Service], Service] | None,
    counts: Counts,
) -> None:
    def forth() -> str:
        service = load(text)[index]
        return (service if stage is None else stage(service)).with_speculation(config).to_yaml()

    def back(original: dict[str, Any] | None) -> Callable[[], str]:
        return lambda: without_draft(load(edited)[index]).with_speculation(original).to_yaml()

    before = _attempt(lambda: (load(text)[index].speculation(),), counts, counts.not_edited, name, text)
    edited = _attempt(forth, counts, counts.not_edited, name, text)
    if before is None or edited is None:
        return
    counts.edits += 1
    if why := wrong(text, edited, config, staged=stage is not None):
        counts.wrong_edits += 1
        counts.problems.append(f"{name}: {why}")
    returned = _attempt(back(before[0]), counts, Counter(), name, text)
    if before[0] is not None:
        same = returned is not None and not wrong(text, returned, before[0], staged=True)
    else:
        moved = stage is not None and "storageUri:" in text
        same = returned == text or (moved and returned is not None and not wrong(text, returned, None, staged=True))
    if not same:
        counts.wrong_returns += 1
        counts.problems.append(f"{name}: does not return to what it was")


def _attempt(act: Callable[[], Any], counts: Counts, refused: Counter[str], name: str, text: str) -> Any:
    try:
        return act()
    except MpctlError as error:
        refused[_kind(error.message)] += 1
    except Exception:  # noqa: BLE001 - a traceback is what is counted
        counts.tracebacks += 1
        counts.problems.append(f"{name}: {traceback.format_exc().splitlines()[-1]}")
    return None


def _kind(message: str) -> str:
    """A refusal without names, numbers and quoted text."""
    message = re.sub(r"^<input>:\d+: ", "", message)
    message = re.sub(r'"[^"]*"|\'[^\']*\'|`[^`]*`', "...", message)
    return re.sub(r"[\w.\[\]-]*\d[\w.\[\]-]*", "N", message)[:90]
