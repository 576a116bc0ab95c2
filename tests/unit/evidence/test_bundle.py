"""A signed verdict: only the whole bundle of one rollout, signed by the key that was named, verifies."""

from __future__ import annotations

import base64
import json
import random

import pytest
from console import RecordingConsole
from fake_api import FakeApi
from signed import KINDS, SECRET, make_bundle, write_keys

from mpctl.app.requests import SigningRequest
from mpctl.app.session.cluster import ClusterSession
from mpctl.errors import InputError, NotPermitted, Refused
from mpctl.evidence import bundle as attestation
from mpctl.evidence import envelopes
from mpctl.evidence.requests import VerifyRequest
from mpctl.experiment.cell import Cell


def verify(folder, text, public, **asked):
    path = folder / "bundle.intoto.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return attestation.verify(
        None, None, VerifyRequest(str(path), (public,), offline=True, **asked)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_verifies_with_the_public_key_alone(tmp_path, kind):
    private, public = write_keys(tmp_path, kind)
    attested = verify(tmp_path, make_bundle(private), public)
    assert (attested.service, attested.operation, attested.verdict) == (
        "team/qwen",
        "rollout-1",
        "promote",
    )


def test_subjects_are_what_has_a_digest_and_the_others_are_named(tmp_path):
    private, public = write_keys(tmp_path)
    image = "docker.io/vllm/vllm-openai@sha256:" + "a" * 64
    attested = verify(
        tmp_path,
        make_bundle(private, image=image, model_digest="b" * 40, draft_digest="c" * 64),
        public,
    )
    assert attested.subjects["engine image"] == {"sha256": "a" * 64}
    assert attested.subjects["target"] == {"gitCommit": "b" * 40}
    assert attested.subjects["draft"] == {"sha256": "c" * 64}
    assert attested.unidentified == ()
    bare = verify(
        tmp_path,
        make_bundle(private, image="vllm/vllm-openai:v0.32.0", model_digest="main"),
        public,
    )
    assert bare.unidentified == ("engine image", "target", "draft")


def test_no_secret_of_a_manifest_and_no_key_is_in_a_bundle(tmp_path):
    private, _ = write_keys(tmp_path)
    bundle = make_bundle(private)
    payloads = [
        base64.b64decode(json.loads(line)["payload"]).decode() for line in bundle.splitlines()
    ]
    for text in (bundle, *payloads):
        assert SECRET not in text
        assert "PRIVATE" not in text


def forged(random_state, bundle, other_service, other_key, older):
    """Yield bundles that somebody without the key could make of those at hand: (what was done, bytes)."""
    lines, foreign = bundle.splitlines(), other_service.splitlines()
    yield "nothing", b""
    yield "first statement alone", lines[0].encode()
    yield "second statement alone", lines[1].encode()
    yield "one statement twice", f"{lines[0]}\n{lines[0]}\n".encode()
    yield "three statements", f"{bundle}{lines[1]}\n".encode()
    yield "another service's gate", f"{lines[0]}\n{foreign[1]}\n".encode()
    yield "another service's figures", f"{foreign[0]}\n{lines[1]}\n".encode()
    yield "an earlier gate", f"{lines[0]}\n{older.splitlines()[1]}\n".encode()
    yield "signed by another key", other_key.encode()
    yield "one line by another key", f"{lines[0]}\n{other_key.splitlines()[1]}\n".encode()
    for line in (0, 1):
        envelope = json.loads(lines[line])
        for field, value in (
            ("payloadType", "text/plain"),
            ("signatures", []),
            ("signatures", "none"),
            ("payload", "?"),
        ):
            changed = [*lines]
            changed[line] = json.dumps({**envelope, field: value})
            yield f"{field} of line {line}", "\n".join(changed).encode()
        body = json.loads(base64.b64decode(envelope["payload"]))
        for path, value in (
            (("predicate", "verdict"), "promote!"),
            (("subject",), []),
            (("_type",), "x"),
        ):
            edited = json.loads(json.dumps(body))
            home = edited
            for step in path[:-1]:
                home = home[step]
            home[path[-1]] = value
            changed = [*lines]
            payload = base64.b64encode(json.dumps(edited).encode()).decode()
            changed[line] = json.dumps({**envelope, "payload": payload})
            yield f"{path} of line {line}", "\n".join(changed).encode()
    data = bundle.encode()
    for _ in range(90):
        yield "truncated", data[: random_state.randrange(1, len(data) - 2)]
    for _ in range(90):
        position = random_state.randrange(len(data))
        flipped = bytes([data[position] ^ (1 << random_state.randrange(7))])
        yield f"byte {position} changed", data[:position] + flipped + data[position + 1 :]


def test_no_forged_truncated_replayed_rekeyed_or_mixed_bundle_verifies(tmp_path):
    private, public = write_keys(tmp_path)
    strange, _ = write_keys(tmp_path, name="strange")
    bundle = make_bundle(private)
    attempts = list(
        forged(
            random.Random(7),
            bundle,
            make_bundle(private, service="team/other"),
            make_bundle(strange),
            make_bundle(private, speeds={Cell("edits", 1): 1.9}),
        )
    )
    assert len(attempts) >= 200
    meaning = content(bundle)
    verified = []
    for what, data in attempts:
        try:
            verify(tmp_path, data, public)
        except Refused:
            continue
        if (
            content(data.decode()) != meaning
        ):  # a byte of the key's name or of white space is not signed
            verified.append(what)
    assert verified == []


def content(bundle):
    return [json.loads(line)["payload"] for line in bundle.splitlines()]


CLUSTER = "3c1e2a54-5a0e-4c3f-9b1e-0d7d4f2b6a11"


@pytest.fixture
def on_cluster():
    """A session whose API server has the namespace kube-system."""
    api = FakeApi()
    api.objects["namespaces", "kube-system"] = {"metadata": {"name": "kube-system", "uid": CLUSTER}}
    session = ClusterSession(api, "team", "qwen", RecordingConsole())
    session.api = api
    return session


def test_a_bundle_is_about_the_cluster_that_measured_and_no_other(tmp_path, on_cluster):
    private, public = write_keys(tmp_path)
    bundle = make_bundle(private, session=on_cluster)
    assert verify(tmp_path, bundle, public).cluster_id == CLUSTER
    assert verify(tmp_path, bundle, public, cluster_id=CLUSTER).verdict == "promote"
    with pytest.raises(Refused, match=f"measured on cluster {CLUSTER}, expected production"):
        verify(tmp_path, bundle, public, cluster_id="production")
    with pytest.raises(Refused, match="of a cluster that is not named, expected"):
        verify(tmp_path, make_bundle(private), public, cluster_id=CLUSTER)


def test_without_the_right_to_read_kube_system_the_bundle_is_made_and_its_gap_is_reported(
    tmp_path, on_cluster, monkeypatch
):
    def forbidden(*_):
        raise NotPermitted("may not get namespaces kube-system")

    monkeypatch.setattr(on_cluster.api, "require", forbidden)
    private, public = write_keys(tmp_path)
    bundle = make_bundle(private, session=on_cluster)
    (warning,) = on_cluster.console.warnings
    assert warning.startswith(
        "the bundle names no cluster, so verifying it with --cluster-id fails: "
    )
    assert warning.endswith("may not get namespaces kube-system")
    assert verify(tmp_path, bundle, public).cluster_id is None


def test_more_signatures_or_envelopes_than_a_bundle_has_are_refused_before_one_is_checked(
    tmp_path, monkeypatch
):
    private, public = write_keys(tmp_path)
    first, second = make_bundle(private).splitlines()
    envelope = json.loads(first)
    (genuine,) = envelope["signatures"]

    def signed_by(count):
        others = [{"keyid": "x", "sig": "AAAA"}] * (count - 1)
        return "\n".join([json.dumps({**envelope, "signatures": [*others, genuine]}), second])

    assert verify(tmp_path, signed_by(16), public).verdict == "promote"
    monkeypatch.setattr(envelopes, "_pae", lambda _: pytest.fail("a signature was checked"))
    with pytest.raises(Refused, match="17 signatures, allowed are 16"):
        verify(tmp_path, signed_by(17), public)
    with pytest.raises(Refused, match="3 lines, expected 2 envelopes"):
        verify(tmp_path, f"{first}\n{second}\n{second}", public)


def test_a_verdict_that_did_not_promote_is_evidence_and_no_admission(tmp_path):
    private, public = write_keys(tmp_path)
    slower = make_bundle(private, speeds={Cell("edits", 1): 0.5})
    with pytest.raises(Refused, match="ended with the verdict reject, not promote"):
        verify(tmp_path, slower, public)
    gate = json.loads(base64.b64decode(json.loads(slower.splitlines()[1])["payload"]))
    assert gate["predicate"]["result"] == "FAILED"
    assert "edits, 1 at once: time per token" in gate["predicate"]["failedTests"]


def test_another_policy_is_refused(tmp_path):
    private, public = write_keys(tmp_path)
    bundle = make_bundle(private)
    lax = tmp_path / "policy.yaml"
    lax.write_text("max_tpot_ratio: 2\n")
    with pytest.raises(Refused, match="judged by another policy"):
        verify(tmp_path, bundle, public, policy_file=str(lax))


def test_a_key_with_a_password_takes_it_from_the_environment(tmp_path, monkeypatch):
    private, public = write_keys(tmp_path, password=b"correct horse")
    with pytest.raises(InputError, match="sign_with: not a usable private key"):
        make_bundle(private)
    monkeypatch.setenv("MPCTL_SIGNING_PASSWORD", "correct horse")
    assert verify(tmp_path, make_bundle(private), public).verdict == "promote"


def test_a_file_that_is_no_key_is_named(tmp_path):
    private, public = write_keys(tmp_path)
    bundle = make_bundle(private)
    with pytest.raises(InputError, match=r"none\.pub: --key: cannot be read"):
        verify(tmp_path, bundle, str(tmp_path / "none.pub"))
    with pytest.raises(InputError, match="not a public key"):
        verify(tmp_path, bundle, private)
    with pytest.raises(InputError, match="needs its public key"):
        envelopes.open_signer(SigningRequest("awskms:alias/gate"))
    with pytest.raises(InputError, match="sign_with: the key cannot be used"):
        envelopes.open_signer(SigningRequest("nokms:alias/gate", public))
