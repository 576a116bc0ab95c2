"""Manifests made up at random, as people write them, and damaged as people damage them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

_FLAGS = (
    ("--max-model-len", "8192"),
    ("--gpu-memory-utilization", "0.9"),
    ("--port", "8080"),
    ("--served-model-name", "llm"),
    ("--tensor-parallel-size", "2"),
    ("--enforce-eager", None),
    ("--trust-remote-code", None),
    ("--dtype", "bfloat16"),
)
_SPECS = (
    {"method": "ngram", "num_speculative_tokens": 3},
    {"method": "suffix", "num_speculative_tokens": 8},
)
_COMMENTS = ("# ours", "# TODO: more", "#", "# a: b", "# --speculative-config in a comment")


def manifests(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Names and texts; the same ``seed`` gives the same texts."""
    for number in range(count):
        yield f"fuzz {seed}-{number}", manifest(seed, number)


def manifest(seed: int, number: int) -> str:
    """One of them."""
    rng = random.Random(f"{seed} {number}")
    text = _file(rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        text = rng.choice(_DAMAGES)(text, rng)
    return text


def _file(rng: random.Random) -> str:
    parts = [rng.choice((_in_model, _in_container, _deployment))(rng)]
    if rng.random() < 0.2:
        parts.insert(
            rng.randrange(2),
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {a: b}\n",
        )
    return ("" if rng.random() < 0.8 else "---\n") + "---\n".join(parts)


def _words(rng: random.Random) -> list[str]:
    words: list[str] = []
    for flag, value in rng.sample(_FLAGS, rng.randrange(len(_FLAGS))):
        joined = rng.random() < 0.5
        words += [flag] if value is None else [f"{flag}={value}"] if joined else [flag, value]
    if rng.random() < 0.3:
        config = rng.choice(_SPECS)
        words += rng.choice(
            (
                [f"--speculative-config={json.dumps(config)}"],
                ["--speculative-config", json.dumps(config)],
                ["--speculative_config", json.dumps(config, separators=(",", ":"))],
                [
                    word
                    for key, value in config.items()
                    for word in (f"--speculative-config.{key}", str(value))
                ],
                [f"--speculative-config.{key}={value}" for key, value in config.items()],
            )
        )
    return words


def _comment(rng: random.Random, indent: str) -> str:
    return f"{indent}{rng.choice(_COMMENTS)}\n" if rng.random() < 0.2 else ""


def _scalar(word: str, rng: random.Random, *, flow: bool = False) -> str:
    plain = not any(c in word for c in "{}[]:#,\"'&*!|>%@`") and not word.replace(".", "").isdigit()
    if plain and rng.random() < 0.6:
        return word
    if "'" not in word and rng.random() < 0.6:
        return f"'{word}'"
    if not flow and rng.random() < 0.1:
        return f"|-\n@@{word}"
    return json.dumps(word)


def _listing(key: str, words: list[str], indent: str, rng: random.Random) -> str:
    if not words:
        return rng.choice(("", f"{indent}{key}: []\n"))
    form = rng.random()
    if form < 0.2:
        return f"{indent}{key}: [{', '.join(_scalar(w, rng, flow=True) for w in words)}]\n"
    if form < 0.35:
        lines = "".join(
            f"{indent}  {_scalar(w, rng, flow=True)}{',' if n < len(words) - 1 or rng.random() < 0.5 else ''}"
            f"{'  # why' if rng.random() < 0.2 else ''}\n"
            for n, w in enumerate(words)
        )
        return f"{indent}{key}: [\n{lines}{indent}]\n"
    dash = indent + rng.choice(("", "  "))
    items = ""
    for word in words:
        shown = _scalar(word, rng).replace("@@", f"{dash}    ")
        items += f"{_comment(rng, dash)}{dash}- {shown}\n"
    return f"{indent}{key}:{'  # engine' if rng.random() < 0.1 else ''}\n{items}"


def _in_model(rng: random.Random) -> str:
    storage = rng.choice(
        ("", "      storageUri: hf://org/model\n", "      storageUri: 'pvc://models/llm'\n")
    )
    keys = [
        "      modelFormat:\n        name: vLLM\n",
        storage,
        _comment(rng, "      "),
        _listing("args", _words(rng), "      ", rng),
    ]
    rng.shuffle(keys)
    replicas = rng.choice(("", "    minReplicas: 1\n"))
    volumes = rng.choice(("", "    volumes:\n    - name: cache\n      emptyDir: {}\n"))
    return (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
        f"metadata:\n  name: llm\n{_comment(rng, '  ')}spec:\n  predictor:\n"
        f"{replicas}    model:\n{''.join(keys)}{volumes}"
    )


def _container(rng: random.Random, indent: str) -> str:
    words = ["org/model", *_words(rng)]
    if rng.random() < 0.25:
        line = " ".join(
            f"'{w}'" if any(c in w for c in '{" ') else w for w in ["vllm", "serve", *words]
        )
        script = rng.choice(
            (
                f"{indent}  args:\n{indent}  - |\n{indent}    exec {line}\n",
                f"{indent}  args:\n{indent}  - >-\n{indent}    {line}\n",
                f"{indent}  args: [{json.dumps(line)}]\n",
            )
        )
        run = f"{indent}  command: [sh, -c]\n{script}"
    elif rng.random() < 0.5:
        run = f"{indent}  command: [vllm, serve]\n" + _listing("args", words, f"{indent}  ", rng)
    else:
        run = _listing("command", ["vllm", "serve", *words], f"{indent}  ", rng)
    return f"{indent}- name: kserve-container\n{indent}  image: vllm/vllm-openai:v0.32.0\n{_comment(rng, indent)}{run}"


def _in_container(rng: random.Random) -> str:
    return (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: llm}\n"
        f"spec:\n  predictor:\n    containers:\n{_container(rng, rng.choice(('    ', '      ')))}"
    )


def _deployment(rng: random.Random) -> str:
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llm}\nspec:\n  selector: {matchLabels: {a: b}}\n"
        "  template:\n    metadata: {labels: {a: b}}\n    spec:\n      containers:\n"
        f"{_container(rng, '      ')}"
    )


def _line(text: str, rng: random.Random) -> tuple[list[str], int]:
    lines = text.splitlines(keepends=True) or [""]
    return lines, rng.randrange(len(lines))


def _drop(text: str, rng: random.Random) -> str:
    lines, at = _line(text, rng)
    return "".join(lines[:at] + lines[at + 1 :])


def _double(text: str, rng: random.Random) -> str:
    lines, at = _line(text, rng)
    return "".join(lines[: at + 1] + lines[at:])


def _swap(text: str, rng: random.Random) -> str:
    lines, at = _line(text, rng)
    if at:
        lines[at - 1], lines[at] = lines[at], lines[at - 1]
    return "".join(lines)


def _indent(text: str, rng: random.Random) -> str:
    lines, at = _line(text, rng)
    lines[at] = rng.choice((" ", "  ")) + lines[at]
    return "".join(lines)


def _character(text: str, rng: random.Random) -> str:
    position = rng.randrange(len(text) + 1)
    return text[:position] + rng.choice("\"'#:-{}[],&*!|>%@`\t\\ \u00a0\u00e9") + text[position:]


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _blank(text: str, rng: random.Random) -> str:
    lines, at = _line(text, rng)
    lines.insert(at, rng.choice(("\n", "   \n", "# between\n")))
    return "".join(lines)


def _trailing(text: str, rng: random.Random) -> str:
    lines, at = _line(text, rng)
    lines[at] = lines[at].rstrip("\n") + rng.choice(("  ", "  # note", "\t")) + "\n"
    return "".join(lines)


_DAMAGES: tuple[Callable[[str, random.Random], str], ...] = (
    _drop,
    _double,
    _swap,
    _indent,
    _character,
    _cut,
    _blank,
    _blank,
    _trailing,
    lambda text, _: text.replace("\n", "\r\n"),
    lambda text, _: text.rstrip("\n"),
    lambda text, _: "\ufeff" + text,
)
