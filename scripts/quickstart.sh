#!/bin/sh
# Sets everything up in .venv, then does the main job on a bundled sample: create, save, search, recall, stats,
# snapshot, export. Prints each command and its answer. Leaves the store in a folder that it names.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh
PATH="$PWD/.venv/bin:$PATH"
sample="clawmem_cli/sample"
folder=$(mktemp -d "${TMPDIR:-/tmp}/clawmem-quickstart-XXXXXX")
export CLAWMEM_PATH="$folder/agent.h5"

# show COMMAND...: print it, run it, stop the script if it fails
show() {
    printf '\n$ %s\n' "$*" | cut -c 1-160
    "$@"
}

show clawmem --version
show clawmem create --agent-id quickstart --dim 384 --embedder all-MiniLM-L6-v2

printf '\n$ clawmem save --ndjson < %s | tail -n 2\n' "$sample/notes.ndjson"
clawmem save --ndjson <"$sample/notes.ndjson" >"$folder/answers.ndjson"
tail -n 2 "$folder/answers.ndjson"
saved=$(grep -c '"status":"saved"' "$folder/answers.ndjson")
[ "$saved" -ge 60 ] || { echo "quickstart: only $saved notes were saved" >&2; exit 1; }

printf '%s\n' '{"chunk":"Mara takes the early boat on Thursdays","tags":"habit"}' >"$folder/note.json"
printf '\n$ clawmem save < note.json\n'
clawmem save <"$folder/note.json"

vector=$(sed -n '2s/.*"embedding": *\(\[[^]]*\]\).*/\1/p' "$sample/queries.ndjson")
show clawmem search --query "Until when does a guest get a full refund?" --embedding "$vector" --top-k 2
show clawmem search --query "dark mode" --top-k 2
printf '\n$ clawmem search --batch --top-k 1 < %s | cut -c 1-110\n' "$sample/queries.ndjson"
clawmem search --batch --top-k 1 <"$sample/queries.ndjson" | cut -c 1-110
show clawmem recall 63
show clawmem stats
show clawmem snapshot "$folder/backup.h5"
printf '\n$ clawmem --path backup.h5 export --no-embeddings | tail -n 2\n'
clawmem --path "$folder/backup.h5" export --no-embeddings >"$folder/export.ndjson"
tail -n 2 "$folder/export.ndjson"
exported=$(wc -l <"$folder/export.ndjson")
[ "$exported" -eq $((saved + 1)) ] || { echo "quickstart: exported $exported of $((saved + 1)) notes" >&2; exit 1; }

printf '\nDone: %s notes in %s. The command is %s/.venv/bin/clawmem\n' "$exported" "$CLAWMEM_PATH" "$PWD"
