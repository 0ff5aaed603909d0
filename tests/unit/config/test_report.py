from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agentpod_bot.config.model import KNOWN_HARNESSES
from agentpod_bot.config.report import report
from tests.unit.config.conftest import ACCESS_TOKEN, LAPTOP_TOKEN

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site

DESKTOP_TOKEN = "a-token-from-the-environment"
CREDENTIAL = "a-token-from-the-credentials"


def test_the_report_has_one_line_for_each_value_and_says_where_it_came_from(site: Site) -> None:
    site.set("requests.time_to_live", "60m").env("AGENTPOD_BOT_HTTP__ALLOWED_HOSTS", "a.test")
    lines = report(site.load())
    folder = site.folder
    assert lines == [
        "homeserver.url = https://hs.test   (config.yaml:2)",
        "homeserver.user_id = @pod:hs.test   (config.yaml:3)",
        "homeserver.device_id = null   (default)",
        f"homeserver.access_token_file = {folder}/access_token   (config.yaml:4)",
        f"homeserver.access_token = ***   (secret file {folder}/access_token)",
        "homeserver.password_file = null   (default)",
        "homeserver.password = null   (default)",
        "homeserver.refresh_token_file = null   (default)",
        "homeserver.refresh_token = null   (default)",
        "homeserver.agents = []   (default)",
        "http.listen = 127.0.0.1:8470   (default)",
        "http.socket = null   (default)",
        "http.allow_remote = false   (default)",
        'http.allowed_hosts = ["a.test"]   (environment variable AGENTPOD_BOT_HTTP__ALLOWED_HOSTS)',
        "http.body_limit = 1MiB   (default)",
        "http.max_waits_per_token = 200   (default)",
        f"clients.laptop.token_file = {folder}/laptop   (config.yaml:7)",
        f"clients.laptop.token = ***   (secret file {folder}/laptop)",
        'clients.laptop.routes = ["ops"]   (config.yaml:8)',
        "clients.laptop.requester = null   (default)",
        'clients.laptop.harnesses = ["native"]   (default)',
        "clients.laptop.codex_version = null   (default)",
        "clients.laptop.rate = null   (default)",
        "clients.laptop.callback_url = null   (default)",
        "clients.laptop.callback_secret_file = null   (default)",
        "clients.laptop.callback_secret = null   (default)",
        "clients.laptop.callback_old_secret_file = null   (default)",
        "clients.laptop.callback_old_secret = null   (default)",
        "clients.laptop.callback_allow_private = false   (default)",
        "routes.ops.room = !ops:hs.test   (config.yaml:12)",
        'routes.ops.approvers = ["@owner:hs.test"]   (config.yaml:13)',
        "routes.ops.approvers_from = null   (default)",
        "routes.ops.quorum = 1   (default)",
        "routes.ops.not_requester = false   (default)",
        "routes.ops.when_unanswered = deny   (default)",
        "routes.ops.follow_upgrades = false   (default)",
        f"routes.ops.harnesses = {json.dumps(list(KNOWN_HARNESSES))}   (default)",
        "routes.ops.reactions = seed   (default)",
        "routes.ops.max_pending = 50   (default)",
        "routes.ops.mask_secrets = true   (default)",
        "routes.ops.remind_before = null   (default)",
        "routes.ops.escalate = null   (default)",
        "routes.ops.quiet_hours = null   (default)",
        "requests.time_to_live = 1h   (config.yaml:16)",
        "requests.max_time_to_live = 24h   (default)",
        "requests.retention = 7d   (default)",
        "requests.max_pending_per_session = 10   (default)",
        "requests.max_pending_per_token = 30   (default)",
        "requests.max_pending = 500   (default)",
        "audit.retention = 400d   (default)",
        "store.path = /var/lib/agentpod-bot/agentpod.db   (default)",
        "e2e.store = null   (default)",
        "e2e.pickle_key_file = null   (default)",
        "e2e.pickle_key = null   (default)",
        "e2e.trust = all   (default)",
        "log.level = info   (default)",
        "log.format = auto   (default)",
    ]


def test_no_secret_stands_in_the_report_nor_in_any_text_of_the_settings(site: Site) -> None:
    site.set("clients.desktop.routes", ["ops"]).env("AGENTPOD_BOT_CLIENTS__DESKTOP__TOKEN", DESKTOP_TOKEN)
    site.set("clients.phone.routes", ["ops"])
    site.secret("clients.phone.token", CREDENTIAL, 0o400, site.credentials())
    loaded = site.load()
    everything = "\n".join(
        [
            *report(loaded),
            repr(loaded),
            str(loaded),
            repr(loaded.settings),
            str(loaded.settings.clients),
            str(loaded.settings.model_dump()),
            loaded.settings.model_dump_json(),
        ]
    )
    for secret in (ACCESS_TOKEN, LAPTOP_TOKEN, DESKTOP_TOKEN, CREDENTIAL):
        assert secret not in everything
    assert sum(line.split(" = ")[1].startswith("***   ") for line in report(loaded)) == 4
