"""Writes one entry of a kubeconfig without harm to any other.

- Our entries carry an extension named ``mpctl``; one of the same name without it is another's: a Conflict.
- Everything else in the file, comments included, comes out as it went in. The current context is only set when there
  is none, or when asked.
- The write holds kubectl's own lock (``<file>.lock``), keeps a backup beside the file and replaces it in one rename.
  A new file is 0600; an existing one keeps its mode.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mpctl.errors import Conflict, InputError, MpctlError

MARK = "mpctl"
SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))


@dataclass(frozen=True)
class KubeconfigEntry:
    """A cluster, a user and a context of the same name. ``ca_data`` is base64; no field holds a secret."""

    name: str
    server: str
    ca_data: str
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    namespace: str | None = None

    def bodies(self) -> dict[str, dict[str, Any]]:
        exec_ = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": self.command,
            "args": list(self.args),
            "env": [{"name": name, "value": value} for name, value in self.env.items()] or None,
            "interactiveMode": "Never",
            "provideClusterInfo": False,
            "installHint": "mpctl is not on PATH: pip install '.[cloud]' in its checkout",
        }
        context = {"cluster": self.name, "user": self.name}
        return {
            "clusters": {"server": self.server, "certificate-authority-data": self.ca_data},
            "users": {"exec": exec_},
            "contexts": context | ({"namespace": self.namespace} if self.namespace else {}),
        }


@dataclass(frozen=True)
class Written:
    path: Path
    changed: bool
    backup: Path | None
    current: bool


def kubeconfig_path(flag: str | None, environment: Mapping[str, str]) -> Path:
    """The file that is written: the flag, else the first file of KUBECONFIG, else ~/.kube/config."""
    if flag:
        return Path(flag).expanduser()
    listed = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(listed[0] if listed else "~/.kube/config").expanduser()


def write_entry(path: Path, entry: KubeconfigEntry, *, use: bool = False) -> Written:
    """Adds or renews ``entry``; a second time it changes nothing."""
    path = path.resolve()  # a symbolic link stays one
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(path):
        old = path.read_text() if path.exists() else ""
        new, current = merged(old, entry, use=use, file=str(path))
        if new == old:
            return Written(path, False, None, current)
        backup = _backup(path) if old else None
        _replace(path, new)
    return Written(path, True, backup, current)


def merged(text: str, entry: KubeconfigEntry, *, use: bool, file: str) -> tuple[str, bool]:
    """``text`` with ``entry`` in it, and whether it is the current context."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    document = _read(yaml, text, file)
    before = _plain(document)
    marked = {"extensions": [{"name": MARK, "extension": {"managed": "mpctl connect"}}]}
    for section, key in SECTIONS:
        body = {name: value for name, value in entry.bodies()[section].items() if value is not None}
        _put(document, section, key, entry.name, {**body, **marked}, file)
    if use or not document.get("current-context"):
        document["current-context"] = entry.name
    current = document["current-context"] == entry.name
    if _plain(document) == before:
        return text, current
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue(), current


def _read(yaml: YAML, text: str, file: str) -> Any:
    try:
        document = yaml.load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise InputError("not valid YAML", file=file, line=line, hint="Repair it; nothing was changed") from None
    if document is None:
        document = yaml.load("apiVersion: v1\nkind: Config\n")
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise InputError("not a kubeconfig", file=file, hint="Give another file with --kubeconfig")
    return document


def _put(document: Any, section: str, key: str, name: str, body: dict[str, Any], file: str) -> None:
    if document.get(section) is None:
        document[section] = []
    entries = document[section]
    if not isinstance(entries, list):
        raise InputError("is not a list", file=file, field=section)
    for present in entries:
        if isinstance(present, dict) and present.get("name") == name:
            if not _ours(present.get(key)):
                raise Conflict(
                    f"{file} has an entry '{name}' in {section} that mpctl did not write",
                    hint="Give this one another name with --context, or remove the other",
                )
            if _plain(present[key]) != body:
                preserved = {k: present[key][k] for k in ("namespace",) if k in present[key] and k not in body}
                present[key] = {**body, **preserved}
            return
    entries.append({"name": name, key: body})


def _ours(body: Any) -> bool:
    extensions = body.get("extensions") if isinstance(body, dict) else None
    return isinstance(extensions, list) and any(isinstance(e, dict) and e.get("name") == MARK for e in extensions)


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    return [_plain(value) for value in node] if isinstance(node, list) else node


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(path.name + ".lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        hint = f"Wait for the other writer; if there is none, remove {lock}"
        raise Conflict(f"{path} is being written by another program", hint=hint) from None
    except OSError as error:
        raise MpctlError(f"Cannot write {path}: {error.strerror}", hint="Give another file with --kubeconfig") from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _backup(path: Path) -> Path:
    backup = path.with_name(path.name + ".mpctl-backup")
    shutil.copy2(path, backup)
    return backup


def _replace(path: Path, text: str) -> None:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(mode)
        os.replace(name, path)  # noqa: PTH105  the atomic one, by its known name
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
