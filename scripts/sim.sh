#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs every program that takes seeds: models and simulations. A seed that fails on a
# simulated fabric is run again, to look for less that fails in the same way.
# usage: scripts/sim.sh BUILD --seed N --seeds COUNT
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
found=
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program in "$folder"/tests/*/*_model "$folder"/tests/*/*_sim; do
	[ -x "$program" ] || continue
	found=yes
	if "$program" "$@" >"$log"; then
		cat "$log"
		continue
	fi
	cat "$log"
	replay=$(sed -n 's/^# replay: //p' "$log" | tail -n 1)
	case $program in
	*_sim) [ -z "$replay" ] || $replay --shrink ;;
	esac
	exit 1
done
[ -n "$found" ] || echo "no program takes seeds yet"
