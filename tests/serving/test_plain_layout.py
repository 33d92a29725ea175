import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from translations import identity, shouted

from transduce.serving.plain_layout import plain_layout
from transduce.serving.segments import TranslatedSegment

TEXTS = st.text(max_size=60) | st.lists(
    st.sampled_from(
        ["A man. ", "{x}", "%s", " ", "\n", "\r\n", "Dr. X", "http://a.b/c?d. ", "a@b.c", "。", "犬", "!\t"]
    )
).map("".join)
SPLITTINGS = st.sampled_from(["all", "sentences", "lines", "none"])


@given(TEXTS, SPLITTINGS)
def test_unchanged_sentences_give_the_text(text, splitting):
    layout = plain_layout(text, "en", ["Dr"], splitting)
    rendered = layout.render(identity(layout.segments))
    assert rendered.text == text
    assert rendered.spans == [(segment.begin, segment.end) for segment in layout.segments]


@given(TEXTS, SPLITTINGS)
def test_segments_are_clean_and_what_is_between_them_survives(text, splitting):
    layout = plain_layout(text, "en", ["Dr"], splitting)
    for segment in layout.segments:
        assert segment.text.strip() == segment.text != ""
        assert len(segment.text.splitlines()) == 1
        assert all(part in text for part in segment.protected)
    rendered = layout.render([TranslatedSegment(f"{index}犬") for index, _ in enumerate(layout.segments)])
    assert [rendered.text[begin:end] for begin, end in rendered.spans] == [
        f"{index}犬" for index, _ in enumerate(layout.segments)
    ]
    outside = [
        0,
        *(place for segment in layout.segments for place in (segment.begin, segment.end)),
        len(text),
    ]
    kept = [0, *(place for span in rendered.spans for place in span), len(rendered.text)]
    assert [text[begin:end] for begin, end in zip(outside[::2], outside[1::2], strict=True)] == [
        rendered.text[begin:end] for begin, end in zip(kept[::2], kept[1::2], strict=True)
    ]


def test_sentences_lines_and_spaces():
    text = "  Two dogs run.  A man\tsleeps.\n\n* * *\nSee http://a.b/c. \r\n{name}\n"
    layout = plain_layout(text, "en")
    assert [segment.text for segment in layout.segments] == [
        "Two dogs run.",
        "A man\tsleeps.",
        "See http://a.b/c.",
    ]
    assert layout.segments[2].protected == ("http://a.b/c",)
    rendered = layout.render(
        [TranslatedSegment(text) for text in ("Zwei.", "Ein Mann.", "Siehe http://a.b/c.")]
    )
    assert rendered.text == "  Zwei.  Ein Mann.\n\n* * *\nSiehe http://a.b/c. \r\n{name}\n"


def test_line_breaks_inside_sentences_are_read_as_spaces():
    text = "A man \n sleeps in\nthe {x}.\nYes."
    (first, second) = plain_layout(text, "en", splitting="sentences").segments
    assert (first.text, second.text) == ("A man sleeps in the {x}.", "Yes.")
    assert first.protected == ("{x}",)
    assert [segment.text for segment in plain_layout(text, "en", splitting="none").segments] == [
        "A man sleeps in the {x}. Yes."
    ]


def test_sentences_without_spaces_get_them_in_a_language_that_needs_them():
    layout = plain_layout("你好。我是学生。", "zh")
    assert (
        layout.render([TranslatedSegment("Hello."), TranslatedSegment("I study.")]).text == "Hello. I study."
    )
    assert layout.render([TranslatedSegment("Hello."), TranslatedSegment("犬。")]).text == "Hello.犬。"


@pytest.mark.parametrize(
    ("text", "removed"),
    [
        ("Hello {name}, welcome", "Hello, welcome"),
        ("Press {a} {b} now", "Press now"),
        ("{a} is here", "is here"),
        ("Go to {a}", "Go to"),
        ("Go to {a} {b}", "Go to"),
        ("ab{x}cd", "abcd"),
        ("Mail a@b.c, or see <x id=1/>.", "Mail, or see."),
    ],
)
def test_protected_parts_become_markers(text, removed):
    layout = plain_layout(text, "en")
    (segment,) = layout.segments
    bare = segment.without_protected()
    assert bare.text == removed
    assert not bare.protected
    assert segment.missing_protected(removed) == list(dict.fromkeys(segment.protected))
    for with_links in (True, False):
        translation = shouted(bare, with_links)
        rendered = layout.render([TranslatedSegment(translation.text, translation.links, bare)]).text
        assert segment.missing_protected(rendered) == []
        if with_links:
            expected = text.upper()
            for part in segment.protected:
                expected = expected.replace(part.upper(), part)
            assert rendered == expected
    assert layout.render([TranslatedSegment(removed, segment=bare)]).text == text


@given(TEXTS)
def test_every_protected_part_survives_as_a_marker(text):
    layout = plain_layout(text, "en", splitting="none")
    bare = [segment.without_protected() for segment in layout.segments]
    rendered = layout.render([TranslatedSegment("Ein Mann schläft", segment=segment) for segment in bare])
    for segment, (begin, end) in zip(layout.segments, rendered.spans, strict=True):
        assert segment.missing_protected(rendered.text[begin:end]) == []


@pytest.mark.parametrize("unit", ["{", "http://a.b)", "%(a)0", "a@", " ", "<a ", "word ", "\n"])
def test_the_time_is_linear(unit):
    text = "a " + (unit * 1_000_000)[:1_000_000] + " b"
    start = time.perf_counter()
    layout = plain_layout(text, "en", ["word"], "none")
    layout.render(
        [TranslatedSegment("x", segment=segment.without_protected()) for segment in layout.segments]
    )
    assert time.perf_counter() - start < 30
