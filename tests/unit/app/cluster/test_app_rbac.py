"""``mpctl rbac`` as values: the scope and the names are checked, every subject is bound."""

from __future__ import annotations

import pytest

from mpctl.app.cluster.rbac import list_calls, make_roles, subject_warnings
from mpctl.app.environment_requests import RbacRequest
from mpctl.errors import InputError


def kinds(request):
    return [(d["kind"], d["metadata"].get("namespace")) for d in make_roles(request)]


def test_one_namespace_needs_three_roles_and_all_namespaces_one():
    assert kinds(RbacRequest(namespace="chat")) == [
        ("Role", "chat"),
        ("ClusterRole", None),
        ("Role", "kserve"),
    ]
    assert kinds(RbacRequest(everywhere=True)) == [("ClusterRole", None)]


def test_every_role_is_bound_to_every_subject():
    documents = make_roles(RbacRequest(namespace="chat", bind_to=("group:ml", "user:ann")))
    bindings = [d for d in documents if d["kind"].endswith("Binding")]
    assert [s["name"] for d in bindings for s in d["subjects"]] == ["ml", "ann"] * 3


def test_who_can_act_as_an_operators_service_account_is_said():
    to = ("user:ann", "serviceaccount:ci/bot")
    (warning,) = subject_warnings(RbacRequest(namespace="chat", bind_to=to))
    assert warning == "whoever has the role edit in namespace ci can act as service account bot"
    assert subject_warnings(RbacRequest(role="reader", namespace="chat", bind_to=to)) == ()


@pytest.mark.parametrize(
    ("subject", "warning"),
    [
        (
            "group:system:authenticated",
            "is every user and service account of the cluster: all of them get the role reader",
        ),
        (
            "group:system:unauthenticated",
            "is everyone who reaches the API server, without a credential",
        ),
        ("user:system:anonymous", "is everyone who reaches the API server, without a credential"),
        ("group:system:serviceaccounts", "is every service account of the cluster"),
        (
            "group:system:serviceaccounts:ci",
            "whoever has the role edit in namespace ci can act as its service accounts",
        ),
        ("group:system:masters", "belongs to Kubernetes itself"),
        ("user:system:masters", "belongs to Kubernetes itself"),
        ("user:system:kube-scheduler", "belongs to Kubernetes itself"),
    ],
)
def test_a_subject_that_is_everyone_or_kubernetes_itself_is_warned_of(subject, warning):
    (actual,) = subject_warnings(RbacRequest(role="reader", namespace="chat", bind_to=(subject,)))
    assert subject.partition(":")[2] in actual
    assert warning in actual


def test_a_named_user_or_group_is_not_warned_of():
    assert (
        subject_warnings(RbacRequest(namespace="chat", bind_to=("group:ml-operators", "user:ann")))
        == ()
    )


def test_a_reader_may_make_fewer_calls_than_an_operator():
    assert set(list_calls(RbacRequest(role="reader"))) < set(list_calls(RbacRequest()))


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (RbacRequest(), "--namespace"),
        (RbacRequest(namespace="chat", everywhere=True), "--all-namespaces"),
        (RbacRequest(namespace="a.b"), "--namespace"),
        (RbacRequest(namespace="chat", secrets=("a/b",)), "--secret"),
        (RbacRequest(namespace="chat", bind_to=("ml",)), "--to"),
        (RbacRequest(namespace="chat", allowed=("toleration:a",)), "--allow"),
        (RbacRequest(namespace="chat", allowed=("toleration:",)), "--allow"),
        (RbacRequest(namespace="chat", allowed=("everything",)), "--allow"),
        (RbacRequest(namespace="chat", role="reader", allowed=("purge",)), "--allow"),
    ],
)
def test_a_request_that_cannot_be_used_is_refused_by_its_option(request_, field):
    with pytest.raises(InputError) as caught:
        make_roles(request_)
    assert caught.value.field == field
