"""The checks, hints and misconceptions of the exercises, one module a chapter."""
