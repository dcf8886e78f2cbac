"""A table of one's own as inputs: held against scikit-learn's encoder and imputer, and what is said of odd ones."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from meannet.data import columns
from meannet.data.columns import Column, Encoding, Task, task
from meannet.data.table import Table, read


def written(path: Path, text: str) -> Table:
    path.write_bytes(text.encode())
    return read(path)


@pytest.fixture
def said():
    return []


@pytest.fixture
def table(tmp_path, said):
    """A task from text, with nothing dropped."""

    def made(text, target="y", **chosen):
        return task(written(tmp_path / "t.csv", text), target, **chosen, say=said.append)

    return made


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_separators_marks_quotes_blank_lines_and_spaces_are_read(tmp_path, mark):
    text = f'\ufeffa{mark} "b, c"{mark}d\r\n\r\n1{mark}"x{mark}y"{mark}NA\r\n 2 {mark} "z"{mark}?\r\n'
    found = written(tmp_path / "t.csv", text)
    assert (found.separator, found.lines) == (mark, [3, 4])
    assert found.columns == {"a": ["1", "2"], "b, c": [f"x{mark}y", "z"], "d": ["", ""]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("sep=;\na;b, c;d\n1;2;3\n", ["a", "b, c", "d"]),
        ("Weight, kg;Height, cm;y\n1,5;2;3\n", ["Weight, kg", "Height, cm", "y"]),
        ('"x\nin mm";c;y\n1;2;3\n', ["x\nin mm", "c", "y"]),
        ("name\nann\nbob\n", ["name"]),
        ("SEP=|\na|b\n1|2\n", ["a", "b"]),
        ("sep=,\ra,b\r1,2\r", ["a", "b"]),
        ('\n"sep=,",,\na,b\n1,2\n', ["a", "b"]),
        ("\n\nu\n1\n", ["u"]),
        ('"x","Note; remark"\n"3","a; b"\n', ["x", "Note; remark"]),
        ("Preis, EUR;Menge, kg;Wert, EUR\n1,5;2,5;3,5\n", ["Preis, EUR", "Menge, kg", "Wert, EUR"]),
        ("Weight, kg;Height, cm;y\n70,5;170,2;0\n", ["Weight, kg", "Height, cm", "y"]),
    ],
)
def test_headers_with_other_marks_breaks_and_excels_first_line_are_read(tmp_path, text, names):
    assert list(written(tmp_path / "t.csv", text).columns) == names


def test_rows_without_anything_keep_their_places(tmp_path):
    found = written(tmp_path / "t.csv", "a,b\n,\n\n1,2\n  \n,\n\n")
    assert found.columns == {"a": ["", "1", ""], "b": ["", "2", ""]}
    assert written(tmp_path / "t.csv", "a\n1\n\n3\n\n\n").columns == {"a": ["1", "", "3"]}


def test_a_pipe_is_read_as_a_file_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("a,b\n1,2\n",))
    writer.start()
    assert read(tmp_path / "pipe").columns == {"a": ["1"], "b": ["2"]}
    writer.join()


def test_decimal_commas_are_numbers_where_commas_do_not_separate(tmp_path):
    found = written(
        tmp_path / "t.csv",
        "a;b;c;d;e;f;g\n-3,25;1,5e2;1.5;1,250;950;6.354;1.584,06\n0,5;2;1,00,5;3,500;1,250;924;950,00\n",
    )
    np.testing.assert_array_equal(found.numbers("g"), [1584.06, 950])
    np.testing.assert_array_equal(found.numbers("a"), [-3.25, 0.5])
    np.testing.assert_array_equal(found.numbers("b"), [150, 2])
    assert found.numbers("c") is None and found.no_numbers("c") == [1]
    np.testing.assert_array_equal(found.numbers("d"), [1.25, 3.5])
    with pytest.raises(ValueError, match=r"line 3: e is '1,250', and it is not clear .* write 1250 or 1,2500"):
        found.numbers("e")
    with pytest.raises(ValueError, match=r"line 2: f is '6.354', and it is not clear .* write 6354 or 6.3540"):
        found.numbers("f")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1.234,5", "1.000", "7"], [1234.5, 1000, 7]),
        (["1,234.5", "1,000", "1.5"], [1234.5, 1000, 1.5]),
        (["1.234.567", "2.000"], [1234567, 2000]),
        (["-1,234,567", "2,000"], [-1234567, 2000]),
        (["2.000", "1,5e3", "2.5"], [2, 1500, 2.5]),
        (["+3", ".5", "5.", ",5", "0,0"], [3, 0.5, 5, 0.5, 0]),
    ],
)
@pytest.mark.parametrize("mark", ";\t")
def test_cells_with_both_marks_or_several_tell_what_stands_before_thousands(tmp_path, cells, numbers, mark):
    text = "".join(f"{mark}{cell}\n" for cell in cells)
    np.testing.assert_array_equal(written(tmp_path / "t.csv", f"a{mark}b\n{text}").numbers("b"), numbers)


def test_lines_are_counted_below_one_that_names_the_mark(tmp_path):
    assert written(tmp_path / "t.csv", "sep=;\na;b\n1;2\n").lines == [3]


def test_large_whole_numbers_are_labels_of_their_own(table):
    rows = "".join(f"{k};10000000000000000{1 + k % 2}\n" for k in range(9))
    assert len(set(table(f"a;y\n{rows}", kind="labels").target)) == 2


def test_a_column_that_counts_is_found_whatever_rows_lack(table, said):
    rows = "".join(f"{k},{k * k},{k % 2}\n" for k in range(9))
    table(f"id,a,y\n{rows},,\n")
    assert said[0] == "note: id rises by 1 from row to row; if it only counts rows, --drop id"


def test_dots_are_before_decimals_where_commas_separate(tmp_path):
    found = written(tmp_path / "t.csv", 'a,b\n6.354,"1,584.06"\n924,3\n')
    np.testing.assert_array_equal(found.numbers("a"), [6.354, 924])
    np.testing.assert_array_equal(found.numbers("b"), [1584.06, 3])


def test_numbers_that_may_be_something_else_are_pointed_out(table, said):
    table("code;size;y\n" + "".join(f"0{k % 7};1,25{k % 7};{k % 2}\n" for k in range(30)))
    assert said == [
        "note: code has numbers that begin with 0, such as 00; if they are names, --words code",
        "note: size is taken for numbers with three decimals, such as 1,250",
    ]


@pytest.mark.parametrize("cell", ["1_000", "inf", "nan1", "0x10", "1 2", "1e308"])
def test_what_python_or_a_person_might_take_for_a_number_is_none(tmp_path, cell):
    assert written(tmp_path / "t.csv", f"a,b\n{cell},1\n").numbers("a") is None
    assert written(tmp_path / "t.csv", f"a,b\n{cell},1\n").no_numbers("a") == [0]


def test_numbers_words_and_gaps_become_what_scikit_learn_makes_of_them(tmp_path):
    random = np.random.default_rng(0)
    values = {
        "size": np.where(random.random(60) < 0.2, np.nan, random.normal(3, 2, 60)),
        "whole": random.integers(0, 9, 60).astype(np.float64),
        "colour": np.array(random.choice(["red", "blue", "", "green"], 60), object),
    }
    rows, new = np.arange(40), np.arange(40, 60)
    done = Task(written(tmp_path / "t.csv", "y\n1\n"), "y", values, np.zeros(60))
    encoding = Encoding.of(done, rows)
    numbers, words = np.stack([values["size"], values["whole"]], 1), values["colour"][:, None]
    filled = SimpleImputer().fit(numbers[rows]).transform(numbers[new])
    gaps = MissingIndicator(error_on_new=False).fit(numbers[rows]).transform(numbers[new])
    dummies = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(words[rows]).transform(words[new])
    theirs = np.column_stack([filled[:, 0], gaps[:, 0], filled[:, 1], dummies])
    np.testing.assert_allclose(encoding.encode(values, new), theirs, rtol=1e-12)
    named = ["size", "size is missing", "whole", "colour is missing", "colour=blue", "colour=green", "colour=red"]
    assert encoding.inputs == named
    assert Encoding.from_json(encoding.to_json()) == encoding


def test_a_column_that_rows_to_learn_from_lack_altogether_is_zero():
    assert Column.of("a", np.array([np.nan, np.nan])).encode(np.array([5.0, np.nan])).tolist() == [[5, 0], [0, 1]]


def test_new_tables_may_have_other_orders_columns_gaps_and_words(tmp_path, table, said):
    done = table("a,b,y\n1,red,yes\n3,blue,no\n2,red,yes\n")
    encoding = Encoding.of(done)
    new = written(tmp_path / "new.csv", "b,y,a,more\ngreen,,,1\nred,?,7,1\n")
    assert encoding.encode_new(new, said.append).tolist() == [[2, 0, 0], [7, 0, 1]]
    assert said == [
        f"{tmp_path / 'new.csv'}: left out, being no columns that the net takes: more",
        "a is missing in 1 row; taken as the mean, 2",
        "b holds 'green' in 1 row, new to the net; taken as none of its words",
    ]
    with pytest.raises(ValueError, match=r"no column 'a', which the net takes; did you mean aa"):
        encoding.encode_new(written(tmp_path / "new.csv", "aa,b\n1,red\n"), said.append)
    with pytest.raises(ValueError, match=r"new.csv, line 2: a is 'many'; the net takes a number there"):
        encoding.encode_new(written(tmp_path / "new.csv", "a,b\nmany,red\n"), said.append)


def test_columns_that_are_of_no_use_are_left_out_and_named(table, said):
    rows = "".join(f"{k},name {k},x,,{k % 3},{'' if k == 9 else k % 2},{k}\n" for k in range(30))
    done = table(f",name,same,empty,a,y,count\n{rows}")
    assert list(done.values) == ["a", "count"] and len(done.target) == 29
    assert said == [
        "note: count rises by 1 from row to row; if it only counts rows, --drop count",
        "left out: 1 row without y",
        "left out: 1 column without a name",
        "left out, being the same in all rows: same, empty",
        "left out, with different words in most rows: name; --words NAME keeps one",
    ]
    named = "".join(f"n{k},{k % 3},{k % 2}\n" for k in range(30))
    assert "name" in table(f"name,a,y\n{named}", words=["name"]).values


def test_equal_numbers_are_one_label_in_their_commonest_spelling(table, said):
    done = table("a,y\n1,1\n2,1.0\n3,-0\n4,0\n5,0\n6,1\n")
    assert done.target.tolist() == ["1", "1", "0", "0", "0", "1"]
    assert said[-1] == "y: one label each, being equal numbers: 1 and 1.0, -0 and 0"
    assert table("a,y\n1,1\n2,1.0\n3,no\n4,no\n").target.tolist() == ["1", "1.0", "no", "no"]


def test_numbers_may_be_words_and_columns_dropped(table):
    done = table("zip,a,y\n1000,1,0\n2000,2,1\n1000,4,0\n", words=["zip"], drop=["a"])
    assert Encoding.of(done).inputs == ["zip=1000", "zip=2000"]


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["0", "1", "0"], True),
        ([str(k % 20) for k in range(60)], True),
        ([str(k % 21) for k in range(60)], False),
        (["1", "2.5", "1"], False),
        (["1", "some", "many"], True),
    ],
)
def test_targets_are_numbers_where_there_are_many_or_broken_ones(table, cells, labels):
    rows = "".join(f"{k * k},{cell}\n" for k, cell in enumerate(cells))
    assert table(f"a,y\n{rows}").labels is labels
    if "many" not in cells and len(cells) == 3:
        assert table(f"a,y\n{rows}", kind="numbers").labels is False
        assert table(f"a,y\n{rows}", kind="labels").labels is True


ROWS = "".join(f"{k},{k % 7},{k % 2}\n" for k in range(30))


@pytest.mark.parametrize(
    ("text", "chosen", "says"),
    [
        ("", {}, "holds no rows; the first line names the columns"),
        ("a,y\n", {}, "holds no rows"),
        ("a,a,y\n1,2,3\n", {}, "two columns named 'a'; rename one"),
        ("a,y\n1,2\n1,2,3\n", {}, "line 3: 3 cells, where the first line has 2; the first line must name all"),
        ("My report 2020\na;y\n1;2\n", {}, "line 2: 2 cells, where the first line has 1"),
        ('a,y\n1,2\n"x"y,2\n', {}, "line 3: ',' expected after"),
        ('a;y\n1;2\n"x"y;2\n', {}, "line 3: ';' expected after"),
        ("a|y\n1|2\n", {}, "no column 'y'; did you mean a|y? (its first line names them, tabs apart; a line above it"),
        (
            "a,z\n1,2\n",
            {},
            "no column 'y'; it has a, z (its first line names them, commas apart; a line above it, such as sep=;",
        ),
        (f"{','.join(f'column{k}' for k in range(99))}\n{'1,' * 98}1\n", {}, "it has column0, column1, column2, "),
        ("a,y\n1,2\n2,2\n3,4\n4,n.a.\n", {}, "line 5: y is 'n.a.', and a number in most rows; put a number there"),
        (f"a,y\n{'x' * 5000},2\n1,2\n1,1\n", {}, f"line 2: a is '{'x' * 40}…', and a number in most rows"),
        ("age,y\n1,2\n2,1\n", {"drop": ["Age"]}, "no column 'Age'; did you mean age"),
        ("a,y\n1,2\n2,1\n", {"drop": ["y"]}, "y is the column to predict"),
        ("a,y\n1,2\n2,1\n", {"drop": ["a"]}, "no column to predict y from"),
        ("a,y\n1,2\n2,2\n", {}, "y is the same in all rows"),
        ("a,y\n1,no\n2,1\n", {"kind": "numbers"}, "line 2: y is 'no', which is no number"),
        (f"a,b,y\n{ROWS}x,1,1\n", {}, "line 32: a is 'x', and a number in most rows; put a number there"),
        ("a,y\n" + "".join(f"{k % 3},n{k}\n" for k in range(30)), {}, "y has 30 different labels in 30 rows, too many"),
    ],
)
def test_tables_that_cannot_be_learned_from_are_refused_with_place_and_remedy(table, text, chosen, says):
    with pytest.raises(ValueError) as refused:
        table(text, **chosen)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        read(tmp_path)
    for encoding in ("latin-1", "utf-16"):
        (tmp_path / "t.csv").write_bytes("größe,b\n1,1\n".encode(encoding))
        with pytest.raises(ValueError, match="is not in UTF-8; save it as CSV in UTF-8"):
            read(tmp_path / "t.csv")


def test_tables_that_would_not_fit_into_memory_are_refused_and_the_column_named(table, monkeypatch):
    monkeypatch.setattr(columns, "MOST", 99)
    text = "a,word,y\n" + "".join(f"{k},w{k % 9},{k % 2}\n" for k in range(30))
    with pytest.raises(
        ValueError, match=r"30 rows of 10 inputs, too much memory; word alone is 9 of them, --drop word"
    ):
        table(text)


@pytest.mark.parametrize(
    "held",
    [
        None,
        [],
        "text",
        {},
        {"target": "y"},
        {"target": "y", "columns": []},
        {"target": "y", "columns": [{"name": "a", "words": None, "fill": 0.0}]},
        {"target": "y", "columns": [{"name": "a", "words": None, "fill": "much", "gaps": False}]},
        {"target": "y", "columns": [{"name": "a", "words": 3, "fill": 0.0, "gaps": False}]},
        {"target": "y", "columns": [{"name": "a", "words": [], "fill": 0.0, "gaps": False}]},
    ],
)
def test_what_a_file_says_of_its_table_is_read_with_suspicion(held):
    with pytest.raises(ValueError, match="what the file says of its table cannot be read"):
        Encoding.from_json(held)
