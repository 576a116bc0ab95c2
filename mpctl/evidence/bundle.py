"""Sign the verdict of a rollout, and verify what somebody signed.

A bundle has an envelope a line, as in-toto's `.intoto.jsonl`; :mod:`mpctl.evidence.envelopes` signs and reads them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mpctl import commands
from mpctl.app.bench.recorded import FinishedRun, measured_by
from mpctl.app.console import Console
from mpctl.app.files import read_policy, write_whole
from mpctl.app.inspect.measured import find_rollout
from mpctl.app.inspect_requests import ReportRequest, is_file
from mpctl.app.requests import SigningRequest
from mpctl.app.session.base import Place, Session
from mpctl.app.session.cluster import ClusterSession
from mpctl.app.session.open import open_session
from mpctl.errors import InputError, MpctlError
from mpctl.evidence.requests import VerifyRequest
from mpctl.evidence.statements import (
    Attested,
    Subjects,
    payload_of,
    read_statements,
    statements,
)
from mpctl.experiment.block import CANDIDATE
from mpctl.platform.kubernetes.access.calls import CLUSTER_NAMESPACE
from mpctl.platform.kubernetes.api.kinds import NAMESPACE
from mpctl.report.build import build_report
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.revision import text_digest
from mpctl.rollout.steps.baseline import RecordedRevision

if TYPE_CHECKING:
    from securesystemslib.signer._signer import Signer


def attest(session: Session, operation: Operation, source: FinishedRun, signer: Signer) -> str:
    """Return the signed bundle of a rollout's verdict, an envelope a line.

    Raises:
        MpctlError: a revision is lost, or the key's service did not sign.
    """
    analysis, verdict = source.judge()
    report = build_report(source.run, analysis, verdict, service=source.service)
    about = Subjects(
        service=source.service,
        operation=operation.id,
        plan=operation.plan,
        after=_promoted_text(session, operation),
        image=source.run.arms[CANDIDATE].image if CANDIDATE in source.run.arms else "",
        cluster_id=_cluster_id(session),
    )
    unsigned = statements(report, about, attested=datetime.now(UTC))
    return "".join(
        f"{_envelopes().sign(payload_of(statement), signer)}\n" for statement in unsigned
    )


def make_bundle(place: Place, console: Console, request: ReportRequest) -> str:
    """Return the verdict of a rollout as a signed bundle.

    Raises:
        InputError: the rollout is not found, a file of a bench is named, or the key cannot be used.
    """
    signer = _envelopes().open_signer(request.signing)
    if request.run is not None and is_file(request.run):
        raise InputError(
            "a bundle is about a rollout of a service, which a file does not name",
            file=request.run,
            hint="name a rollout",
        )
    session = open_session(place, console, request.service)
    operation, source = find_rollout(session, request.run)
    return attest(session, operation, source, signer)


def _cluster_id(session: Session) -> str | None:
    """Return the uid of namespace kube-system, which names the cluster; None on this machine. A missing right is
    reported, and the bundle then names no cluster."""
    if not isinstance(session, ClusterSession):
        return None
    try:
        namespace = session.client.require(NAMESPACE, CLUSTER_NAMESPACE)
    except MpctlError as error:
        session.console.warn(
            f"the bundle names no cluster, so verifying it with --cluster-id fails: {error.message}"
        )
        return None
    return str(namespace["metadata"]["uid"])


def _promoted_text(session: Session, operation: Operation) -> str:
    """Return the digest of the manifest after the rollout, as the cluster stored it where it was promoted."""
    recorded = operation.result("record-promoted", RecordedRevision)
    revision = next(
        (r for r in session.store.revisions() if recorded and r.number == recorded.revision), None
    )
    return operation.plan.goal.digest if revision is None else revision.digest


def attest_promoted(
    session: Session, operation: Operation, request: SigningRequest, file: str | None
) -> None:
    """Write the bundle of a rollout where it was promoted. What fails is reported: the service is promoted all the
    same."""
    source = measured_by(session, operation) if operation.ending is Ending.PROMOTED else None
    if source is None:
        return
    path = file or f"{session.name}-{operation.id}.intoto.jsonl"
    try:
        write_whole(
            Path(path),
            attest(session, operation, source, _envelopes().open_signer(request)).encode(),
            option="MPCTL_BUNDLE",
        )
    except MpctlError as error:
        again = commands.line(
            *("report", session.name, operation.id, "-o", "attestation", "--output-file", path),
            namespace=session.namespace,
        )
        session.console.warn(
            f"the verdict of {operation.id} was not signed: {error.message}; '{again}' signs it"
        )
        return
    check = commands.line("verify", path, "--key", "FILE", namespace=session.namespace)
    session.console.note(f"the signed verdict is in {path}; '{check}' verifies it")


def require_signer(request: SigningRequest) -> None:
    """Refuse a rollout whose verdict could not be signed, before it starts.

    Raises:
        InputError: the key cannot be used.
        MpctlError: the library is not installed.
    """
    _envelopes().open_signer(request)


def verify(place: Place, console: Console, request: VerifyRequest) -> Attested:
    """Verify a bundle: every envelope by one of the keys, then what its statements say, then the live service.

    Raises:
        InputError: a file cannot be read, or a key is none.
        Refused: the bundle does not verify; the message says in what.
    """
    attested = read_statements(_envelopes().read_payloads(request.file, request.keys))
    policy = read_policy(request.policy_file) if request.policy_file else None
    session = (
        None if request.offline else open_session(place, console, request.service or attested.name)
    )
    attested.require(
        now=datetime.now(UTC),
        max_age=None if request.max_age_s is None else timedelta(seconds=request.max_age_s),
        policy=policy,
        cluster_id=request.cluster_id,
        service=None if session is None else f"{session.namespace}/{session.name}",
        text_digest=None if session is None else text_digest(session.platform.read().text),
    )
    return attested


def _envelopes() -> ModuleType:
    try:
        from mpctl.evidence import envelopes
    except ImportError as error:
        raise MpctlError(
            "signing and verifying need securesystemslib, which is not installed",
            hint="pip install 'mpctl[sign]'",
        ) from error
    return envelopes
