"""Argo Rollouts and Flagger ask a running watch for the verdict: Argo's own controller reads the analysis that
docs/how-to/evidence.md prints, and Flagger's webhook gets the body that Flagger documents."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml

from tests.cluster.conftest import ROOT
from tests.cluster.rig import argo
from tests.local.conftest import LAX

FEW = ("--requests", "2", "--repeats", "2")
PAGE = "/v1/services/default/demo/verdict"


@pytest.fixture(scope="session")
def analysis_cluster(cluster):
    argo.start(cluster)
    return cluster


@pytest.fixture
def watch(mpctl):
    """The address of a watch of a service on this machine."""
    mpctl("local", "up", "-f", str(mpctl.manifest()))
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mpctl.cli.main",
            "watch",
            "demo",
            "--listen",
            "127.0.0.1:0",
            "-o",
            "json",
        ],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process.stderr.readline().split()[-1]
        process.terminate()


def documented_template(address):
    """The template of the documentation, which is the user's whole YAML, with another service in its place."""
    page = (ROOT / "docs" / "how-to" / "evidence.md").read_text()
    (text,) = re.findall(r"```yaml\n(apiVersion: argoproj.io.*?)```", page, re.DOTALL)
    assert len(text.splitlines()) <= 10
    return yaml.safe_load(re.sub(r"http://[^\"]+", f"http://{address}{PAGE}", text))


def analysed(namespace, template):
    """The phase with which Argo ends an analysis of the template, and what it read."""
    run = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisRun",
        "metadata": {"generateName": "run-"},
    }
    name = namespace.client.create({**run, "spec": template["spec"]})["metadata"]["name"]

    def ended():
        status = namespace.client.get("analysisruns", name).get("status", {})
        return (
            status
            if status.get("completedAt") or status.get("phase") in ("Successful", "Failed")
            else None
        )

    status = namespace.client.wait("Argo ends the analysis", ended)
    return status["phase"], json.loads(status["metricResults"][0]["measurements"][0]["value"])


def flagger(address):
    """Flagger's confirm-promotion (https://docs.flagger.app/usage/webhooks): the status of the answer."""
    body = {
        "name": "demo",
        "namespace": "default",
        "phase": "Progressing",
        "checksum": "85d557f47b",
        "metadata": {},
    }
    request = urllib.request.Request(
        f"http://{address}/v1/flagger",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.timeout(1800)  # with a build of Argo, where there is none yet
def test_argo_and_flagger_read_every_state_of_a_verdict(analysis_cluster, namespace, mpctl, watch):
    template = documented_template(watch)
    namespace.client.create(template)
    strict = mpctl.policy(f"{LAX}min_tokens_per_step: 50\n")
    steps = (
        ((), 0, "none", "Inconclusive", 403),
        (("rollout", "--spec", "ngram", *FEW), 6, "undecided", "Inconclusive", 403),
        (("rollout", "--spec", "ngram", "--policy", strict), 5, "refuse", "Failed", 403),
        (("rollout", "--spec", "ngram"), 0, "promote", "Successful", 200),
        (("rollback",), 0, "promote", "Inconclusive", 403),  # what was promoted serves no more
    )
    for words, code, verdict, phase, status in steps:
        if words:
            mpctl(*words, code=code)

        def shown(verdict=verdict, phase=phase):
            try:
                with urllib.request.urlopen(f"http://{watch}{PAGE}", timeout=10) as answer:
                    body = json.load(answer)
            except urllib.error.HTTPError:  # not read yet
                return False
            return body["verdict"] == verdict and body["serves"] == (phase == "Successful")

        namespace.client.wait("the watch has read the ledger again", shown)
        read_phase, read = analysed(namespace, template)
        assert (read_phase, read["verdict"], flagger(watch)) == (phase, verdict, status)
