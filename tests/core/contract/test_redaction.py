"""Redaction: a positive and a near-miss for every pattern, idempotence, adversarial texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.contract import redaction
from clawmem_core.contract.redaction import find_secrets, redact
from clawmem_core.contract.redaction_patterns import PATTERNS
from clawmem_core.contract.validate import plainly_clean
from clawmem_core.errors import InvalidInputError

MIXED = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC2dF4hJ6"  # 36 characters, no real key
BASE64 = "wJalrXUtnFEMIaK7MDENGabPxRfiCYzEXAMPLEKE"

# name: (text around, the secret in it, near-miss that stays as it is)
CASES: dict[str, tuple[str, str, str]] = {
    "pem": (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIB/x+y\n-----END RSA PRIVATE KEY----- rest",
        "MIIB/x+y",
        "-----BEGIN PUBLIC KEY-----\nMIIB/x+y\n-----END PUBLIC KEY-----",
    ),
    "aws-id": ("key AKIAIOSFODNN7EXAMPLE here", "AKIAIOSFODNN7EXAMPLE", "key AKIAIOSFODNN7 here"),
    "aws-secret": (f"the aws one: {BASE64}.", BASE64, "the aws one: " + "a" * 39),
    "github-token": (f"use ghp_{MIXED} now", f"ghp_{MIXED}", "use ghp_short now"),
    "github-pat": (
        "use github_pat_11ABCDEFG0abcdefghij_x now",
        "github_pat_11ABCDEFG0abcdefghij_x",
        "use github_pat_x now",
    ),
    "gitlab-pat": ("use glpat-abcdefghij0123456789 now", "glpat-abcdefghij0123456789", "use glpat-abc now"),
    "llm-sk": (
        "use sk-proj-abcdefghij0123456789 now",
        "abcdefghij0123456789",
        "the sk-learn-style-estimator-interface",
    ),
    "llm-hf": (
        "use hf_abcdefghijklmnopqrstuvwxyzABCD now",
        "hf_abcdefghijklmnopqrstuvwxyzABCD",
        "use hf_hub_download now",
    ),
    "llm-memory": ("use brv_abcdefgh01234567 now", "brv_abcdefgh01234567", "use brv_configuration_file now"),
    "google-api": ("use AIza" + "SyA-" * 8 + "abc now", "AIza" + "SyA-" * 8 + "abc", "use AIzaSyA now"),
    "google-oauth": ("use ya29.a0AfH6SMBx now", "ya29.a0AfH6SMBx", "use ya29.x now"),
    "slack-token": ("use xoxb-1234567890-abc now", "xoxb-1234567890-abc", "use xoxb-1 now"),
    "slack-hook": ("post to hooks.slack.com/services/T0/B0/abcdef", "T0/B0/abcdef", "post to hooks.slack.com/help"),
    "stripe": ("use sk_live_abcdefghij now", "sk_live_abcdefghij", "use sk_live_abc now"),
    "telegram": (
        "bot 123456789:AAabcdefghijklmnopqrstuvwxyz0123456 ok",
        "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
        "at 12345678:30 ok",
    ),
    "discord": (
        "bot MTIzNDU2Nzg5MDEyMzQ1Njc4.Gabcde.abcdefghijklmnopqrstuvwxyz0 ok",
        "MTIzNDU2Nzg5MDEyMzQ1Njc4",
        "see Main.module.function",
    ),
    "npm": (f"use npm_{MIXED} now", f"npm_{MIXED}", "use npm_config_registry now"),
    "pypi": ("use pypi-AgEIcHlwaS5vcmcCJDAw now", "pypi-AgEIcHlwaS5vcmcCJDAw", "use pypi-mirror now"),
    "jwt": ("got eyJhbGciOi.eyJzdWIiOi.sig-x there", "eyJhbGciOi.eyJzdWIiOi.sig-x", "got eyJhbGciOi there"),
    "header": ("Authorization: Digest abc\nnext", "Digest abc", "Authorization is needed"),
    "bearer": ("send Bearer abcdefghij0123456789 along", "abcdefghij0123456789", "a bearer of responsibilities"),
    "url-cred": ("db at postgres://ann:p@ss@host/x", "ann:p@ss", "db at postgres://host:5432/x"),
    "assign": ("my password is swordfish ok", "swordfish", "passwords are hard; tokenizer: english"),
    "option": ("try login --db-password swordfish -v", "swordfish", "pass the --password option or --token --verbose"),
    "curl-user": ("curl -s -u ann:swordfish host", "ann:swordfish", "docker run -u 1000:1000 curl -u ann host:80"),
    "env": ("before\nDEPLOY_ENV=green and blue\nafter", "green and blue", "if x=y then A = b"),
    "path-unix": ("see /home/ann/notes.txt there", "/home/ann/notes.txt", "and/or/etc. and https://host/home/ann"),
    "path-drive": (r"see C:\Users\ann\x.txt there", r"C:\Users\ann\x.txt", "see http://x and C: there"),
    "path-share": (r"see \\host\share\x there", r"\\host\share\x", r"see a\\b there"),
    "path-url": ("see file:///srv/x there", "file:///srv/x", "see profile://x there"),
    "output-fence": (
        "look\n```console\nbuilt 7 things\n```\nfine",
        "built 7 things",
        "look\n```python\nbuilt = 7\n```\nfine",
    ),
    "output-prompt": ("I ran\n$ make all\nfine", "make all", "it costs\n$ 5 or $5\nfine"),
    "output-trace": (
        'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    boom()\nKeyError: zork',
        "boom()",
        "the File menu, line 3\nat noon (12:00)",
    ),
    "output-exit": ("it ended, exit code 17, sadly", "exit code 17", "the exit code matters"),
}


def test_every_pattern_has_a_case() -> None:
    """No pattern without a positive and a near-miss; names are unique."""
    assert [pattern.name for pattern in PATTERNS] == list(CASES)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_pattern(pattern: redaction.Pattern) -> None:
    """The pattern alone finds its secret and leaves the near-miss; the whole set leaves it too."""
    text, secret, near_miss = CASES[pattern.name]
    alone = redaction.Redactor([pattern])
    result, counts = alone.redact(text)
    assert secret not in result
    assert f"[redacted:{pattern.redaction_class}]" in result
    assert set(counts) <= {pattern.redaction_class, "entropy"}
    assert (near_miss, {}) == alone.redact(near_miss)
    assert secret not in redact(text)[0]
    assert (near_miss, {}) == redact(near_miss)


def test_entropy() -> None:
    """Long mixed runs go; digests, words, UUIDs and repetitions stay."""
    assert redact(f"see {MIXED}")[0] == "see [redacted:entropy]"
    for kept in (
        "a" * 40,
        "0123456789abcdef" * 4,
        "0123456789abcdefABCDEF0123456789",
        "A1b2" * 10,
        "123e4567-e89b-12d3-a456-426614174000",
        "x" * 20 + "/" + "y" * 30,
    ):
        assert (kept, {}) == redact(kept)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def\nok", "Authorization: [redacted:header]\nok"),
        ('{"password": "two words", "x": 1}', '{"password": "[redacted:assign]", "x": 1}'),
        ("export token=a", "export token=[redacted:env]"),
        ("API_KEY=abc def", "API_KEY=[redacted:env]"),
        ("-----BEGIN PRIVATE KEY-----\nMII", "[redacted:pem]"),
        ("see ~/x and ~ann/y, /tmp.", "see [redacted:path] and [redacted:path], [redacted:path]"),
        ("\u8bf7\u770b/home/ann/x", "\u8bf7\u770b[redacted:path]"),
        ("redis://:hunter2@host", "redis://[redacted:url-cred]@host"),
        ("ann@host:~/src$ ls", "[redacted:output]"),
        (">>> import os\n... x\n", "[redacted:output]\n[redacted:output]\n"),
        ("```sh\nls", "[redacted:output]"),
        ("   at app.main (app.js:10:5)", "[redacted:output]"),
        ("nothing to hide: [redacted:jwt]", "nothing to hide: [redacted:jwt]"),
        ("token: [redacted:jwt]", "token: [redacted:jwt]"),
        ("My API key is: abcd1234", "My API key is: [redacted:assign]"),
        ('"accessToken": "abcd 1234"', '"accessToken": "[redacted:assign]"'),
        ("dbPassword=abcd1234", "dbPassword=[redacted:assign]"),
        ("the token is: ok", "the token is: ok"),
        ("The password was swordfish.", "The password was [redacted:assign]"),
        ("the password was: abcd", "the password was: [redacted:assign]"),
        ("pw: swordfish, PW=abcd", "pw: [redacted:assign] PW=[redacted:assign]"),
        ("passcode: 1234 5678", "passcode: [redacted:assign] 5678"),
        ("my passcode is 123456", "my passcode is [redacted:assign]"),
        ("login --password 'two words' x", "login --password '[redacted:assign]' x"),
        ("x --api-key=abcd --token abcd", "x --api-key=[redacted:assign] --token [redacted:assign]"),
        ('curl -su "ann:two words" h', 'curl -su "[redacted:url-cred]" h'),
        ("curl --user ann:x h; curl -uann:x", "curl --user [redacted:url-cred] h; curl -u[redacted:url-cred]"),
        ("password\u00a0is\u00a0swordfish\u00a0ok", "password\u00a0is\u00a0[redacted:assign]\u00a0ok"),
        ("password\u00a0:\u202fswordfish", "password\u00a0:\u202f[redacted:assign]"),
        ("password\uff1aswordfish", "password\uff1a[redacted:assign]"),
        ("token \uff1d\u3000abcd", "token \uff1d\u3000[redacted:assign]"),
        ("Cookie\uff1aa=b", "Cookie\uff1a[redacted:header]"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    """What is left of typical texts."""
    assert expected == redact(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "my password was stolen",
        "Her password was stolen, and the token was never used.",
        "the password was changed yesterday; my pwd was reset",
        "the pw: field",
        "type it into the pw: field.",
        "the password is wrong; the token is valid",
        "the password is required",
        "a secret is only safe when the key was rotated",
        "the --password option, the --token flag",
        "--password must be given, --token takes a value",
        "curl -u asks for a password",
        "the pw was lost",
        "passcodes are short, pw too",
        "docker run -u app:app image",
    ],
)
def test_ordinary_prose_stays(text: str) -> None:
    """Talk about secrets is none."""
    assert (text, {}) == redact(text)


pieces = st.sampled_from(
    [case[0] for case in CASES.values()]
    + [case[1] for case in CASES.values()]
    + [
        "password: ",
        "password was ",
        "pw\uff1a",
        "--token ",
        "curl -u ",
        "\u00a0",
        "stolen",
        "field",
        "token=",
        " ",
        "\n",
        "[redacted:jwt]",
        "[redacted:",
        "]",
        "x",
        '"',
        "```sh\n",
        "://",
        "@",
        ":",
        "AKIA",
    ]
)


@given(st.lists(pieces, max_size=8).map("".join))
@settings(max_examples=400)
def test_idempotent_and_clean(text: str) -> None:
    """A second pass finds nothing, and text grows by placeholders only."""
    once, counts = redact(text)
    assert (once, {}) == redact(once)
    assert find_secrets(once) == []
    assert len(once) <= len(text) + 32 * sum(counts.values())


@given(st.lists(pieces | st.text("aAz9-._+ \u00e9", max_size=40), max_size=4).map("".join))
@settings(max_examples=400)
def test_nothing_is_found_in_a_plainly_clean_text(text: str) -> None:
    """The look that loads no expressions never lets a secret pass."""
    assert not (plainly_clean(text) and find_secrets(text))


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_secret_is_suspicious(case: tuple[str, str, str]) -> None:
    """Alone and in its text."""
    text, secret, _ = case
    assert not plainly_clean(text)
    assert not (plainly_clean(secret) and find_secrets(secret))


@pytest.mark.parametrize(
    "text", ["likes tea, automatically", "turn-1", "123e4567-e89b-12d3-a456-426614174000", "a" * 64, "", "caf\u00e9"]
)
def test_usual_texts_are_plainly_clean(text: str) -> None:
    """Names, hexadecimal ids, sentences."""
    assert plainly_clean(text)


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "-",
        "eyJ",
        "eyJa.",
        "-----BEGIN PRIVATE KEY-----",
        "-----END ",
        "a://b:",
        "a:b@",
        "secret ",
        "secret:",
        "token is ",
        "token was ",
        "pw ",
        "password\u00a0",
        "--password ",
        "--a-",
        "-",
        "curl ",
        "curl -u",
        "curl -u a",
        "curl -u :",
        "pw was a",
        "\n$ ",
        "\n```sh\n",
        "```",
        'File "',
        "at x(",
        "A=",
        "AKIA",
        "sk-",
        "/home/",
        "\\\\a\\",
        "C:\\",
        "1",
        "Bearer ",
        "exit ",
        "x.Error",
        "[redacted:",
        "[redacted:x]",
        "~a",
        "a.",
        "\n",
        "é",
        "x@y:",
        "PS C:\\",
    ],
)
def test_adversarial_repetitions(unit: str) -> None:
    """A hundred thousand characters of any beginning end at once: nothing is tried from every position anew."""
    text = unit * (100_000 // len(unit))
    assert len(redact(text)[0]) <= 16 * len(text)


def test_a_chain_that_never_ends_is_replaced_whole() -> None:
    """When every round lays another secret bare, the text goes as a whole."""
    pattern = redaction.Pattern("tail", "tail", "", r"x(?=\Z|\[redacted)")
    redactor = redaction.Redactor([pattern])
    result, counts = redactor.redact("x" * 31)
    assert result == "[redacted:tail]"
    assert counts == {"tail": redaction.MAX_ROUNDS + 1}
    assert redactor.find(result) == []


def test_placeholders_are_never_cut_in_two() -> None:
    """A pattern that reaches into a placeholder takes the whole of it."""
    redactor = redaction.Redactor([redaction.Pattern("half", "half", "", r"x\[red|jwt\]y")])
    assert redactor.redact("x[redacted:jwt] [redacted:jwt]y")[0] == "[redacted:half] [redacted:half]"


def test_rules_from_a_file() -> None:
    """Extra patterns and allowed texts come on top of the built-in ones."""
    redactor = redaction.load_rules(
        "[[pattern]]\nclass = 'acme'\ndescription = 'ticket'\nexpression = 'acme_([0-9]{8})'\n"
        "[allow]\ntexts = ['AKIAIOSFODNN7EXAMPLE']\n"
    )
    result, counts = redactor.redact("acme_12345678 AKIAIOSFODNN7EXAMPLE AKIAIOSFODNN7EXAMPLF")
    assert result == "acme_[redacted:acme] AKIAIOSFODNN7EXAMPLE [redacted:aws]"
    assert counts == {"acme": 1, "aws": 1}
    assert {"class": "acme", "name": "extra-1", "description": "ticket"} in redactor.classes()


@pytest.mark.parametrize(
    "document",
    [
        "[",
        "other = 1",
        "pattern = 1",
        "[[pattern]]\nclass = 'a'",
        "allow = 1",
        "[allow]\nother = 1",
        "[allow]\ntexts = [1]",
        "[[pattern]]\nclass = 'A!'\ndescription = ''\nexpression = 'x'",
        "[[pattern]]\nclass = 'a'\ndescription = 1\nexpression = 'x'",
        "[[pattern]]\nclass = 'a'\ndescription = ''\nexpression = '('",
        "[[pattern]]\nclass = 'a'\ndescription = ''\nexpression = 'x*'",
        "[[pattern]]\nclass = 'a'\ndescription = ''\nexpression = '" + "x" * 1001 + "'",
    ],
)
def test_bad_rules(document: str) -> None:
    """Rules that say nothing, or too much, are refused."""
    with pytest.raises(InvalidInputError, match="redaction rules"):
        redaction.load_rules(document)


def test_classes_are_listed() -> None:
    """Every class of the table is listed, with a version for the whole."""
    classes = {row["class"] for row in redaction.redaction_classes()}
    assert classes == {
        "pem",
        "aws",
        "github",
        "gitlab",
        "llm",
        "google",
        "slack",
        "stripe",
        "bot",
        "jwt",
        "header",
        "url-cred",
        "assign",
        "env",
        "entropy",
        "path",
        "output",
    }
    assert redaction.REDACTION_VERSION == 2
