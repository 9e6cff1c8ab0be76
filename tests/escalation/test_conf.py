"""Settings out of range stop the start, with an id and a hint."""

import dataclasses
import math

import pytest
from django.core.checks import Error, run_checks
from django.core.exceptions import ImproperlyConfigured

import escalation.checks  # noqa: F401  (registers the checks)
from escalation.conf import KNOBS, Conf, conf, problems

NUMBERS = [knob for knob in KNOBS if knob.low is not None]
by_name = pytest.mark.parametrize("knob", NUMBERS, ids=lambda knob: knob.name)


def ids(values: object) -> list[str]:
    return [problem.id for problem in problems(values)]


def found_by_checks() -> list[Error]:
    return run_checks(tags=["escalation"])


def test_without_settings_every_knob_has_its_default(settings):
    settings.ESCALATION = {}
    assert conf() == Conf(**{knob.name: knob.default for knob in KNOBS})
    assert found_by_checks() == []


def test_every_knob_is_a_field_in_the_same_order():
    assert [knob.name for knob in KNOBS] == [field.name for field in dataclasses.fields(Conf)]


def test_the_settings_are_read_at_call_time(settings):
    settings.ESCALATION = {"lock_ttl_s": 7}
    assert conf().lock_ttl_s == 7
    settings.ESCALATION = {"lock_ttl_s": 8}
    assert conf().lock_ttl_s == 8


@by_name
def test_both_ends_of_a_range_are_legal_and_what_lies_outside_is_not(knob):
    beyond = 1 if isinstance(knob.default, int) else 0.001
    # What does not fit together (E007) is another matter than the range.
    assert "escalation.E004" not in ids({knob.name: knob.low})
    assert "escalation.E004" not in ids({knob.name: knob.high})
    assert ids({knob.name: knob.low - beyond}) == ["escalation.E004"]
    assert ids({knob.name: knob.high + beyond}) == ["escalation.E004"]


@by_name
@pytest.mark.parametrize("wrong", [True, "5", None, [5]], ids=repr)
def test_a_number_is_neither_bool_nor_text_nor_a_list(knob, wrong):
    assert ids({knob.name: wrong}) == ["escalation.E003"]


def test_a_whole_number_takes_no_fraction():
    assert ids({"batch_size": 50.0}) == ["escalation.E003"]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_out_of_range(odd):
    assert ids({"jitter": odd}) == ["escalation.E004"]


def test_a_hint_names_the_range():
    (problem,) = problems({"lock_ttl_s": 4})
    assert problem.message == 'ESCALATION["lock_ttl_s"] is 4: out of range.'
    assert problem.hint == "lock_ttl_s takes a whole number from 5 to 300."


def test_an_unknown_setting_is_refused_and_the_known_ones_are_named():
    (problem,) = problems({"lock_ttl": 30})
    assert problem.id == "escalation.E002"
    assert "lock_ttl_s" in problem.hint


def test_every_problem_is_reported_not_the_first_alone():
    assert ids({"nonsense": 1, "jitter": 2, "batch_size": "many"}) == [
        "escalation.E002",
        "escalation.E004",
        "escalation.E003",
    ]


@pytest.mark.parametrize("values", [None, [], "batch_size=5"], ids=repr)
def test_settings_that_are_no_dict_are_refused(values):
    assert ids(values) == ["escalation.E001"]


@pytest.mark.parametrize("prefix", ["stage{1}:", "two words", "käse:", "a" * 65, "x\n"], ids=repr)
def test_a_prefix_may_not_change_the_hash_tag_or_need_quoting(prefix):
    assert ids({"prefix": prefix}) == ["escalation.E005"]


def test_an_ordinary_prefix_is_taken():
    assert ids({"prefix": "stage-1:eu.west:"}) == []


@pytest.mark.parametrize("duties", [["nodots"], ["a..b"], ["a.b c"]], ids=repr)
def test_duties_are_dotted_paths(duties):
    assert ids({"duties": duties}) == ["escalation.E006"]


@pytest.mark.parametrize("duties", ["a.b", [1], {"a.b": 60}], ids=repr)
def test_duties_are_a_list_of_texts(duties):
    assert ids({"duties": duties}) == ["escalation.E003"]


@pytest.mark.parametrize(
    "values",
    [
        {"drain_linger_s": 11, "drain_budget_s": 10},
        {"poll_interval_s": 31, "reconcile_interval_s": 30},
    ],
    ids=lambda values: next(iter(values)),
)
def test_f75_values_that_do_not_fit_together_are_refused(values):
    assert ids(values) == ["escalation.E007"]


def test_the_default_duties_are_a_list_the_caller_may_give_too(settings):
    settings.ESCALATION = {"duties": ["escalation.conf.conf"]}
    assert conf().duties == ("escalation.conf.conf",)
    assert found_by_checks() == []


@pytest.mark.parametrize("path", ["escalation.nowhere.duty", "escalation.conf.nothing"])
def test_a_duty_that_cannot_be_imported_stops_the_start(settings, path):
    settings.ESCALATION = {"duties": [path]}
    (error,) = found_by_checks()
    assert error.id == "escalation.E008"
    assert path in error.msg


def test_a_duty_that_is_no_function_stops_the_start(settings):
    settings.ESCALATION = {"duties": ["escalation.conf.KNOBS"]}
    assert [error.id for error in found_by_checks()] == ["escalation.E008"]


def test_the_system_checks_report_what_is_wrong(settings):
    settings.ESCALATION = {"batch_size": 501}
    (error,) = found_by_checks()
    assert (error.id, error.hint) == (
        "escalation.E004",
        "batch_size takes a whole number from 1 to 500.",
    )


def test_a_process_that_skips_the_checks_refuses_bad_settings_too(settings):
    settings.ESCALATION = {"batch_size": 501}
    with pytest.raises(ImproperlyConfigured, match=r"from 1 to 500.*escalation\.E004"):
        conf()
