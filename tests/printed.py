"""Commands that messages print: every call that builds one, with a stand-in for each word that only a run knows."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from mpctl import commands

PACKAGE = Path(commands.__file__).parent
UNKNOWN = "1"  # the stand-in
HELP_PAGES = {"cli/registry.py", "cli/shell.py"}
# Marks by which a file of ours is recognised, and a page for readers on other machines.
NOT_ADVICE = {"app/inspect/measured.py", "report/markdown.py"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the program that prints advice."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in HELP_PAGES | NOT_ADVICE:
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def templates() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where a command is built, and its words."""
    for name, tree in modules():
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            builder = getattr(call.func, "attr", "")
            receiver = getattr(getattr(call.func, "value", None), "id", "")
            of_mpctl = builder == "line" and receiver == "commands"
            if receiver == "click" or not (of_mpctl or builder in ("command", "_command")):
                continue
            if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
                words = [
                    _word(argument)
                    for argument in call.args
                    if not isinstance(argument, ast.Starred)
                ]
                if not of_mpctl:  # they put the service behind the verb
                    words.insert(2 if words[0] == "local" else 1, "qwen")
                yield f"{name}:{call.lineno}", tuple(words)


def _word(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else UNKNOWN


CLUSTER = (
    "doctor/",
    "platform/kubernetes/",
    "app/cluster/",
    "app/session/cluster.py",
    "cli/cluster.py",
)
THIS_MACHINE = (
    "local/",
    "app/session/open.py",
)
ELSEWHERE = {  # they read a managed cluster's API, or belong to the other platform
    "local": ("connect", "rbac"),
    "kubernetes": ("connect", "local"),
}
DRY = ("rollout", "rollback")
LAST = (
    "retire",
    "resume",
    "abandon",
    "unlock",
    "prune --all",
    "local",
)  # in this order, after all that reads
CELL = "{target: Qwen/Qwen3-8B, method: ngram, gpu: L4, k: 5, concurrency: 8, acceptance: {traffic: chat}}"
ENDLESS = ("watch", "status")  # without --once, and with -w
_OF_SERVICE = {
    "abandon",
    "diff",
    "history",
    "prune",
    "resume",
    "retire",
    "rollback",
    "rollout",
    "status",
    "unlock",
}


def pasted(
    platform: str, service: str, namespace: str, files: dict[str, str]
) -> list[tuple[str, ...]]:
    """The words of every command that messages print on ``platform``, local or kubernetes, for a service that was
    rolled out: as they are printed, except that those that change the service are dry runs. ``files``: those that a
    stand-in means."""
    others = CLUSTER if platform == "local" else THIS_MACHINE
    entries: dict[tuple[str, ...], str] = {}
    for where, words in templates():
        if not where.startswith(others) and words[0] not in ELSEWHERE[platform]:
            named = tuple(_real(words, position, service, files) for position in range(len(words)))
            line = tuple(shlex.split(commands.line(*named, namespace=namespace))[1:])
            dry = ("--dry-run=client",) if words[0] in DRY else ()
            entries[(*line, *dry)] = " ".join(
                word for word in words if word not in ("qwen", UNKNOWN)
            )
    rank = {
        line: next((n for n, verb in enumerate(LAST, 1) if text.startswith(verb)), 0)
        for line, text in entries.items()
    }
    return sorted(entries, key=lambda line: (rank[line], line))


def sign_verdict(mpctl: Any, *place: str) -> dict[str, str]:
    """Sign the verdict of demo's rollout-1; the files of ``pasted`` that it makes. ``mpctl`` runs a command in its
    ``directory``."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (mpctl.directory / "key.pem").write_bytes(private)
    (mpctl.directory / "key.pub").write_bytes(public)
    signed = (
        "-o",
        "attestation",
        "--output-file",
        "verdict.intoto.jsonl",
    )
    mpctl.environment["MPCTL_SIGN_WITH"] = "key.pem"
    mpctl("report", "demo", "rollout-1", *place, *signed)
    del mpctl.environment["MPCTL_SIGN_WITH"]
    return {"bundle": "verdict.intoto.jsonl", "key": "key.pub"}


def is_endless(line: tuple[str, ...]) -> bool:
    """Whether a command runs until somebody ends it."""
    return line[0] in ENDLESS and ("-w" in line or (line[0] == "watch" and "--once" not in line))


def _real(words: tuple[str, ...], position: int, service: str, files: dict[str, str]) -> str:
    word, before = words[position], words[position - 1] if position else ""
    if word == "qwen" or (word == UNKNOWN and before in (*_OF_SERVICE, "up", "down", "list")):
        return service
    if before == "--to-revision" or word == "N":
        return "1"
    if before == "--key":
        return files["key"]
    method = "eagle3" if "--draft" in words else "ngram"
    means = {
        "METHOD": method,
        "MANIFEST": files["manifest"],
        "service.yaml": files["manifest"],
        "-": files["cell"],
    }
    stand_ins = {
        "-f": files["manifest"],
        "--spec": method,
        "--draft": "org/head",
        "compare": files["run"],
        "plan": "Qwen/Qwen3-8B",  # of a model that nobody serves
        "report": "rollout-1",
        "verify": files["bundle"],
    }
    return means.get(word, stand_ins.get(before, word) if word == UNKNOWN else word)
