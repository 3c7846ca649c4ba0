#!/bin/sh
# SPDX-License-Identifier: MIT
#
# One of two guests gets lost, and the other one notices. What the second guest says matters
# to those who look for a fault only. Its links lose everything, but are not taken down: rxe
# would hear of no connection afterwards (docs/internals/conformance.md, "A link that was down").
# usage: conn_lost_test.sh RUN CONN_LOST
set -u
run=$1
program=$2
script='
if [ "$VM_HOST" = 0 ]; then
	exec "$0" survive
fi
"$0" cut
tc qdisc del dev rail0 root
tc qdisc del dev rail1 root
"$0" stay
"$0" die
'
"$run" --guests 2 --mortal --deadline 170 -- sh -c "$script" "$program" |
	sed -e 's/^\[0\] //' -e 's/^\[1\] /# guest 1: /'
