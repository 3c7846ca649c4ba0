#!/bin/busybox sh
# SPDX-License-Identifier: MIT
#
# The guest's init: load modules, mount the host's root, build the network, run
# one command, tell the host how it ended. tests/vm/run.py is the other half. It
# reads the port (fd 3), where a line "\036NONCE what" is for it and the rest is
# output; it also ends the guest: after the last word this script just waits.

export PATH=/bin:/usr/sbin:/usr/bin:/sbin
/bin/busybox --install -s /bin

tell() { printf '\036%s %s\n' "$nonce" "$*" >&3; }
rest() { while :; do sleep 60; done; }
fail() {
	echo "init: $*" >/dev/console
	[ -n "$nonce" ] || poweroff -f # no listener yet
	tell fail "$*"
	rest
}
try() { "$@" || fail "this failed: $*"; }
# By way of env, as busybox prefers its own `ip` to the one in the chroot.
in_host() { chroot /host /usr/bin/env "$@"; }

# await SECONDS COMMAND...: try it every 0.2 seconds. On a busy host it may take a multiple,
# which the kernel's command line has.
await() {
	tries=$(($1 * 5 * ${multiplier:-1}))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.2
	done
}

load_modules() {
	while read -r module parameter; do
		try insmod "/modules/$module.ko" ${parameter:+"$parameter"}
	done </modules/order
}

port_is_there() { port=$(echo /dev/vport*p1) && [ -c "$port" ]; }

mount_all() {
	nine=trans=virtio,version=9p2000.L,msize=262144
	try mount -t 9p -o "$nine,cache=loose,ro" root /host
	try mount -t 9p -o "$nine,cache=none" share /share
	try mount -t proc proc /host/proc
	try mount -t sysfs sysfs /host/sys
	try mount -t devtmpfs dev /host/dev
	try mkdir -p /dev/pts /dev/shm
	try mount -t devpts devpts /host/dev/pts
	try mount -t tmpfs tmpfs /host/dev/shm
	try mount -t tmpfs tmpfs /host/run
	try mkdir /host/run/sennit-vm
	try mount -o bind /share /host/run/sennit-vm
	for link in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
		ln -sf "/proc/self/${link#*:}" "/dev/${link%:*}"
	done
	# The host's /tmp shows through, since the checkout may well live there.
	try mount -t tmpfs tmpfs /layer
	try mkdir -m 1777 /layer/up
	try mkdir /layer/work
	try mount -t overlay -o lowerdir=/host/tmp,upperdir=/layer/up,workdir=/layer/work \
		tmp /host/tmp
}

# rails RXE:INTERFACE:ADDRESS...: raise each interface, with an rxe device on it.
rails() {
	for rail; do
		rxe=${rail%%:*} address=${rail##*:} interface=${rail#*:}
		interface=${interface%:*}
		echo "link set $interface mtu 9000 up" >&4
		echo "addr add $address/24 dev $interface" >&4
		echo "link add $rxe type rxe netdev $interface" >&5
	done 4>/links 5>/rxes
	try in_host ip -batch - </links
	try in_host rdma -b - </rxes
}

net_dummy() {
	try in_host ip link add d0 type dummy
	try in_host ip link add d1 type dummy
	rails rxe0:d0:192.168.77.1 rxe1:d1:192.168.78.1
}

# Two hosts in one: what va0 sends to vb0's address must cross the wire, not take
# the short way through lo. So a rule per direction comes before the local table;
# "iif lo" means sent from here, so that what arrives is still delivered.
net_veth() {
	for i in 0 1; do
		try in_host ip link add va$i type veth peer name vb$i
		for end in va$i vb$i; do
			echo 1 >"/proc/sys/net/ipv4/conf/$end/accept_local"
			echo 0 >"/proc/sys/net/ipv4/conf/$end/rp_filter"
			echo 1 >"/proc/sys/net/ipv6/conf/$end/disable_ipv6"
		done
	done
	rails rxa0:va0:10.0.0.1 rxb0:vb0:10.0.0.2 rxa1:va1:10.0.1.1 rxb1:vb1:10.0.1.2
	try in_host ip -batch - <<-.
		rule add pref 100 lookup local
		rule add pref 10 iif lo from 10.0.0.1 to 10.0.0.2 lookup 1001
		rule add pref 10 iif lo from 10.0.0.2 to 10.0.0.1 lookup 1002
		rule add pref 10 iif lo from 10.0.1.1 to 10.0.1.2 lookup 1011
		rule add pref 10 iif lo from 10.0.1.2 to 10.0.1.1 lookup 1012
		route add 10.0.0.2 dev va0 src 10.0.0.1 table 1001
		route add 10.0.0.1 dev vb0 src 10.0.0.2 table 1002
		route add 10.0.1.2 dev va1 src 10.0.1.1 table 1011
		route add 10.0.1.1 dev vb1 src 10.0.1.2 table 1012
		rule del pref 0
	.
}

# Of two guests, this is number $host (0 or 1).
net_pair() {
	for names in eth0:ctl eth1:rail0 eth2:rail1; do
		try ip link set "${names%:*}" name "${names#*:}"
	done
	rails "rxe0:rail0:10.0.0.$((host + 1))" "rxe1:rail1:10.0.1.$((host + 1))"
}

# The control link comes up last, so an answer means that the peer is ready.
meet_peer() {
	try ip addr add "10.99.0.$((host + 1))/24" dev ctl
	try ip link set ctl up
	await 90 ping -c 1 -W 1 "$peer" >/dev/null 2>&1 ||
		fail "the other guest does not answer on the control link"
}

rails_are_good() {
	seen=$(in_host ibv_devinfo)
	want=$(wc -l </rxes)
	active=$(echo "$seen" | grep -c 'state:.*PORT_ACTIVE')
	large=$(echo "$seen" | grep -c 'active_mtu:.*4096')
	[ "$active $large" = "$want $want" ]
}

# End all that still runs in the chroot; true if there was something.
kill_job() {
	found=1
	for process in /proc/[0-9]*; do
		[ "$process/root" -ef /host ] && kill -9 "${process#/proc/}" && found=0
	done
	return $found
}

# A pipe, so that the command may reopen /dev/stdout, which the port forbids. What
# the command leaves running would hold the pipe's other end: it goes first. And a
# subshell, lest our own shell's remark on a signal ("Killed") mix with the output.
run_job() {
	mkfifo /output
	cat /output >&3 &
	(exec chroot /host /bin/sh /run/sennit-vm/job) </dev/null >/output 2>&1 3>&-
	status=$?
	while kill_job; do sleep 0.1; done
	wait
}

mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
load_modules
await 10 port_is_there || fail "no port for the output"
exec 3>"$port"
mount_all
read -r nonce net host peer </share/config
hostname "vm$host"
ip link set lo up
"net_$net"
await 5 rails_are_good ||
	fail "of $want rxe devices, $active are active and $large have an active_mtu of 4096"
[ "$net" != pair ] || meet_peer
tell start
run_job
tell exit "$status"
rest
