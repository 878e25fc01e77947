"""What a measurement allows one to say: the four verdicts, and the finding that carries one.

A finding is a verdict with its evidence in one sentence and the numbers behind it. Timing and counting
both end in findings; a claim is judged by them. "Too noisy to tell" and "not testable here" are results
in their own right, so a finding is never squeezed into yes or no.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOLDS = "holds"
FAILS = "does not hold"
NOISY = "too noisy to tell"
UNTESTED = "not testable here"
VERDICTS = (HOLDS, FAILS, NOISY, UNTESTED)


@dataclass(frozen=True)
class Finding:
    """One verdict, the sentence that supports it, and the numbers behind the sentence.

    Args:
        verdict: one of `VERDICTS`.
        text: the evidence in one sentence, for a reader.
        data: the same evidence for a program; JSON-serialisable.
    """

    verdict: str
    text: str
    data: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict {self.verdict!r} is not one of {', '.join(VERDICTS)}")

    @property
    def holds(self) -> bool | None:
        """True, False, or None where nothing can be said."""
        return {HOLDS: True, FAILS: False}.get(self.verdict)


def finding(condition: bool, text: str, **data: object) -> Finding:
    """Turn an exact observation into a finding: it holds, or it does not."""
    return Finding(HOLDS if condition else FAILS, text, data)


def untested(reason: str, **data: object) -> Finding:
    """Say that this machine cannot decide, and why."""
    return Finding(UNTESTED, reason, data)


def combine(verdicts: list[str]) -> str:
    """Give the verdict on a whole whose parts got these verdicts.

    One part that does not hold decides; then a part that could not be tested; then a noisy one.
    """
    for verdict in (FAILS, UNTESTED, NOISY):
        if verdict in verdicts:
            return verdict
    return HOLDS
