"""What a result consists of when it is shown: blocks, each of which renders itself as text and as HTML.

A result lists its blocks once; a script prints their text, a notebook shows their HTML. Text of a learner or an
article is escaped here and nowhere else.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Block:
    """One part of a result: subclasses give `to_text` and `to_html`."""

    def to_text(self) -> str:
        """The block in plain text, without a line break at its end."""
        raise NotImplementedError

    def to_html(self) -> str:
        """The block as an HTML fragment without scripts or outside resources."""
        raise NotImplementedError


@dataclass(frozen=True)
class Title(Block):
    """What came of it, in a line with a symbol, so that no meaning rests on colour: ✓ Exercise 1.2: passed."""

    symbol: str
    text: str

    def to_text(self) -> str:
        return f"{self.symbol} {self.text}"

    def to_html(self) -> str:
        return f'<div style="font-weight:600">{self.symbol} {html.escape(self.text)}</div>'


@dataclass(frozen=True)
class Verdict(Title):
    """A title that stands below what it is about."""

    def to_text(self) -> str:
        return f"  -> {self.text}"


@dataclass(frozen=True)
class Quote(Block):
    """A statement with its name, and where it stands."""

    name: str
    source: str
    text: str

    def to_text(self) -> str:
        return f"{self.name}: {self.text}"

    def to_html(self) -> str:
        name, source, text = map(html.escape, (self.name, self.source, self.text))
        return f"<div><small>{name}, {source}</small></div><div><em>{text}</em></div>"


@dataclass(frozen=True)
class Marked(Block):
    """Lines, each with a symbol before it."""

    rows: Sequence[tuple[str, str]]

    def to_text(self) -> str:
        return "\n".join(f"  {symbol} {text}" for symbol, text in self.rows)

    def to_html(self) -> str:
        items = "".join(f"<li>{symbol} {html.escape(text)}</li>" for symbol, text in self.rows)
        return f'<ul style="list-style:none;margin:.3em 0;padding-left:.5em">{items}</ul>'


@dataclass(frozen=True)
class Reasons(Block):
    """The evidence: (part, its verdict, a sentence); a part without a name is the whole."""

    rows: Sequence[tuple[str, str, str]]

    def to_text(self) -> str:
        lines = (f"{part}: {verdict}. {text}" if part else text for part, verdict, text in self.rows)
        return "\n".join(f"     {line}".rstrip() for line in lines)

    def to_html(self) -> str:
        escape, items = html.escape, ""
        for part, verdict, text in self.rows:
            label = f"<b>{escape(part)}</b>: {escape(verdict)}. " if part else ""
            items += f"<li>{label}{escape(text)}</li>"
        return f'<ul style="margin:.2em 0">{items}</ul>'


@dataclass(frozen=True)
class Paragraph(Block):
    """Text, set off by an empty line from what stands above it, if asked."""

    text: str
    apart: bool = False

    def to_text(self) -> str:
        return "\n" * self.apart + textwrap.indent(self.text, "  ")

    def to_html(self) -> str:
        return "<p>{}</p>".format(html.escape(self.text).replace("\n", "<br>"))


@dataclass(frozen=True)
class Sentence(Block):
    """A sentence that can stand alone."""

    text: str

    def to_text(self) -> str:
        return self.text

    def to_html(self) -> str:
        return f"<p>{html.escape(self.text)}</p>"


@dataclass(frozen=True)
class Printed(Block):
    """What a program printed, under a line that says so."""

    lead: str
    text: str

    def to_text(self) -> str:
        return f"  {self.lead}\n{textwrap.indent(self.text, '    ')}"

    def to_html(self) -> str:
        return f"<p>{html.escape(self.lead)}</p><pre>{html.escape(self.text)}</pre>"


@dataclass(frozen=True)
class Command(Block):
    """Something to type next."""

    lead: str
    code: str

    def to_text(self) -> str:
        return f"  {self.lead} {self.code}"

    def to_html(self) -> str:
        return f"<p>{html.escape(self.lead)} <code>{html.escape(self.code, quote=False)}</code></p>"


@dataclass(frozen=True)
class Note(Block):
    """Small print."""

    text: str

    def to_text(self) -> str:
        return f"  {self.text}"

    def to_html(self) -> str:
        return f"<div><small>{html.escape(self.text)}</small></div>"


@dataclass(frozen=True)
class Method(Block):
    """How a result came about: in a notebook only, where there is room for it."""

    text: str

    def to_text(self) -> str:
        return ""

    def to_html(self) -> str:
        return f"<p><small>{html.escape(self.text)}</small></p>"


def as_text(blocks: Iterable[Block]) -> str:
    """Render blocks as plain text, one below the other."""
    return "\n".join(text for text in (block.to_text() for block in blocks) if text)


def as_html(blocks: Iterable[Block], classes: str = "", colour: str = "") -> str:
    """Render blocks as one HTML element, with a coloured edge where a colour is given."""
    attributes = f' class="{classes}"' if classes else ""
    if colour:
        attributes += f' style="border-left:4px solid {colour};padding:.4em .9em;margin:.6em 0"'
    return f"<div{attributes}>{''.join(block.to_html() for block in blocks)}</div>"
