"""Requests, schemas, listings and settings files that an attacker may have written, generated from a seed and
given to the product's readers. A reader may refuse with an error of mpctl; everything else is a finding.

``python -m tests.fuzz.foreign 10000`` prints a table (``scripts/foreign-table``); a few run with the unit tests.
"""

import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from mpctl.cli.settings_files import read_settings
from mpctl.errors import MpctlError
from mpctl.experiment.answers import OWN, Answer, Ask, Level, Pair, ToolCall
from mpctl.experiment.prompt_files import body_of, read_classes, read_prompts
from mpctl.gate.answers import examine
from mpctl.platform.answers import match_schemas
from mpctl.platform.checkpoints import Listing, read_checkpoint
from tests.fuzz.mutate import mutated

LONGEST_S, MOST_MIB = 10.0, 512
PASS = 50  # requests and schemas that are judged together, as a pass judges its answers
SLOW_REGEX = "^(a+)+$"
LEAVES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1e308,
        10**40,
        float("nan"),
        "",
        "x",
        "a" * 32 + "!",
        "\ud800",
        "\x1b[2J",
        "function",
    ),
    *(
        "web_search",
        "json_schema",
        "json_object",
        "#",
        "#/$defs/a",
        "http://127.0.0.1:1/x",
        SLOW_REGEX,
        "object",
    ),
)
KEYS = {
    "requests": (
        *(
            "messages",
            "role",
            "user",
            "content",
            "prompt",
            "tools",
            "function",
            "name",
            "parameters",
            "tool_calls",
        ),
        *(
            "response_format",
            "json_schema",
            "schema",
            "type",
            "conversations",
            "from",
            "value",
            "request",
            "category",
        ),
    ),
    "schemas": (
        *(
            "type",
            "properties",
            "items",
            "$ref",
            "$defs",
            "a",
            "anyOf",
            "allOf",
            "not",
            "pattern",
            "uniqueItems",
            "enum",
        ),
        *(
            "patternProperties",
            "minimum",
            "required",
            "$schema",
            "$id",
            "$dynamicRef",
            "if",
            "then",
            "contains",
            "const",
        ),
    ),
    "listings": (
        *(
            "model_type",
            "architectures",
            "hidden_size",
            "num_hidden_layers",
            "vocab_size",
            "rope_parameters",
            "model",
        ),
        *(
            "vocab",
            "merges",
            "added_tokens",
            "chat_template",
            "text_config",
            "quantization_config",
            "dtype",
        ),
    ),
    "settings": (
        "rollout",
        "bench",
        "spec",
        "set",
        "namespace",
        "output",
        "<<",
        "local",
        "up",
        "prompts",
        "quiet",
    ),
}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FORMAT = {"type": "json_schema", "json_schema": {"schema": {}}}
SEEDS = {
    "requests": json.dumps(
        {"prompt": "q", "tools": [FUNCTION], "response_format": FORMAT}
    ).encode(),
    "schemas": b'{"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"pattern": "^x"}}}',
    "listings": b"120 config.json\n5000 model.safetensors\n==> config.json <==\n"
    b'{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}\n',
    "settings": b"rollout:\n  spec: ngram\n  set: [a=1]\nnamespace: ml\n",
}


class Inputs:
    """Inputs of one kind, the same for the same seed."""

    def __init__(self, kind, seed):
        self.kind, self.chance = kind, random.Random(f"{kind} {seed}")

    def value(self, depth=0):
        """A JSON value of the kind's keys, sometimes very deep or very wide."""
        pick, chance = self.chance.choice, self.chance.random()
        if depth == 0 and chance < 0.01:
            return self.extreme()
        if depth > 5 or chance < 0.25:
            return pick(LEAVES)
        if chance < 0.45:
            return [self.value(depth + 1) for _ in range(self.chance.randrange(4))]
        return {
            pick(KEYS[self.kind]): self.value(depth + 1) for _ in range(self.chance.randrange(5))
        }

    def extreme(self):
        value = pick = self.chance.choice((5, SLOW_REGEX, "x"))
        for _ in range(self.chance.choice((50, 99, 500))):
            value = (
                {self.chance.choice(KEYS[self.kind]): value}
                if self.chance.random() < 0.5
                else [value]
            )
        return self.chance.choice(
            (value, {f"{pick}{n}": n for n in range(20_000)}, [{"a": n} for n in range(4000)])
        )

    def data(self):
        """The bytes of a file."""
        chance = self.chance.random()
        if chance < 0.4:
            return mutated(SEEDS[self.kind], SEEDS["schemas"], str(self.chance.random()))
        if chance < 0.42:
            return self.chance.choice((b"[", b'{"a":', b"- ", b"==> config.json <==\n[")) * 100_000
        if chance < 0.44:
            return b"9" * 5000 + b" x"
        text = json.dumps(self.value())
        return (
            f"==> {self.chance.choice(('config', 'tokenizer'))}.json <==\n{text}\n"
            if self.lists
            else text
        ).encode()

    @property
    def lists(self):
        return self.kind == "listings"


def judge(bodies):
    """Judge valid, invalid and odd answers to requests, as a rollout does after its measurement."""
    answers = (
        "{}",
        '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"',
        "5",
        "{",
        json.dumps([{"a": n} for n in range(2000)]),
    )
    asks = [Ask(OWN, body, 96) for body in bodies]
    texts = [answers[number % len(answers)] for number in range(len(asks))]
    received = [
        Answer((1,), (2,), text, tool_calls=(ToolCall("f", text),), finish="stop") for text in texts
    ]
    pairs = [
        Pair(number, ask, answer, answer)
        for number, (ask, answer) in enumerate(
            zip(asks, match_schemas(asks, received), strict=True)
        )
    ]
    examine(pairs, fidelity="full", level=Level.IDS)


def read_requests(batch, folder):
    bodies = []
    for data in batch:
        try:
            prompts = read_prompts(data.decode(errors="replace"), file="log.jsonl").texts
            read_classes(data.decode(errors="replace"), file="log.jsonl")
            bodies += map(body_of, prompts)
        except MpctlError:
            continue
    judge(bodies)


def read_schemas(batch, folder):
    """Read the schemas as parts of requests."""
    lines = []
    for data in batch:
        try:
            schema = json.loads(data)
            wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
            lines.append(
                json.dumps({"prompt": f"q {len(lines)}", "response_format": wanted}).encode()
            )
        except (ValueError, RecursionError):
            continue
    read_requests(lines, folder)


def read_listings(batch, folder):
    for data in batch:
        refused(
            lambda data=data: read_checkpoint(Listing(data.decode(errors="replace"), "files.txt"))
        )


def read_settings_files(batch, folder):
    for data in batch:
        refused(
            lambda data=data: read_settings(folder / "mpctl.yaml", data.decode(errors="replace"))
        )


def refused(read):
    try:
        read()
    except MpctlError:
        return


READERS = {
    "requests": (read_requests, PASS),
    "schemas": (read_schemas, PASS),
    "listings": (read_listings, 1),
    "settings": (read_settings_files, 1),
}


def run(kind, count, seed="0"):
    """Return the tracebacks with their counts, and the longest time of what is read together, in seconds."""
    read, together = READERS[kind]
    inputs, faults, longest = Inputs(kind, seed), Counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, count, together):
            batch = [inputs.data() for _ in range(min(together, count - start))]
            began = time.monotonic()
            try:
                read(batch, Path(folder))
            except Exception:  # noqa: BLE001  whatever it is, it got past the reader
                faults["".join(traceback.format_exc().splitlines(keepends=True)[-5:])] += 1
            longest = max(longest, time.monotonic() - began)
    return faults, longest


def main(count):
    """Print a row for each kind, and fail where a limit does not hold."""
    failed = False
    out = sys.stdout.write
    out("| inputs | generated | tracebacks | longest | peak memory |\n|---|---|---|---|---|\n")
    for kind in READERS:
        faults, longest = run(kind, count // len(READERS))
        peak = (
            max(
                resource.getrusage(who).ru_maxrss
                for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            )
            / 1024
        )
        counts = f"{count // len(READERS):,} | {faults.total()}"
        out(f"| {kind} | {counts} | {longest:.1f} s | {peak:.0f} MiB |\n")
        sys.stdout.flush()
        for fault, times in faults.items():
            sys.stderr.write(f"{times} times:\n{fault}")
        failed |= bool(faults) or longest > LONGEST_S or peak > MOST_MIB
    sys.exit(failed)


if __name__ == "__main__":
    main(int(sys.argv[1]))
