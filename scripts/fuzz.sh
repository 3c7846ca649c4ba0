#!/bin/sh
# SPDX-License-Identifier: MIT
# Fuzzes every target for some seconds each, starting from the corpora in
# tests/fuzz/corpus. Inputs that are worth keeping stay in build-fuzz/corpus;
# an input that crashes is left in build-fuzz/, and its name is printed.
# usage: scripts/fuzz.sh SECONDS [TARGET...]
set -eu
cd "$(dirname "$0")/.."
seconds=$1
shift
CC=clang scripts/configure.sh build-fuzz -Dfuzz=true -Dbench=false -Db_lundef=false \
	-Db_sanitize=address,undefined
ninja -C build-fuzz --quiet
for program in build-fuzz/tests/fuzz/*_fuzz; do
	name=$(basename "$program" _fuzz)
	[ $# = 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
	mkdir -p "build-fuzz/corpus/$name"
	echo "fuzzing $name for $seconds s"
	"$program" -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 \
		-artifact_prefix="build-fuzz/$name-" \
		"build-fuzz/corpus/$name" "tests/fuzz/corpus/$name"
done
