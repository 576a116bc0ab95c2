"""Check an account before ``cdktf deploy``: ``python -m stacks.preflight``, or ``scripts/preflight-cluster``.

Reads the same environment variables as the stacks (MPCTL_ENV, MPCTL_FLEET, MPCTL_CLUSTER ...) and makes nothing.
``--offline``: settings and list prices alone, without credentials. ``--policy``: the IAM policy of a deploy to AWS.
Exit codes: 0 nothing stands in the way; 2 wrong input; 4 no valid credentials; 6 something could not be read;
9 the deploy would fail.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from collections.abc import Iterable, Mapping

from infra.aws.policies import written
from mpctl.errors import MpctlError, Refused, Undecided
from stacks.base import Plan
from stacks.main import load_fleet, load_settings, plans, told
from stacks.preflight.checks import Finding, Outcome, assess
from stacks.preflight.costs import costs, lines
from stacks.preflight.facts import AccountFacts
from stacks.states import read_state


def read(plan: Plan) -> AccountFacts:
    """The account of a cluster's cloud, and whose state is where the deploy would keep its own."""
    return read_state(plan, read_account(plan))


def read_account(plan: Plan) -> AccountFacts:
    if plan.cluster.provider == "EKS":
        from stacks.preflight.aws import read_aws

        return read_aws(plan)
    from stacks.preflight.google import read_google

    return read_google(plan)


def report(plan: Plan, findings: Iterable[Finding]) -> str:
    """The findings, a line each, and the costs of the cluster."""
    written = [
        f"{plan.name} ({plan.cluster.provider}, {plan.cluster.region}, Kubernetes {plan.minor})"
    ]
    for finding in findings:
        written.append(f"  {finding.outcome.value:<8}{finding.check:<13}{finding.message}")
        if finding.hint and finding.outcome is not Outcome.OK:
            written.append(f"{'':<23}hint: {finding.hint}")
    written += ["", *(f"  {line}" for line in lines(costs(plan), plan.cluster.provider))]
    return "\n".join(written)


def exit_code(findings: Iterable[Finding]) -> int:
    """9 when a check fails, 6 when one could not be read, else 0."""
    outcomes = {finding.outcome for finding in findings}
    if Outcome.FAIL in outcomes:
        return Refused.exit_code
    return Undecided.exit_code if Outcome.UNKNOWN in outcomes else 0


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Check every chosen cluster; the worst exit code."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.stdout.write(f"{__doc__}\n")
        return 0
    if "--policy" in sys.argv[1:]:
        sys.stdout.write(json.dumps(json.loads(written("deployer")), indent=2) + "\n")
        return 0
    offline = "--offline" in sys.argv[1:]
    codes = [0]
    try:
        settings = load_settings(environ)
        for plan in plans(environ, settings, load_fleet(environ), dt.date.today()):
            findings = () if offline else assess(plan, read(plan))
            sys.stdout.write(report(plan, findings) + "\n\n")
            codes.append(exit_code(findings))
    except MpctlError as error:
        return told(error)
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
