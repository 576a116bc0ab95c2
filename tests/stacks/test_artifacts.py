"""Claims, the three ways of staging, isolation: the documents a service needs."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from mpctl.errors import InputError
from mpctl.methods.preflight.drain import lost_requests, pod_end
from stacks.manifests import FOLDER, address, from_folders, render
from stacks.services import Service, inference_service
from stacks.services.isolation import service_policies
from stacks.services.objects import (
    claim_template,
    fetch_job,
    gibibytes,
    models_claim,
    require_kserve,
    storage_uris,
)
from stacks.settings import read_settings

TEXT = """
name: x
serving:
  services:
  - name: chat
    image: vllm/vllm-openai:v0.32.0
    staging: {staging}
    token_secret: hf-token
    selectors: ['device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0']
    target: {{uri: "{scheme}://org/target", revision: abc123, size_gib: 17}}
    draft: {{uri: "{scheme}://org/draft", size_gib: 2}}
"""


def service(staging: str = "storageUris", scheme: str = "hf") -> Service:
    text = TEXT.format(staging=staging, scheme=scheme)
    return read_settings(
        text.replace("serving:", "serving:\n  pod_security: baseline"), "env.yaml"
    ).services[0]


def test_claim_from_the_cel_selectors() -> None:
    actual_claim_template = claim_template(service(), "inference")
    assert (
        actual_claim_template["apiVersion"] == "resource.k8s.io/v1"
        and actual_claim_template["metadata"]["name"] == "chat-gpu"
    )
    request = actual_claim_template["spec"]["spec"]["devices"]["requests"][0]
    assert request["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [
            {
                "cel": {
                    "expression": 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'
                }
            }
        ],
    }


def test_storage_uris_of_the_three_ways() -> None:
    assert storage_uris(service()) == [
        {"uri": "hf://org/target:abc123", "mountPath": "/mnt/models/target"},
        {"uri": "hf://org/draft", "mountPath": "/mnt/models/draft"},
    ]
    assert storage_uris(service("pvc")) == [{"uri": "pvc://models", "mountPath": "/mnt/models"}]
    assert [u["uri"] for u in storage_uris(service("oci", "oci+native"))] == [
        "oci+native://org/target",
        "oci+native://org/draft",
    ]


@pytest.mark.parametrize(
    ("staging", "scheme"),
    [("storageUris", "hf"), ("pvc", "s3"), ("oci", "oci"), ("oci", "oci+native")],
)
def test_the_engine_is_told_paths_that_are_mounted(staging: str, scheme: str) -> None:
    """KServe ignores the path of pvc:// in storageUris and mounts the root of the volume."""
    wanted = service(staging, scheme)
    predictor = inference_service(wanted, "n")["spec"]["predictor"]
    mounts = [entry["mountPath"] for entry in predictor["storageUris"]]
    models = [
        arg.removeprefix("--model=")
        for arg in predictor["model"]["args"]
        if arg.startswith("--model=")
    ]
    assert models == [wanted.path(wanted.target)] and wanted.draft
    for path in (*models, wanted.path(wanted.draft)):
        assert any(path == mount or path.startswith(f"{mount}/") for mount in mounts)
    for entry in predictor["storageUris"]:
        assert not entry["uri"].startswith("pvc://") or "/" not in entry["uri"].removeprefix(
            "pvc://"
        )
    folders = fetch_job(wanted, "n", "i", shared=True)["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    if staging == "pvc":
        written = [f"/mnt/models/{argument.split('=')[1]}" for argument in folders]
        assert written == [wanted.path(wanted.target), wanted.path(wanted.draft)]


def test_no_mount_of_its_own_on_a_volume_and_no_folder_for_two_modelcars() -> None:
    text = TEXT.format(staging="pvc", scheme="hf").replace(
        "size_gib: 2}", "size_gib: 2, mount: /mnt/draft}"
    )
    with pytest.raises(InputError, match="whole volume is at /mnt/models") as caught:
        read_settings(text, "env.yaml")
    assert caught.value.field == "serving.services[0].draft.mount"
    text = TEXT.format(staging="oci", scheme="oci").replace(
        "serving:", "serving:\n  pod_security: baseline"
    )
    with pytest.raises(InputError, match="one Modelcar would hide the other"):
        read_settings(
            text.replace("size_gib: 2}", "size_gib: 2, mount: /mnt/target/draft}"), "env.yaml"
        )


def test_modelcars_do_not_fit_the_restricted_standard() -> None:
    with pytest.raises(InputError, match=r"do not fit serving\.pod_security: restricted") as caught:
        read_settings(TEXT.format(staging="oci", scheme="oci"), "env.yaml")
    assert (caught.value.field, caught.value.line) == ("serving.services[0].target.uri", 10)
    assert "oci+native://" in str(caught.value.hint) and "baseline" in str(caught.value.hint)
    assert (
        read_settings(TEXT.format(staging="oci", scheme="oci+native"), "env.yaml").pod_security
        == "restricted"
    )
    assert service("oci", "oci").staging == "oci"


def test_quantities_are_written_as_kubernetes_gives_them_back() -> None:
    assert [gibibytes(size) for size in (38, 1000, 1024, 1536, 2048, 1024 * 1024)] == [
        *("38Gi", "1000Gi", "1Ti", "1536Gi", "2Ti", "1Pi")
    ]


FLOORS = [
    ("storageUris", "hf", "v0.18.0", False),
    ("storageUris", "hf", "v0.19.0", True),
    ("oci", "oci", "v0.19.0", False),
    ("oci", "oci", "v0.20.0", True),
    ("oci", "oci+native", "v0.19.1", False),
    ("pvc", "s3", "v0.20.0", True),
]


@pytest.mark.parametrize(("staging", "scheme", "version", "allowed"), FLOORS)
def test_kserve_floors(staging: str, scheme: str, version: str, allowed: bool) -> None:
    wanted = service(staging, scheme)
    if allowed:
        require_kserve(wanted, version)
    else:
        with pytest.raises(InputError, match=r"need KServe 0\.(19|20)") as caught:
            require_kserve(wanted, version)
        assert caught.value.line == 6


def test_one_oci_entry_needs_the_older_release() -> None:
    require_kserve(replace(service("oci", "oci"), draft=None), "v0.19.0")


def test_the_job_fits_the_restricted_standard_and_reads_its_token_from_a_secret() -> None:
    pod = fetch_job(service("pvc"), "inference", "python:3", shared=True)["spec"]["template"][
        "spec"
    ]
    container = pod["containers"][0]
    assert (
        pod["securityContext"]["runAsNonRoot"]
        and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )
    assert container["securityContext"]["readOnlyRootFilesystem"] and container["securityContext"][
        "capabilities"
    ] == {"drop": ["ALL"]}
    assert {"name": "HF_TOKEN_FILE", "value": "/var/run/secrets/mpctl/HF_TOKEN"} in container["env"]
    assert (
        next(v for v in pod["volumes"] if v["name"] == "token")["secret"]["secretName"]
        == "hf-token"
    )
    assert container["args"] == [
        "hf://org/target@abc123=org--target@abc123",
        "hf://org/draft@main=org--draft@main",
    ]


def test_another_revision_is_another_job_and_another_folder() -> None:
    first = service("pvc")
    later = replace(first, target=replace(first.target, revision="def456"))
    names = {fetch_job(s, "n", "i", shared=True)["metadata"]["name"] for s in (first, later)}
    assert len(names) == 2 and first.target.folder != later.target.folder


def test_a_volume_of_one_node_is_filled_on_a_gpu_node() -> None:
    pod = fetch_job(service("pvc"), "n", "i", shared=False)["spec"]["template"]["spec"]
    assert (
        pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
        and pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    )
    assert models_claim((service("pvc"),), "n", "c", shared=False)["spec"]["accessModes"] == [
        "ReadWriteOnce"
    ]


def test_the_claim_has_room_for_the_next_revision() -> None:
    actual_models_claim = models_claim((service("pvc"), service()), "n", "c", shared=True)
    assert actual_models_claim["spec"]["resources"]["requests"][
        "storage"
    ] == "38Gi" and actual_models_claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_a_predictor_reaches_out_only_while_it_downloads_itself() -> None:
    spec = service_policies(service(), "n")[0]["spec"]
    assert spec["egress"] and spec["policyTypes"] == ["Ingress", "Egress"]
    spec = service_policies(service("pvc"), "n")[0]["spec"]
    assert "egress" not in spec and spec["policyTypes"] == ["Ingress"]


def test_what_the_monitor_scrapes_is_let_in_and_so_is_a_copy_that_is_only_measured() -> None:
    """A candidate that is scraped and not let in, or the other way round, fails every rollout."""
    monitors = [
        d
        for d in from_folders([FOLDER / "monitoring"], [service()], "n")
        if d["kind"] == "PodMonitor"
    ]
    assert len(monitors) == 1
    (scraped,) = monitors[0]["spec"]["selector"]["matchExpressions"]
    (entered,) = service_policies(service(), "n")[0]["spec"]["podSelector"]["matchExpressions"]
    assert scraped["values"] == ["chat", "chat-candidate"]
    assert entered == {**scraped, "values": [*scraped["values"], "chat-copy"]}


def test_our_objects_never_carry_the_label_that_kserve_cleans_up() -> None:
    for document in service_policies(service(), "n"):
        assert "serving.kserve.io/inferenceservice" not in document["metadata"]["labels"]


def test_the_kserve_object_is_external_standard_and_claims() -> None:
    actual_inference_service = inference_service(service(), "inference")
    assert actual_inference_service["metadata"]["annotations"] == {
        "serving.kserve.io/deploymentMode": "Standard",
        "serving.kserve.io/autoscalerClass": "external",
    }
    mounts = [
        m["mountPath"]
        for m in actual_inference_service["spec"]["predictor"]["model"]["volumeMounts"]
    ]
    assert "/dev/shm" not in mounts, "the built-in runtime mounts it, and a second one is refused"


def ended(**settings: Any) -> tuple[dict[str, Any], list[str]]:
    """The predictor of a service with these settings, and why its pods would lose requests when they stop."""
    text = TEXT.format(staging="storageUris", scheme="hf")
    image = settings.pop("image", "vllm/vllm-openai:v0.32.0")
    actual_text = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in settings.items())
    text = text.replace(
        "    image: vllm/vllm-openai:v0.32.0\n", f"    image: {image}\n{actual_text}"
    )
    (read,) = read_settings(text, "env.yaml").services
    predictor = inference_service(read, "n")["spec"]["predictor"]
    end = pod_end(predictor, predictor["model"])
    return predictor, list(lost_requests(end, image=read.image, answer_s=predictor["timeout"]))


def test_a_pod_that_stops_finishes_what_it_serves() -> None:
    predictor, gaps = ended()
    assert not gaps and predictor["timeout"] == 1800
    assert "--shutdown-timeout=1800" in predictor["model"]["args"]
    assert predictor["terminationGracePeriodSeconds"] == 15 + 1800 + 15
    predictor, gaps = ended(timeout_s=300)
    assert not gaps and predictor["terminationGracePeriodSeconds"] == 15 + 300 + 15
    _, gaps = ended(timeout_s=300, drain_s=120)
    assert gaps == ["an answer may take 300 s, a stopping pod has 120 s for it"], (
        "a chosen limit is said, not refused"
    )


def test_an_engine_of_unknown_or_older_version_gets_no_argument_that_it_may_not_know() -> None:
    for image in ("vllm/vllm-openai:v0.17.1", f"registry.test/engine@sha256:{'0' * 64}"):
        predictor, gaps = ended(image=image)
        hook = predictor["model"]["lifecycle"]["preStop"]["exec"]["command"]
        assert not any("shutdown" in word for word in predictor["model"]["args"])
        assert hook[0] == "python3" and "num_requests_" in hook[2] and not gaps


def test_a_drain_among_the_arguments_of_the_service_is_kept() -> None:
    predictor, gaps = ended(args=["--shutdown-timeout", "90"], timeout_s=60)
    assert [word for word in predictor["model"]["args"] if "shutdown" in word] == [
        "--shutdown-timeout"
    ]
    assert predictor["terminationGracePeriodSeconds"] == 15 + 90 + 15 and not gaps


def test_the_kserve_object_fits_kserves_own_definition() -> None:
    path = FOLDER.parent / "tests" / "data" / "crds" / "kserve-v0.20.0-inferenceservices.json.gz"
    definition = json.loads(gzip.decompress(path.read_bytes()))
    version = next(v for v in definition["spec"]["versions"] if v["name"] == "v1beta1")
    validator = jsonschema.Draft202012Validator(
        closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    )
    for staging, scheme in (("storageUris", "hf"), ("pvc", "s3"), ("oci", "oci+native")):
        errors = list(
            validator.iter_errors(inference_service(service(staging, scheme), "n")["spec"])
        )
        assert not errors, errors[0].message


def closed(schema: Any) -> Any:
    """The schema without unknown fields, as strict decoding has it, and with int-or-string as JSON Schema
    knows it.
    """
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


def test_yaml_of_others_is_rendered_once_per_object_and_its_own_dollars_stay(tmp_path: Any) -> None:
    text = (
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "${service}-x", namespace: "${namespace}"}\n'
        'data: {a: "$labels ${other}"}\n'
    )
    actual_text = render(text, service(), "inference", "x.yaml")
    assert (
        actual_text[0]["metadata"] == {"name": "chat-x", "namespace": "inference"}
        and actual_text[0]["data"]["a"] == "$labels ${other}"
    )
    assert address(actual_text[0]) == "configmap_inference_chat_x"
    assert from_folders([tmp_path / "absent"], [service()], "n") == []
    with pytest.raises(InputError, match="not a Kubernetes object"):
        render("a: 1", service(), "n", "x.yaml")


def test_dollars_of_others_reach_terraform_as_text(stack: Any) -> None:
    from infra.charts import Reference, literal

    assert literal({"a": ["${x} %{if}", Reference("${data.y}")]}) == {
        "a": ["$${x} %%{if}", "${data.y}"]
    }
