"""The rows of views: exact at each moment, whatever came and went before."""

from __future__ import annotations

import json
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsq.definitions.queue import View
from ampsq.expressions import Document
from ampsq.expressions.aggregates import ACCUMULATORS
from ampsq.views.rows import Rows, group_of, key_of

_EVERYTHING = [
    "COUNT(*) AS /messages",
    "COUNT(/v) AS /count",
    "SUM(/v) AS /sum",
    "AVG(/v) AS /avg",
    "MIN(/v) AS /min",
    "MAX(/v) AS /max",
    "COUNT_DISTINCT(/v) AS /distinct",
    "STDDEV_POP(/v) AS /population",
    "STDDEV_SAMP(/v) AS /sample",
]


def rows_of(projection, grouping=(), filter=None):  # noqa: A002 - AMPS's word
    return Rows(View(name="v", underlying_topic="t", projection=projection, grouping=grouping, filter=filter))


def document(**fields):
    return Document(json.dumps(fields).encode())


def fill(rows, messages):
    for number, fields in enumerate(messages):
        rows.add(b"%d" % number, document(**fields))
    return rows


def table(rows):
    return {key_of(group): rows.row(group) for group in rows.groups()}


def only(rows):
    (group,) = rows.groups()
    return rows.row(group)


def test_each_group_has_a_row_with_its_aggregates():
    rows = fill(
        rows_of(["/symbol", "SUM(/qty * /price) AS /total", "COUNT(*) AS /orders"], ["/symbol"]),
        [
            {"symbol": "IBM", "qty": 2, "price": 10},
            {"symbol": "IBM", "qty": 1, "price": 5},
            {"symbol": "MSFT", "qty": 3, "price": 1.5},
        ],
    )
    assert table(rows) == {
        '["IBM"]': {"symbol": "IBM", "total": 25, "orders": 2},
        '["MSFT"]': {"symbol": "MSFT", "total": 4.5, "orders": 1},
    }


def test_a_column_goes_where_its_path_says():
    rows = fill(rows_of(["MAX(/a) AS /of/a/max", "MIN(/a) AS /of/a/min", "COUNT(*) AS /n"]), [{"a": 3}, {"a": 1}])
    assert only(rows) == {"of": {"a": {"max": 3, "min": 1}}, "n": 2}


def test_aggregates_are_values_like_others_in_a_column():
    rows = fill(
        rows_of(["SUM(/q * /p) / COUNT(*) + 0.5 AS /mean", "IF(COUNT(*) > 1, MAX(/q), 0) AS /most"]),
        [{"q": 1, "p": 10}, {"q": 3, "p": 20}],
    )
    assert only(rows) == {"mean": 35.5, "most": 3}


def test_a_column_may_be_made_of_what_is_grouped_by():
    rows = fill(rows_of(["CONCAT(/a, '-', /b) AS /name", "COUNT(*) AS /n"], ["/a", "/b"]), [{"a": "x", "b": 1}] * 2)
    assert table(rows) == {'["x",1]': {"name": "x-1", "n": 2}}


def test_a_message_that_leaves_is_taken_out_of_every_aggregate():
    rows = fill(rows_of(_EVERYTHING), [{"v": 1}, {"v": 5}, {"v": 3}])
    before = only(rows)
    rows.add(b"more", document(v=1000))
    assert only(rows) != before
    rows.remove(b"more")
    assert only(rows) == before


def test_adding_and_removing_floats_leaves_no_dust():
    rows = fill(rows_of(["SUM(/v) AS /sum", "AVG(/v) AS /avg", "STDDEV_POP(/v) AS /d"]), [{"v": 0.1}])
    for number, value in enumerate([1e300, 0.2, 1e-300, -1e16, 0.3]):
        rows.add(b"x%d" % number, document(v=value))
    for number in range(5):
        rows.remove(b"x%d" % number)
    assert only(rows) == {"sum": 0.1, "avg": 0.1, "d": 0.0}


def test_a_message_counts_once_however_often_it_is_added_or_removed():
    rows = rows_of(["COUNT(*) AS /n", "SUM(/v) AS /sum"])
    for _ in range(3):
        rows.add(b"1", document(v=4))
    assert only(rows) == {"n": 1, "sum": 4}
    for _ in range(3):
        rows.remove(b"1")
    assert only(rows) == {"n": 0, "sum": None}


def test_a_group_goes_with_its_last_message_and_is_told_of():
    rows = fill(rows_of(["COUNT(*) AS /n"], ["/s"]), [{"s": "a"}, {"s": "b"}])
    assert {key_of(group) for group in rows.take_changed()} == {'["a"]', '["b"]'}
    rows.remove(b"0")
    (gone,) = rows.take_changed()
    assert (key_of(gone), rows.row(gone)) == ('["a"]', None)
    assert not rows.take_changed()
    assert table(rows) == {'["b"]': {"n": 1}}


@pytest.mark.parametrize(
    ("grouping", "columns", "fields", "row"),
    [
        (["/a"], ["/a"], {"a": "x"}, {"a": "x"}),
        (["/a", "/b/c"], ["/a", "/b/c"], {"b": {"c": [1, "\u00fc"]}}, {"a": None, "b": {"c": [1, "\u00fc"]}}),
        (["/a[1]", "/a[0]"], ["/a[1] AS /x", "/a[0] + 1 AS /y"], {"a": [3, 4.5]}, {"x": 4.5, "y": 4}),
        (["/a", "/a/b"], ["/a AS /x", "/a/b AS /y"], {"a": {"b": 7}}, {"x": None, "y": 7}),
        (["/a"], ["CONCAT(/a, '-', /a) AS /x"], {"a": "1"}, {"x": "1-1"}),
    ],
)
def test_a_group_without_messages_has_a_row_of_nothing(grouping, columns, fields, row):
    rows = rows_of([*columns, "COUNT(*) AS /n", "SUM(/v) + 1 AS /sum", "MAX(/v) AS /max"], grouping)
    fill(rows, [{**fields, "v": 1}])
    (group,) = rows.groups()
    assert rows.row(group) == {**row, "n": 1, "sum": 2, "max": 1}
    rows.remove(b"0")
    assert rows.row(group) is None
    # Its text is enough to know it, long after it is gone
    assert group_of(key_of(group)) == group
    assert rows.row_of_nothing(group_of(key_of(group)), "test") == {**row, "n": 0, "sum": None, "max": None}
    assert rows.row_of_nothing((1, 2, 3), "test") is None


def test_without_grouping_there_is_always_one_row():
    rows = rows_of(["COUNT(*) AS /n", "SUM(/v) AS /sum"])
    assert {key_of(group) for group in rows.take_changed()} == {"[]"}
    assert only(rows) == {"n": 0, "sum": None}


def test_nulls_do_not_count_and_a_group_without_values_has_null():
    rows = fill(rows_of([*_EVERYTHING, "/s"], ["/s"]), [{"s": "a", "v": None}, {"s": "a", "v": ""}, {"s": "a"}])
    nothing = dict.fromkeys(["sum", "avg", "min", "max", "population", "sample"])
    assert only(rows) == {"messages": 3, "count": 0, "distinct": 0, "s": "a", **nothing}


def test_messages_that_are_no_json_count_as_messages_and_have_no_fields():
    rows = rows_of(["COUNT(*) AS /n", "COUNT(/v) AS /values", "/s"], ["/s"])
    rows.add(b"1", Document(b"\xff no json"))
    rows.add(b"2", document(v=1))
    assert table(rows) == {"[null]": {"n": 2, "values": 1, "s": None}}


def test_a_filter_matches_no_message_that_is_no_json():
    rows = rows_of(["COUNT(*) AS /n"], filter="/v IS NULL OR /v > 1")
    rows.add(b"1", Document(b"no json"))
    fill(rows, [{"v": 1}, {"v": 2}, {}])
    assert only(rows) == {"n": 2}


def test_strings_are_numbers_where_numbers_are_wanted():
    rows = fill(rows_of(["SUM(/v) AS /sum", "AVG(/v) AS /avg"]), [{"v": "1.5"}, {"v": 2}])
    assert only(rows) == {"sum": 3.5, "avg": 1.75}


def test_what_json_cannot_say_is_null_in_a_row():
    rows = fill(rows_of(["SUM(/v) AS /sum", "MAX(/v * 1e308) AS /max"]), [{"v": "x"}, {"v": 1e10}])
    assert only(rows) == {"sum": None, "max": None}
    rows.remove(b"0")
    assert only(rows)["sum"] == 1e10


def test_sums_of_integers_are_exact_and_floats_beyond_their_range():
    rows = fill(rows_of(["SUM(/v) AS /sum"]), [{"v": 2**63 - 1}, {"v": 2**62}])
    assert only(rows) == {"sum": 2**63 - 1 + 2**62}
    fill(rows, [{}] * 2 + [{"v": 2**63}])
    assert only(rows) == {"sum": float(2**63 - 1 + 2**62 + 2**63)}


def test_of_a_list_the_first_element_counts():
    rows = fill(rows_of(["SUM(/v) AS /sum", "COUNT(/v) AS /n"]), [{"v": [3, 100]}, {"v": []}])
    assert only(rows) == {"sum": 3, "n": 1}


def test_numbers_come_before_strings_in_the_least_and_the_greatest():
    rows = fill(rows_of(["MIN(/v) AS /min", "MAX(/v) AS /max"]), [{"v": "a"}, {"v": 7}, {"v": "9"}, {"v": -1.5}])
    assert only(rows) == {"min": -1.5, "max": "a"}
    rows.remove(b"0")
    rows.remove(b"3")
    assert only(rows) == {"min": 7, "max": "9"}


def test_groups_tell_values_apart_as_equality_does():
    rows = fill(
        rows_of(["COUNT(*) AS /n"], ["/g"]),
        [{"g": 1}, {"g": 1.0}, {"g": True}, {"g": "1"}, {"g": None}, {}, {"g": ["a", 1]}, {"g": ["a", 1]}],
    )
    assert table(rows) == {"[1]": {"n": 3}, '["1"]': {"n": 1}, "[null]": {"n": 2}, '[["a",1]]': {"n": 2}}


def test_all_that_is_no_number_is_one_value():
    rows = fill(rows_of(["COUNT_DISTINCT(/v * 1) AS /n"]), [{"v": "x"}, {"v": "y"}, {"v": 1}])
    assert only(rows) == {"n": 2}
    rows.remove(b"0")
    rows.remove(b"1")
    assert only(rows) == {"n": 1}


def test_what_is_kept_for_good_needs_no_memory_of_its_own():
    rows = rows_of(["COUNT(*) AS /n", "SUM(/v) AS /sum"])
    for number in range(100):
        rows.add(b"%d" % number, document(v=1), for_good=True)
    assert only(rows) == {"n": 100, "sum": 100}
    assert not rows._messages


@pytest.mark.parametrize("function", ["MIN", "MAX"])
def test_a_value_that_comes_and_goes_does_not_fill_the_memory(function):
    extreme = ACCUMULATORS[function]()
    extreme.add(-1 if function == "MIN" else 1_000_000)
    for number in range(10_000):
        extreme.add(number % 10)
        extreme.remove(number % 10)
    assert len(extreme._heap) < 200


_VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 0.2, 1e300, -1e300, 5e-324, 1]),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 9), _VALUES), max_size=60))
def test_whatever_came_and_went_the_row_is_that_of_what_is_left(changes):
    rows = rows_of(_EVERYTHING)
    left = {}
    for number, value in changes:
        if number in left:
            rows.remove(b"%d" % number)
            del left[number]
        else:
            rows.add(b"%d" % number, document(v=value))
            left[number] = value
    anew = rows_of(_EVERYTHING)
    for number, value in left.items():
        anew.add(b"%d" % number, document(v=value))
    assert only(rows) == only(anew)
    values = [value for value in left.values() if value is not None]
    row = only(rows)
    assert (row["messages"], row["count"], row["distinct"]) == (len(left), len(values), len(set(values)))
    assert (row["min"], row["max"]) == (min(values, default=None), max(values, default=None))
    if values and all(isinstance(value, float) for value in values) and max(map(abs, values)) < 1e300:
        assert row["sum"] == math.fsum(values)
        assert math.isclose(row["population"], statistics.pstdev(values), rel_tol=1e-12)
