#!/bin/sh
# SPDX-License-Identifier: MIT
# In a guest with rxe devices: the cases of streams on them, and bytes between processes.
# usage: rxe_test.sh BULK PROGRAM...
bulk=$1
shift
echo "1..$(($# + 1))"
count=1
output=$("$bulk" 8 2>&1)
status=$?
echo "$output" | sed 's/^/# /'
[ "$status" = 0 ] && echo "ok 1 - bulk" || echo "not ok 1 - bulk"
for program; do
	count=$((count + 1))
	output=$(STREAM_REAL=1 "$program" 2>&1)
	status=$?
	[ "$status" = 0 ] && echo "ok $count - $(basename "$program")" || {
		echo "$output" | sed 's/^/# /'
		echo "not ok $count - $(basename "$program")"
	}
done
