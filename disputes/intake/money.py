"""Owns amounts and currencies; its promise: exact decimals from text, or a clear refusal.

No float is ever made. How many decimals a currency has depends on the source as well: some send
Icelandic kronur with two, ISO 4217 says none.
"""

import re
from decimal import Context, Decimal

from disputes.intake.errors import Unreadable

DEFAULT_EXPONENT = 2
EXPONENTS = {
    **dict.fromkeys(
        "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(), 0
    ),
    **dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3),
    **dict.fromkeys("CLF UYW".split(), 4),
}
"""Currencies of ISO 4217 whose minor unit is not a hundredth."""

EXPONENTS_BY_SOURCE = {
    "stripe": {"ISK": 2, "UGX": 2, "HUF": 2, "TWD": 2},
    "adyen": {"CLP": 2, "ISK": 2, "CVE": 0, "IDR": 0},
}
"""Where a source counts otherwise than ISO 4217."""

TWO_DECIMAL_CURRENCIES = frozenset(
    """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
    CAD CDF CHE CHF CHW CNY COP COU CRC CUC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL
    GHS GIP GMD GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR
    LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB
    PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP
    SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG ZWL
    """.split()
)
CURRENCIES = TWO_DECIMAL_CURRENCIES | EXPONENTS.keys()

MAX_DIGITS = 30
MAX_INTEGER_DIGITS = 20  # numeric(24, 4) keeps 20 before the point
PLAIN_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?")
MINOR_UNITS = re.compile(r"-?[0-9]+")
EXACT = Context(prec=MAX_DIGITS + 10)


def read_currency(text: str) -> str:
    """Return the three-letter code in capitals; an unknown currency is refused."""
    code = text.strip().upper()
    if code not in CURRENCIES:
        raise Unreadable(f"unknown currency {shown(text)}" if code else "the currency is missing")
    return code


def exponent_of(currency: str, *, source: str) -> int:
    """Return how many decimals `source` uses for `currency`."""
    overrides = EXPONENTS_BY_SOURCE.get(source, {})
    return overrides.get(currency, EXPONENTS.get(currency, DEFAULT_EXPONENT))


def parse_decimal_amount(
    text: str,
    currency: str,
    *,
    source: str,
    may_be_negative: bool = False,
    max_integer_digits: int = MAX_INTEGER_DIGITS,
) -> Decimal:
    """Return an amount written as a plain decimal number, padded to the currency's decimals."""
    code = read_currency(currency)
    stripped = text.strip()
    if not stripped:
        raise Unreadable("the amount is missing")
    parts = PLAIN_NUMBER.fullmatch(stripped)
    if parts is None:
        raise Unreadable(f"{shown(text)} is not a plain decimal number such as 1234.50")
    sign, whole, decimals = parts[1], parts[2], parts[3] or ""
    if sign and not may_be_negative:
        raise Unreadable(f"{shown(text)} is negative")
    exponent = exponent_of(code, source=source)
    if len(decimals) > exponent:
        raise Unreadable(f"{shown(text)} has {len(decimals)} decimals, {code} has {exponent}")
    if len(whole) + len(decimals) > MAX_DIGITS or len(whole.lstrip("0")) > max_integer_digits:
        raise Unreadable(f"{shown(text)} is too large")
    return _with_decimals(Decimal(stripped), exponent)


def from_minor_units(
    value: object, currency: str, *, source: str, may_be_negative: bool = False
) -> Decimal:
    """Return an amount sent as a whole number of minor units, as an integer or as its text."""
    code = read_currency(currency)
    if value is None:
        raise Unreadable("the amount is missing")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Unreadable("not a whole number of minor units")
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        raise Unreadable("the amount is too large")
    digits = str(value).strip()
    if not MINOR_UNITS.fullmatch(digits):
        raise Unreadable(f"{shown(digits)} is not a whole number of minor units")
    if digits.startswith("-") and not may_be_negative:
        raise Unreadable(f"{shown(digits)} is negative")
    exponent = exponent_of(code, source=source)
    if len(digits.lstrip("-0")) > MAX_INTEGER_DIGITS + exponent or len(digits) > MAX_DIGITS:
        raise Unreadable(f"{shown(digits)} is too large")
    return Decimal(digits).scaleb(-exponent, EXACT)


def amount_text(amount: Decimal, currency: str) -> str:
    """Return the amount as people read it, with the currency's decimals: 8800 JPY, 12.500 KWD."""
    exponent = EXPONENTS.get(currency, DEFAULT_EXPONENT)
    bare = f"{amount:f}"
    written = len(bare.partition(".")[2].rstrip("0"))
    return f"{_with_decimals(amount, max(exponent, written)):f}"


def _with_decimals(amount: Decimal, exponent: int) -> Decimal:
    return amount.quantize(Decimal(1).scaleb(-exponent), context=EXACT)


def shown(text: str) -> str:
    """Return a value short enough and safe to print inside a message."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")
