"""What drafts, claims, registries and Secrets may be called."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_staging_choose import TARGETS

from mpctl.app.change.staging import read_staging
from mpctl.errors import InputError
from mpctl.manifest import load
from mpctl.staging.modes import DraftSource, StagingFacts
from mpctl.staging.planner import MODES, plan_staging
from mpctl.yaml_lines import document


def facts_of(text):
    return read_staging(document(text, "f.yaml"))


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
        load(TARGETS["pvc"])[0], DraftSource("pvc://models/d/"), StagingFacts("0.20")
    )
    assert plan.path == "/mnt/models/d"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("claim: ../x", "claim"),
        ("claim: Models", "claim"),
        ("token_secret: a b", "token_secret"),
        ("token_secret: hf_abcDEF", "token_secret"),
        ("image: r.example/a b", "image"),
        ("registry: https://r.example", "registry"),
        ("registry: r.example/m:1", "registry"),
        ("registry: r.example/../m", "registry"),
        ('kserve: "banana"', "kserve"),
    ],
)
def test_names_that_no_cluster_takes_are_refused(text, field):
    with pytest.raises(InputError, match="is not") as caught:
        facts_of(f"# facts\n{text}\n")
    assert (caught.value.file, caught.value.line, caught.value.field) == ("f.yaml", 2, field)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("claim: ''", "claim: '' is not the name of a PersistentVolumeClaim"),
        ('image: "r.example/a\\nUSER root"', "image: 'r.example/a\\nUSER root' is not an image"),
        ("kserve: 0.20", "kserve: expected text, got 0.2"),
        ("shared: perhaps", "shared: expected true or false, got 'perhaps'"),
        ("node_disk_gib: -5", "node_disk_gib: -5 is no size in GiB"),
        ("draft_size_gib: .nan", "draft_size_gib: nan is no size in GiB"),
        ("node_disk_gib: 80Gi", "node_disk_gib: '80Gi' is no size in GiB"),
        ("mode: pigeon", "mode: 'pigeon' is not one of present, "),
        ("clam: models", "clam: unknown field, did you mean claim?"),
    ],
)
def test_facts_of_another_kind_are_refused_with_their_line(text, message):
    with pytest.raises(InputError) as caught:
        facts_of(f"air_gapped: true\n{text}\n")
    assert f"f.yaml:2: {message}" in caught.value.message


def test_a_version_without_quotes_is_refused_with_a_hint():
    with pytest.raises(InputError) as caught:
        facts_of("kserve: 0.20")
    assert caught.value.hint == "put it into quotes"


@given(
    st.builds(
        StagingFacts,
        kserve=st.sampled_from([None, "0.20", "v0.19.0", "0.20.0-rc1"]),
        air_gapped=st.booleans(),
        node_disk_gib=st.none() | st.floats(min_value=0.01, max_value=1e6),
        claim=st.sampled_from([None, "models", "a.b-c"]),
        shared=st.none() | st.booleans(),
        registry=st.sampled_from(
            [None, "r", "localhost:5000", "r.example:5000/a/b-c", "r.example/m/"]
        ),
        token_secret=st.sampled_from([None, "hf-token"]),
        image=st.sampled_from([None, "r.example/busybox@sha256:ab"]),
        draft_size_gib=st.none() | st.floats(min_value=0.01, max_value=1e4),
        mode=st.sampled_from([None, *MODES]),
    )
)
def test_every_fact_is_read_from_its_field(facts):
    assert facts_of(json.dumps(asdict(facts))) == facts


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(InputError):
        facts_of(text)
