from __future__ import annotations

import base64
import hashlib
import hmac

import nio.crypto
import pytest
import vodozemac
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF

from agentpod_bot.matrix.e2e.emoji import EMOJI
from agentpod_bot.matrix.e2e.sas import Agreed, MacMethod, Macs, Side, agree, commitment, establish, short
from tests.unit.matrix.e2e.persons import Person, Requester, as_libolm, b64, canonical

START = {
    "from_device": "PHONE",
    "method": "m.sas.v1",
    "key_agreement_protocols": ["curve25519", "curve25519-hkdf-sha256"],
    "hashes": ["sha256"],
    "message_authentication_codes": ["hkdf-hmac-sha256", "hkdf-hmac-sha256.v2"],
    "short_authentication_string": ["decimal", "emoji"],
    "transaction_id": "t1",
}
OWNER_SIDE = Side(user_id="@owner:example.org", device_id="PHONE")
POD_SIDE = Side(user_id="@pod:example.org", device_id="POD")


def test_the_emoji_are_those_of_the_specification() -> None:
    """Some that are easily mixed up, and as many as six bits can name."""
    assert len(EMOJI) == len(set(EMOJI)) == 64
    named = {0: "Dog", 19: "Globe", 34: "Spanner", 36: "Thumbs Up", 47: "Key", 53: "Aeroplane", 63: "Pin"}
    assert {number: EMOJI[number][1] for number in named} == named
    assert [emoji for emoji, _ in EMOJI] == [emoji for emoji, _ in nio.crypto.Sas.emoji]  # another reading of it


def test_the_better_way_to_vouch_is_taken_where_there_is_one() -> None:
    assert agree(START) == Agreed(MacMethod.V2, ("emoji", "decimal"))
    assert agree(START | {"message_authentication_codes": ["hkdf-hmac-sha256"]}) == Agreed(
        MacMethod.V1, ("emoji", "decimal")
    )
    assert agree(START | {"short_authentication_string": ["decimal"]}) == Agreed(MacMethod.V2, ("decimal",))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("method", "m.reciprocate.v1"),
        ("method", ["m.sas.v1"]),
        ("key_agreement_protocols", ["curve25519"]),
        ("key_agreement_protocols", "curve25519-hkdf-sha256"),
        ("hashes", ["sha512"]),
        ("hashes", None),
        ("message_authentication_codes", ["hmac-sha256"]),
        ("message_authentication_codes", [7, {}]),
        ("short_authentication_string", []),
        ("short_authentication_string", {"emoji": 1}),
    ],
)
def test_without_anything_in_common_nothing_is_agreed(key: str, value: object) -> None:
    assert agree(START | {key: value}) is None
    assert agree({name: each for name, each in START.items() if name != key}) is None


def test_a_commitment_binds_to_the_key_and_to_all_that_was_offered() -> None:
    expected = b64(hashlib.sha256(b"ourkey" + canonical(START)).digest())
    assert commitment("ourkey", START) == expected
    assert commitment("ourkey", START | {"hashes": ["sha256", "x"]}) != expected
    assert commitment("otherkey", START) != expected


def test_emoji_and_numbers_are_those_of_an_independent_computation() -> None:
    """RFC 5869 and the bit arithmetic of the specification, against vodozemac's."""
    requester = Requester(Person(), Person(POD_SIDE.user_id, "POD", 2).keys, "t1")
    own = vodozemac.Sas()
    own_key = own.public_key.to_base64()
    secret, theirs = establish(own, requester.public)
    requester.start_content = START
    requester._commitment = commitment(own_key, START)
    requester.keyed({"key": own_key})
    found = short(secret, starter=(OWNER_SIDE, theirs), accepter=(POD_SIDE, own_key), transaction_id="t1")
    assert [EMOJI.index(each) for each in found.emoji] == requester.emoji_numbers
    assert found.decimals == requester.numbers
    elsewhere = short(secret, starter=(OWNER_SIDE, theirs), accepter=(POD_SIDE, own_key), transaction_id="t2")
    assert elsewhere != found


@pytest.mark.parametrize("method", MacMethod)
def test_a_vouching_is_that_of_an_independent_computation(method: MacMethod) -> None:
    requester = Requester(Person(), Person(POD_SIDE.user_id, "POD", 2).keys, "t1")
    own = vodozemac.Sas()
    own_key = own.public_key.to_base64()
    secret, _ = establish(own, requester.public)
    requester.start_content = START
    requester._commitment, requester._mac_method = commitment(own_key, START), method.value
    requester.keyed({"key": own_key})
    made = Macs(secret, method, by=POD_SIDE, to=OWNER_SIDE, transaction_id="t1").content({"ed25519:POD": "abc"})
    assert requester.vouched(made, {"ed25519:POD": "abc"})
    assert not requester.vouched(made, {"ed25519:POD": "abd"})
    theirs = Macs(secret, method, by=OWNER_SIDE, to=POD_SIDE, transaction_id="t1")
    known = {"ed25519:PHONE": requester.person.device.public, "ed25519:other": "other"}
    assert theirs.covered(requester.mac(), known) == {"ed25519:PHONE"}


def test_the_old_base64_is_none() -> None:
    assert as_libolm(bytes(32)) != b64(bytes(32))
    assert len(as_libolm(bytes(32))) == 43


def test_hkdf_is_that_of_its_rfc() -> None:
    """Test case 3 of RFC 5869, which has neither salt nor info, so that the tests' own oracle is right."""
    okm = HKDF(b"\x0b" * 22, 42, b"", SHA256, context=b"")
    assert okm.hex() == ("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8")
    prk = hmac.digest(bytes(32), b"\x0b" * 22, "sha256")
    assert okm[:32] == hmac.digest(prk, b"\x01", "sha256")


@pytest.mark.parametrize("key", ["", "!", "AAAA", base64.b64encode(bytes(32)).decode().rstrip("="), "é"])
def test_what_is_no_key_or_gives_no_secret_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        establish(vodozemac.Sas(), key)


def test_our_own_key_given_back_is_refused() -> None:
    own = vodozemac.Sas()
    with pytest.raises(ValueError, match="our own key"):
        establish(own, own.public_key.to_base64())
