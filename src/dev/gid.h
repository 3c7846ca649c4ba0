/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_GID_H
#define SNT_DEV_GID_H

#include <infiniband/verbs.h>
#include <sennit/device.h>

/*
 * Judges one GID. A wrong one shows much later as "transport retry counter
 * exceeded", so the score prefers what routers forward: RoCE v2 to v1, then
 * IPv4 and global IPv6 to private and to link-local addresses. On InfiniBand
 * the table's order is the score.
 */
void snt__gid_judge(const struct ibv_gid_entry *entry, struct snt_gid_info *gid_out);

/* The best of a table: position of the highest score, the first among equals;
 * -1 if none can be used. */
int snt__gid_best(const struct snt_gid_info *gid, unsigned count);

#endif
