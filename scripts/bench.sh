#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs every benchmark in turn.
# usage: scripts/bench.sh BUILD [--json]
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
for program in "$folder"/bench/*; do
	[ -f "$program" ] && [ -x "$program" ] || continue
	"$program" "$@"
done
