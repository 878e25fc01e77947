"""A learner's first hour: chapter 1 and its exercises, in a real JupyterLab, on the copies `pitfalls start` makes."""

from __future__ import annotations

import pytest
from answers import ch01_graphs_and_no_grad as bank

from helpers.course import copies
from helpers.exercise import finding
from helpers.lesson import chapters, claims

from . import lab

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

CHAPTER = chapters.CHAPTERS[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    work = tmp_path_factory.mktemp("course") / "work"
    list(copies.start(work))
    with lab.serve(work, tmp_path_factory.mktemp("private")) as running:
        yield running


def test_chapter_1_runs_and_shows_its_claims(browser, server, tmp_path):
    notebook = lab.LabNotebook.open(browser, server, f"{CHAPTER.slug}.ipynb")
    prompts = []
    notebook.run_all(answer=lambda prompt: prompts.append(prompt) or "1 80")
    assert notebook.errors() == []
    assert prompts, "a reader commits to a guess before a measurement"

    cards = notebook.page.locator(".jp-OutputArea .pitfalls-claim")
    for number in range(cards.count()):
        cards.nth(number).scroll_into_view_if_needed()
        notebook.page.screenshot(path=tmp_path / f"claim-{number}.png")
    shown = " ".join(cards.all_inner_texts())
    expected = [c.id for c in claims.all_claims().values() if c.chapter == CHAPTER.slug]
    assert [c for c in expected if f"Claim {c}" not in shown] == []

    pictures = notebook.page.locator(".jp-OutputArea img")
    assert pictures.count() > 0
    for number in range(pictures.count()):
        pictures.nth(number).scroll_into_view_if_needed()
        assert pictures.nth(number).evaluate("image => image.complete && image.naturalWidth > 0")
        notebook.page.screenshot(path=tmp_path / f"picture-{number}.png")
    assert notebook.outside == []


def test_exercise_1_2_teaches(browser, server, tmp_path):
    """Blank, a wrong answer, a hint, a right answer: each gets the reply it deserves."""
    notebook = lab.LabNotebook.open(browser, server, f"{CHAPTER.number:02d}_exercises.ipynb")
    notebook.run(notebook.find("import torch"))
    answer, asking = notebook.find("def evaluate("), notebook.find('check("1.2")')
    reply = notebook.output(asking)

    notebook.run(answer)
    notebook.run(asking)
    assert reply.locator(".pitfalls-check.pitfalls-not-attempted").count() == 1

    wrong = next(entry for entry in bank.WRONG["1.2"] if entry.misconception == "graph-recorded")
    notebook.type_source(answer, wrong.source.strip())
    notebook.run(answer)
    notebook.run(asking)
    notebook.screenshot(tmp_path / "wrong.png", asking)
    assert reply.locator(".pitfalls-check.pitfalls-failed").count() == 1
    explained = finding.find_exercise("1.2").misconceptions["graph-recorded"]
    assert explained in reply.inner_text()

    notebook.type_source(asking, 'check("1.2")\nhint("1.2")')
    notebook.run(asking)
    hint = finding.find_exercise("1.2").hints[0]
    assert hint in " ".join(reply.inner_text().split()), "a hint's lines are broken between words"

    right = "import copy\n\n" + bank.ALTERNATIVES["1.2"]["works on a deep copy"].strip()
    notebook.type_source(answer, right)
    notebook.run(answer)
    notebook.run(asking)
    notebook.screenshot(tmp_path / "right.png", asking)
    assert reply.locator(".pitfalls-check.pitfalls-passed").count() == 1
    assert reply.locator(".pitfalls-failed").count() == 0
    assert notebook.outside == []
