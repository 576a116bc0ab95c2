"""Each row of the table of calls is removed once: on the real authoriser a command lacks the right and names it.

Every row has a user of its own whose role lacks that row alone, so nothing is granted and taken while commands run. The
command line runs in this process, as ``--as`` that user. Commands are the cheapest that make the call, and those that
change something follow each other along one unfinished operation: each is refused one call further on.
"""

import gc
import json
import re
import secrets
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from mpctl.cli.main import run
from mpctl.platform.kubernetes.access.calls import TABLE
from mpctl.platform.kubernetes.access.rbac import roles, subject_of
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import connect
from mpctl.platform.kubernetes.api.port_forward import Forwards
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.platform.kubernetes.service.reader import ReadBudget
from mpctl.rollout.revision import Revision

from .conftest import make_mpctl
from .fixtures import Namespace
from .objects import MODEL, hpa, taken_route
from .roles import without_row
from .test_rbac_table import SCALED_OBJECT, SHARED, crash, keda  # noqa: F401
from .unmeasured import Unmeasured

# Commands run in this process, whose end would close the streams that a refused one leaves open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# Rows by the command that misses them, in the order in which it makes the calls.
LOOKS = {
    ("status",): ["list inferenceservices"],
    ("status", "demo"): [
        "get inferenceservices",
        "get servingruntimes",
        "get clusterservingruntimes cluster",
        "get deployments",
        "list pods",
        "get leases",
        "list controllerrevisions",
        "get pods/portforward",
        "create pods/portforward",
    ],
    ("diff", "demo", "--spec", "ngram"): ["update inferenceservices"],
    ("rollout", "demo", "--spec", "ngram", "--strategy", "in-place", "--dry-run=server"): [
        "list horizontalpodautoscalers",
        "list nodes cluster",
        "list resourceslices cluster",
        "list resourceclaims cluster",
        "list pods cluster",
        "list resourcequotas",
        "list limitranges",
    ],
    ("rollout", "demo", "--spec", "ngram", *SHARED, "--dry-run=server"): ["list httproutes"],
    ("rollout", "demo", "--spec", "ngram", "--mirror", "10", "--dry-run=server"): [
        "get gateways cluster",
        "get gatewayclasses cluster",
    ],
    ("rollout", "demo", "--spec", "ngram", "-y"): ["patch configmaps", "create configmaps"],
}
DOCTOR = [
    "list deployments",
    "list leases",
    "list services",
    "list poddisruptionbudgets",
    "list resourceclaimtemplates",
    "list deviceclasses cluster",
    "list mutatingwebhookconfigurations cluster",
    "list validatingwebhookconfigurations cluster",
    "list daemonsets cluster",
    "list deployments kserve",
    "list endpointslices kserve",
    "get configmaps kserve",
]
UNFINISHED = {
    ("status", "demo"): ["list events"],
    ("unlock", "demo", "-y"): ["patch leases"],
    ("abandon", "demo", "-y"): [
        "update leases",
        "create leases",
        "get httproutes",
        "update httproutes",
        "delete inferenceservices",
        "get scaledobjects",
        "update scaledobjects",
        "get horizontalpodautoscalers",
        "update horizontalpodautoscalers",
        "create controllerrevisions",
        "get controllerrevisions",  # the last entry is there, and only that is not known
    ],
}
RESUMED = {
    3: "create inferenceservices",
    4: "get pods/log",
}  # by the ledger entry at which the rollout was killed
WEIGHTS = {"demo": 90, "demo-candidate": 10}
BACK = ("rollback", "demo", "--to-revision", "3", "-y")  # the first two are those of the rollout
BACK_ROWS = ["list scaledobjects"]
CONTINUED = ["get configmaps"]  # the prompts that a resumed rollout measures with are recorded
SPARED = ["watch deployments"]  # without it the same is read again and again
SIGNED = ["get namespaces cluster"]  # without it a bundle names no cluster, and says so


def key_of(row):
    return f"{row.verb} {row.resource}{'' if row.scope == 'service' else ' ' + row.scope}"


ROWS = {key_of(row): row for row in TABLE}
BENCH = ("bench", "demo", "--requests", "1", "--repeats", "1", "--max-tokens", "4")
MEASURING = ["list jobs", "create jobs", "delete jobs"]
CHANGES = ("rollout", "resume", "rollback", "abandon", "unlock", "diff")


def user_of(row):
    return "without-" + re.sub(r"[^a-z]+", "-", f"{key_of(row)}-{row.kind.group}".lower())


def test_every_right_is_removed_by_some_test():
    keys_removed = [
        *DOCTOR,
        *RESUMED.values(),
        *BACK_ROWS,
        *CONTINUED,
        *SPARED,
        *SIGNED,
        *MEASURING,
    ]
    keys_removed += [
        key for group in (LOOKS, UNFINISHED) for keys in group.values() for key in keys
    ]
    assert sorted(keys_removed) == sorted(ROWS)


def grant(client, namespace):
    """Roles for one user per row. What lies in the other scopes is granted by roles that many users share."""

    def of(role, scope, to):
        kind, where = {
            "service": ("Role", namespace), "cluster": ("ClusterRole", None), "kserve": ("Role", "kserve")
        }[scope]  # fmt: skip
        documents = [
            d for d in roles(role, namespace, to=[to]) if d["metadata"].get("namespace") == where
        ]
        return [d for d in documents if d["kind"] in (kind, f"{kind}Binding")]

    documents, shared = [], {}
    for row in TABLE:
        user = user_of(row)
        role = "operator" if row.role == "operator" or key_of(row) not in OF_READERS else "reader"
        role_, binding = of(role, row.scope, subject_of(f"user:{user}"))
        documents += [_named(without_row(role_, row), user), _named(binding, user)]
        for scope in {"service", "cluster", "kserve"} - {row.scope}:
            shared.setdefault((role, scope), []).extend(binding["subjects"])
    for (role, scope), subjects in shared.items():
        whole, binding = of(role, scope, subject_of("user:nobody"))
        documents += [
            _named(whole, f"all-{role}"),
            _named({**binding, "subjects": subjects}, f"all-{role}"),
        ]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(client.apply, documents))
    return documents


# A reader's command misses these; to an operator, who may list pods everywhere, the first is no loss.
OF_READERS = {"list pods", *DOCTOR}


def _named(document, name):
    named = {
        **document,
        "metadata": {**document["metadata"], "name": f"{document['metadata']['name']}-{name}"},
    }
    if "roleRef" in named:
        named["roleRef"] = {**named["roleRef"], "name": f"{named['roleRef']['name']}-{name}"}
    return named


@pytest.fixture(scope="module")
def shared(cluster, keda, tmp_path_factory):  # noqa: F811
    """One service with two autoscalers; a candidate's engine would crash."""
    name = f"t-{secrets.token_hex(3)}"
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    namespace = Namespace(cluster, name)
    documents = grant(cluster.client, name)
    namespace.deploy(MODEL)
    namespace.client.apply(hpa())
    namespace.client.apply(SCALED_OBJECT)
    taken_route(namespace.client)
    take_back = cluster.pods.rule(crash)
    yield namespace, make_mpctl(cluster, name, tmp_path_factory.mktemp("hand"))
    take_back()
    namespace.delete()
    for document in documents:
        if document["metadata"].get("namespace") != name:
            where = document["metadata"].get("namespace")
            client = cluster.client.within(where) if where else cluster.client
            client.delete(document["kind"], document["metadata"]["name"])


def remembering(opened, real):
    """``real``, an ``__init__`` whose objects are kept in ``opened``."""

    def init(self, *given, **options):
        real(self, *given, **options)
        opened.append(self)

    return init


@pytest.fixture
def say(shared, monkeypatch, capsys):
    """Runs a command in this process as the user who lacks a row, or as administrator: exit code and output."""
    hand = shared[1]
    for key in [
        k for k in hand.environment if k.startswith(("MPCTL_", "XDG_")) or k in ("HOME", "NO_COLOR")
    ]:
        monkeypatch.setenv(key, hand.environment[key])
    monkeypatch.setenv("KUBECONFIG", str(hand.kubeconfig))
    monkeypatch.setattr(ReadBudget, "wait", lambda self: None)
    opened = []
    for kind in (Client, Forwards):
        monkeypatch.setattr(kind, "__init__", remembering(opened, kind.__init__))

    def command(*words, without=None):
        who = ("--as", user_of(ROWS[without])) if without else ()
        capsys.readouterr()
        code = run([*words, *who])
        while opened:  # the end of a process does this otherwise
            opened.pop().close()
        captured = capsys.readouterr()
        return code, f"{captured.out}\n{captured.err}"

    yield command
    gc.collect()  # here, where such a stream is expected, not in the next test


def missed(say, command, key):
    """What a command said that was refused for want of a row; fails when it does not name the call."""
    row = ROWS[key]
    code, output = say(*command, without=key)
    # A port-forward that is refused says no more than that: an upgrade's refusal has no body here.
    verb = "create" if row.subresource == "portforward" else row.verb
    assert f"{verb} {row.resource}" in output or f'{verb} resource "{row.resource}"' in output, (
        key,
        code,
        output,
    )
    return code, output


def test_a_missing_right_to_read_or_first_write_is_named(shared, say):
    forget(shared[0])
    for command, keys in LOOKS.items():
        for key in keys:
            code, output = missed(say, command, key)
            if "portforward" in key or key in (
                "list pods cluster",
                "list resourcequotas",
                "list limitranges",
            ):
                assert code == 0, (
                    output
                )  # status shows the rest; a rollout does not know the capacity or the quotas
            else:
                assert (code, "mpctl rbac" in output) == (4, True), (key, code, output)


def test_doctor_names_what_it_may_not_read(say):
    for key in DOCTOR:
        code, output = say("doctor", "-o", "json", without=key)
        assert code in (0, 9), output
        items = json.loads(output[: output.rindex("}") + 1])["items"]
        plural = "ledgers" if key == "list controllerrevisions" else ROWS[key].kind.plural
        unseen = " ".join(item["subject"] for item in items if item["id"] == "unread")
        assert plural in unseen, (key, unseen)


def test_a_missing_right_to_the_load_job_is_named(shared):
    for key in MEASURING:
        done = shared[1](*BENCH, "--as", user_of(ROWS[key]), code=None)
        assert f"not allowed to {key}" in done.stderr, (key, done.stderr)
        # What cannot be removed was measured all the same; it is said, and goes by itself.
        assert done.returncode == (0 if key == "delete jobs" else 4), (key, done.stderr)


def test_a_missing_right_of_unlock_abandon_or_rollback_is_named(cluster, shared, say):
    namespace, hand = shared
    forget(namespace)
    interrupted(hand, 7)
    shares = [{"name": f"{name}-predictor", "port": 80, "weight": w} for name, w in WEIGHTS.items()]
    change = json.dumps([{"op": "replace", "path": "/spec/rules/0/backendRefs", "value": shares}])
    namespace.kubectl(
        "patch", "httproute", "users", "--type=json", "-p", change
    )  # as its first traffic step would
    namespace.client.wait("the candidate's pod has ended", lambda: waiting(namespace))
    for command, keys in UNFINISHED.items():
        for key in keys:
            if key == "create leases":
                namespace.client.delete("leases", "mpctl-demo")
            if key == "get controllerrevisions":
                cluster.proxy.add("timeout", verb="create", resource="controllerrevisions")
            code, output = missed(say, command, key)
            assert (code, "mpctl rbac" in output) == (4, True), (key, code, output)
    code, output = say("abandon", "demo", "-y")
    assert code == 0, output
    client = Client(connect(str(hand.kubeconfig), None))
    store = KubernetesStore(client, namespace.name, "demo", "somebody")
    first, second = store.revisions()
    assert second.number == 2
    other = hand("render", "demo", "--spec", "ngram", "--set", "num_speculative_tokens=3").stdout
    store.add_revision(Revision(3, other, first.created, "ann", "as found", None, ""))
    client.close()
    for key in BACK_ROWS:
        code, output = missed(say, BACK, key)
        assert (code, "mpctl rbac" in output) == (4, True), (key, code, output)


def test_a_rollout_that_lacks_a_right_is_rolled_back(shared, say):
    namespace, hand = shared
    for entry, key in RESUMED.items():
        forget(namespace)
        interrupted(hand, entry)
        code, output = missed(say, ("resume", "demo"), key)
        assert (code, "was restored" in output) == (7, True), (key, code, output)
        assert namespace.client.find("isvc", "demo-candidate") is None


def test_a_resumed_rollout_that_may_not_read_its_records_is_refused(shared, say):
    namespace, hand = shared
    for key in CONTINUED:
        forget(namespace)
        interrupted(hand, 2)
        code, output = missed(say, ("resume", "demo"), key)
        assert (code, "mpctl rbac" in output) == (4, True), (key, code, output)


def test_a_start_that_may_not_be_watched_is_read(shared, say):
    namespace, hand = shared
    for key in SPARED:
        forget(namespace)
        interrupted(hand, 4)
        code, output = say("resume", "demo", without=key)
        assert (code, "was restored" in output, "not allowed" in output) == (7, True, False), output
        assert namespace.client.find("isvc", "demo-candidate") is None


def interrupted(hand, entry):
    """A rollout, killed right after it wrote an entry."""
    Unmeasured(hand)(
        "rollout", "demo", "--spec", "ngram", *SHARED, kill_after=entry, code=-signal.SIGKILL
    )


def waiting(namespace):
    """Whether the candidate has a pod that restarted."""
    pods = namespace.pods("demo-candidate")
    return pods and all(
        s.get("restartCount") for p in pods for s in p["status"].get("containerStatuses") or [{}]
    )


def forget(namespace):
    """Remove what earlier operations recorded, so that the next starts as the first."""
    for kind in ("configmaps", "controllerrevisions", "leases"):
        for record in namespace.client.list(kind, labels="mpctl.dev/service=demo"):
            namespace.client.delete(kind, record["metadata"]["name"])
