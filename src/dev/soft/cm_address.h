/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CM_ADDRESS_H
#define SNT_DEV_SOFT_CM_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * Addresses have the form of GIDs: an IPv4 one is mapped (::ffff:a.b.c.d). Unspecified
 * ones are wildcards: the IPv6 one covers all addresses, the IPv4 one all of IPv4.
 */

bool snt__soft_cm_is_ipv4(const uint8_t gid[16]);
bool snt__soft_cm_is_unspecified(const uint8_t gid[16]);

/* Does the first address, perhaps a wildcard, cover the second, which may be one,
 * too? */
bool snt__soft_cm_covers(const uint8_t many[16], const uint8_t one[16]);

/* The length of the common prefix in bits; -1 for addresses of different families,
 * which cannot reach each other. */
int snt__soft_cm_likeness(const uint8_t a[16], const uint8_t b[16]);

/* 0, or -EAFNOSUPPORT with an error text. */
int snt__soft_cm_read_address(const struct sockaddr *address, uint8_t gid_out[16],
			      uint16_t *port_out);
void snt__soft_cm_write_address(const uint8_t gid[16], uint16_t port,
				struct sockaddr_storage *address_out);

#endif
