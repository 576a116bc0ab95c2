"""Every command that messages print on a cluster runs as it was printed, in a namespace that is not the default."""

import subprocess
from dataclasses import replace

import pytest

from tests.printed import CELL, is_endless, pasted, sign_verdict

from .objects import ANY_SPEED, CONTAINERS

QUICK = {
    "REQUESTS": "4",
    "REPEATS": "5",
    "MAX_TOKENS": "8",
    "INTERVAL": "1s",
    "LOAD": "local",
    "POLICY": "policy.yaml",
}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_printed_commands_can_be_pasted(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    (mpctl.directory / "policy.yaml").write_text(ANY_SPEED)
    (mpctl.directory / "service.yaml").write_text(CONTAINERS)
    mpctl.environment.update({f"MPCTL_{name}": value for name, value in QUICK.items()})
    elsewhere = replace(mpctl, kubeconfig=mpctl.directory / "default")
    cluster.kubeconfig_for(
        cluster.admin, elsewhere.kubeconfig, namespace="default", server=cluster.proxy.url
    )
    there = ("-n", namespace.name)
    elsewhere("bench", "demo", "--spec", "ngram", *there, "--run", "run.json.gz")
    elsewhere("rollout", "demo", "--spec", "ngram", *there)
    (mpctl.directory / "cell.yaml").write_text(CELL)
    files = {"manifest": "service.yaml", "run": "run.json.gz", "cell": "cell.yaml"}
    files |= sign_verdict(elsewhere, *there)
    lines = pasted("kubernetes", "demo", namespace.name, files)
    assert len(lines) > 30
    failed = {}
    for line in lines:
        if is_endless(line):
            with pytest.raises(subprocess.TimeoutExpired):
                elsewhere(*line, timeout=10)
            continue
        done = elsewhere(*line, code=None)
        if done.returncode == 2 or "Traceback" in done.stderr:
            failed[" ".join(line)] = done.stderr
    assert failed == {}
