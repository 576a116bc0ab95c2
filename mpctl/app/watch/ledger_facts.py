"""Facts about a service from the ledger and the platform, as far as the watch needs them.

The state of a fallback is never stored twice: which changes the watch made, when, and what they replaced follows from
the ledger. A new leader therefore continues where the last one was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mpctl.app.session.base import Session, SystemClock, who
from mpctl.errors import InputError, MpctlError
from mpctl.estimate.facts import running_findings
from mpctl.methods import Finding, Spec, spec_text
from mpctl.methods.versions import engine_release
from mpctl.records import restored
from mpctl.rollout.ledger import live_revisions
from mpctl.rollout.operation import (
    Ending,
    Operation,
    last_change,
    operations,
    unfinished_operation,
)
from mpctl.rollout.plan import Kind, Plan
from mpctl.watch.assessment import ANSWERS
from mpctl.watch.decision import Rung, ladder
from mpctl.watch.reference import RECORD, Reference
from mpctl.watch.sentinel import RECORD as SENTINELS
from mpctl.watch.sentinel import Sentinels
from mpctl.watch.watch_policy import WatchPolicy

WATCH = "watch"
_OPERATIONS = 6  # the last ones, that may hold sentinels
ACKNOWLEDGED = "acknowledged"  # the record of a fallback that a person has seen


@dataclass(frozen=True)
class Fallback:
    """A fallback of the watch that nothing has replaced. ``replaced`` and ``serves``: specs in words; ``method``: what
    a rollout would measure again; ``acknowledged``: by whom, empty while nobody has."""

    operation: str
    at: str
    cause: str
    replaced: str
    serves: str
    method: str
    acknowledged: str = ""

    def describe(self, session: Session) -> str:
        """The fallback in a sentence, with the command that tries the speculation again."""
        by = f"; acknowledged by {self.acknowledged}" if self.acknowledged else ""
        again = f"'{session.command('rollout', '--spec', self.method)}' measures it again"
        what = f"fell back from {self.replaced} to {self.serves} at {self.at} ({self.operation})"
        return f"{what}: {self.cause}{by}; {again}"


@dataclass(frozen=True)
class LedgerFacts:
    """A service as its ledger and its lock tell of it. Times are Unix times."""

    live: Rung | None = None  # the revision that serves
    reference: Reference | None = None  # of the live revision
    unread: str = ""  # why a stored reference cannot be used
    operation: str = ""  # the last change, under which the watch keeps what it records
    sentinels: tuple[Sentinels, ...] = ()  # recorded ones, those of the newest operation first
    speculates: bool = False
    rungs: tuple[Rung, ...] = ()
    changes: tuple[float, ...] = ()  # of the spec, by the watch
    fallbacks: tuple[float, ...] = ()
    restarts: tuple[float, ...] = ()  # by the watch
    actions: tuple[
        float, ...
    ] = ()  # what the brake counts: a restart and the fallback after it are one
    replaced_spec: Spec | None = None  # the spec that a fallback of the watch replaced
    fell_back: Fallback | None = None  # that fallback
    promotion: Plan | None = None  # the plan that had promoted the replaced spec
    known_bad: tuple[Finding, ...] = ()  # what is known to fail of the speculation that serves
    interrupted: str = ""  # an unfinished operation of the watch
    busy: str = ""  # any other operation or operator


def read_facts(session: Session, policy: WatchPolicy) -> LedgerFacts:
    """Read the ledger of a service.

    Raises:
        MpctlError: it cannot be read, or was changed by another writer.
    """
    entries, revisions = session.store.entries(), session.store.revisions()
    every = operations(entries)
    facts = _facts_of_own_changes(every, unfinished_operation(entries), session.holder())
    last = last_change(entries)
    if last is None:
        return facts
    served = live_revisions(entries)
    goal = last.plan.goal
    number = max((r.number for r in revisions if r.digest == goal.digest), default=goal.number)
    live = _rung(number, last.plan.spec)
    reference, unread = _reference(session, last, every)
    candidates = [_rung(r.number, r.spec) for r in revisions if r.number in served]
    facts = replace(
        facts,
        live=live,
        reference=reference,
        unread=unread,
        operation=last.id,
        sentinels=_sentinels(session, [op.id for op in reversed(every)]),
        speculates=_speculates(last.plan.spec),
        known_bad=_known_bad(session) if _speculates(last.plan.spec) else (),
        rungs=ladder(policy, candidates, live, _previous(every, last)),
    )
    wrong = any(last.plan.why.startswith(f"{WATCH}: {signal.value}:") for signal in ANSWERS)
    replaced = last.plan.baseline_spec if _is_fallback(last) else None
    if replaced is None or not _speculates(replaced):
        return facts
    promotion = _promotion(every, last.plan.baseline.digest)
    # Wrong answers are tried again by a person alone.
    return replace(
        facts,
        replaced_spec=None if wrong else replaced,
        fell_back=_fallback(session, last, replaced),
        promotion=promotion,
    )


def _facts_of_own_changes(
    every: Iterable[Operation], unfinished: Operation | None, holder: str | None
) -> LedgerFacts:
    """When the watch itself changed the service, and what is under way."""
    mine = [op for op in every if op.plan.by == WATCH]
    restarts = [op for op in mine if op.plan.kind is Kind.RESTART]
    fresh = {op.id for op in restarts}  # the rollback of one that failed changes no spec either
    other = [op for op in mine if op.id not in fresh and op.plan.rollback.undoes not in fresh]
    fallbacks = tuple(
        at for op in mine if _is_fallback(op) and (at := _seconds(op.opened_at)) is not None
    )
    restarted = tuple(at for op in restarts if (at := _seconds(op.opened_at)) is not None)
    interrupted = (
        unfinished.id
        if unfinished is not None and unfinished.plan.by == WATCH and holder is None
        else ""
    )
    return LedgerFacts(
        changes=tuple(
            at for op in other if (at := _seconds(op.closed_at or op.opened_at)) is not None
        ),
        fallbacks=fallbacks,
        restarts=restarted,
        actions=(*fallbacks, *(at for at in restarted if at > max(fallbacks, default=0.0))),
        interrupted=interrupted,
        busy="" if interrupted else _busy(unfinished, holder),
    )


def _is_fallback(operation: Operation) -> bool:
    """Return whether the watch fell back; the automatic rollback of its own rollout is no fallback."""
    plan = operation.plan
    return plan.by == WATCH and plan.kind is Kind.ROLLBACK and not plan.rollback.automatic


def _fallback(session: Session, last: Operation, replaced: Spec) -> Fallback:
    record = session.store.load(last.id, ACKNOWLEDGED, again=True) or {}
    return Fallback(
        operation=last.id,
        at=last.closed_at or last.opened_at,
        cause=last.plan.why.removeprefix(f"{WATCH}: "),
        replaced=replaced.describe(),
        serves=last.plan.spec_text,
        method=replaced.method,
        acknowledged=str(record.get("by", "")),
    )


def _known_bad(session: Session) -> tuple[Finding, ...]:
    service = session.service()
    target = session.model_facts(session.target_of(service))
    release = engine_release(
        session.engine_version(service), service.stated_releases()
    )  # no engine is asked
    return running_findings(service, engine_version=release, target=target)


def _speculates(spec: Spec | None) -> bool:
    return spec is not None and spec.config() is not None


def _rung(number: int, spec: Spec | None) -> Rung:
    return Rung(number, spec.method if spec is not None else "", spec_text(spec))


def _previous(every: Iterable[Operation], last: Operation) -> int | None:
    """The revision before the promotion of what serves, also where a rollback restored it; None where it was never
    promoted."""
    promotion = (
        last.plan if last.ending is Ending.PROMOTED else _promotion(every, last.plan.goal.digest)
    )
    return None if promotion is None else promotion.baseline.number


def _promotion(every: Iterable[Operation], digest: str) -> Plan | None:
    """Return the plan that last promoted a manifest."""
    plans = [
        op.plan for op in every if op.ending is Ending.PROMOTED and op.plan.goal.digest == digest
    ]
    return plans[-1] if plans else None


def _reference(
    session: Session, last: Operation, every: Sequence[Operation]
) -> tuple[Reference | None, str]:
    """The measurement of what serves: of this promotion, or of the last one of the manifest that was restored."""
    digest = last.plan.goal.digest
    promotions = [
        op.id for op in every if op.ending is Ending.PROMOTED and op.plan.goal.digest == digest
    ]
    names = [*([last.id] if last.plan.kind is Kind.ROLLOUT else []), *reversed(promotions)]
    try:
        for name in names:
            record = session.store.load(name, RECORD)
            if record is not None:
                what = f"reference of {name}"
                return restored(
                    what,
                    Reference.from_record,
                    record,
                    hint=f"measure again: {session.command('rollout', '--spec', 'METHOD')}",
                ), ""
    except MpctlError as error:
        return None, error.message
    return None, ""


def _sentinels(session: Session, names: list[str]) -> tuple[Sentinels, ...]:
    """Recorded sentinels of the last operations. They hold as long as the engine is the same, whatever drafts."""
    records = (session.store.load(name, SENTINELS) for name in names[:_OPERATIONS])
    try:
        return tuple(
            restored("sentinels", Sentinels.from_record, record, hint="")
            for record in records
            if record is not None
        )
    except MpctlError:
        return ()


def _busy(unfinished: Operation | None, holder: str | None) -> str:
    if holder is not None:
        return f"held by {holder}"
    return "" if unfinished is None else f"{unfinished.id} is unfinished"


def _seconds(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def acknowledge(session: Session) -> str:
    """Record that somebody has seen the last fallback. Returns what was acknowledged, in words.

    Raises:
        InputError: the watch did not fall back, or the service has changed since.
        Conflict: somebody else works on the service.
    """
    fell_back = read_facts(session, WatchPolicy()).fell_back
    if fell_back is None:
        raise InputError(
            f"{session.title}: no fallback of the watch is in effect",
            hint=f"run '{session.command('history')}' to list what was done",
        )
    if fell_back.acknowledged:
        return f"{session.title}: {fell_back.operation} was acknowledged by {fell_back.acknowledged} before"
    with session.store.lease("acknowledge"):
        record = {"by": who(), "at": SystemClock().now().isoformat(timespec="seconds")}
        session.store.save(fell_back.operation, ACKNOWLEDGED, record)
    return f"{session.title}: acknowledged that it {fell_back.describe(session)}"
