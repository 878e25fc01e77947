"""Exercises: how one is declared, reached, checked, reported and remembered."""
