/* SPDX-License-Identifier: MIT */
/* Address handles, which the control table does not have. */
#include <errno.h>
#include <string.h>

#include "dev/soft/core.h"
#include "preload.h"
#include "real.h"

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = NULL;

	if (!snt__preload_is_soft(pd->context))
		return snt__real()->ibv_create_ah(pd, attr);
	return AS_POINTER(snt__soft_create_ah(pd, attr, &ah), ah);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (!snt__preload_is_soft(ah->context))
		return snt__real()->ibv_destroy_ah(ah);
	return -snt__soft_destroy_ah(ah);
}

/*
 * Replies to a sender
 */

/* A datagram begins with its IPv6 header, or with 20 unused bytes and its IPv4
 * header. */
static void read_header(const struct ibv_grh *grh, uint8_t source[16],
			uint8_t target[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *bytes = (const uint8_t *)grh;

	if (bytes[0] >> 4 == 6) {
		memcpy(source, grh->sgid.raw, 16);
		memcpy(target, grh->dgid.raw, 16);
		return;
	}
	memcpy(source, mapped, 12);
	memcpy(source + 12, bytes + 20 + 12, 4);
	memcpy(target, mapped, 12);
	memcpy(target + 12, bytes + 20 + 16, 4);
}

static int find_gid(struct ibv_context *context, const uint8_t gid[16])
{
	struct ibv_gid_entry entry;

	for (uint32_t i = 0; i < SNT__SOFT_GID_MAX; i++)
		if (!snt__preload_control()->query_gid(context, 1, i, &entry) &&
		    memcmp(entry.gid.raw, gid, 16) == 0)
			return (int)i;
	return -1;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	uint8_t ours[16];
	int index;

	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_init_ah_from_wc(context, port, wc, grh, attr);
	if (!(wc->wc_flags & IBV_WC_GRH))
		return AS_MINUS_ONE(-EINVAL);
	memset(attr, 0, sizeof(*attr));
	attr->is_global = 1;
	attr->port_num = port;
	read_header(grh, attr->grh.dgid.raw, ours);
	index = find_gid(context, ours);
	if (index < 0)
		return AS_MINUS_ONE(-EINVAL);
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.hop_limit = 64;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
				     struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (!snt__preload_is_soft(pd->context))
		return snt__real()->ibv_create_ah_from_wc(pd, wc, grh, port);
	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

/* Soft devices have no visible Ethernet layer. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t mac[6], uint16_t *vid)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_resolve_eth_l2_from_gid(context, attr, mac,
								vid);
	return EOPNOTSUPP;
}
