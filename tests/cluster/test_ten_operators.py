"""Ten operators with ten services of one namespace at once: each gets what was asked for, none touches another's."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import CLAIM, CONTAINERS
from .rig.nodes import Machine
from .unmeasured import Unmeasured

SERVICES = [f"demo-{number}" for number in range(10)]


@pytest.fixture
def room(cluster):
    """GPUs for ten services and their candidates."""
    name = cluster.add_node(Machine(gpus=18, cpu="64", memory="200Gi"))
    yield
    cluster.remove_node(name)


@pytest.mark.nightly  # minutes of both cores
def test_ten_operators_on_ten_services_do_not_disturb_each_other(cluster, room, namespace, mpctl):
    operators = {f"of-{service}": service for service in SERVICES}
    to = [word for operator in operators for word in ("--to", f"user:{operator}")]
    cluster.kubectl("apply", "-f", "-", stdin=mpctl("rbac", "-n", namespace.name, *to).stdout)
    namespace.client.apply(CLAIM)
    for service in SERVICES:
        namespace.client.apply(CONTAINERS.replace("name: demo\n", f"name: {service}\n"))
    before = {service: text_of(namespace.ready(service, timeout_s=300)) for service in SERVICES}
    lines = {
        service: Unmeasured(mpctl.as_user(cluster.user(operator)))
        for operator, service in operators.items()
    }

    def everywhere(command, *options):
        with ThreadPoolExecutor(len(SERVICES)) as pool:
            return list(
                pool.map(
                    lambda service: lines[service](command, service, *options).stderr, SERVICES
                )
            )

    assert all("promoted" in told for told in everywhere("rollout", "--spec", "ngram", "--yes"))
    assert all("--speculative-config" in str(namespace.argv(service)) for service in SERVICES)
    assert all("restored" in told for told in everywhere("rollback", "--yes"))
    assert {
        isvc["metadata"]["name"]: text_of(isvc) for isvc in namespace.client.list("isvc")
    } == before
    assert not namespace.client.list("jobs")
    for service in SERVICES:
        operations = lines[service].json("history", service)["operations"]
        assert [operation["ending"] for operation in operations] == ["promoted", "rolled back"]
    written = [
        call for call in cluster.proxy.calls if call.user in operators and call.write and call.name
    ]
    assert {call.user for call in written} == set(operators)
    assert [call for call in written if operators[call.user] not in call.name] == []
