"""Word documents (.docx): a ZIP archive of XML, whose text is changed and everything else copied.

The XML is never parsed as XML, so that there are no entities to expand and nothing to fetch; it is cut into
tokens, and what is not text comes back verbatim. Sizes are limited while the archive is read.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import DataError
from transduce.serving.html_flow import Flow, Item
from transduce.serving.html_layout import flow_segments
from transduce.serving.layout import Layout
from transduce.serving.segments import Segment

_LARGEST = 64 << 20  # bytes of all files in the archive
_MOST_FILES = 10_000
_BLOCK = 1 << 16
_TEXTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
_TEXT = re.compile(r"<w:t(?: [^<>]*)?>([^<]*)</w:t>")
_BREAK = re.compile(r"<w:p[ >/]|</w:p>|<w:(?:tab|br|cr)[ >/]")  # between two texts: they are not one


@dataclass(frozen=True)
class Package:
    """The files of an archive."""

    files: dict[str, bytes]

    def texts(self) -> list[str]:
        """Return the names of the files that have text for readers."""
        return sorted(name for name in self.files if _TEXTS.fullmatch(name))

    def text(self, name: str) -> str:
        """Return the XML of a file."""
        try:
            return self.files[name].decode("utf-8-sig")
        except UnicodeDecodeError:
            raise _error(f"{name} in it is not UTF-8") from None

    def replaced(self, texts: dict[str, str]) -> bytes:
        """Return the archive with other contents of some files."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in self.files.items():
                archive.writestr(name, texts[name].encode() if name in texts else data)
        return stream.getvalue()


def read_package(data: bytes) -> Package:
    """Return the files of a Word document; one that is damaged, encrypted or too large is a `DataError`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_FILES:
                raise _error(f"it has more than {_MOST_FILES:,} files")
            files: dict[str, bytes] = {}
            left = _LARGEST
            for entry in entries:
                files[entry.filename] = content = _read(archive, entry, left)
                left -= len(content)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, OSError):
        raise _error("it is damaged or encrypted") from None
    if "word/document.xml" not in files:
        raise _error("it has no word/document.xml")
    return Package(files)


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    """Return a file of an archive; what it claims about its size is not trusted."""
    parts, size = [], 0
    with archive.open(entry) as stream:
        while part := stream.read(_BLOCK):
            size += len(part)
            if size > limit:
                raise _error(f"it unpacks to more than {_LARGEST >> 20} MB")
            parts.append(part)
    return b"".join(parts)


def _error(problem: str) -> DataError:
    return DataError(
        f"the Word document cannot be read: {problem}", "save it again as .docx, or send its text"
    )


def docx_layout(xml: str, language: str | None = None, do_not_translate: Sequence[str] = ()) -> Layout:
    """Return the sentences of the paragraphs in a file of a Word document.

    What stands between two stretches of text in a paragraph, such as a change of the font, keeps its order
    and gets the place in the translation that its neighbors have.
    """
    xml = xml.replace("<w:t>", '<w:t xml:space="preserve">')  # stretches may begin or end with spaces now
    segments: list[Segment] = []
    edges: dict[int, tuple[str, str]] = {}
    for flow in _flows(xml):
        for segment, edge in flow_segments(flow, language, do_not_translate, "sentences", protect=True):
            if any(edge):
                edges[len(segments)] = edge
            segments.append(segment)
    return Layout(xml, segments, edges)


def _flows(xml: str) -> list[Flow]:
    flows: list[Flow] = []
    end = 0
    for text in _TEXT.finditer(xml):
        begin = text.start(1)
        if not flows or _BREAK.search(xml, end, begin):
            flows.append(Flow(xml, is_xml=True, entities=True, mark_lines=False))
        else:
            flows[-1].items.append(Item(flows[-1].length, end, begin, is_half=True))
        end = text.end(1)
        flows[-1].add_text(begin, end, keep_space=True)
    return [flow for flow in flows if flow.length]
