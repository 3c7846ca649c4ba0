/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_ADDRESS_H
#define SNT_DEV_SOFT_UDP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include "util/setting.h"

/*
 * A local address; each soft device has one. It is kept in the form of a GID: an IPv4
 * address as a mapped one (::ffff:a.b.c.d).
 */
struct snt__udp_address {
	uint8_t gid[16];
	uint32_t netdev; /* interface index */
	uint32_t scope;	 /* the same for a link-local address; else 0 */
	uint32_t ip_mtu; /* of the interface */
};

union snt__udp_sockaddr {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

bool snt__udp_is_ipv4(const uint8_t gid[16]);

/* Returns its size. */
socklen_t snt__udp_sockaddr(const uint8_t gid[16], uint32_t scope, uint16_t port,
			    union snt__udp_sockaddr *out);
/* Takes an IPv4, IPv6 or mapped address. */
void snt__udp_gid(const union snt__udp_sockaddr *from, uint8_t gid_out[16]);

/* The largest RDMA payload that fits, from 256 to 4096, as an enum ibv_mtu; 0: none
 * does. rxe allows for 4 bytes less of headers; a path has the smaller MTU of both
 * ends. */
unsigned snt__udp_mtu(uint32_t ip_mtu);

/**
 * snt__udp_addresses - the addresses that a list names
 * @list: addresses and names of interfaces, separated by commas
 *
 * An interface stands for all its addresses, but for link-local ones if it has others. An
 * address that several interfaces may have is written with one of them, fe80::1%eth0.
 *
 * Returns: how many; -EINVAL for what is neither an address nor an interface, or comes
 * twice; -EADDRNOTAVAIL for what this host does not have; -E2BIG; or an errno.
 */
int snt__udp_addresses(struct snt__value list, struct snt__udp_address *addresses_out,
		       unsigned max);

/* The source address that this host would use to reach `target`. Returns 0 or a
 * negative errno, without a sentence. */
int snt__udp_route(const struct sockaddr *target, uint8_t source_out[16]);

/* 127.0.0.1. Returns 0, or -EADDRNOTAVAIL if there is no loopback interface or it is
 * down. */
int snt__udp_loopback(struct snt__udp_address *address_out);
/* Loopback address number 0 (127.0.0.1), 1, 2, ...; those that end in .0 and .255 are
 * left out. */
#define SNT__UDP_LOOPBACK_MAX (16 * 254)
void snt__udp_loopback_gid(unsigned number, uint8_t gid_out[16]);

#endif
