/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_GID_H
#define SNT_DEV_GID_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sennit/device.h>
#include <string.h>

#define SNT__GID_TEXT INET6_ADDRSTRLEN

/* A GID in the usual notation of addresses; an IPv4 address as a mapped one. Returns
 * `text`. */
static inline const char *snt__gid_text(const uint8_t gid[16], char text[SNT__GID_TEXT])
{
	struct in6_addr address;

	memcpy(&address, gid, sizeof(address));
	return IN6_IS_ADDR_V4MAPPED(&address)
		       ? inet_ntop(AF_INET, gid + 12, text, SNT__GID_TEXT)
		       : inet_ntop(AF_INET6, gid, text, SNT__GID_TEXT);
}

/*
 * Rates one GID. A wrong one shows much later as "transport retry counter exceeded", so
 * the score prefers what routers forward: RoCE v2 to v1, then IPv4 and global IPv6 to
 * private and to link-local addresses. On InfiniBand the table's order is the score.
 */
void snt__gid_judge(const struct ibv_gid_entry *entry, struct snt_gid_info *gid_out);

/* The best of a table: position of the highest score, the first among equals; -1 if
 * none is usable. */
int snt__gid_best(const struct snt_gid_info *gid, unsigned count);

#endif
