"""Users who may exactly what ``mpctl rbac`` prints, or all of it but one rule."""

import json

from mpctl.platform.kubernetes.access.rbac import roles, subject_of


class Granted:
    """A user with a role of ours in one namespace."""

    def __init__(self, cluster, namespace, name="operator", role="operator", secrets=(), **options):
        self.cluster, self.namespace = cluster, namespace
        self.user = cluster.user(name)
        self.name = name
        self.documents = roles(
            role, namespace, to=[subject_of(f"user:{name}")], secrets=secrets, **options
        )

    def apply(self, documents=None):
        listed = {"apiVersion": "v1", "kind": "List", "items": list(documents or self.documents)}
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def remove(self):
        for document in self.documents:
            where = document["metadata"].get("namespace")
            arguments = ["-n", where] if where else []
            name = document["metadata"]["name"]
            self.cluster.kubectl(*arguments, "delete", document["kind"], name, "--ignore-not-found")


def without_row(document, row):
    """A role without the right that a row stands for; other documents as they are."""
    kinds = {"service": "Role", "cluster": "ClusterRole", "kserve": "Role"}
    inside = document["metadata"].get("namespace") == "kserve"
    if (
        "rules" not in document
        or document["kind"] != kinds[row.scope]
        or inside is not (row.scope == "kserve")
    ):
        return document
    rules = []
    for rule in document["rules"]:
        hit = (
            row.kind.group in rule["apiGroups"]
            and row.resource in rule["resources"]
            and row.verb in rule["verbs"]
        )
        if not hit:
            rules.append(rule)
            continue
        others = [r for r in rule["resources"] if r != row.resource]
        verbs = [v for v in rule["verbs"] if v != row.verb]
        if others:
            rules.append({**rule, "resources": others})
        if verbs:
            rules.append({**rule, "resources": [row.resource], "verbs": verbs})
    return {**document, "rules": rules}
