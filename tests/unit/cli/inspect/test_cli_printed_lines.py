"""The lines that the preflight prints for a manifest work when they are pasted into it."""

import re

import pytest
import yaml

from mpctl.methods.preflight.drain import sleeping_hook, waiting_hook

OLD, NEW = "vllm/vllm-openai:v0.17.1", "vllm/vllm-openai:v0.32.0"
START = "exec vllm serve Qwen/Qwen3-8B --port 8100"


def workload(kind, container, name="vllm"):
    """A service of a kind with one engine."""
    engine = {"name": name, "image": OLD, **container}
    pod = {"containers": [engine]}
    api, spec = {
        "Deployment": ("apps/v1", {"template": {"spec": pod}}),
        "StatefulSet": ("apps/v1", {"template": {"spec": pod}}),
        "LeaderWorkerSet": (
            "leaderworkerset.x-k8s.io/v1",
            {"leaderWorkerTemplate": {"workerTemplate": {"spec": pod}}},
        ),
        "InferenceService": ("serving.kserve.io/v1beta1", {"predictor": pod}),
    }[kind]
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "chat"}, "spec": spec}


MODEL = "--model=Qwen/Qwen3-8B"
PORTS = {
    "a flag": ("Deployment", {"args": [MODEL, "--port=9000"]}, 9000),
    "a flag of two words": ("Deployment", {"args": [MODEL, "--port", "9001"]}, 9001),
    "vLLM's default": ("Deployment", {"args": [MODEL]}, 8000),
    "a declared port": ("Deployment", {"args": [MODEL], "ports": [{"containerPort": 8002}]}, 8002),
    "a flag, and another declared port": (
        "Deployment",
        {"args": [MODEL, "--port=9000"], "ports": [{"containerPort": 5557}]},
        9000,
    ),
    "a start script": ("StatefulSet", {"command": ["sh", "-c", START]}, 8100),
    "a variable": (
        "StatefulSet",
        {"args": [MODEL, "--port=$(PORT)"], "env": [{"name": "PORT", "value": "8101"}]},
        8101,
    ),
    "a group without a leader's template": ("LeaderWorkerSet", {"args": [MODEL]}, 8000),
}


@pytest.mark.parametrize("case", PORTS)
@pytest.mark.parametrize("command", ["preflight", "render"])
def test_the_printed_hook_asks_the_port_that_the_engine_listens_on(cli, tmp_path, case, command):
    kind, container, port = PORTS[case]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(workload(kind, container)))
    done = cli(command, "-f", str(tmp_path / "s.yaml"), "--spec", "ngram")
    assert re.findall(r"http://localhost:(\d+)/metrics", done.out + done.err) == [str(port)]


def test_the_printed_hook_of_an_inference_service_asks_the_port_of_kserve(cli, tmp_path):
    manifest = workload("InferenceService", {"args": [MODEL]}, "kserve-container")
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(manifest))
    done = cli("preflight", "-f", str(tmp_path / "s.yaml"), "--spec", "ngram")
    assert "http://localhost:8080/metrics" in done.out + done.err


@pytest.mark.parametrize("image", [OLD, NEW])
def test_the_pasted_lines_end_the_warning(cli, tmp_path, image):
    manifest = workload("Deployment", {"args": [MODEL], "image": image})
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(manifest))
    before = cli("preflight", "-f", str(file), "--spec", "ngram")
    text = before.out + before.err
    pod = manifest["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = int(
        re.search(r"terminationGracePeriodSeconds: (\d+)", text)[1]
    )
    hook = yaml.safe_load(
        re.search(r"lifecycle: (\{.*?\}\}\})", text, re.DOTALL)[1]
    )  # YAML joins wrapped lines
    assert hook == {"preStop": waiting_hook(8000) if image == OLD else sleeping_hook()}
    pod["containers"][0]["lifecycle"] = hook
    pod["containers"][0]["args"] += re.findall(r"--shutdown-timeout=\d+", text)
    file.write_text(yaml.safe_dump(manifest))
    after = cli("preflight", "-f", str(file), "--spec", "ngram")
    assert "requests-lost" in text and "requests-lost" not in after.out + after.err


PROBE = {"httpGet": {"path": "/health", "port": 8000}, "initialDelaySeconds": 120}


def test_the_preflight_warns_of_a_liveness_probe_that_kills_an_engine_that_starts(cli, tmp_path):
    manifest = workload("Deployment", {"args": [MODEL], "image": NEW, "livenessProbe": PROBE})
    file, pod = tmp_path / "s.yaml", manifest["spec"]["template"]["spec"]
    file.write_text(yaml.safe_dump(manifest))
    before = cli("preflight", "-f", str(file), "--spec", "ngram")
    text = " ".join((before.out + before.err).split())
    assert before.code == 0 and "no startupProbe, and its livenessProbe allows 150 s" in text
    pod["containers"][0]["startupProbe"] = yaml.safe_load(
        re.search(r"startupProbe: (\{.*?\}.*?\})", text)[1]
    )
    assert pod["containers"][0]["startupProbe"] == {
        "httpGet": {"path": "/health", "port": 8000},
        "periodSeconds": 10,
        "failureThreshold": 60,
    }
    file.write_text(yaml.safe_dump(manifest))
    after = cli("preflight", "-f", str(file), "--spec", "ngram")
    assert "liveness-before-start" not in after.out + after.err


def test_variables_of_a_template_are_no_numbers(cli, tmp_path):
    probe = {**PROBE, "initialDelaySeconds": "${DELAY}"}
    container = {"args": [MODEL], "ports": [{"containerPort": "${PORT}"}], "livenessProbe": probe}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(workload("Deployment", container)))
    done = cli("preflight", "-f", str(tmp_path / "s.yaml"), "--spec", "ngram")
    assert (
        done.code == 0 and "liveness-before-start" not in done.out and "localhost:8000" in done.out
    )


DYNAMO = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: chat}
spec:
  services:
    Frontend: {componentType: frontend, replicas: 1}
    Decode:
      componentType: worker
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.0
          command: [python3, -m, dynamo.vllm]
          args: [--model=Qwen/Qwen3-32B]
"""


def test_no_line_names_a_field_that_the_kind_does_not_have(cli, tmp_path):
    (tmp_path / "s.yaml").write_text(DYNAMO)
    done = cli("render", "-f", str(tmp_path / "s.yaml"), "--spec", "ngram")
    assert "ngram" in done.out and done.code == 0
    assert "spec.template" not in done.err and "terminationGracePeriodSeconds" not in done.err
