"""A container as a process: its command line, environment and files, as a kubelet and an image would make them.

An image is a folder of programs in ``images``: ``vllm`` and ``python`` there stand for the engine image, and start the
scripted engine or the real one; ``mpctl`` stands for the image of deploy/Containerfile. Commands run as written,
through the shell where they say so, in a folder of their own.

Not modelled: namespaces, users, limits, image contents. A mounted volume is a folder, and the mount's path is replaced
by it wherever it stands in arguments and values. A pod's HTTP proxy resolves names of Services (see ``gateway``).
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .api import Api, ApiError

HERE = Path(__file__).parent
IMAGES = HERE / "images"
ENTRYPOINT = ["vllm", "serve"]  # of vllm/vllm-openai
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")


class ConfigError(Exception):
    """A reference of the container leads nowhere; a kubelet says CreateContainerConfigError."""


def runs(container: Mapping[str, Any], *, job: bool) -> bool:
    """Whether the container becomes a process: the engine, mpctl, and whatever a Job runs. Others are only said to
    run."""
    words = [*container.get("command", ()), *container.get("args", ())]
    image = container.get("image", "")
    return (
        job or is_mpctl(container) or "vllm" in image or any("vllm" in word for word in words[:4])
    )


def is_mpctl(container: Mapping[str, Any]) -> bool:
    """Whether the container's image is that of deploy/Containerfile."""
    return container.get("image", "").rpartition("/")[2].startswith("mpctl")


def with_knatives_probe(containers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A pod's containers, the engine with the readiness probe that Knative takes from it: its queue-proxy is told the
    probe in a variable and asks it in the kubelet's place."""
    variables = {
        e["name"]: e.get("value")
        for c in containers
        if c["name"] == "queue-proxy"
        for e in c.get("env", ())
    }
    probe = variables.get("SERVING_READINESS_PROBE")
    if probe is None:
        return list(containers)
    return [
        c if c["name"] == "queue-proxy" else {**c, "readinessProbe": json.loads(probe)}
        for c in containers
    ]


def argv(container: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """What runs: command and args with ``$(NAME)`` expanded; the engine's entrypoint where there is no command."""
    command = container.get("command") or (["mpctl"] if is_mpctl(container) else ENTRYPOINT)
    return [expand(word, environment) for word in [*command, *container.get("args", ())]]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """``$(NAME)`` by its value, left alone when unknown; ``$$`` is one dollar."""
    return _REFERENCE.sub(
        lambda m: "$" if m.group(0) == "$$" else environment.get(m.group(1), m.group(0)), text
    )


class Files:
    """A pod's folder, and where the paths of its mounts are in it."""

    def __init__(self, folder: Path, claims: Mapping[str, Path]) -> None:
        self.folder = folder
        self._claims = claims
        self._volumes: dict[str, Path] = {}
        folder.mkdir(parents=True, exist_ok=True)

    async def make(self, api: Api, pod: dict) -> None:
        """Write the pod's volumes.

        Raises:
            ConfigError: a ConfigMap or Secret that is not optional is not there.
        """
        for volume in pod["spec"].get("volumes", ()):
            folder = self.folder / "volumes" / volume["name"]
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim in self._claims:
                folder = self._claims[claim]
            else:
                folder.mkdir(parents=True, exist_ok=True)
            self._volumes[volume["name"]] = folder
            for source in [volume, *volume.get("projected", {}).get("sources", ())]:
                for name, content in (await _content(api, pod, source)).items():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(content)

    def mounts(self, container: Mapping[str, Any]) -> dict[str, str]:
        """Mounted path to folder, the longest first."""
        folders = {}
        for mount in container.get("volumeMounts", ()):
            value = self._volumes.get(mount["name"])
            if value is not None and mount["mountPath"] != "/dev/shm":
                folders[mount["mountPath"].rstrip("/")] = str(value / mount.get("subPath", ""))
        return dict(sorted(folders.items(), key=lambda item: -len(item[0])))


def replace_mounts(text: str, mounts: Mapping[str, str]) -> str:
    """A text with every mounted path replaced by its folder."""
    if not mounts:
        return text
    pattern = "|".join(rf"{re.escape(path)}(?![\w.-])" for path in mounts)
    return re.sub(pattern, lambda m: mounts[m.group(0)], text)


async def _content(api: Api, pod: dict, source: Mapping[str, Any]) -> dict[str, bytes]:
    namespace = pod["metadata"]["namespace"]
    for field, kind in (("configMap", "configmaps"), ("secret", "secrets")):
        reference = source.get(field)
        if reference is None:
            continue
        record = await lookup(
            api,
            kind,
            reference.get("name") or reference.get("secretName"),
            namespace,
            reference.get("optional"),
        )
        data = decoded(record)
        if reference.get("items"):
            return {
                item["path"]: data[item["key"]]
                for item in reference["items"]
                if item["key"] in data
            }
        return data
    if "serviceAccountToken" in source and any(
        map(is_mpctl, pod["spec"]["containers"])
    ):  # others ask no API server
        return {source["serviceAccountToken"]["path"]: await _token(api, pod)}
    items = source.get("downwardAPI", {}).get("items", ())
    fields = {item["path"]: item["fieldRef"]["fieldPath"] for item in items if "fieldRef" in item}
    return {
        path: namespace.encode() for path, field in fields.items() if field == "metadata.namespace"
    }


async def _token(api: Api, pod: dict) -> bytes:
    """A token of the pod's service account, as a kubelet requests it."""
    meta, account = pod["metadata"], pod["spec"]["serviceAccountName"]
    path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token"
    bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound},
    }
    return str((await api.request("POST", path, body))["status"]["token"]).encode()


async def lookup(api: Api, kind: str, name: str, namespace: str, optional: bool | None) -> dict:
    """A ConfigMap or Secret; an empty one where it is optional and absent."""
    try:
        return await api.get(kind, name, namespace)
    except ApiError as error:
        if error.status == 404 and optional:
            return {}
        raise ConfigError(f'{kind.removesuffix("s")} "{name}" not found') from error


def decoded(record: Mapping[str, Any]) -> dict[str, bytes]:
    """All values of a ConfigMap or Secret."""
    if record.get("kind") == "Secret":
        return {k: base64.b64decode(v) for k, v in record.get("data", {}).items()}
    texts = {k: v.encode() for k, v in record.get("data", {}).items()}
    return texts | {k: base64.b64decode(v) for k, v in record.get("binaryData", {}).items()}


async def environment(
    api: Api, pod: dict, container: Mapping[str, Any], address: str
) -> dict[str, str]:
    """The container's own variables, in order, with references to others and to objects resolved.

    Raises:
        ConfigError: a ConfigMap, Secret or key that is not optional is not there.
    """
    namespace = pod["metadata"]["namespace"]
    values: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        for field, kind in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if field in source:
                reference = source[field]
                record = await lookup(
                    api, kind, reference["name"], namespace, reference.get("optional")
                )
                values |= {
                    source.get("prefix", "") + k: v.decode() for k, v in decoded(record).items()
                }
    for item in container.get("env", ()):
        if "valueFrom" in item:
            text = await _value_from(api, pod, item["valueFrom"], address)
            if text is not None:
                values[item["name"]] = text
        else:
            values[item["name"]] = expand(item.get("value", ""), values)
    return values


async def _value_from(api: Api, pod: dict, source: Mapping[str, Any], address: str) -> str | None:
    if "fieldRef" in source:
        path = source["fieldRef"]["fieldPath"]
        fields = {
            "status.podIP": address,
            "status.podIPs": address,
            "spec.nodeName": pod["spec"].get("nodeName", ""),
        }
        if path in fields:
            return fields[path]
        keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if keyed:
            return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
        return str(pod["metadata"].get(path.removeprefix("metadata."), ""))
    for field, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if field in source:
            reference = source[field]
            name = reference["name"]
            data = decoded(
                await lookup(
                    api, kind, name, pod["metadata"]["namespace"], reference.get("optional")
                )
            )
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if not reference.get("optional"):
                raise ConfigError(
                    f"couldn't find key {reference['key']} in {kind.removesuffix('s')} {name}"
                )
    return None


def base_environment(
    image: str, address: str, proxy: str, folder: Path, *, job: bool = False
) -> dict[str, str]:
    """What every container of an image finds set. ``address`` is the real one, ``image`` a folder of ``images``. A
    ``job`` also finds the Python modules of its image."""
    modules = {"PYTHONPATH": str(IMAGES / "lib")} if job else {}
    return {
        **modules,
        "PATH": f"{IMAGES / image}{os.pathsep}{os.environ.get('PATH', '/usr/bin:/bin')}",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "RIG_PYTHON": sys.executable,
        "RIG_ADDRESS": address,
        "http_proxy": proxy,
        "HTTP_PROXY": proxy,
    }
