"""Send sentinels to a service, and record them where a promotion left none. An answer exists in memory alone; events
and records have digests and counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex

from mpctl.app.session.base import Session
from mpctl.app.watch.ledger_facts import LedgerFacts
from mpctl.errors import MpctlError
from mpctl.experiment.answer_sets import sentinels_of
from mpctl.experiment.answers import Ask
from mpctl.json_types import Json
from mpctl.watch.sentinel import (
    RECORD,
    Check,
    Sentinels,
    changes_between,
    diagnose,
    first_check,
    prefix_digest,
    repetitions,
    settle,
    unanswerable,
)

_RECORDED = 6  # requests, of which some have an answer far from every tie
_GAPS = 3  # alternatives that come with each token: see mpctl.platform.answers.ask


@dataclass(frozen=True)
class SentinelResult:
    """The result of one sentinel, of how many requests. ``recorded``: sentinels that were recorded just now."""

    check: Check
    text: str
    sent: int = 0
    recorded: Sentinels | None = None


def ask_sentinel(
    session: Session, facts: LedgerFacts, own: Sentinels | None, turn: int, engines: int, now: str
) -> SentinelResult:
    """Send one sentinel, and repeat it where its answer is wrong. ``own``: sentinels that this process recorded;
    ``turn``: decides which one is sent.

    Raises:
        MpctlError: the service or its manifest cannot be read.
    """
    engine = session.engine_identity(session.service())
    recorded = [s for s in (own, *facts.sentinels) if s is not None]
    sentinels = next((s for s in recorded if s.engine == engine), None)
    if sentinels is None and recorded and facts.speculates:
        changed = changes_between(recorded[0].engine, engine)
        return SentinelResult(
            Check.UNVERIFIED,
            f"{changed} changed since the sentinels were recorded; a rollout records new ones",
        )
    if sentinels is None:
        return _record(session, facts, engine, now)
    prefix = session.store.unseal() or {} if sentinels.prefix else {}
    if prefix_digest(prefix) != sentinels.prefix:
        return SentinelResult(
            Check.UNVERIFIED, "the system prompt that the sentinels begin with is not at hand"
        )
    asks = [ask for ask in sentinels_of(prefix) if ask.digest in sentinels.settled]
    if not asks:
        return SentinelResult(
            Check.UNVERIFIED, "the sentinels are those of another version of mpctl"
        )
    ask = asks[turn % len(asks)]
    return _ask(session, ask, sentinels.settled[ask.digest], turn, repetitions(engines))


def _ask(session: Session, ask: Ask, settled: str, turn: int, count: int) -> SentinelResult:
    (answer,) = session.ask([ask], turn=turn)
    check = first_check(settled, answer)
    if check is not Check.WRONG:
        return SentinelResult(
            check, answer.error or ("no token ids came" if check is Check.UNKNOWN else ""), 1
        )
    again = session.ask([ask] * count, turn=turn)
    salted = [session.ask([ask], salt=token_hex(16), turn=turn)[0] for _ in range(count)]
    check = diagnose(settled, again, salted)
    wrong, fresh = (
        sum(first_check(settled, a) is Check.WRONG for a in answers) for answers in (again, salted)
    )
    text = f"wrong answers: {1 + wrong} of {1 + count}, and {fresh} of {count} with a cache salt of their own"
    return SentinelResult(check, text, 1 + 2 * count)


def _record(
    session: Session, facts: LedgerFacts, engine: Mapping[str, str], now: str
) -> SentinelResult:
    """Record sentinels from the service's own answers. They share nothing with users' prompts, which nobody kept."""
    method = facts.live.method if facts.live is not None else ""
    if reason := unanswerable(method):
        return SentinelResult(Check.UNVERIFIED, f"no sentinel is recorded: {reason}")
    asks, salt = sentinels_of({})[:_RECORDED], token_hex(16)
    answers = session.ask(asks, alternatives=_GAPS, salt=salt)
    again = session.ask(asks)
    rows = zip(asks, answers, again, strict=True)
    settled = {
        ask.digest: digest for ask, answer, other in rows if (digest := settle(answer, other))
    }
    if not settled:
        errors = {answer.error for answer in answers} - {""}
        why = ", ".join(sorted(errors)) or "none of its answers is far from every tie"
        return SentinelResult(Check.UNVERIFIED, f"no sentinel is recorded: {why}", 2 * len(asks))
    sentinels = Sentinels(now, engine, not facts.speculates, settled)
    _keep(session, facts, sentinels.to_record())
    by = "an engine without speculation" if sentinels.baseline else "the service itself"
    return SentinelResult(
        Check.RIGHT,
        f"{len(settled)} sentinels recorded from answers of {by}",
        2 * len(asks),
        sentinels,
    )


def _keep(session: Session, facts: LedgerFacts, record: Json) -> None:
    """A watch that may not write, or meets an operator, has them in memory until it ends."""
    if not facts.operation:
        return
    try:
        with session.store.lease("sentinels"):
            session.store.save(facts.operation, RECORD, record)
    except MpctlError:
        return
