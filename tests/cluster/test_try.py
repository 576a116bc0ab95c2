"""``mpctl try`` on a cluster: the doctor first, then a measurement next to the service, which stays as it is."""

import re

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import ANY_SPEED, CONTAINERS

SHORT = {"MPCTL_REQUESTS": "4", "MPCTL_REPEATS": "8", "MPCTL_MAX_TOKENS": "16"}


def commands_of(done):
    return re.findall(r"^\$ (.*)", done.stderr, re.MULTILINE)


def test_a_service_is_checked_measured_and_reported_and_nothing_of_it_changes(
    cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    namespace.deploy(CONTAINERS)
    before = namespace.client.get("isvc", "demo")
    mpctl.environment.update(SHORT, MPCTL_POLICY=str(policy))
    done = mpctl("try", "demo")
    (page,) = mpctl.directory.glob("try-demo-*.html")
    assert [re.sub(r" (-n|--kubeconfig) \S+", "", line) for line in commands_of(done)] == [
        "mpctl doctor",
        "mpctl plan demo --spec all",
        f"mpctl bench demo --spec ngram --run {page.stem}.json.gz",
        f"mpctl report {page.stem}.json.gz --output-file {page.name}",
    ]
    after = namespace.client.get("isvc", "demo")
    assert (text_of(after), after["metadata"]["generation"]) == (
        text_of(before),
        before["metadata"]["generation"],
    )
    assert namespace.client.find("isvc", "demo-candidate") is None
    assert page.read_text().startswith("<!doctype html>")


def test_a_cluster_with_a_fault_ends_it_with_the_doctors_answer(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    cluster.pods.rule(lambda pod: {"script": {"exit": 3}})
    namespace.client.apply(CONTAINERS.replace("2048", "1024"))
    for pod in namespace.pods():
        namespace.client.delete("pods", pod["metadata"]["name"])
    namespace.client.wait("the service is not ready", lambda: mpctl("doctor", code=None).returncode)
    done = mpctl("try", "demo", code=9)
    assert len(commands_of(done)) == 1
    assert "mend what fails first" in done.stderr
    assert not namespace.jobs_made()
