#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Virtual QPs by address between soft devices and rxe, in a guest: two devices at each end,
# either side listening, by rdma_cm and by TCP. Then the tool, which is asked about rails and
# ends streams where acknowledgments get lost.
# usage: conn_interop_test.sh CONN_PEER SENNIT
set -u
peer=$1
tool=$2
tests=0
failed=0
port=7400
patience=${SNT_TIMEOUT_MULTIPLIER:-1}

. "$(dirname "$0")/soft_net.sh"
soft_net 9000 4

at_rxe() { env SENNIT_SOFT=never SENNIT_DEVICES=rxr "$@"; }
at_soft() {
	ip netns exec blue env SENNIT_SOFT=only \
		SENNIT_SOFT_ADDRESSES=10.5.0.2,10.5.1.2 "$@"
}

# await PID TEXT: until it has said so, or ended
await() {
	for _ in $(seq $((100 * patience))); do
		grep -q "$2" /tmp/listener && return
		kill -0 "$1" 2>/dev/null || return
		sleep 0.1
	done
}

# run LISTENING-SIDE CONNECTING-SIDE ADDRESS CARRIER
run() {
	port=$((port + 1))
	tests=$((tests + 1))
	"at_$1" "$peer" listen "$3" $port "$4" 2 >/tmp/listener 2>&1 &
	pid=$!
	await $pid listening
	"at_$2" timeout $((120 * patience)) "$peer" connect "$3" $port "$4" 2 >/tmp/connector 2>&1
	status=$?
	wait $pid
	listened=$?
	if [ $status = 0 ] && [ $listened = 0 ] && grep -q 'pair 1-1: works' /tmp/connector; then
		echo "ok $tests - $1 listens, by $4"
		return
	fi
	failed=1
	sed 's/^/# listener: /' /tmp/listener
	sed 's/^/# connector: /' /tmp/connector
	echo "not ok $tests - $1 listens, by $4 ($listened, $status)"
}

for carrier in cm tcp; do
	run rxe soft 10.5.0.1 $carrier
	run soft rxe 10.5.0.2 $carrier
done

# tool WHAT STATUS TEXT WORD...: of a client at the soft end, which says this and ends so.
# Where it does not, the server has nothing more to wait for.
tool() {
	what=$1 expected=$2 text=$3
	shift 3
	tests=$((tests + 1))
	at_soft timeout $((120 * patience)) "$tool" "$@" >/tmp/connector 2>&1
	status=$?
	if [ $status = "$expected" ] && tr -s ' \n' ' ' </tmp/connector | grep -q "$text"; then
		echo "ok $tests - $what"
		return
	fi
	failed=1
	sed 's/^/# listener: /' /tmp/listener
	sed 's/^/# connector: /' /tmp/connector
	echo "not ok $tests - $what ($status)"
	kill $pid
}

tc qdisc add dev vr1 root netem loss 100%
setup_time=$((10 * patience))s
at_rxe "$tool" ping --serve --count 1 --source 10.5.0.1 --setup-time $setup_time \
	>/tmp/listener 2>&1 &
pid=$!
await $pid listening
works='soft0 (10.5.0.2) - 10.5.0.1: works'
left="devices without a working pair:.* the peer's 10.5.1.1"
tool "ping names the rail that is cut, and what to look at" 3 \
	"$works .* $left what to do .* UDP port 4791" \
	ping 10.5.0.1 --setup-time $setup_time
wait $pid
tc qdisc del dev vr1 root

# Messages on one rail, where acknowledgments get lost, the last one of a stream now and then;
# what the ends agree on goes by the other.
tc qdisc add dev vr0 root netem loss 25%
at_rxe "$tool" perf --bind 10.5.1.1 --devices =rxr0 >/tmp/listener 2>&1 &
pid=$!
await $pid waiting
tool "streams end, though acknowledgments get lost" 0 'all bytes correct' \
	perf 10.5.1.1 --soft-addresses 10.5.0.2 --op stream --test bw --lanes 1 \
	--size 1-8 --iterations 2 --runs 1 --warm-up 0 --verify
kill $pid 2>/dev/null
echo "1..$tests"
exit $failed
