"""What redaction looks for: one row per shape, grouped into classes (docs/decisions/031-redaction.md).

Invariants: every expression runs in time linear in the text. A repetition that something must follow is bounded, or is
possessive and can start only where a run starts; only the last repetition of an expression is open-ended. Group 1,
where there is one, is the secret; otherwise the whole match is. Names and classes are ASCII words, stable across
versions; a change here raises REDACTION_VERSION.
"""

from __future__ import annotations

from typing import Final, NamedTuple

REDACTION_VERSION: Final = 2


class Pattern(NamedTuple):
    """One shape: its name, its class, what it is, and a regular expression (ASCII classes)."""

    name: str
    redaction_class: str
    description: str
    expression: str


_START = r"(?<![A-Za-z0-9_-])"  # not inside a longer word, so that each run is tried once
_SPACES = r"\s\xa0\u1680\u2000-\u200b\u202f\u205f\u3000\ufeff"  # those of ASCII, and what looks like one
_SPACE = f"[{_SPACES}]"
_COLON = r"[:=\ufe55\uff1a\uff1d]"  # or an equals sign; small and full-width forms too
_VALUE = rf"""["'`]?((?<=")[^"\n]{{4,}}|(?<=')[^'\n]{{4,}}|(?<=`)[^`\n]{{4,}}|[^{_SPACES}"'`]{{4,}})"""
_WORD_ENDS = rf"(?=[.,;:!?)]{{0,3}}(?:{_SPACE}|\Z))"
#: what follows a word for a secret in talk about it, and no secret: what a form or a command calls it, …
_THING = (
    "(?:argument|box|column|fields?|flags?|form|input|label|options?|page|parameter|prompt|setting|string|switch|value"
    f"|variable){_WORD_ENDS}"
)
#: … how it is or what became of it (participles in -ed after "was" come on top), …
_STATE = (
    "(?:about|again|already|also|always|bad|broken|correct|easy|empty|even|fine|forgotten|found|given|good|hard|here"
    "|hidden|incorrect|invalid|just|kept|known|like|long|lost|made|mandatory|meant|missing|more|most|needed|never|none"
    "|only|optional|public|quite|really|required|reset|safe|seen|sent|short|shown|still|stolen|strong|supposed|taken|that"
    f"|then|there|this|told|unknown|valid|very|weak|what|where|with|without|wrong|written){_WORD_ENDS}"
)
#: … or what an option does
_VERB = f"(?:accepts|asks|expects|from|gives|means|must|needs|prompts|reads|requires|should|takes|will){_WORD_ENDS}"
_SECRET_NAME = (
    "pass(?:word|wd|phrase|code)|pwd|pw|secret|token|client[ _-]?secret|(?:api|access|private|secret)[ _-]?key"
)
_CURL = r"(?<![a-z0-9])(?:curl|wget)(?![a-z0-9])"
_SHELLS = "sh|shell|bash|zsh|fish|console|terminal|powershell|ps1|cmd|bat|output|stdout|stderr|log|logs|traceback"

PATTERNS: Final = (
    Pattern(
        "pem", "pem", "private key block, to its end or the end of the text",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    Pattern(
        "aws-id", "aws", "AWS key id",
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AIDA|AROA|AGPA|ANPA|ANVA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    Pattern(
        "aws-secret", "aws", "40 base64 characters after the word aws or secret",
        r"(?i:aws|secret)[^\n]{0,40}?(?<![A-Za-z0-9/+=])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    Pattern("github-token", "github", "GitHub token", _START + r"gh[pousr]_[A-Za-z0-9]{36,}"),
    Pattern("github-pat", "github", "GitHub fine-grained token", _START + r"github_pat_[A-Za-z0-9_]{22,}"),
    Pattern("gitlab-pat", "gitlab", "GitLab token", _START + r"glpat-[A-Za-z0-9_-]{20,}"),
    Pattern(
        "llm-sk", "llm", "sk- key of a model provider",
        _START + r"sk-(?:proj-|ant-|svcacct-)?(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,}",
    ),
    Pattern("llm-hf", "llm", "Hugging Face token", _START + r"hf_[A-Za-z0-9]{30,}"),
    Pattern(
        "llm-memory", "llm", "key of a hosted memory service",
        _START + r"(?:mem0_|hsk-|retaindb_|brv_)(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}",
    ),
    Pattern("google-api", "google", "Google API key", _START + r"AIza[A-Za-z0-9_-]{35,}"),
    Pattern("google-oauth", "google", "Google OAuth token", _START + r"ya29\.[A-Za-z0-9_-]{10,}"),
    Pattern("slack-token", "slack", "Slack token", _START + r"(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}"),
    Pattern(
        "slack-hook", "slack", "Slack webhook path",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_+-]{8,})",
    ),
    Pattern("stripe", "stripe", "Stripe key", _START + r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}"),
    Pattern("telegram", "bot", "Telegram bot token", _START + r"[0-9]{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    Pattern(
        "discord", "bot", "Discord bot token",
        _START + r"[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,}",
    ),
    Pattern("npm", "bot", "npm token", _START + r"npm_[A-Za-z0-9]{36,}"),
    Pattern("pypi", "bot", "PyPI token", _START + r"pypi-AgEI[A-Za-z0-9_-]{16,}"),
    Pattern(
        "jwt", "jwt", "JSON Web Token",
        _START + r"eyJ[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]*",
    ),
    Pattern(
        "header", "header", "value of an Authorization, Cookie or key header",
        r"(?i)(?<![a-z0-9_-])(?:(?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token)"
        rf"[\"']?[ \t]{{0,4}}{_COLON}[ \t]{{0,4}}([^\n]{{3,}})",
    ),
    Pattern(
        "bearer", "header", "bearer or basic credentials outside a header",
        r"(?i)(?<![a-z0-9_-])(?:bearer[ \t]{1,4}(?=[a-z._~+/=-]{0,64}[0-9])([a-z0-9._~+/=-]{16,})"
        r"|basic[ \t]{1,4}(?=[a-z+/]{0,64}[0-9=])([a-z0-9+/=]{12,}))",
    ),
    Pattern(
        "url-cred", "url-cred", "user and password in a URL",
        r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://([^\s/:@]{0,256}:[^\s/]{1,512})@",
    ),
    Pattern(
        "assign", "assign", "value given to a word for a secret",
        rf"(?i)(?:(?<![a-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:{_SECRET_NAME})[\"'`]?{_SPACE}{{0,4}}"
        rf"(?:(?::=|=>|{_COLON}){_SPACE}{{0,4}}(?!{_THING})"
        rf"|(?<={_SPACE})(?:is|was(?!{_SPACE}{{1,4}}(?-i:[a-z]{{1,20}}ed){_WORD_ENDS}))(?=[{_SPACES}:]):?"
        rf"{_SPACE}{{0,4}}(?!{_STATE}))" + _VALUE,
    ),
    Pattern(
        "option", "assign", "value behind a command-line option for a secret",
        rf"(?i)(?<![a-z0-9-])--?(?:[a-z0-9]{{1,20}}-){{0,4}}(?:{_SECRET_NAME})[ \t\xa0]{{1,4}}"
        rf"(?!-|{_THING}|{_STATE}|{_VERB})" + _VALUE,
    ),
    Pattern(
        "curl-user", "url-cred", "user and password given to curl or wget",
        rf"(?i:{_CURL}(?:(?!{_CURL})[^\n]){{0,200}}?[ \t])(?:-[A-Za-z]{{0,4}}[uU]|--(?:proxy-)?user)[ \t=]{{0,4}}"
        r"[\"']?((?<=[\"'])[^\"':\n]{0,64}:[^\"'\n]+|[^\s\"':]{0,64}:[^\s\"';]+)",
    ),
    Pattern(
        "env", "env", "environment variable with its value",
        r"(?m)^[ \t]{0,16}(?:export[ \t]{1,4}[A-Za-z_][A-Za-z0-9_]{0,63}|[A-Z][A-Z0-9_]{1,63})=([^\n]+)",
    ),
    Pattern(
        "path-unix", "path", "local path of a Unix system",
        r"(?<![A-Za-z0-9_/])(?:/(?:home|Users|mnt)/|/(?:root|etc|var|tmp|private)(?![A-Za-z0-9_-])|~[A-Za-z0-9_-]{0,32}/)"
        r"[^\s\"'`<>|;,()\[\]]*",
    ),
    Pattern("path-drive", "path", "path on a drive", r"(?<![A-Za-z0-9])[A-Za-z]:[\\/](?!/)[^\s\"'`<>|;,]+"),
    Pattern("path-share", "path", "network share", r"(?<!\\)\\\\[A-Za-z0-9._$-]{1,255}\\[^\s\"'`<>|;,]+"),
    Pattern("path-url", "path", "file URL", r"(?i)(?<![a-z0-9])file://[^\s\"'`<>|;,]+"),
    Pattern(
        "output-fence", "output", "fenced block of a shell, console or log",
        rf"(?mi)^[ \t]{{0,3}}(?:```|~~~)`{{0,8}}[ \t]{{0,4}}(?:{_SHELLS})(?![a-z0-9])[^\n]*\n(?s:.*?)"
        r"(?:^[ \t]{0,3}(?:```|~~~)`{0,8}[ \t]*$|\Z)",
    ),
    Pattern(
        "output-prompt", "output", "line that starts with a prompt",
        r"(?m)^[ \t]{0,8}(?:\$ (?=[A-Za-z./~_])|>>> |\.\.\. |PS [A-Z]:\\[^>\n]{0,256}>"
        r"|[A-Za-z0-9._-]{1,64}@[A-Za-z0-9._-]{1,64}:[^\n$#]{0,256}[$#] )[^\n]*",
    ),
    Pattern(
        "output-trace", "output", "head or frame of a stack trace",
        r"(?m)^[ \t]{0,16}(?:Traceback \(most recent call last\):|Exception in thread |goroutine [0-9]{1,9} \["
        r"|thread '[^'\n]{1,64}' panicked at|File \"[^\"\n]{1,512}\", line [0-9]{1,9}(?:[^\n]*\n[ \t]{4})?"
        r"|at [^\n(]{1,256}\((?=[^\n)]{0,256}[A-Za-z])[^\n)]{1,256}:[0-9]{1,9}\)"
        r"|[A-Za-z_][A-Za-z0-9_.]{0,100}(?:Error|Exception): )[^\n]*",
    ),
    Pattern(
        "output-exit", "output", "exit code of a command",
        r"(?i)(?<![a-z])exit(?:ed with)?(?: (?:code|status))(?: was| is| of)?[ :=]{1,3}-?[0-9]{1,10}",
    ),
)  # fmt: skip
