"""Documents: files in, their sentences to translate, and the same files with translated sentences out."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import PurePosixPath

from transduce.errors import DataError
from transduce.serving.docx import Package, docx_layout, read_package
from transduce.serving.html_layout import html_layout
from transduce.serving.layout import Layout
from transduce.serving.plain_layout import plain_layout
from transduce.serving.segments import Segment, TranslatedSegment

FORMATS = (".txt", ".html", ".htm", ".srt", ".docx")

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w-]{1,40})", re.IGNORECASE)
_MOST_PARTS = 250_000  # lines, tags or stretches of text: each takes about a kilobyte of memory
_SAMPLE = 10_000  # characters from which the language of a document is detected
_HEAD = 4096  # bytes in which a page names its encoding
# The number and the time of a subtitle, up to the end of the line.
_CUE = re.compile(r"^[^\S\n]*\d+[^\S\n]*\n[^\n]*-->[^\n]*(?:\n|\Z)", re.MULTILINE)
_AROUND_BREAK = re.compile(r" ?(\r?\n) ?")


@dataclass(frozen=True)
class Document:
    """A file and its sentences."""

    segments: list[Segment]  # of all its parts, in order
    parts: list[Layout]
    encoding: str = "utf-8"
    mark: bytes = b""  # the byte order mark
    package: Package | None = None  # the file that the parts are from, if it has others
    names: list[str] = field(default_factory=list)  # of the parts in the package
    is_html: bool = False

    @property
    def beginning(self) -> str:
        """The text of the first sentences, as a reader sees it."""
        lengths = accumulate(len(segment.text) for segment in self.segments)
        return "\n".join(
            segment.text for segment, length in zip(self.segments, lengths, strict=True) if length <= _SAMPLE
        )

    def render(self, translated: Sequence[TranslatedSegment]) -> bytes:
        """Return the file with its segments translated."""
        texts, first = [], 0
        for part in self.parts:
            last = first + len(part.segments)
            texts.append(part.render(translated[first:last]).text)
            first = last
        if self.package is not None:
            return self.package.replaced(dict(zip(self.names, texts, strict=True)))
        # What the encoding of a page does not have is written as an entity.
        errors = "xmlcharrefreplace" if self.is_html else "replace"
        return self.mark + "".join(texts).encode(self.encoding, errors)


def read_document(
    name: str, data: bytes, language: str | None = None, do_not_translate: Sequence[str] = ()
) -> Document:
    """Return a document; the end of its name says what it is.

    A file that cannot be read is a `DataError`.
    """
    ending = PurePosixPath(name).suffix.lower()
    if ending not in FORMATS:
        raise DataError(
            f"documents that end in {ending or 'nothing'} cannot be translated", f"send {', '.join(FORMATS)}"
        )
    if ending == ".docx":
        package = read_package(data)
        names = package.texts()
        texts = [package.text(part) for part in names]
        _require_few_parts(sum(text.count("<w:t") for text in texts))
        parts = [docx_layout(text, language, do_not_translate) for text in texts]
        return Document(_segments(parts), parts, package=package, names=names)
    is_html = ending in {".html", ".htm"}
    text, encoding, mark = _decode(data, is_html)
    _require_few_parts(text.count("<") if is_html else len(text.splitlines()))
    if ending == ".srt":
        parts = _subtitles(text, language, do_not_translate)
    elif is_html:
        parts = [html_layout(text, language, do_not_translate=do_not_translate)]
    else:
        parts = [plain_layout(text, language, do_not_translate)]
    return Document(_segments(parts), parts, encoding, mark, is_html=is_html)


def _require_few_parts(count: int) -> None:
    if count > _MOST_PARTS:
        raise DataError(f"the document has more than {_MOST_PARTS:,} lines or tags", "send it in pieces")


def _segments(parts: Sequence[Layout]) -> list[Segment]:
    return [segment for part in parts for segment in part.segments]


def _decode(data: bytes, is_html: bool) -> tuple[str, str, bytes]:
    """Return the text, its encoding and its byte order mark."""
    marks = [known for known in _BYTE_ORDER_MARKS if data.startswith(known[0])]
    mark, encoding = marks[0] if marks else (b"", "utf-8")
    charset = _CHARSET.search(data[:_HEAD]) if is_html and not marks else None
    if charset:
        encoding = charset[1].decode("ascii", "replace")
    try:
        return data[len(mark) :].decode(encoding), encoding, mark
    except (UnicodeError, LookupError):
        raise DataError(f"the document is not a text in {encoding}", "save it in UTF-8") from None


def _subtitles(text: str, language: str | None, do_not_translate: Sequence[str]) -> list[Layout]:
    """Return numbers and times as parts without segments, and the text of each subtitle as a part.

    Line breaks inside a sentence are markers, so that a subtitle keeps its number of lines.
    """
    parts: list[Layout] = []
    place = 0
    # A carriage return counts as white space here, so that both kinds of line ends work.
    for cue in _CUE.finditer(text):
        parts += _cue_text(text[place : cue.start()], language, do_not_translate)
        parts.append(Layout(cue[0], []))
        place = cue.end()
    return [*parts, *_cue_text(text[place:], language, do_not_translate)]


def _cue_text(text: str, language: str | None, do_not_translate: Sequence[str]) -> list[Layout]:
    layout = html_layout(text, language, do_not_translate=do_not_translate, entities=False, mark_lines=True)
    return [SubtitleLayout(layout.text, layout.segments, layout.edges)] if text else []


class SubtitleLayout(Layout):
    """The text of a subtitle, whose line breaks have no spaces around them."""

    def _body(self, index: int, segment: Segment, translation: TranslatedSegment) -> str:
        body = super()._body(index, segment, translation)
        is_same = body == self.text[segment.begin : segment.end]
        return body if is_same else _AROUND_BREAK.sub(r"\1", body)
