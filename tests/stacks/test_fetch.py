"""The download job against real HTTP servers on loopback: resumed, checked, refused, never half done."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.conftest import ROOT

WEIGHTS = bytes(range(256)) * 4096  # 1 MiB
CONFIG = b'{"model_type": "qwen3"}'


class Store:
    """What the server holds and what happened: faults are planted by tests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None]] = []
        self.cut_after: int | None = None  # bytes of the weights before the connection ends, once
        self.errors: list[int] = []  # HTTP errors to answer with first
        self.weights = WEIGHTS
        self.listed = WEIGHTS  # what the listing says they are
        self.token = ""
        self.elsewhere = ""  # where the weights really are: another host, as hubs do it
        self.authorized: list[bool] = []
        self.pages = False  # the hub's listing in two pages
        self.next_host = ""  # where the second page is said to be
        self.objects = ["m/w.bin"]  # names in the bucket


def handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> Any:
            store.requests.append((self.path, self.headers.get("Range")))
            store.authorized.append("Authorization" in self.headers)
            if store.elsewhere and self.path.endswith("model.safetensors"):
                self.send_response(302)
                self.send_header("Location", store.elsewhere + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            if store.errors:
                return self.send_error(store.errors.pop(0))
            if (
                store.token
                and self.headers.get("Authorization") != f"Bearer {store.token}"
                and "computeMetadata" not in self.path
            ):
                return self.send_error(401)
            body = self.body()
            return self.send_error(404) if body is None else self.answer(body)

        def body(self) -> bytes | None:
            path = self.path.split("?")[0]
            if path.startswith("/api/models/org/model/tree/"):
                oid = hashlib.sha1(b"blob %d\0" % len(CONFIG) + CONFIG).hexdigest()
                lfs = {"oid": hashlib.sha256(store.listed).hexdigest(), "size": len(store.listed)}
                if store.pages:
                    second = {
                        "type": "file",
                        "path": "model.safetensors",
                        "size": len(WEIGHTS),
                        "oid": "x",
                        "lfs": lfs,
                    }
                    first = {"type": "file", "path": "config.json", "size": len(CONFIG), "oid": oid}
                    return json.dumps([second if "cursor=2" in self.path else first]).encode()
                return json.dumps(
                    [
                        {"type": "directory", "path": "sub"},
                        {"type": "file", "path": "config.json", "size": len(CONFIG), "oid": oid},
                        {
                            "type": "file",
                            "path": "model.safetensors",
                            "size": len(store.listed),
                            "oid": "x",
                            "lfs": lfs,
                        },
                        {"type": "file", "path": "README.md", "size": 3, "oid": "x"},
                    ]
                ).encode()
            if path == "/storage/v1/b/bucket/o":
                digest = base64.b64encode(hashlib.md5(WEIGHTS).digest()).decode()
                return json.dumps(
                    {
                        "items": [
                            {"name": n, "size": str(len(WEIGHTS)), "md5Hash": digest}
                            for n in store.objects
                        ]
                    }
                ).encode()
            if path.startswith("/computeMetadata"):
                return json.dumps({"access_token": store.token}).encode()
            if path.endswith("config.json"):
                return CONFIG
            return store.weights if path.endswith(("model.safetensors", "w.bin")) else None

        def answer(self, body: bytes) -> None:
            start = int(
                (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-")
            )
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body) - start))
            if store.pages and "/tree/" in self.path and "cursor=" not in self.path:
                here = f"http://{self.headers['Host']}"
                self.send_header(
                    "Link", f'<{store.next_host or here}{self.path}&cursor=2>; rel="next"'
                )
            self.end_headers()
            if store.cut_after is not None and len(body) > store.cut_after:
                self.wfile.write(body[start : store.cut_after])
                store.cut_after = None
                self.close_connection = True
                return
            self.wfile.write(body[start:])

    return Handler


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def fetch(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script as a module, talking to a server on loopback, its waits cut to nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(store))
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    for name in ("HF_ENDPOINT", "GCS_ENDPOINT", "GCE_METADATA"):
        monkeypatch.setenv(name, url)
    monkeypatch.setenv("FETCH_INTO", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "stacks/jobs"))
    for name in ("model_stores", "fetch_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    stores = importlib.import_module("model_stores")
    stores.BACKOFF = (0, 0)
    module = importlib.import_module("fetch_model")
    yield module
    server.shutdown()
    server.server_close()


def test_a_model_arrives_whole_and_once(
    fetch: Any, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS
    assert (tmp_path / "m/config.json").read_bytes() == CONFIG
    assert not (tmp_path / "m/README.md").exists()
    assert set(json.loads((tmp_path / "m/.complete").read_text())["files"]) == {
        "config.json",
        "model.safetensors",
    }
    before = len(store.requests)
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert len(store.requests) == before and "already complete" in capsys.readouterr().out


def test_a_cut_connection_goes_on_where_it_ended(fetch: Any, store: Store, tmp_path: Path) -> None:
    store.cut_after = 300_000
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS
    ranges = [r for path, r in store.requests if path.endswith("model.safetensors")]
    assert ranges == [None, "bytes=300000-"]


def test_a_killed_job_goes_on_from_its_part(fetch: Any, store: Store, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/model.safetensors.part").write_bytes(WEIGHTS[:500_000])
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS
    assert "bytes=500000-" in [r for _, r in store.requests]


def test_a_wrong_checksum_leaves_nothing(
    fetch: Any, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.weights = b"x" + WEIGHTS[1:]
    assert fetch.main(["hf://org/model@main=m"]) == 1
    assert "sha256 is" in capsys.readouterr().err
    assert (
        not (tmp_path / "m/model.safetensors").exists()
        and not (tmp_path / "m/model.safetensors.part").exists()
    )
    assert not (tmp_path / "m/.complete").exists()


def test_a_listing_in_pages_is_read_to_its_end(fetch: Any, store: Store, tmp_path: Path) -> None:
    store.pages = True
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert set(json.loads((tmp_path / "m/.complete").read_text())["files"]) == {
        "config.json",
        "model.safetensors",
    }
    assert [path for path, _ in store.requests if "cursor=2" in path]


def test_a_next_page_on_another_host_is_not_asked(
    fetch: Any, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.pages, store.next_host = True, "http://127.0.0.1:9"
    assert fetch.main(["hf://org/model@main=m"]) == 1
    assert "on another host" in capsys.readouterr().err


def test_a_damaged_file_is_found_and_fetched_again(
    fetch: Any, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch.main(["hf://org/model@main=m"]) == 0
    (tmp_path / "m/.complete").unlink()
    (tmp_path / "m/model.safetensors").write_bytes(b"x" + WEIGHTS[1:])
    before = len(store.requests)
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS
    assert "fetched again" in capsys.readouterr().out
    assert [path.rpartition("/")[2] for path, _ in store.requests[before + 1 :]] == [
        "model.safetensors"
    ]


def test_two_revisions_are_never_mixed(
    fetch: Any, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`main` moved while the first run lay dead: its files and parts go, and all is fetched from the new listing."""
    assert fetch.main(["hf://org/model@main=m"]) == 0
    folder = tmp_path / "m"
    (folder / ".complete").unlink()
    (folder / "sub").mkdir()
    (folder / "sub/old.safetensors").write_bytes(b"of the old revision")
    (folder / "model.safetensors.part").write_bytes(WEIGHTS[:1000])
    store.weights = store.listed = WEIGHTS[::-1]
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert "begun anew" in capsys.readouterr().out
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS[::-1]
    assert sorted(path.name for path in folder.iterdir()) == [
        ".complete",
        ".listing",
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize(
    ("name", "prefix", "inside"),
    [
        ("models/qwen/w.bin", "models/qwen", "w.bin"),
        ("models/qwen/a/b", "models/qwen", "a/b"),
        ("models/qwen3-8b/w.bin", "models/qwen", ""),
        ("models/qwen", "models/qwen", "qwen"),
        ("models/qwen.gguf", "models/qwen", ""),
        ("models/qwen/", "models/qwen", ""),
        ("w.bin", "", "w.bin"),
    ],
)
def test_a_prefix_is_a_folder_or_an_object(fetch: Any, name: str, prefix: str, inside: str) -> None:
    assert sys.modules["model_stores"].below(name, prefix) == inside


def test_gcs_leaves_out_neighbours(fetch: Any, store: Store, tmp_path: Path) -> None:
    store.token = "from-metadata"
    store.objects = ["m/w.bin", "m3-8b/w.bin", "m.bin"]
    assert fetch.main(["gs://bucket/m@main=g"]) == 0
    assert set(json.loads((tmp_path / "g/.complete").read_text())["files"]) == {"w.bin"}


def test_passing_faults_are_tried_again(
    fetch: Any, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.errors = [503, 429]
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert "HTTP 429; trying again" in capsys.readouterr().out


def test_lasting_faults_end_with_the_reason(
    fetch: Any, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.errors = [503, 503, 503]
    assert fetch.main(["hf://org/model@main=m"]) == 1
    assert "HTTP 503" in capsys.readouterr().err
    assert fetch.main(["hf://org/absent@main=a"]) == 1
    assert "no such model" in capsys.readouterr().err


def test_the_token_is_sent_and_never_printed(
    fetch: Any,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.token = "hf_not_a_real_token"
    assert fetch.main(["hf://org/model@main=m"]) == 1
    assert "is the token in its Secret" in capsys.readouterr().err
    (tmp_path / "token").write_text(store.token + "\n", "utf-8")
    monkeypatch.setenv("HF_TOKEN_FILE", str(tmp_path / "token"))
    assert fetch.main(["hf://org/model@main=m"]) == 0
    assert store.token not in "".join(capsys.readouterr())


def test_a_token_does_not_follow_a_redirect_to_another_host(
    fetch: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(other))
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    store.elsewhere = f"http://127.0.0.1:{server.server_port}"
    store.token = "hf_not_a_real_token"
    monkeypatch.setenv("HF_TOKEN", store.token)
    try:
        assert fetch.main(["hf://org/model@main=m"]) == 0
    finally:
        server.shutdown()
        server.server_close()
    assert (tmp_path / "m/model.safetensors").read_bytes() == WEIGHTS
    assert all(store.authorized) and other.authorized == [False]


def test_gcs_with_workload_identity(fetch: Any, store: Store, tmp_path: Path) -> None:
    store.token = "from-metadata"
    assert fetch.main(["gs://bucket/m@main=g"]) == 0
    assert (tmp_path / "g/w.bin").read_bytes() == WEIGHTS


def test_a_file_name_cannot_leave_its_folder(
    fetch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = fetch.File("../../evil", "http://127.0.0.1:9/x", 1, None)
    monkeypatch.setitem(
        fetch.STORES, "hf", (lambda path, revision: iter([evil]), lambda method, url: {})
    )
    assert fetch.main(["hf://org/model@main=m"]) == 1
    assert not (tmp_path.parent / "evil").exists()


def test_s3_signed_against_moto(
    fetch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto reads the signature's form and serves the object; multipart ETags are met with a size check."""
    boto3 = pytest.importorskip("boto3", reason="boto3 is missing: pip install boto3")
    server = pytest.importorskip(
        "moto.server", reason="moto is missing: pip install 'moto[server]'"
    ).ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        endpoint = f"http://{host}:{port}"
        for name, value in (
            ("AWS_ACCESS_KEY_ID", "testing"),
            ("AWS_SECRET_ACCESS_KEY", "testing"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL_S3", endpoint),
        ):
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        client.create_bucket(Bucket="models")
        client.put_object(Bucket="models", Key="eagle3/a b/w.bin", Body=WEIGHTS)
        client.put_object(Bucket="models", Key="eagle3/config.json", Body=CONFIG)
        client.put_object(Bucket="models", Key="eagle3-large/config.json", Body=CONFIG)
        assert fetch.main(["s3://models/eagle3@main=s"]) == 0
        assert (tmp_path / "s/a b/w.bin").read_bytes() == WEIGHTS
        assert (tmp_path / "s/config.json").read_bytes() == CONFIG
        assert set(json.loads((tmp_path / "s/.complete").read_text())["files"]) == {
            "a b/w.bin",
            "config.json",
        }
    finally:
        server.stop()


def test_the_signature_is_the_one_boto_makes(fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared header by header with botocore, so that a real S3 accepts it too."""
    auth = pytest.importorskip("botocore.auth", reason="botocore is missing: pip install boto3")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    url = "https://models.s3.us-west-2.amazonaws.com/?list-type=2&prefix=a%2Fb"
    ours = fetch.STORES["s3"][1]("GET", url)
    request = AWSRequest("GET", url, headers={"x-amz-content-sha256": ours["x-amz-content-sha256"]})
    signer = auth.S3SigV4Auth(Credentials("AKIDEXAMPLE", "secret", "session"), "s3", "us-west-2")
    import datetime as dt

    stamp = dt.datetime.strptime(ours["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    monkeypatch.setattr(
        auth,
        "get_current_datetime",
        lambda remove_tzinfo=True: stamp.replace(tzinfo=None),
        raising=False,
    )
    signer.add_auth(request)
    assert request.headers["X-Amz-Date"] == ours["x-amz-date"], (
        "botocore's clock could not be set in this version"
    )
    assert request.headers["Authorization"] == ours["Authorization"]
