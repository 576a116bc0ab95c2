"""Options for the staging mode of a draft; ``mpctl stage`` explains the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from mpctl.cli.options.types import all_of, option

if TYPE_CHECKING:
    from mpctl.app.requests import StagingRequest

_SECTION: dict[str, Any] = {"section": "Draft and staging"}


class StagingOptions(TypedDict):
    """The options as click hands them over."""

    staging_mode: str | None
    claim: str | None
    shared: bool | None
    registry: str | None
    air_gapped: bool
    kserve: str | None
    node_disk: float | None
    draft_size: float | None
    token_secret: str | None
    staging_image: str | None


staging_options = all_of(
    option("--staging-mode", metavar="MODE", help="How the draft gets into the pod (default: the best).", **_SECTION),
    option("--claim", metavar="NAME", help="PersistentVolumeClaim that may hold the draft.", **_SECTION),
    option("--shared/--not-shared", default=None, help="Whether several nodes can mount that claim.", **_SECTION),
    option("--registry", metavar="PREFIX", help="Registry that an image with the draft may be pushed to.", **_SECTION),
    option("--air-gapped", is_flag=True, help="Pods reach neither a hub nor a bucket.", **_SECTION),
    option("--kserve", metavar="VERSION", help="KServe's release, such as 0.20 (default: the cluster's).", **_SECTION),
    option("--node-disk", type=float, metavar="GIB", help="Free disk of a GPU node.", **_SECTION),
    option("--draft-size", type=float, metavar="GIB", help="Size of a draft that cannot be read.", **_SECTION),
    option("--token-secret", metavar="NAME", help="Secret with HF_TOKEN for a download Job.", **_SECTION),
    option(
        "--staging-image",
        metavar="IMAGE",
        help="Image of the download Job or base of the Containerfile, such as a mirror's with a digest.",
        **_SECTION,
    ),
)


def staging_request(given: StagingOptions) -> StagingRequest:
    """The request of these options."""
    from mpctl.app.requests import StagingRequest

    return StagingRequest(
        mode=given["staging_mode"],
        claim=given["claim"],
        claim_is_shared=given["shared"],
        registry=given["registry"],
        air_gapped=given["air_gapped"],
        kserve_version=given["kserve"],
        node_disk_gib=given["node_disk"],
        draft_size_gib=given["draft_size"],
        token_secret=given["token_secret"],
        staging_image=given["staging_image"],
    )
