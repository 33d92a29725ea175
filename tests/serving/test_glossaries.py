import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import transduce
from transduce.errors import TransduceError
from transduce.serving import glossaries
from transduce.serving.errors import NotFoundError, RequestError, TooLargeError
from transduce.serving.glossaries import Dictionary, GlossaryStore, checked, parse_entries

CONTROL = ("Cc", "Cs", "Zl", "Zp")
TERMS = st.text(st.characters(exclude_categories=CONTROL), min_size=1, max_size=12).filter(
    lambda text: text == text.strip() != ""
)
ENTRIES = st.dictionaries(TERMS, TERMS, min_size=1, max_size=8)
HOSTILE = ["../../x", "..", "", ".", "/etc/passwd", "x\0y", "A" * 10_000, "\ud800", "*", "a/b", "0" * 36]


def dictionary(entries=None, source="de", target="en") -> Dictionary:
    return Dictionary(source=source, target=target, entries=entries or {"haus": "house"})


@pytest.fixture
def store(tmp_path) -> GlossaryStore:
    return GlossaryStore(tmp_path / "glossaries")


# Entries


@given(ENTRIES)
def test_tsv_is_read_as_it_was_written(entries):
    text = "\n".join(f"{source}\t{target}" for source, target in entries.items())
    assert parse_entries(text, "tsv") == entries
    assert parse_entries(text.replace("\n", "\r\n") + "\r\n\r\n", "tsv") == entries


@given(ENTRIES)
def test_csv_is_read_as_it_was_written(entries):
    file = io.StringIO()
    csv.writer(file).writerows(entries.items())
    assert parse_entries(file.getvalue(), "csv") == entries


@given(st.text(max_size=200), st.sampled_from(["tsv", "csv"]))
@example('"', "csv")
@example("a\tb\x85c\td", "tsv")
@example("\x00,\x00", "csv")
def test_any_text_is_entries_or_a_mistake_of_the_client(text, layout):
    try:
        entries = checked(dictionary(parse_entries(text, layout) or {"a": "b"})).entries
    except RequestError:
        return
    # What was accepted can be sent to clients as TSV, whichever line breaks they know.
    lines = "\n".join(f"{source}\t{target}" for source, target in entries.items())
    assert dict(line.split("\t") for line in lines.splitlines()) == entries


def test_columns_of_deepl_after_the_second_are_languages():
    assert parse_entries("haus,house,de,en\n", "csv") == {"haus": "house"}


@pytest.mark.parametrize(
    ("text", "layout", "words"),
    [
        ("a\tb\nc", "tsv", "line 2"),
        ("a\tb\n\na\tc", "tsv", "line 3"),
        ("a", "csv", "line 1"),
        ("a\tb", "xml", "tsv"),
    ],
)
def test_mistakes_in_entries_are_named(text, layout, words):
    with pytest.raises(RequestError, match=words):
        parse_entries(text, layout)


@pytest.mark.parametrize(
    "entries", [{}, {" ": "x"}, {"x": " "}, {"a\tb": "c"}, {"a": "b\nc"}, {"a": "b\u2028c"}]
)
def test_terms_that_cannot_be_used_are_refused(entries):
    with pytest.raises(RequestError):
        glossaries.checked_entries(entries)


def test_limits():
    with pytest.raises(TooLargeError):
        glossaries.checked_entries({"x" * (glossaries.LONGEST_TERM + 1): "y"})
    with pytest.raises(TooLargeError):
        glossaries.checked_entries({str(number): "x" for number in range(glossaries.MOST_ENTRIES + 1)})


def test_languages_may_be_left_out(store):
    made = store.create("x", [dictionary({"a": "1"}, "", "")])
    assert made.terms("de", "en") == made.terms(None, None) == (("a", "1"),)


@pytest.mark.parametrize("code", ["../x", "d e", "x" * 36, "\ud800", "de\n"])
def test_languages_must_be_codes(code):
    with pytest.raises(RequestError):
        checked(dictionary(source=code))


# The store


@given(entries=ENTRIES, name=TERMS)
def test_glossaries_survive_a_restart(tmp_path_factory, entries, name):
    assume(len(name) <= glossaries.LONGEST_TERM)
    folder = tmp_path_factory.mktemp("store")
    made = GlossaryStore(folder).create(name, [dictionary(entries)])
    assert GlossaryStore(folder).get(made.id) == made
    assert [each.id for each in GlossaryStore(folder).all()] == [made.id]
    GlossaryStore(folder).delete(made.id)
    assert list(GlossaryStore(folder).all()) == []


@pytest.mark.parametrize("glossary_id", HOSTILE)
def test_hostile_ids_are_unknown(store, glossary_id):
    outside = Path(store._folder).parent / "x.json"
    outside.write_text("{}")
    for action in (store.get, store.delete):
        with pytest.raises(NotFoundError):
            action(glossary_id)
    with pytest.raises(NotFoundError):
        store.change(glossary_id, lambda old: old)
    assert outside.exists()


def test_a_damaged_file_does_not_hide_the_others(store):
    first, second = (store.create(name, [dictionary()]) for name in ("one", "two"))
    (store._folder / f"{first.id}.json").write_bytes(b'{"id": ')
    assert [each.id for each in store.all()] == [second.id]
    with pytest.raises(NotFoundError):
        store.get(first.id)
    store.delete(first.id)


def test_the_number_of_glossaries_and_dictionaries_is_limited(store, monkeypatch):
    monkeypatch.setattr(glossaries, "MOST_GLOSSARIES", 2)
    monkeypatch.setattr(glossaries, "MOST_DICTIONARIES", 2)
    made = store.create("one", [dictionary()])
    larger = made.with_dictionary(dictionary(source="fr"), merge=True)
    assert len(larger.with_dictionary(dictionary(source="fr"), merge=True).dictionaries) == 2
    with pytest.raises(TooLargeError):
        larger.with_dictionary(dictionary(source="es"), merge=True)
    store.create("two", [dictionary()])
    with pytest.raises(TooLargeError):
        store.create("three", [dictionary()])


def test_dictionaries_are_merged_replaced_and_removed(store):
    made = store.create("x", [dictionary({"a": "1", "b": "2"}), dictionary({"c": "3"}, "en", "de")])
    merged = made.with_dictionary(dictionary({"b": "4", "d": "5"}, "DE", "EN"), merge=True)
    assert merged.dictionary("de", "en").entries == {"a": "1", "b": "4", "d": "5"}
    replaced = made.with_dictionary(dictionary({"d": "5"}), merge=False)
    assert replaced.dictionary("de", "en").entries == {"d": "5"}
    single = made.without_dictionary("EN", "de")
    assert [each.pair for each in single.dictionaries] == [("de", "en")]
    with pytest.raises(RequestError):
        single.without_dictionary("de", "en")
    with pytest.raises(NotFoundError):
        made.without_dictionary("fr", "en")


def test_terms_are_found_whatever_the_region(store):
    made = store.create("x", [dictionary({"a": "1"}, "de", "en"), dictionary({"b": "2"}, "en", "pt-br")])
    assert made.terms("DE", "EN-US") == (("a", "1"),)
    assert made.terms(None, "pt") == (("b", "2"),)
    with pytest.raises(RequestError):
        made.terms("pt", "de")


def test_threads_that_change_a_glossary_lose_nothing(store):
    made = store.create("x", [dictionary({"start": "x"})])
    mistakes = []

    def work(thread: int) -> None:
        try:
            for number in range(15):
                new = dictionary({f"{thread}-{number}": "x"})
                store.change(made.id, lambda old, new=new: old.with_dictionary(new, merge=True))
        except TransduceError as error:
            mistakes.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mistakes
    assert len(store.get(made.id).dictionaries[0].entries) == 1 + 4 * 15


WRITER = """
import sys
from pathlib import Path
from transduce.serving.glossaries import Dictionary, GlossaryStore

store = GlossaryStore(Path(sys.argv[1]))
number = 0
print("ready", flush=True)
while True:
    number += 1
    entries = {f"term {index}": str(number) for index in range(2000)}
    new = Dictionary(source="de", target="en", entries=entries)
    store.change(sys.argv[2], lambda old: old.with_dictionary(new, merge=False))
"""


def test_a_writer_that_is_killed_leaves_a_whole_glossary(store):
    made = store.create("x", [dictionary({"start": "x"})])
    environment = {**os.environ, "PYTHONPATH": str(Path(transduce.__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(store._folder), made.id]
    for wait in (0.0, 0.013, 0.031, 0.057):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.1 + wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        entries = store.get(made.id).dictionaries[0].entries
        assert len(entries) == 2000
        assert len(set(entries.values())) == 1
    # The lock of a process that was killed is free again, and what it left behind is not a glossary.
    store.change(made.id, lambda old: old.model_copy(update={"name": "y"}))
    assert [each.name for each in store.all()] == ["y"]
    assert json.loads((store._folder / f"{made.id}.json").read_text())["name"] == "y"
