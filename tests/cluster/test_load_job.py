"""The load as a Job of the engine's own image, beside the pods it measures, with the real Job controller."""

import gzip
import json

import yaml

from .objects import ANY_SPEED, CONTAINERS

FEW = ("--requests", "4", "--repeats", "1", "--max-tokens", "16")
STEADY = {"token_s": 0.02}
KEY = "sk-only-for-the-engine"


def with_key():
    """The engine takes its key from a Secret."""
    service = yaml.safe_load(CONTAINERS)
    (container,) = service["spec"]["predictor"]["containers"]
    container["env"] = [
        {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "key"}}}
    ]
    return service


def load_objects(namespace):
    """Names of the objects of load Jobs."""
    chosen = "mpctl.dev/part=load"
    listings = [
        namespace.client.list(kind, labels=chosen) for kind in ("jobs", "configmaps", "pods")
    ]
    return [record["metadata"]["name"] for listed in listings for record in listed]


def test_a_job_of_the_engines_image_sends_the_load_and_is_removed(cluster, namespace, mpctl):
    pods = {}
    cluster.pods.rule(lambda pod: pods.update({pod["metadata"]["uid"]: pod}) or {"script": STEADY})
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key"},
        "stringData": {"key": KEY},
    }
    namespace.client.apply(secret)
    namespace.deploy(with_key())
    done = mpctl("bench", *FEW)
    assert "the load client" in done.stderr
    (pod,) = (p for p in pods.values() if p["metadata"]["labels"].get("mpctl.dev/part") == "load")
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "vllm/vllm-openai:v0.32.0"
    assert "resourceClaims" not in pod["spec"] and "claims" not in container["resources"]
    assert KEY not in json.dumps(pod)
    namespace.client.wait("nothing of the Job is left", lambda: not load_objects(namespace))
    assert namespace.jobs_made() == 1


def test_no_measured_block_is_sent_again_after_a_kill(cluster, namespace, mpctl, tmp_path):
    """Their records died with the command. The pod answers all of them again; only warm-ups are sent again."""
    cluster.pods.rule(lambda pod: {"script": STEADY})
    namespace.deploy(CONTAINERS)
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    few = ("--requests", "4", "--repeats", "4", "--max-tokens", "16", "--policy", str(policy))
    killed = mpctl(
        "rollout", "--spec", "ngram", *few, code=-9, kill_after=7, killer="killed_sending"
    )
    measured = sent(killed.stdout)
    (pod,) = namespace.client.list("pods", labels="mpctl.dev/part=load")
    log = cluster.pods.named(namespace.name, pod["metadata"]["name"]).log("load")
    before = sent(log.read_text())
    assert [before.count(line) for line in measured] == [1] * 7
    resumed = mpctl("resume").stderr
    assert "promoted: service" in resumed
    assert "sent again" not in resumed
    after = sent(log.read_text())
    assert [after.count(line) for line in measured] == [1] * 7
    assert len(after) > len(before)  # the same pod went on
    namespace.client.wait("nothing of the Job is left", lambda: not load_objects(namespace))


def sent(text):
    """Lines with the name of a block, which contains the engine's address."""
    return [line for line in text.splitlines() if line.startswith("block ")]


PREPARED = {
    "lifecycle": {"postStart": {"exec": {"command": ["true"]}}},
    "envFrom": [{"secretRef": {"name": "hers"}}],
}


def test_a_prepared_job_gets_nothing_and_is_deleted(cluster, namespace, mpctl, tmp_path):
    """It differs from the Job of a killed command by fields that the API server itself has no default for."""
    cluster.pods.rule(lambda pod: {"script": STEADY})
    namespace.deploy(CONTAINERS)
    namespace.client.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hers"}})
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    few = ("--requests", "4", "--repeats", "4", "--max-tokens", "16", "--policy", str(policy))
    mpctl("rollout", "--spec", "ngram", *few, code=-9, kill_after=2, killer="killed_sending")
    (job,) = namespace.client.list("jobs", labels="mpctl.dev/part=load")
    namespace.client.delete("jobs", job["metadata"]["name"])
    namespace.client.wait(
        "its pod is gone", lambda: not namespace.client.list("pods", labels="mpctl.dev/part=load")
    )
    theirs = {"apiVersion": "batch/v1", "kind": "Job", "spec": job["spec"]}
    theirs["metadata"] = {"name": "prepared", "labels": job["metadata"]["labels"]}
    theirs["spec"].pop("selector")
    template = theirs["spec"]["template"]
    template["metadata"]["labels"] = dict(job["metadata"]["labels"])
    template["spec"]["containers"][0] |= PREPARED
    namespace.client.apply(theirs)

    def ready():
        pods = namespace.client.list("pods", labels="job-name=prepared")
        running = [
            pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"
        ]
        return cluster.pods.named(namespace.name, running[0]).log("load") if running else None

    log = namespace.client.wait("the prepared pod runs", ready)
    assert "promoted: service" in mpctl("resume").stderr
    assert not sent(log.read_text())
    namespace.client.wait("nothing of a Job is left", lambda: not load_objects(namespace))


def test_a_deleted_pod_invalidates_its_block_which_is_sent_again(
    cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(
        lambda pod: {"script": {"token_s": 0.2}}
    )  # long blocks, to be cut off in the middle
    namespace.deploy(CONTAINERS)
    run = tmp_path / "run.json.gz"
    some = ("--requests", "4", "--repeats", "1", "--max-tokens", "16", "--concurrency", "2")
    bench = mpctl.start("bench", *some, "--run", str(run))

    def pod_that_sends():
        pods = namespace.client.list("pods", labels="mpctl.dev/part=load")
        names = [pod["metadata"]["name"] for pod in pods]
        log = cluster.pods.named(namespace.name, names[0]).log("load") if names else None
        lines = sent(log.read_text()) if log and log.exists() else []
        measured = [
            line for line in lines if "4 requests to http://100." in line
        ]  # before it is the calibration
        return names[0] if measured else None

    namespace.client.delete("pods", namespace.client.wait("the pod sends", pod_that_sends))
    _, stderr = bench.communicate(timeout=300)
    assert bench.returncode == 0, stderr
    assert "the block is invalid and is sent again" in stderr
    assert namespace.jobs_made() == 2
    blocks = json.loads(gzip.decompress(run.read_bytes()))["blocks"]
    assert [len(block["samples"]) for block in blocks] == [4]
    assert all(not sample[4] for block in blocks for sample in block["samples"])
    namespace.client.wait("nothing of the Job is left", lambda: not load_objects(namespace))


def test_an_image_that_cannot_be_pulled_is_named_and_the_service_is_unchanged(
    cluster, namespace, mpctl
):
    is_load = lambda pod: pod["metadata"]["labels"].get("mpctl.dev/part") == "load"  # noqa: E731
    cluster.pods.rule(lambda pod: {"pull_fails": True} if is_load(pod) else {"script": STEADY})
    namespace.deploy(CONTAINERS)
    before = namespace.client.get("isvc", "demo")["spec"]
    done = mpctl("rollout", "--spec", "ngram", *FEW, code=7)
    assert "cannot send the load: pod" in done.stderr
    assert 'failed to pull image "vllm/vllm-openai:v0.32.0": not found' in done.stderr
    assert "MPCTL_LOAD=local" in done.stderr
    assert namespace.client.get("isvc", "demo")["spec"] == before
    assert namespace.client.find("isvc", "demo-candidate") is None
    namespace.client.wait("nothing of the Job is left", lambda: not load_objects(namespace))
