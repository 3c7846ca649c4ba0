#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Connections by address between soft devices and the kernel's stack, in a guest: with our
# own program at both ends, and with rping and ucmatose at one of them.
# usage: cm_interop_test.sh CM_PEER [--all]
set -u
peer=$1
all=${2:-}
tests=0
failed=0
port=7000
patience=${SNT_TIMEOUT_MULTIPLIER:-1}

. "$(dirname "$0")/soft_net.sh"
soft_net 9000

# Each side runs commands with its own devices; $v is 4 or 6.
address_of() {
	case $1$v in
	rxe4) echo 10.5.0.1 ;;
	rxe6) echo fd05:0::1 ;;
	soft4) echo 10.5.0.2 ;;
	soft6) echo fd05:0::2 ;;
	esac
}
at_rxe() { env SENNIT_SOFT=never SENNIT_DEVICES==rxr0 "$@"; }
at_soft() {
	ip netns exec blue env SENNIT_SOFT=only \
		SENNIT_SOFT_ADDRESSES="$(address_of soft)" "$@"
}

# await_listener PID: until it says so, or the kernel does, or it has ended
await_listener() {
	for _ in $(seq $((100 * patience))); do
		grep -q listening /tmp/listener && return
		rdma resource show cm_id 2>/dev/null |
			grep -q "state LISTEN.*:$port" && return
		kill -0 "$1" 2>/dev/null || return
		sleep 0.1
	done
}

# run WHAT LISTENING-SIDE LISTENER -- CONNECTOR, both with ADDRESS and PORT filled in
run() {
	what="$1, IPv$v$network"
	side=$2
	shift 2
	port=$((port + 1))
	address=$(address_of "$side")
	tests=$((tests + 1))
	listener='' connector='' other=rxe
	[ "$side" = rxe ] && other=soft
	for word; do
		case $word in
		ADDRESS) word=$address ;;
		PORT) word=$port ;;
		--) listener=$connector connector='' word='' ;;
		esac
		connector="$connector $word"
	done
	begin=$(date +%s)
	"at_$side" $listener >/tmp/listener 2>&1 &
	pid=$!
	await_listener $pid
	"at_$other" timeout $((300 * patience)) $connector >/tmp/connector 2>&1
	status=$?
	wait $pid
	listened=$?
	if [ $status = 0 ] && [ $listened = 0 ]; then
		echo "ok $tests - $what # $(($(date +%s) - begin)) s"
		return
	fi
	failed=1
	sed 's/^/# listener: /' /tmp/listener
	sed 's/^/# connector: /' /tmp/connector
	echo "not ok $tests - $what ($listened, $status)"
}

# both WHAT LANGUAGE COUNT: either side listens
both() {
	for listens in rxe soft; do
		run "$1, $listens listens" $listens \
			"$peer" listen ADDRESS PORT "$2" "$3" -- \
			"$peer" connect ADDRESS PORT "$2" "$3"
	done
}

others() {
	run "ucmatose connects" soft "$peer" listen ADDRESS PORT messages 1 -- \
		ucmatose -s ADDRESS -p PORT
	run "ucmatose listens" rxe ucmatose -b ADDRESS -p PORT -- \
		"$peer" connect ADDRESS PORT messages 1
	run "rping connects" soft "$peer" listen ADDRESS PORT rping 1 -- \
		rping -c -a ADDRESS -p PORT -C 3 -V
	run "rping listens" rxe rping -s -a ADDRESS -p PORT -C 3 -V -- \
		"$peer" connect ADDRESS PORT rping 1
}

v=4 network=
others
both "messages" messages 2
v=6
both "messages" messages 2
if [ -n "$all" ]; then
	both "a refusal" reject 2
	both "READ and WRITE" rping 1
	others
	v=4
	both "a refusal" reject 2
	both "READ and WRITE" rping 1
fi
# The kernel takes 4 s to notice that a message of its own got lost.
v=4 network=", a bad network"
spoil_rxe delay 200us loss 5% duplicate 5% reorder 95%
spoil_soft delay 200us loss 5% duplicate 5% reorder 95%
both "messages" messages 3
if [ -n "$all" ]; then
	both "more messages" messages 30
	others
	v=6
	others
fi
echo "1..$tests"
exit $failed
