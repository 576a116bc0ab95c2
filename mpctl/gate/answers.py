"""Examine the answers of a pass: pairs of answers in, an :class:`AnswerCheck` without any text out. Pure.

A rule that cannot run says so in its count; none passes because it had nothing to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mpctl.experiment.answers import (
    OWN,
    Answer,
    AnswerCheck,
    AnswerFinding,
    AnswerRule,
    Level,
    Pair,
    Repeat,
    Reproduction,
    RuleCount,
    Tie,
)
from mpctl.experiment.block import CUT
from mpctl.gate.answer_forms import (
    ALPHA,
    OTHER_CALLS,
    Invalid,
    call_difference,
    excess_by_chance,
    invalid_kinds,
    rendering_fault,
    stream_fault,
    stream_twins,
)
from mpctl.gate.answer_law import REFUSES, examine_law
from mpctl.gate.answer_tokens import (
    BROKEN,
    FEWEST,
    TokenFault,
    first_of,
    other_end,
    same_seed,
    sampled_groups,
    settled,
    tie_of,
    token_fault,
    wider,
)

_CONFIRMED = 3  # findings of a rule whose requests are sent again
_LISTED = 20  # findings of a rule that are recorded
_TEXT_ONLY = "the endpoint gives no token ids, and several token ids make the same text"
_HINTS = 2.0  # e-value; without a fault it falls as answers come in

Result = tuple[RuleCount, list[AnswerFinding]]


@dataclass(frozen=True)
class _AnsweredPass:
    """The pairs of a pass that both arms answered, and what holds for all of them."""

    pairs: Sequence[Pair]
    level: Level
    tie: Tie | None
    again: Mapping[int, int]  # number of the first request by that of its repetition
    gone: bool = False  # the baseline, before the candidate answered
    unscorable: str = ""

    @property
    def answered(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.baseline.error and not pair.candidate.error]

    def without_ids(self) -> str:
        """Say why no token can be compared; "" where they can."""
        return "" if self.level is not Level.PARSED else "the endpoint gives no token ids"

    def without_tie(self) -> str:
        """Say why no token can be judged; "" where tau is known."""
        if reason := self.unscorable or self.without_ids():
            return reason
        if self.tie is None or self.tie.answers < FEWEST:
            return f"fewer than {FEWEST} answers of the baseline were scored, so its rounding is unknown"
        if self.tie.tau > BROKEN:
            return (
                f"the baseline itself is broken: it chose a token that it finds {self.tie.largest:.1f} nats less "
                "likely than the best one"
            )
        return ""


def examine(
    pairs: Sequence[Pair],
    *,
    fidelity: str,
    level: Level,
    gone: bool = False,
    unscorable: str = "",
    rules: Iterable[AnswerRule] = tuple(AnswerRule),
    tie: Tie | None = None,
) -> AnswerCheck:
    """Return what the answers of one pass show. ``level``: what the engines told of every answer. ``gone``: the
    baseline had left the GPU before the candidate answered, and scores nothing that the candidate samples.
    ``unscorable``: why the baseline's scores cannot be used; ``tie``: as another pass measured it."""
    again = first_of(pairs) if AnswerRule.SESSIONS in rules else {}
    ties = wider(tie, tie_of(p for p in pairs if p.number not in again))
    answers = _AnsweredPass(pairs, level, ties, again, gone, unscorable)
    results: dict[AnswerRule, Result] = {rule: _RULES[rule](answers) for rule in rules}
    equal = sum(pair.equal for pair in answers.answered)
    greedy = [
        pair
        for pair in answers.answered
        if pair.ask.greedy and pair.baseline.ids != pair.candidate.ids
    ]
    faulty = {
        f.number
        for _, findings in results.values()
        for f in findings
        if f.rule in _OF_TOKENS and not f.on_baseline
    }
    return AnswerCheck(
        fidelity=fidelity,
        level=level,
        requests=len(pairs),
        scored=sum((pair.own is not None) + (pair.scored is not None) for pair in pairs),
        rules={rule: count for rule, (count, _) in results.items()},
        compared=dict(Counter(pair.ask.kind for pair in answers.answered)),
        equal=equal,
        tied=sum(pair.scored is not None and pair.number not in faulty for pair in greedy),
        tie=answers.tie,
        findings=tuple(f for _, findings in results.values() for f in findings[:_LISTED]),
        settled=_settled(answers),
    )


def level_of(answers: Iterable[Answer]) -> Level:
    """Return what is known of every answer."""
    answered = [answer for answer in answers if not answer.error]
    if answered and all(answer.ids and not answer.tokenized for answer in answered):
        return Level.IDS
    return Level.TEXT if any(answer.tokenized for answer in answered) else Level.PARSED


def merged(first: AnswerCheck | None, second: AnswerCheck) -> AnswerCheck:
    """Return two checks of the same rules as one; requests are numbered on."""
    if first is None:
        return second
    shifted = tuple(replace(f, number=f.number + first.requests) for f in second.findings)
    return replace(
        first,
        level=max(first.level, second.level, key=list(Level).index),
        requests=first.requests + second.requests,
        scored=first.scored + second.scored,
        rules={rule: _added(first.rules[rule], count) for rule, count in second.rules.items()},
        compared=dict(Counter(first.compared) + Counter(second.compared)),
        equal=first.equal + second.equal,
        tied=first.tied + second.tied,
        unscored=first.unscored + second.unscored,
        tie=second.tie or first.tie,
        findings=(*first.findings, *shifted)[:_LISTED],
    )


def _added(first: RuleCount, second: RuleCount) -> RuleCount:
    return replace(
        first,
        compared=first.compared + second.compared,
        baseline=first.baseline + second.baseline,
        candidate=first.candidate + second.candidate,
        alone=first.alone + second.alone,
        missing=first.missing or second.missing,
        applies=first.applies or second.applies,
        impossible=first.impossible or second.impossible,
    )


def promises(check: AnswerCheck) -> bool:
    """Return whether more sampled answers may show a fault that these hint at: an e-value is valid at any time, so a
    pass may go on for as long as it likes."""
    e_value = check.rules.get(AnswerRule.LAW, RuleCount()).e_value
    return e_value is not None and _HINTS < e_value <= REFUSES


def to_confirm(check: AnswerCheck) -> tuple[int, ...]:
    """Return the numbers of the requests to send again alone, at most a few of each rule; none where no rule findings
    anything that would refuse."""
    numbers: set[int] = set()
    for rule, count in check.rules.items():
        if _refuses(rule, count):
            mine = [
                f.number
                for f in check.findings
                if f.rule is rule and f.confirmed is None and not f.on_baseline
            ]
            numbers.update(dict.fromkeys(mine[:_CONFIRMED]))
    return tuple(sorted(numbers))


def confirm(check: AnswerCheck, pairs: Sequence[Pair], repeats: Sequence[Repeat]) -> AnswerCheck:
    """Return the check with its findings confirmed or not. ``pairs``: those of the check; ``repeats``: of the requests
    of :func:`to_confirm`, in any order; a finding without one stays unconfirmed."""
    first, again = (
        {pair.number: pair for pair in pairs},
        {repeat.alone.number: repeat for repeat in repeats},
    )
    findings = tuple(
        _confirmed(f, first[f.number], again[f.number], check)
        if f.number in again and f.confirmed is None and not f.on_baseline
        else f
        for f in check.findings
    )
    return replace(check, findings=findings)


def refusing(check: AnswerCheck, rule: AnswerRule) -> tuple[AnswerFinding, ...]:
    """Return the confirmed findings for which a rule refuses."""
    if not _refuses(rule, check.rules.get(rule, RuleCount())):
        return ()
    return tuple(f for f in check.findings if f.rule is rule and f.confirmed and not f.on_baseline)


def open_findings(check: AnswerCheck, rule: AnswerRule) -> tuple[AnswerFinding, ...]:
    """Return the findings that would refuse and were not confirmed yet, or that the baseline has as well."""
    if not _refuses(rule, check.rules.get(rule, RuleCount())):
        return ()
    return tuple(
        f for f in check.findings if f.rule is rule and (f.on_baseline or f.confirmed is None)
    )


def _refuses(rule: AnswerRule, count: RuleCount) -> bool:
    """Return whether a rule's evidence refuses if it is confirmed: rates need their test, everything else one fault."""
    if rule is AnswerRule.VALIDITY:
        return count.p is not None and count.p <= ALPHA
    return count.candidate > 0


def _tokens(answers: _AnsweredPass) -> Result:
    return _of_greedy(
        answers, [p for p in answers.answered if p.ask.greedy and p.number not in answers.again]
    )


def _sessions(answers: _AnsweredPass) -> Result:
    repeated = [pair for pair in answers.answered if pair.number in answers.again]
    count, findings = _of_greedy(answers, repeated)
    return count, [
        replace(f, rule=AnswerRule.SESSIONS, fault=f"asked again after other requests, {f.fault}")
        for f in findings
    ]


def _of_greedy(answers: _AnsweredPass, pairs: Sequence[Pair]) -> Result:
    """Judge greedy answers: equal ones are right, others by the margin of their tokens."""
    if not pairs:
        return RuleCount(applies=False, missing=answers.without_ids() if answers.pairs else ""), []
    if reason := answers.without_tie():
        return RuleCount(missing=reason, impossible=reason == answers.unscorable), []
    assert answers.tie is not None
    tau, findings, compared, unscored, own_faults = answers.tie.tau, list[AnswerFinding](), 0, 0, 0
    for pair in (pair for pair in pairs if pair.baseline.ids and pair.candidate.ids):
        fault = _fault(pair, tau)
        unscored += (
            fault is None and pair.scored is None and pair.candidate.ids != pair.baseline.ids
        )
        baseline_fault = _own_fault(pair, tau)
        own_faults += baseline_fault is not None
        compared += 1
        if fault or baseline_fault:
            findings.append(
                _finding(
                    AnswerRule.TOKENS,
                    pair,
                    fault or baseline_fault,
                    on_baseline=baseline_fault is not None,
                )
            )
    missing = (
        f"{unscored} of {compared} answers could not be scored by the baseline" if unscored else ""
    )
    hits = sum(not f.on_baseline for f in findings)
    return RuleCount(
        compared - unscored, own_faults, hits + own_faults, hits, missing=missing
    ), findings


def _fault(pair: Pair, tau: float) -> TokenFault | None:
    if pair.scored is None or pair.candidate.ids == pair.baseline.ids:
        return other_end(pair.candidate, pair.baseline)
    return token_fault(pair.ask, pair.candidate, pair.scored, pair.baseline, pair.own, tau)


def _own_fault(pair: Pair, tau: float) -> TokenFault | None:
    """A fault of the baseline's own answer, by its own scores."""
    if pair.own is None or pair.ask.reshaped:
        return None
    return token_fault(pair.ask, pair.baseline, pair.own, pair.baseline, pair.own, tau)


def _law(answers: _AnsweredPass) -> Result:
    sampled = [p for p in answers.answered if not p.ask.greedy and not p.ask.reshaped]
    if not sampled:
        return RuleCount(applies=False), []
    if reason := answers.without_ids():
        return RuleCount(missing=reason), []
    if answers.gone:
        reason = "the baseline had left the GPU before the candidate sampled, and scores nothing any more"
        return RuleCount(missing=reason, impossible=True), []
    if answers.unscorable:
        return RuleCount(missing=answers.unscorable, impossible=True), []
    if answers.level is Level.TEXT:
        return RuleCount(missing=_TEXT_ONLY, impossible=True), []
    spread = answers.tie.spread if answers.tie else 0.0
    scored = [
        (p.number, p.ask.temperature, p.ask.top_p, p.scored)
        for p in sampled
        if p.scored is not None
    ]
    references = [
        (p.number, p.ask.temperature, p.ask.top_p, p.own) for p in sampled if p.own is not None
    ]
    result, control = examine_law(scored, spread), examine_law(references, spread)
    on_baseline = control.crossed is not None or bool(control.outside)
    by_number = {pair.number: pair for pair in sampled}
    findings = []
    if result.crossed is not None:
        fault = TokenFault("tokens are not drawn by the baseline's probabilities", 0)
        findings.append(
            _finding(AnswerRule.LAW, by_number[result.crossed], fault, on_baseline=on_baseline)
        )
    for number, position, margin in ((o.number, o.position, o.margin) for o in result.outside):
        pair = by_number[number]
        token = pair.candidate.ids[position] if position < len(pair.candidate.ids) else None
        fault = TokenFault("a token outside the nucleus", position, token, margin=margin)
        findings.append(_finding(AnswerRule.LAW, pair, fault, on_baseline=on_baseline))
    unscored = len(sampled) - result.answers
    missing = (
        f"{unscored} of {len(sampled)} answers could not be scored by the baseline"
        if unscored
        else ""
    )
    if not result.tokens:
        missing = "no token has known alternatives; the baseline must report 20 (--max-logprobs)"
    alone = 0 if on_baseline else len({f.number for f in findings})
    count = RuleCount(
        result.answers,
        int(on_baseline),
        len({f.number for f in findings}),
        alone,
        None,
        result.e_value,
        missing,
    )
    return count, findings


def _rendering(answers: _AnsweredPass) -> Result:
    if not answers.answered:
        return RuleCount(applies=False), []
    if reason := answers.without_ids():
        return RuleCount(missing=reason), []
    if answers.level is Level.TEXT:
        return RuleCount(missing=_TEXT_ONLY), []
    findings: list[AnswerFinding] = []
    compared = 0
    for pair in answers.answered:
        if not pair.candidate.ids or pair.candidate.ids != pair.baseline.ids:
            continue
        compared += 1
        if pair.ask.stream and pair.baseline.finish == pair.candidate.finish == CUT:
            continue  # servers render an answer that was cut off in several ways
        if fault := rendering_fault(pair.baseline, pair.candidate):
            fault += f" of the same tokens{_named(pair, fault)}"
            findings.append(_finding(AnswerRule.RENDERING, pair, TokenFault(fault, 0)))
    for plain, streamed in stream_twins(answers.answered):
        compared += 1
        if fault := stream_fault(plain.candidate, streamed.candidate):
            fault += _named(replace(streamed, baseline=plain.candidate), fault)
            also = bool(stream_fault(plain.baseline, streamed.baseline))
            findings.append(
                _finding(AnswerRule.RENDERING, streamed, TokenFault(fault, 0), on_baseline=also)
            )
    missing = "" if compared else "no two answers have the same token ids"
    alone = len({f.number for f in findings if not f.on_baseline})
    baseline_count = len({f.number for f in findings if f.on_baseline})
    return RuleCount(
        compared, baseline_count, alone + baseline_count, alone, missing=missing
    ), findings


def _named(pair: Pair, fault: str) -> str:
    """Say how the calls of a pair differ, where the request is generated: names of users' stay theirs."""
    if pair.ask.kind == OWN or not fault.startswith(OTHER_CALLS):
        return ""
    return f" ({call_difference(pair.baseline, pair.candidate)})"


def _validity(answers: _AnsweredPass) -> Result:
    if not answers.pairs:
        return RuleCount(applies=False), []
    findings: list[AnswerFinding] = []
    worse: Counter[Invalid] = Counter()
    better: Counter[Invalid] = Counter()
    own_faults = faults = alone = 0
    for pair in answers.pairs:
        before, after = (
            invalid_kinds(pair.ask, pair.baseline),
            invalid_kinds(pair.ask, pair.candidate),
        )
        worse.update(after - before)
        better.update(before - after)
        own_faults, faults, alone = (
            own_faults + bool(before),
            faults + bool(after),
            alone + bool(after and not before),
        )
        if new := sorted(after - before):
            findings.append(_finding(AnswerRule.VALIDITY, pair, TokenFault(new[0].value, 0)))
    p = min((excess_by_chance(worse[kind], better[kind]) for kind in Invalid), default=1.0)
    count = RuleCount(
        len(answers.pairs), own_faults, faults, alone, p, unread=_unread_schemas(answers.pairs)
    )
    return count, findings


def _unread_schemas(pairs: Iterable[Pair]) -> str:
    """Name the requests whose schemas could not be read, which therefore fit every answer; "" without any."""
    reasons = [
        (pair, pair.candidate.unread_schema or pair.baseline.unread_schema) for pair in pairs
    ]
    unread = [
        f"request {pair.number} ({pair.ask.kind}): {reason}" for pair, reason in reasons if reason
    ]
    if not unread:
        return ""
    return f"{len(unread)} schemas cannot be read: {unread[0]}" + (
        "; and others" if len(unread) > 1 else ""
    )


def _seeds(answers: _AnsweredPass) -> Result:
    groups = sampled_groups(answers.answered)
    if not groups:
        return RuleCount(applies=False), []
    if reason := answers.without_ids():
        return RuleCount(missing=reason), []
    findings, own_faults, compared = list[AnswerFinding](), 0, 0
    for group in groups:
        mine = [(p.number, p.candidate, p.scored.logprobs) for p in group if p.scored is not None]
        theirs = [
            (p.number, p.baseline, p.own.logprobs if p.own else p.baseline.logprobs) for p in group
        ]
        group_answers = same_seed(
            [(n, a, logs) for n, a, logs in theirs if len(logs) == len(a.ids)]
        )
        compared += len(mine)
        own_faults += group_answers is not None
        if (number := same_seed(mine)) is not None:
            pair = next(p for p in group if p.number == number)
            fault = TokenFault("an answer that repeats another one of the same sampled request", 0)
            findings.append(
                _finding(AnswerRule.SEEDS, pair, fault, on_baseline=group_answers is not None)
            )
    alone = sum(not f.on_baseline for f in findings)
    missing = "" if compared else "no answer was scored by the baseline"
    return RuleCount(compared, own_faults, len(findings), alone, missing=missing), findings


_RULES: Mapping[AnswerRule, Callable[[_AnsweredPass], Result]] = {
    AnswerRule.TOKENS: _tokens,
    AnswerRule.LAW: _law,
    AnswerRule.RENDERING: _rendering,
    AnswerRule.VALIDITY: _validity,
    AnswerRule.SESSIONS: _sessions,
    AnswerRule.SEEDS: _seeds,
}
_OF_TOKENS = (AnswerRule.TOKENS, AnswerRule.SESSIONS)


def _settled(answers: _AnsweredPass) -> dict[str, str]:
    if answers.tie is None or answers.without_tie():
        return {}
    digests = {}
    for pair in answers.answered:
        if pair.ask.greedy and pair.own is not None:
            digests[pair.ask.digest] = settled(pair.ask, pair.baseline, pair.own, answers.tie.tau)
    return {request: digest for request, digest in digests.items() if digest}


def _finding(
    rule: AnswerRule, pair: Pair, fault: TokenFault | None, *, on_baseline: bool = False
) -> AnswerFinding:
    assert fault is not None
    of_token = fault.token is not None or fault.expected is not None
    return AnswerFinding(
        rule,
        pair.number,
        pair.ask.kind,
        fault.fault,
        position=fault.position if of_token else None,
        token=fault.token,
        expected=fault.expected,
        margin=fault.margin,
        shift=fault.shift,
        on_baseline=on_baseline,
    )


def _confirmed(
    finding: AnswerFinding, first: Pair, repeat: Repeat, check: AnswerCheck
) -> AnswerFinding:
    """Return the finding with what the repetition shows. Tokens are confirmed by a second score of the same answer;
    forms are a matter of the answer that arrived, which a baseline that is alone renders or validates as before."""
    alone, loaded = repeat.alone, repeat.loaded
    tau = check.tie.tau if check.tie else 0.0
    here = replace(first, scored=repeat.rescored)

    def has(pair: Pair) -> bool:
        return _has_fault(finding.rule, pair, tau, first)

    reproduction: Reproduction | None = (
        Reproduction.ALONE
        if has(alone)
        else Reproduction.LOADED
        if loaded and has(loaded)
        else Reproduction.TRANSIENT
    )
    if alone.candidate.error:
        reproduction = None  # it was not asked
    match finding.rule:
        case AnswerRule.TOKENS | AnswerRule.SESSIONS:
            ends = other_end(first.candidate, first.baseline) is not None  # which needs no score
            confirmed = (
                None if repeat.rescored is None and not ends else _fault(here, tau) is not None
            )
            on_baseline = _own_fault(alone, tau) is not None
        case AnswerRule.LAW | AnswerRule.SEEDS:
            scored, rescored = first.scored, repeat.rescored
            confirmed = (
                None
                if rescored is None
                else scored is not None
                and len(scored.logprobs) == len(rescored.logprobs)
                and all(
                    abs(a - b) <= max(tau, 1.0)
                    for a, b in zip(scored.logprobs, rescored.logprobs, strict=True)
                )
            )
            on_baseline, reproduction = False, None
        case AnswerRule.VALIDITY:
            confirmed = True
            on_baseline = bool(
                invalid_kinds(first.ask, alone.baseline) & invalid_kinds(first.ask, first.candidate)
            )
        case _:
            confirmed = True
            faulty, asked = first.candidate, alone.baseline
            # The baseline, asked alone, gives what the candidate gave.
            on_baseline = (
                not asked.error and asked.ids == faulty.ids and not rendering_fault(asked, faulty)
            )
    if check.level is Level.TEXT and confirmed and reproduction is Reproduction.TRANSIENT:
        confirmed = None  # a text has several token ids, so one draw proves nothing
    return replace(finding, confirmed=confirmed, on_baseline=on_baseline, reproduction=reproduction)


def _has_fault(rule: AnswerRule, pair: Pair, tau: float, first: Pair) -> bool:
    """Return whether fresh answers of both arms show a rule's fault again."""
    mine, theirs = pair.candidate, pair.baseline
    match rule:
        case AnswerRule.VALIDITY:
            return bool(invalid_kinds(pair.ask, mine) - invalid_kinds(pair.ask, theirs))
        case AnswerRule.RENDERING:
            return mine.ids == theirs.ids and bool(rendering_fault(theirs, mine))
    same = bool(mine.ids) and mine.ids == first.candidate.ids and mine.ids != theirs.ids
    return same or _fault(pair, tau) is not None
