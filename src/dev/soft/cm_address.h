/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CM_ADDRESS_H
#define SNT_DEV_SOFT_CM_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * Addresses as in GIDs: that of IPv4 is a mapped one (::ffff:a.b.c.d). The unspecified
 * ones stand for many: that of IPv6 for all, that of IPv4 for all of IPv4.
 */

bool snt__soft_cm_is_ipv4(const uint8_t gid[16]);
bool snt__soft_cm_is_unspecified(const uint8_t gid[16]);

/* Is the second one, which may stand for many as well, among those that the first one
 * stands for? */
bool snt__soft_cm_covers(const uint8_t many[16], const uint8_t one[16]);

/* How many bits two addresses have in common from the front; -1 for those of different
 * families, which cannot reach each other. */
int snt__soft_cm_likeness(const uint8_t a[16], const uint8_t b[16]);

/* 0, or -EAFNOSUPPORT with a sentence. */
int snt__soft_cm_read_address(const struct sockaddr *address, uint8_t gid_out[16],
			      uint16_t *port_out);
void snt__soft_cm_write_address(const uint8_t gid[16], uint16_t port,
				struct sockaddr_storage *address_out);

#endif
