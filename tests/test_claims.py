"""Claims: 26 of them, each judged by what this machine showed."""

from __future__ import annotations

import pytest

from helpers.lesson import chapters, claims
from helpers.measure import verdicts
from helpers.measure.verdicts import FAILS, HOLDS, NOISY, UNTESTED, Finding, finding, untested


def test_all_26_claims_belong_to_a_chapter_and_say_what_they_should():
    everything = claims.all_claims().values()
    assert len(everything) == 26
    for entry in everything:
        assert entry.chapter in {c.slug for c in chapters.CHAPTERS}
        assert entry.chapter.startswith(f"{int(entry.id.split('.')[0]):02d}_")
        assert entry.article == ("A" if int(entry.id.split(".")[0]) <= 5 else "B")
        assert entry.statement.endswith(".") and entry.correction.endswith(".")
        assert entry.ruling in {"holds", "wrong", "wrong reason", "conditional", "outdated", "inconsistent"}
        assert set(entry.decided.split(" and ")) <= {"evidence", "timing"}


def card(capsys, claim_id="1.2", *args, **kwargs) -> str:
    claims.claim(claim_id).judge(*args, **kwargs)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [(True, HOLDS), (False, FAILS), (Finding(NOISY, "x"), NOISY), (untested("no GPU"), UNTESTED)],
)
def test_the_verdict_is_that_of_the_evidence(capsys, evidence, verdict):
    assert f"-> {verdict}" in card(capsys, evidence=evidence, because="counted")


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ((HOLDS, HOLDS), HOLDS),
        ((HOLDS, FAILS), FAILS),
        ((HOLDS, NOISY), NOISY),
        ((NOISY, UNTESTED), UNTESTED),
        ((UNTESTED, FAILS), FAILS),
    ],
)
def test_a_claim_with_parts_holds_only_where_all_of_them_do(capsys, parts, verdict):
    text = card(capsys, evidence={f"part {i}": Finding(v, "seen") for i, v in enumerate(parts)})
    assert f"-> {verdict}" in text and "part 0" in text and "part 1" in text


@pytest.mark.parametrize("evidence", [None, 1, "yes", {}, {"speed": 0.5}])
def test_anything_else_than_evidence_is_refused(evidence):
    with pytest.raises(TypeError, match="1.2"):
        claims.claim("1.2").judge(evidence)


def test_an_unknown_claim_names_near_ones():
    with pytest.raises(KeyError, match="near ones"):
        claims.claim("1.9")


def test_a_card_has_three_forms():
    shown = claims.Card(claims.claim("1.4"), {"memory": finding(True, "a < b", bytes=[1, 2])})
    bundle = shown._repr_mimebundle_()
    data = bundle["application/vnd.pitfalls.claim+json"]
    assert data["id"] == "1.4" and data["verdict"] == HOLDS and data["parts"]["memory"]["data"] == {"bytes": [1, 2]}
    assert 'class="pitfalls-claim"' in bundle["text/html"] and "a &lt; b" in bundle["text/html"]
    assert "a < b" in bundle["text/plain"]


def test_findings_know_four_verdicts():
    assert [Finding(v, "").holds for v in verdicts.VERDICTS] == [True, False, None, None]
    with pytest.raises(ValueError, match="maybe"):
        Finding("maybe", "")
