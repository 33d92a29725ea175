import gzip
import json

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from scripted import scripted_translator

from transduce import artifact
from transduce.decoding.guard import (
    Finding,
    choose,
    copies_are_wrong,
    findings,
    is_copy,
    remedy_settings,
)
from transduce.decoding.settings import SearchSettings
from transduce.decoding.streams import translate_file
from transduce.decoding.translation import Candidate, Translation, join_pieces
from transduce.decoding.translator import Translator
from transduce.interop.marian_import import read

ENGLISH = "the old man is sleeping on the long bench near the lake"
GERMAN = "der alte Mann schläft auf der langen Bank am See"


def candidate(text, score=-1.0, log_probability=-0.1, tokens=None, ended=True):
    tokens = text.split() if tokens is None else tokens
    return Candidate(text, score, tokens, [log_probability] * (len(tokens) + ended))


def kinds(source, target, **options):
    return [each.kind for each in findings(source, candidate(target, **options), source.split())]


def test_confidence_is_the_mean_probability_of_a_token():
    assert Candidate("", 0.0, [], [-0.5, -1.5]).confidence == pytest.approx(0.3679, abs=1e-4)
    assert Candidate("", 0.0, [], [0.0]).confidence == 1
    assert Candidate("", 0.0, [], []).confidence == 0


@pytest.mark.parametrize(
    "target",
    [
        "der alte Mann Mann Mann Mann Mann schläft",
        "der alte " + "Mann der alte " * 9,
        "auf der Bank , " * 4,
        "der" + " , " * 30,
        # no unit is repeated without a break, but most of it was there before
        "der alte Mann schläft tief . der alte Mann schläft gut . der alte Mann schläft tief . "
        "der alte Mann schläft nie . der alte Mann schläft gut . der alte Mann schläft tief .",
    ],
)
def test_loops_are_found(target):
    assert kinds(ENGLISH, target) == ["repetition"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (ENGLISH, GERMAN),
        ("ha ha ha ha ha ha ha ha", "ha ha ha ha ha ha ha ha"),
        ("哈 哈 哈 哈 哈 哈", "ha ha ha ha ha ha ha"),
        ("no , no , no , no !", "nein , nein , nein , nein !"),
        ("very very very good", "sehr sehr sehr sehr gut"),
        ("one trillion", "1 , 000 , 000 , 000 , 000"),
        ("Nooo", "N e e e e e e e i n"),
        ("row row row your boat gently down the stream", "fahr fahr fahr dein Boot den Strom hinab"),
    ],
)
def test_repetitions_that_the_source_has_or_that_are_common_are_none(source, target):
    assert kinds(source, target) == []


def test_characters_as_tokens_are_no_loop():
    text = "the thing that the other thinkers thought was that the theory of the thin thread is the thing"
    assert findings(GERMAN, candidate(text, tokens=list(text)), list(GERMAN), copies=False) == []
    looping = text[:20] + "thin thread " * 6
    (found,) = findings(GERMAN, candidate(looping, tokens=list(looping)), list(GERMAN))
    assert (found.kind, "thin thread" in found.message, "6" in found.message) == ("repetition", True, True)


@pytest.mark.parametrize("target", [ENGLISH, ENGLISH.title(), ENGLISH + " .", ENGLISH.replace("long ", "")])
def test_copies_are_found(target):
    assert kinds(ENGLISH, target) == ["copy"]
    assert findings(ENGLISH, candidate(target), copies=False) == []


def test_copies_of_text_without_spaces_are_found():
    source = "委员会昨天决定推迟这个重要的会议"
    assert is_copy(source, source + "。")
    assert not is_copy("北京上海", "北京上海")  # four characters: names
    assert not is_copy(source, "The committee decided yesterday to postpone this important meeting")


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "Anna Müller, José García, John Smith, Mary Brown, Peter Jones",
        "https://example.com/a http://test.org/b?c=d www.a.org/c me@there.com ftp://x.y/z e.g.this",
        "12 34 56 78 90 12 34",
        "la la la la la la la la",
        "def f(x): return x + 1 if x > 0 else f(-x)",
        "x=1; y=2; z=3; a=4; b=5; c=6;",
        "a b c d e f g h i j",
        "taxi, hotel, bar",
        "",
    ],
)
def test_what_may_stay_as_it_is_is_no_copy(line):
    assert not is_copy(line, line)


def test_whether_copies_are_wrong_is_told_by_the_languages_or_by_the_other_lines():
    copy, other = Translation(ENGLISH, [candidate(ENGLISH)]), Translation(ENGLISH, [candidate(GERMAN)])
    assert copies_are_wrong([copy] * 30, ("eng_Latn", "deu_Latn"))
    assert not copies_are_wrong([copy, *[other] * 30], ("en-GB", "en_US"))
    assert copies_are_wrong([copy, *[other] * 9], (None, None))
    assert not copies_are_wrong([copy, *[other] * 8], (None, None))  # too few
    assert not copies_are_wrong([copy] * 5 + [other] * 30, (None, "de"))  # a task such as normalization
    blank = Translation("", [])
    assert not copies_are_wrong([copy, *[blank] * 30], (None, None))


@pytest.mark.parametrize(
    ("source", "target", "ended"),
    [
        ("a man", " ".join(f"wort{number}" for number in range(40)), True),
        (" ".join(f"word{number}" for number in range(30)), "ja .", True),
        (ENGLISH, "", True),
        (ENGLISH, GERMAN, False),
    ],
)
def test_absurd_lengths_are_found(source, target, ended):
    assert kinds(source, target, ended=ended) == ["length"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("…", ""),
        ("ok", "in Ordnung , das machen wir so"),
        ("$1,234,567", "one million two hundred thirty four thousand five hundred and sixty seven dollars"),
        ("Thank you very much indeed for all of this", "Danke"),
    ],
)
def test_other_lengths_are_not(source, target):
    assert kinds(source, target) == []


def test_chinese_is_not_too_short_nor_english_too_long():
    chinese = "委员会昨天决定推迟这个重要的会议"
    english = "The committee decided yesterday to postpone this important meeting to the end of next month"
    assert findings(english, candidate(chinese, tokens=["委员会", "推迟", "会议"]), english.split()) == []
    long = candidate(english, tokens=list(english))
    assert findings(chinese, long, ["委员会", "昨天", "决定", "推迟", "会议"]) == []


def translation(target, source=ENGLISH, found=(), **options):
    return Translation(source, [candidate(target, **options)], source.split(), findings=list(found))


def test_remedies():
    loop, long = Finding("repetition", ""), Finding("length", "")
    settings = SearchSettings()
    first = translation("Mann " * 60)
    assert remedy_settings(settings, [loop]).no_repeat_ngram == 3
    assert remedy_settings(settings, [loop], first).no_repeat_ngram == 3
    assert remedy_settings(SearchSettings(no_repeat_ngram=3), [loop]).no_repeat_ngram == 2
    assert remedy_settings(SearchSettings(no_repeat_ngram=1), [loop]).no_repeat_ngram == 1
    letters = Translation(ENGLISH, [candidate("ha" * 60, tokens=list("ha" * 60))], list(ENGLISH))
    assert remedy_settings(settings, [loop], letters).no_repeat_ngram == 9
    changed = remedy_settings(settings, [long], first)
    assert 1 <= changed.min_length < 12 < changed.max_length < 62
    laugh = translation("ha " * 90, source="ha " * 12)
    assert (remedy_settings(settings, [loop], laugh).max_length, changed.no_repeat_ngram) == (12, 0)


@given(st.data())
def test_remedies_are_valid_settings(data):
    draw, small = data.draw, st.integers(0, 12)
    sampling = draw(st.booleans())
    groups = 1 if sampling else draw(st.integers(1, 3))
    settings = SearchSettings(
        sample=sampling,
        beam=4 if sampling else groups * draw(st.integers(1, 9)),
        diverse_groups=groups,
        min_length=(shortest := draw(small)),
        max_length=draw(st.none() | st.integers(shortest + 1, shortest + 40)),
        no_repeat_ngram=draw(small),
    )
    found = [Finding(kind, "") for kind in draw(st.sets(st.sampled_from(["repetition", "copy", "length"])))]
    source = draw(st.sampled_from(["", "a", "ha " * 9, ENGLISH]))
    changed = remedy_settings(settings, found, translation(draw(st.text()), source=source))
    assert changed.width >= max(8, settings.width)
    assert changed.min_length >= settings.min_length
    if settings.max_length is not None:
        assert changed.max_length <= settings.max_length
    assert changed.seed == settings.seed


def test_the_better_of_two_is_chosen_by_findings_then_by_score():
    loop = [Finding("repetition", "loops")]
    first = translation("Mann " * 20, found=loop, score=-0.1)
    mended = choose(first, translation(GERMAN, score=-5.0, log_probability=-2.0))
    assert mended.text == GERMAN
    assert mended.findings[0].kind == "repetition"
    assert "loops" in mended.findings[0].message
    assert "0.14" in mended.findings[0].message
    assert choose(first, translation("Mann " * 30, score=-0.2)).text == first.text
    assert choose(first, Translation(ENGLISH, [])).text == first.text
    both = Translation(ENGLISH, [candidate(GERMAN, score=-9.0), candidate("der Mann auf der Bank", score=-3)])
    assert choose(first, both).text == "der Mann auf der Bank"
    assert choose(translation("", found=[Finding("length", "is empty")]), both).text != ""


def test_a_copy_is_replaced_only_by_a_probable_translation():
    first = translation(ENGLISH, found=[Finding("copy", "")], score=-0.5)
    assert choose(first, translation(GERMAN, score=-2.0, log_probability=-0.9)).text == GERMAN
    assert choose(first, translation(GERMAN, score=-9.0, log_probability=-4.0)).text == ENGLISH
    changed = ENGLISH.replace("lake", "pond").replace("old", "new").replace("man", "cat")
    assert choose(first, translation(changed, score=-0.4)).text == ENGLISH


TEXTS = st.text(max_size=60) | st.builds(
    lambda parts, times: " ".join(parts * times),
    st.lists(st.sampled_from(["ha", "the", "Mann", ",", "的", "x=1", "\n"]), max_size=5),
    st.integers(0, 30),
)


@examples(max_examples=200)
@given(
    TEXTS,
    st.lists(st.tuples(TEXTS, st.booleans(), st.floats(-20, 0)), min_size=2, max_size=6),
    st.booleans(),
)
def test_on_any_text_nothing_fails_and_the_result_is_not_worse(source, targets, copies):
    tokens = source.split()
    pool = [
        candidate(text, score, score / 10, tokens=list(text) if ended else None, ended=ended)
        for text, ended, score in targets
    ]
    found = findings(source, pool[0], tokens, copies=copies)
    first = Translation(source, pool[:1], tokens, findings=found)
    chosen = choose(first, Translation(source, pool[1:], tokens), copies=copies)
    assert len(findings(source, chosen.candidates[0], tokens, copies=copies)) <= len(found)
    assert [each.kind for each in chosen.findings] == [each.kind for each in found]
    remedy_settings(SearchSettings(), found, first)


def test_findings_of_pieces_are_joined():
    parts = [translation(GERMAN, found=[Finding(kind, "")]) for kind in ("copy", "length")]
    assert [each.kind for each in join_pieces("line", parts).findings] == ["copy", "length"]


PLANS = {
    "the man sleeps": [(0.9, ["Mann"] * 100), (0.1, ["der", "Mann", "schläft"])],
    "the dog runs": [(0.9, ["der", "Hund", "läuft"]), (0.1, ["ein", "Hund"])],
}


def test_a_loop_is_searched_again_and_said():
    said = []
    plain = scripted_translator(PLANS, guard=False)
    guarded = scripted_translator(PLANS, on_warning=said.append)
    assert plain("the man sleeps").text.startswith("Mann Mann Mann Mann")
    loop, fine = guarded(list(PLANS))
    assert (loop.text, fine.text) == ("der Mann schläft", "der Hund läuft")
    assert fine == plain("the dog runs")
    assert [each.kind for each in loop.findings] == ["repetition", "length"]
    assert len(said) == 2
    assert all("the man sleeps" in line and "confidence" in line for line in said)
    assert len(loop.candidates) == 1


def test_constraints_hold_in_the_second_search():
    guarded = scripted_translator(PLANS, on_warning=[].append, prefix="Mann")
    assert guarded("the man sleeps").text.startswith("Mann")


def test_a_copy_is_replaced_where_languages_differ_or_other_lines_are_no_copies():
    others = {f"here is line {word} of many others": [(1.0, ["eine", word])] for word in "abcdefghij"}
    plans = {ENGLISH: [(0.7, ENGLISH.split()), (0.3, GERMAN.split())], **others}
    lines = [ENGLISH, *others]
    assert scripted_translator(plans, guard=False)(ENGLISH).text == ENGLISH
    guarded = scripted_translator(plans, on_warning=[].append)
    assert guarded(ENGLISH).text == ENGLISH  # alone, it does not show what the model does
    mended = guarded(lines)[0]
    assert (mended.text, mended.findings[0].kind) == (GERMAN, "copy")
    # A model that copies most lines, as in spelling correction, may do so.
    copying = {line: [(0.7, line.split()), (0.3, ["x"])] for line in lines}
    assert [each.text for each in scripted_translator(copying)(lines)] == lines


def test_findings_are_in_the_json_output(tmp_path):
    (tmp_path / "in").write_text("the man sleeps\nthe dog runs\n")
    guarded = scripted_translator(PLANS, on_warning=[].append)
    translate_file(guarded, tmp_path / "in", tmp_path / "out", "json")
    loop, fine = (json.loads(line) for line in (tmp_path / "out").read_text().splitlines())
    assert [each["kind"] for each in loop["findings"]] == ["repetition", "length"]
    assert all(each["message"] for each in loop["findings"])
    assert fine["findings"] == []


@pytest.fixture(scope="module")
def firefox(shared, tmp_path_factory):
    folder, out = shared / "weights" / "firefox-en-pt", tmp_path_factory.mktemp("firefox")
    imported = read(folder)
    artifact.save(imported.model, out, imported.tokenizer)
    with gzip.open(folder / "expected-noshortlist.tsv.gz", "rt", encoding="utf-8") as file:
        return Translator.load(out, device="cpu", guard=True, on_warning=[].append), [
            line.split("\t")[0] for line in file
        ]


def test_a_real_model_gives_no_false_alarm(firefox):
    translator, lines = firefox
    assert [each.findings for each in translator(lines[:60])] == [[]] * 60


def test_loops_of_a_real_model_are_mended(firefox):
    translator, _ = firefox
    lines = ["😀 😂 🎉 🚀 ❤️ 👍 🔥 🙏 😭 🤔", "ha" * 14, "." * 38, "#winning #blessed #nofilter #tbt #love"]
    for line, mended in zip(lines, translator(lines), strict=True):
        assert "repetition" in [each.kind for each in mended.findings], line
        assert findings(line, mended.candidates[0], mended.source_tokens) == []
    fine = [
        "ha ha ha ha ha ha ha ha ha ha ha ha",
        "https://example.com/a/b?c=1 http://test.org/x_y-z",
        "Yes! " * 8,
    ]
    assert [each.findings for each in translator(fine)] == [[]] * 3
