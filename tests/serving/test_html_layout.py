import re
import time
from collections import Counter
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from translations import backwards, identity, reordered, shouted, words_of

from transduce.serving.html_layout import html_layout
from transduce.serving.markup import Kind, match_elements, tokenize
from transduce.serving.segments import Link, TranslatedSegment

SOUP = st.lists(
    st.sampled_from(
        [
            "<b>",
            "</b>",
            "<i class='x>y'>",
            "</i>",
            "<p>",
            "</p>",
            "<br/>",
            "<img src=a>",
            "<x id=1/>",
            "<",
            ">",
            "&",
            "&amp;",
            "&lt;b&gt;",
            "&eacute;",
            "&nbsp;",
            "&#10;",
            "&bogus;",
            "<!--",
            "-->",
            "<!-- c. D -->",
            "<![CDATA[",
            "]]>",
            "<!doctype html>",
            "<?php",
            "?>",
            "<script>",
            "</script>",
            "<style>a<b",
            "</style>",
            "<pre>",
            "</pre>",
            "<span translate=no>",
            "<span class='a notranslate'>",
            "</span>",
            "<code>x y</code>",
            '<a b="',
            '"',
            "'",
            "One. ",
            "Two",
            " ",
            "\n",
            " three! ",
            "犬。",
            "{name}",
            "Dr.",
            "<B>",
            "</",
            "<3",
        ]
    ),
    max_size=25,
).map("".join) | st.text(max_size=40)


@given(SOUP, st.booleans(), st.sampled_from(["sentences", "none"]))
def test_unchanged_sentences_give_the_text(text, is_xml, splitting):
    layout = html_layout(text, "en", is_xml=is_xml, splitting=splitting, do_not_translate=["Two"])
    rendered = layout.render(identity(layout.segments))
    assert rendered.text == text
    assert rendered.spans == [(segment.begin, segment.end) for segment in layout.segments]


@given(SOUP, st.booleans(), st.booleans())
def test_tags_survive_every_translation_of_any_text(text, is_xml, is_bare):
    layout = html_layout(text, "en", is_xml=is_xml)
    segments = [segment.without_protected() if is_bare else segment for segment in layout.segments]
    rendered = layout.render([TranslatedSegment("Zwei Hunde, ja", segment=segment) for segment in segments])
    for segment, (begin, end) in zip(segments, rendered.spans, strict=True):
        verbatim = rendered.text[begin:end]
        raw = Counter(part for marker in segment.markers for part in (marker.opening, marker.closing) if part)
        assert all(verbatim.count(part) >= count for part, count in raw.items())
        words = verbatim
        for marker in sorted(segment.markers, key=lambda marker: -len(marker.opening)):
            words = words.replace(marker.opening + (marker.content or ""), "", 1)
            words = words.replace(marker.closing, "", 1)
        assert words.split() == ["Zwei", "Hunde,", "ja"] or "".join(words.split()) == "ZweiHunde,ja"


def tree(depth):
    """Well-formed markup with inline and block elements."""
    words = st.sampled_from(
        ["Two dogs run. ", "One ", "fast", ", ", "see A &amp; B", " &lt;i&gt; ", "Yes! ", "犬。"]
    )
    leaf = words | st.sampled_from(["<br/>", "<img src='>'/>", "<!-- x -->", "<code>pip x</code>"])
    if depth == 0:
        return leaf
    inner = st.lists(tree(depth - 1), max_size=4).map("".join)
    element = st.tuples(st.sampled_from(["b", "i", "a href='x'", "span", "p", "em"]), inner)
    return leaf | element.map(lambda made: f"<{made[0]}>{made[1]}</{made[0].split()[0]}>")


TREES = st.lists(tree(3), max_size=6).map("".join)


@st.composite
def translations(draw, segments):
    """For each segment its words in any order with links, or any words with any links."""
    found = []
    for segment in segments:
        number = len(words_of(segment.text))
        if draw(st.booleans()):
            found.append(reordered(segment, draw(st.permutations(range(number)))))
        else:
            target = " ".join(
                draw(st.lists(st.sampled_from(["ja", "犬", "Hunde", "&", "<b>", "pip x"]), max_size=6))
            )
            place = st.integers(0, 30)
            links = draw(st.lists(st.builds(Link, place, place, place, place), max_size=8))
            found.append(TranslatedSegment(target, links))
    return found


def tags(text):
    """All tags, comments and untranslated elements."""
    return Counter(text[token.begin : token.end] for token in tokenize(text) if token.kind is not Kind.TEXT)


@given(st.data(), TREES)
def test_elements_appear_once_and_stay_nested_whatever_the_links(data, text):
    layout = html_layout(text, "en")
    translated = data.draw(translations(layout.segments))
    result = layout.render(translated).text
    assert tags(result) == tags(text)
    tokens = tokenize(result)
    elements, openings = match_elements(tokens)
    assert all(element.is_closed for element in elements.values())
    assert len(openings) == sum(token.kind is Kind.CLOSE for token in tokens)
    texts = "".join(result[token.begin : token.end] for token in tokens if token.kind is Kind.TEXT)
    assert not re.search(r"<|>|&(?!amp;|lt;|gt;)", texts)


@given(TREES)
def test_the_words_of_translations_are_all_there(text):
    layout = html_layout(text, "en", protect=False)
    translated = [backwards(segment) for segment in layout.segments]
    result = layout.render(translated)
    for segment, translation, (begin, end) in zip(layout.segments, translated, result.spans, strict=True):
        contents = [marker for marker in segment.markers if marker.content is not None]
        if not contents:
            shown = unescape(re.sub(r"<!--.*?-->|<img src='>'/>|<[^>]*>", "", result.text[begin:end]))
            assert "".join(shown.split()) == "".join(translation.text.split())


def spoken(text, translate=shouted, **options):
    layout = html_layout(text, "en", **options)
    return layout.render([translate(segment) for segment in layout.segments]).text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<p>Hello <b>big</b> world. <i>Fine.</i></p>", "<p>HELLO <b>BIG</b> WORLD. <i>FINE.</i></p>"),
        ("One <b>two. Three</b> four.", "ONE <b>TWO. THREE</b> FOUR."),
        ("One <b>two. </b>Three <i> four </i>five.", "ONE <b>TWO.</b> THREE <i>FOUR</i> FIVE."),
        ("Click <img src=x> here<br>next", "CLICK <img src=x> HERE<br>NEXT"),
        ("A &lt;b&gt; &amp; &eacute; &copy; x", "A &lt;B&gt; &amp; É © X"),
        ("a < b <3 c", "A &lt; B &lt;3 C"),
        (
            "Say <span translate=no>no</span> <!-- a. B --> now",
            "SAY <span translate=no>no</span> <!-- a. B --> NOW",
        ),
        (
            "<div class='a notranslate'>a<div>b</div>c</div>d",
            "<div class='a notranslate'>a<div>b</div>c</div>D",
        ),
        (
            "<script>if (a<b) x</script><p>a<style>p {}</style>",
            "<script>if (a<b) x</script><p>A<style>p {}</style>",
        ),
        ("<title>a</title><pre>b  c\n d\n</pre>", "<title>A</title><pre>B  C\n D\n</pre>"),
        ("<ul><li>one<li>two</ul>", "<ul><li>ONE<li>TWO</ul>"),
        (
            "<p translate='no'>a</p> <p>b <i translate=no>c</p> d",
            "<p translate='no'>a</p> <p>B <i translate=no>c</p> D",
        ),
        ("12 &nbsp; - *", "12 &nbsp; - *"),
    ],
)
def test_examples(text, shown):
    assert spoken(text) == shown


def test_tags_go_with_their_words():
    assert spoken("<b>Note</b> the <a href='x'>old man</a> there", backwards) == (
        "THERE <a href='x'>MAN OLD</a> THE <b>NOTE</b>"
    )
    assert spoken("See <i>the <b>big</b> dog</i> run", backwards) == "RUN <i>DOG <b>BIG</b> THE</i> SEE"


def test_without_links_tags_go_to_their_share_of_the_text():
    layout = html_layout("Two <b>young</b> men", "en")
    assert layout.render([TranslatedSegment("Zwei junge Männer")]).text == "Zwei <b>junge</b> Männer"


def test_untranslated_elements_are_read_and_copied():
    layout = html_layout("Run <code>pip x</code>, <kbd>a<b>c</b></kbd> now", "en")
    (segment,) = layout.segments
    assert segment.text == "Run pip x, now"
    assert segment.protected == ("pip x",)
    element = "<kbd>a<b>c</b></kbd>"  # has tags inside, and is not read
    for target, shown in [
        ("Jetzt pip x laufen", f"Jetzt <code>pip x</code> {element} laufen"),
        ("Los, jetzt", f"Los <code>pip x</code>, jetzt {element}"),
    ]:
        assert layout.render([TranslatedSegment(target)]).text == shown


def test_xml():
    text = '<doc><t>One &foo; <x id="1"/> <g>Two</g>.</t><t>&quot;A&quot; &eacute;</t><s>B</s></doc>'
    layout = html_layout(text, "en", is_xml=True, ignore_tags=["s"])
    assert [segment.text for segment in layout.segments] == ["One Two.", '"A"']
    assert layout.render([shouted(segment) for segment in layout.segments]).text == (
        '<doc><t>ONE &foo; <x id="1"/> <g>TWO</g>.</t><t>&quot;A&quot; &eacute;</t><s>B</s></doc>'
    )
    inline = html_layout("<a>One</a><a>two</a>", "en", is_xml=True, outline_detection=False)
    assert [segment.text for segment in inline.segments] == ["Onetwo"]
    options = {"is_xml": True, "splitting_tags": ["b"], "non_splitting_tags": ["a"]}
    assert [s.text for s in html_layout("x <b>y</b> z<c><a>q</a></c>", "en", **options).segments] == [
        "x", "y", "zq"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "unit",
    [
        "<b>",
        "<b>a ",
        "</b>",
        "<",
        "<!--",
        '<a x="><a" ',
        "<a '",
        "&#1",
        "a <i>b</i> ",
        "<?",
        "<![CDATA[",
        " ",
        "<p>a",
        "<code>a</code> b ",
        "<span translate=no>",
        "<script>",
        "<b",
        "&amp;. A",
    ],
)
def test_the_time_is_linear(unit):
    text = (unit * 100_000)[:100_000]
    start = time.perf_counter()
    layout = html_layout(text, "en")
    translated = []
    for segment in layout.segments:
        half = len(segment.text) // 2
        links = [Link(place, place + 1, half - place, half - place + 1) for place in range(0, half, 2)]
        translated.append(TranslatedSegment("x" * (half + 1), links))
    layout.render(translated)
    assert time.perf_counter() - start < 20


def test_a_large_page_takes_seconds():
    text = "<p>One <b>two</b> three, <i>four</i> &amp; more. Five six seven.</p>\n" * 15_000  # 1 MB
    start = time.perf_counter()
    layout = html_layout(text, "en")
    layout.render([TranslatedSegment("Ja, nein") for _ in layout.segments])
    assert time.perf_counter() - start < 60
