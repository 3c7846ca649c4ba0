#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Soft devices and the kernel's rxe talk to each other, in a guest, on one of the networks
# that are the columns of docs/internals/interop.md. Prints what worked: case, tab, "ok".
# usage: interop_test.sh NETWORK UDP_TRAFFIC UDP_VQP
set -eu
network=$1
traffic=$2
vqp=$3
. "$(dirname "$0")/soft_net.sh"

soft=10.5.0.2 soft_pair=10.5.0.2,10.5.1.2
# Timeouts are long, because rxe 6.1 must not have to send again without need: see "rxe
# that repeats itself" in docs/internals/interop.md.
sizes='' rounds=10 vqp_faults=''
case $network in
quick)
	soft_net 9000 4
	sizes="--quick --max 100001" rounds=2
	;;
"MTU 4096") soft_net 9000 4 ;;
"MTU 1024")
	soft_net 1500 4
	sizes="--mtu 1024"
	;;
IPv6)
	soft_net 9000 6
	soft=fd05:0::2 soft_pair=fd05:0::2,fd05:1::2 sizes=--ipv6
	;;
"bad network")
	soft_net 9000 4
	spoil_rxe delay 200us reorder 99% loss 1% duplicate 1%
	sizes="--quick --timeout 16 --faults 10,10,10" vqp_faults="--faults 10,10,10" rounds=5
	;;
"bad network, MTU 1024")
	soft_net 1500 4
	spoil_rxe delay 200us reorder 99% loss 1% duplicate 1%
	sizes="--mtu 1024 --quick --timeout 15 --faults 5,5,5" vqp_faults="--faults 5,5,5" rounds=5
	;;
*)
	echo "interop_test: no such network: $network" >&2
	exit 2
	;;
esac

tab=$(printf '\t')
failed=0
$traffic --a "soft=$soft@blue" --b verbs==rxr0 $sizes >/tmp/output || failed=1
sed -n "s/a asks b/soft asks rxe/;s/b asks a/rxe asks soft/
	s/^ok [0-9]* - \(.*\)/\1${tab}ok/p" /tmp/output
for scheme in spray dqplb; do
	$vqp --a "soft=$soft_pair@blue" --b verbs=rxr --scheme $scheme --rounds $rounds \
		--timeout 17 $vqp_faults >/tmp/output || failed=1
	sed -n "s/^ok .*/virtual QPs, $scheme${tab}ok/p" /tmp/output
done
exit $failed
