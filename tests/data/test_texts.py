"""Texts of one's own, against scikit-learn's CountVectorizer and plain loops."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

import meannet.data
from meannet.data import texts

TEXTS = [
    "The cat sat on the mat. The CAT was happy, the mat wasn't.",
    "Überall Katzen: cats, cats and a dog; 42 dogs_and 3rd mats",
    "",
    "dog dog dog mat",
]


def test_counts_are_those_of_scikit_learn():
    found = meannet.data.counts(TEXTS, 6)
    stop = sorted(texts.stopped(ENGLISH_STOP_WORDS))
    model = CountVectorizer(stop_words=stop, token_pattern=texts.WORD.pattern).fit(TEXTS)
    whole = model.transform(TEXTS).toarray()
    names = model.get_feature_names_out()
    order = sorted(range(len(names)), key=lambda k: (-whole[:, k].sum(), names[k]))[:6]
    assert found.words == tuple(names[order])
    assert found.inputs.toarray() == pytest.approx(np.log1p(whole[:, order]), rel=1e-6)
    assert found.inputs.dtype == np.float32 and found.inputs.shape == (4, 6)


def test_new_texts_are_counted_by_the_words_of_the_old():
    known = meannet.data.counts(TEXTS, 4)
    new = meannet.data.counts(["dog bird DOG", TEXTS[0]], words=known.words)
    assert new.words == known.words
    expected = [float(np.log1p(np.float32(2))) if word == "dog" else 0.0 for word in known.words]
    assert new.inputs.toarray()[0] == pytest.approx(expected)
    assert (new.inputs[[1]] != known.inputs[[0]]).nnz == 0


def test_stop_words_may_be_others_or_none():
    assert "the" in meannet.data.counts(TEXTS, 50, stop_words=()).words
    found = meannet.data.counts(TEXTS, 50, stop_words=["Wasn't", "cat"]).words
    assert "the" in found and "cat" not in found and "wasn" not in found


def test_what_is_no_list_of_texts_is_refused():
    with pytest.raises(ValueError, match="texts must be several, not one string"):
        meannet.data.counts("one text")
    with pytest.raises(ValueError, match="text 1 is no text but float"):
        meannet.data.counts(["a text", float("nan")])
    with pytest.raises(ValueError, match="no words but stop words"):
        meannet.data.counts(["the", "of 12"])


def test_a_folder_of_folders_and_a_csv_file_hold_the_same_texts(tmp_path):
    for label, number, text in (("a", 1, TEXTS[0]), ("a", 2, TEXTS[1]), ("b", 1, TEXTS[3])):
        (tmp_path / "texts" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / label / f"{number}.txt").write_text(text, encoding="utf-8")
    lines = [f'{label},"{text}"' for label, text in (("a", TEXTS[0]), ("a", TEXTS[1]), ("b", TEXTS[3]))]
    (tmp_path / "t.csv").write_text("topic,body\n" + "\n".join(lines), encoding="utf-8")
    expected = [TEXTS[0], TEXTS[1], TEXTS[3]], ["a", "a", "b"]
    assert texts.read_folder(tmp_path / "texts") == expected
    assert texts.read_csv(tmp_path / "t.csv", "body", "topic") == expected


def test_bad_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="each label is a folder of text files"):
        texts.read_folder(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"x\.txt is not text in UTF-8"):
        texts.read_folder(tmp_path)
    (tmp_path / "t.csv").write_text("topic,body\na,b\nc\n")
    with pytest.raises(ValueError, match="has no column 'text'; it has topic, body"):
        texts.read_csv(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv, line 3: not as many columns as in the first line"):
        texts.read_csv(tmp_path / "t.csv", "body", "topic")
    with pytest.raises(ValueError, match="cannot read"):
        texts.read_csv(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"", "t.csv is empty"),
        (b"text,label\n", "t.csv has no texts"),
        (b"text;label\na;b\n", "no column 'text'; it has text;label; columns are separated by commas"),
        (b"text,text,label\na,b,c\n", "has 2 column 'text'"),
        (b"text,label\nhello, you,x\n", "line 2: not as many columns .* a text with commas in it needs quotes"),
        (b'text,label\nfine,y\n"hello,x\nworld,y\n', "t.csv, line 3: unexpected end of data"),
        ("text,label\nfine,y\ncaf\u00e9,x\n".encode("latin-1"), "line 3: not in UTF-8"),
        ("text,label\nfine,y\n".encode("utf-16"), "line 1: not in UTF-8"),
    ],
)
def test_a_malformed_csv_file_is_named_with_its_line(tmp_path, content, answer):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=answer) as caught:
        texts.read_csv(tmp_path / "t.csv")
    assert "\n" not in str(caught.value)


def test_csv_files_of_spreadsheets_and_long_texts_are_read(tmp_path):
    long = "word " * 50_000
    (tmp_path / "t.csv").write_bytes(f'text,label\r\n"hello, you",x\r\n{long},y\r\n'.encode("utf-8-sig"))
    assert texts.read_csv(tmp_path / "t.csv") == (["hello, you", long], ["x", "y"])


def test_what_cannot_be_counted_is_refused():
    for wrong in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="n_words must be a whole number, 1 or more"):
            meannet.data.counts(["hello world"], wrong)
    with pytest.raises(ValueError, match="stop_words must be several, not one string"):
        meannet.data.counts(["hello world"], stop_words="english")
    with pytest.raises(ValueError, match="words must differ"):
        meannet.data.counts(["hello world"], words=["hello", "hello"])
