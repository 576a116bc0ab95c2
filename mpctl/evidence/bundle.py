"""Sign the verdict of a rollout, and verify what somebody signed.

An envelope is DSSE (https://github.com/secure-systems-lab/dsse); a bundle has one a line, as in-toto's `.intoto.jsonl`.
securesystemslib signs: with a key file, or by a key management service or a PKCS#11 device that a URI names.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpctl import bounded, commands
from mpctl.app.bench.recorded import FinishedRun, measured_by
from mpctl.app.console import Console
from mpctl.app.files import read_policy, write_whole
from mpctl.app.inspect.measured import find_rollout
from mpctl.app.inspect_requests import ReportRequest, is_file
from mpctl.app.requests import SigningRequest
from mpctl.app.session.base import Place, Session
from mpctl.app.session.cluster import ClusterSession
from mpctl.app.session.open import open_session
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.evidence.requests import VerifyRequest
from mpctl.evidence.statements import (
    PAYLOAD_TYPE,
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
    from securesystemslib.signer._key import Key
    from securesystemslib.signer._signer import Signer

_PASSWORD = "MPCTL_SIGNING_PASSWORD"
_LARGEST = 64 * bounded.MEBIBYTE
_ENVELOPES = 2  # of a bundle: the figures, and the gate's result
_SIGNATURES = 16  # of an envelope: each costs a verification per key


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
    return "".join(f"{_signed(payload_of(statement), signer)}\n" for statement in unsigned)


def make_bundle(place: Place, console: Console, request: ReportRequest) -> str:
    """Return the verdict of a rollout as a signed bundle.

    Raises:
        InputError: the rollout is not found, a file of a bench is named, or the key cannot be used.
    """
    signer = open_signer(request.signing)
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
            attest(session, operation, source, open_signer(request)).encode(),
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
    open_signer(request)


def open_signer(request: SigningRequest) -> Signer:
    """Return what signs.

    Raises:
        InputError: no key is named, or it cannot be used.
        MpctlError: the library is not installed.
    """
    if request.key is None:
        raise InputError(
            "needs a private key",
            field="-o attestation",
            hint="name it in the setting sign_with, or MPCTL_SIGN_WITH",
        )
    library = _library()
    try:
        if ":" not in request.key:
            return _file_signer(request.key)
        if request.public_key is None:
            raise InputError(
                "a key by URI needs its public key",
                field="sign_with",
                hint="name it in the setting public_key",
            )
        signer: Signer = library.Signer.from_priv_key_uri(request.key, read_key(request.public_key))
    except InputError:
        raise
    except Exception as error:  # each service's client has errors of its own
        raise InputError(
            f"the key cannot be used: {type(error).__name__}: {_first_line(error)}",
            field="sign_with",
        ) from error
    return signer


def _file_signer(path: str) -> Signer:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    password = os.environ.get(_PASSWORD)
    try:
        key = load_pem_private_key(
            _read(path, "sign_with"), password.encode() if password else None
        )
        signer: Signer = _library().CryptoSigner(key)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"not a usable private key: {_first_line(error)}",
            file=path,
            field="sign_with",
            hint=f"a PEM file with a key of ECDSA, Ed25519 or RSA; {_PASSWORD} holds its password",
        ) from error
    return signer


def _read(path: str, option: str | None = None) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path, field=option) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _library() -> Any:
    try:
        from securesystemslib import signer
    except ImportError as error:
        raise MpctlError(
            "signing and verifying need securesystemslib, which is not installed",
            hint="pip install 'mpctl[sign]'",
        ) from error
    return signer


def read_key(path: str) -> Key:
    """Read a public key, PEM.

    Raises:
        InputError: the file cannot be read or holds none.
        MpctlError: the library is not installed.
    """
    library = _library()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key: Key = library.SSlibKey.from_crypto(load_pem_public_key(_read(path, "--key")))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"not a public key: {_first_line(error)}",
            file=path,
            hint="a PEM file, as 'openssl pkey -in KEY -pubout' prints it",
        ) from error
    return key


def _pae(payload: bytes) -> bytes:
    """Return what is signed of a payload: the pre-authentication encoding of DSSE 1."""
    return b"DSSEv1 %d %b %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _signed(payload: bytes, signer: Signer) -> str:
    try:
        signature = signer.sign(_pae(payload))
    except Exception as error:  # each service's client has errors of its own
        raise MpctlError(
            f"the verdict was not signed: {type(error).__name__}: {_first_line(error)}"
        ) from error
    encoded = {
        "keyid": signature.keyid,
        "sig": base64.b64encode(bytes.fromhex(signature.signature)).decode(),
    }
    body = base64.b64encode(payload).decode()
    return json.dumps({"payload": body, "payloadType": PAYLOAD_TYPE, "signatures": [encoded]})


def verify(place: Place, console: Console, request: VerifyRequest) -> Attested:
    """Verify a bundle: every envelope by one of the keys, then what its statements say, then the live service.

    Raises:
        InputError: a file cannot be read, or a key is none.
        Refused: the bundle does not verify; the message says in what.
    """
    keys = [read_key(path) for path in request.keys]
    attested = read_statements(list(_payloads(request.file, keys)))
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


def _payloads(file: str, keys: Sequence[Key]) -> Iterator[bytes]:
    data = _read(file)
    if len(data) > _LARGEST:
        raise Refused(f"{file}: larger than {_LARGEST // bounded.MEBIBYTE} MiB")
    lines = data.splitlines()
    if len(lines) > _ENVELOPES:
        raise Refused(f"{file}: {len(lines)} lines, expected {_ENVELOPES} envelopes")
    for number, line in enumerate(lines, start=1):
        try:
            yield _verified(bounded.loads(line), keys)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise Refused(
                f"{file}: line {number} is no signed envelope: {_first_line(error)}"
            ) from error
        except Refused as error:
            raise Refused(f"{file}: line {number}: {error.message}", hint=error.hint) from error


def _verified(envelope: Any, keys: Sequence[Key]) -> bytes:
    from securesystemslib.exceptions import UnverifiedSignatureError
    from securesystemslib.signer._signature import Signature

    if envelope["payloadType"] != PAYLOAD_TYPE:
        raise ValueError(f"payloadType is not {PAYLOAD_TYPE}")
    if len(envelope["signatures"]) > _SIGNATURES:
        raise ValueError(f"{len(envelope['signatures'])} signatures, allowed are {_SIGNATURES}")
    payload = base64.b64decode(envelope["payload"], validate=True)
    for item in envelope["signatures"]:
        signature = base64.b64decode(item["sig"], validate=True).hex()
        for key in keys:
            try:
                key.verify_signature(Signature(key.keyid, signature), _pae(payload))
            except UnverifiedSignatureError:
                continue
            return payload
    raise Refused(
        "not signed by this key", hint="name the public key of the one who signed with --key"
    )
