"""The check before a deploy: what it makes of an account, and how it reads one over the clouds' own protocols.

AWS answers through moto, which knows no GPU quota: that stays unknown there, and is judged from facts. Google's REST
answers come from a server of these tests in the shapes of the public reference; IAM and paging are left out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mpctl.errors import NotPermitted
from stacks.base import Plan
from stacks.main import load_fleet, load_settings, plans
from stacks.preflight.__main__ import exit_code, main, report
from stacks.preflight.checks import Finding, Outcome, assess
from stacks.preflight.costs import costs, prices
from stacks.preflight.facts import AccountFacts, Quota
from tests.stacks.conftest import DATA, ROOT, TODAY


def plan_of(cloud: str) -> Plan:
    environ = {
        "MPCTL_ENV": str(DATA / "golden.yaml"),
        "MPCTL_GCP_PROJECT": "a-project",
        "MPCTL_FLEET": f"manifests/fleet/{cloud}-l4.yaml",
    }
    (plan,) = plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    return plan


@pytest.fixture(scope="module")
def eks() -> Plan:
    return plan_of("eks")


@pytest.fixture(scope="module")
def gke() -> Plan:
    return plan_of("gke")


def quota(limit: float | None, used: float | None, unit: str = "vCPUs") -> Quota:
    return Quota("G and VT", unit, limit, used, "the console")


WELL = AccountFacts(
    identity="role/deployer in account 210987654321",
    zones=("us-west-2a", "us-west-2b", "us-west-2c"),
    offered={"g6.2xlarge": ("us-west-2a",)},
    quotas={"gpu-g": quota(64, 0), "network": quota(5, 1, ""), "address": quota(5, 1, "")},
)


def only(findings: tuple[Finding, ...], check: str) -> Finding:
    (finding,) = (one for one in findings if one.check == check and one.outcome is not Outcome.OK)
    return finding


def test_an_account_that_has_everything_stops_nothing(eks: Plan) -> None:
    findings = assess(eks, WELL)
    outcomes = {finding.check: finding.outcome for finding in findings}
    # One service may use every GPU of the pool.
    assert outcomes.pop("services") is Outcome.WARN
    assert {*outcomes.values()} == {Outcome.OK}
    assert exit_code(findings) == 0


CASES = [
    ({"zones": ("us-west-2b", "us-west-2c")}, "zones", Outcome.FAIL, "has no us-west-2a"),
    ({"zones": None}, "zones", Outcome.UNKNOWN, "could not be read"),
    (
        {"offered": {"g6.2xlarge": ("us-west-2b",)}},
        "machines",
        Outcome.FAIL,
        "does not offer g6.2xlarge",
    ),
    ({"offered": {"g6.2xlarge": ()}}, "machines", Outcome.FAIL, "no zone of the region does"),
    ({"offered": {}}, "machines", Outcome.UNKNOWN, "could not be read"),
    ({"taken": ("EKS cluster eks-l4-single-golden",)}, "names", Outcome.WARN, "exists already"),
    (
        {"apis_off": ("file.googleapis.com",)},
        "apis",
        Outcome.FAIL,
        "not enabled: file.googleapis.com",
    ),
    ({"apis_off": None}, "apis", Outcome.UNKNOWN, "could not be read"),
    ({"denied": ("eks:CreateCluster",)}, "rights", Outcome.FAIL, "not allowed: eks:CreateCluster"),
    ({"denied": None}, "rights", Outcome.UNKNOWN, "could not be read"),
]


@pytest.mark.parametrize(
    ("change", "check", "outcome", "message"), CASES, ids=[f"{c[1]}-{c[2]}" for c in CASES]
)
def test_what_is_missing_is_named(
    change: dict[str, Any], check: str, outcome: Outcome, message: str, eks: Plan
) -> None:
    finding = only(assess(eks, replace(WELL, **change)), check)
    assert finding.outcome is outcome and message in finding.message


QUOTAS = [
    (quota(0, 0), Outcome.FAIL, "start with 8 vCPUs"),  # one g6.2xlarge
    (quota(16, 12), Outcome.FAIL, "start with 8 vCPUs"),
    (quota(16, 0), Outcome.WARN, "grow to 32 vCPUs"),  # four of them
    (quota(32, 0), None, ""),
    (quota(None, 0), Outcome.UNKNOWN, "could not be read"),
]


@pytest.mark.parametrize(
    ("limit", "surge", "message"), [(8, True, "no room for a spare"), (64, False, "goes first")]
)
def test_an_upgrade_that_takes_a_service_down_is_told_before(
    limit: int, surge: bool, message: str, eks: Plan
) -> None:
    plan = replace(eks, settings=replace(eks.settings, surge=surge))
    finding = only(assess(plan, replace(WELL, quotas={"gpu-g": quota(limit, 0)})), "upgrades")
    assert finding.outcome is Outcome.WARN and message in finding.message
    assert "a service with one replica is down" in finding.message + finding.hint


@pytest.mark.parametrize(("given", "outcome", "message"), QUOTAS)
def test_the_gpu_quota_is_held_against_first_and_full_size(
    given: Quota, outcome: Outcome | None, message: str, eks: Plan
) -> None:
    findings = assess(eks, replace(WELL, quotas={"gpu-g": given}))
    if outcome is None:
        assert {one.outcome for one in findings if one.check != "services"} == {Outcome.OK}
        return
    finding = only(findings, "quota")
    assert finding.outcome is outcome and message in finding.message
    assert "the console" in finding.hint


def test_a_renamed_pool_is_refused_with_the_two_steps(eks: Plan) -> None:
    before = replace(WELL, owner=eks.name, pools=("system", "gpu_l4"))
    assert not [one for one in assess(eks, before) if one.check == "pools"]
    added = replace(before, pools=("system",))
    assert not [one for one in assess(eks, added) if one.check == "pools"]
    removed = replace(before, pools=("system", "gpu_l4", "gpu_old"))
    assert not [one for one in assess(eks, removed) if one.check == "pools"]
    finding = only(assess(eks, replace(before, pools=("system", "gpu_old"))), "pools")
    assert finding.outcome is Outcome.FAIL
    assert "gpu_old would be deleted while gpu_l4 is made" in finding.message
    assert "drain its nodes" in finding.hint


@pytest.mark.parametrize(("most", "warned"), [(3, False), (4, True), (None, True)])
def test_services_that_leave_a_rollout_no_gpu_are_named(
    most: int | None, warned: bool, eks: Plan
) -> None:
    (service,) = eks.settings.services
    scaling = replace(service.autoscaling, maximum=most)
    services = (replace(service, autoscaling=scaling),)
    plan = replace(eks, settings=replace(eks.settings, services=services))
    found = [one for one in assess(plan, WELL) if one.check == "services"]
    assert [one.outcome for one in found] == [Outcome.WARN] * warned
    assert all(
        "use 4 GPUs and a rollout's candidate 1; the pools have 4" in one.message for one in found
    )


def test_a_quota_that_is_too_small_says_what_to_ask_for(eks: Plan) -> None:
    finding = only(assess(eks, replace(WELL, quotas={"gpu-g": quota(16, 12)})), "quota")
    assert "at least 20 at the console" in finding.hint


@pytest.mark.parametrize("purpose", ["network", "address"])
def test_a_full_network_or_address_quota_fails(purpose: str, eks: Plan) -> None:
    finding = only(assess(eks, replace(WELL, quotas={purpose: quota(5, 5, "")})), "quota")
    assert finding.outcome is Outcome.FAIL and "5 of 5 in use" in finding.message


def test_the_exit_code_is_that_of_the_worst_finding() -> None:
    def of(*outcomes: Outcome) -> int:
        return exit_code([Finding("c", outcome, "m") for outcome in outcomes])

    assert of(Outcome.OK, Outcome.WARN) == 0
    assert of(Outcome.OK, Outcome.UNKNOWN) == 6
    assert of(Outcome.UNKNOWN, Outcome.FAIL) == 9


def test_the_report_shows_findings_hints_and_costs(eks: Plan) -> None:
    text = report(eks, assess(eks, replace(WELL, quotas={"gpu-g": quota(0, 0)})))
    assert "fail    quota" in text and "hint: ask for at least 8" in text
    assert "pool gpu-l4: 1 to 4 x g6.2xlarge" in text and "us-east-1" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_costs_add_up_what_the_stacks_make(eks: Plan, gke: Plan) -> None:
    for plan, machine in ((eks, "g6.2xlarge"), (gke, "g2-standard-8")):
        found = {cost.item.partition(":")[0]: cost for cost in costs(plan)}
        hour = prices()[plan.cluster.provider]["machines"][machine]["hour"]
        assert found["pool gpu-l4"].hour == pytest.approx(hour)
        assert found["pool gpu-l4"].hour_at_most == pytest.approx(4 * hour)
        assert all(cost.hour is not None and cost.hour > 0 for cost in found.values())


def test_an_unknown_price_is_no_zero(eks: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**prices(), "EKS": {**prices()["EKS"], "machines": {}}}
    monkeypatch.setattr("stacks.preflight.costs.prices", lambda: table)
    assert [cost.hour for cost in costs(eks) if "g6.2xlarge" in cost.item] == [None]
    assert "sum of what is known" in report(eks, ())


def test_aws_is_read_through_its_own_protocol(
    eks: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = pytest.importorskip(
        "moto.server", reason="moto is missing: pip install 'moto[server]'"
    )
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
            ("AWS_ACCESS_KEY_ID", "testing"),
            ("AWS_SECRET_ACCESS_KEY", "testing"),
            ("AWS_CONFIG_FILE", str(tmp_path / "none")),
        ):
            monkeypatch.setenv(name, value)
        from stacks.preflight.aws import read_aws

        facts = read_aws(eks)
    finally:
        running.stop()
    assert "account 123456789012" in facts.identity
    assert facts.zones is not None and "us-west-2a" in facts.zones
    assert facts.offered["g6.2xlarge"]
    assert facts.quotas["network"].used == 1 and facts.quotas["address"].used == 0
    assert facts.quotas["gpu-g"].used == 0
    assert facts.taken == ()


@pytest.mark.parametrize("path", ["", "aws-reserved/sso.amazonaws.com/eu-central-1/"])
def test_rights_are_asked_for_the_role_with_its_path(
    path: str, eks: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stacks.preflight.aws import Reader

    name = "AWSReservedSSO_deployer_0a1b"
    role = f"arn:aws:iam::210987654321:role/{path}{name}"

    def ask(self: Reader, service: str, call: str, **arguments: Any) -> Any:
        if service == "sts":
            return {"Arn": f"arn:aws:sts::210987654321:assumed-role/{name}/me"}
        if call == "get_role":
            assert arguments == {"RoleName": name}
            return {"Role": {"Arn": role}}
        assert arguments["PolicySourceArn"] == role
        decisions = {"eks:CreateCluster": "implicitDeny"}
        return {
            "EvaluationResults": [
                {"EvalActionName": n, "EvalDecision": decisions.get(n, "allowed")}
                for n in arguments["ActionNames"]
            ]
        }

    monkeypatch.setattr(Reader, "ask", ask)
    assert Reader(eks).denied() == ("eks:CreateCluster",)


def test_a_role_that_may_not_be_read_leaves_its_rights_unknown(
    eks: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stacks.preflight.aws import Reader

    session = {"Arn": "arn:aws:sts::210987654321:assumed-role/deployer/me"}
    monkeypatch.setattr(
        Reader, "ask", lambda self, service, call, **_: session if service == "sts" else None
    )
    assert Reader(eks).denied() is None


def test_every_page_of_an_answer_is_read(eks: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.stub import Stubber

    from stacks.preflight.aws import Reader

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    reader = Reader(eks)
    client = reader.session.client("ec2")
    instance = {"CpuOptions": {"CoreCount": 4, "ThreadsPerCore": 2}}
    page = {"Reservations": [{"Instances": [instance]}]}
    with Stubber(client) as stub:
        stub.add_response("describe_instances", {**page, "NextToken": "more"})
        stub.add_response("describe_instances", page)
        monkeypatch.setattr(reader.session, "client", lambda *_, **__: client)
        assert reader.used_vcpus("g", spot=False) == 16


def test_node_groups_that_a_deploy_gives_another_image_are_named(
    eks: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stacks.preflight.aws import Reader

    groups = {
        "gpu-l4-1": {"amiType": "AL2023_x86_64_NVIDIA", "releaseVersion": "1.36.1-20261001"},
        "system-1": {"amiType": "AL2023_x86_64_STANDARD", "releaseVersion": "1.36.1-20261001"},
    }

    def ask(self: Reader, service: str, call: str, **arguments: Any) -> Any:
        if call == "get_parameter":
            assert arguments["Name"].startswith(
                f"/aws/service/eks/optimized-ami/{eks.minor}/amazon-linux-2023/x86_64/"
            )
            return {"Parameter": {"Value": "1.36.2-20261101"}}
        return (
            {"nodegroups": [*groups]}
            if call == "list_nodegroups"
            else {"nodegroup": groups[arguments["nodegroupName"]]}
        )

    monkeypatch.setattr(Reader, "ask", ask)
    moves = Reader(eks).image_moves()
    assert moves == dict.fromkeys(groups, ("1.36.1-20261001", "1.36.2-20261101"))
    text = report(eks, assess(eks, replace(WELL, image_moves=moves)))
    for group in groups:
        assert f"node group {group} moves from image 1.36.1-20261001 to 1.36.2-20261101" in text
    assert "gpu.eks_image: 1.36.1-20261001 keeps" in text
    pinned = replace(eks, settings=replace(eks.settings, eks_image="1.36.1-20261001"))
    assert Reader(pinned).image_moves() == {}


def test_prices_and_the_policy_need_no_credentials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"MPCTL_ENV": str(DATA / "golden.yaml"), "MPCTL_GCP_PROJECT": "a-project"}
    monkeypatch.setattr("sys.argv", ["preflight", "--offline"])
    assert main(environ) == 0
    assert "pool gpu-l4" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["preflight", "--policy"])
    assert main({}) == 0
    assert "eks:*" in json.loads(capsys.readouterr().out)["Statement"][0]["Action"]


def test_aws_without_valid_credentials_says_how_to_log_in(
    eks: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    from stacks.preflight.aws import read_aws

    with pytest.raises(NotPermitted) as caught:
        read_aws(eks)
    assert "aws sso login" in str(caught.value.hint)


COMPUTE = "/compute/v1/projects/a-project"
LOCATION = "/v1/projects/a-project/locations/us-west1"


def answers(region: str) -> dict[str, Any]:
    """Path -> the API's answer, in the shapes of the public references."""
    return {
        f"{COMPUTE}/regions/{region}": {
            "zones": [
                f"https://www.googleapis.com{COMPUTE}/zones/{region}-{letter}" for letter in "abc"
            ],
            "quotas": [{"metric": "NVIDIA_L4_GPUS", "limit": 1.0, "usage": 0.0}],
        },
        COMPUTE: {
            "quotas": [
                {"metric": "GPUS_ALL_REGIONS", "limit": 0.0, "usage": 0.0},
                {"metric": "NETWORKS", "limit": 5.0, "usage": 1.0},
            ]
        },
        **{
            f"{COMPUTE}/zones/{region}-{letter}/machineTypes/g2-standard-8": {
                "name": "g2-standard-8"
            }
            for letter in "abc"
        },
        f"/v1/projects/a-project/locations/{region}/keyRings/gke-l4-single-golden": {
            "name": "gke-l4-single-golden"
        },
        "/v1/projects/a-project/services:batchGet": {
            "services": [
                {"name": f"projects/1/services/{name}.googleapis.com", "state": "ENABLED"}
                for name in (
                    "compute",
                    "container",
                    "cloudkms",
                    "iam",
                    "cloudresourcemanager",
                    "binaryauthorization",
                )
            ]
            + [{"name": "projects/1/services/file.googleapis.com", "state": "DISABLED"}]
        },
    }


@pytest.fixture
def google(gke: Plan) -> Iterator[str]:
    actual_answers = answers(gke.cluster.region)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = actual_answers.get(self.path.partition("?")[0])
            text = json.dumps(body or {"error": {"code": 404}}).encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            del args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_google_project_is_read_and_judged(gke: Plan, google: str) -> None:
    requests = pytest.importorskip("requests", reason="pip install 'mpctl[cloud]' brings it")
    from stacks.preflight.google import read_google

    findings = assess(gke, read_google(gke, requests.Session(), base=google))
    by_check: dict[str, list[Finding]] = {}
    for finding in findings:
        by_check.setdefault(finding.check, []).append(finding)
    assert (
        by_check["apis"][0].outcome is Outcome.FAIL
        and "file.googleapis.com" in by_check["apis"][0].message
    )
    assert [one.outcome for one in by_check["machines"]] == [Outcome.OK]
    quotas = {one.message.split(" ")[0]: one for one in by_check["quota"]}
    assert quotas["NVIDIA_L4_GPUS"].outcome in (Outcome.OK, Outcome.WARN)
    assert quotas["GPUS_ALL_REGIONS"].outcome is Outcome.FAIL or gke.cluster.pools[0].nodes == 0
    assert "key ring" in by_check["names"][0].message


def test_a_project_that_may_not_be_read_is_unknown_and_no_pass(gke: Plan) -> None:
    requests = pytest.importorskip("requests", reason="pip install 'mpctl[cloud]' brings it")
    from stacks.preflight.google import read_google

    facts = read_google(gke, requests.Session(), base="http://127.0.0.1:9")
    findings = assess(gke, facts)
    assert exit_code(findings) == 6
    assert {one.check for one in findings if one.outcome is Outcome.UNKNOWN} >= {
        "zones",
        "machines",
        "quota",
        "apis",
    }
