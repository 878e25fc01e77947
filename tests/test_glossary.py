"""The glossary: every term is linked from the chapter that meets it, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = {a: int(n) for a, n in re.findall(r'<a id="([\w-]+)"></a>\n\*\*[^*]+\*\* \((\d+)\)', TEXT)}
CHAPTERS = {int(path.name[:2]): path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.py")}


def linked(number: int) -> list[str]:
    return re.findall(r"\]\(\.\./docs/glossary\.md#([\w-]+)\)", CHAPTERS[number])


def test_every_anchor_has_its_term():
    assert len(TERMS) == TEXT.count("<a id=") >= 20


@pytest.mark.parametrize("number", sorted(CHAPTERS))
def test_links_lead_to_terms_and_each_stands_once(number):
    found = linked(number)
    assert set(found) <= set(TERMS)
    assert len(set(found)) == len(found), "a term is linked at its first use alone"


@pytest.mark.parametrize("term", sorted(TERMS))
def test_a_term_is_linked_from_its_chapter(term):
    assert TERMS[term] in CHAPTERS and term in linked(TERMS[term])
