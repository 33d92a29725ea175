import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from translations import backwards, identity, shouted

from transduce.errors import DataError
from transduce.serving.documents import read_document

SRT = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\nHello, I am\r\ngoing <i>home</i>.\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000 X1:5\r\n- Yes & no.\r\n- No.\r\n"
)
XML = (
    '<?xml version="1.0"?><w:document><w:body><w:p w:x="1"><w:pPr><w:tabs/></w:pPr><w:r><w:t>Two </w:t></w:r>'
    "<w:r><w:rPr><w:b/></w:rPr><w:t>big</w:t></w:r>"
    '<w:r><w:t xml:space="preserve"> dogs &amp; x. Yes.</w:t><w:tab/><w:t>Tab</w:t></w:r></w:p>'
    "<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p></w:body></w:document>"
)


def docx(xml=XML, **files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"[Content_Types].xml": "<a/>", "word/document.xml": xml, **files}.items():
            archive.writestr(name, data)
    return stream.getvalue()


def rendered(name, data, translate=shouted):
    document = read_document(name, data, "en")
    return document.render([translate(segment) for segment in document.segments])


def test_subtitles_keep_numbers_times_and_lines():
    assert rendered("a.SRT", SRT.encode()).decode() == (
        SRT.replace("Hello, I am\r\ngoing <i>home</i>", "HELLO, I AM\r\nGOING <i>HOME</i>")
        .replace("Yes & no", "YES & NO")
        .replace("- No", "- NO")
    )
    document = read_document("a.srt", SRT.encode(), "en")
    assert [segment.text for segment in document.segments] == [
        "Hello, I am going home.",
        "- Yes & no.",
        "- No.",
    ]
    assert rendered("a.srt", SRT.encode(), backwards).count(b"\r\n") == SRT.count("\r\n")


def test_encodings():
    assert rendered("a.txt", "\ufeffA man.\r\n".encode("utf-16-le")) == "\ufeffA MAN.\r\n".encode("utf-16-le")
    assert rendered("a.txt", b"\xef\xbb\xbfa") == b"\xef\xbb\xbfA"
    page = "<meta charset='latin-1'><p>é &euro; x</p>".encode("latin-1")
    assert rendered("a.htm", page) == "<meta charset='latin-1'><p>É &#8364; X</p>".encode("latin-1")
    for name, data in [
        ("a.txt", b"\xff\xfe\x00"),
        ("a.txt", b"\xe9"),
        ("a.html", b"<meta charset=zip>"),
        ("a", b""),
    ]:
        with pytest.raises(DataError):
            read_document(name, data)


def test_word_documents_change_only_their_text():
    made = rendered(
        "a.docx", docx(**{"word/media/x.png": b"\x00\x01", "word/header1.xml": "<w:t>head</w:t>"})
    )
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert archive.read("word/media/x.png") == b"\x00\x01"
        assert archive.read("word/header1.xml") == b'<w:t xml:space="preserve">HEAD</w:t>'
        xml = archive.read("word/document.xml").decode()
    expected = XML.replace("<w:t>", '<w:t xml:space="preserve">')
    for word in ("Two", "big", "dogs", "x. Yes", "Tab"):
        expected = expected.replace(f">{word}", f">{word.upper()}").replace(f" {word}", f" {word.upper()}")
    assert xml == expected.replace("&amp; x", "&amp; X").replace("x. Yes", "X. YES").replace("Yes.", "YES.")


def test_hostile_word_documents_are_refused(monkeypatch):
    monkeypatch.setattr("transduce.serving.docx._LARGEST", 1 << 20)
    monkeypatch.setattr("transduce.serving.docx._MOST_FILES", 50)
    whole = docx()
    entity = "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>" + XML.replace("big", "&x;")
    assert b"root:" not in rendered("a.docx", docx(entity))
    for data in [
        b"",
        b"PK",
        whole[:-30],
        whole[:40] + b"\xff" * 40 + whole[80:],
        docx(**{"x": b"0" * (2 << 20)}),
    ]:
        with pytest.raises(DataError):
            read_document("a.docx", data)
    with pytest.raises(DataError, match="50"):
        read_document("a.docx", docx(**{str(number): "" for number in range(60)}))
    with pytest.raises(DataError, match="UTF-8"):
        read_document("a.docx", docx(XML.encode("utf-16")))


def test_documents_of_too_many_parts_are_refused(monkeypatch):
    monkeypatch.setattr("transduce.serving.documents._MOST_PARTS", 50)
    for name, part in (("a.txt", "a\n"), ("a.txt", "a\r"), ("a.srt", "a\n"), ("a.html", "<p>a")):
        assert read_document(name, (part * 50).encode()).segments
        with pytest.raises(DataError, match="50"):
            read_document(name, (part * 51).encode())
    with pytest.raises(DataError, match="50"):
        read_document("a.docx", docx("<w:p/><w:t>a</w:t>" * 51))


def test_the_beginning_is_text():
    for name, data in (("a.docx", docx()), ("a.html", b"<title>Two big dogs</title><p class=x>Yes.")):
        beginning = read_document(name, data).beginning
        assert beginning.startswith("Two big dogs")
        assert "Yes." in beginning
        assert "<" not in beginning
    assert len(read_document("a.txt", b"A man. " * 5000).beginning) < 20_000


@given(
    st.sampled_from(["a.txt", "a.srt", "a.html"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
def test_unchanged_documents_come_back(name, text):
    data = text.encode()
    try:
        document = read_document(name, data, "en")
    except DataError:
        return
    assert document.render(identity(document.segments)) == data


@given(
    st.lists(
        st.sampled_from(["1\n", "00:01 --> 00:02\n", "Hi there. ", "you\n", "\r\n", "\n", "<i>", "</i>"])
    )
)
def test_unchanged_subtitles_come_back(parts):
    data = "".join(parts).encode()
    document = read_document("a.srt", data, "en")
    assert document.render(identity(document.segments)) == data
