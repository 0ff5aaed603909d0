from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.matrix.e2e.signing import Signer, canonical, is_public_key, is_signed, new_seed
from tests.unit.matrix.e2e.persons import Pair, unb64

VECTORS = [
    ({}, b"{}"),
    ({"one": 1, "two": "Two"}, b'{"one":1,"two":"Two"}'),
    ({"b": "2", "a": "1"}, b'{"a":"1","b":"2"}'),
    ({"a": "日本語"}, '{"a":"日本語"}'.encode()),
    ({"本": 2, "日": 1}, '{"日":1,"本":2}'.encode()),
    ({"a": "\u65e5"}, '{"a":"日"}'.encode()),
    ({"a": None}, b'{"a":null}'),
]


@pytest.mark.parametrize(("value", "form"), VECTORS)
def test_the_canonical_form_is_that_of_the_specification(value: object, form: bytes) -> None:
    assert canonical(value) == form


@pytest.mark.parametrize("value", [{"a": float("inf")}, {"a": "\ud800"}])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        canonical(value)


@pytest.mark.parametrize(
    ("value", "signature"),
    [
        ({}, "K8280/U9SSy9IVtjBuVeLr+HpOB4BQFWbg+UZaADMtTdGYI7Geitb76LTrr5QV/7Xg4ahLwYGYZzuHGZKM5ZAQ"),
        (
            {"one": 1, "two": "Two"},
            "KqmLSbO39/Bzb0QIYE82zqLwsA+PDzYIpIRA2sRQ4sL53+sN6/fpNSoqE7BP7vBZhG6kYdD13EIMJpvhJI+6Bw",
        ),
    ],
)
def test_signing_is_that_of_the_specification(value: dict[str, Any], signature: str) -> None:
    """The test vectors of its appendices."""
    signer = Signer(unb64("YJDBA9Xnr2sVqXD9Vj7XVUnmFZcZrlw8Md7kMW+3XA1"))
    assert signer.sign(value) == signature
    signed = value | {"signatures": {"domain": {"ed25519:1": signature}}, "unsigned": {"age": 7}}
    assert is_signed(signed, "domain", "ed25519:1", signer.public)


def test_only_this_key_s_signature_of_this_object_by_this_account_counts() -> None:
    pair, other = Pair(7), Pair(8)
    signed = pair.signed({"one": 1}, "@a:b", "ed25519:x")
    assert is_signed({**signed, "unsigned": {"age": 7}}, "@a:b", "ed25519:x", pair.public)
    assert not is_signed({**signed, "one": 2}, "@a:b", "ed25519:x", pair.public)
    assert not is_signed(signed, "@b:b", "ed25519:x", pair.public)
    assert not is_signed(signed, "@a:b", "ed25519:y", pair.public)
    assert not is_signed(signed, "@a:b", "ed25519:x", other.public)
    assert not is_signed(signed, "@a:b", "ed25519:x", "no key")
    for signatures in (None, [], {"@a:b": []}, {"@a:b": {"ed25519:x": 7}}, {"@a:b": {"ed25519:x": "no"}}):
        assert not is_signed({"one": 1, "signatures": signatures}, "@a:b", "ed25519:x", pair.public)


def test_a_key_has_one_form_only() -> None:
    public = Signer(new_seed()).public
    assert is_public_key(public)
    for no_key in (public + "=", public[:-1], "", None, 7, public.encode()):
        assert not is_public_key(no_key)
