"""``mpctl.api`` on a cluster: a rollout and its rollback by a program that names the place, with no settings at all."""

import json
import subprocess
import sys

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .conftest import ROOT
from .objects import ANY_SPEED, CONTAINERS

PROGRAM = """
import json, sys
from mpctl import api

kubeconfig, namespace = sys.argv[1:]
place = api.Place("kubernetes", namespace, kubeconfig=kubeconfig)
change = api.SpeculationRequest("ngram", config={"num_speculative_tokens": 3})
traffic = api.MeasurementRequest(requests=4, rounds=8, max_tokens=16, policy="policy.yaml")
request = api.RolloutRequest(
    change, traffic, api.TrafficRequest(users_window_s=1.0, bake_s=0.0), fidelity="off"
)
try:
    api.rollout("demo", request, place=place)
except api.InputError as error:
    refused = error.message
lines = []
promoted = api.rollout("demo", request, place=place, yes=True, report=lines.append)
back = api.rollback("demo", place=place, yes=True, report=lines.append)
try:
    api.rollback("absent", place=place, yes=True)
except api.MpctlError as error:
    hint = error.hint
json.dump([refused, promoted.plan.spec_text, str(promoted.error), str(back.error), hint, lines], sys.stdout)
"""


def test_a_program_rolls_out_and_back_on_the_cluster_it_names(cluster, namespace, mpctl, tmp_path):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    (tmp_path / "policy.yaml").write_text(ANY_SPEED)
    namespace.deploy(CONTAINERS)
    before = text_of(namespace.client.get("isvc", "demo"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(mpctl.kubeconfig), namespace.name],
        cwd=tmp_path,
        # The settings that the fixture gives to the command line are not read.
        env=mpctl.environment | {"MPCTL_POLICY": "absent.yaml", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused, spec, error, undone, hint, lines = json.loads(done.stdout)
    assert refused.startswith("needs yes=True: ")
    assert spec.startswith("ngram K=3")
    assert (error, undone) == ("None", "None")
    assert f"--kubeconfig {mpctl.kubeconfig}" in hint
    assert any(line.startswith("promote: ") for line in lines), lines
    assert text_of(namespace.client.get("isvc", "demo")) == before
