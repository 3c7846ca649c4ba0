#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What rdma_cm on rxe does when a link was down for a while, with programs that know nothing
# of sennit: docs/internals/conformance.md has the story. A kernel that does better fails here, and
# the page is to be changed.
# usage: link_down_test.sh, in a guest with --net veth
tests=0
failed=0
patience=${SNT_TIMEOUT_MULTIPLIER:-1}
command -v rping >/dev/null || {
	echo "1..0 # SKIP no rping (package rdmacm-utils)"
	exit 0
}

# await STATE: until there is an id of rdma_cm in it
await() {
	for _ in $(seq $((100 * patience))); do
		rdma resource show cm_id | grep -q "state $1" && return
		sleep 0.1
	done
}

# connects SECONDS: does rping get through, once, in so many?
connects() {
	rping -s -a 10.0.0.2 -C 1 >/tmp/server 2>&1 &
	server=$!
	await LISTEN
	timeout $(($1 * patience)) rping -c -I 10.0.0.1 -a 10.0.0.2 -C 1 >/tmp/client 2>&1
	status=$?
	kill -9 $server 2>/dev/null
	wait $server 2>/dev/null
	return $status
}

# heard, said DEVICE: answers to requests for connections
heard() { cat "/sys/class/infiniband/$1/ports/1/cm_rx_msgs/rep"; }
said() { cat "/sys/class/infiniband/$1/ports/1/cm_tx_msgs/rep"; }

judge() { # STATUS WHAT
	tests=$((tests + 1))
	[ "$1" = 0 ] && echo "ok $tests - $2" && return
	failed=1
	sed 's/^/# /' /tmp/client
	echo "not ok $tests - $2"
}

connects 60
judge $? "connects"

ip link set va0 down
ip link set va0 up
connects 60
judge $? "connects after the link was down, while neither end sent anything"

# A killed process is disconnected by the kernel, whose message finds no route.
rping -s -a 10.0.0.2 >/dev/null 2>&1 &
server=$!
await LISTEN
rping -c -I 10.0.0.1 -a 10.0.0.2 >/dev/null 2>&1 &
client=$!
await CONNECT
ip link set va0 down
kill -9 $client
wait $client 2>/dev/null
ip link set va0 up
kill -9 $server
wait $server 2>/dev/null
heard=$(heard rxa0)
said=$(said rxb0)
connects 5
[ $? != 0 ] && [ "$(heard rxa0)" = "$heard" ] && [ "$(said rxb0)" -gt "$said" ]
judge $? "a device whose message found no route hears no answer any more"

for end in a b; do
	rdma link delete rx${end}0
	rdma link add rx${end}0 type rxe netdev v${end}0
done
connects 60
judge $? "connects when devices are made anew"
echo "1..$tests"
exit $failed
