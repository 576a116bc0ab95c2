"""Seeded code-edit tasks for the demo model.

An edit repeats most of its prompt, so n-gram speculation has real matches to find; a "fresh" task shares
nothing with its prompt but two names, so speculation has none. Both kinds come from this one generator: the
model is trained on some of its seeds and the committed prompt files come from others.

Only the standard library is used, and randomness only comes from ``random.Random.random``, whose sequence
for a seed does not change between Python releases. So a test can regenerate the committed files anywhere.

    python scripts/demo_model/tasks.py --out mpctl/experiment/prompts
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_VERBS = """
add apply build check clean close copy count create decode delete encode fetch filter find flush format
get group join load lock make mark merge move open pack parse plan print pull push read render reset save
scan send set sort split start stop store swap sync test trim update write
"""
VERBS: tuple[str, ...] = tuple(_VERBS.split())
_NOUNS = """
account area batch block body book buffer cache card cell chunk client color column config cursor date
device edge event factor field file flag frame graph header image index item key label layer level line
link map matrix member message model node note object order packet page path point price queue range
record region report route row sample score segment server shape signal slot source stage state stream
table tag task text ticket token track tree user value vector weight window word zone
"""
NOUNS: tuple[str, ...] = tuple(_NOUNS.split())
TYPES: tuple[str, ...] = ("int", "float", "str", "bytes", "bool", "list", "dict", "set")
OPERATORS: tuple[str, ...] = ("+", "-", "*", "//", "%")
COMPARISONS: tuple[str, ...] = (">", "<", "==", "!=", ">=", "<=")

EDIT_KINDS: tuple[str, ...] = ("rename", "rename", "docstring", "unchanged")

HELD_OUT_EDITS = 192
HELD_OUT_FRESH = 192
HELD_OUT_FUNCTIONS = (2, 4)
# In characters, because this module has no tokenizer: about 140 to 250 tokens of the demo model.
HELD_OUT_ANSWER_CHARS = (680, 1450)


@dataclass(frozen=True)
class Task:
    """A prompt with the one answer that is right for it (for "fresh", one of many)."""

    kind: str
    prompt: str
    answer: str


class Picker:
    """Choices drawn from ``random()`` alone, as the other methods may change between Python releases."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self._rng.random() * (high - low + 1))

    def one(self, items: Sequence[str]) -> str:
        return items[int(self._rng.random() * len(items))]


class FileWriter:
    """Writes one random file in which two neighbouring tokens nearly always tell where they stand.

    Function verbs, local names and numbers are distinct within a file, and a local is preferred as the operand
    of a statement while it has not been one. That is what makes copying learnable within minutes: the model
    has to match a short context only.
    """

    def __init__(self, pick: Picker) -> None:
        self._pick = pick
        self._verbs: set[str] = set()
        self._locals: set[str] = set()
        self._numbers: set[int] = set()

    def function_name(self) -> str:
        """A name for a function of this file, whose verb no other function of it uses."""
        while (verb := self._pick.one(VERBS)) in self._verbs:
            pass
        self._verbs.add(verb)
        return self._with_noun(verb)

    def function(self, name: str, earlier: Sequence[str], statements: int) -> str:
        params = [self._local() for _ in range(self._pick.between(1, 3))]
        signature = ", ".join(f"{param}: {self._pick.one(TYPES)}" for param in params)
        scope, unused = list(params), list(params)
        body = [self._statement(scope, unused, earlier) for _ in range(statements)]
        lines = [
            f"def {name}({signature}):",
            *body,
            f"    return {self._pick.one(unused or scope)}",
        ]
        return "\n".join(lines) + "\n"

    def _with_noun(self, verb: str) -> str:
        name = f"{verb}_{self._pick.one(NOUNS)}"
        return f"{name}_{self._number(10)}" if self._pick.chance(0.4) else name

    def _callee(self, earlier: Sequence[str]) -> str:
        if earlier and self._pick.chance(0.2):
            return self._pick.one(earlier)
        while (verb := self._pick.one(VERBS)) in self._verbs:
            pass
        return self._with_noun(verb)

    def _local(self) -> str:
        while (name := self._pick.one(NOUNS)) in self._locals:
            pass
        self._locals.add(name)
        return name

    def _number(self, low: int) -> int:
        while (number := self._pick.between(low, 99)) in self._numbers:
            pass
        self._numbers.add(number)
        return number

    def _statement(self, scope: list[str], unused: list[str], earlier: Sequence[str]) -> str:
        pick = self._pick
        used, form = pick.one(unused or scope), pick.between(0, 5)
        if used in unused:
            unused.remove(used)
        if form == 0:
            condition = f"{used} {pick.one(COMPARISONS)} {self._number(2)}"
            return f"    if {condition}:\n        return {pick.one(scope)}"
        target = self._local()
        if form == 1:
            return f"    for {target} in {used}:\n        {self._callee(earlier)}({target}, {pick.one(scope)})"
        if form == 2:
            line = f"    {target} = {used} {pick.one(OPERATORS)} {self._number(2)}"
        elif form == 3:
            line = f"    {target} = [{used}, {pick.one(scope)}, {self._number(2)}]"
        elif form == 4:
            line = f"    {target} = {self._callee(earlier)}({used}, {self._number(2)})"
        else:
            line = f"    {target} = {self._callee(earlier)}({used}, {pick.one(scope)})"
        scope.append(target)
        unused.append(target)
        return line


def docstring(name: str) -> str:
    """The docstring of a function, which follows from its name so that there is one right answer."""
    return f'    """Run {name}."""\n'


def join_functions(functions: Sequence[str]) -> str:
    return "\n\n".join(functions)


def edit_task(pick: Picker, functions: tuple[int, int]) -> Task:
    """An instruction followed by a file, answered by the whole edited file."""
    writer = FileWriter(pick)
    names = [writer.function_name() for _ in range(pick.between(*functions))]
    parts = [writer.function(name, names[:at], pick.between(2, 6)) for at, name in enumerate(names)]
    kind = pick.one(EDIT_KINDS)
    at = pick.between(0, len(names) - 1)
    source = join_functions(parts)
    if kind == "rename":
        new = writer.function_name()
        request = f"Rename {names[at]} to {new}. Return the whole file."
        answer = re.sub(rf"\b{names[at]}\b", new, source)
    elif kind == "docstring":
        request = f"Add a docstring to {names[at]}. Return the whole file."
        head, body = parts[at].split("\n", 1)
        parts[at] = f"{head}\n{docstring(names[at])}{body}"
        answer = join_functions(parts)
    else:
        request = "Return this file unchanged."
        answer = source
    return Task(kind, f"{request}\n\n{source}", answer)


def fresh_task(pick: Picker) -> Task:
    """A request that holds two names and nothing else of its answer."""
    writer = FileWriter(pick)
    first, second = writer.function_name(), writer.function_name()
    head = writer.function(first, (), pick.between(2, 6))
    tail = writer.function(second, (first,), pick.between(2, 6))
    return Task(
        "fresh", f"Write a file with functions {first} and {second}.", join_functions([head, tail])
    )


def distinct(tasks: Iterator[Task], taken: set[str]) -> Iterator[Task]:
    """Drops every task whose prompt was seen before; ``taken`` is extended as tasks go by."""
    for task in tasks:
        if task.prompt not in taken:
            taken.add(task.prompt)
            yield task


def _edits(pick: Picker, functions: tuple[int, int]) -> Iterator[Task]:
    while True:
        yield edit_task(pick, functions)


def _fresh(pick: Picker) -> Iterator[Task]:
    while True:
        yield fresh_task(pick)


def held_out_edits(count: int = HELD_OUT_EDITS) -> list[Task]:
    low, high = HELD_OUT_ANSWER_CHARS
    stream = distinct(_edits(Picker("held-out edits"), HELD_OUT_FUNCTIONS), set())
    fitting = (task for task in stream if low <= len(task.answer) <= high)
    return [next(fitting) for _ in range(count)]


def held_out_fresh(count: int = HELD_OUT_FRESH) -> list[Task]:
    stream = distinct(_fresh(Picker("held-out fresh")), set())
    return [next(stream) for _ in range(count)]


class TrainingTasks:
    """The training stream: never a held-out prompt, never the same prompt twice."""

    def __init__(self, seed: int, fresh_share: float = 0.12) -> None:
        self._pick = Picker(f"training {seed}")
        self._fresh_share = fresh_share
        self._taken = {task.prompt for task in (*held_out_edits(), *held_out_fresh())}

    def take(self, functions: tuple[int, int]) -> Task:
        """The next task, of a file with ``functions[0]`` to ``functions[1]`` functions when it is an edit."""
        return next(distinct(self._stream(functions), self._taken))

    def _stream(self, functions: tuple[int, int]) -> Iterator[Task]:
        while True:
            if self._pick.chance(self._fresh_share):
                yield fresh_task(self._pick)
            else:
                yield edit_task(self._pick, functions)


def prompt_files() -> dict[str, str]:
    """The committed prompt files by name, in the custom-dataset format of ``vllm bench serve``."""

    def lines(tasks: list[Task]) -> str:
        return "".join(json.dumps({"prompt": task.prompt}) + "\n" for task in tasks)

    return {"edits.jsonl": lines(held_out_edits()), "fresh.jsonl": lines(held_out_fresh())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the held-out prompt files of the demo model."
    )
    prompts = Path(__file__).parents[2] / "mpctl" / "experiment" / "prompts"
    parser.add_argument("--out", type=Path, default=prompts, help="where to write")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, text in prompt_files().items():
        (args.out / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
