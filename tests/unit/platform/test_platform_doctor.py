"""The doctor's reader: refusals, absent kinds and broken answers become facts; nothing stops it but a dead server."""

import json
from datetime import UTC, datetime

from mpctl.doctor.access import FORBIDDEN, check_leftovers
from mpctl.errors import MpctlError, NotPermitted
from mpctl.platform.kubernetes.access.calls import ACCESS_REVIEW, RULES_REVIEW, TABLE, denied_calls
from mpctl.platform.kubernetes.doctor_reader import read_cluster

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GROUPS = {
    "serving.kserve.io": ["v1beta1", "v1alpha1"],
    "resource.k8s.io": ["v1"],
    "admissionregistration.k8s.io": ["v1"],
    "coordination.k8s.io": ["v1"],
    "discovery.k8s.io": ["v1"],
}
SERVICE = {"metadata": {"name": "qwen", "namespace": "chat"}, "spec": {}}


class FakeClient:
    """Answers from dictionaries; ``refuse``: plurals that are forbidden. ``allowed``: (verb, resource) of reviews."""

    def __init__(self, objects=None, *, refuse=(), raw=None, allowed=None, rules=()):
        self.objects, self.refuse, self.texts = objects or {}, set(refuse), raw or {}
        self.allowed, self.rules = allowed, rules
        self.asked = []

    def version(self):
        return {"gitVersion": "v1.36.2"}

    def list(self, kind, namespace=None, *, labels="", fields=""):
        self.asked.append((kind.plural, namespace, labels))
        if kind.plural in self.refuse:
            raise NotPermitted(f"not allowed to list {kind.resource}")
        value = self.objects.get((kind.plural, labels), self.objects.get(kind.plural))
        return value if value is not None else []

    def get(self, kind, name, namespace=None):
        if kind.plural in self.refuse:
            raise NotPermitted(f"not allowed to get {kind.resource}")
        return self.objects.get((kind.plural, name))

    def raw(self, path):
        if path == "/apis":
            groups = [
                {"name": n, "versions": [{"version": v} for v in vs]} for n, vs in GROUPS.items()
            ]
            return json.dumps({"groups": groups})
        answer = self.texts.get(path.partition("?")[0])
        if isinstance(answer, MpctlError):
            raise answer
        return answer

    def create(self, kind, body, **_more):
        assert kind in (ACCESS_REVIEW, RULES_REVIEW)
        if kind is RULES_REVIEW:
            return {"status": {"resourceRules": list(self.rules), "incomplete": True}}
        resource_attributes = body["spec"]["resourceAttributes"]
        self.asked.append(resource_attributes)
        if self.allowed is None:
            return {"status": {"allowed": True}}
        resource = "/".join(
            filter(None, (resource_attributes["resource"], resource_attributes.get("subresource")))
        )
        return {"status": {"allowed": (resource_attributes["verb"], resource) in self.allowed}}


def read(client, namespace="chat"):
    return read_cluster(client, namespace, NOW)


def test_what_is_forbidden_is_unread_and_the_rest_is_read():
    facts = read(FakeClient({"inferenceservices": [SERVICE]}, refuse=["nodes", "resourceslices"]))
    assert facts.unread == {"nodes": FORBIDDEN, "resourceslices": FORBIDDEN}
    assert facts.read("nodes") is None
    assert facts.read("inferenceservices") == [SERVICE]
    assert facts.read("scaledobjects") == ()
    assert facts.groups["resource.k8s.io"] == ("v1",)


def test_an_answer_that_is_no_json_is_said():
    client = FakeClient()
    client.raw = lambda path: "<html>"
    assert read(client).unread["discovery"] == "the API server's answer is not JSON: '<html>'"


def test_services_are_read_in_the_namespace_and_the_cluster_around_them_everywhere():
    client = FakeClient()
    read(client)
    asked = {
        plural: where for plural, where, _ in (a for a in client.asked if isinstance(a, tuple))
    }
    assert {
        asked[p] for p in ("inferenceservices", "pods", "horizontalpodautoscalers", "leases")
    } == {"chat"}
    assert {asked[p] for p in ("nodes", "resourceslices", "daemonsets")} == {None}
    everywhere = FakeClient()
    read(everywhere, None)
    asked = {
        plural: where for plural, where, _ in (a for a in everywhere.asked if isinstance(a, tuple))
    }
    assert asked["inferenceservices"] is None


def test_kserve_is_looked_for_where_its_webhooks_lead():
    hook = {"clientConfig": {"service": {"name": "w", "namespace": "ml-system"}}}
    configuration = {"metadata": {"name": "inferenceservice.serving.kserve.io"}, "webhooks": [hook]}
    client = FakeClient({"mutatingwebhookconfigurations": [configuration]})
    facts = read(client)
    assert facts.kserve_namespace == "ml-system"
    assert ("endpointslices", "ml-system", "") in client.asked


def test_a_ledger_that_cannot_be_read_is_said():
    fields = {"mpctl.dev/service": "qwen", "mpctl.dev/part": "ledger"}
    part = {
        "metadata": {"name": "mpctl-qwen.ledger-1", "namespace": "chat", "labels": fields},
        "data": {"no": "entry"},
    }
    owner = {"kind": "StatefulSet", "name": "db", "controller": True}
    foreign = {
        "metadata": {
            "name": "db-1",
            "namespace": "chat",
            "labels": fields,
            "ownerReferences": [owner],
        }
    }
    labels = "mpctl.dev/part=ledger"
    facts = read(
        FakeClient({("controllerrevisions", labels): [part, {**foreign, "data": {"spec": {}}}]})
    )
    assert "not a ledger entry" in facts.unread["ledger of chat/qwen"]
    assert facts.unfinished == {}
    (described,) = facts.look_alikes
    assert "ControllerRevision chat/db-1 of StatefulSet db has mpctl's labels" in described
    (finding,) = check_leftovers(facts)
    assert (finding.id, finding.subject) == ("ledger-look-alike", "ControllerRevision chat/db-1")


def test_who_may_everything_lacks_nothing():
    assert denied_calls(FakeClient(), "chat") == ()
    star = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    client = FakeClient(rules=[star], allowed=set())
    # The review of rules is not believed for what lies outside the namespace.
    outside = {row.call for row in TABLE if row.scope != "service" and row.commands != ("doctor",)}
    assert {d.call for d in denied_calls(client, "chat")} == outside


def test_a_right_that_is_missing_is_named_with_its_commands():
    everything = {(row.verb, row.resource) for row in TABLE}
    (denied_call,) = denied_calls(
        FakeClient(allowed=everything - {("delete", "inferenceservices")}), "chat"
    )
    assert denied_call.call == "delete inferenceservices.serving.kserve.io"
    assert {"rollout", "rollback", "resume"} <= set(denied_call.commands)
    assert not denied_call.reader


def test_each_review_is_about_the_right_place():
    client = FakeClient()
    denied_calls(client, "chat")
    for asked in client.asked:
        rows = [r for r in TABLE if (r.verb, r.kind.plural) == (asked["verb"], asked["resource"])]
        assert asked.get("namespace") in {("chat" if r.scope == "service" else None) for r in rows}
    client = FakeClient()
    denied_calls(client, None)
    assert {asked.get("namespace") for asked in client.asked} == {None}
