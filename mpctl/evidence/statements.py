"""The verdict of a rollout as in-toto statements, and the comparison of statements that somebody presents.

A bundle has two statements about the same subjects (https://in-toto.io/Statement/v1): the gate as a test-result
(https://in-toto.io/attestation/test-result/v0.1), and its figures as a type of this project, documented in
docs/how-to/evidence.md. The first names the second by digest, so that parts of two bundles are no bundle. Subjects are
the service's manifest before and after, and the engine image, the target and the draft where a digest of theirs was
recorded. There is no prompt, no answer and no text of a manifest in them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from mpctl import bounded
from mpctl.errors import Refused
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.report.record import report_record
from mpctl.report.values import Report
from mpctl.rollout.plan import Plan

STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
MEASURED = "https://mpctl.dev/attestation/measured-rollout/v0.1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
BEFORE, AFTER, IMAGE, TARGET, DRAFT = (
    "service before",
    "service after",
    "engine image",
    "target",
    "draft",
)

_RESULTS = {Outcome.PROMOTE: "PASSED", Outcome.REJECT: "FAILED"}
_TESTS = {
    "passedTests": (Outcome.PASS,),
    "failedTests": (Outcome.FAIL,),
    "warnedTests": (Outcome.UNDECIDED, Outcome.MISSING),
}
_LEFT_OUT = ("quantilesMs", "p99", "reasons")  # of a cell: drawings and sentences
_PINNED = re.compile(r"@sha256:([0-9a-f]{64})$")
_SETTING = re.compile(
    r"\n(?:--spec|-sc)[^\n=]*(?:=[^\n]*|\n[^-\n][^\n]*)?"
)  # as in manifests/admission


@dataclass(frozen=True)
class Subjects:
    """The subjects of a verdict. ``after``: digest of the manifest that the rollout ended with; ``image``: of the
    engine as its pods ran it, with its digest where that is known."""

    service: str
    operation: str
    plan: Plan
    after: str
    image: str = ""
    cluster_id: str | None = (
        None  # uid of the cluster's namespace kube-system; None: on this machine, or unknown
    )


def statements(
    report: Report, about: Subjects, *, attested: datetime
) -> tuple[dict[str, Any], ...]:
    """Return the statements of a bundle: the figures, then the gate's result, which names the figures by digest.
    ``attested``: when they are made, with a zone."""
    subjects, gaps = _subjects(report, about)
    body = report_record(report)
    plan_digest = about.plan.digest()
    policy_digest = digest_of(about.plan.policy)
    measured = {
        "verdict": body["gate"]["outcome"],
        "service": about.service,
        "clusterId": about.cluster_id,
        "operation": about.operation,
        "by": report.who,
        "openedAt": report.created,
        "attestedAt": attested.isoformat(timespec="seconds"),
        "mpctlVersion": report.mpctl_version,
        "planDigest": {"sha256": plan_digest},
        "policy": {"digest": {"sha256": policy_digest}, "limits": body["policy"]},
        "prompts": body["prompts"],
        "conditions": body["conditions"],
        "cells": [
            {name: value for name, value in cell.items() if name not in _LEFT_OUT}
            for cell in body["cells"]
        ],
        "unidentified": gaps,
    }
    figures = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": MEASURED,
        "predicate": measured,
    }
    result = {
        "result": _RESULTS.get(report.verdict.outcome, "WARNED"),
        "configuration": [
            {
                "name": "measurement",
                "digest": {"sha256": hashlib.sha256(payload_of(figures)).hexdigest()},
            },
            {"name": "plan", "digest": {"sha256": plan_digest}},
            {"name": "policy", "digest": {"sha256": policy_digest}},
        ],
        **{
            name: [
                f"{cell.cell.label}: {rule.rule}"
                for cell in report.verdict.cells
                for rule in cell.rules
                if rule.outcome in outcomes
            ]
            for name, outcomes in _TESTS.items()
        },
    }
    gate = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": TEST_RESULT,
        "predicate": result,
    }
    return figures, gate


def digest_of(policy: Policy) -> str:
    """Return the sha256 of a policy's limits, hex."""
    return hashlib.sha256(json.dumps(policy.to_record(), sort_keys=True).encode()).hexdigest()


def payload_of(statement: Mapping[str, Any]) -> bytes:
    """Return the bytes of a statement that are signed."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _subjects(report: Report, about: Subjects) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the subjects, and the names of those that have no digest."""
    arm = report.candidate
    pinned = _PINNED.search(about.image)
    digests: dict[str, Mapping[str, str]] = {
        BEFORE: {"sha256": about.plan.baseline.digest},
        AFTER: {"sha256": about.after},
        IMAGE: {"sha256": pinned[1]} if pinned else {},
        TARGET: _content(arm.model_digest),
        DRAFT: _content(arm.draft_digest),
    }
    expected = [name for name in digests if name != DRAFT or about.plan.draft]
    subjects = [{"name": name, "digest": dict(digests[name])} for name in expected if digests[name]]
    return subjects, [name for name in expected if not digests[name]]


def _content(digest: str) -> Mapping[str, str]:
    """Return the digest of files, or the commit of a repository, by its algorithm."""
    algorithms = {64: "sha256", 40: "gitCommit"}
    algorithm = algorithms.get(len(digest)) if re.fullmatch(r"[0-9a-f]+", digest) else None
    return {algorithm: digest} if algorithm else {}


@dataclass(frozen=True)
class Attested:
    """A bundle whose parts belong together. ``setting``: the candidate's speculative arguments, without spaces."""

    service: str
    operation: str
    verdict: str
    opened: datetime
    policy_digest: str
    subjects: Mapping[str, Mapping[str, str]]
    unidentified: tuple[str, ...]
    setting: str
    cluster_id: str | None

    @property
    def name(self) -> str:
        """The service's name without its namespace."""
        return self.service.rpartition("/")[2]

    def require(
        self,
        *,
        now: datetime,
        max_age: timedelta | None = None,
        policy: Policy | None = None,
        cluster_id: str | None = None,
        service: str | None = None,
        text_digest: str | None = None,
    ) -> None:
        """Check what the bundle says. None: the condition is not asked for. ``text_digest``: of the live manifest.

        Raises:
            Refused: the gate did not promote, the bundle is too old, or of another policy, cluster, service or text.
        """
        if self.verdict != Outcome.PROMOTE.value:
            raise Refused(
                f"{self.operation} of {self.service} ended with the verdict {self.verdict}, not promote"
            )
        if self.opened > now + timedelta(minutes=5):
            raise Refused(
                f"{self.operation} of {self.service} lies in the future: {self.opened.isoformat()}"
            )
        if max_age is not None and now - self.opened > max_age:
            raise Refused(
                f"{self.operation} of {self.service} is of {self.opened.isoformat()}, longer ago than allowed",
                hint="measure the service again",
            )
        if policy is not None and digest_of(policy) != self.policy_digest:
            raise Refused(f"{self.operation} of {self.service} was judged by another policy")
        if cluster_id is not None and cluster_id != self.cluster_id:
            measured = (
                f"measured on cluster {self.cluster_id}"
                if self.cluster_id
                else "of a cluster that is not named"
            )
            raise Refused(
                f"{self.operation} of {self.service} is {measured}, expected {cluster_id}"
            )
        if service is not None and service != self.service:
            raise Refused(f"the evidence is of service {self.service}, not of {service}")
        if text_digest is not None and text_digest != self.subjects[AFTER]["sha256"]:
            raise Refused(
                f"service {self.service} is not what {self.operation} promoted: its manifest has the digest "
                f"{text_digest[:12]}, expected {self.subjects[AFTER]['sha256'][:12]}",
                hint="a diff from the revision before shows what changed",
            )


def read_statements(payloads: Sequence[bytes]) -> Attested:
    """Read the statements of a bundle, whose signatures were verified.

    Raises:
        Refused: they are not the two statements of one rollout.
    """
    try:
        return _read(payloads)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"the bundle is no evidence of a rollout: {error}") from error


def _read(payloads: Sequence[bytes]) -> Attested:
    by_type = {}
    for payload in payloads:
        statement = bounded.loads(payload)
        if statement["_type"] != STATEMENT:
            raise ValueError(f"unknown statement type {statement['_type']!r}")
        by_type[statement["predicateType"]] = (statement, payload)
    if len(payloads) != len(by_type) or set(by_type) != {MEASURED, TEST_RESULT}:
        raise ValueError("expected one statement of the figures and one of the gate's result")
    (figures, payload), (gate, _) = by_type[MEASURED], by_type[TEST_RESULT]
    named = {item["name"]: item["digest"]["sha256"] for item in gate["predicate"]["configuration"]}
    if (
        named["measurement"] != hashlib.sha256(payload).hexdigest()
        or figures["subject"] != gate["subject"]
    ):
        raise ValueError("its two statements are of different measurements")
    measured = figures["predicate"]
    if _RESULTS.get(Outcome(measured["verdict"]), "WARNED") != gate["predicate"]["result"]:
        raise ValueError("its two statements have different results")
    subjects = {item["name"]: item["digest"] for item in figures["subject"]}
    if not {BEFORE, AFTER} <= set(subjects):
        raise ValueError("the service is no subject of it")
    opened = datetime.fromisoformat(measured["openedAt"])
    if opened.tzinfo is None:
        raise ValueError("openedAt has no time zone")
    return Attested(
        service=str(measured["service"]),
        operation=str(measured["operation"]),
        verdict=str(measured["verdict"]),
        opened=opened,
        policy_digest=str(measured["policy"]["digest"]["sha256"]),
        subjects=subjects,
        unidentified=tuple(measured["unidentified"]),
        setting=_setting(measured["conditions"]["candidate"]["argv"]),
        cluster_id=None if (cluster_id := measured.get("clusterId")) is None else str(cluster_id),
    )


def _setting(argv: Sequence[str]) -> str:
    words = "".join("\n" + word.replace("\n", " ") for word in argv)
    return re.sub("[\n =]", "", "".join(_SETTING.findall(words)))
