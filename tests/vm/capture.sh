#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes tests/vectors/rxe.inc anew, from what two kernels with rxe send each other.
# usage: tests/vm/capture.sh [BUILD-FOLDER]
set -eu
cd "$(dirname "$0")/../.."
program=$(realpath "${1:-build}")/tests/vm/wire_capture
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
tests/vm/run.py --guests 2 --deadline 60 --results "$results" -- sh -euc '
	ip addr add "fd00::$((VM_HOST + 1))/64" dev rail0 nodad
	exec "$0"' "$program"
cp "$(find "$results" -name rxe.inc)" tests/vectors/rxe.inc
