"""Services, their pods and claims, as the doctor sees them."""

import pytest
from doctor_cluster import check, container, faults, meta, pod, the

FAULTS = {}
fault = faults(FAULTS)


@fault(("probe-tcp", "warn"))
def tcp_probe(o):
    container(o)["readinessProbe"] = {"tcpSocket": {"port": 8080}}


@fault(("requests-lost", "warn"))
def no_pre_stop(o):
    del container(o)["lifecycle"]


@fault(("requests-lost", "warn"))
def grace_of_kubernetes(o):
    del the(o, "deployments")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def workload(name, *, owner=None):
    """A Deployment with an engine that aborts what it serves, made by nobody or by a controller."""
    ready = {"httpGet": {"path": "/health", "port": 8000}}
    engine = {
        "name": "main",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["--model=m"],
        "readinessProbe": ready,
    }
    owners = [{"kind": owner, "name": "big", "controller": True}] if owner else []
    template = {"spec": {"containers": [engine]}}
    return {"metadata": meta(name, "chat", ownerReferences=owners), "spec": {"template": template}}


@fault(("requests-lost", "warn"))
def plain_deployment_that_aborts(o):
    o["deployments"].append(workload("plain"))


@fault(("requests-lost", "warn"))
def llm_inference_service_that_aborts(o):
    o["deployments"].append(workload("big-kserve", owner="LLMInferenceService"))


@fault(("requests-lost", "warn"))
def leader_worker_set_that_aborts(o):
    plain = workload("groups")
    template = {"leaderWorkerTemplate": {"workerTemplate": plain["spec"]["template"]}}
    o["leaderworkersets"] = [{"metadata": plain["metadata"], "spec": template}]


@fault(("no-disruption-budget", "warn"))
def replicas_that_one_drain_evicts(o):
    the(o, "deployments")["spec"]["replicas"] = 2
    other = {
        "metadata": meta("other", "chat"),
        "spec": {"selector": {"matchLabels": {"app": "other"}}},
    }
    o["poddisruptionbudgets"] = [other, {"metadata": meta("none", "chat"), "spec": {}}]


@fault(("requests-lost", "warn"), ("answers-cut", "warn"))
def route_of_a_user_to_the_service_of_a_plain_deployment(o):
    plain = workload("plain")
    plain["spec"]["template"]["metadata"] = {"labels": {"app": "plain"}}
    o["deployments"].append(plain)
    o["services"] = [{"metadata": meta("front", "chat"), "spec": {"selector": {"app": "plain"}}}]
    rule = {"backendRefs": [{"name": "front"}]}
    o["httproutes"] = [{"metadata": meta("users", "chat"), "spec": {"rules": [rule]}}]


@fault(("answers-cut", "warn"))
def route_of_kserve_with_its_own_timeout(o):
    rule = {"backendRefs": [{"name": "qwen-predictor"}], "timeouts": {"request": "60s"}}
    o["httproutes"] = [{"metadata": meta("qwen", "chat"), "spec": {"rules": [rule]}}]


@fault(("ready-but-stuck", "fail"))
def surge_pod_that_never_schedules(o):
    extra = pod("qwen-predictor-2")
    reason = "0/2 nodes are available: 2 cannot allocate all claims."
    extra["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": reason,
            }
        ],
    }
    o["pods"].append(extra)


@fault(("ready-but-stuck", "fail"))
def claim_template_that_is_gone(o):
    extra = pod("qwen-predictor-2")
    extra["spec"].pop("nodeName")
    extra["status"] = {"phase": "Pending"}
    o["pods"].append(extra)
    o["resourceclaimtemplates"] = []


@fault(("ready-but-stuck", "fail"))
def new_pod_crashes(o):
    extra = pod("qwen-predictor-2")
    extra["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    extra["status"]["containerStatuses"] = [
        {"name": "kserve-container", "restartCount": 4, "state": waiting}
    ]
    o["pods"].append(extra)


@fault(("not-ready", "fail"))
def deadline_exceeded(o):
    the(o, "inferenceservices")["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    the(o, "deployments")["status"]["conditions"] = [
        {
            "type": "Progressing",
            "status": "False",
            "reason": "ProgressDeadlineExceeded",
            "message": "has timed out",
        }
    ]


@fault(("surge-deadlock", "warn"))
def last_gpu_and_default_strategy(o):
    the(o, "deployments")["spec"]["strategy"]["rollingUpdate"] = {
        "maxSurge": "25%",
        "maxUnavailable": "25%",
    }
    taken = [
        {"driver": "gpu.nvidia.com", "pool": name, "device": "gpu-0"} for name in ("gpu-a", "gpu-b")
    ]
    o["resourceclaims"] = [
        {"metadata": meta("c", "chat"), "status": {"allocation": {"devices": {"results": taken}}}},
    ]


@fault(("cpu-image", "fail"))
def cpu_image_under_a_claim(o):
    container(o)["image"] = "vllm/vllm-openai-cpu:v0.11.0"


@fault(("gpu-asked-twice", "fail"))
def claim_and_limit(o):
    container(o)["resources"]["limits"]["nvidia.com/gpu"] = "1"


@fault(("claim-unknown", "fail"))
def claim_nobody_offers(o):
    container(o)["resources"]["claims"] = [{"name": "cards"}]


NGRAM = '{"method": "ngram", "num_speculative_tokens": 3}'


@fault(("known-bad-kb01", "fail"), ("known-bad", "warn"))
def ngram_on_a_hybrid_model(o):
    container(o)["args"] += ["--model=/mnt/models", f"--speculative-config={NGRAM}"]
    the(o, "inferenceservices")["spec"]["predictor"]["model"] = {
        "storageUri": "hf://Qwen/Qwen3.6-35B-A3B"
    }


def speculating(name, model, *, owner=None, release="0.28.0", **more):
    """A Deployment that speculates, finishes what it serves, and has every probe."""
    made = workload(name, owner=owner)
    pod = made["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 700
    pod["containers"][0] |= {
        "image": f"vllm/vllm-openai:v{release}",
        "args": [f"--model={model}", "--shutdown-timeout=600", "--speculative-config.method=ngram"],
        "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
        **more,
    }
    return made


@fault(("known-bad-kb01", "fail"), ("known-bad", "warn"))
def ngram_on_a_hybrid_model_in_a_deployment(o):
    o["deployments"].append(speculating("plain", "Qwen/Qwen3.5-9B"))


@fault(("known-bad-kb01", "fail"), ("known-bad", "warn"))
def ngram_on_a_hybrid_model_behind_a_start_script_of_kserve(o):
    script = ["/bin/bash", "-c", 'eval "vllm serve /mnt/models ${VLLM_ADDITIONAL_ARGS} $@"']
    o["deployments"].append(
        speculating("big", "Qwen/Qwen3.5-9B", owner="LLMInferenceService", command=script)
    )


@fault(("known-bad-kb01", "fail"), ("known-bad", "warn"))
def ngram_on_a_hybrid_model_in_a_vllm_runtime_that_has_no_place_for_a_hook(o):
    started = {"command": ["/opt/venv/bin/vllm", "serve"], "lifecycle": {}}
    o["deployments"].append(speculating("big", "Qwen/Qwen3.5-9B", owner="VLLMRuntime", **started))


@fault()
def ngram_on_a_hybrid_model_in_a_release_with_the_fix(o):
    o["deployments"].append(speculating("plain", "Qwen/Qwen3.5-9B", release="0.32.0"))


@fault()
def ngram_on_a_dense_model(o):
    o["deployments"].append(speculating("plain", "Qwen/Qwen3-8B"))


@fault(("native-canary", "warn"))
def native_canary(o):
    the(o, "inferenceservices")["spec"]["canary"] = [{"trafficPercent": 10}]


@fault(("canary-ignored", "warn"))
def percent_in_standard_mode(o):
    the(o, "inferenceservices")["spec"]["predictor"]["canaryTrafficPercent"] = 10


@fault(("stopped", "note"))
def stopped(o):
    the(o, "inferenceservices")["metadata"]["annotations"]["serving.kserve.io/stop"] = "true"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    check(*FAULTS[name])
