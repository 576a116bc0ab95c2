"""Rules about the answers themselves: those of a pass of requests whose answers the baseline scored, and those of the
rounds.

One confirmed fault refuses. A fault that the baseline has as well leaves the verdict open, with the evidence: the
service is broken already, and a comparison with it proves nothing. A rule that could not run says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mpctl.experiment.answers import (
    AnswerCheck,
    AnswerFinding,
    AnswerRule,
    Level,
    Reproduction,
    RuleCount,
)
from mpctl.gate.answers import open_findings, refusing
from mpctl.gate.rule import Case, Direction, Outcome, Rule, RuleResult

_NOT_ASKED = "not asked: this measurement holds no pass of answers, as those of rollouts do"
_SHOWN = 2  # requests in a message


def _judged_by(
    name: AnswerRule, needed: Callable[[Case], bool]
) -> Callable[[Case, Rule], RuleResult]:
    """Make the judge of a rule. ``needed``: whether a verdict may not do without it."""

    def judge(case: Case, rule: Rule) -> RuleResult:
        check = case.analysis.run.answers
        if check is None:
            return RuleResult(Outcome.SKIP, _NOT_ASKED)
        return _judge(case, check, name, needed(case))

    return judge


def _judge(case: Case, check: AnswerCheck, name: AnswerRule, needed: bool) -> RuleResult:
    count = check.rules.get(name, RuleCount(applies=False))
    absent = Outcome.MISSING if needed and case.policy.min_scored_answers else Outcome.SKIP
    least = case.policy.min_scored_answers if name is AnswerRule.TOKENS else None
    value = (
        count.alone if least is None else count.compared
    )  # the limit is of the answers that are judged

    def result(outcome: Outcome, text: str) -> RuleResult:
        return RuleResult(outcome, text, value, least, n=count.compared, unit="answers")

    if refused := refusing(check, name):
        return result(Outcome.FAIL, f"{_summary(check, name, count)}; {_listed(refused, check)}")
    if open_ := open_findings(check, name):
        return result(Outcome.MISSING, _unsettled(open_, check, count))
    if count.missing:
        return result(
            Outcome.SKIP if count.impossible else absent, f"could not run because {count.missing}"
        )
    if not count.applies:
        return result(Outcome.SKIP, f"no request of the pass ({check.fidelity}) is for this rule")
    text = _summary(check, name, count)
    if least and count.compared < least:
        return result(Outcome.MISSING, f"{text}; at least {least:g} answers must be judged")
    return result(Outcome.PASS, text)


def _summary(check: AnswerCheck, name: AnswerRule, count: RuleCount) -> str:
    """Say what was compared, and how."""
    text = f"{count.alone} of {count.compared} answers have a fault that the baseline has not"
    if name is AnswerRule.TOKENS and check.level is Level.TEXT:
        text += "; the endpoint gives no token ids, so those of the texts are compared"
    if name is AnswerRule.TOKENS and check.tie is not None:
        text += (
            f"; {check.equal} of {sum(check.compared.values())} are equal, {check.tied} differ by a tie of at most "
            f"{check.tie.tau:.2f} nats"
        )
    if count.e_value is not None:
        text += f"; e-value {min(count.e_value, 1e9):.3g} (refused above 200)"
    if count.p is not None and count.candidate:
        text += f"; {count.baseline} answers of the baseline and {count.candidate} of the candidate are invalid"
        text += f" (p = {count.p:.2g}, refused up to 0.005)"
    if count.unread:
        text += f"; {count.unread}"
    refuted = sum(f.rule is name and f.confirmed is False for f in check.findings)
    return f"{text}; {refuted} not confirmed by a second score" if refuted else text


def _listed(findings: tuple[AnswerFinding, ...], check: AnswerCheck) -> str:
    """Name the first requests of findings, each with all that is wrong with it."""
    invalid = {f.number: f.fault for f in check.findings if f.rule is AnswerRule.VALIDITY}
    by_request: dict[int, list[AnswerFinding]] = {}
    for finding in findings:
        by_request.setdefault(finding.number, []).append(finding)
    sentences = [_sentence(group, invalid) for group in list(by_request.values())[:_SHOWN]]
    if len(by_request) > _SHOWN:
        sentences.append(f"and {len(by_request) - _SHOWN} more")
    return "; ".join(sentences)


def _sentence(findings: list[AnswerFinding], invalid: Mapping[int, str]) -> str:
    """A request: its number, what is wrong, position, both tokens and margin, what proves it, whether it occurs again.

    ``invalid``: by number, why an answer is invalid for its request.
    """
    first = findings[0]
    faults = [*(f.fault for f in findings), *filter(None, [invalid.get(first.number)])]
    text = f"request {first.number} ({first.kind}): {', '.join(dict.fromkeys(faults))}"
    if first.position is not None:
        chosen, best = ("the end" if t is None else str(t) for t in (first.token, first.expected))
        text += f", position {first.position}, token {chosen}" + (
            f" for {best}" if first.expected else ""
        )
    if first.margin is not None:
        text += f", {first.margin:.1f} nats"
    if first.confirmed and not first.on_baseline:
        text += f", proved by {'the answer itself' if first.rule in _FORMS else 'a second score'}"
    return f"{text}; {_AGAIN[first.reproduction]}" if first.reproduction else text


_FORMS = (AnswerRule.RENDERING, AnswerRule.VALIDITY)
_AGAIN = {
    Reproduction.ALONE: "it reproduces",
    Reproduction.LOADED: "it reproduces under load only",
    Reproduction.TRANSIENT: "it did not reproduce alone",
}


def _unsettled(findings: tuple[AnswerFinding, ...], check: AnswerCheck, count: RuleCount) -> str:
    on_baseline = tuple(f for f in findings if f.on_baseline)
    if on_baseline:
        return f"the baseline itself is broken: {_listed(on_baseline, check)}"
    return f"{count.alone} answers have a fault that could not be confirmed: {_listed(findings, check)}"


def _judge_outputs(case: Case, _: Rule) -> RuleResult:
    """Judge the rounds' own greedy answers. Equal ones need no score; others must be ties."""
    c, check = case.comparison, case.analysis.run.round_answers
    if not c.cell.greedy:
        return RuleResult(
            Outcome.SKIP, f"sampled at temperature {c.cell.temperature:g}: answers differ anyway"
        )
    if not c.compared:
        return RuleResult(Outcome.MISSING, "no prompt was answered by both arms with text")
    if check is None:
        text = f"{c.compared - c.different} of {c.compared} greedy texts are equal"
        outcome = Outcome.PASS
        if c.different:
            text += "; could not run for the others because no token ids are recorded, which tell ties from faults"
            outcome = Outcome.MISSING if case.policy.min_scored_answers else Outcome.SKIP
        return RuleResult(outcome, text, n=c.compared, unit="answers")

    count, compared = check.rules[AnswerRule.TOKENS], sum(check.compared.values()) + check.unscored
    refuted = sum(f.confirmed is False for f in check.findings)
    what = "token ids" if check.level is Level.IDS else "texts"
    text = f"{check.equal} of {compared} greedy answers have equal {what}"
    if check.tied and check.tie is not None:
        text += f", {check.tied} differ by a tie of at most {check.tie.tau:.2f} nats"
    if refuted:
        text += f", {refuted} by more, which a second score did not confirm"
    if check.unscored:
        text += f", {check.unscored} differ and were not scored (--fidelity full scores all)"

    def result(outcome: Outcome, ending: str = "") -> RuleResult:
        return RuleResult(outcome, text + ending, count.alone, n=compared, unit="answers")

    judged = (AnswerRule.TOKENS, AnswerRule.RENDERING)
    if refused := tuple(f for name in judged for f in refusing(check, name)):
        return result(Outcome.FAIL, f"; {_listed(refused, check)}")
    if open_ := tuple(f for name in judged for f in open_findings(check, name)):
        return result(Outcome.MISSING, f"; {_unsettled(open_, check, count)}")
    if check.equal + check.tied + refuted + check.unscored < compared:
        settled = count.impossible or not case.policy.min_scored_answers
        reason = count.missing or "they have no token ids"
        return result(
            Outcome.SKIP if settled else Outcome.MISSING,
            f"; could not run for the others because {reason}",
        )
    return result(Outcome.PASS)


def _always(case: Case) -> bool:
    return True


def _never(case: Case) -> bool:
    return False


def _row(name: AnswerRule, needed: Callable[[Case], bool], asks: str) -> Rule:
    judge = _judged_by(name, needed)
    fixed = "" if name is AnswerRule.TOKENS else "0 confirmed faults"
    minimum = Direction.MINIMUM
    return Rule(
        name.value,
        judge,
        "min_scored_answers",
        asks,
        "answers",
        minimum,
        about_answers=True,
        fixed=fixed,
    )


RULES = (
    Rule(
        "outputs",
        _judge_outputs,
        "",
        "The greedy answers of the rounds themselves must have equal token ids, or differ by a tie, as the baseline "
        "scores them between the rounds; where the endpoint gives no ids, those of the texts count.",
        fixed="0 answers that differ by more",
        unit="answers",
        direction=Direction.MINIMUM,
        about_answers=True,
    ),
    _row(
        AnswerRule.TOKENS,
        _always,
        "The candidate's greedy tokens must be the baseline's choice, or within a tie, by the baseline's score of the "
        "candidate's own token ids and a tie as wide as in the baseline's own answers.",
    ),
    _row(
        AnswerRule.LAW,
        lambda case: not case.comparison.cell.greedy,
        "Sampled tokens must be drawn by the baseline's probabilities, with an e-value of at most 200, and none from "
        "outside the nucleus.",
    ),
    _row(
        AnswerRule.RENDERING,
        _never,
        "Equal token ids must give the same text, reasoning, tool calls and finish reason, streamed or not.",
    ),
    _row(
        AnswerRule.VALIDITY,
        _always,
        "JSON must match its schema, tool calls name a known tool with valid arguments, and no call leak into the "
        "text; no repetition loops, cut-off documents and failed requests that the baseline has not (McNemar's exact "
        "test at 0.5 % for each kind).",
    ),
    _row(
        AnswerRule.SESSIONS,
        _never,
        "A turn asked again at the end, when others have used the cache, must be answered as the baseline would.",
    ),
    _row(
        AnswerRule.SEEDS,
        _never,
        "A request that is sampled several times must not give the same surprising answer twice.",
    ),
)
