"""Reads of many services from lists: few requests, the same answers."""

from __future__ import annotations

import pytest

from mpctl.errors import NotPermitted
from mpctl.platform.kubernetes.api import kinds
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.listing import ListingClient
from mpctl.platform.kubernetes.object_store import KubernetesStore

SERVICES = 50


def found(kind, name, namespace="a", **labels):
    metadata = {"name": name, "namespace": namespace, "labels": labels, "resourceVersion": "1"}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "spec": {"name": name},
    }


@pytest.fixture
def server(monkeypatch):
    """Objects by kind, the requests that were sent, and the kinds that may not be listed."""
    objects = {
        kinds.INFERENCE_SERVICE: [
            found(kinds.INFERENCE_SERVICE, f"llm-{n}") for n in range(SERVICES)
        ],
        kinds.POD: [
            found(kinds.POD, f"pod-{n}", **{"serving.kserve.io/inferenceservice": f"llm-{n}"})
            for n in range(SERVICES)
        ],
        kinds.LEASE: [],
        kinds.CONTROLLER_REVISION: [],
        kinds.SERVING_RUNTIME: [found(kinds.SERVING_RUNTIME, "vllm")],
    }
    sent, refused = [], set()

    def chosen(item, labels):
        actual_labels = item["metadata"]["labels"]
        return all(
            actual_labels.get(k) == v if e else k in actual_labels
            for k, e, v in (t.partition("=") for t in labels.split(",") if t)
        )

    def listed(self, kind, namespace=None, *, labels="", fields=""):
        sent.append(("list", kind.plural, labels))
        if kind in refused:
            raise NotPermitted(f"may not list {kind.plural}")
        items = objects[kind]
        return [
            o
            for o in items
            if chosen(o, labels) and namespace in (None, o["metadata"]["namespace"])
        ]

    def got(self, kind, name, namespace=None):
        sent.append(("get", kind.plural, name))
        return next((o for o in objects[kind] if o["metadata"]["name"] == name), None)

    monkeypatch.setattr(Client, "list", listed)
    monkeypatch.setattr(Client, "get", got)
    return objects, sent, refused


@pytest.fixture
def client(server):
    listing_client = ListingClient.__new__(ListingClient)
    (
        listing_client._lists,
        listing_client._by_name,
        listing_client._by_service,
        listing_client._single,
    ) = {}, {}, {}, {}
    return listing_client


def looks(client):
    for n in range(SERVICES):
        assert client.get(kinds.INFERENCE_SERVICE, f"llm-{n}", "a")["spec"]["name"] == f"llm-{n}"
        (pod,) = client.list(kinds.POD, "a", labels=f"serving.kserve.io/inferenceservice=llm-{n}")
        assert pod["metadata"]["name"] == f"pod-{n}"
        assert client.get(kinds.SERVING_RUNTIME, "vllm", "a") is not None
        store = KubernetesStore(client, "a", f"llm-{n}", "me@here")
        assert (store.entries(), store.revisions(), store.holder()) == ((), (), None)


def test_a_look_at_many_services_lists_each_kind_once(server, client):
    _, sent, _ = server
    looks(client)
    assert sorted(sent) == [
        ("get", "servingruntimes", "vllm"),
        ("list", "controllerrevisions", "mpctl.dev/part=ledger"),
        ("list", "controllerrevisions", "mpctl.dev/part=revision"),
        ("list", "inferenceservices", ""),
        ("list", "leases", "mpctl.dev/part=lease"),
        ("list", "pods", "serving.kserve.io/inferenceservice"),
    ]


def test_what_may_not_be_listed_as_a_whole_is_read_one_by_one(server, client):
    _, sent, refused = server
    refused.add(kinds.INFERENCE_SERVICE)
    looks(client)
    assert ("get", "inferenceservices", "llm-7") in sent


def test_objects_of_another_namespace_are_not_found(server, client):
    assert client.get(kinds.INFERENCE_SERVICE, "llm-1", "b") is None
    assert client.list(kinds.POD, "b", labels="serving.kserve.io/inferenceservice=llm-1") == []


def test_selectors_that_are_not_plain_labels_go_to_the_server(server, client):
    _, sent, _ = server
    client.list(kinds.POD, "a", labels="app")
    client.list(kinds.POD, "a", labels="team=x")
    assert [call[2] for call in sent] == ["app", "team=x"]
