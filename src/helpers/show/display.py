"""Show a result: rich in a notebook, plain in a script, and always readable by a program.

Whatever the course shows is a `Shown`: it lists its blocks (`blocks.py`), which have a text form and an HTML form,
and gives its data. A notebook's output holds all three, the data under a MIME type of our own, so a report can be
made from executed notebooks and nothing else. A chapter that runs as a plain script prints the text form.
"""

from __future__ import annotations

import base64
import contextlib
import html
import re
import sys
from collections.abc import Callable, Iterator, Sequence

from .blocks import Block, as_html, as_text

MIME = "application/vnd.pitfalls.{kind}+json"
FIGURE_MIME = MIME.format(kind="figure")


class Shown:
    """A result that can be shown: subclasses give `kind`, `blocks` and `to_data`.

    Attributes:
        kind: of result, in its MIME type.
    """

    kind = "result"

    @property
    def classes(self) -> str:
        """The classes of its HTML element, for a style sheet and for tests."""
        return ""

    @property
    def colour(self) -> str:
        """The colour of its edge; meaning never rests on it."""
        return ""

    def blocks(self) -> list[Block]:
        """What the result consists of, from top to bottom."""
        raise NotImplementedError

    def to_text(self) -> str:
        """The result in plain text."""
        return as_text(self.blocks())

    def to_html(self) -> str:
        """The result as an HTML fragment without scripts or outside resources."""
        return as_html(self.blocks(), self.classes, self.colour)

    def to_data(self) -> dict:
        """The result as JSON-serialisable data."""
        raise NotImplementedError

    def show(self) -> None:
        """Display the result; returns nothing, so that it can end a cell."""
        show(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {
            "text/plain": self.to_text(),
            "text/html": self.to_html(),
            MIME.format(kind=self.kind): self.to_data(),
        }


def in_notebook() -> bool:
    """True inside a Jupyter kernel; False in a script, a test or a terminal."""
    if sys.modules.get("IPython") is None:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


_pictures: dict[str, Callable] = {}


def register_picture(kind: str, draw: Callable[[Shown], None]) -> None:
    """Have a picture drawn below every result of a kind that is shown in a notebook.

    A picture is drawn by a room above the one that made the result, so the result cannot name it.
    """
    _pictures[kind] = draw


def show(result: Shown) -> None:
    """Display a result in a notebook, with its picture if it has one; print its text elsewhere."""
    if not in_notebook():
        print(result.to_text())
        return
    from IPython.display import display

    display(result)
    if result.kind in _pictures:
        _pictures[result.kind](result)


def show_picture(png: bytes, alt: str, table: tuple[Sequence[str], Sequence[Sequence[object]]] | None = None) -> None:
    """Display a picture with its alternative text, and below it, folded, that text and the data as a table.

    JupyterLab drops the alternative text of a PNG (the site does not), so it is also there to be read.

    Args:
        png: the picture.
        alt: what the picture shows, in one or two sentences. It must not be empty.
        table: column names and rows, as text or numbers.
    """
    if not alt.strip():
        raise ValueError("a picture needs alt text: say in a sentence what it shows")
    if not in_notebook():
        print(f"[figure] {alt}")
        return
    from IPython.display import HTML, display

    columns, rows = table if table else ((), ())
    cells = [[_cell(value) for value in row] for row in rows]
    bundle = {
        "image/png": base64.b64encode(png).decode("ascii"),
        "text/plain": alt,
        FIGURE_MIME: {"alt": alt, "columns": list(columns), "rows": cells},
    }
    display(bundle, metadata={"image/png": {"alt": alt}}, raw=True)
    display(HTML(_details(alt, columns, cells)))


# The folder before a .py file's name; between quotes it may hold spaces.
_FOLDER = re.compile(r"""(?<=')[^']*[\\/](?=[^\\/']+\.py')|[^\s'"]*[\\/](?=[^\\/\s'"]+\.py\b)""")


@contextlib.contextmanager
def expected_error(*kinds: type[BaseException]) -> Iterator[list[BaseException]]:
    """Catch an error that the cell is meant to raise, and print its class and first line, files by name alone.

    Yields a list that holds the error afterwards.

    Raises:
        AssertionError: nothing was raised, so the lesson of the cell is gone.
    """
    caught: list[BaseException] = []
    wanted = kinds or (Exception,)
    try:
        yield caught
    except wanted as error:
        caught.append(error)
        first_line = (str(error).strip().splitlines() or [""])[0]
        print(f"{type(error).__name__}: {_FOLDER.sub('', first_line)}")
        return
    names = " or ".join(kind.__name__ for kind in kinds) or "an error"
    raise AssertionError(f"expected {names}, but nothing was raised")


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _details(alt: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if columns else ""
    return f"<details><summary>The picture in words and numbers</summary><p>{html.escape(alt)}</p>{table}</details>"
