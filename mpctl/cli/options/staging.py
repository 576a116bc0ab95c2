"""How a draft gets into the pod; ``mpctl stage`` explains the choice."""

from __future__ import annotations

from mpctl.cli.options.types import option

staging_options = (
    option("--staging-mode", metavar="MODE", help="How the draft gets into the pod (default: the best available)."),
    option("--claim", metavar="NAME", help="A volume claim that may hold the draft."),
    option("--shared/--not-shared", default=None, help="Whether pods of several nodes can mount that claim."),
    option("--registry", metavar="PREFIX", help="Where an image with the draft may be pushed."),
    option("--air-gapped", is_flag=True, help="Pods reach no hub and no bucket."),
    option("--kserve", metavar="VERSION", help="KServe's release, such as 0.20."),
    option("--kubernetes", metavar="VERSION", help="Kubernetes' release, such as 1.36."),
    option("--node-disk", type=float, metavar="GIB", help="Free disk on a GPU node."),
    option("--draft-size", type=float, metavar="GIB", help="Size of the draft, where it cannot be read."),
    option("--token-secret", metavar="NAME", help="Secret with HF_TOKEN, for a download Job."),
)
