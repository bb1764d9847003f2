"""X.509 certificates: which ones can be used to serve."""

from __future__ import annotations

import datetime

import pytest

from wharfinger.http.certificates import (
    CLOCK_SKEW,
    authority_certificate,
    certificate_pem,
    key_pem,
    load_key,
    new_key,
    serving_certificate,
    usable_certificate,
)

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
AUTHORITY_KEY, OTHER_KEY, KEY = new_key(), new_key(), new_key()
AUTHORITY = authority_certificate(AUTHORITY_KEY, "authority", NOW, 10 * DAY)
OTHER = authority_certificate(OTHER_KEY, "authority", NOW, 10 * DAY)
NAMES = ("a.example", "127.0.0.1", "::1")
CERTIFICATE = serving_certificate(KEY, NAMES, NOW, DAY, authority=AUTHORITY, authority_key=AUTHORITY_KEY)


def test_a_certificate_is_valid_for_its_lifetime_and_some_clock_skew() -> None:
    assert CERTIFICATE.not_valid_before_utc == NOW - CLOCK_SKEW
    assert CERTIFICATE.not_valid_after_utc == NOW + DAY


def test_a_certificate_is_usable_for_its_names_key_and_authority() -> None:
    pem, key = certificate_pem(CERTIFICATE), key_pem(KEY)
    assert usable_certificate(pem, key, authority=AUTHORITY, names=NAMES[1:]) == CERTIFICATE
    assert usable_certificate(pem, key, authority=AUTHORITY, names=("b.example",)) is None
    assert usable_certificate(pem, key_pem(OTHER_KEY), authority=AUTHORITY, names=NAMES) is None
    assert usable_certificate(pem, key, authority=OTHER, names=NAMES) is None
    assert usable_certificate(b"damaged", key, authority=AUTHORITY, names=NAMES) is None


def test_keys_are_written_and_read() -> None:
    assert load_key(key_pem(KEY)).public_key() == KEY.public_key()
    with pytest.raises(ValueError, match=r"."):
        load_key(b"damaged")
