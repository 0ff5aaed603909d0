from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import vodozemac

from agentpod_bot.errors import CrossSigningRefused, HomeserverUnavailable, Refused
from agentpod_bot.matrix.e2e.cross_signing import QUERY, SIGNATURES, UPLOAD, CrossSigning
from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.published import identity_in
from agentpod_bot.matrix.e2e.signing import is_signed
from agentpod_bot.matrix.e2e.vault import Vault
from tests.unit.matrix.e2e.persons import POD, Person, canonical

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PASSWORD_STAGE = {"flows": [{"stages": ["m.login.password"]}], "params": {}, "session": "s1"}


class Device:
    """The bot's device, with a real account of its own."""

    def __init__(self) -> None:
        self._account = vodozemac.Account()
        self.own = DeviceKeys(
            user_id=POD,
            device_id="POD",
            ed25519=self._account.ed25519_key.to_base64(),
            curve25519=self._account.curve25519_key.to_base64(),
        )

    async def sign(self, text: str) -> str:
        return self._account.sign(text.encode()).to_base64()

    async def published(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "user_id": POD,
            "device_id": "POD",
            "algorithms": ["m.megolm.v1.aes-sha2"],
            "keys": {"ed25519:POD": self.own.ed25519, "curve25519:POD": self.own.curve25519},
        }
        return keys | {"signatures": {POD: {"ed25519:POD": await self.sign(canonical(keys).decode())}}}


@dataclass
class Homeserver:
    """What it has of the account, and what it asks for before it takes an identity."""

    device: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    stages: list[dict[str, Any]] = field(default_factory=list)
    """What it answers with 401, in order, before it takes the keys."""
    uploads: list[dict[str, Any]] = field(default_factory=list)
    signed: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, Any] = field(default_factory=dict)
    refuse: tuple[int, dict[str, Any]] | None = None
    lose_answer: bool = False

    async def call(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        assert (method, path) == ("POST", UPLOAD)
        body = copy.deepcopy(dict(body))
        self.uploads.append(body)
        if self.refuse is not None:
            return self.refuse
        if self.stages:
            return 401, self.stages.pop(0)
        for usage in ("master", "self_signing", "user_signing"):
            self.keys[f"{usage}_keys"] = {POD: body[f"{usage}_key"]}
        if self.lose_answer:
            self.lose_answer = False
            raise HomeserverUnavailable("no answer")
        return 200, {}

    async def ask_for(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert method == "POST"
        if path == QUERY:
            assert body == {"device_keys": {POD: []}}
            return copy.deepcopy({"device_keys": {POD: {"POD": self.device}}, "failures": {}} | self.keys)
        assert path == SIGNATURES
        self.signed.append(copy.deepcopy(dict(body)))
        if self.failures:
            return {"failures": self.failures}
        for key, signed in body.get(POD, {}).items():
            stands = self.device if key == "POD" else self.keys["master_keys"][POD]
            for who, signatures in signed["signatures"].items():
                stands.setdefault("signatures", {}).setdefault(who, {}).update(signatures)
        return {"failures": {}}


class Scene:
    """The bot's device at a homeserver."""

    def __init__(self, device: Device, homeserver: Homeserver, identities: Identities, vault: Vault) -> None:
        self.device, self.homeserver, self.identities, self.vault = device, homeserver, identities, vault
        self.cross_signing = CrossSigning(device, homeserver, identities)

    async def restarted(self) -> Scene:
        return Scene(self.device, self.homeserver, await Identities.open(self.vault), self.vault)

    @property
    def is_cross_signed(self) -> bool:
        answer = {"device_keys": {POD: {"POD": self.homeserver.device}}} | self.homeserver.keys
        identity = identity_in(answer, POD)
        return (
            identity is not None
            and identity.vouches_for("POD", self.device.own.ed25519)
            and identity.master == self.cross_signing.master
            and is_signed(answer["master_keys"][POD], POD, "ed25519:POD", self.device.own.ed25519)
        )


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    vault = Vault(folder=tmp_path, pickle_key="a pickle key", user_id=POD, device_id="POD")
    device = Device()
    homeserver = Homeserver(device=await device.published())
    return Scene(device, homeserver, await Identities.open(vault, make=True), vault)


async def test_the_device_is_cross_signed_by_an_identity_of_its_own(scene: Scene) -> None:
    await scene.cross_signing.ensure()
    assert scene.is_cross_signed
    [upload] = scene.homeserver.uploads
    assert {usage: upload[f"{usage}_key"]["usage"] for usage in ("master", "self_signing", "user_signing")} == {
        "master": ["master"],
        "self_signing": ["self_signing"],
        "user_signing": ["user_signing"],
    }
    master = scene.cross_signing.master
    assert master is not None
    for usage in ("self_signing", "user_signing"):
        assert is_signed(upload[f"{usage}_key"], POD, f"ed25519:{master}", master)


async def test_what_is_there_is_not_made_again(scene: Scene) -> None:
    await scene.cross_signing.ensure()
    again = await scene.restarted()
    await again.cross_signing.ensure()
    assert again.is_cross_signed
    assert len(scene.homeserver.uploads) == len(scene.homeserver.signed) == 1


async def test_what_is_missing_of_the_signatures_is_made_up(scene: Scene) -> None:
    await scene.cross_signing.ensure()
    scene.homeserver.device = await scene.device.published()
    await scene.cross_signing.ensure()
    assert scene.is_cross_signed
    assert list(scene.homeserver.signed[1][POD]) == ["POD"]
    assert len(scene.homeserver.uploads) == 1


async def test_an_identity_of_somebody_else_s_is_never_replaced_unasked(scene: Scene) -> None:
    scene.homeserver.keys = {"master_keys": Person(POD, "OTHER", 5).answer()["master_keys"]}
    before = copy.deepcopy(scene.homeserver.keys)
    with pytest.raises(CrossSigningRefused, match="--reset-identity"):
        await scene.cross_signing.ensure("the password")
    assert (scene.homeserver.keys, scene.homeserver.uploads, scene.homeserver.signed) == (before, [], [])
    await scene.cross_signing.ensure_or_warn()
    assert scene.cross_signing.trouble is not None
    assert scene.cross_signing.master is None
    await scene.cross_signing.ensure("the password", reset=True)
    assert scene.is_cross_signed
    assert scene.cross_signing.trouble is None


async def test_a_device_that_somebody_else_s_identity_signed_is_cross_signed(scene: Scene) -> None:
    """But the bot never vouches for that identity: the homeserver itself could have made it."""
    other = Person(POD, "OTHER", 5)
    scene.homeserver.keys = {name: other.answer()[name] for name in ("master_keys", "self_signing_keys")}
    assert "--reset-identity" in (await scene.cross_signing.look() or "")
    scene.homeserver.device = other.self_signing.signed(scene.homeserver.device, POD)
    await scene.cross_signing.ensure()
    assert scene.cross_signing.trouble is scene.cross_signing.master is None
    assert await scene.cross_signing.look() is None
    assert (scene.homeserver.uploads, scene.homeserver.signed) == ([], [])


async def test_an_identity_that_was_replaced_by_somebody_else_s_is_not_vouched_for_any_more(scene: Scene) -> None:
    await scene.cross_signing.ensure()
    assert scene.cross_signing.master is not None
    assert await scene.cross_signing.look() is None
    other = Person(POD, "OTHER", 5)
    scene.homeserver.keys = {name: other.answer()[name] for name in ("master_keys", "self_signing_keys")}
    await scene.cross_signing.ensure_or_warn()
    assert scene.cross_signing.master is None
    again = await scene.restarted()
    assert again.cross_signing.master is None


async def test_looking_changes_nothing(scene: Scene) -> None:
    assert "when it starts" in (await scene.cross_signing.look() or "")
    assert (scene.homeserver.uploads, scene.homeserver.signed) == ([], [])
    assert scene.identities.known.seeds is scene.identities.known.next_seeds is None


@pytest.mark.parametrize("master", [{}, {"user_id": POD, "usage": ["master"], "keys": {}}, {"keys": {"a": 1, "b": 2}}])
async def test_an_identity_that_cannot_be_read_is_somebody_else_s(scene: Scene, master: dict[str, Any]) -> None:
    """Only an empty object is none: homeservers leave the account out then."""
    scene.homeserver.keys = {"master_keys": {POD: master}}
    if master:
        with pytest.raises(CrossSigningRefused):
            await scene.cross_signing.ensure()
        assert scene.homeserver.uploads == []
    else:
        await scene.cross_signing.ensure()


async def test_an_identity_that_was_taken_unnoticed_is_ours(scene: Scene) -> None:
    """The homeserver took the keys, and its answer was lost, and the bot with it."""
    scene.homeserver.lose_answer = True
    with pytest.raises(HomeserverUnavailable):
        await scene.cross_signing.ensure()
    again = await scene.restarted()
    await again.cross_signing.ensure()
    assert again.is_cross_signed
    assert len(scene.homeserver.uploads) == 1


async def test_a_reset_that_fails_leaves_the_identity_before(scene: Scene) -> None:
    await scene.cross_signing.ensure()
    ours = scene.identities.known.seeds
    scene.homeserver.refuse = 403, {"errcode": "M_FORBIDDEN", "error": "no"}
    scene.homeserver.keys = {"master_keys": Person(POD, "OTHER", 5).answer()["master_keys"]}
    with pytest.raises(CrossSigningRefused, match="M_FORBIDDEN: no"):
        await scene.cross_signing.ensure(reset=True)
    again = await scene.restarted()
    assert again.identities.known.seeds == ours


async def test_an_identity_that_the_homeserver_lost_is_given_to_it_again(scene: Scene) -> None:
    await scene.cross_signing.ensure()
    master = scene.cross_signing.master
    scene.homeserver.keys, scene.homeserver.device = {}, await scene.device.published()
    await scene.cross_signing.ensure()
    assert scene.is_cross_signed
    assert scene.cross_signing.master == master


async def test_the_password_is_given_where_it_is_asked_for(scene: Scene) -> None:
    scene.homeserver.stages = [PASSWORD_STAGE]
    await scene.cross_signing.ensure("the password")
    first, second = scene.homeserver.uploads
    assert "auth" not in first
    assert second["auth"] == {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": POD},
        "password": "the password",
        "session": "s1",
    }
    assert scene.is_cross_signed


async def test_several_stages_are_passed_one_after_the_other(scene: Scene) -> None:
    flow = {"flows": [{"stages": ["m.login.sso"]}, {"stages": ["m.login.password", "m.login.dummy"]}], "session": "s1"}
    scene.homeserver.stages = [flow, flow | {"completed": ["m.login.password"]}]
    await scene.cross_signing.ensure("the password")
    assert [upload.get("auth", {}).get("type") for upload in scene.homeserver.uploads] == [
        None,
        "m.login.password",
        "m.login.dummy",
    ]


@pytest.mark.parametrize(
    ("stage", "password", "said"),
    [
        (PASSWORD_STAGE, None, "homeserver.password_file"),
        ({"flows": [{"stages": ["m.login.sso"]}]}, "p", "what the bot cannot do alone: m.login.sso"),
        ({"flows": []}, "p", "nothing known"),
        ({}, "p", "nothing known"),
        ({"flows": [{"stages": 7}, 8, {"stages": [None]}]}, "p", "nothing known"),
        (
            {"flows": [{"stages": ["m.oauth"]}], "params": {"m.oauth": {"url": "https://account.example.org/reset"}}},
            "p",
            "https://account.example.org/reset",
        ),
        ({"flows": [{"stages": ["m.oauth"]}], "params": {"m.oauth": {"url": "javascript:x"}}}, "p", "m.oauth"),
    ],
)
async def test_what_the_bot_cannot_pass_alone_is_said(
    scene: Scene, stage: dict[str, Any], password: str | None, said: str
) -> None:
    scene.homeserver.stages = [stage]
    with pytest.raises(CrossSigningRefused, match=said):
        await scene.cross_signing.ensure(password)
    assert len(scene.homeserver.uploads) == 1


async def test_a_wrong_password_is_tried_once(scene: Scene) -> None:
    wrong = PASSWORD_STAGE | {"errcode": "M_FORBIDDEN", "error": "Invalid password"}
    scene.homeserver.stages = [PASSWORD_STAGE, wrong, wrong]
    with pytest.raises(CrossSigningRefused, match="does not take the bot's password: M_FORBIDDEN: Invalid password"):
        await scene.cross_signing.ensure("wrong")
    assert len(scene.homeserver.uploads) == 2


async def test_a_homeserver_that_asks_for_ever_is_left(scene: Scene) -> None:
    dummy = {"flows": [{"stages": ["m.login.dummy"]}]}
    scene.homeserver.stages = [dummy] * 100
    with pytest.raises(CrossSigningRefused, match="ever more"):
        await scene.cross_signing.ensure()


async def test_a_signature_that_was_not_taken_is_no_success(scene: Scene) -> None:
    scene.homeserver.failures = {POD: {"POD": {"errcode": "M_INVALID_SIGNATURE"}}}
    with pytest.raises(Refused):
        await scene.cross_signing.ensure()


async def test_keys_that_are_not_the_device_s_are_never_signed(scene: Scene) -> None:
    scene.homeserver.device = Person(POD, "POD", 5).device_keys()
    with pytest.raises(HomeserverUnavailable):
        await scene.cross_signing.ensure()
    assert scene.homeserver.signed == []


async def test_a_verified_identity_is_signed_with_the_user_signing_key(scene: Scene) -> None:
    await scene.cross_signing.ensure()
    person = Person()
    identity = identity_in(person.answer(), person.user_id)
    assert identity is not None
    await scene.cross_signing.sign_identity(identity)
    [(user_id, keys)] = scene.homeserver.signed[-1].items()
    [(key, signed)] = keys.items()
    assert (user_id, key) == (person.user_id, person.master.public)
    [user_signing] = scene.homeserver.keys["user_signing_keys"][POD]["keys"].values()
    assert is_signed(signed, POD, f"ed25519:{user_signing}", user_signing)
    assert {name: part for name, part in signed.items() if name != "signatures"} == person.key(person.master, "master")
    assert list(signed["signatures"]) == [POD]


async def test_without_an_identity_of_its_own_the_bot_signs_nobody(scene: Scene) -> None:
    person = Person()
    identity = identity_in(person.answer(), person.user_id)
    assert identity is not None
    await scene.cross_signing.sign_identity(identity)
    assert scene.homeserver.signed == []


@pytest.mark.parametrize("half", ["device", "master"])
async def test_keys_that_come_back_with_half_a_character_are_not_signed_but_looked_at_again(
    scene: Scene, half: str
) -> None:
    await scene.cross_signing.ensure()
    keys = scene.homeserver.device if half == "device" else scene.homeserver.keys["master_keys"][POD]
    keys["more"] = "\ud800"
    again = await scene.restarted()
    with pytest.raises(HomeserverUnavailable):
        await again.cross_signing.ensure()


async def test_a_stage_that_is_no_text_is_none_that_can_be_passed(scene: Scene) -> None:
    scene.homeserver.stages = [{"flows": [{"stages": [{"m.login.dummy": 1}]}, {"stages": ["m.login.dummy"]}]}]
    await scene.cross_signing.ensure()
    assert scene.is_cross_signed
