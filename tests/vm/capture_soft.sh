#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes what a soft device and rxe say to each other in a guest to a file.
# usage: capture_soft.sh UDP_TRAFFIC CM_PEER FILE
set -eu
here=$(dirname "$0")
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
"$here/run.py" --deadline 200 --results "$results" -- sh -eu -c '
	. "$0/soft_net.sh"
	soft_net 9000
	# Segments are to be seen as they are on a wire.
	for i in 0 1; do ip -n blue link set vs$i gso_max_segs 1; done
	dumpcap -q -i vr0 -w /tmp/capture >/tmp/dumpcap 2>&1 &
	capture=$!
	until [ -s /tmp/capture ]; do
		kill -0 $capture || { cat /tmp/dumpcap; exit 1; }
		sleep 0.1
	done
	for how in "" "--mtu 1024" "--ipv6"; do
		case $how in
		--ipv6) soft=fd05:0::2 ;;
		*) soft=10.5.0.2 ;;
		esac
		"$1" --a "soft=$soft@blue" --b verbs==rxr0 --max 12289 $how
	done
	SENNIT_SOFT=never SENNIT_DEVICES==rxr0 "$2" listen 10.5.0.1 7000 rping 1 &
	listener=$!
	until rdma resource show cm_id | grep -q "state LISTEN.*:7000"; do
		kill -0 $listener
		sleep 0.1
	done
	SENNIT_SOFT=only SENNIT_SOFT_ADDRESSES=10.5.0.2 \
		ip netns exec blue "$2" connect 10.5.0.1 7000 rping 1
	wait $listener
	# What comes last takes its time to get to the file.
	ip netns exec blue bash -c "echo the very end >/dev/udp/10.5.0.1/9"
	until grep -q "the very end" /tmp/capture; do
		kill -0 $capture
		sleep 0.1
	done
	kill $capture
	wait $capture || true
	cp /tmp/capture "$VM_RESULTS"' "$here" "$1" "$2"
cp "$results/capture" "$3"
