"""Roles made from the table of calls."""

import itertools
import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mpctl.app.cluster.rbac import make_roles
from mpctl.app.environment_requests import RbacRequest, WatchInstallRequest
from mpctl.app.watch.install import objects
from mpctl.cli.root import COMMANDS
from mpctl.errors import InputError
from mpctl.platform.kubernetes.access.calls import (
    API_KEY,
    FREE,
    SEALING,
    TABLE,
    CallRow,
    covers,
    needs,
)
from mpctl.platform.kubernetes.access.rbac import (
    Subject,
    require_name,
    roles,
    rules_of,
    subject_of,
    to_yaml,
)
from tests.cluster.listed import request_of


def granted(documents):
    """(kind, namespace, verb, group, resource, names) of everything that roles grant."""
    return {
        (
            d["kind"],
            d["metadata"].get("namespace"),
            verb,
            group,
            resource,
            tuple(rule.get("resourceNames", ())),
        )
        for d in documents
        if "rules" in d
        for rule in d["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_only_a_role_that_is_asked_for_deletes_a_history():
    deletes = {
        (verb, resource)
        for *_, verb, _, resource, _ in granted(roles("operator", "chat"))
        if verb == "delete"
    }
    assert deletes == {
        ("delete", "inferenceservices"),
        ("delete", "jobs"),
        ("delete", "llminferenceservices"),
    }
    more = granted(roles("operator", "chat", allow=["purge"])) - granted(roles("operator", "chat"))
    assert {(verb, resource) for *_, verb, _, resource, _ in more} == {
        ("list", "configmaps"),
        ("delete", "configmaps"),
        ("delete", "controllerrevisions"),
        ("delete", "leases"),
    }


@pytest.mark.parametrize("role", ["reader", "operator"])
def test_roles_grant_the_table_and_nothing_else(role):
    kinds = {
        "service": ("Role", "chat"),
        "cluster": ("ClusterRole", None),
        "kserve": ("Role", "kserve"),
    }
    names = {row: (row.name,) if row.name else () for row in needs(role)}
    assert granted(roles(role, "chat")) == {
        (*kinds[row.scope], *row.key, names[row]) for row in needs(role)
    }
    assert granted(roles(role, None)) == {
        ("ClusterRole", None, *row.key, names[row]) for row in needs(role)
    }


def test_of_all_namespaces_only_the_one_that_names_the_cluster_is_read():
    namespaces = {
        d
        for role in ("reader", "operator")
        for d in granted(roles(role, "chat"))
        if d[4] == "namespaces"
    }
    assert namespaces == {("ClusterRole", None, "get", "", "namespaces", ("kube-system",))}


def test_a_reader_may_change_nothing():
    # The right to create a port-forward opens a connection; it changes no object.
    writes = {row for row in needs("reader") if row.verb not in ("get", "list")}
    assert {row.resource for row in writes} == {"pods/portforward"}


def test_no_role_reads_secrets_unless_named():
    assert not [
        d
        for role in ("reader", "operator")
        for d in granted(roles(role, None))
        if d[4] == "secrets"
    ]
    named = granted(roles("operator", "chat", secrets=["engine-key"]))
    assert [d for d in named if d[4] == "secrets"] == [
        ("Role", "chat", "get", "", "secrets", ("engine-key",))
    ]


def test_the_secret_of_sentinels_is_written_as_well_and_never_created():
    named = granted(roles("operator", "chat", secrets=["engine-key", "mpctl-sentinels"]))
    assert {(d[2], d[5]) for d in named if d[4] == "secrets"} == {
        ("get", ("engine-key",)),
        ("get", ("mpctl-sentinels",)),
        ("patch", ("mpctl-sentinels",)),
    }


def test_no_row_is_there_twice_and_each_names_commands_that_exist():
    rows = [(row.key, row.scope) for row in TABLE]
    assert len(rows) == len(set(rows))
    for row in (*TABLE, API_KEY, *SEALING):
        assert set(row.commands) <= set(COMMANDS), row
        assert row.why


def test_nothing_uses_a_star():
    assert "*" not in {
        part
        for role in ("reader", "operator")
        for d in granted(roles(role, None))
        for part in d[2:5]
    }


def test_bindings_name_the_subject():
    documents = roles("reader", "chat", to=[Subject("ServiceAccount", "bot", "ci")])
    bindings = [d for d in documents if d["kind"].endswith("Binding")]
    assert [
        (d["kind"], d["metadata"].get("namespace"), d["roleRef"]["name"]) for d in bindings
    ] == [
        ("RoleBinding", "chat", "mpctl-reader"),
        ("ClusterRoleBinding", None, "mpctl-reader-chat"),
        ("RoleBinding", "kserve", "mpctl-reader-chat"),
    ]
    assert {str(d["subjects"]) for d in bindings} == {
        str([{"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}])
    }
    for document in documents:
        require_name(document["metadata"]["name"], "--to")
    assert list(yaml.safe_load_all(to_yaml(documents))) == list(documents)


def objects_of(*documents):
    """What each object of kubectl apply holds after all of these: the last one wins."""
    return {
        (d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]): d for d in documents
    }


ANN, BOB = (Subject("User", name) for name in ("ann", "bob"))
VARIANTS = (
    *(
        {},
        {"without": ["load-jobs"]},
        {"without": ["all-pods"]},
        {"allow": ["purge"]},
        {"allow": ["deployments"]},
    ),
    {"secrets": ["key"]},
)


@given(
    st.permutations(
        list(itertools.product((ANN, BOB), ("reader", "operator"), range(len(VARIANTS))))
    )
)
def test_no_command_takes_rights_that_another_gave(order):
    documents = [d for to, role, i in order for d in roles(role, "chat", to=[to], **VARIANTS[i])]
    applied = objects_of(*documents)
    assert all(applied[key] == document for document in documents for key in objects_of(document))
    given_to = {d["subjects"][0]["name"] for d in applied.values() if d["kind"] == "RoleBinding"}
    assert given_to == {"ann", "bob"}


def test_subjects_that_look_alike_have_bindings_of_their_own():
    alike = [
        ("User", "a.b"),
        ("User", "a-b"),
        ("User", "A-b"),
        ("Group", "a-b"),
        ("User", "a-b" * 60),
        ("User", "é"),
    ]
    subjects = [
        *(Subject(*pair) for pair in alike),
        *(Subject("ServiceAccount", "a-b", n) for n in ("x", "y")),
    ]
    assert len({subject.slug for subject in subjects}) == len(subjects)
    bindings = [
        d
        for d in roles("operator", None, to=[*subjects, *subjects])
        if d["kind"].endswith("Binding")
    ]
    assert len(bindings) == len(subjects)
    labels = {binding["metadata"]["labels"]["mpctl.dev/subject"] for binding in bindings}
    assert len(labels) == len(subjects)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", label) for label in labels)


def test_the_watch_and_an_operator_keep_their_rights_in_every_order():
    operator = roles("operator", "chat", to=[ANN])
    watches = [
        objects(WatchInstallRequest("chat", "mpctl:1"), policy)
        for policy in ("", "fall_back: true\n")
    ]
    for watch in watches:
        assert not objects_of(*operator).keys() & objects_of(*watch).keys()


def test_roles_of_two_namespaces_do_not_overwrite_each_other():
    def places(namespace):
        actual_roles = roles("operator", namespace, to=[Subject("User", "ann")])
        return {
            (d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in actual_roles
        }

    assert not places("chat") & places("code")


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("user:ann@example.com", Subject("User", "ann@example.com")),
        ("group:system:authenticated", Subject("Group", "system:authenticated")),
        ("serviceaccount:ci/bot", Subject("ServiceAccount", "bot", "ci")),
    ],
)
def test_subjects(text, subject):
    assert subject_of(text) == subject


@pytest.mark.parametrize(
    "text", ["", "ann", "user:", "team:ml", "serviceaccount:bot", "serviceaccount:/bot"]
)
def test_subjects_that_are_none(text):
    with pytest.raises(InputError) as error:
        subject_of(text)
    assert error.value.field == "--to"
    assert error.value.hint


@given(st.integers(0, len(TABLE) - 1))
def test_the_order_of_the_table_does_not_change_the_roles(cut):
    rows = (*TABLE[cut:], *TABLE[:cut])
    assert rules_of(rows) == rules_of(rows[::-1]) == rules_of(TABLE)


@given(st.sampled_from(TABLE), st.booleans(), st.booleans(), st.booleans())
def test_what_a_rule_covers(row, any_verb, any_group, any_resource):
    rule = {
        "verbs": ["*"] if any_verb else [row.verb],
        "apiGroups": ["*"] if any_group else [row.kind.group],
        "resources": ["*"] if any_resource else [row.resource],
    }
    assert covers(rule, row)
    assert not covers({**rule, "resourceNames": ["one"]}, row)
    assert covers({**rule, "resourceNames": ["one"]}, replace(row, name="one"))
    assert not covers({**rule, "verbs": ["bind"]}, row)
    assert not covers({**rule, "resources": ["else"]}, row)
    assert not covers({**rule, "apiGroups": ["else"]}, row)


PATHS = {
    ("GET", ""): "list",
    ("GET", "one"): "get",
    ("POST", ""): "create",
    ("PUT", "one"): "update",
    ("PATCH", "one"): "patch",
    ("DELETE", "one"): "delete",
}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.call} {row.scope}")
def test_requests_are_read_as_the_authoriser_reads_them(row: CallRow):
    watches = row.verb == "watch"
    method, name = next(
        key for key, verb in PATHS.items() if verb == ("list" if watches else row.verb)
    )
    if row.subresource:
        method, name = ("POST" if row.verb == "create" else "GET"), "one"
    path = row.kind.path("chat", name or None, row.subresource or None)
    request = request_of(method, path + ("?watch=1" if watches else "?limit=500"))
    assert (request.verb, request.group, request.resource) == row.key
    assert request.listed


@pytest.mark.parametrize(
    ("method", "url", "listed"),
    [
        ("GET", "/version", True),
        ("GET", "/apis", True),
        ("GET", "/api/v1/namespaces", False),
        ("GET", "/api/v1/namespaces/kube-system", True),
        ("GET", "/api/v1/secrets", False),
        ("GET", "/api/v1/namespaces/chat/secrets/key", True),
        ("GET", "/api/v1/namespaces/chat/pods?watch=true", False),
        ("DELETE", "/apis/serving.kserve.io/v1beta1/namespaces/chat/inferenceservices", False),
        (
            "PATCH",
            "/apis/serving.kserve.io/v1beta1/namespaces/chat/inferenceservices/a/status",
            False,
        ),
        ("POST", FREE[0].path(), True),
    ],
)
def test_requests_outside_the_table(method, url, listed):
    assert request_of(method, url).listed is listed


def test_without_the_load_job_no_right_on_jobs_is_granted():
    resources = {d[4] for d in granted(roles("operator", "chat", without=["load-jobs"]))}
    assert "jobs" not in resources
    assert granted(roles("operator", "chat")) - granted(
        roles("operator", "chat", without=["load-jobs"])
    ) == {("Role", "chat", verb, "batch", "jobs", ()) for verb in ("list", "create", "delete")}


def test_the_pods_of_all_namespaces_are_optional():
    lost = granted(roles("operator", "chat")) - granted(
        roles("operator", "chat", without=["all-pods"])
    )
    assert lost == {("ClusterRole", None, "list", "", "pods", ())}


def policies(namespace, *to, allowed=()):
    request = RbacRequest(
        namespace=namespace, everywhere=namespace is None, bind_to=to, admission_policy=True
    )
    documents = make_roles(replace(request, allowed=allowed))
    return [d for d in documents if d["kind"].startswith("ValidatingAdmissionPolicy")]


def test_admission_policies_name_their_subject_and_their_namespace():
    to = ('user:an"n', "group:ml", "serviceaccount:ci/bot")
    documents = policies("chat", *to)
    limits, bindings = documents[::2], documents[1::2]
    conditions = [p["spec"]["matchConditions"][0]["expression"] for p in limits[::3]]
    assert conditions == [
        'request.userInfo.username == "an\\"n"',
        'has(request.userInfo.groups) && "ml" in request.userInfo.groups',
        'request.userInfo.username == "system:serviceaccount:ci:bot"',
    ]
    for policy, binding in zip(limits, bindings, strict=True):
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"] == {
            "kubernetes.io/metadata.name": "chat"
        }
    assert "matchResources" not in policies(None, *to)[1]["spec"]


def test_a_second_command_lifts_no_limit_of_the_first():
    first, second = (objects_of(*policies("chat", f"user:{name}")) for name in ("ann", "bob"))
    assert len(first) == len(second) == 6
    assert not first.keys() & second.keys()


def test_what_the_serving_pod_adds_is_allowed_by_name():
    def rules(*allowed):
        _, _, jobs, *_ = policies("chat", "user:ann", allowed=allowed)
        return " ".join(v["expression"] for v in jobs["spec"]["validations"])

    allowed = rules(
        "toleration:dedicated", "pull-secret:ours", "runtime-class:nvidia", "scheduler:kai"
    )
    for name in ("dedicated", "ours", "nvidia", "kai"):
        assert f'"{name}"' in allowed
        assert f'"{name}"' not in rules()
    with pytest.raises(InputError, match="'node:one' is not a right"):
        rules("node:one")
