"""moto's AWS with the part of EKS that moto lacks: versions that change, add-ons, Pod Identity, image releases.

``python -m tests.stacks.emulator PORT LOG`` serves on loopback and appends a line for each change to LOG. What moto
gives back otherwise than it was asked (access settings, remote access, versions) is given back as asked.
"""

from __future__ import annotations

import io
import json
import re
import sys
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple
from werkzeug.wrappers import Request, Response

ACCOUNT = "123456789012"
PARTS = {
    "addons": "addon",
    "pod-identity-associations": "association",
    "access-entries": "accessEntry",
}


class Emulator:
    """Answers what moto cannot, and repairs what it forgets."""

    def __init__(self, inner: Any, log: Path) -> None:
        self.inner = inner
        self.log = log
        self.lock = threading.Lock()
        self.asked: dict[
            str, dict[str, Any]
        ] = {}  # path of a cluster or node group -> what it was asked to be
        self.parts: dict[str, dict[str, Any]] = {}  # path of an add-on or association -> what it is

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        request = Request(environ)
        self.note_call(request, body)
        with self.lock:
            answer = self.answer(request, body)
            if answer is None:
                answer = self.repaired(request, body, Response.from_app(self.inner, environ))
        return answer(environ, start_response)

    def note(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def note_call(self, request: Request, body: bytes) -> None:
        """The right that a call needs, where the protocol names it (not for REST: EKS and EFS)."""
        scope = re.search(
            r"Credential=[^/]+/\d+/[^/]+/([a-z0-9]+)/", request.headers.get("Authorization", "")
        )
        named = (
            request.headers.get("X-Amz-Target", "").rpartition(".")[2]
            or parse_qs(body.decode("latin-1")).get("Action", [""])[0]
        )
        if scope and named:
            self.note(f"call {scope[1]}:{named}")

    def answer(self, request: Request, body: bytes) -> Response | None:
        """The answer to what moto does not know; None leaves it to moto."""
        if request.headers.get("X-Amz-Target") == "AmazonSSM.GetParameter":
            name = json.loads(body)["Name"]
            minor = re.findall(r"/optimized-ami/([\d.]+)/", name)[0]
            fields = {
                "Name": name,
                "Type": "String",
                "Value": f"{minor}.0-20261101",
                "Version": 1,
                "DataType": "text",
            }
            return reply(
                {"Parameter": {**fields, "ARN": f"arn:aws:ssm:us-west-2::parameter{name}"}}
            )
        if request.path == "/addons/supported-versions":
            minor = request.args["kubernetesVersion"]
            version = {
                "addonVersion": f"v{minor}.0",
                "compatibilities": [{"clusterVersion": minor, "defaultVersion": True}],
            }
            return reply(
                {"addons": [{"addonName": request.args["addonName"], "addonVersions": [version]}]}
            )
        parts = request.path.strip("/").split("/")
        if parts[0] != "clusters" or len(parts) < 3:
            return None
        if parts[2] in PARTS:
            return self.part(request, body, parts)
        if "updates" in parts and request.method == "GET":
            return reply(
                {"update": {"id": parts[-1], "status": "Successful", "type": "VersionUpdate"}}
            )
        if (parts[2] == "updates" or parts[-1] == "update-version") and request.method == "POST":
            wanted = json.loads(body)
            owner = "/".join(parts[:-1])
            changes = {key: wanted[key] for key in ("version", "releaseVersion") if wanted.get(key)}
            self.asked[owner].update(changes)
            self.note(f"upgrade {owner} {changes.get('version', '')}".strip())
            return updated()
        return None

    def part(self, request: Request, body: bytes, parts: list[str]) -> Response:
        """Add-ons, associations and access entries, which are no more than what was written."""
        kind = PARTS[parts[2]]
        if request.method == "POST" and len(parts) == 3:
            record = json.loads(body)
            name = (
                record.get("addonName")
                or record.get("principalArn")
                or f"a-{uuid.uuid4().hex[:17]}"
            )
            arn = f"arn:aws:eks:us-west-2:{ACCOUNT}:{parts[2]}/{parts[1]}/{uuid.uuid4().hex[:8]}"
            record |= {"clusterName": parts[1], f"{kind}Arn": arn, "status": "ACTIVE"}
            record |= {"associationId": name} if kind == "association" else {}
            if "podIdentityAssociations" in record:
                record["podIdentityAssociations"] = [
                    self.associate(parts[1], one) for one in record["podIdentityAssociations"]
                ]
            self.parts["/".join([*parts, name])] = record
            self.note(f"create {kind} {name}")
            return reply({kind: record})
        path = "/".join(parts[:4])
        if path not in self.parts:
            return missing(path)
        if request.method == "DELETE":
            return reply({kind: self.parts.pop(path)})
        if request.method == "POST":
            left = ("clientRequestToken", "podIdentityAssociations")
            wanted = {key: value for key, value in json.loads(body).items() if key not in left}
            self.parts[path].update(wanted)
            self.note(f"update {kind} {parts[3]} {wanted.get('addonVersion', '')}".strip())
            return updated() if kind == "addon" else reply({kind: self.parts[path]})
        return reply({kind: self.parts[path]})

    def associate(self, cluster: str, wanted: dict[str, Any]) -> str:
        """Make the identity that an add-on was given; its ARN."""
        name = f"a-{uuid.uuid4().hex[:17]}"
        arn = f"arn:aws:eks:us-west-2:{ACCOUNT}:podidentityassociation/{cluster}/{name}"
        fields = {**wanted, "clusterName": cluster, "associationArn": arn, "associationId": name}
        self.parts[f"clusters/{cluster}/pod-identity-associations/{name}"] = fields
        return arn

    def repaired(self, request: Request, body: bytes, answer: Response) -> Response:
        """moto's answer as AWS gives it: with what the cluster or the node group was asked to be."""
        parts = request.path.strip("/").split("/")
        if parts[0] != "clusters" or answer.status_code >= 300:
            return answer
        record = json.loads(answer.get_data())
        kind = "nodegroup" if "node-groups" in parts else "cluster"
        inner = record.get(kind)
        if not isinstance(inner, dict):
            return answer
        name = inner["nodegroupName"] if kind == "nodegroup" else inner["name"]
        owner = (
            f"clusters/{parts[1]}/node-groups/{name}" if kind == "nodegroup" else f"clusters/{name}"
        )
        if request.method == "POST" and parts[-1] in ("clusters", "node-groups"):
            self.asked[owner] = json.loads(body)
            self.note(f"create {owner}")
        elif request.method == "DELETE":
            self.note(f"delete {owner}")
        value = self.asked.get(owner, {})
        for key in (
            "version",
            "releaseVersion",
            "accessConfig",
            "upgradePolicy",
            "tags",
            "updateConfig",
        ):
            if key in value:
                inner[key] = value[key]
        if "remoteAccess" not in value:
            inner.pop("remoteAccess", None)
        return reply(record)


def reply(body: Any, status: int = 200) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")


def updated() -> Response:
    return reply(
        {"update": {"id": str(uuid.uuid4()), "status": "InProgress", "type": "VersionUpdate"}}
    )


def missing(path: str) -> Response:
    answer = reply({"message": f"{path} not found"}, 404)
    answer.headers["x-amzn-ErrorType"] = "ResourceNotFoundException"
    return answer


def main() -> None:
    port, log = int(sys.argv[1]), Path(sys.argv[2])
    inner = DomainDispatcherApplication(create_backend_app)
    run_simple(
        "127.0.0.1", port, Emulator(inner, log), threaded=True, request_handler=MotoRequestHandler
    )


if __name__ == "__main__":
    main()
