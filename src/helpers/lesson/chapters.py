"""The list of chapters: number, slug, title, minutes and needs of each."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ..files import CourseError

LIVE, STAND_IN, IN_PART, BLOCKED = "live", "stand-in", "in part", "blocked"


@dataclass(frozen=True)
class Chapter:
    """One chapter: number, slug (the name of all its files), title, symptom, minutes of work, and its needs.

    Attributes:
        gpu: what happens without a GPU: "live" (nothing is missing), or "stand-in".
        compiler: a C++ compiler adds cells.
        packages: packages beyond the base install that a section of the chapter needs.
    """

    number: int
    slug: str
    title: str
    pitfall: str
    minutes: int
    gpu: str = LIVE
    compiler: bool = False
    packages: tuple[str, ...] = ()


CHAPTERS = (
    Chapter(1, "01_graphs_and_no_grad", "Graphs and no_grad", "memory climbs although nothing trains", 50),
    Chapter(2, "02_cudnn_autotuning", "cuDNN autotuning", "the flag is set and nothing changes", 45),
    Chapter(3, "03_jit_compilation", "JIT compilation", "a traced model lies in silence", 50, compiler=True),
    Chapter(4, "04_cpu_vs_gpu", "CPU vs GPU", "a bill, and a benchmark that cannot be true", 50),
    Chapter(5, "05_batching", "Batching", "bigger batches stop paying, and padding leaks in", 50),
    Chapter(6, "06_tensor_shapes", "Tensor shapes", "scrambled data, and no error", 50),
    Chapter(7, "07_loss_dtypes", "Loss dtypes", "a loss that looks fine and does not learn", 45),
    Chapter(8, "08_weight_init", "Weight init", "a deep net that does not start", 50, packages=("scikit-learn",)),
    Chapter(9, "09_device_moves", "Device moves", "half a model stays behind", 50, gpu=STAND_IN),
)


def chapter(name: str | int) -> Chapter:
    """Find a chapter by number (1, "01") or slug.

    Raises:
        CourseError: there is no such chapter; the message names the near ones.
    """
    text = str(name).strip()
    for entry in CHAPTERS:
        if text in (entry.slug, str(entry.number), f"{entry.number:02d}"):
            return entry
    slugs = [entry.slug for entry in CHAPTERS]
    near = difflib.get_close_matches(text, slugs + [entry.title for entry in CHAPTERS], n=3, cutoff=0.3)
    raise CourseError(f"there is no chapter {text!r}; near ones: {', '.join(near or slugs)}")
