/* SPDX-License-Identifier: MIT */
#include "vqp/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"
#include "util/lines.h"

#define SIZE_FIRST 16

int snt__route_init(struct snt__route *route)
{
	memset(route, 0, sizeof(*route));
	route->entry = snt__lines_alloc(SIZE_FIRST, sizeof(*route->entry));
	if (!route->entry)
		return snt__fail(ENOMEM, "no memory for a table of lanes");
	route->mask = SIZE_FIRST - 1;
	return 0;
}

void snt__route_finish(struct snt__route *route)
{
	free(route->entry);
}

static void insert_route(struct snt__route *route, struct snt__route_entry entry)
{
	uint32_t at = snt__route_hash(entry.key);

	while (route->entry[at & route->mask].key)
		at++;
	route->entry[at & route->mask] = entry;
}

static int grow_route(struct snt__route *route)
{
	struct snt__route_entry *old = route->entry;
	uint32_t old_size = route->mask + 1;

	route->entry = snt__lines_alloc(2 * (size_t)old_size, sizeof(*old));
	if (!route->entry) {
		route->entry = old;
		return snt__fail(ENOMEM, "no memory for a table of %u lanes", old_size);
	}
	route->mask = 2 * old_size - 1;
	for (uint32_t i = 0; i < old_size; i++)
		if (old[i].key)
			insert_route(route, old[i]);
	free(old);
	return 0;
}

int snt__route_add(struct snt__route *route, unsigned device, uint32_t qp_num,
		   struct snt__lane *lane)
{
	struct snt__route_entry entry = { snt__route_key(device, qp_num), lane };

	if (snt__route_find(route, device, qp_num))
		return snt__fail(EEXIST,
				 "QP number 0x%x of device %u is in use already",
				 qp_num, device);
	if (2 * (route->count + 1) > route->mask + 1) {
		int ret = grow_route(route);

		if (ret)
			return ret;
	}
	insert_route(route, entry);
	route->count++;
	return 0;
}

/* Closes the gap, so that searches never have to step over deleted entries. */
void snt__route_remove(struct snt__route *route, unsigned device, uint32_t qp_num)
{
	uint64_t key = snt__route_key(device, qp_num);
	uint32_t at = snt__route_hash(key);

	while (route->entry[at & route->mask].key != key) {
		if (!route->entry[at & route->mask].key)
			return;
		at++;
	}
	route->count--;
	for (uint32_t next = at + 1;; next++) {
		struct snt__route_entry *entry = &route->entry[next & route->mask];
		uint32_t home;

		if (!entry->key)
			break;
		home = snt__route_hash(entry->key);
		/* May it move to the gap without coming before its home? */
		if (((next - home) & route->mask) < ((next - at) & route->mask))
			continue;
		route->entry[at & route->mask] = *entry;
		at = next;
	}
	memset(&route->entry[at & route->mask], 0, sizeof(route->entry[0]));
}
