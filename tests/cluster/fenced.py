"""Takes a Lease from a holder that never released it, through the front door: the fence may replace no pod."""

LEASE = """\
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: mpctl-{}}}
spec: {{holderIdentity: gone}}
"""


def unlocked(namespace, mpctl, kind, name):
    """What a fence changed of a service and its pods besides the resourceVersion; empty as it should be."""
    before = seen(namespace, kind, name)
    namespace.client.apply(LEASE.format(name))
    mpctl("unlock", name, "--force", "--yes")
    after = seen(namespace, kind, name)
    assert after.pop("resourceVersion") != before.pop("resourceVersion")
    mpctl("status", name)  # controllers had the time to act
    after["pods"] = pods(namespace)
    return [field for field in before if after[field] != before[field]]


def seen(namespace, kind, name):
    record = namespace.client.get(kind, name)
    fields = ("resourceVersion", "generation", "annotations", "labels")
    metadata = {field: record["metadata"].get(field) for field in fields}
    managers = sorted(entry["manager"] for entry in record["metadata"]["managedFields"])
    return {**metadata, "managers": managers, "spec": record["spec"], "pods": pods(namespace)}


def pods(namespace):
    return {pod["metadata"]["uid"] for pod in namespace.client.list("pods")}
