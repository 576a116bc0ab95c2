"""From flags and environment to an API server, as kubectl does it.

``--kubeconfig``, else the files of ``$KUBECONFIG`` (the first that names a current context wins, as in kubectl; the
Python client takes the last), else ``~/.kube/config``, else the service account of the pod we run in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpctl.errors import InputError, NotPermitted

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
VARIABLE = "KUBECONFIG"


@dataclass(frozen=True)
class Connection:
    """How to reach a cluster. ``namespace`` is that of the context, ``default`` when it has none."""

    configuration: Configuration
    namespace: str
    context: str


def kubeconfig_files(path: str | None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The files to read, in order of precedence; those that do not exist are left out unless named by ``path``.

    Raises:
        InputError: ``path`` is given and is not there.
    """
    if path is not None:
        if not Path(path).expanduser().is_file():
            raise InputError("is not there", file=path, field="--kubeconfig")
        return (str(Path(path).expanduser()),)
    listed = environment.get(VARIABLE) or str(Path("~/.kube/config").expanduser())
    files = [str(Path(part).expanduser()) for part in listed.split(os.pathsep) if part]
    return tuple(f for f in files if Path(f).is_file())


def current_context(files: tuple[str, ...]) -> str | None:
    """The current context of the first file that names one.

    Raises:
        InputError: a file is not YAML.
    """
    import yaml

    for file in files:
        try:
            record = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise InputError(f"cannot be read: {error}", file=file) from error
        chosen = record.get("current-context") if isinstance(record, dict) else None
        if chosen:
            return str(chosen)
    return None


def reachable(kubeconfig: str | None, context: str | None) -> bool:
    """Whether anything names a cluster: a context, or the service account of a pod. Only looks at files."""
    files = kubeconfig_files(kubeconfig)
    return bool(files and (context or current_context(files))) or (not files and _in_pod())


def _in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Read the configuration; nothing is sent.

    Raises:
        InputError: there is no kubeconfig, or no such context.
        NotPermitted: the context's credential plugin gave no credential.
    """
    from kubernetes.client import Configuration
    from kubernetes.config.config_exception import ConfigException

    config: Any = import_module("kubernetes.config")  # its functions carry no types
    configuration = Configuration()
    files = kubeconfig_files(kubeconfig)
    if not files and context is None and _in_pod():
        config.load_incluster_config(client_configuration=configuration)
        return Connection(configuration, (SERVICE_ACCOUNT / "namespace").read_text().strip(), "in-cluster")
    if not files:
        raise InputError(
            "no kubeconfig is there", field="--kubeconfig", hint="mpctl connect writes one for an EKS or GKE cluster"
        )
    chosen = context or current_context(files)
    if chosen is None:
        raise InputError("the kubeconfig has no current context", file=files[0], hint="choose one with --context")
    joined = os.pathsep.join(files)
    try:
        contexts, _ = config.list_kube_config_contexts(config_file=joined)
    except ConfigException as error:
        raise InputError(f"cannot be used: {error}", file=joined) from error
    found: dict[str, Any] | None = next((dict(c) for c in contexts if c["name"] == chosen), None)
    if found is None:
        names = ", ".join(c["name"] for c in contexts) or "none"
        raise InputError(f"there is no context {chosen}; there are: {names}", file=joined, field="--context")
    try:
        config.load_kube_config(
            config_file=joined, context=chosen, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError) as error:
        raise InputError(f"context {chosen} cannot be used: {error}", file=joined) from error
    _require_credential(configuration, found["context"].get("user"), files, chosen)
    return Connection(configuration, found["context"].get("namespace") or "default", chosen)


def _require_credential(configuration: Configuration, user: str | None, files: tuple[str, ...], context: str) -> None:
    """A credential plugin that fails is only logged by the client, and every request is then anonymous."""
    import yaml

    for file in files:
        record = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
        for entry in record.get("users") or []:
            if entry.get("name") != user:
                continue
            plugin = (entry.get("user") or {}).get("exec")
            if plugin and not configuration.api_key.get("BearerToken") and not configuration.cert_file:
                raise NotPermitted(
                    f"context {context}: {plugin.get('command')} gave no credential", hint="run it by hand to see why"
                )
            return
