#!/bin/sh
# Backs a store up: snapshot, check, note, rotation. Made for cron: silent unless something is wrong, then one line on
# stderr and a non-zero exit; nothing of a failed run is left behind, and older backups are kept.
#
#   scripts/backup.sh STORE FOLDER [--public-key HEX|FILE] [--daily N] [--weekly N] [--print-note]
#
# Each backup is a folder FOLDER/<UTC time>_<ISO week> with the store's file, its log, and, with a public key, the
# checkpoint note. The copy is verified (without a key: read whole), and the note of the backup before must
# still be in its history. Kept: the newest backup of each of the last N days (7) and weeks (5).
# Exit: that of the clawmem command that failed; 2 usage; 1 anything else. CLAWMEM names the command, otherwise
# ../.venv/bin/clawmem or PATH is used.
set -u
umask 077
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
export PATH
LC_ALL=C
export LC_ALL

fail() { # STATUS MESSAGE
    status=$1
    shift
    echo "backup: $*" >&2
    exit "$status"
}

usage() {
    fail 2 "usage: backup.sh STORE FOLDER [--public-key HEX|FILE] [--daily N] [--weekly N] [--print-note]"
}

number() { # OPTION VALUE: a whole number from 1 on
    case $2 in
        '' | *[!0-9]* | 0*) fail 2 "$1 needs a whole number from 1 on" ;;
    esac
}

store='' folder='' key='' daily=7 weekly=5 print=''
while [ $# -gt 0 ]; do
    case $1 in
        --public-key | --daily | --weekly)
            [ $# -ge 2 ] || usage
            case $1 in
                --public-key) key=$2 ;;
                --daily) number "$1" "$2" && daily=$2 ;;
                --weekly) number "$1" "$2" && weekly=$2 ;;
            esac
            shift
            ;;
        --print-note) print=1 ;;
        -*) usage ;;
        *)
            if [ -z "$store" ]; then store=$1; elif [ -z "$folder" ]; then folder=$1; else usage; fi
            ;;
    esac
    shift
done
[ -n "$store" ] && [ -n "$folder" ] || usage
[ -z "$print" ] || [ -n "$key" ] || fail 2 "--print-note needs --public-key: an unsigned store has no note"

here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
clawmem=${CLAWMEM:-}
if [ -z "$clawmem" ]; then
    clawmem=clawmem
    [ ! -x "$here/.venv/bin/clawmem" ] || clawmem=$here/.venv/bin/clawmem
fi
command -v "$clawmem" >/dev/null 2>&1 || fail 1 "there is no command $clawmem"

mkdir -p "$folder" 2>/dev/null || fail 1 "cannot make the folder $folder"
new=$(mktemp -d "$folder/.new-XXXXXX" 2>/dev/null) || fail 1 "cannot write to $folder"
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

run() { # WHAT OUTPUT ARGUMENTS...: one clawmem command; on failure its first line of complaint, and its exit status
    what=$1 output=$2
    shift 2
    "$clawmem" "$@" </dev/null >"$output" 2>"$new/.complaint"
    status=$?
    [ "$status" -eq 0 ] || fail "$status" "$what of $store failed: $(head -n 1 "$new/.complaint" | cut -c 1-500)"
}

backups() { # complete backups, newest first
    for path in "$folder"/[0-9]*Z_*-W[0-9][0-9]; do
        [ ! -d "$path" ] || basename "$path"
    done | sort -r
}

copy=$new/$(basename "$store")
run "snapshot" /dev/null --path "$store" snapshot "$copy"
if [ -n "$key" ]; then
    set -- --path "$copy" verify --public-key "$key" --emit-checkpoint
    before=$(backups | head -n 1)
    [ -z "$before" ] || [ ! -f "$folder/$before/note" ] || set -- "$@" --checkpoint "$folder/$before/note"
    run "verification" "$new/note" "$@"
else
    run "reading" /dev/null --path "$copy" export --include-deleted
fi
rm -f "$new/.complaint" "$copy.lock"

name=$(date -u +%Y-%m-%dT%H-%M-%SZ_%G-W%V)
[ ! -e "$folder/$name" ] || fail 1 "there is a backup of this second already"
mv "$new" "$folder/$name" || fail 1 "cannot name the new backup $folder/$name"

# Rotation: names carry day and week, and sort by time.
days='' weeks='' day_count=0 week_count=0
for name in $(backups); do
    day=${name%%T*} week=${name##*_} keep=''
    case " $days " in
        *" $day "*) ;;
        *) [ "$day_count" -ge "$daily" ] || { days="$days $day" day_count=$((day_count + 1)) keep=1; } ;;
    esac
    case " $weeks " in
        *" $week "*) ;;
        *) [ "$week_count" -ge "$weekly" ] || { weeks="$weeks $week" week_count=$((week_count + 1)) keep=1; } ;;
    esac
    [ -n "$keep" ] || rm -rf "${folder:?}/$name" || fail 1 "cannot remove the old backup $folder/$name"
done
find "$folder" -maxdepth 1 -name '.new-*' -mtime +1 -exec rm -rf {} + # of runs that were killed

newest=$(backups | head -n 1)
[ -z "$print" ] || cat "$folder/$newest/note"
