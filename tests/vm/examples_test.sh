#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the examples on real devices and looks at what they print.
# usage: examples_test.sh HELLO PLAIN-VERBS VIRTUAL-QP BY-ADDRESS STREAM-CALLBACKS
echo "1..10"
hello=$("$1" 2>&1)
status=$?
verbs=$("$2" 2>&1)
verbs_status=$?

ok() { # NUMBER STATUS WHAT
	[ "$2" = 0 ] && echo "ok $1 - $3" || echo "not ok $1 - $3"
}

ok 1 $status "hello succeeds"
echo "$hello" | grep -q '^rxe0 port 1, MTU 4096, GID 192.168.77.1 (RoCE v2, IPv4)'
ok 2 $? "hello shows the first device and why its GID was chosen"
SENNIT_DEVICES='^=rxe0' "$1" | grep -q '^rxe1 ' && [ "$(SENNIT_DEVICES='^=rxe0' "$1" | wc -l)" = 1 ]
ok 3 $? "SENNIT_DEVICES excludes a device"
ok 4 $verbs_status "plain-verbs succeeds"
[ "$(echo "$verbs" | grep -c 'every byte as sent')" = 2 ]
ok 5 $? "plain-verbs moves bytes over both devices"
# As in a container that was not given the device nodes, or lacks a provider.
mount -t tmpfs none /dev/infiniband && hidden=$("$1" 2>&1)
umount /dev/infiniband
echo "$hidden" | grep -q 'the kernel has rxe.*is /dev/infiniband missing'
ok 6 $? "devices without their nodes do not pass for none"
mount -t tmpfs none /etc/libibverbs.d && unprovided=$("$1" 2>&1)
umount /etc/libibverbs.d
echo "$unprovided" | grep -q 'the kernel has rxe.*ibverbs-providers'
ok 7 $? "nor do devices without their provider"
virtual=$("$3" 2>&1)
ok 8 $? "virtual-qp moves a message over lanes of both devices"
asked=$("$4" serve 0 | { read -r address port && "$4" ask "$address" "$port" 2>&1; })
ok 9 $? "by-address connects to a listener on all addresses"
streams=$("$5" 2>&1)
ok 10 $? "stream-callbacks serves many clients in one loop"
printf '%s\n' "$hidden" "$unprovided" "$virtual" "$asked" "$streams" "$hello" "$verbs" |
	sed 's/^/# /'
