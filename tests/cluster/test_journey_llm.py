"""LLMInferenceServices with KServe's real manager, webhooks and presets: rolled out and rolled back exactly.

What counts is what the engine's process received: KServe's preset passes every argument through a shell's ``eval``.
"""

import signal
from pathlib import Path

import pytest

from mpctl.platform.kubernetes.access.calls import LLM
from mpctl.platform.kubernetes.service.manifest_text import text_of

from .fenced import unlocked
from .measurement import LOCAL
from .objects import ANY_SPEED, CLAIM, ledger_entries
from .roles import Granted
from .unmeasured import Unmeasured

CONFIG = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceServiceConfig
metadata: {name: ours}
spec:
  template:
    containers:
    - name: main
      env: [{name: TEAM, value: chat}]
"""
SERVICE = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata:
  name: chat
  labels: {team: chat}
spec:
  model: {uri: "hf://Qwen/Qwen3-8B", name: qwen}
  replicas: 1
  baseRefs: [{name: ours}]
  template:
    resourceClaims: [{name: gpu, resourceClaimTemplateName: one-l4}]
    containers:
    - name: main
      resources:
        requests: {cpu: "1", memory: 2Gi}
        claims: [{name: gpu, request: gpu}]
"""
QUICK = ("--requests", "4", "--repeats", "8", "--max-tokens", "16", *LOCAL)
NGRAM = ("--spec", "ngram")
STAGING = Path(__file__).parents[1] / "data" / "staging" / "engine.yaml"
EAGLE3 = ("--spec", "eagle3", "--staging", str(STAGING))
HEAD = "RedHatAI/Qwen3-8B-speculator.eagle3"


@pytest.fixture
def chat(llm_cluster, namespace):
    """A service of one pod that serves."""
    llm_cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    for text in (CLAIM, CONFIG, SERVICE):
        namespace.client.apply(text)
    namespace.client.wait("the engine is ready", lambda: namespace.settled("chat-kserve"))
    yield namespace
    for kind in ("llmisvc", "llminferenceserviceconfig"):
        for record in namespace.client.list(kind):
            namespace.client.delete(kind, record["metadata"]["name"])
    namespace.client.wait("the services are gone", lambda: not namespace.client.list("llmisvc"))


@pytest.fixture
def operator(cluster, namespace):
    granted = Granted(cluster, namespace.name)
    granted.apply()
    yield granted
    granted.remove()


def live(namespace):
    return text_of(namespace.client.get("llmisvc", "chat"))


def engine_uids(namespace):
    pods = namespace.client.list(
        "pods", labels="app.kubernetes.io/name=chat,kserve.io/component=workload"
    )
    return {p["metadata"]["uid"] for p in pods if "deletionTimestamp" not in p["metadata"]}


def received(namespace):
    """Arguments of the only engine's process, as the system has them: after the preset's shell."""
    selector = "app.kubernetes.io/name=chat,kserve.io/component=workload"
    pods = [
        p
        for p in namespace.client.list("pods", labels=selector)
        if "deletionTimestamp" not in p["metadata"]
    ]
    (pod,) = (namespace.cluster.pods.named(namespace.name, p["metadata"]["name"]) for p in pods)
    words = Path(f"/proc/{pod.units[0].process.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    return [word.replace(str(pod.folder), "") for word in words[words.index("serve") :]]


@pytest.mark.nightly
def test_whoever_takes_its_lease_replaces_no_pod(chat, mpctl):
    assert unlocked(chat, mpctl, "llmisvc", "chat") == []


def test_its_engines_are_restarted_with_the_arguments_they_had(chat, mpctl):
    before, arguments, old = live(chat), received(chat), engine_uids(chat)
    done = mpctl("restart", "chat")
    assert "restarted: service" in done.stderr
    chat.client.wait("the old pod is gone", lambda: not engine_uids(chat) & old)
    assert received(chat) == arguments
    mpctl("rollback", "chat", "--to-revision", "1")
    assert live(chat) == before


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(NGRAM, {"method": "ngram"}, id="ngram"),
        pytest.param(  # test_staged_rollout.py rolls out a head every day
            EAGLE3, {"method": "eagle3", "model": HEAD}, id="eagle3", marks=pytest.mark.nightly
        ),
    ],
)
def test_it_is_rolled_out_and_rolled_back_exactly(chat, operator, mpctl, tmp_path, spec, expected):
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    before, plain = live(chat), received(chat)
    mpctl = mpctl.as_user(operator.user)
    (status,) = mpctl.json("status")["items"]
    assert (status["metadata"]["name"], status["status"]["state"]) == ("chat", "Ready")

    done = mpctl("rollout", "chat", *spec, "--policy", str(policy), *QUICK)
    assert "promoted: service" in done.stderr
    own = [word for word in received(chat) if word not in plain]
    flags = dict(word.removeprefix("--speculative-config.").split("=", 1) for word in own)
    assert flags.items() >= expected.items()
    assert received(chat)[: len(plain)] == plain
    assert chat.client.find("llmisvc", "chat-candidate") is None
    configs = mpctl.json("history", "chat")["revisions"][0]["configs"]
    ours = chat.client.get("llminferenceserviceconfig", "ours")["metadata"]["generation"]
    assert f"UserRef {chat.name}/ours, generation {ours}" in configs
    assert any(
        text.startswith("Preset kserve/kserve-config-llm-template, generation ") for text in configs
    )

    mpctl("rollback", "chat")
    assert live(chat) == before
    assert received(chat) == plain
    assert {row.key for row in LLM} <= chat.cluster.proxy.rules()
    assert [op["ending"] for op in mpctl.json("history", "chat")["operations"]] == [
        "promoted",
        "rolled back",
    ]


@pytest.mark.nightly  # every kind is restored by the step that test_journey_rollout tries
def test_a_rejected_candidate_leaves_the_service_unchanged(chat, mpctl):
    chat.cluster.pods.rule(lambda pod: {"script": {"token_s": 0.05, "slow": 4}})
    before = live(chat)
    done = mpctl("rollout", "chat", *NGRAM, *QUICK, "--max-tokens", "8", code=5)
    assert "gate rejected the candidate" in done.stderr
    assert live(chat) == before
    assert chat.client.find("llmisvc", "chat-candidate") is None


def test_in_place_the_pods_roll_and_what_cannot_be_done_is_refused_with_the_reason(chat, mpctl):
    before, run = live(chat), Unmeasured(mpctl)
    refused = mpctl(
        "rollout", "chat", *NGRAM, "--strategy", "in-place", "--accept-downtime", *QUICK, code=9
    )
    assert "no update strategy" in refused.stderr
    refused = mpctl("rollout", "chat", *NGRAM, "--traffic-steps", "10", *QUICK, code=9)
    assert "HTTPRoute" in refused.stderr
    run("rollout", "chat", *NGRAM, "--strategy", "in-place")
    assert any(word.startswith("--speculative-config.method=ngram") for word in received(chat))
    run("rollback", "chat")
    assert live(chat) == before


def setting_by_role(namespace):
    """The words of speculation that the engines of both roles received, by role."""
    settings = {}
    for role in ("decode", "prefill"):
        labels = f"app.kubernetes.io/name=chat,kserve.io/component=workload,llm-d.ai/role={role}"
        alive = [
            p
            for p in namespace.client.list("pods", labels=labels)
            if "deletionTimestamp" not in p["metadata"]
        ]
        (pod,) = (
            namespace.cluster.pods.named(namespace.name, p["metadata"]["name"]) for p in alive
        )
        lines = [
            Path(f"/proc/{unit.process.pid}/cmdline").read_bytes().decode().split("\0")
            for unit in pod.units
        ]
        (words,) = (line for line in lines if "serve" in line)
        settings[role] = [word for word in words if "speculative" in word]
    return settings


def test_prefill_and_decode_pods_get_a_head_together_and_lose_it_together(chat, mpctl):
    chat.client.delete(
        "llmisvc", "chat"
    )  # KServe adds no role to a running service: selectors cannot change
    chat.client.wait("no pod is left", lambda: not chat.client.list("pods"))
    chat.client.apply(f"{SERVICE}  prefill:\n    replicas: 1\n")
    for name in ("chat-kserve", "chat-kserve-prefill"):
        chat.client.wait(f"{name} is ready", lambda name=name: chat.settled(name))
    before, run = live(chat), Unmeasured(mpctl)
    run("rollout", "chat", *EAGLE3, "--strategy", "in-place")
    settings = setting_by_role(chat)
    assert settings["decode"] == settings["prefill"]
    assert "--speculative-config.method=eagle3" in settings["decode"]
    run("rollback", "chat")
    assert live(chat) == before
    assert setting_by_role(chat) == {"decode": [], "prefill": []}


@pytest.mark.nightly  # every kind takes the steps that test_faults_matrix kills
def test_killed_at_every_step_it_resumes_or_rolls_back(chat, mpctl):
    run, before = Unmeasured(mpctl), live(chat)
    run("rollout", "chat", *NGRAM)
    promoted = live(chat)
    run("rollback", "chat")
    appended = chat.client.list("controllerrevisions", labels="mpctl.dev/part=ledger")
    rollout = [entry for entry in ledger_entries(appended) if entry["operation"] == "rollout-1"]
    begun = [
        number
        for number, entry in enumerate(sorted(rollout, key=lambda e: e["seq"]), 1)
        if number % 2
    ]
    failures = []
    for number in begun:
        way_on = ("resume", "rollback")[number // 2 % 2]
        killed = run("rollout", "chat", *NGRAM, kill_after=number, code=None)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        done = run(way_on, "chat", code=None)
        wrong = "" if done.returncode == 0 else done.stderr[-600:]
        if live(chat) != (promoted if way_on == "resume" else before):
            wrong += "; the live object is another"
        if chat.client.find("llmisvc", "chat-candidate") is not None:
            wrong += "; a candidate is left"
        if wrong:
            failures.append(f"killed after entry {number}, {way_on}: {wrong}")
        if way_on == "resume":
            run("rollback", "chat")
    assert not failures, "\n".join(failures)
