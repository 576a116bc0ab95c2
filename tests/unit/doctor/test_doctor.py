"""The doctor as a whole: a cluster in order, what cannot be looked at, objects with holes, and its page."""

import ast
import copy
from pathlib import Path

import pytest
from doctor_cluster import facts, healthy, said
from hypothesis import given
from hypothesis import strategies as st

import mpctl.doctor as plan_doctor
from mpctl.app.cluster.doctor import Diagnosis
from mpctl.cli.cluster import _lines
from mpctl.cli.printer import page
from mpctl.doctor import SEVERITIES, Denied, diagnose
from mpctl.methods.preflight import drain, probes


def test_a_cluster_in_order_has_nothing_against_it_and_says_what_was_checked():
    findings = diagnose(facts())
    assert said(findings) == set()
    assert {f.id for f in findings} >= {
        *("dra-api", "kserve-version", "kserve-webhook", "dra-driver", "dra-slices", "rights"),
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"denied": (Denied("update leases", ("rollout",), False),)}, ("rights", "warn")),
        ({"owners": {("chat", "qwen"): "Argo CD (models)"}}, ("owned", "note")),
        ({"unread": {"nodes": "forbidden"}}, ("unread", "note")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_faults_outside_the_objects(change, expected):
    assert expected in said(diagnose(facts(**change)))


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("resource.k8s.io", ("dra-api", "fail")),
        ("serving.kserve.io", ("kserve-missing", "fail")),
        ("gateway.networking.k8s.io", ("kserve-gateway", "fail")),
    ],
)
def test_groups_that_are_not_served(group, expected):
    groups = {name: versions for name, versions in facts().groups.items() if name != group}
    assert expected in said(diagnose(facts(groups=groups)))


def test_beta_dra_alone_is_not_enough():
    groups = {**facts().groups, "resource.k8s.io": ("v1beta1",)}
    finding = next(f for f in diagnose(facts(groups=groups)) if f.id == "dra-api")
    assert finding.severity == "fail"
    assert "v1beta1" in finding.cause


def test_a_claim_of_the_runtime_is_a_claim_of_its_service():
    objects, group = healthy(), "resource.k8s.io"
    groups = {name: versions for name, versions in facts().groups.items() if name != group}
    del objects["inferenceservices"][0]["spec"]["predictor"]["resourceClaims"]
    assert ("dra-api", "fail") in said(diagnose(facts(objects, groups=groups)))
    del objects["deployments"][0]["spec"]["template"]["spec"]["resourceClaims"]
    assert ("dra-api", "fail") not in said(diagnose(facts(objects, groups=groups)))


UNREADABLE = sorted(healthy())
REQUIRED = {
    "name",
    "metadata",
    "driver",
    "pool",
    "device",
}  # the API server refuses objects without them


@given(st.sets(st.sampled_from(UNREADABLE)))
def test_what_could_not_be_looked_at_is_said_and_never_taken_for_absent(hidden):
    actual_facts = facts(unread=dict.fromkeys(hidden, "forbidden"))
    findings = diagnose(actual_facts)
    assert {name for f in findings if f.id == "unread" for name in f.subject.split(", ")} == hidden
    assert not [f for f in findings if f.severity in ("fail", "warn")]


@given(st.data())
def test_any_hole_in_the_objects_is_survived(data):
    """API servers leave out what is empty: any key may be missing anywhere but those that a schema requires."""
    objects = healthy()
    resource = data.draw(st.sampled_from(UNREADABLE))
    here = objects[resource]
    while isinstance(here, dict | list) and here:
        keys = sorted(set(here) - REQUIRED) if isinstance(here, dict) else range(len(here))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()) or not isinstance(here[key], dict | list):
            if isinstance(here, dict):
                del here[key]
            else:
                here.pop(key)
            break
        here = here[key]
    findings = diagnose(facts(copy.deepcopy(objects)))
    assert [f.severity for f in findings] == sorted(
        (f.severity for f in findings), key=SEVERITIES.index
    )


def test_every_finding_is_documented_and_every_documented_one_exists():
    source = Path(plan_doctor.__file__).parent
    files = [*source.glob("*.py"), Path(drain.__file__), Path(probes.__file__)]
    calls = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    args = [
        n.args[0]
        for n in calls
        if isinstance(n, ast.Call) and getattr(n.func, "id", "") in ("Finding", "Symptom")
    ]
    words = [c.value for name in args for c in ast.walk(name) if isinstance(c, ast.Constant)]
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "doctor.md").read_text()
    table = page[page.index("## Findings") : page.index("## Checks and kinds")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    listed = {name.strip() for row in rows for name in row.split(",")}
    assert listed | {"unread"} == set(words)
    assert "`unread`" in page


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_no_finding_is_wider_than_the_terminal(columns):
    objects = healthy()
    objects["resourceslices"] = []
    diagnosis = Diagnosis("prod", "team", tuple(diagnose(facts(objects))))
    with page(columns):
        lines = "\n".join(_lines(diagnosis, wide=True)).splitlines()
    assert any("fix: " in line for line in lines)
    assert [line for line in lines if len(line) > columns and len(line.split()) > 1] == []
