"""Tokenizers that the library loads, but that break when they are used: one line that names the file."""

import base64
import json
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from corpora import KINDS, refused, sentences, tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from transduce.config import Vocabulary
from transduce.data import tokenizer_guard
from transduce.data.tokenizer import SPECIAL, SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_guard import guarded, is_known
from transduce.data.tokenizer_training import train_side_tokenizer
from transduce.data.wordpiece import MAX_TOKENS
from transduce.data.wordpiece_training import train_wordpiece
from transduce.errors import ConfigError, DataError

VOCABULARY = {name: number for number, name in enumerate([*SPECIAL, "a", "b", "x", "ab", "é", "▁the"])}
WORDS = {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "<unk>"}
PIECES = {**WORDS, "type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
BPE = {"type": "BPE", "vocab": VOCABULARY, "merges": [], "unk_token": "<unk>"}
# It takes time that is exponential in the number of letters, so that the library gives up.
CATASTROPHE = "(x+x+)+y"
LATER = "x" * 60 + " y"


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(pattern, content, kind="Regex"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def template(*names):
    single = [{"Sequence": {"id": name, "type_id": 0}} for name in names]
    pair = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}


def table(index, texts):
    data = struct.pack("<I", len(index)) + index + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def content_of(**sections):
    empty = dict.fromkeys(
        ["truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"]
    )
    return json.dumps({"version": "1.0", "added_tokens": [], "model": WORDS, **empty, **sections})


def written(folder, **sections):
    path = folder / "tokenizer.json"
    path.write_text(content_of(**sections), encoding="utf-8")
    return path


BROKEN = {
    "regular expression": {"pre_tokenizer": split("(a+a+)+y")},
    "normalizer": {"normalizer": replace("(a+a+)+y", "-")},
    "decoder": {
        "model": BPE,
        "decoder": sequence("decoders", {"type": "Fuse"}, replace("(a+a+)+y", "-")),
    },
    "second text": {"post_processor": template("A", "B")},
    "no unknown word": {"model": {**WORDS, "unk_token": "[UNK]"}},
    "no unknown piece": {"model": {**PIECES, "unk_token": "[UNK]"}},
    "no unknown merge": {"model": {**BPE, "unk_token": "[UNK]"}},
    "no unknown unigram": {"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": None}},
    "strip": {"decoder": {"type": "Strip", "content": "a", "start": 10**6, "stop": 10**6}},
    "empty pieces": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "prefix": {"model": {**BPE, "merges": ["a b"], "continuing_subword_prefix": "####"}},
    "table": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "table index": {"normalizer": table(b"\xff" * 4, b"a\0")},
    "id of 33 bits": {"model": {**WORDS, "vocab": {**VOCABULARY, "z": 2**32}}},
    "id of 32 bits": {"model": {**WORDS, "vocab": {**VOCABULARY, "z": 2**32 - 1}}},
    "gap": {"model": {**WORDS, "vocab": {**VOCABULARY, "z": 2**31}}},
    "same id": {"model": {**WORDS, "vocab": {**VOCABULARY, "z": 4}}},
    "one id too many": {"model": {**WORDS, "vocab": {**VOCABULARY, "z": MAX_TOKENS}}},
}


@pytest.mark.parametrize("fault", BROKEN)
def test_tokenizers_that_cannot_be_used_are_refused_when_they_are_loaded(fault, tmp_path, capfd):
    path = written(tmp_path, **BROKEN[fault])
    said = refused(load_side_tokenizer, path)
    assert str(path) in said
    assert len(said) < 400 + len(str(path))
    assert str(path) in refused(TokenizerPair.load, tmp_path)
    assert capfd.readouterr() == ("", "")


def test_ids_are_as_large_as_a_model_allows(tmp_path):
    vocabulary = {**VOCABULARY, "z": MAX_TOKENS - 1}
    side = load_side_tokenizer(written(tmp_path, model={**WORDS, "vocab": vocabulary}))
    assert TokenizerPair(side, side).vocabulary.source == side.size == MAX_TOKENS
    with pytest.raises(ConfigError):
        Vocabulary(source=MAX_TOKENS + 1, target=1, pad=0, bos=0, eos=0)


def byte_level(*steps):
    return sequence(
        "pretokenizers", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}, *steps
    )


LATE = {
    "foreign": {"model": BPE, "pre_tokenizer": split(CATASTROPHE)},
    "word by word": {
        "normalizer": sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}),
        "pre_tokenizer": byte_level(split(CATASTROPHE)),
    },
}


@pytest.mark.parametrize("case", LATE)
def test_a_text_that_breaks_a_tokenizer_later(case, tmp_path, capfd):
    path = written(tmp_path, **LATE[case])
    side = load_side_tokenizer(path)
    whole = side.encode(["a b", "b"])
    for encode in (side.encode, side.encode_slowly, side.plain.encode):
        assert str(path) in refused(encode, ["a", LATER])
    pair = TokenizerPair(side, side)
    for encode in (pair.encode_source, pair.encode_target):
        assert str(path) in refused(encode, [LATER])
    assert side.encode(["a b", "b"]) == whole
    assert capfd.readouterr() == ("", "")


def test_tokens_that_break_a_tokenizer_later(tmp_path, capfd):
    decoder = sequence("decoders", {"type": "Fuse"}, replace(CATASTROPHE, "-"))
    path = written(tmp_path, model=BPE, decoder=decoder)
    side = load_side_tokenizer(path)
    tokens = side.encode([LATER])[0]
    for keep_special in (False, True):
        assert str(path) in refused(side.decode, tokens, keep_special=keep_special)
    assert str(path) in refused(TokenizerPair(side, side).decode, tokens)
    assert side.decode(tokens[:3]) == "xxx"
    assert capfd.readouterr() == ("", "")


def test_special_tokens_are_kept_on_request():
    side = tokenizer("bpe").source
    (ids,) = side.encode(["the dog"])
    assert side.decode([*ids, 2]) == "the dog"
    assert side.decode([*ids, 2], keep_special=True) == "the dog</s>"


def test_a_tokenizer_without_a_file_is_named_in_words():
    side = SideTokenizer(Backend(models.WordLevel({"a": 0}, unk_token="[UNK]")))
    assert "the tokenizer" in refused(side.encode, ["b"])


def test_errors_in_arguments_keep_their_types(tmp_path):
    for side in (load_side_tokenizer(written(tmp_path)), tokenizer("bpe").source):
        with pytest.raises(TypeError):
            side.encode_slowly([b"a"]) if side.normalization is None else side.backend.encode_batch_fast([1])
        with pytest.raises(OverflowError):
            side.decode([-1])
        with pytest.raises(TypeError):
            side.decode(["a"])


# Steps that make a text longer multiply:


@pytest.mark.parametrize(
    "sections",
    [
        {"normalizer": sequence("normalizers", *[replace("a", "aa", "String")] * 40)},
        {"normalizer": sequence("normalizers", *[replace("(?=a)", "a")] * 40)},
        {"normalizer": sequence("normalizers", *[replace("", "a", "String")] * 40)},
        {"normalizer": sequence("normalizers", *[sequence("normalizers", replace("a", "aa"))] * 40)},
        {"normalizer": replace("a", "a" * 100_000)},
        {"normalizer": {"type": "Prepend", "prepend": "a" * 100_000}},
        {
            "pre_tokenizer": byte_level(
                *[{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}] * 40
            )
        },
        {"post_processor": template(*"A" * 100_000)},
        {"decoder": sequence("decoders", *[replace("a", "aa", "String")] * 40)},
        {"decoder": sequence("decoders", *[{"type": "BPEDecoder", "suffix": ""}] * 40)},
        {"normalizer": table(bytes(1024), b"a" * 100_000)},
    ],
)
def test_tokenizers_that_make_texts_far_longer_are_refused(sections, tmp_path):
    path = written(tmp_path, **sections)
    said = refused(load_side_tokenizer, path)
    assert str(path) in said
    assert "longer" in said


def test_many_harmless_steps_are_read(tmp_path):
    letters = [replace(chr(ord("c") + number), "a", "String") for number in range(15)]
    spaces = [replace(r"\s+", " "), replace(" {2,}", " "), replace("[^a-z]", ""), replace("(a|b)", "ab")] * 3
    side = load_side_tokenizer(
        written(tmp_path, model=BPE, normalizer=sequence("normalizers", *letters, *spaces))
    )
    assert side.encode(["c  d"]) == [[VOCABULARY["a"], VOCABULARY["b"]] * 8]


# Files that have no end, or nearly none:


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_devices_are_refused(tmp_path):
    (tmp_path / "tokenizer.json").symlink_to("/dev/zero")
    for path in (Path("/dev/zero"), tmp_path / "tokenizer.json"):
        assert str(path) in refused(load_side_tokenizer, path)


def test_large_files_are_refused(tmp_path, monkeypatch):
    path = written(tmp_path)
    monkeypatch.setattr("transduce.data.tokenizer._MAX_FILE", path.stat().st_size)
    assert load_side_tokenizer(path).size == len(VOCABULARY)
    path.write_text(content_of() + " ")
    assert str(path) in refused(load_side_tokenizer, path)


def test_long_lists_of_words_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", ""]))
    monkeypatch.setattr("transduce.data.wordpiece.MAX_TOKENS", 6)
    assert load_side_tokenizer(path).size == 6
    path.write_text(path.read_text() + "\n" * 9)
    said = refused(load_side_tokenizer, path)
    assert str(path) in said
    assert "6 lines" in said


# Our own tokenizers never panic, so that nothing needs to be held back for them:


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["nfc", "nfd", "nfkc", "none"])
def test_tokenizers_trained_here_are_known(kind, form, tmp_path):
    tokenizer(kind, form).save(tmp_path)
    assert is_known(tokenizer(kind, form).source.backend)
    assert is_known(TokenizerPair.load(tmp_path).source.backend)


def test_tokenizers_of_bert_are_known(tmp_path):
    side = train_wordpiece(sentences(50), size=200)
    assert is_known(side.backend)
    side.backend.decoder = None
    assert not is_known(side.backend)


@pytest.mark.parametrize("fault", [*BROKEN, *LATE])
def test_other_tokenizers_are_not_known(fault):
    sections = {**BROKEN, **LATE}[fault]
    if not {"prefix", "table", "id of 33 bits"} & {fault}:  # these cannot be loaded at all
        assert not is_known(Backend.from_str(content_of(**sections)))


class Custom:
    def pre_tokenize(self, text):
        text.split(lambda number, part: [part])


def test_steps_written_in_python_are_not_known():
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Custom())
    assert not is_known(backend)
    assert SideTokenizer(backend).encode(["a"]) == [[0]]


def test_dropout_is_for_tokenizers_that_know_every_byte(tmp_path):
    ours = train_side_tokenizer(sentences(50), kind="bpe", size=400)
    content = json.loads(ours.backend.to_str())
    content["pre_tokenizer"] = sequence("pretokenizers", content["pre_tokenizer"], split(CATASTROPHE))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    assert "BPE-dropout" in refused(load_side_tokenizer(path).dropout)
    content = json.loads(ours.backend.to_str())
    del content["model"]["vocab"]["ÿ"]
    path.write_text(json.dumps(content))
    assert "BPE-dropout" in refused(load_side_tokenizer(path).dropout)
    assert ours.dropout().has_merges


# Standard error:


class PanicException(BaseException):
    """What Rust raises has this name."""


def fail(error, printed=b"", *, muted=True):
    with guarded("a", "fails", muted=muted):
        os.write(2, printed)
        raise error


def test_what_others_print_is_passed_on(capfd):
    with guarded("a", "fails", muted=True):
        os.write(2, b"first\n")
        with guarded("a", "fails", muted=True):
            os.write(2, b"second\n")
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "first\nsecond\n"
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt(), b"third\n")
    assert capfd.readouterr().err == "third\n"
    assert "a fails: reason" in refused(fail, Exception("reason"), b"x" * 300_000)
    assert len(capfd.readouterr().err) == 300_000


def test_what_rust_prints_is_dropped(capfd):
    assert "a fails: reason" in refused(fail, PanicException("reason"), b"panicked at")
    assert "a fails: reason" in refused(fail, PanicException("reason"), b"of others\n", muted=False)
    assert capfd.readouterr().err == "of others\n"


def test_no_file_is_left_open():
    def count():
        return len(list(Path("/dev/fd").iterdir()))

    before = count()
    for error in (PanicException(), Exception(), KeyboardInterrupt()):
        with pytest.raises((DataError, KeyboardInterrupt)):
            fail(error)
    assert count() == before


def test_standard_error_may_be_closed(tmp_path):
    saved = os.dup(2)
    os.close(2)
    try:
        path = written(tmp_path, model=BPE, pre_tokenizer=split(CATASTROPHE))
        side = load_side_tokenizer(path)
        said = refused(side.encode, [LATER])
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(2)
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert str(path) in said


def test_one_thread_at_a_time():
    take = tokenizer_guard._ONE_AT_A_TIME.acquire
    with guarded("a", "fails", muted=True), ThreadPoolExecutor(1) as pool:
        assert not pool.submit(take, blocking=False).result()


def test_threads_lose_nothing(tmp_path, capfd):
    side = load_side_tokenizer(written(tmp_path, model=BPE, pre_tokenizer=split(CATASTROPHE)))
    expected = side.encode_slowly(["a b ab"])

    def work():
        for _ in range(100):
            assert side.encode_slowly(["a b ab"]) == expected
            os.write(2, b"line\n")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capfd.readouterr().err == "line\n" * 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_processes_keep_standard_error(tmp_path):
    """Fork while another thread encodes: no child may inherit what stands in for standard error."""
    path = written(tmp_path, model=BPE, pre_tokenizer=split(CATASTROPHE))
    side, real, done = load_side_tokenizer(path), os.fstat(2), threading.Event()

    def work():
        while not done.is_set():
            side.decode([4, 5, 6])

    thread = threading.Thread(target=work)
    thread.start()
    codes = []
    try:
        for _ in range(50):
            child = os.fork()
            if not child:
                code = 3
                try:
                    side.decode([4, 5])  # the lock is free here, too
                    code = 0 if os.path.samestat(os.fstat(2), real) else 1
                finally:
                    os._exit(code)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        done.set()
        thread.join()
    assert codes == [0] * 50


# Whatever a file contains:

texts = st.text(max_size=20) | st.sampled_from(["", "a", "aaa ab x", "x" * 40, "é e\u0301 你好 🍜", " \n"])
patterns = st.sampled_from(
    ["", "a", "a+", r"\s+", ".", "(?=a)", "^", "$", r"\b", "(a)|b", "[^a]*", "é", "(a+a+)+y"]
)
lengths = st.sampled_from([0, 1, 2, 100, 2**31, 2**63])
short = st.sampled_from(["", "a", "##", "▁", "é", "aa"])
behaviors = st.sampled_from(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
either = st.booleans()
ways = st.sampled_from(["Regex", "String"])


def step(kind, **fields):
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


def pattern():
    return st.tuples(ways, patterns).map(lambda both: {both[0]: both[1]})


replacing = step("Replace", pattern=pattern(), content=short)
metaspace = step(
    "Metaspace",
    replacement=st.sampled_from("▁aé"),
    prepend_scheme=st.sampled_from(["always", "never", "first"]),
)
byte_levels = step("ByteLevel", add_prefix_space=either, trim_offsets=either, use_regex=either)
normalizing = st.one_of(
    *(step(kind) for kind in ("NFC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")),
    *(replacing, step("Prepend", prepend=short), step("Strip", strip_left=either, strip_right=either)),
)
splitting = st.one_of(
    *(step(kind) for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts")),
    *(
        byte_levels,
        metaspace,
        step("Punctuation", behavior=behaviors),
        step("Digits", individual_digits=either),
    ),
    *(
        step("Split", pattern=pattern(), behavior=behaviors, invert=either),
        step("FixedLength", length=lengths),
    ),
)
decoding = st.one_of(
    *(
        byte_levels,
        metaspace,
        replacing,
        step("Fuse"),
        step("ByteFallback"),
        step("BPEDecoder", suffix=short),
    ),
    *(
        step("Strip", content=st.sampled_from("aé"), start=lengths, stop=lengths),
        step("WordPiece", prefix=short, cleanup=either),
    ),
    step("CTC", pad_token=short, word_delimiter_token=short, cleanup=either),
)
processing = st.one_of(
    st.lists(st.sampled_from("AB"), max_size=3).map(lambda names: template(*names)),
    *(byte_levels, step("BertProcessing", sep=st.just(["a", 4]), cls=st.just(["b", 2**31]))),
)
entries = st.lists(st.sampled_from([*VOCABULARY, "", "##a"]), unique=True).map(
    lambda names: {name: 3 * number for number, name in enumerate(names)}
)
merges = st.lists(st.sampled_from(["a b", "a a", "b x"]), max_size=2, unique=True)
unknown = st.sampled_from(["<unk>", "[UNK]", ""])
affixes = st.none() | short
scored = st.lists(
    st.tuples(st.sampled_from([*VOCABULARY, ""]), st.sampled_from([0.0, -1.0, 9e99])), max_size=6
)
modelling = st.one_of(
    *(st.just(WORDS), st.just(BPE), step("WordLevel", vocab=entries, unk_token=unknown)),
    step(
        "WordPiece",
        vocab=entries,
        unk_token=unknown,
        continuing_subword_prefix=short,
        max_input_chars_per_word=st.sampled_from([0, 1, 100]),
    ),
    step(
        "BPE",
        vocab=entries.map(lambda found: {**found, "a": 40, "b": 41, "x": 42, "ab": 43, "aa": 44, "bx": 45}),
        merges=merges,
        unk_token=st.none() | unknown,
        continuing_subword_prefix=affixes,
        end_of_word_suffix=affixes,
        byte_fallback=either,
        fuse_unk=either,
    ),
    step("Unigram", vocab=scored, unk_id=st.none() | st.integers(0, 3), byte_fallback=either),
)


def some(kind, steps):
    return st.none() | steps | st.lists(steps, max_size=3).map(lambda chosen: sequence(kind, *chosen))


tokenizers_of_all_kinds = st.fixed_dictionaries(
    {
        "model": modelling,
        "normalizer": some("normalizers", normalizing),
        "pre_tokenizer": some("pretokenizers", splitting),
        "post_processor": some("processors", processing),
        "decoder": some("decoders", decoding),
    }
)


@given(tokenizers_of_all_kinds, st.lists(texts, max_size=3), st.lists(st.integers(0, 40), max_size=5))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_tokenizer_is_used_or_refused(tmp_path, capfd, sections, lines, ids):
    path, said = written(tmp_path, **sections), []
    try:
        side = load_side_tokenizer(path)
        side.decode(ids)
        for encoded in side.encode(lines):
            side.decode(encoded)
        side.plain.encode(lines)
    except DataError as error:
        said.append(str(error))
    assert all(str(path) in line for line in said)
    assert capfd.readouterr() == ("", "")
