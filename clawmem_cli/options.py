"""The one table of verbs and their options, for the fast path (parsing.py) and for typer (app.py). Data only. HOT."""

from __future__ import annotations

from clawmem_cli.parsing import Argument, Option, Verb

GLOBAL = (
    Option(
        "--path -p", "path", "The store's file.", metavar="FILE", env=("CLAWMEM_PATH", "CLAWHDF5_PATH"),
    ),
    Option(
        "--lock-timeout", "float", "Longest wait for another writer.", default=10.0, metavar="SECONDS", least=0,
    ),
    Option("--quiet", "flag", "No warnings and no summary on stderr."),
)  # fmt: skip

ACTOR = Option(
    "--actor", "text", "Who acts, for the audit log; the system's user by default.", metavar="NAME",
    env=("CLAWMEM_ACTOR",),
)  # fmt: skip
SIGNING = (
    Option(
        "--signing-key", "path", "Ed25519 key that signs checkpoints.", metavar="FILE",
        env=("CLAWMEM_SIGNING_KEY_FILE",),
    ),
    Option("--insecure-key-file", "flag", "Take a key file that others can read."),
    Option("--rotate-key", "flag", "Sign with another key than the store's, on purpose."),
)  # fmt: skip
#: options of every verb that changes the store
WRITING = (ACTOR, *SIGNING)

SCOPE = Option("--scope", "path", "Whose memories: a scope file, the only authority on scope.", metavar="FILE")

FILTERS = (
    Option("--source", "text", "Only this source channel; repeat for more.", multiple=True, metavar="CHANNEL"),
    Option("--session", "text", "Only this session; repeat for more.", multiple=True, metavar="ID"),
    Option("--tag", "text", "Only records with this tag; repeat for more.", multiple=True, metavar="TAG"),
    Option("--since", "text", "Only records from this time on (RFC 3339 or seconds).", metavar="TIME"),
    Option("--until", "text", "Only records before this time (RFC 3339 or seconds).", metavar="TIME"),
)

#: of every verb that reads events; they stay hidden without a scope
EVENTS = (
    SCOPE,
    Option("--all-scopes", "flag", "Events of every scope; the audit log says who asked."),
    Option("--label", "choice", "Only episodes or only facts.", choices=("EPISODE", "MEMORY_FACT"), multiple=True),
    Option("--exclude-session", "text", "Not this session's episodes, nor facts that came from them.", metavar="ID"),
    Option("--facts", "flag", "Facts too.", default=True, negative="--no-facts"),
    Option("--min-trust", "choice", "Least trust class; mixed by default.", choices=("trusted", "mixed", "untrusted")),
    Option("--min-confidence", "float", "Least confidence of a fact, 0 to 1.", metavar="X", least=0),
    Option("--as-of", "text", "What held at this time (RFC 3339 or seconds); now by default.", metavar="TIME"),
    Option("--known-at", "text", "What was on record at this time (RFC 3339 or seconds).", metavar="TIME"),
    ACTOR,
)

REASON = Option("--reason", "text", "Why; kept with the change.", default="", metavar="TEXT")
FACT = Option("--fact", "text", "Id of the fact, 64 hexadecimal digits.", metavar="ID")
REJECTED_UNTIL = Option(
    "--rejected-until", "text", "When the value may be said again (RFC 3339 or seconds); never by default.",
    metavar="TIME",
)  # fmt: skip
#: options of every verb that corrects facts
CORRECTING = (SCOPE, FACT, REASON, *WRITING)

ALL_VERBS = (
    Verb(
        "create", "Make a new, empty store.",
        (
            Option("--agent-id", "text", "Whose memory it is.", default="default", metavar="ID"),
            Option("--dim", "int", "Values a vector has, fixed for the store.", default=384, metavar="N", least=1),
            Option("--wal", "flag", "Log saves, checkpoint now and then (--no-wal: checkpoint every save).",
                   default=True, negative="--no-wal"),
            Option("--f32", "flag", "Store vectors as float32, not float16."),
            Option("--f32-index", "flag", "Search the vectors themselves, not 8-bit copies."),
            Option("--embedder", "text", "The model that makes the vectors.", default="unknown", metavar="NAME"),
            Option("--tokenizer", "choice", "How texts become words.", default="english", choices=("english", "plain")),
            Option("--compression", "flag", "Compress the vectors (slower, about a fifth smaller)."),
            *WRITING,
        ),
    ),
    Verb(
        "save", "Save one record or event, or one per line with --ndjson, from stdin or --json.",
        (
            Option("--json", "text", "The record as one JSON object; - reads stdin.", metavar="OBJECT"),
            Option("--ndjson", "flag", "One record per line of stdin, one answer per line."),
            Option("--key", "text", "Upsert key: replace the record that has it.", metavar="KEY"),
            SCOPE,
            Option("--no-sync", "flag", "Answer before the disk has it."),
            Option("--strict-keys", "flag", "Refuse a record with a key that nothing reads."),
            *WRITING,
        ),
        fast=True,
    ),
    Verb(
        "search", "Find records by vector, text, or both.",
        (
            Option("--embedding", "text", "The query's vector as a JSON array.", metavar="JSON"),
            Option("--query", "text", "The query's text.", metavar="TEXT"),
            Option("--top-k -k", "int", "Most results; by default 5, as context or fenced 8 (at most 20).",
                   metavar="N", least=1),
            Option("--vector-weight", "float", "Weight of the vectors; the store's by default.", metavar="W", least=0),
            Option("--keyword-weight", "float", "Weight of the words; the store's by default.", metavar="W", least=0),
            *FILTERS,
            Option("--min-score", "float", "Leave out results with a raw similarity below this.", metavar="X", least=0),
            Option("--reject-weak", "flag", "Leave out weak matches, all of them if need be."),
            Option("--rerank", "flag", "Order by relevance, recency, source and activation."),
            Option("--context", "flag", "Let neighbours and the session count.", default=True, negative="--no-context"),
            Option("--explain", "flag", "Say how each score came about."),
            Option("--batch", "flag", "One query object per line of stdin, one answer per line."),
            *EVENTS,
            Option("--format", "choice", "json, or text for a prompt: the contract's context block, or a fenced one.",
                   default="json", choices=("json", "context", "fenced")),
            Option("--deadline-ms", "int", "Longest time (50 to 30000); an empty answer and a warning after it.",
                   metavar="N", least=0),
            Option("--strict", "flag", "With --deadline-ms: fail instead of an empty answer."),
        ),
        fast=True,
    ),
    Verb(
        "recall", "Print one record.",
        (SCOPE, *(option for option in EVENTS if option.name in ("min_trust", "as_of", "known_at"))),
        (Argument("ID", "int", "The record's index.", least=0),), fast=True,
    ),
    Verb("stats", "Print counts, sizes and the state of log and index.", fast=True),
    Verb(
        "export", "Print every record, one JSON object per line.",
        (
            Option("--include-deleted", "flag", "Deleted records too."),
            Option("--embeddings", "flag", "Print the vectors.", default=True, negative="--no-embeddings"),
            *EVENTS,
        ),
    ),
    Verb(
        "agents-md", "Print what the agent remembers as Markdown.",
        (Option("--output", "path", "Write to this file instead.", metavar="FILE"),),
        fast=True,
    ),
    Verb(
        "snapshot", "Copy the store, pending records included, to a new file.",
        (Option("--force", "flag", "Replace the destination."), *WRITING),
        (Argument("DEST", "path", "The new file."),),
    ),
    Verb("flush-wal", "Checkpoint: move the log's records into the file.", WRITING, fast=True),
    Verb(
        "delete", "Mark records as deleted.", WRITING,
        (Argument("ID", "int", "Index of a record.", least=0, multiple=True),),
    ),
    Verb("compact", "Drop deleted records from the file.", WRITING),
    Verb(
        "index", "Rebuild the derived files: search index and key table.",
        (Option("--ann", "flag", "Write the graph, too, that long-lived library use searches vectors with."),),
    ),
    Verb("tick", "Let activation weights decay one step.", WRITING),
    Verb(
        "keygen", "Make an Ed25519 signing key, or print the public key of one.",
        (
            Option("--out", "path", "Where the new key goes; never replaces a file.", metavar="FILE"),
            Option("--public", "path", "Print the public key of this key file.", metavar="FILE"),
            Option("--insecure-key-file", "flag", "Take a key file that others can read."),
        ),
        store=False,
    ),
    Verb(
        "verify", "Check the store against its signature.",
        (
            Option("--public-key", "path", "The public key, in hex or in a file.", metavar="HEX|FILE"),
            Option("--checkpoint", "path", "A note of an earlier checkpoint to compare with.", metavar="FILE"),
            Option("--emit-checkpoint", "flag", "Print the note of the last signed checkpoint."),
            Option("--full", "flag", "Compare the index's vectors and words, too; up to 5,000 records always done."),
            Option("--strict", "flag", "Unsigned log entries fail as well."),
        ),
        fast=True,
    ),
    Verb(
        "replace", "Replace a fact by a new one, given by --text, --json or on stdin.",
        (
            Option("--text", "text", "What holds instead; everything else is as in the old fact.", metavar="TEXT"),
            Option("--json", "text", "The new fact as JSON, absent members as in the old one; - reads stdin.",
                   metavar="OBJECT"),
            Option("--also", "text", "Id of another fact that gives way too; repeat for more.", multiple=True,
                   metavar="ID"),
            Option("--override-tombstone", "text", "Why a value that was rejected before is believed now.",
                   metavar="REASON"),
            REJECTED_UNTIL,
            *CORRECTING,
        ),
    ),
    Verb("retract", "Take a fact back: it never held, and saying it again needs a review.",
         (REJECTED_UNTIL, *CORRECTING)),
    Verb(
        "expire", "End a fact: it held until now, or until --at.",
        (Option("--at", "text", "When it ended (RFC 3339 or seconds).", metavar="TIME"), *CORRECTING),
    ),
    Verb("history", "Print every version of a fact.", (SCOPE, FACT)),
    Verb(
        "hash", "Print the id of an episode, a fact or a participant, and what it is the hash of.",
        (
            Option("--kind", "choice", "What the object on stdin is.", choices=("episode", "fact", "scope")),
            Option("--json", "text", "The object; - reads stdin.", metavar="OBJECT"),
        ),
        store=False,
    ),
    Verb(
        "scope init", "Make the deployment's salt: 32 random bytes, for your eyes only.",
        (Option("--out", "path", "Where it goes, outside the store; never replaces a file.", metavar="FILE"),),
        store=False,
    ),
    Verb(
        "scope derive", "From what the host knows of a session to a scope file, or to the reason why there is none.",
        (
            Option("--context", "path", "The host's facts as JSON; stdin by default.", metavar="FILE"),
            Option("--salt", "path", "The salt that `scope init` made.", metavar="FILE"),
            Option("--no-salt", "flag", "Unsafe: participants can then be guessed from their hashes."),
        ),
        store=False,
    ),
    Verb(
        "capture", "Keep the turn that ends a transcript on stdin, without secrets, as an episode.",
        (
            SCOPE,
            Option("--session", "text", "The host's id of the session.", metavar="ID"),
            Option("--source-event", "text", "The host's id of the turn; the same one is kept once.", metavar="ID"),
            Option("--runtime", "choice", "Which host.", default="custom", choices=("openclaw", "hermes", "custom")),
            Option("--kind", "choice", "Which kind of conversation.", default="local",
                   choices=("direct", "local", "shared")),
            Option("--channel-id-hash", "text", "Hash of the channel, as `scope derive` prints it.", metavar="HEX"),
            Option("--visibility", "choice", "For whom.", default="participant",
                   choices=("participant", "profile", "shared")),
            Option("--trust", "choice", "How far the text is trusted.", default="mixed",
                   choices=("trusted", "mixed", "untrusted")),
            Option("--origin", "text", "Where the text is from.", default="conversation", metavar="TEXT"),
            Option("--provenance", "text", "Who captured it, RUNTIME:capture by default.", metavar="TEXT"),
            Option("--observed-at", "text", "When it was said (RFC 3339 or seconds); now by default.", metavar="TIME"),
            Option("--success", "flag", "Whether the turn succeeded; a failed one is not kept.", default=True,
                   negative="--failed"),
            Option("--redaction-rules", "path", "More patterns to redact, and allowed texts.", metavar="FILE"),
            Option("--async", "flag", "To the outbox at once, not to the store."),
            ACTOR,
        ),
    ),
    Verb("outbox list", "Print the turns that wait, and those in quarantine."),
    Verb("outbox drain", "Take every waiting turn in, in order.", (SCOPE, *WRITING)),
    Verb(
        "outbox retry", "Move turns back from the quarantine, then drain.",
        (
            Option("--file", "text", "Only this file; repeat for more.", multiple=True, metavar="NAME"),
            SCOPE, *WRITING,
        ),
    ),
    Verb("audit show", "Print the audit log.",
         (Option("--tail", "int", "Only the last lines.", metavar="N", least=1),)),
    Verb("audit verify", "Check that no line of the audit log was changed, dropped or moved."),
    Verb(
        "purge", "Print what would be gone for good; with --confirm make it so.",
        (
            Option("--event", "text", "Id of an event; repeat for more.", multiple=True, metavar="ID"),
            Option("--record", "int", "Index of a record; repeat for more.", multiple=True, metavar="N", least=0),
            Option("--session", "text", "Everything of this session; repeat for more.", multiple=True, metavar="ID"),
            SCOPE,
            Option("--confirm", "text", "The digest of the plan to execute.", metavar="DIGEST"),
            *WRITING,
        ),
    ),
    Verb("review list", "Print the facts that wait for a decision.", (SCOPE,)),
    Verb("review approve", "Believe a fact that waits; its proposer cannot.", CORRECTING),
    Verb("review reject", "Never believe a fact that waits; its proposer cannot.", (REJECTED_UNTIL, *CORRECTING)),
    Verb(
        "doctor", "Name what is wrong with the store's files; with --repair, put it right.",
        (
            Option("--repair", "flag", "Back up what is damaged, then repair it."),
            Option("--json", "flag", "Accepted for scripts; the report is always JSON."),
            *WRITING,
        ),
    ),
)  # fmt: skip

VERBS = {verb.words: verb for verb in ALL_VERBS}
