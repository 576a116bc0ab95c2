"""Methods x KServe releases x staging modes: what comes out is taken by that release's own definition and rules."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kserve_rules import problems

from mpctl.errors import InputError
from mpctl.manifest import foreign_changes, load
from mpctl.manifest.draft_storage import without_draft
from mpctl.methods import METHODS, build
from mpctl.staging.modes import DraftSource, StagingFacts
from mpctl.staging.planner import MODES, plan_staging

CRDS = Path(__file__).parents[2] / "data" / "crds"
RELEASES = {"0.19": "v0.19.0", "0.20": "v0.20.0"}
HEAD = (
    "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: chat, namespace: n}\n"
    "spec:\n  predictor:\n"
)
MODEL = "    model:\n      modelFormat: {name: vLLM}\n      runtime: kserve-vllmserver\n"
TARGETS = {
    "hf": HEAD + MODEL + "      storageUri: hf://Qwen/Qwen3-8B\n",
    "uris": HEAD
    + "    storageUris:\n    - uri: hf://Qwen/Qwen3-8B\n      mountPath: /mnt/models\n"
    + MODEL,
    "pvc": HEAD
    + MODEL
    + "      storageUri: pvc://models\n      args: [--model=/mnt/models/qwen]\n",
    "pvc-folder": HEAD + MODEL + "      storageUri: pvc://models/qwen\n",
    "oci": HEAD + MODEL + "      storageUri: oci://registry.example/qwen:1\n",
    "none": HEAD
    + "    containers:\n    - name: kserve-container\n      image: vllm/vllm-openai:v0.32.0\n"
    "      args: [--model=Qwen/Qwen3-8B]\n",
}
EVERYTHING = {"claim": "models", "shared": True, "registry": "registry.example/models"}


@cache
def validator(release: str) -> Any:
    """The InferenceService of a release as strict decoding takes it: no unknown field."""
    body = json.loads(
        gzip.decompress(
            (CRDS / f"kserve-{RELEASES[release]}-inferenceservices.json.gz").read_bytes()
        )
    )
    version = next(one for one in body["spec"]["versions"] if one["name"] == "v1beta1")
    return jsonschema.Draft202012Validator(
        closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    )


def closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def accepted(text: str, release: str) -> None:
    body = yaml.safe_load(text)
    assert [error.message for error in validator(release).iter_errors(body["spec"])] == []
    assert problems(body, release) == ()


def test_each_supported_release_knows_the_list_of_artifacts():
    for release in RELEASES:
        assert "storageUris" in validator(release).schema["properties"]["predictor"]["properties"]


def impossible(mode: str, release: str, target: str) -> str | None:
    """Why this mode cannot be here, as facts of KServe say it; None when it can."""
    if mode in ("storageUris", "oci") and target == "pvc-folder":
        return "root is mounted"
    if mode == "storageUris" and target == "oci" and release != "0.20":
        return "leaves other entries out"
    # one image alone is mounted since 0.19, when nothing else is listed
    return "0.20" if mode == "oci" and release != "0.20" and target != "none" else None


def assert_left(service, plan, left):
    """The draft is gone and the target is served as before; the bytes differ where ``storageUri`` moved alone."""
    assert left.storage == service.storage
    assert "storageUri:" in service.text or left.text == service.text


WITH_WEIGHTS = [name for name, method in METHODS.items() if method.loads_weights]
WITHOUT = [name for name, method in METHODS.items() if not method.loads_weights]


@pytest.mark.parametrize(
    ("release", "mode", "target"), [*itertools.product(RELEASES, MODES, TARGETS)]
)
def test_every_method_by_every_mode_on_every_release(release, mode, target):
    text = TARGETS[target]
    service = load(text)[0]
    cluster = StagingFacts(kserve=release, **EVERYTHING)
    draft = DraftSource("/opt/draft" if mode == "present" else "org/draft", size_gib=2.0)
    why = impossible(mode, release, target)
    if why is not None:
        with pytest.raises(InputError, match=mode) as caught:
            plan_staging(service, draft, cluster, mode=mode)
        assert why in caught.value.message
        return
    plan = plan_staging(service, draft, cluster, mode=mode)
    assert plan.mode == mode
    for name in WITH_WEIGHTS:
        spec, _ = build(name, draft=plan.path)
        rolled = plan.service.with_speculation(spec.config())
        assert json.dumps(plan.path)[1:-1] in rolled.text
        assert foreign_changes(text, rolled.text) == foreign_changes(rolled.text, text) == ()
        accepted(rolled.text, release)
        for left in (
            without_draft(rolled.with_speculation(None)),
            without_draft(rolled).with_speculation(None),
        ):
            assert_left(service, plan, left)
    assert plan.removes
    assert plan.leaves


@pytest.mark.parametrize(("release", "target"), [*itertools.product(RELEASES, TARGETS)])
def test_methods_without_weights_change_no_storage(release, target):
    service = load(TARGETS[target])[0]
    for name in WITHOUT:
        rolled = service.with_speculation(build(name)[0].config())
        accepted(rolled.text, release)
        assert rolled.storage == service.storage
        assert rolled.with_speculation(None).text == TARGETS[target]


@pytest.mark.parametrize(
    ("target", "cluster", "mode", "says"),
    [
        ("hf", {"kserve": "0.19"}, "storageUris", "beside it"),
        ("hf", {"kserve": "0.18.2"}, "engine", "no other mode"),
        ("hf", {}, "engine", "no other mode"),
        ("hf", {"kserve": "0.15", "claim": "models"}, "pvc", "once"),
        ("hf", {"kserve": "0.20", "node_disk_gib": 10.0, "claim": "models"}, "pvc", "once"),
        ("hf", {"kserve": "0.20", "air_gapped": True, "claim": "models"}, "pvc", "air-gapped"),
        ("hf", {"kserve": "0.20", "air_gapped": True, "registry": "r/m"}, "oci", "air-gapped"),
        ("pvc", {"kserve": "0.15"}, "pvc", "claim models"),
        ("pvc-folder", {"kserve": "0.20"}, "pvc", "claim models"),
        ("oci", {"kserve": "0.20", "registry": "r/m"}, "oci", "is an image"),
        ("oci", {"kserve": "0.19", "claim": "models"}, "pvc", "once"),
        ("none", {"kserve": "0.20"}, "engine", "itself"),
        ("none", {"kserve": "0.20", "air_gapped": True, "claim": "models"}, "pvc", "air-gapped"),
    ],
)
def test_the_best_mode_and_why(target, cluster, mode, says):
    plan = plan_staging(
        load(TARGETS[target])[0],
        DraftSource("org/draft", size_gib=3.0, target_gib=16.0),
        StagingFacts(**cluster),
    )
    assert (plan.mode, says in plan.reason) == (mode, True), plan.reason
    assert {one.mode for one in plan.checks} == set(MODES)
    assert all(one.unavailable for one in plan.checks if one.mode == "present")


def test_when_no_mode_is_available_the_hint_says_what_to_give():
    with pytest.raises(InputError) as caught:
        plan_staging(
            load(TARGETS["hf"])[0],
            DraftSource("org/draft"),
            StagingFacts(kserve="0.20", air_gapped=True),
        )
    for mode in MODES:
        assert f"{mode}: " in caught.value.message
    assert "claim or registry in --staging FILE" in caught.value.hint


def test_a_target_of_a_data_connection_is_not_left_behind_by_the_list_of_artifacts():
    """KServe's controller adds the initializer for storageUris alone; the webhook then adds no second one."""
    keyed = load(HEAD + MODEL + "      storage: {key: s3, path: models/qwen}\n")[0]
    cluster = StagingFacts("0.20", **EVERYTHING)
    with pytest.raises(InputError, match=r"model\.storage excludes storageUris"):
        plan_staging(keyed, DraftSource("org/draft", size_gib=2.0), cluster, mode="storageUris")
    assert plan_staging(keyed, DraftSource("org/draft", size_gib=2.0), cluster).mode == "pvc"


def test_the_paths_that_engines_read():
    def path(target, mode, draft="org/Draft", **more):
        plan = plan_staging(
            load(TARGETS[target])[0],
            DraftSource(draft, "v1"),
            StagingFacts("0.20", **{**EVERYTHING, **more}),
            mode=mode,
        )
        return plan.path

    assert path("hf", "storageUris") == path("hf", "oci") == path("hf", "pvc") == "/mnt/mpctl/draft"
    assert path("pvc", "pvc") == "/mnt/models/org--draft@v1"
    assert path("pvc-folder", "pvc") == "/mnt/mpctl/draft"
    assert path("pvc", "pvc", claim="other") == "/mnt/mpctl/draft"
    assert path("oci", "oci", "oci+native://r.example/head:1") == "/mnt/mpctl/draft"
    assert path("hf", "engine") == "org/Draft"
    assert path("hf", "present", "/opt/draft") == "/opt/draft"
    assert path("hf", "present", "heads/own/eagle3") == "heads/own/eagle3"
    assert path("hf", "pvc", "pvc://heads/org/draft") == "/mnt/mpctl/draft"


def test_images_of_a_mirror_with_their_digest():
    service, mirror = load(TARGETS["hf"])[0], "r.example:5000/base:1@sha256:" + "ab" * 32
    cluster = StagingFacts(
        "0.20.0", claim="models", shared=True, registry="r.example/m", image=mirror
    )
    (job,) = plan_staging(
        service, DraftSource("org/Draft", "abc", 2.0), cluster, mode="pvc"
    ).documents
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == mirror
    assert (
        f"FROM {mirror}\n"
        in plan_staging(service, DraftSource("org/Draft", "abc"), cluster, mode="oci").recipe
    )


def test_what_is_prepared_and_what_stays():
    service = load(TARGETS["hf"])[0]
    cluster = StagingFacts(
        "0.20.0", claim="models", shared=True, registry="r.example/m", token_secret="hf"
    )
    by_claim = plan_staging(service, DraftSource("org/Draft", "abc", 2.0), cluster, mode="pvc")
    (job,) = by_claim.documents
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "kserve/storage-initializer:v0.20.0"
    assert pod["containers"][0]["args"] == ["hf://org/Draft:abc", "/models/org--draft@abc"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "models"}
    assert pod["containers"][0]["env"][-1]["valueFrom"]["secretKeyRef"] == {
        "name": "hf",
        "key": "HF_TOKEN",
    }
    assert "folder org--draft@abc" in by_claim.leaves[0]
    assert job["metadata"]["namespace"] == "n"
    again = plan_staging(service, DraftSource("org/Draft", "def", 2.0), cluster, mode="pvc")
    assert again.documents[0]["metadata"]["name"] != job["metadata"]["name"]
    gap = plan_staging(
        service,
        DraftSource("org/Draft"),
        StagingFacts("0.20", air_gapped=True, claim="models"),
        mode="pvc",
    )
    assert gap.documents == ()
    assert gap.steps[0].startswith("copy org/Draft")
    image = plan_staging(service, DraftSource("org/Draft", "abc"), cluster, mode="oci")
    assert image.image == "r.example/m/org/draft:abc"
    assert "COPY --chmod=755 draft/ /models/\n" in image.recipe
    assert (
        plan_staging(
            service, DraftSource("oci://r.example/head:1"), StagingFacts("0.20"), mode="oci"
        ).recipe
        is None
    )


def image_of(draft, revision=""):
    service = load(TARGETS["hf"])[0]
    return plan_staging(
        service,
        DraftSource(draft, revision),
        StagingFacts("0.20", registry="r.example"),
        mode="oci",
    )


def test_images_differ_with_draft_and_revision_and_have_valid_names():
    names = ("org/Draft", "s3://bucket/a b#", "org/Other")
    plans = [*map(image_of, names), image_of("org/Draft", "v2"), image_of("org/Draft", "x" * 200)]
    assert len({plan.image for plan in plans}) == len(plans)
    for plan in plans:
        assert re.fullmatch(r"r\.example(/[a-z0-9._-]+)+:\w[\w.-]{0,127}", plan.image), plan.image


def test_a_recipe_pins_the_drafts_revision():
    assert (
        "hf download org/Draft --revision abc --local-dir draft\n"
        in image_of("org/Draft", "abc").recipe
    )
    assert "--revision" not in image_of("org/Draft").recipe
    assert "copy s3://b/t into the directory draft\n" in image_of("s3://b/t").recipe


def test_an_image_of_the_users_is_listed_as_it_is_named():
    plan = plan_staging(
        load(TARGETS["hf"])[0], DraftSource("oci+native://r.example/d:1"), StagingFacts("0.20")
    )
    assert (plan.mode, plan.recipe, plan.prepares) == ("oci", None, False)
    assert "uri: oci+native://r.example/d:1\n" in plan.service.text


@pytest.mark.parametrize("mode", ["storageUris", "pvc", "oci", "engine"])
def test_a_revision_in_the_name_is_the_revision(mode):
    service = load(TARGETS["hf"])[0]
    named, said = (
        plan_staging(service, draft, StagingFacts("0.20", **EVERYTHING), mode=mode)
        for draft in (DraftSource("hf://org/draft:abc"), DraftSource("hf://org/draft", "abc"))
    )
    assert named == said
    assert "abc" in "".join([named.service.text, named.path, *named.steps]) or mode == "engine"
    assert named.path.count(":") == 0
    assert not any("no revision is pinned" in one for one in named.warnings)


def test_a_copy_by_hand_is_prepared_first_and_a_claim_that_holds_the_draft_is_not():
    service = load(TARGETS["hf"])[0]
    gap = StagingFacts("0.20", air_gapped=True, claim="models")
    assert plan_staging(service, DraftSource("org/Draft"), gap).prepares
    assert not plan_staging(service, DraftSource("pvc://models/draft"), gap).prepares


def test_the_engine_downloads_and_what_would_be_better_is_said():
    def said(target, **cluster):
        plan = plan_staging(
            load(TARGETS[target])[0],
            DraftSource("org/draft"),
            StagingFacts(**cluster),
            mode="engine",
        )
        return any("kserve in --staging" in one for one in plan.warnings)

    assert said("hf")
    assert not said("hf", kserve="0.15")
    assert not said("none")  # its target comes the same mode


def test_a_target_mounted_far_from_ours_takes_another_mode():
    text = TARGETS["uris"].replace("/mnt/models", "/models/target")
    plan = plan_staging(
        load(text)[0], DraftSource("org/draft"), StagingFacts("0.20", claim="models")
    )
    assert plan.mode == "pvc"
    reason = next(one.unavailable for one in plan.checks if one.mode == "storageUris")
    assert "one directory above /models/target and /mnt/mpctl/draft" in reason


@pytest.mark.parametrize(
    ("target", "draft_gib", "target_gib", "fits"),
    [
        ("hf", 3.0, 16.0, False),
        ("hf", 3.0, None, True),  # not known, and said so
        ("hf", 30.0, None, False),
        ("oci", 3.0, 16.0, True),  # an image is not downloaded again
        ("none", 30.0, None, False),
    ],
)
def test_what_is_downloaded_at_every_start_fits_on_a_node(target, draft_gib, target_gib, fits):
    draft = DraftSource("org/draft", size_gib=draft_gib, target_gib=target_gib)
    plan = plan_staging(
        load(TARGETS[target])[0], draft, StagingFacts("0.20", node_disk_gib=18.0, claim="models")
    )
    obstacles = {one.mode: one.unavailable for one in plan.checks}
    for mode in ("storageUris", "engine"):
        assert (obstacles[mode] is None) is fits, obstacles[mode]
    if plan.mode == "storageUris" and target_gib is None:
        assert "not checked" in plan.warnings[0]


@pytest.mark.parametrize(
    ("kserve", "tag"),
    [
        ("registry.example.org:5000/kserve/kserve-controller:v0.19.0@sha256:ab", "v0.19.0"),
        ("0.15", "v0.15.0"),
        (None, "v0.20.0"),
    ],
)
def test_the_job_runs_the_initializer_of_the_release(kserve, tag):
    plan = plan_staging(
        load(TARGETS["hf"])[0],
        DraftSource("org/d"),
        StagingFacts(kserve, claim="models"),
        mode="pvc",
    )
    (container,) = plan.documents[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"kserve/storage-initializer:{tag}"


def test_a_claim_of_one_node_is_a_warning():
    service = load(TARGETS["pvc"])[0]
    assert (
        "may not start" in plan_staging(service, DraftSource("org/d"), StagingFacts()).warnings[0]
    )
    assert (
        "one node"
        in plan_staging(service, DraftSource("org/d"), StagingFacts(shared=False)).warnings[0]
    )


# Rows of the verdicts a running v0.20.0 gave (admission webhook and schema), and of its source: what breaks which rule.
OK = {"model": {"modelFormat": {"name": "vLLM"}}}


def uris(*pairs):
    return {
        **OK,
        "storageUris": [
            {"uri": uri, **({"mountPath": path} if path else {})} for uri, path in pairs
        ],
    }


VERDICTS = [
    ("0.20", uris(("hf://a/t", "/mnt/models/target"), ("hf://a/d", "/mnt/models/draft")), None),
    ("0.20", uris(("hf://a/t", None)), None),
    ("0.20", uris(("hf://a/t", "/other/x"), ("hf://a/d", "/mnt/models/draft")), "no-common-parent"),
    ("0.20", {**uris(("hf://a/t", None)), "model": {"storageUri": "hf://a/t"}}, "both-storages"),
    (
        "0.20",
        {**uris(("hf://a/d", None)), "model": {"storage": {"key": "s3", "path": "t"}}},
        "key-beside",
    ),
    ("0.20", uris(("pvc://x/folder", "/p")), "claim-sub-path"),
    ("0.20", uris(("pvc://x", "/Models_1")), "path-makes-no-name"),
    ("0.20", uris(("oci://r/t", "/mnt/target/model"), ("oci://r/d", "/mnt/draft/model")), None),
    (
        "0.20",
        uris(("oci://r/t", "/mnt/models/target"), ("oci://r/d", "/mnt/models/draft")),
        "image-parents",
    ),
    (
        "0.20",
        uris(("oci+native://r/t", "/mnt/models/target"), ("oci+native://r/d", "/mnt/models/draft")),
        None,
    ),
    ("0.20", uris(("oci+native://r/t", "/mnt/m"), ("oci+native://r/d", "/mnt/m")), "native-paths"),
    ("0.20", uris(*((f"oci://r/{i}", f"/mnt/{i}/m") for i in range(11))), "too-many-images"),
    ("0.19", uris(("oci://r/t", "/mnt/models")), None),
    ("0.19", uris(("oci://r/t", "/mnt/a/m"), ("oci://r/d", "/mnt/b/m")), "image-beside"),
    ("0.19", uris(("oci://r/t", "/mnt/a/m"), ("hf://a/d", "/mnt/b/m")), "image-beside"),
]


@pytest.mark.parametrize(("release", "predictor", "rule"), VERDICTS)
def test_the_rules_row_by_row(release, predictor, rule):
    rules = [
        one.rule
        for one in problems({"metadata": {"name": "s"}, "spec": {"predictor": predictor}}, release)
    ]
    assert rules == ([] if rule is None else [rule])


def test_a_canary_gets_no_artifacts():
    canary = {"spec": {"predictor": uris(("hf://a/t", None)), "canary": [{}]}}
    assert [one.rule for one in problems(canary, "0.20")] == ["canary-storage"]
    assert problems({"spec": {}}, "0.20") == ()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(TARGETS)),
    st.sampled_from(
        [
            "org/draft",
            "hf://org/d",
            "s3://b/d",
            "gs://b/d",
            "oci://r/d:1",
            "oci+native://r/d",
            "pvc://c/d",
            "/x",
        ]
    ),
    st.builds(
        StagingFacts,
        kserve=st.sampled_from([None, "0.15", "v0.16.0", "0.18", "0.19", "0.20"]),
        air_gapped=st.booleans(),
        node_disk_gib=st.sampled_from([None, 1.0, 500.0]),
        claim=st.sampled_from([None, "models", "other"]),
        shared=st.sampled_from([None, True, False]),
        registry=st.sampled_from([None, "r.example/m"]),
    ),
    st.sampled_from([None, *MODES]),
)
def test_any_plan_is_taken_and_taken_back_or_refused_with_a_hint(target, draft, cluster, mode):
    service = load(TARGETS[target])[0]
    try:
        plan = plan_staging(service, DraftSource(draft, size_gib=2.0), cluster, mode=mode)
    except InputError as error:
        assert error.hint
        return
    body = yaml.safe_load(plan.service.text)
    before = problems(yaml.safe_load(service.text), cluster.kserve or "")
    assert set(problems(body, cluster.kserve or "")) <= set(before)
    assert_left(service, plan, without_draft(plan.service))
    assert plan.path
    assert plan.reason


CACHE = (
    "---\napiVersion: serving.kserve.io/v1alpha1\nkind: LocalModelCache\nmetadata: {name: warm}\n"
    "spec: {sourceModelUri: hf://Qwen/Qwen3-8B, modelSize: 16Gi, nodeGroups: [gpu]}\n"
)
LABELLED = TARGETS["hf"].replace(
    "namespace: n}", "namespace: n, labels: {internal.serving.kserve.io/localmodel: warm}}"
)
SWITCHED_OFF = TARGETS["hf"].replace(
    "namespace: n}", "namespace: n, annotations: {serving.kserve.io/disable-localmodel: 'true'}}"
)


@pytest.mark.parametrize(
    ("text", "cached"),
    [
        (LABELLED, True),
        (TARGETS["hf"] + CACHE, True),
        (
            TARGETS["hf"]
            + CACHE.replace("kind: LocalModelCache", "kind: LocalModelNamespaceCache"),
            True,
        ),
        (TARGETS["hf"], False),
        (SWITCHED_OFF + CACHE, False),
        (TARGETS["hf"] + CACHE.replace("Qwen/Qwen3-8B", "Qwen/Qwen3"), False),
        (TARGETS["uris"] + CACHE, False),
    ],
)
def test_a_target_in_a_local_model_cache_is_not_moved_away_from_it(text, cached):
    service = load(text)[0]
    plan = plan_staging(
        service, DraftSource("hf://org/draft"), StagingFacts(kserve="0.20", **EVERYTHING)
    )
    reasons = {check.mode: check.unavailable or "" for check in plan.checks}
    assert ("holds the target for storageUri alone" in reasons["storageUris"]) == cached
    assert ("storageUri: hf://Qwen/Qwen3-8B" in plan.service.to_yaml()) == (
        cached or plan.mode == "pvc"
    )


def test_a_service_with_kserves_own_canary_gets_no_entry():
    canary = TARGETS["hf"].replace("spec:\n", "spec:\n  canary: [{name: next}]\n", 1)
    (service,) = load(canary)
    plan = plan_staging(service, DraftSource("org/d"), StagingFacts("0.20", **EVERYTHING))
    unavailable = {check.mode: check.unavailable for check in plan.checks}
    assert "spec.canary" in unavailable["storageUris"]
    assert "spec.canary" in unavailable["oci"]


def test_an_eleventh_image_is_none_of_the_modes():
    entries = "".join(f"\n    - {{uri: oci://r/{i}, mountPath: /mnt/{i}/m}}" for i in range(10))
    (service,) = load(TARGETS["uris"].replace("storageUris:", f"storageUris:{entries}", 1))
    with pytest.raises(InputError, match="at most 10 images"):
        plan_staging(service, DraftSource("oci://r/d:1"), StagingFacts("0.20"), mode="oci")
