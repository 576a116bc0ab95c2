"""Key pairs as files, and the signed bundle of a rollout that nobody made."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from run_samples import make_run

from mpctl.app.bench.recorded import FinishedRun
from mpctl.app.requests import SigningRequest
from mpctl.evidence import bundle as attestation
from mpctl.evidence import envelopes
from mpctl.experiment.cell import Cell
from mpctl.methods import Spec
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest

KINDS = {
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}
NOW = datetime.now(UTC).isoformat()
SECRET = "hf_PLANTEDPLANTEDPLANTED"


def write_keys(folder, kind="ecdsa", name="key", password=None):
    """Write a key pair; return the paths of the private and the public half."""
    key = KINDS[kind]()
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return str(private), str(public)


def make_bundle(private, *, service="team/qwen", speeds=None, session=None, **arm):
    run = make_run(speeds or {Cell("edits", 1): 2.0}, created=NOW)
    run = replace(
        run, arms={name: replace(conditions, **arm) for name, conditions in run.arms.items()}
    )
    plan = Plan(
        Kind.ROLLOUT,
        Strategy.SIDE_BY_SIDE,
        Manifest.of(f"token: {SECRET}\n# before {service}"),
        Manifest.of(f"token: {SECRET}\n# after {service}"),
        Spec("eagle3", {"model": "/models/head"}),
        draft="/models/head",
    )
    session = session or SimpleNamespace(store=SimpleNamespace(revisions=lambda: ()))
    operation = Operation("rollout-1", plan, NOW, "somebody")
    signer = envelopes.open_signer(SigningRequest(private))
    return attestation.attest(session, operation, FinishedRun(run, service), signer)
