#!/bin/sh
# SPDX-License-Identifier: MIT
# In a guest with rxe devices: every adapter, all cases that run on verbs devices.
# usage: rxe_test.sh PROGRAM ADAPTER [PROGRAM ADAPTER...]
count=0
echo "1..$(($# / 2))"
while [ $# -gt 1 ]; do
	count=$((count + 1))
	output=$("$1" --adapter "$2" --on verbs 2>&1)
	status=$?
	# Kernels may forbid io_uring: a reason is told then.
	reason=$(echo "$output" | sed -n 's/^1\.\.0 # SKIP/# SKIP/p')
	[ "$status" = 0 ] && echo "ok $count - $2 $reason" || {
		echo "$output" | sed 's/^/# /'
		echo "not ok $count - $2"
	}
	shift 2
done
