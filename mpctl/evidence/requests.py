"""Requests of the annex."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.option import Duration, File, option


@dataclass(frozen=True)
class VerifyRequest:
    """A signed verdict to verify."""

    file: str = ""
    keys: tuple[str, ...] = option(
        "--key",
        type=File,
        multiple=True,
        required=True,
        help="Public key, PEM; repeatable: any of them.",
    )
    service: str | None = None  # the bundle's
    offline: bool = option("--offline", type=bool, help="Do not compare with the live service.")
    max_age_s: float | None = option(
        "--max-age", type=Duration(), help="Refuse older measurements."
    )
    policy_file: str | None = option(
        "--policy", type=File, help="Gate policy, YAML, that must have judged."
    )
    cluster_id: str | None = option(
        "--cluster-id",
        metavar="UID",
        help="Cluster that must have measured: the uid of its namespace kube-system.",
    )
