"""Exercises by chapter and by id. Check modules are found by name, as plug-ins are."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re

from .declare import Exercise, UnknownExerciseError


def exercises_of(chapter: int) -> list[Exercise]:
    """The exercises of a chapter, in order; an empty list if it has none."""
    return _declared_in(rf"ch{chapter:02d}_\w+")


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in order. This imports every check module."""
    return _declared_in(r"ch\d\d_\w+")


def find_exercise(exercise_id: str) -> Exercise:
    """Look an exercise up by its id.

    Raises:
        UnknownExerciseError: there is no such exercise; the message names the near ones.
    """
    exercise_id = str(exercise_id)
    chapter = exercise_id.split(".")[0]
    for exercise in exercises_of(int(chapter)) if chapter.isdecimal() else ():
        if exercise.id == exercise_id:
            return exercise
    ids = [exercise.id for exercise in all_exercises()]
    near = difflib.get_close_matches(exercise_id, ids, n=5, cutoff=0.4) or ids
    raise UnknownExerciseError(f"there is no exercise {exercise_id!r}; near ones: {', '.join(near)}")


def _declared_in(pattern: str) -> list[Exercise]:
    """The exercises of the check modules whose names match, in order; no other module is imported."""
    checks = importlib.import_module("..checks", __package__)
    names = [entry.name for entry in pkgutil.iter_modules(checks.__path__) if re.fullmatch(pattern, entry.name)]
    modules = [importlib.import_module(f"{checks.__name__}.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Exercise)]
    return sorted(found, key=lambda e: tuple(map(int, e.id.split("."))))
