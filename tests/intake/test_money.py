"""Owns the proof that amounts are exact or refused."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disputes.intake.errors import Unreadable
from disputes.intake.money import (
    CURRENCIES,
    amount_text,
    exponent_of,
    from_minor_units,
    parse_decimal_amount,
    read_currency,
)


@pytest.mark.parametrize(
    ("text", "currency", "shown"),
    [
        ("129.00", "USD", "129.00"),
        ("129", "USD", "129.00"),
        ("129.5", "usd", "129.50"),
        ("8800", "JPY", "8800"),
        ("12.500", "KWD", "12.500"),
        ("0", "EUR", "0.00"),
        (" 7.10 ", "EUR", "7.10"),
        ("0.0001", "CLF", "0.0001"),
        ("99999999999999999999.99", "USD", "99999999999999999999.99"),
    ],
)
def test_a_plain_decimal_keeps_the_decimals_of_its_currency(text, currency, shown):
    amount = parse_decimal_amount(text, currency, source="csv")
    assert amount_text(amount, currency.upper()) == shown
    assert str(amount) == shown


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "NaN", "sNaN", "Infinity", "-Infinity", "inf", "1e5", "1E+2147483647", "1e-400",
        "1_000", "٣٤", "１２", "-5", "-0", "+5", "0.001", "1,234.00", "1.", ".5", "0x10", "$5",
        "1" * 31, "100000000000000000000.00", "1.2.3", "5 USD", "1\x00", "1\n2", "--1",
    ],
)  # fmt: skip
def test_anything_but_a_plain_positive_number_is_refused(text):
    with pytest.raises(Unreadable):
        parse_decimal_amount(text, "USD", source="csv")


def test_a_currency_without_decimals_takes_none():
    with pytest.raises(Unreadable, match="2 decimals, JPY has 0"):
        parse_decimal_amount("100.00", "JPY", source="csv")


@pytest.mark.parametrize("currency", ["", "XXX", "US", "USDX", "12A", "ÜSD", "$"])
def test_an_unknown_currency_is_refused_by_name(currency):
    with pytest.raises(Unreadable, match="currency"):
        read_currency(currency)


def test_a_long_value_is_shortened_in_its_message():
    with pytest.raises(Unreadable) as refusal:
        parse_decimal_amount("9" * 100_000, "USD", source="csv")
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("value", "currency", "source", "shown"),
    [
        (1000, "USD", "stripe", "10.00"),
        (0, "USD", "stripe", "0.00"),
        ("6500", "USD", "hyperswitch", "65.00"),
        (100000, "KWD", "tabby", "100.000"),
        (43389, "JPY", "stripe", "43389"),
        (1000, "ISK", "stripe", "10.00"),
        (1000, "ISK", "csv", "1000"),
        (1000, "UGX", "stripe", "10.00"),
        (1000, "CLP", "adyen", "10.00"),
        (1000, "CVE", "adyen", "1000"),
        (1000, "IDR", "adyen", "1000"),
        (1000, "HUF", "stripe", "10.00"),
    ],
)
def test_minor_units_count_as_their_source_counts(value, currency, source, shown):
    assert str(from_minor_units(value, currency, source=source)) == shown


@pytest.mark.parametrize(
    "value", [None, True, 10.0, "10.00", "", "1e3", "1_0", -1, "-1", 10**31, "9" * 40, [], "٣"]
)
def test_what_is_no_whole_positive_number_of_minor_units_is_refused(value):
    with pytest.raises(Unreadable):
        from_minor_units(value, "USD", source="stripe")


def test_a_negative_amount_is_taken_only_where_the_format_says_so():
    assert (
        str(parse_decimal_amount("-314.22", "USD", source="r", may_be_negative=True)) == "-314.22"
    )
    assert str(from_minor_units(-1500, "USD", source="stripe", may_be_negative=True)) == "-15.00"


def test_an_amount_from_the_database_is_shown_with_the_decimals_of_its_currency():
    assert amount_text(Decimal("129.0000"), "USD") == "129.00"
    assert amount_text(Decimal("8800.0000"), "JPY") == "8800"
    assert amount_text(Decimal("12.5000"), "KWD") == "12.500"
    assert amount_text(Decimal("10.2500"), "ISK") == "10.25"
    assert amount_text(Decimal("0E+3"), "JPY") == "0"


@given(st.integers(0, 10**20 - 1), st.sampled_from(sorted(CURRENCIES)))
def test_minor_units_and_their_text_are_the_same_amount(minor, currency):
    amount = from_minor_units(minor, currency, source="csv")
    again = parse_decimal_amount(amount_text(amount, currency), currency, source="csv")
    assert again == amount
    assert int(amount.scaleb(exponent_of(currency, source="csv"))) == minor


@given(st.text(max_size=50) | st.from_regex(r"[-+]?[0-9_.,eE]{1,40}", fullmatch=True))
def test_no_text_makes_anything_but_an_amount_or_a_refusal(text):
    try:
        amount = parse_decimal_amount(text, "USD", source="csv")
    except Unreadable:
        return
    assert amount.is_finite()
    assert 0 <= amount < 10**20
    assert amount == Decimal(text.strip())
