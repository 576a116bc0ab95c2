"""Whether a pod that stops loses requests, and a route cuts answers: what is said, and the lines that mend it."""

import json
import re

import pytest
import yaml

from mpctl.methods.preflight.drain import (
    duration_s,
    lost_requests,
    path_findings,
    pod_end,
    route_limits,
    selected_services,
    waiting_hook,
)

NEW, OLD = "vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.17.1"
KIND = "InferenceService"
SLEEP = {"preStop": {"sleep": {"seconds": 15}}}


def gaps(pod=None, *, args=(), lifecycle=None, image=NEW, answer_s=None):
    container = {"args": list(args), **({"lifecycle": lifecycle} if lifecycle else {})}
    return lost_requests(pod_end(pod or {}, container), image=image, answer_s=answer_s)


def test_a_pod_without_hook_and_timeout_loses_what_it_serves_and_what_comes_late():
    hook, timeout = gaps()
    assert hook.startswith("no preStop hook") and timeout.startswith("no --shutdown-timeout")
    assert "vLLM 0.17.1 knows no --shutdown-timeout" in gaps(image=OLD)[1]


@pytest.mark.parametrize(
    "args", [["--shutdown-timeout=90"], ["--shutdown-timeout", "90"], ["--shutdown_timeout=90"]]
)
def test_a_pod_with_room_for_hook_and_drain_loses_nothing(args):
    assert gaps({"terminationGracePeriodSeconds": 120}, args=args, lifecycle=SLEEP) == ()


def test_a_drain_in_a_start_script_counts():
    script = ["-c", 'exec vllm serve /mnt/models --shutdown-timeout 40 "$@"']
    assert gaps({"terminationGracePeriodSeconds": 60}, args=script, lifecycle=SLEEP) == ()


def test_a_zero_is_an_abort():
    assert len(gaps(args=["--shutdown-timeout=0"], lifecycle=SLEEP)) == 1


def test_a_grace_period_shorter_than_hook_and_drain_is_said_with_the_numbers():
    assert gaps(args=["--shutdown-timeout=90"], lifecycle=SLEEP) == (
        "terminationGracePeriodSeconds 30 ends before preStop (15 s) and --shutdown-timeout (90 s)",
    )


def test_an_answer_longer_than_the_drain_is_said():
    pod = {"terminationGracePeriodSeconds": 120}
    assert gaps(pod, args=["--shutdown-timeout=90"], lifecycle=SLEEP, answer_s=1800) == (
        "an answer may take 1800 s, a stopping pod has 90 s for it",
    )
    assert gaps(pod, args=["--shutdown-timeout=90"], lifecycle=SLEEP, answer_s=60) == ()


def test_a_hook_that_only_sleeps_does_not_wait_for_requests():
    exec_sleep = {"preStop": {"exec": {"command": ["/bin/sleep", "15"]}}}
    assert gaps(lifecycle=exec_sleep)[0].startswith("no --shutdown-timeout")


def test_the_hook_for_older_engines_waits_for_requests():
    assert (
        gaps(
            {"terminationGracePeriodSeconds": 1830},
            lifecycle={"preStop": waiting_hook(8080)},
            image=OLD,
        )
        == ()
    )


def test_the_hook_for_older_engines_knows_busy_from_idle():
    script = waiting_hook(8080)["exec"]["command"][2]
    pattern = re.search(r"search\('(.*?)',", script)[1]
    busy = 'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
    idle = 'vllm:num_requests_running{engine="0",model_name="m1"} 0.0\nvllm:num_requests_waiting{engine="0"} 0.0\n'
    assert re.search(pattern, f"# HELP\n{idle}{busy}") and not re.search(pattern, idle)
    compile(script, "hook", "exec")


@pytest.mark.parametrize("image", [NEW, OLD])
def test_the_lines_to_add_mend_what_is_said(image):
    (finding,) = path_findings(KIND, [], {}, {}, image=image, port=8000)
    assert (finding.id, finding.severity) == ("requests-lost", "warn")
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", finding.todo)[1]
    hook = json.loads(re.search(r"lifecycle: (\{.*?\})(?: and |$)", finding.todo)[1])
    flags = re.findall(r"--shutdown-timeout=\d+", finding.todo)
    pod, container = (
        {"terminationGracePeriodSeconds": int(grace)},
        {"args": flags, "lifecycle": hook},
    )
    assert yaml.safe_load(yaml.safe_dump(hook)) == hook
    assert path_findings(KIND, [], pod, container, image=image, port=8000) == ()


@pytest.mark.parametrize(
    ("kind", "pod"),
    [
        ("InferenceService", "spec.predictor"),
        ("LLMInferenceService", "spec.template"),
        ("Deployment", "spec.template.spec"),
        (
            "LeaderWorkerSet",
            "spec.leaderWorkerTemplate.leaderTemplate.spec (without one: workerTemplate.spec)",
        ),
    ],
)
def test_the_lines_name_the_field_of_the_kind(kind, pod):
    (finding,) = path_findings(kind, [], {}, {}, image=NEW, port=8000)
    assert finding.todo.startswith(
        f"add to {pod}: terminationGracePeriodSeconds: 1830; to its engine's container: "
    )


def test_the_drain_to_add_fits_the_timeout_to_add():
    limits = route_limits([route(timeouts={"request": "60s"}, controller=True)], {"qwen-predictor"})
    cut, lost = path_findings(KIND, limits, {}, {}, image=NEW, port=8000)
    assert "timeout: 1800" in cut.todo and "--shutdown-timeout=1800" in lost.todo


def route(name="qwen", *, timeouts=None, controller=False, backend="qwen-predictor"):
    owners = [{"controller": True, "kind": "InferenceService", "name": name}] if controller else []
    rule = {"backendRefs": [{"name": backend}], **({"timeouts": timeouts} if timeouts else {})}
    return {"metadata": {"name": name, "ownerReferences": owners}, "spec": {"rules": [rule]}}


@pytest.mark.parametrize(
    ("timeouts", "controller", "said", "todo"),
    [
        (
            {"request": "600s", "backendRequest": "20s"},
            False,
            "cut after 20 s",
            "timeouts: {request: 1800s}",
        ),
        (
            {"request": "60s"},
            True,
            "answers are cut after 60 s by HTTPRoute qwen",
            "spec.predictor.timeout: 1800",
        ),
        (
            {"request": "30s"},
            False,
            "answers are cut after 30 s by HTTPRoute qwen",
            "timeouts: {request: 1800s}",
        ),
        (None, False, "sets no timeouts.request", "timeouts: {request: 1800s}"),
    ],
)
def test_a_route_that_cuts_answers_is_named_with_the_line_to_add(timeouts, controller, said, todo):
    limits = route_limits([route(timeouts=timeouts, controller=controller)], {"qwen-predictor"})
    (finding,) = path_findings(KIND, limits, None, None, image=None, port=8000)
    assert finding.id == "answers-cut" and said in finding.reason and todo in finding.todo


def test_routes_with_the_same_limit_are_named_once():
    """KServe writes two routes for a service: one for its host name, one for the predictor's."""
    both = [
        route(name, timeouts={"request": "60s"}, controller=True)
        for name in ("qwen", "qwen-predictor")
    ]
    (finding,) = path_findings(
        KIND, route_limits(both, {"qwen-predictor"}), None, None, image=None, port=8000
    )
    assert finding.reason == "answers are cut after 60 s by HTTPRoute qwen, qwen-predictor"


def test_a_route_with_a_long_limit_or_none_passes():
    for request in ("30m", "0s", "1h30m"):
        limits = route_limits([route(timeouts={"request": request})], {"qwen-predictor"})
        assert path_findings(KIND, limits, None, None, image=None, port=8000) == ()
    assert route_limits([route(backend="other")], {"qwen-predictor"}) == ()


def test_the_longest_answer_of_the_routes_is_what_a_pod_must_finish():
    limits = route_limits(
        [route(timeouts={"request": "300s"}), route("b", timeouts={"request": "0s"})],
        {"qwen-predictor"},
    )
    pod = {"terminationGracePeriodSeconds": 120}
    container = {"args": ["--shutdown-timeout=90"], "lifecycle": SLEEP}
    assert path_findings(KIND, limits, pod, container, image=NEW, port=8000) == (), (
        "one without a limit: unknown"
    )
    (finding,) = path_findings(KIND, limits[:1], pod, container, image=NEW, port=8000)
    assert "an answer may take 300 s" in finding.reason and "--shutdown-timeout=300" in finding.todo


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("1h30m", 5400), ("500ms", 0.5), ("0s", 0), ("30m", 1800)]
)
def test_durations_of_the_gateway_api(text, seconds):
    assert duration_s(text) == seconds


def test_a_route_that_kserve_writes_for_an_llm_service_names_its_field():
    owner = {"controller": True, "kind": "LLMInferenceService", "name": "big"}
    rule = {
        "backendRefs": [{"kind": "InferencePool", "name": "big-inference-pool"}],
        "timeouts": {"request": "30s"},
    }
    (limit,) = route_limits(
        [{"metadata": {"name": "r", "ownerReferences": [owner]}, "spec": {"rules": [rule]}}],
        (),
        "big",
    )
    assert limit.todo == "set timeouts: {request: 1800s} in spec.router.route.http.spec.rules"


def test_services_lead_to_pods_whose_labels_they_select():
    services = [
        {"metadata": {"name": name}, "spec": spec}
        for name, spec in {
            "mine": {"selector": {"app": "qwen"}},
            "narrower": {"selector": {"app": "qwen", "tier": "canary"}},
            "external": {"type": "ExternalName"},
        }.items()
    ]
    assert selected_services(services, {"app": "qwen", "team": "chat"}) == {"mine"}
