"""Writes the watch as a Helm chart and as a base for kustomize.

scripts/release runs ``python -m scripts.watch_chart IMAGE REPOSITORY FOLDER``. deploy/chart has what a person reads and
sets. The template of the objects is made here of what ``mpctl watch install`` prints for placeholders, so that chart,
base and command have the same objects. The same commit gives the same archive.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpctl import __version__
from mpctl.app.environment_requests import WatchInstallRequest
from mpctl.app.watch.install import manifests, name_of, objects
from mpctl.platform.kubernetes.access.rbac import Subject, to_yaml
from mpctl.platform.kubernetes.api.names import SEALED

CHART = Path(__file__).parents[1] / "deploy" / "chart"
NAME = "mpctl-watch"
# Placeholders: valid as names, and found nowhere else.
_WATCHED, _HOME, _KEY, _ALLOWED = "watchedspace", "homespace", "keysecret", "allowedspace"
_IMAGE, _PROMETHEUS, _WEBHOOK = "imagereference", "prometheusaddress", "webhooksecret"
_REQUEST = WatchInstallRequest(
    namespace=_WATCHED,
    image=_IMAGE,
    home=_HOME,
    prometheus=_PROMETHEUS,
    webhook_secret=_WEBHOOK,
    secrets=(_KEY, SEALED),
    allow_from=(_ALLOWED,),
)
_HEAD = """\
{{- /* Made by scripts/watch_chart.py of what `mpctl watch install` prints. */}}
{{- include "mpctl-watch.check" . }}
{{- $watched := .Values.namespace }}
{{- $home := .Release.Namespace }}
{{- $name := include "mpctl-watch.name" . }}
{{- $role := include "mpctl-watch.role" . }}
{{- $subject := include "mpctl-watch.subject" . }}
{{- $acts := eq (get (fromYaml .Values.policy) "fall_back" | toString) "true" }}
{{- $keys := without .Values.secrets "SEALED" }}
{{- $sealed := has "SEALED" .Values.secrets }}
""".replace("SEALED", SEALED)


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


# Lines of the printed text, and what they are in the template. Each pattern matches once in the document of its kind.
_PARTS: dict[str, dict[str, str]] = {
    "ConfigMap": {r"watch\.yaml: ''\n": _lines("watch.yaml: {{ .Values.policy | toJson }}")},
    "Deployment": {
        rf"image: {_IMAGE}\n": _lines('image: {{ include "mpctl-watch.image" . | quote }}'),
        rf"( *)- -n\n *- {_WATCHED}\n": _lines(
            "{{- if $watched }}",
            r"\1- -n",
            r"\1- {{ $watched | quote }}",
            "{{- else }}",
            r"\1- -A",
            "{{- end }}",
        ),
        rf"( *)- --prometheus\n *- {_PROMETHEUS}\n": _lines(
            "{{- with .Values.prometheus }}",
            r"\1- --prometheus",
            r"\1- {{ . | quote }}",
            "{{- end }}",
        ),
        # the whole item of `env`
        rf"(( *)- name: MPCTL_WEBHOOK\n(?:\2 .*\n)*?.*name: ){_WEBHOOK}\n((?:\2 .*\n)*)": (
            _lines("{{- with .Values.webhookSecret }}", r"\1{{ . | quote }}")
            + r"\3{{- end }}"
            + "\n"
        ),
    },
    "NetworkPolicy": {
        r"  ingress:\n": _lines(
            "  ingress:{{ if not .Values.allowFrom }} []{{ end }}", "{{- if .Values.allowFrom }}"
        ),
        rf"(( *)- namespaceSelector:\n(?:\2 .*\n)*?.*: ){_ALLOWED}\n": _lines(
            "{{- range .Values.allowFrom }}", r"\1{{ . | quote }}", "{{- end }}"
        ),
        r"\Z": _lines("{{- end }}"),
    },
}
# The rules of Secrets, in every role that has them: those with keys, and that of the sentinels.
_RULE = r"- apiGroups:\n  - ''\n  resources:\n  - secrets\n  resourceNames:"
_SECRETS = {
    rf"({_RULE})\n  - {_KEY}\n((?:  .*\n)*)": _lines("{{- if $keys }}", r"\1 {{ toJson $keys }}")
    + r"\2{{- end }}"
    + "\n",
    rf"({_RULE}\n  - {SEALED}\n(?:  .*\n)*)": _lines("{{- if $sealed }}") + r"\1{{- end }}" + "\n",
}
# Objects that a value leaves out.
_CONDITIONS = {
    "CustomResourceDefinition": ".Values.crd",
    "Namespace": "and .Values.createNamespace (not .Values.sharedHome)",
    "PodMonitor": ".Values.podMonitor",
}


def template() -> str:
    """Return the template of all objects: the rights of each kind of policy and of each scope, and what they share."""
    granted = []
    others: list[str] = []
    for condition, request, policy in (
        ("and $watched $acts", _REQUEST, "fall_back: true"),
        ("$watched", _REQUEST, ""),
        ("$acts", replace(_REQUEST, namespace=None, shared_home=True), "fall_back: true"),
        ("", replace(_REQUEST, namespace=None, shared_home=True), ""),
    ):
        records = objects(request, policy)
        rights = [record for record in records if _is_right(record)]
        granted.append((condition, "".join(map(_document, rights))))
        if condition == "$watched":
            others = [_document(record) for record in records if not _is_right(record)]
    definition, namespace, *shared = others
    branches = "{{- else if ".join(
        f"{condition} }}}}\n{text}" if condition else text for condition, text in granted
    ).replace("{{- else if ---", "{{- else }}\n---")
    return _HEAD + definition + namespace + "{{- if " + branches + "{{- end }}\n" + "".join(shared)


def _is_right(record: dict[str, Any]) -> bool:
    """Whether an object is a role of the watched services, or its binding; not that of the Lease."""
    return "Role" in record["kind"] and not record["metadata"]["name"].endswith("-leader")


def _document(record: dict[str, Any]) -> str:
    kind, text = record["kind"], to_yaml([record]) + "\n"
    for pattern, part in (_PARTS.get(kind, {}) | (_SECRETS if _KEY in text else {})).items():
        text, count = re.subn(pattern, part, text)
        if count != 1:
            raise ValueError(f"{kind}: {pattern!r} matches {count} times")
    text = _with_names(text)
    if condition := _CONDITIONS.get(kind):
        return f"{{{{- if {condition} }}}}\n---\n{text}{{{{- end }}}}\n"
    return f"---\n{text}"


def _with_names(text: str) -> str:
    """Replace the names of the placeholders; a name that is a whole value is quoted, since it may be a number."""
    lease = "mpctl--watch.leader"
    names = {
        Subject("ServiceAccount", name_of(_WATCHED), _HOME).slug: "$subject",
        Subject("ServiceAccount", NAME, _HOME).slug: "$subject",
        f"{NAME}.{_HOME}": "$role",
        name_of(_WATCHED): "$name",
        f"{lease}.{_WATCHED}": "LEASE",
        _WATCHED: "$watched",
        _HOME: "$home",
    }
    text = re.sub(rf"(?<=name: ){NAME}$", "{{ $name }}", text, flags=re.MULTILINE)
    for name, variable in names.items():
        text = re.sub(rf"(?<=[:-] ){name}$", f"{{{{ {variable} | quote }}}}", text, flags=re.M)
        text = text.replace(name, f"{{{{ {variable} }}}}")
    return text.replace(
        "{{ LEASE | quote }}", lease + "{{ with $watched }}.{{ . }}{{ end }}"
    ).rstrip() + ("\n")


def files(repository: str, image: str) -> dict[str, str]:
    """Return the text of each file of the chart, with version and addresses filled in."""
    names = {"@VERSION@": __version__, "@REPOSITORY@": repository, "@IMAGE@": image}
    texts = {
        str(path.relative_to(CHART)): path.read_text("utf-8")
        for path in sorted(CHART.rglob("*"))
        if path.is_file()
    }
    for placeholder, value in names.items():
        texts = {name: text.replace(placeholder, value) for name, text in texts.items()}
    return texts | {"templates/watch.yaml": template()}


def archive(texts: dict[str, str]) -> bytes:
    """Return the chart as Helm packs it, without times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for name, text in sorted(texts.items()):
            member = tarfile.TarInfo(f"{NAME}/{name}")
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)


def main(image: str, repository: str, folder: str) -> None:
    """Write the archive and the base into a folder."""
    path = Path(folder) / f"{NAME}-{__version__}.tgz"
    path.write_bytes(archive(files(repository, image)))
    base = manifests(WatchInstallRequest(namespace=None, image="mpctl"))
    path.with_name("watch.yaml").write_text(f"{base}\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
