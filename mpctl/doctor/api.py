"""The API server: its version, and the groups that rollouts need."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpctl.doctor.facts import ClusterFacts, each
from mpctl.doctor.finding import Finding

DRA, GATEWAY = "resource.k8s.io", "gateway.networking.k8s.io"
_SERVER = "API server"
# resource.k8s.io/v1 is served by default since 1.34 (Kubernetes 1.34 release notes, KEP-4381).
_DRA_SINCE = (1, 34)


def version_of(text: str | None) -> tuple[int, int] | None:
    """Major and minor of ``v1.36.2-gke.1``; None for a build that does not know itself."""
    match = re.match(r"v?(\d+)\.(\d+)", text or "")
    if match is None or match.groups() == ("0", "0"):
        return None
    return int(match[1]), int(match[2])


def check_version(facts: ClusterFacts) -> Iterator[Finding]:
    known = version_of(facts.version)
    if known is None:
        reported = f"reports version {facts.version}" if facts.version else "reports no version"
        yield Finding("api-version", "note", _SERVER, f"{reported}; version checks are skipped")
    elif known < _DRA_SINCE:
        yield Finding(
            "api-version",
            "warn",
            _SERVER,
            f"{facts.version} does not serve {DRA}/v1 by default, through which GPUs are claimed",
            "upgrade the control plane to 1.34 or later, or keep to the device plugin (limits: nvidia.com/gpu)",
            "Kubernetes 1.34 release notes",
        )
    else:
        yield Finding("api-version", "ok", _SERVER, f"{facts.version}")


def check_dra(facts: ClusterFacts) -> Iterator[Finding]:
    versions = facts.groups.get(DRA, ())
    if "discovery" in facts.unread:
        return
    users = [s for s in facts.known("inferenceservices") if each(s, "spec", "predictor", "resourceClaims")]
    if "v1" in versions:
        yield Finding("dra-api", "ok", _SERVER, f"serves {DRA}/v1")
    elif versions:
        yield Finding(
            "dra-api",
            "fail" if users else "warn",
            _SERVER,
            f"serves {DRA} only as {', '.join(versions)}; mpctl and the DRA driver's charts speak v1",
            "upgrade the control plane to 1.34 or later",
            "Kubernetes 1.34 release notes",
        )
    else:
        yield Finding(
            "dra-api",
            "fail" if users else "note",
            _SERVER,
            f"serves no {DRA}: no GPU can be claimed{f', and {len(users)} services claim one' if users else ''}",
            "upgrade to 1.34 or later, or use the device plugin (limits: nvidia.com/gpu) without claims",
            "Kubernetes 1.34 release notes",
        )


def check_gateway(facts: ClusterFacts) -> Iterator[Finding]:
    if "discovery" in facts.unread:
        return
    if "v1" in facts.groups.get(GATEWAY, ()):
        yield Finding("gateway-api", "ok", _SERVER, f"serves {GATEWAY}/v1")
    else:
        yield Finding(
            "gateway-api",
            "note",
            _SERVER,
            f"serves no {GATEWAY}/v1: a candidate can be measured side by side with its baseline, but production "
            "traffic cannot be split between them",
            "install the Gateway API definitions and a gateway controller",
            "docs/how-to/rollout.md",
        )


CHECKS = (check_version, check_dra, check_gateway)
