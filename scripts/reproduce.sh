#!/usr/bin/env bash
# Builds the program and reproduces the paper's figures into a folder.
#
# usage: scripts/reproduce.sh DIR [OPTION OF skewbench reproduce]...
set -euo pipefail

if [[ $# -lt 1 || $1 == -h || $1 == --help ]]; then
    echo "usage: $0 DIR [OPTION OF skewbench reproduce]..." >&2
    exit 2
fi
out=$(realpath --canonicalize-missing -- "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --release --locked -- reproduce --out "$out" "$@"
