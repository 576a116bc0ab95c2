"""How a draft gets into the pod: the ways there are, which of them this service and cluster allow, and why one is best.

Pure. A service, a draft and what is known of the cluster go in; the edited service, what has to be prepared before
it, and what a rollback removes and leaves come out. What KServe takes is :mod:`mpctl.staging.kserve`; the bytes are
:mod:`mpctl.manifest.storage.edits`.
"""

from __future__ import annotations

from mpctl.errors import InputError
from mpctl.manifest import Service, Storage
from mpctl.staging.availability import OBSTACLES
from mpctl.staging.kserve import is_oci, problems
from mpctl.staging.modes import WAYS, Cluster, Considered, DraftSource, Situation, StagingPlan, document_of
from mpctl.staging.plans import PLANS


def plan_staging(service: Service, draft: DraftSource, cluster: Cluster, *, way: str | None = None) -> StagingPlan:
    """How ``draft`` reaches the pod of ``service``.

    Raises:
        InputError: the way asked for, or every way, is impossible here; the message says why for each.
    """
    if way is not None and way not in WAYS:
        raise InputError(f"{way!r} is no way to stage a draft", field="--way", hint=f"ways: {', '.join(WAYS)}")
    facts = Situation(service, draft, cluster)
    considered = tuple(Considered(one, OBSTACLES[one](facts)) for one in WAYS)
    obstacles = {one.way: one.obstacle for one in considered}
    if way is not None:
        if obstacles[way] is not None:
            possible = [one for one in WAYS if obstacles[one] is None]
            hint = f"possible here: {', '.join(possible)}" if possible else "mpctl stage explains every way"
            raise InputError(f"{way} is not possible for {service.name}: {obstacles[way]}", field="--way", hint=hint)
        chosen, reason = way, "asked for with --way"
    else:
        found = next(((one, why) for one, why in _preferences(facts) if obstacles[one] is None), None)
        if found is None:
            told = "; ".join(f"{one}: {obstacles[one]}" for one in WAYS)
            raise InputError(
                f"no way to get {draft.name} into the pod of {service.name}: {told}",
                field="--draft",
                hint="give --kserve VERSION, --claim NAME or --registry PREFIX, whichever the cluster has",
            )
        chosen, reason = found
    made = PLANS[chosen](facts, reason, considered)
    if made.service.kind == "InferenceService":
        broken = problems(document_of(made.service), cluster.kserve or "")
        fresh = [one for one in broken if one not in problems(document_of(service), cluster.kserve or "")]
        if fresh:
            told = "; ".join(f"{one.field}: {one.text}" for one in fresh)
            raise InputError(f"KServe would not serve {service.name} staged as {chosen}: {told}", file=service.file)
    return made


def _preferences(facts: Situation) -> list[tuple[str, str]]:
    """The ways from best to worst for this target, each with its reason."""
    held = facts.target
    if facts.draft.is_path:
        return [("present", f"{facts.draft.name} is a path in the container")]
    if facts.target_claim:
        name = facts.target_claim[0]
        return [
            ("pvc", f"the target lies on the claim {facts.claim or name}; the draft is downloaded once"),
            ("oci+native", "an image, mounted by the node"),
            ("oci", "an image beside the claim"),
            ("storageUris", "KServe downloads the draft at every start"),
            ("engine", "the engine downloads the draft at every start"),
        ]
    if is_oci(facts.draft.uri):
        return [("oci+native" if facts.draft.uri.startswith("oci+native") else "oci", "the draft is an image")]
    return _of_image(held) if held is not None and is_oci(held.uri) else _of_download(facts)


def _of_image(held: Storage) -> list[tuple[str, str]]:
    """For a target that is an image."""
    native = held.uri.startswith("oci+native")
    return [
        ("oci+native" if native else "oci", "the target is an image; the draft becomes one of its own"),
        ("image", "the target is an image, and this KServe serves one image only: both go into one"),
        ("pvc", "the claim holds the draft"),
        ("storageUris", "KServe downloads the draft at every start"),
        ("engine", "the engine downloads the draft at every start"),
    ]


def _of_download(facts: Situation) -> list[tuple[str, str]]:
    """For a target that is downloaded, by KServe or by the engine, or lies in volumes of its own."""
    held = facts.target
    if facts.cluster.air_gapped:
        return [
            ("pvc", "the cluster is air-gapped; the claim is filled once"),
            ("oci+native", "the cluster is air-gapped; an image comes from its own registry"),
            ("oci", "the cluster is air-gapped; an image comes from its own registry"),
            ("image", "the cluster is air-gapped; one image from its own registry holds both"),
        ]
    if facts.draft.uri.startswith("pvc://"):
        return [("pvc", "the draft lies on a volume claim")]
    at_start = ("storageUris", "the target is downloaded by KServe; the draft comes beside it")
    by_engine = ("engine", "the engine loads the target from the hub itself, and the draft likewise")
    once = ("pvc", "the claim holds the draft, downloaded once")
    images = [("oci+native", "an image, mounted by the node"), ("oci", "an image of its own")]
    if held is not None:
        return [at_start, once, *images, ("image", "one image holds both"), ("engine", "no other way is open; the "
                "engine downloads the draft at every start")]  # fmt: skip
    if facts.service.model and not facts.service.model.startswith(("/", ".")):
        return [by_engine, at_start, once, *images]
    return [once, at_start, *images, by_engine]


__all__ = ["WAYS", "Cluster", "Considered", "DraftSource", "StagingPlan", "plan_staging"]
