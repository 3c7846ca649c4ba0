# SPDX-License-Identifier: MIT
#
# To be read by scripts in a guest: rxe has port 4791 in the first network namespace, so
# soft devices live in another one, "blue", at the other end of two cables. rxr0 and rxr1
# are on vr0 and vr1, 10.5.{0,1}.1 and fd05:{0,1}::1; the soft ends are .2 and ::2.

# soft_net MTU [46]: of the interfaces; with IPv4, IPv6 or both
soft_net() {
	families=${2:-46}
	ip netns add blue
	ip -n blue link set lo up
	for i in 0 1; do
		ip link add vr$i type veth peer name vs$i netns blue
		ip link set vr$i mtu "$1" up
		ip -n blue link set vs$i mtu "$1" up
		case $families in
		*4*)
			ip addr add 10.5.$i.1/24 dev vr$i
			ip -n blue addr add 10.5.$i.2/24 dev vs$i
			;;
		esac
		case $families in
		*6*)
			ip addr add fd05:$i::1/64 dev vr$i nodad
			ip -n blue addr add fd05:$i::2/64 dev vs$i nodad
			;;
		esac
		rdma link add rxr$i type rxe netdev vr$i
	done
}

# spoil NETEM...: what rxe sends from now on
spoil_rxe() {
	for i in 0 1; do
		tc qdisc add dev vr$i root netem "$@"
	done
}

# The same of soft devices.
spoil_soft() {
	for i in 0 1; do
		ip netns exec blue tc qdisc add dev vs$i root netem "$@"
	done
}
