"""``mpctl.api``: what a program can get wrong before a service is read. tests/local/test_python.py runs the rest."""

import logging
import subprocess
import sys

import pytest

from mpctl import api
from mpctl.app.console import Unattended
from mpctl.lab.requests import PlanRequest

LOCAL = api.Place("local")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path))


def rollout(**measurement):
    request = api.RolloutRequest(
        api.SpeculationRequest("ngram"), api.MeasurementRequest(**measurement)
    )
    return api.rollout("qwen", request, place=LOCAL, yes=True)


@pytest.mark.parametrize(
    ("measurement", "field"),
    [
        ({"concurrency": 8}, "concurrency: 8"),
        ({"concurrency": (0,)}, "concurrency: (0,)"),
        ({"requests": 0}, "requests: 0"),
        ({"requests": "4"}, "requests: '4'"),
        ({"concurrency": ("many",)}, "concurrency: ('many',)"),
        ({"rounds": 1001}, "rounds: 1001"),
        ({"thinking": "maybe"}, "thinking: 'maybe'"),
        ({"time_limit_s": -1.0}, "time_limit_s: -1.0"),
        ({"temperatures": (float("nan"),)}, "temperatures: (nan,)"),
        ({"contexts": (1,)}, "contexts: (1,)"),
        ({"requests": (4,)}, "requests: (4,)"),
    ],
)
def test_a_value_that_no_option_takes_names_its_field(measurement, field):
    with pytest.raises(api.InputError) as caught:
        rollout(**measurement)
    assert caught.value.message == f"MeasurementRequest.{field} cannot be used"
    assert caught.value.hint


def test_a_dry_run_is_the_enumeration_not_its_word():
    request = api.RolloutRequest(api.SpeculationRequest("ngram"), dry_run="none")
    with pytest.raises(api.InputError, match=r"RolloutRequest\.dry_run"):
        api.rollout("qwen", request, place=LOCAL, yes=True)


def test_values_that_options_take_reach_the_service():
    with pytest.raises(api.InputError, match="qwen: not found"):
        rollout(concurrency=(1, 8), contexts=(2048,), temperatures=(0.0, 0.7), thinking="both")


def test_the_platform_is_named_and_not_looked_up():
    with pytest.raises(api.InputError, match=r"Place\.platform: 'auto' is not one of"):
        api.rollback("qwen", place=api.Place("auto"), yes=True)


def test_the_local_platform_has_no_server_for_a_dry_run():
    request = api.RollbackRequest(dry_run=api.DryRun.SERVER)
    with pytest.raises(api.InputError, match="no server to ask"):
        api.rollback("qwen", request, place=LOCAL)


def test_options_of_bench_that_exclude_each_other_are_refused_for_programs_too():
    request = api.BenchRequest(candidate="other", speculation=api.SpeculationRequest("ngram"))
    with pytest.raises(api.InputError, match="cannot be combined with --spec"):
        api.bench("qwen", request, place=LOCAL)


def test_a_plan_takes_its_methods_from_either_field():
    by_method = PlanRequest(
        speculation=api.SpeculationRequest("ngram,suffix", gpu="L4"), traffic="code"
    )
    by_field = PlanRequest(
        ("ngram", "suffix"), speculation=api.SpeculationRequest(gpu="L4"), traffic="code"
    )
    plans = [api.plan("Qwen/Qwen3-8B", r, place=LOCAL) for r in (by_method, by_field)]
    assert [{m.method for m in plan.methods} for plan in plans] == [{"ngram", "suffix"}] * 2


def test_a_manifest_is_planned_and_checked_without_its_service(tmp_path):
    file = tmp_path / "service.yaml"
    file.write_text(
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: qwen}\n"
        "spec: {predictor: {containers: [{name: kserve-container, image: vllm/vllm-openai:v0.32.0,"
        " args: [--model=Qwen/Qwen3-8B]}]}}\n"
    )
    change = api.ChangeRequest(api.SpeculationRequest("ngram", config={"prompt_lookup_max": 3}))
    checked = api.preflight("qwen", change, place=LOCAL, file=str(file))
    assert checked.change.spec.config()["prompt_lookup_max"] == 3
    request = PlanRequest(("ngram",), speculation=api.SpeculationRequest(gpu="L4"), traffic="code")
    assert api.plan("qwen", request, place=LOCAL, file=str(file)).target == "Qwen/Qwen3-8B"


def test_messages_name_the_place_of_the_call():
    with pytest.raises(api.MpctlError) as caught:
        api.rollback("qwen", place=LOCAL, yes=True)
    assert "mpctl local up -f MANIFEST" in caught.value.hint
    with pytest.raises(api.MpctlError) as caught:
        api.rollback("qwen", place=api.Place("kubernetes", "ml", kubeconfig="/absent"), yes=True)
    assert "/absent" in caught.value.message


def test_messages_go_to_the_logger_or_to_the_function(caplog):
    caplog.set_level(logging.INFO, "mpctl")
    lines = []
    for report in (None, lines.append):
        console = api._console(LOCAL, report, yes=True)
        assert isinstance(console, Unattended)
        console.step("start", "starting the candidate")
        console.warn("100 % of it is slow")
        console.confirm("qwen changes\nContinue (this machine)?")
    assert lines == [
        "start: starting the candidate",
        "warning: 100 % of it is slow",
        "qwen changes",
    ]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "start: starting the candidate"),
        ("WARNING", "100 % of it is slow"),
        ("INFO", "qwen changes"),
    ]


def test_the_package_loads_nothing_before_a_function_is_wanted():
    program = "import mpctl, sys; print(sorted(m for m in sys.modules if m.startswith('mpctl')))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['mpctl']\n"
