#!/bin/sh
# SPDX-License-Identifier: MIT
# The main job, end to end, between two processes: on this host's RDMA devices where it
# has some, else on two soft devices.
# usage: scripts/demo.sh BUILD
set -eu
cd "$(dirname "$0")/.."

if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	echo "This host has RDMA devices: $(ls /sys/class/infiniband | tr '\n' ' ')"
else
	echo "This host has no RDMA device, so each process takes two soft devices:"
	echo "RoCEv2 in user space, on loopback addresses. Headings name the path of the"
	echo "messages: shm is memory that the processes share, udp are sockets."
	export SENNIT_SOFT=only
fi
echo "Each row: messages of one size over four lanes, every byte of them compared."
echo
exec "$1/tools/sennit/sennit" perf --local --lanes 4 --size 64,4k,64k,1m --verify \
	--duration 200ms --lane-rows --report "$1/demo.html"
