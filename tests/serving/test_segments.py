from transduce.serving.placement import render_segment
from transduce.serving.segments import Link, Marker, Segment, TranslatedSegment


def test_protected_parts_inside_markers_stay_inside():
    text = "see {a} and {b}"
    segment = Segment(
        text, 0, 15, (Marker(0, 7, "<b>", "</b>"), Marker(12, 15, "<i>", "</i>")), ((4, 7), (12, 15))
    )
    bare = segment.without_protected()
    assert bare.text == "see and"
    assert [marker.parent for marker in bare.markers] == [-1, -1, 0, 1]
    links = [Link(0, 3, 4, 7), Link(4, 7, 0, 3)]
    assert render_segment(bare, TranslatedSegment("und SIE", links)) == "und <b>SIE {a}</b><i> {b}</i>"


def test_too_few_copies_are_missing():
    segment = Segment("{a} or {a}", 0, 10, places=((0, 3), (7, 10)))
    assert segment.missing_protected("{a}") == ["{a}"]
    assert segment.missing_protected("{a}{a}") == []


def test_words_are_not_cut_unless_the_source_is():
    links = [Link(0, 4, 0, 2), Link(5, 8, 2, 6)]
    for markers, shown in [
        ((Marker(0, 4, "<b>", "</b>"),), "<b>abcdef</b>"),
        ((Marker(0, 1, "<b>", "</b>"),), "<b>a</b>bcdef"),
    ]:
        assert render_segment(Segment("long one", 0, 8, markers), TranslatedSegment("abcdef", links)) == shown


def test_ordered_markers_keep_their_order():
    markers = (Marker(4, 4, "</a>", is_ordered=True), Marker(8, 8, "<b>", is_ordered=True))
    links = [Link(0, 3, 8, 11), Link(4, 7, 4, 7), Link(8, 11, 0, 3)]
    result = render_segment(Segment("one two six", 0, 11, markers), TranslatedSegment("SIX TWO ONE", links))
    assert result.index("</a>") < result.index("<b>")
