"""The objects that run the watch in a cluster: what they may do is what the policy needs, and no more.

Reporting takes the reader's calls, acting the operator's, as ``mpctl rbac`` grants them; ``base.yaml`` next to this
file has everything else. Two replicas: the one that holds the Lease works, the other waits.

The watch lives in a namespace without users: whoever has Kubernetes' role ``edit`` in a namespace may act as every
service account of it.
"""

from __future__ import annotations

import re
from importlib import resources

import yaml

from mpctl.app.environment_requests import WATCH_HOME, WatchInstallRequest
from mpctl.app.files import read_file
from mpctl.app.watch.loop import lease_of
from mpctl.errors import InputError
from mpctl.json_types import Json
from mpctl.platform.kubernetes.access.calls import WATCH, needs
from mpctl.platform.kubernetes.access.rbac import Subject, require_name, roles_of, to_yaml
from mpctl.watch.watch_policy import WatchPolicy

PORT = 9464
_POLICY_FILE = "watch.yaml"
_NAME = "mpctl-watch"  # in base.yaml, like WATCH_HOME


def objects(request: WatchInstallRequest, policy_text: str) -> tuple[Json, ...]:
    """Return the objects to apply, in order; contacts nothing.

    Raises:
        InputError: a name or the policy cannot be used, or the watch would live beside the services it watches.
    """
    watched, home, name = request.namespace, request.home, name_of(request.namespace)
    if watched is not None:
        require_name(watched, "--namespace", dots=False)
    require_name(home, "--home", dots=False)
    for space in request.allow_from:
        require_name(space, "--allow-from", dots=False)
    watched_home = request.namespace == home or (request.namespace is None and home != WATCH_HOME)
    if watched_home and not request.shared_home:
        raise InputError(
            f"namespace {home} is watched: whoever has the role edit there can act as the watch",
            field="--home",
            hint=f"leave it out (default {WATCH_HOME}), or add --shared-home where operators alone have edit",
        )
    policy = WatchPolicy.parse(policy_text, file=request.policy_file or "--watch-policy")
    rows = (*needs("operator" if policy.fall_back else "reader"), *WATCH)
    subject = Subject("ServiceAccount", name, home)
    roles = roles_of(rows, f"{_NAME}.{home}", watched, to=(subject,), secrets=request.secrets)
    definition, namespace, *others = _base({_NAME: name, WATCH_HOME: home})
    by_kind = {record["kind"]: record for record in others}
    by_kind["Role"]["rules"][1]["resourceNames"] = [lease_of(watched)]
    by_kind["ConfigMap"]["data"] = {_POLICY_FILE: policy_text}
    _configure(by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0], request)
    allowed = [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}}}
        for space in request.allow_from
    ]
    # The port of metrics and verdicts. A rule with an empty list of sources would let everything in.
    by_kind["NetworkPolicy"]["spec"]["ingress"] = (
        [{"from": allowed, "ports": [{"protocol": "TCP", "port": PORT}]}] if allowed else []
    )
    if "podmonitor" in request.without:
        others.remove(by_kind["PodMonitor"])
    # A namespace with other users exists already, and has labels of its own.
    return (definition, *([] if request.shared_home else [namespace]), *roles, *others)


def manifests(request: WatchInstallRequest) -> str:
    """Return the objects as a text for ``kubectl apply -f -``, with the policy of the request's file.

    Raises:
        InputError: as :func:`objects`, or the file cannot be read.
    """
    file = request.policy_file
    return to_yaml(objects(request, "" if file is None else read_file(file, "--watch-policy")))


def _base(names: dict[str, str]) -> list[Json]:
    """The objects of base.yaml under other names."""
    text = (resources.files("mpctl.app.watch") / "base.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(re.sub("|".join(names), lambda match: names[match[0]], text)))


def name_of(watched: str | None) -> str:
    """The name of all objects of a watch: those of several namespaces may share a home."""
    return f"{_NAME}-{watched}" if watched else _NAME


def arguments(request: WatchInstallRequest) -> list[str]:
    """Return the container's arguments after ``mpctl``."""
    services = ["-A"] if request.namespace is None else ["-n", request.namespace]
    source = ["--prometheus", request.prometheus] if request.prometheus else []
    return [
        *("watch", "run", "--platform", "kubernetes", *services, *source),
        *("--watch-policy", f"/etc/mpctl/{_POLICY_FILE}", "--lease", request.home),
        *("--publish", "--listen", f"0.0.0.0:{PORT}", "-o", "json"),
    ]


def _configure(container: Json, request: WatchInstallRequest) -> None:
    container |= {"image": request.image, "args": arguments(request)}
    if request.webhook_secret:
        reference = {"name": request.webhook_secret, "key": "url"}
        container["env"].append({"name": "MPCTL_WEBHOOK", "valueFrom": {"secretKeyRef": reference}})
