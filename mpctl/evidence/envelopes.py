"""Signed envelopes: DSSE (https://github.com/secure-systems-lab/dsse), one a line of a bundle.

securesystemslib signs: with a key file, or by a key management service or a PKCS#11 device that a URI names.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer._crypto_signer import CryptoSigner
from securesystemslib.signer._key import Key, SSlibKey
from securesystemslib.signer._signature import Signature
from securesystemslib.signer._signer import Signer

from mpctl import bounded
from mpctl.app.requests import SigningRequest
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.evidence.statements import PAYLOAD_TYPE

_PASSWORD = "MPCTL_SIGNING_PASSWORD"
_LARGEST = 64 * bounded.MEBIBYTE
_ENVELOPES = 2  # of a bundle: the figures, and the gate's result
_SIGNATURES = 16  # of an envelope: each costs a verification per key


def open_signer(request: SigningRequest) -> Signer:
    """Return what signs.

    Raises:
        InputError: no key is named, or it cannot be used.
    """
    if request.key is None:
        raise InputError(
            "needs a private key",
            field="-o attestation",
            hint="name it in the setting sign_with, or MPCTL_SIGN_WITH",
        )
    try:
        if ":" not in request.key:
            return _file_signer(request.key)
        if request.public_key is None:
            raise InputError(
                "a key by URI needs its public key",
                field="sign_with",
                hint="name it in the setting public_key",
            )
        signer: Signer = Signer.from_priv_key_uri(request.key, read_key(request.public_key))
    except InputError:
        raise
    except Exception as error:  # each service's client has errors of its own
        raise InputError(
            f"the key cannot be used: {type(error).__name__}: {_first_line(error)}",
            field="sign_with",
        ) from error
    return signer


def _file_signer(path: str) -> Signer:
    password = os.environ.get(_PASSWORD)
    try:
        key = load_pem_private_key(
            _read(path, "sign_with"), password.encode() if password else None
        )
        signer: Signer = CryptoSigner(key)
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


def read_key(path: str) -> Key:
    """Read a public key, PEM.

    Raises:
        InputError: the file cannot be read or holds none.
    """
    try:
        key: Key = SSlibKey.from_crypto(load_pem_public_key(_read(path, "--key")))
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


def sign(payload: bytes, signer: Signer) -> str:
    """Return the envelope of a payload as a line.

    Raises:
        MpctlError: the key's service did not sign.
    """
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


def read_payloads(file: str, keys: Sequence[str]) -> list[bytes]:
    """Return what a bundle's envelopes hold, each verified by one of the keys.

    Raises:
        InputError: a file cannot be read, or a key is none.
        Refused: an envelope does not verify.
    """
    return list(_payloads(file, [read_key(path) for path in keys]))


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
