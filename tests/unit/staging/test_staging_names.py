"""What drafts, claims, registries and Secrets may be called."""

from __future__ import annotations

import pytest
from test_staging_choose import TARGETS

from mpctl.errors import InputError
from mpctl.manifest import load
from mpctl.staging.modes import DraftSource, StagingCluster
from mpctl.staging.planner import plan_staging


@pytest.mark.parametrize(
    ("draft", "revision", "says"),
    [
        ("pvc://", "", "the form is pvc://CLAIM"),
        ("pvc:///x", "", "the form is pvc://CLAIM"),
        ("pvc://Models/x", "", "the form is pvc://CLAIM"),
        ("pvc://models/a/../b", "", "without '..'"),
        ("pvc://models/..", "", "without '..'"),
        ("pvc://models//x", "", "the form is"),
        ("oci://", "", "the form is oci://"),
        ("oci://https://r.example/d", "", "the form is oci://"),
        ("oci+native://r d", "", "the form is oci+native://"),
        ("hf://Qwen", "", "the form is hf://"),
        ("hf://Qwen/a/b", "", "the form is hf://"),
        ("s3://", "", "the form is s3://"),
        ("gs:///x", "", "the form is gs://"),
        ("hf://org/draft:abc", "def", "name one of them"),
        ("hf://org/draft:abc", "main", "name one of them"),
        ("hf://org/draft:../x", "", "a branch, a tag or a commit"),
        ("org/draft", "../x", "a branch, a tag or a commit"),
    ],
)
def test_a_draft_that_cannot_be_is_refused(draft, revision, says):
    with pytest.raises(InputError) as caught:
        DraftSource(draft, revision)
    assert caught.value.field == "--draft"
    assert says in caught.value.hint


def test_what_drafts_may_be_named():
    assert DraftSource(" org/draft ").uri == "hf://org/draft"
    assert not DraftSource("org/draft ").is_path
    assert DraftSource("hf://org/draft:abc", "abc").fetched == "hf://org/draft:abc"
    assert DraftSource("org/draft").revision == "main"
    for name in (
        "pvc://a.b-c/x/..y/z/",
        "pvc://models",
        "oci://localhost:5000/a/b:v1@sha256:ab",
        "s3://b/a b",
        "/a b",
    ):
        assert DraftSource(name).name == name
    plan = plan_staging(
        load(TARGETS["pvc"])[0], DraftSource("pvc://models/d/"), StagingCluster("0.20")
    )
    assert plan.path == "/mnt/models/d"


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ({"claim": "../x"}, "--claim"),
        ({"claim": ""}, "--claim"),
        ({"claim": "Models"}, "--claim"),
        ({"token_secret": "a b"}, "--token-secret"),
        ({"staging_image": "r.example/a b"}, "--staging-image"),
        ({"staging_image": "r.example/a\nUSER root"}, "--staging-image"),
        ({"registry": "https://r.example"}, "--registry"),
        ({"registry": ""}, "--registry"),
        ({"registry": "r.example/m:1"}, "--registry"),
        ({"registry": "r.example/../m"}, "--registry"),
    ],
)
def test_names_that_no_cluster_takes_are_refused(more, option):
    with pytest.raises(InputError, match="cannot be used") as caught:
        StagingCluster(**more)
    assert caught.value.field == option
    assert caught.value.hint


def test_registries_with_a_port_and_a_path_are_taken():
    for registry in ("r", "localhost:5000", "r.example:5000/a/b-c", "r.example/m/"):
        assert StagingCluster(registry=registry).registry == registry
