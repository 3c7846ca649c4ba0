/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_ROUTE_H
#define SNT_VQP_ROUTE_H

#include <stdint.h>

#include "vqp/lane.h"

/*
 * A table from (device, QP number) to lane with open addressing, at most half full. It
 * grows when QPs are created and never on the data path.
 */

struct snt__route_entry {
	uint64_t key; /* 0: free */
	struct snt__lane *lane;
};

struct snt__route {
	struct snt__route_entry *entry;
	uint32_t mask;
	uint32_t count;
};

int snt__route_init(struct snt__route *route);
void snt__route_finish(struct snt__route *route);
int snt__route_add(struct snt__route *route, unsigned device, uint32_t qp_num,
		   struct snt__lane *lane);
void snt__route_remove(struct snt__route *route, unsigned device, uint32_t qp_num);

static inline uint64_t snt__route_key(unsigned device, uint32_t qp_num)
{
	return (uint64_t)(device + 1) << 32 | qp_num;
}

static inline uint32_t snt__route_hash(uint64_t key)
{
	return (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* NULL: not one of our QPs. */
static inline struct snt__lane *snt__route_find(const struct snt__route *route,
						unsigned device, uint32_t qp_num)
{
	uint64_t key = snt__route_key(device, qp_num);

	for (uint32_t at = snt__route_hash(key);; at++) {
		const struct snt__route_entry *entry = &route->entry[at & route->mask];

		if (__builtin_expect(entry->key == key, 1))
			return entry->lane;
		if (!entry->key)
			return 0;
	}
}

/* The lane of the CQE after one of this lane, if it is of the same QP; else NULL. Since
 * lanes take turns, their CQEs mostly do, too. */
static inline struct snt__lane *snt__route_next(const struct snt__route *route,
						const struct snt__lane *lane,
						unsigned device, uint32_t qp_num)
{
	struct snt__lane *next = lane->after;

	if (next->qp->qp_num == qp_num && next->device == device)
		return next;
	next = snt__route_find(route, device, qp_num);
	return next && next->owner == lane->owner ? next : NULL;
}

#endif
