"""What executed chapters say: the verdicts on their claims, read from their notebooks and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..lesson import claims
from ..lesson.chapters import Chapter
from ..measure import machine, verdicts
from ..show.display import FIGURE_MIME, MIME


@dataclass
class ChapterRun:
    """How the run of one chapter went.

    Attributes:
        status: "finished", "kept" (from an interrupted run) or "failed".
        seconds: how long it took, start of the kernel included.
        verdicts: the data of every claim card in the executed notebook.
        figures: the alt texts of its figures.
        error: for a failed chapter, its last lines.
    """

    chapter: Chapter
    status: str
    seconds: float
    notebook: Path
    verdicts: list[dict]
    figures: list[str]
    error: str = ""


def read_outputs(path: Path) -> tuple[list[dict], list[str]]:
    """Read the claim cards and the figures' alt texts out of an executed notebook."""
    cards, figures = [], []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if MIME.format(kind="claim") in data:
                cards.append(data[MIME.format(kind="claim")])
            if FIGURE_MIME in data:
                figures.append(data[FIGURE_MIME]["alt"])
    return cards, figures


def summary(results: Iterable[ChapterRun]) -> dict:
    """The run as data: per chapter its status, seconds and figures; per claim its verdict and evidence."""
    results = list(results)
    decided = {card["id"]: card for result in results for card in result.verdicts}
    numbers = {result.chapter.slug for result in results}
    expected = [c for c in claims.all_claims().values() if c.chapter in numbers]
    return {
        "machine": machine.provenance(),
        "chapters": [
            {
                "number": result.chapter.number,
                "slug": result.chapter.slug,
                "status": result.status,
                "seconds": round(result.seconds, 1),
                "notebook": str(result.notebook),
                "figures": len(result.figures),
                "error": result.error,
            }
            for result in results
        ],
        "claims": [
            {
                "id": entry.id,
                "statement": entry.statement,
                "ruling": entry.ruling,
                "verdict": decided.get(entry.id, {}).get("verdict", "not decided"),
                "parts": decided.get(entry.id, {}).get("parts", {}),
            }
            for entry in expected
        ],
        "counts": {v: sum(c["verdict"] == v for c in decided.values()) for v in verdicts.VERDICTS},
    }
