#!/bin/sh
# SPDX-License-Identifier: MIT
#
# In a guest with rxe devices: how fast a stream is beside perftest's ib_write_bw, in turns.
# Each stream is run twice, once with every byte compared. Figures are for people; what is
# judged is that there are any, and the bytes.
# usage: stream_speed_test.sh SENNIT
tool=$1
rounds=3
patience=${SNT_TIMEOUT_MULTIPLIER:-1}
command -v ib_write_bw >/dev/null || {
	echo "1..0 # SKIP no ib_write_bw (package perftest)"
	exit 0
}

# plain SIZE COUNT: Gb/s of writes by perftest, from one QP of rxe0 to another
plain() {
	ib_write_bw -d rxe0 -x 1 -F -s "$1" -n "$2" --report_gbits >/tmp/plain.server 2>&1 &
	pid=$!
	# Its port, 18515, in state LISTEN.
	for _ in $(seq $((100 * patience))); do
		grep -q ':4853 [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6 && break
		sleep 0.1
	done
	timeout $((60 * patience)) ib_write_bw -d rxe0 -x 1 -F -s "$1" -n "$2" \
		--report_gbits 192.168.77.1 >/tmp/plain.client 2>&1 || kill $pid
	wait $pid
	awk -v size="$1" '$1 == size { print $4 }' /tmp/plain.client
}

# stream SIZE COUNT WORD...: Gb/s of a stream; nothing if it failed, or bytes were wrong
stream() {
	size=$1 count=$2
	shift 2
	timeout $((60 * patience)) "$tool" perf --local --json --op stream --test bw --size "$size" \
		--iterations "$count" --runs 1 --warm-up 0 "$@" >/tmp/stream || return
	sed -n 's/.*"bytes_per_second": *{[^}]*"median": *\([0-9.e+]*\).*/\1/p' /tmp/stream |
		awk '{ printf "%.4f\n", $1 * 8 / 1e9 }'
}

# The figure in the middle of those given, or nothing.
middle() { sort -n | awk '{ value[NR] = $1 } END { if (NR) print value[int((NR + 1) / 2)] }'; }

tests=0
failed=0
for case in '65536 160' '1048576 16'; do
	set -- $case
	rm -f /tmp/plain /tmp/one /tmp/two /tmp/compared
	for _ in $(seq $rounds); do
		plain "$1" "$2" >>/tmp/plain
		stream "$1" "$2" --lanes 1 >>/tmp/one
		stream "$1" "$2" --lanes 2 --scheme dqplb >>/tmp/two
		stream "$1" "$2" --lanes 1 --verify >>/tmp/compared
	done
	tests=$((tests + 1))
	echo "# $1 bytes, Gb/s: ib_write_bw $(middle </tmp/plain)," \
		"a stream $(middle </tmp/one), over two devices $(middle </tmp/two)," \
		"compared $(middle </tmp/compared)"
	if [ "$(cat /tmp/plain /tmp/one /tmp/two /tmp/compared | grep -c '[1-9]')" = \
		$((4 * rounds)) ]; then
		echo "ok $tests - $1 bytes"
	else
		failed=1
		sed 's/^/# perftest: /' /tmp/plain.client
		echo "not ok $tests - $1 bytes"
	fi
done
echo "1..$tests"
exit $failed
