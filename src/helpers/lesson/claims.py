"""The claims on trial and the card that shows a verdict.

`claims.toml` holds what the articles say and what we expect; a chapter's cell decides the claim live:

    claim("1.2").judge(speed.faster("eval"))

The verdict on the card is what this machine showed, not what we expected. A claim with several parts holds
only where every part holds.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..files import read_toml
from ..measure.verdicts import FAILS, HOLDS, NOISY, UNTESTED, Finding, combine, finding
from ..show.blocks import Block, Note, Quote, Reasons, Verdict
from ..show.display import Shown

_SYMBOLS = {HOLDS: "✓", FAILS: "✗", NOISY: "≈", UNTESTED: "–"}
_COLOURS = {HOLDS: "#00674f", FAILS: "#a63d00", NOISY: "#5c5c5c", UNTESTED: "#5c5c5c"}


@dataclass(frozen=True)
class Claim:
    """One claim of an article, as `claims.toml` states it."""

    id: str
    chapter: str
    article: str
    statement: str
    ruling: str
    correction: str
    decided: str

    def judge(
        self,
        evidence: bool | Finding | Mapping[str, bool | Finding],
        because: str = "",
    ) -> None:
        """Show the verdict on this claim.

        Args:
            evidence: one finding, or a plain bool with `because`, or a mapping from a part of the claim to
                its finding. With parts, the claim holds only where all of them do.
            because: the evidence in one sentence, for plain bools.

        Raises:
            TypeError: the evidence is neither bool nor Finding.
        """
        Card(self, self._parts(evidence, because)).show()

    def not_testable(self, reason: str) -> None:
        """Show that this machine cannot decide the claim, and why."""
        Card(self, {"": Finding(UNTESTED, reason)}).show()

    def _parts(self, evidence: object, because: str) -> dict[str, Finding]:
        parts = evidence if isinstance(evidence, Mapping) else {"": evidence}
        found = {}
        for part, value in parts.items():
            if isinstance(value, bool):
                value = finding(value, because)
            if not isinstance(value, Finding):
                raise TypeError(
                    f"claim {self.id} is judged by a Finding or a bool, not by {type(value).__name__}: "
                    "pass comparison.faster(...), or a bool with because='...'"
                )
            found[str(part)] = value
        if not found:
            raise TypeError(f"claim {self.id} needs at least one finding")
        return found


class Card(Shown):
    """A claim with the verdict that this machine gave."""

    kind = "claim"
    classes = "pitfalls-claim"

    def __init__(self, claim: Claim, parts: dict[str, Finding]):
        self.claim, self.parts = claim, parts
        self.verdict = combine([part.verdict for part in parts.values()])

    @property
    def colour(self) -> str:
        return _COLOURS[self.verdict]

    def blocks(self) -> list[Block]:
        claim = self.claim
        return [
            Quote(f"Claim {claim.id}", f"article {claim.article}", claim.statement),
            Verdict(_SYMBOLS[self.verdict], self.verdict),
            Reasons([(name, part.verdict, part.text) for name, part in self.parts.items()]),
            Note(f"Ruling ({claim.ruling}): {claim.correction}"),
        ]

    def to_data(self) -> dict:
        return {
            "id": self.claim.id,
            "chapter": self.claim.chapter,
            "verdict": self.verdict,
            "parts": {
                name: {"verdict": part.verdict, "text": part.text, "data": part.data}
                for name, part in self.parts.items()
            },
        }


@functools.cache
def all_claims() -> dict[str, Claim]:
    """Every claim of the course by its id."""
    entries = (Claim(**entry) for entry in read_toml(Path(__file__).with_name("claims.toml"))["claims"])
    return {entry.id: entry for entry in entries}


def claim(claim_id: str) -> Claim:
    """Look a claim up by its id, such as "1.2".

    Raises:
        KeyError: there is no such claim; the message names the near ones.
    """
    claims = all_claims()
    if claim_id not in claims:
        near = difflib.get_close_matches(str(claim_id), claims, n=3, cutoff=0.3)
        raise KeyError(f"no claim {claim_id!r}; near ones: {', '.join(near) or ', '.join(claims)}")
    return claims[claim_id]
