#!/bin/sh
# Fills fuzz/corpus with small inputs from tests/data and from what lockstep itself writes.
#   cargo build && fuzz/seed.sh target/debug/lockstep
set -eu
lockstep=$(realpath "$1")
cd "$(dirname "$0")/.."
corpus=$PWD/fuzz/corpus
mkdir -p "$corpus/recordings" "$corpus/traces" "$corpus/plans" "$corpus/archives" "$corpus/clusters"

# The hash in the name keeps files of the same name apart.
seed() { cp -n "$2" "$corpus/$1/$(sha1sum "$2" | cut -c1-16)"; }

find tests/data -type f -size -64k ! -name '*.py' ! -name '*.md' ! -name '*.xml' | while read -r file; do
    seed recordings "$file"
done
find tests/data -type d -path '*flight-recorder*' | while read -r folder; do
    set -- "$folder"/*rank*0 "$folder"/*rank*1
    if [ $# -eq 2 ] && [ -f "$1" ] && [ -f "$2" ] && [ "$(stat -c %s "$1")" -lt 65536 ]; then
        { cat "$1"; printf '\n==> next file <==\n'; cat "$2"; } > "$corpus/recordings/pair-$(basename "$folder")"
    fi
done

made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
"$lockstep" plan --list | grep -o '^ *[a-z][a-z0-9_-]*' | tr -d ' ' | sort -u | while read -r id; do
    "$lockstep" plan "$id" -o "$made/$id.json" 2> /dev/null || continue
    "$lockstep" plan "$id" --binary -o "$made/$id.plan" 2> /dev/null || true
    "$lockstep" sim "$id" -o "$made/$id.lks" > /dev/null 2>&1 || true
    "$lockstep" sim "$id" -o "$made/$id.trace.json" > /dev/null 2>&1 || true
    "$lockstep" export "$id" --goal -o "$made/$id.goal" > /dev/null 2>&1 || true
done
find "$made" -size -64k \( -name '*.lks' -o -name '*.trace.json' \) | while read -r file; do seed traces "$file"; done
find "$made" -type f -size -64k ! -name '*.lks' ! -name '*.trace.json' | while read -r file; do seed plans "$file"; done
find tests/data -name '*.xml' -size -64k | while read -r file; do seed plans "$file"; done

folder=tests/data/flight-recorder
tar -cf "$made/a.tar" -C "$folder" .
tar -czf "$made/a.tar.gz" -C "$folder" .
find "$folder" -type f -size -16k | head -1 | while read -r file; do gzip -c "$file" > "$made/a.gz"; done
python3 -c 'import shutil, sys; shutil.make_archive(sys.argv[1], "zip", sys.argv[2])' "$made/a" "$folder"
for archive in "$made"/a.*; do seed archives "$archive"; done
find sim/clusters/data/clusters -name '*.toml' | while read -r file; do seed clusters "$file"; done
for kind in recordings traces plans archives clusters; do echo "$kind: $(ls "$corpus/$kind" | wc -l)"; done
