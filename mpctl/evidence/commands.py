"""``mpctl verify``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from mpctl.cli.command import OUTPUT, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.evidence.requests import VerifyRequest


@command(
    "verify",
    click.Argument(["file"], metavar="FILE"),
    service_argument("service"),
    VerifyRequest,
    OUTPUT,
)
def verify(context: CliContext, /, request: VerifyRequest) -> None:
    """Verify a signed verdict: its signature, its parts, its age, policy and cluster, and the live service.

    \b
    Examples:
      mpctl verify verdict.intoto.jsonl --key cosign.pub
      mpctl verify verdict.intoto.jsonl --key cosign.pub --max-age 30d --policy gate.yaml
      mpctl verify verdict.intoto.jsonl --key cosign.pub --offline --cluster-id UID

    FILE is what mpctl report -o attestation wrote; it names the service, unless SERVICE does. Exit code 0: the gate
    promoted, and the service is what was promoted; 9: it does not verify, with the reason; 2: a file or key cannot be
    read.
    """
    from mpctl.evidence.bundle import verify as verify_bundle

    attested = verify_bundle(context.place, context.terminal, request)
    fields = {
        "service": attested.service,
        "operation": attested.operation,
        "verdict": attested.verdict,
        "openedAt": attested.opened.isoformat(),
        "liveService": "not compared" if request.offline else "as promoted",
        "clusterId": attested.cluster_id,
        "unidentified": list(attested.unidentified),
        "setting": attested.setting,
    }
    context.emit(
        "Verification",
        record=lambda: fields,
        names=lambda: [attested.operation],
        table=lambda _wide: _verified_text(fields),
    )


def _verified_text(fields: Mapping[str, Any]) -> str:
    lines = [
        f"verified: the gate promoted {fields['operation']} of {fields['service']}, opened {fields['openedAt']}"
    ]
    lines += [
        f"live service: {fields['liveService']}",
        f"cluster: {fields['clusterId'] or 'not named'}",
    ]
    missing = ", ".join(fields["unidentified"])
    return "\n".join([*lines, *([f"without a digest: {missing}"] if missing else [])])
