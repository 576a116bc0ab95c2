"""Holds requests of mpctl's client against ``mpctl.platform.kubernetes.access.calls``, the table behind rbac."""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from mpctl.platform.kubernetes.access.calls import (
    API_KEY,
    DEPLOYMENTS,
    FREE,
    GROUPS,
    LLM,
    PURGE,
    RUNTIMES,
    TABLE,
    WATCH,
)

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
KNOWN = {
    row.key for row in (*TABLE, *LLM, *GROUPS, *RUNTIMES, *PURGE, *DEPLOYMENTS, *WATCH, API_KEY)
} | {("create", kind.group, kind.plural) for kind in FREE}


@dataclass(frozen=True)
class Request:
    """One request as RBAC sees it; ``resource`` is empty for a path that is none, such as /version."""

    verb: str
    group: str = ""
    resource: str = ""

    @property
    def listed(self):
        """Whether the table, or the rights of every user, cover it."""
        return not self.resource or (self.verb, self.group, self.resource) in KNOWN


def request_of(method, url):
    """What the API server's authoriser makes of a request (apiserver's RequestInfoFactory)."""
    split = urlsplit(url)
    parts = [unquote(part) for part in split.path.split("/") if part]
    core, named = (
        parts[:2] == ["api", "v1"] and len(parts) > 2,
        parts[:1] == ["apis"] and len(parts) > 3,
    )
    if not (core or named):
        return Request(method.lower())
    group, path = ("", parts[2:]) if core else (parts[1], parts[3:])
    if path[0] == "namespaces" and len(path) > 2:
        path = path[2:]
    resource = "/".join([path[0], *path[2:3]])
    verb = _VERBS.get(method)
    if verb is None:
        watches = parse_qs(split.query).get("watch", ["false"])[0] in ("true", "1")
        verb = "watch" if watches else "get" if len(path) > 1 else "list"
    elif verb == "delete" and len(path) == 1:
        verb = "deletecollection"
    return Request(verb, group, resource)


def hold_to_the_table(monkeypatch):
    """From now on a request of mpctl's client that the table does not list fails."""
    from mpctl.platform.kubernetes.api.api_client import Client

    real = Client._send

    def once(self, method, path, *arguments, **options):
        request = request_of(method, path)
        assert request.listed, (
            f"{request} is not in mpctl/platform/kubernetes/access/calls.py: which command makes it, and why?"
        )
        return real(self, method, path, *arguments, **options)

    monkeypatch.setattr(Client, "_send", once)


def unlisted_calls(proxy):
    """(verb, group, resource) of remembered requests of mpctl's that the table does not list."""
    rows = {
        (c.verb, c.group, "/".join(filter(None, (c.resource, c.subresource))))
        for c in proxy.calls
        if _ours(c)
    }
    return rows - KNOWN


def _ours(call):
    return call.resource and call.agent.startswith("mpctl")
