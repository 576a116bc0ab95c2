"""Stores of models: each lists its files with size and checksum, and signs its requests.

Standard library only: this runs in a pod beside fetch_model.py. Tokens come from a Secret's file
(HF_TOKEN_FILE, or HF_TOKEN itself), EKS Pod Identity or GKE Workload Identity; they are never printed and
never follow a redirect to another host.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

TIMEOUT = 60
# Waits between tries; a hub that limits us recovers within minutes, and the Job's own backoff comes after
# these.
BACKOFF = (1, 4, 15, 60)
RETRIED = (408, 429, 500, 502, 503, 504)
SKIPPED = (".gitattributes", "README.md", ".md", ".png", ".jpg")
HF = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
GCS = os.environ.get("GCS_ENDPOINT", "https://storage.googleapis.com")
METADATA = os.environ.get("GCE_METADATA", "http://metadata.google.internal")
Headers = dict[str, str]


@dataclass(frozen=True)
class File:
    """One file of a model: where it is, how large, and the checksum as (algorithm, hex)."""

    name: str
    url: str
    size: int
    digest: tuple[str, str] | None


class FailedError(Exception):
    """A download that another try will not repair."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


class Redirects(urllib.request.HTTPRedirectHandler):
    """Hubs redirect to other hosts with signed addresses: a token must not follow, and would be refused
    there.
    """

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urllib.parse.urlsplit(newurl).netloc != req.host:
            made.remove_header("Authorization")
        return made


OPENER = urllib.request.build_opener(Redirects)


def get(url: str, headers: Mapping[str, str]) -> Any:
    return OPENER.open(urllib.request.Request(url, headers=dict(headers)), timeout=TIMEOUT)


def retried(action: Callable[[], Any], what: str) -> Any:
    """The result of *action*, tried again after faults that pass."""
    for wait in (*BACKOFF, None):
        try:
            return action()
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise FailedError(
                    f"{what}: HTTP {error.code}: no permission; is the token in its Secret, and the licence accepted?"
                ) from error
            if error.code == 404:
                raise FailedError(f"{what}: HTTP 404: no such model, revision or object") from error
            if error.code not in RETRIED or wait is None:
                raise FailedError(f"{what}: HTTP {error.code}") from error
            reason = f"HTTP {error.code}"
        except (OSError, HTTPException) as error:
            if wait is None:
                raise FailedError(f"{what}: {error}") from error
            reason = str(error) or type(error).__name__
        say(f"{what}: {reason}; trying again in {wait} s")
        time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def document(url: str, headers: Mapping[str, str]) -> bytes:
    return paged(url, headers)[0]


def paged(url: str, headers: Mapping[str, str]) -> tuple[bytes, str]:
    """A document and the address of the page after it (RFC 8288, ``Link: <...>; rel="next"``), or ''."""

    def read() -> tuple[bytes, str]:
        with get(url, headers) as answer:
            links = ", ".join(answer.headers.get_all("Link") or [])
            return bytes(answer.read()), links

    body, links = retried(read, url.split("?", maxsplit=1)[0])
    next_link = re.search(r'<([^>]*)>[^,<]*;\s*rel="?next"?', links)
    return body, urllib.parse.urljoin(url, next_link[1]) if next_link else ""


def below(name: str, prefix: str) -> str:
    """The name of an object inside the folder *prefix*, or of the object that *prefix* itself is; '' for
    neighbours that only begin alike (``models/qwen`` and ``models/qwen3-8b``).
    """
    if name == prefix:
        return name.rpartition("/")[2]
    folder = f"{prefix}/" if prefix else ""
    return name.removeprefix(folder) if name.startswith(folder) and not name.endswith("/") else ""


def huggingface(path: str, revision: str) -> Iterator[File]:
    url = f"{HF}/api/models/{path}/tree/{urllib.parse.quote(revision, safe='')}?recursive=true"
    entries: list[dict[str, Any]] = []
    while url:
        body, after = paged(url, hf_headers("GET", ""))
        if after and urllib.parse.urlsplit(after).netloc != urllib.parse.urlsplit(HF).netloc:
            raise FailedError(
                f"{path}: the next page of its listing is on another host, where the token must not go"
            )
        entries += json.loads(body)
        url = after
    for entry in entries:
        if entry["type"] == "file" and not entry["path"].endswith(SKIPPED):
            lfs = entry.get("lfs")
            digest = (
                ("sha256", str(lfs["oid"]).removeprefix("sha256:"))
                if lfs
                else ("git-blob", str(entry["oid"]))
            )
            place = f"{urllib.parse.quote(revision, safe='')}/{urllib.parse.quote(entry['path'])}"
            source = f"{HF}/{path}/resolve/{place}"
            yield File(entry["path"], source, int(entry["size"]), digest)


def hf_headers(_method: str, _url: str) -> Headers:
    path = os.environ.get("HF_TOKEN_FILE", "")
    token = Path(path).read_text("utf-8").strip() if path else os.environ.get("HF_TOKEN", "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def gcs(path: str, _revision: str) -> Iterator[File]:
    bucket, _, prefix = path.partition("/")
    page = ""
    while True:
        query = urllib.parse.urlencode(
            {
                "prefix": prefix,
                "fields": "items(name,size,md5Hash),nextPageToken",
                "pageToken": page,
            }
        )
        body = json.loads(
            document(f"{GCS}/storage/v1/b/{bucket}/o?{query}", gcs_headers("GET", ""))
        )
        for item in body.get("items", []):
            if name := below(item["name"], prefix):
                digest = (
                    ("md5", base64.b64decode(item["md5Hash"]).hex()) if "md5Hash" in item else None
                )
                source = f"{GCS}/storage/v1/b/{bucket}/o/{urllib.parse.quote(item['name'], safe='')}?alt=media"
                yield File(name, source, int(item["size"]), digest)
        page = body.get("nextPageToken", "")
        if not page:
            return


def gcs_headers(_method: str, _url: str) -> Headers:
    url = f"{METADATA}/computeMetadata/v1/instance/service-accounts/default/token"
    token = json.loads(document(url, {"Metadata-Flavor": "Google"}))["access_token"]
    return {"Authorization": f"Bearer {token}"}


def s3(path: str, _revision: str) -> Iterator[File]:
    bucket, _, prefix = path.partition("/")
    base = s3_base(bucket)
    token = ""
    while True:
        query = {
            "list-type": "2",
            "prefix": prefix,
            **({"continuation-token": token} if token else {}),
        }
        url = (
            f"{base}/?{urllib.parse.urlencode(sorted(query.items()), quote_via=urllib.parse.quote)}"
        )
        root = ET.fromstring(document(url, s3_headers("GET", url)))
        space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
        for item in root.iter(f"{space}Contents"):
            key = item.findtext(f"{space}Key", "")
            name = below(key, prefix)
            tag = item.findtext(f"{space}ETag", "").strip('"')
            if name:
                digest = ("md5", tag) if tag and "-" not in tag else None
                yield File(
                    name,
                    f"{base}/{urllib.parse.quote(key)}",
                    int(item.findtext(f"{space}Size", "0")),
                    digest,
                )
        token = root.findtext(f"{space}NextContinuationToken", "")
        if not token:
            return


def s3_base(bucket: str) -> str:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3", "")
    region = os.environ.get("AWS_REGION", "us-east-1")
    return f"{endpoint}/{bucket}" if endpoint else f"https://{bucket}.s3.{region}.amazonaws.com"


def s3_credentials() -> tuple[str, str, str]:
    """Keys from the environment or from the Pod Identity agent on the node."""
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return (
            os.environ["AWS_ACCESS_KEY_ID"],
            os.environ["AWS_SECRET_ACCESS_KEY"],
            os.environ.get("AWS_SESSION_TOKEN", ""),
        )
    url = os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
    if not url:
        raise FailedError(
            "s3: no credentials: neither AWS_ACCESS_KEY_ID nor a Pod Identity association for this service account"
        )
    token = Path(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text("utf-8").strip()
    body = json.loads(document(url, {"Authorization": token}))
    return body["AccessKeyId"], body["SecretAccessKey"], body.get("Token", "")


def s3_headers(method: str, url: str) -> Headers:
    """AWS Signature Version 4 for a request without a body."""
    access, secret, session = s3_credentials()
    region = os.environ.get("AWS_REGION", "us-east-1")
    stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urllib.parse.urlsplit(url)
    empty = hashlib.sha256(b"").hexdigest()
    signed = {"host": parts.netloc, "x-amz-content-sha256": empty, "x-amz-date": stamp}
    if session:
        signed["x-amz-security-token"] = session
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = "\n".join([method, parts.path or "/", parts.query, lines, names, empty])
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(
        ["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()]
    )
    key = f"AWS4{secret}".encode()
    for part in (stamp[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**{k: v for k, v in signed.items() if k != "host"}, "Authorization": authorization}


STORES: dict[str, tuple[Callable[[str, str], Iterator[File]], Callable[[str, str], Headers]]] = {
    "hf": (huggingface, hf_headers),
    "s3": (s3, s3_headers),
    "gs": (gcs, gcs_headers),
}
