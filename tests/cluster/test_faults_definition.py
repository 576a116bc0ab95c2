"""The definition of InferenceServices is removed, and every service with it: the history stays readable, each command
says what is gone, and once the definition is back one recorded manifest and one command lead to the end."""

import pytest

from .rig.api import ApiError
from .test_faults_outside import ROLLBACK, ROLLOUT, Served

DEFINITION = "inferenceservices.serving.kserve.io"
GONE = f"does not know the kind InferenceService; without its definition {DEFINITION} no InferenceService exists there"


class Undefined(Served):
    """A service of a cluster whose definition of it can be removed."""

    def remove_definition(self):
        """Delete it as ``kubectl delete crd`` does; returns once it and every service are gone."""
        client = self.cluster.client
        value = client.get("crd", DEFINITION)
        self.definition = {k: value[k] for k in ("apiVersion", "kind", "spec")} | {
            "metadata": {"name": DEFINITION}
        }
        client.delete("crd", DEFINITION)
        client.wait("the definition is gone", lambda: client.find("crd", DEFINITION) is None)
        label = "serving.kserve.io/inferenceservice"
        self.client.wait("its pods are gone", lambda: not self.client.list("pods", labels=label))

    def restore_definition(self):
        """As a new installation of KServe does."""
        if self.cluster.client.find("crd", DEFINITION) is None:
            self.cluster.kserve.define([self.definition])
            self.client.wait("its objects can be listed", self.is_listed)
            self.cluster.kserve.restart()

    def is_listed(self):
        try:
            return self.client.list("isvc") == []
        except ApiError as error:
            assert error.status == 429, error  # storage is (re)initializing
            return False

    def create_again(self, revision):
        """The service from its history, with the command that the messages name."""
        shown = self.run(
            "history", "demo", "--revision", str(revision), "-o", "yaml", "--show-secrets"
        )
        self.namespace.kubectl("apply", "-f", "-", stdin=shown.stdout)
        self.namespace.ready()

    def is_told(self):
        """What every command says while the definition is gone."""
        for command in (ROLLBACK, (*ROLLOUT, "--yes"), ("status", "demo")):
            refused = self.run(*command, code=2).stderr
            assert f"service {self.namespace.name}/demo: the cluster {GONE}" in refused, refused
            assert (
                "install KServe's definitions again, then run 'mpctl history demo --revision N"
                in refused
            )
        everything = self.run("status", code=2).stderr
        assert (
            f"KServe is not installed; a history is kept of {self.namespace.name}/demo"
            in everything
        ), everything
        shown = self.run("history", "demo")
        assert "as found" in shown.stdout and "rollout-" in shown.stdout
        assert GONE in shown.stderr and "was deleted" not in shown.stderr

    def is_rolled_back(self):
        """One command ends what is unfinished; with exit code 7 where the rollout had failed and began its rollback."""
        done = self.run(*ROLLBACK, code=None)
        assert done.returncode in (0, 7) and "restored" in done.stderr, done.stderr

    def ends(self):
        """The service is as it was before every operation, and none is unfinished."""
        assert self.text() == self.before
        assert not self.speculates()
        assert self.client.find("isvc", "demo-candidate") is None
        assert None not in [
            operation["ending"] for operation in self.run.json("history", "demo")["operations"]
        ]


@pytest.fixture
def served(cluster, tmp_path):
    made = Undefined(cluster, tmp_path)
    yield made
    made.restore_definition()
    made.namespace.delete()


@pytest.mark.nightly  # minutes, for a fault that an administrator causes on purpose
def test_the_definition_is_removed_while_a_rollout_is_interrupted_and_after_one(served):
    served.killed()
    served.remove_definition()
    served.is_told()
    assert GONE in served.run("resume", "demo", code=1).stderr
    served.restore_definition()
    assert (
        "InferenceService not found" in served.run(*ROLLBACK, code=2).stderr
    )  # the definition is back, no service is
    served.create_again(1)
    served.is_rolled_back()
    served.ends()
    served.run(*ROLLOUT)
    served.remove_definition()
    served.is_told()
    served.restore_definition()
    served.create_again(served.run.json("history", "demo")["revisions"][-1]["number"])
    assert served.speculates()
    assert "restored" in served.run(*ROLLBACK).stderr
    served.ends()


@pytest.mark.nightly
def test_the_definition_is_removed_under_a_rollout(served):
    served.cluster.pods.rule(lambda pod: {"never_ready": "candidate" in pod["metadata"]["name"]})
    under_way = served.run.start(*ROLLOUT)
    try:
        served.client.wait(
            "it waits for its candidate", lambda: served.namespace.pods("demo-candidate")
        )
        served.remove_definition()
        _, said = under_way.communicate(timeout=240)
    finally:
        under_way.kill()
        served.cluster.pods.clear()
    assert under_way.returncode == 1, said
    assert "could not restore the service" in said, said
    assert GONE in said or "demo: InferenceService not found" in said, (
        said
    )  # the services go before the definition
    served.is_told()
    served.restore_definition()
    served.create_again(1)
    served.is_rolled_back()
    served.ends()
