"""Resolves flags and environment to an API server, as kubectl does.

``--kubeconfig``, else the files of ``$KUBECONFIG`` (the first that names a current context wins, as in kubectl; the
Python client takes the last), else ``~/.kube/config``, else the service account of the pod we run in.
"""

from __future__ import annotations

import base64
import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mpctl import commands
from mpctl.errors import InputError, NotPermitted
from mpctl.json_fields import list_at
from mpctl.json_types import Json, JsonView
from mpctl.manifest import masked, redacted

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
VARIABLE = "KUBECONFIG"


@dataclass(frozen=True)
class ClusterConnection:
    """A connection to a cluster. ``namespace``: of the context, ``default`` if the context names none."""

    configuration: Configuration
    namespace: str
    context: str


def kubeconfig_files(path: str | None) -> tuple[str, ...]:
    """The files to read, in order of precedence; those that do not exist are left out unless named by ``path``.

    Raises:
        InputError: ``path`` does not exist.
    """
    if path is not None:
        if not Path(path).expanduser().is_file():
            raise InputError("file not found", file=path, field="--kubeconfig")
        return (str(Path(path).expanduser()),)
    listed = os.environ.get(VARIABLE) or str(Path("~/.kube/config").expanduser())
    files = [str(Path(part).expanduser()) for part in listed.split(os.pathsep) if part]
    return tuple(f for f in files if Path(f).is_file())


def missing_kubeconfig() -> str:
    """Name the kubeconfig that is looked for and does not exist."""
    variable = os.environ.get(VARIABLE)
    return (
        f"no cluster: {VARIABLE}={variable} does not exist"
        if variable
        else "no cluster: ~/.kube/config does not exist"
    )


def current_context(files: tuple[str, ...]) -> str | None:
    """The current context of the first file that names one.

    Raises:
        InputError: a file cannot be read, or is no kubeconfig.
    """
    for file in files:
        chosen = _read(file).get("current-context")
        if chosen:
            return str(chosen)
    return None


def _read(file: str) -> Json:
    """Read a kubeconfig; an empty file counts as an empty one, as with kubectl.

    Raises:
        InputError: not readable, or not a kubeconfig.
    """
    try:
        record = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1  # type: ignore[union-attr]  # each error of the parser has one
        raise InputError(f"not YAML: {error.problem}", file=file, line=line) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"cannot be read: {error}", file=file) from error
    if not isinstance(record, dict):
        raise InputError("not a kubeconfig: expected a mapping", file=file)
    return record


def contexts(kubeconfig: str | None) -> tuple[str, ...]:
    """The names of all contexts.

    Raises:
        InputError: a file cannot be read, or is no kubeconfig.
    """
    return _Entries(kubeconfig_files(kubeconfig)).names("context")


def namespace_of(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of a context, ``default`` if it names none; empty in a pod and where nothing can be read."""
    try:
        files = kubeconfig_files(kubeconfig)
        chosen = context or current_context(files)
        _, entry = _Entries(files).find("context", chosen)
    except InputError:
        return ""
    return "" if entry is None else str(entry.get("namespace") or "default")


def reachable(kubeconfig: str | None, context: str | None) -> bool:
    """Return whether a context or a pod's service account names a cluster. Reads files only."""
    files = kubeconfig_files(kubeconfig)
    return bool(files and (context or current_context(files))) or (not files and _in_pod())


def _in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()


def connect(kubeconfig: str | None = None, context: str | None = None) -> ClusterConnection:
    """Read the configuration; nothing is sent.

    Raises:
        InputError: there is no kubeconfig, or no such context.
        NotPermitted: the context's credential plugin gave no credential.
    """
    from kubernetes.client import Configuration

    config: Any = import_module("kubernetes.config")  # its functions carry no types
    configuration = Configuration()
    files = kubeconfig_files(kubeconfig)
    if not files and context is None and _in_pod():
        config.load_incluster_config(client_configuration=configuration)
        return ClusterConnection(
            configuration, (SERVICE_ACCOUNT / "namespace").read_text().strip(), "in-cluster"
        )
    if not files:
        raise InputError(
            missing_kubeconfig(),
            hint=f"'{commands.line('connect', 'CLUSTER')}' prints one for an EKS or GKE cluster",
        )
    chosen = context or current_context(files)
    if chosen is None:
        raise InputError(
            "the kubeconfig has no current context", file=files[0], hint="choose one with --context"
        )
    entries = _Entries(files)
    _, context_entry = entries.find("context", chosen)
    if context_entry is None:
        names = ", ".join(entries.names("context")) or "none"
        raise InputError(
            f"context {chosen} not found; available: {names}",
            file=os.pathsep.join(files),
            field="--context",
        )
    entries.check(context_entry)
    _load(config, configuration, entries, chosen)
    return ClusterConnection(configuration, context_entry.get("namespace") or "default", chosen)


class _Entries:
    """Entries of the kubeconfig files; of two with the same name the first wins, as in kubectl."""

    def __init__(self, files: Sequence[str]) -> None:
        records = {file: _read(file) for file in files}
        self.files = tuple(
            file for file, record in records.items() if record
        )  # the client refuses empty ones
        self._all = [
            (file, kind, entry)
            for file, record in records.items()
            for kind in ("context", "cluster", "user")
            for entry in _list(record, file, kind)
        ]

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of all entries of a kind."""
        return tuple(dict.fromkeys(str(entry["name"]) for _, of, entry in self._all if of == kind))

    def find(self, kind: str, name: Any) -> tuple[str, Json | None]:
        """Return the file and content of an entry; None when not found."""
        matching = (
            (file, entry) for file, of, entry in self._all if of == kind and entry["name"] == name
        )
        file, entry = next(matching, ("", None))
        return file, None if entry is None else dict(entry.get(kind) or {})

    def check(self, context: Json) -> None:
        """Refuse errors that the client library reports without file and field, or not at all.

        Raises:
            InputError: the server's address or a certificate of a context cannot be used.
        """
        for kind, fields in _DATA.items():
            name = context.get(kind)
            file, entry = self.find(kind, name)
            if entry is None:
                continue
            if kind == "cluster" and not str(entry.get("server") or "").startswith(
                ("https://", "http://")
            ):
                message = f"{entry.get('server')!r} is not the address of an API server: it must begin with https://"
                raise InputError(message, file=file, field=f"cluster {name}: server")
            for field in fields:
                try:
                    base64.standard_b64decode(entry.get(field) or "")
                except (ValueError, TypeError) as error:
                    raise InputError(
                        f"not base64: {error}", file=file, field=f"{kind} {name}: {field}"
                    ) from error


_DATA = {
    "cluster": ("certificate-authority-data",),
    "user": ("client-certificate-data", "client-key-data"),
}


def _list(record: JsonView, file: str, kind: str) -> list[Json]:
    def named(entry: Any) -> bool:
        return (
            isinstance(entry, dict) and "name" in entry and isinstance(entry.get(kind) or {}, dict)
        )

    entries = record.get(f"{kind}s") or []
    if not isinstance(entries, list) or not all(named(entry) for entry in entries):
        raise InputError(
            f"expected a list of entries with name and {kind}", file=file, field=f"{kind}s"
        )
    return entries


def _load(config: Any, configuration: Configuration, entries: _Entries, context: str) -> None:
    """Load the files with the client library, and capture what it only logs.

    Raises:
        InputError: the context cannot be used.
        NotPermitted: its credential plugin gave no credential.
    """
    from kubernetes.config.config_exception import ConfigException

    joined = os.pathsep.join(entries.files)
    capture = _LogCapture()
    root = logging.getLogger()
    root.addHandler(capture)
    try:
        config.load_kube_config(
            config_file=joined,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise InputError(f"context {context} cannot be used: {error}", file=joined) from error
    finally:
        root.removeHandler(capture)
    _, context_entry = entries.find("context", context)
    _, user = entries.find("user", (context_entry or {}).get("user"))
    plugin = (user or {}).get("exec")
    if plugin and not configuration.api_key.get("BearerToken") and not configuration.cert_file:
        raise _no_credential(context, plugin, capture.lines)


class _LogCapture(logging.Handler):
    """Captures the client library's log, the only report of a failed credential plugin."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Capture a line."""
        self.lines.append(record.getMessage())


def _no_credential(context: str, plugin: JsonView, lines: list[str]) -> NotPermitted:
    command = shlex.join(
        redacted([str(part) for part in (plugin.get("command"), *list_at(plugin, "args"))])
    )
    # Names only: a value may be a secret.
    names = ", ".join(str(item.get("name")) for item in list_at(plugin, "env"))
    message = ": ".join(
        [f"context {context}: {plugin.get('command')} gave no credential", *map(masked, lines)]
    )
    return NotPermitted(
        message,
        hint=f"run the plugin: {command}" + (f" (the kubeconfig sets {names})" if names else ""),
    )
