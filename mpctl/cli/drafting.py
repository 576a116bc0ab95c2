"""The draft of a change: chosen from the catalogue, looked at where it lies, and staged into the pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpctl.errors import InputError
from mpctl.estimate import ModelFacts, target_name_of
from mpctl.estimate.memory import DraftMemory, Estimate, NotEstimated, Served, default_sequences, estimate, kv_bytes_of
from mpctl.estimate.table import gpu_gib, gpus, model_shape
from mpctl.manifest import Service
from mpctl.manifest.storage.edits import DRAFT_MOUNT, without_draft
from mpctl.methods import METHODS, Finding, Spec
from mpctl.staging.catalogue import Catalogue, Draft, choose
from mpctl.staging.kserve import release
from mpctl.staging.modes import REPOSITORY, Cluster, DraftSource, StagingPlan
from mpctl.staging.planner import plan_staging

if TYPE_CHECKING:
    from mpctl.cli.source import Source

Edit = Callable[[Service], Service]


@dataclass(frozen=True)
class Chosen:
    """What ``--spec`` loads: ``draft`` as it was named or chosen, ``settings`` that its card gives, ``reason`` of a
    choice and None when the user named it.
    """

    draft: str | None
    settings: dict[str, Any]
    entry: Draft | None = None
    reason: str | None = None


def choose_draft(
    before: Service, options: dict[str, Any], config: Mapping[str, Any], *, name: str | None, engine: str | None
) -> Chosen:
    """The draft named with ``--draft`` or in the settings, else the catalogue's first for the service's target.

    Raises:
        Refused: the method needs one, and the catalogue has none that fits; the message lists what it has.
    """
    method = METHODS.get(options["spec"])
    named = options["draft"] or "model" in config or any(one.startswith("model=") for one in options["set"])
    if method is None or not method.loads_weights or named:
        return Chosen(options["draft"], {})
    from mpctl.app.inspect.drafts import load_catalogue

    catalogue = load_catalogue(options.get("drafts"))
    target = target_name_of(before, name) or _served_as(before, catalogue)
    found = choose(catalogue, target, method.name, engine_version=engine)
    if found is None:
        return Chosen(None, {})
    fp8 = "fp8" in (target or "").lower() or (before.command.get("quantization") or "").startswith("fp8")
    return Chosen(found.draft.repo, dict(found.draft.settings(fp8_target=fp8)), found.draft, found.reason)


def _served_as(before: Service, catalogue: Catalogue) -> str | None:
    """The served name where the catalogue knows it. It may be any, so it chooses a draft and proves nothing."""
    served = before.command.get("served-model-name")
    return served if served and (catalogue.key(served) or catalogue.native(served)) else None


def target_source(source: Source, before: Service) -> str | None:
    """What the target is read from: its own argument, or what is mounted at the path that the engine is told."""
    named = source.target_of(before)
    if named is not None and not named.startswith("/"):
        return named
    mounted = (one for one in before.storage if one.uri.startswith("hf://"))
    return next((one.uri for one in mounted if named is None or _below(named, one.mount_path)), named)


def read_facts(
    source: Source, name: str | None, listing: str | None, *, ask_hub: bool, revision: str | None = None
) -> tuple[ModelFacts | None, str | None]:
    """What can be read of a checkpoint, and why nothing could; ``name``: a path, a repository or ``hf://`` with one.

    A listing given by hand comes first, then a directory that is reachable from here, then the hub.
    """
    from mpctl.platform.checkpoints import Listing, read_checkpoint

    if listing is not None:
        from mpctl.app.files import read_file

        found = read_checkpoint(Listing(read_file(listing, "the listing"), listing))
        return found, None if found else f"{listing} holds no config.json"
    found = source.model_facts(name)
    if found is not None or not name:
        return found, None
    repository, _, pinned = name.removeprefix("hf://").partition(":")
    if not REPOSITORY.fullmatch(repository):
        return None, f"{name} was not read: {source.paths}; a listing tells what a pod sees there"
    if not ask_hub:
        return None, f"{repository} is not on this machine, and a file is judged without asking a hub"
    from mpctl.platform.hub import Unavailable, read_hub

    try:
        return read_hub(repository, revision or pinned or "main"), None
    except Unavailable as error:
        return None, f"{repository} could not be looked at: {error}"


def check_cluster(options: dict[str, Any]) -> None:
    """Refuse numbers, versions and names that are none, before anything is looked up.

    Raises:
        InputError: with the option.
    """
    for key in ("kserve", "kubernetes"):
        if options.get(key) and release(options[key]) is None:
            raise InputError(f"{options[key]!r} is no version", field=f"--{key}", hint="such as 0.20 or v1.36.2")
    for key in ("node_disk", "draft_size"):
        size = options.get(key)
        if size is not None and not 0 < size < float("inf"):
            raise InputError(f"{size:g} is no size in GiB", field=f"--{key.replace('_', '-')}")
    cluster_of(options)  # which refuses names


def cluster_of(options: dict[str, Any], kserve: str | None = None) -> Cluster:
    """What the options say of the cluster; ``kserve``: its release where it was looked up."""
    return Cluster(
        kserve=options.get("kserve") or kserve,
        kubernetes=options.get("kubernetes"),
        air_gapped=bool(options.get("air_gapped")),
        node_disk_gib=options.get("node_disk"),
        claim=options.get("claim"),
        shared=options.get("shared"),
        registry=options.get("registry"),
        token_secret=options.get("token_secret"),
    )


def stage(
    source: Source,
    before: Service,
    spec: Spec,
    options: dict[str, Any],
    *,
    target: ModelFacts | None,
    draft: ModelFacts | None,
    entry: Draft | None,
) -> tuple[Spec, StagingPlan | None, Edit]:
    """The spec with the draft's path in the pod, how it gets there, and the edit of the storage.

    A draft that an earlier rollout staged goes with the edit, so that two never pile up.

    Raises:
        InputError: no staging mode is available.
    """
    if spec.draft is None or before.kind != "InferenceService":
        return spec, None, without_draft
    bare = without_draft(before)
    if any(_below(spec.draft, place) for place in _staged_at(before, bare)):
        bare = before  # it names what is staged already
    revision = spec.settings.get("revision")
    size = options.get("draft_size") or (None if draft is None else draft.weight_gib)
    if size is None and entry is not None:
        size = entry.loaded_gib or (None if entry.size_b is None else entry.size_b * 2e9 / 2**30)
    pinned = revision if isinstance(revision, str) else ""
    here = source.model_facts(spec.draft) is not None
    wanted = DraftSource(spec.draft, pinned, size, _weights(target), here=here)
    plan = plan_staging(bare, wanted, cluster_of(options), mode=options.get("staging_mode"))
    settings = {**spec.settings, "model": plan.path}
    if plan.mode != "engine":
        settings.pop("revision", None)
    elif wanted.revision != "main":
        settings["revision"] = wanted.revision
    staged = replace(spec, settings=settings)

    def edit(service: Service) -> Service:
        clean = service if bare is before else without_draft(service)
        return plan_staging(clean, wanted, cluster_of(options), mode=plan.mode).service

    return staged, plan, edit


def _staged_at(before: Service, bare: Service) -> list[str]:
    """Where a draft that is staged already lies: the mount of its own, or its folder in the image that replaced the
    target's.
    """
    if bare is before:
        return []
    swapped = [one for one in before.storage if one not in bare.storage]
    return [DRAFT_MOUNT, *(f"{one.mount_path.rstrip('/')}/draft" for one in swapped)]


def _below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def staging_findings(plan: StagingPlan | None) -> tuple[Finding, ...]:
    """What a staging plan has to say in a preflight: what must be prepared refuses until it is said to be done."""
    if plan is None:
        return ()
    source = "kserve/kserve v0.15.2 to v0.20.0, restated in mpctl/staging/kserve.py"
    if plan.mode == "present":
        source = "the manifest's mounts; what they hold cannot be listed from here"
        return tuple(Finding("draft-staging", "note", text, source, "mpctl stage explains") for text in plan.warnings)
    said = [
        Finding(
            "draft-staging",
            "note",
            f"{plan.mode}: {plan.reason}; {'; '.join(plan.steps)}",
            source,
            "mpctl stage explains",
        )
    ]
    said += [Finding("draft-staging", "note", text, source, "mpctl stage explains") for text in plan.warnings]
    if plan.prepares:
        said.insert(
            0,
            Finding(
                "draft-not-staged",
                "refuse",
                f"{plan.steps[0]}; the pod would not start, or the engine would not find {plan.path}",
                source,
                "mpctl stage with the same options prints what to prepare; once it is there",
            ),
        )
    return tuple(said)


def memory_of(
    before: Service,
    target: ModelFacts | None,
    draft: ModelFacts | None,
    options: dict[str, Any],
    *,
    log: str | None = None,
    concurrency: int | None = None,
) -> Estimate:
    """The KV pool before and after.

    Raises:
        NotEstimated: dimensions or memory are not known.
        InputError: ``--gpu`` names no GPU of the table.
    """
    from mpctl.estimate.facts import loaded_gib, served_numbers
    from mpctl.estimate.memory import read_log

    product = options.get("gpu")
    gib = None if product is None else gpu_gib(product)
    if product is not None and gib is None:
        raise InputError(f"{product!r} is not in the table", field="--gpu", hint=f"known: {', '.join(gpus())}")
    shape = (target.shape if target else None) or model_shape(target_name_of(before, target.name if target else None))
    if shape is None:
        raise NotEstimated("the target's dimensions are not known")
    if draft is None or draft.shape is None or draft.weight_gib is None or draft.shape.hybrid:
        raise NotEstimated("what the draft takes is not known")
    numbers = served_numbers(before, target)
    if numbers.max_model_len is None:
        raise NotEstimated("the longest request is not known; --max-model-len names it")
    tensor = numbers.tensor_parallel
    served = Served(
        numbers.max_model_len,
        gib,
        numbers.utilisation,
        numbers.max_num_seqs or (None if product is None or gib is None else default_sequences(product, gib)),
        tensor,
        numbers.kv_element_bytes,
        concurrency,
    )
    joined = DraftMemory(draft.weight_gib / tensor, kv_bytes_of(draft.shape, served))
    said = None if log is None else read_log(log)
    return estimate(shape, joined, served, log=said, target_gib=loaded_gib(before, target, shape))


def _weights(target: ModelFacts | None) -> float | None:
    return None if target is None else target.weight_gib
