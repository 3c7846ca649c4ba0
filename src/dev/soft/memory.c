/* SPDX-License-Identifier: MIT */
#include "dev/soft/memory.h"

#include <errno.h>
#include <string.h>

#include "dev/soft/core.h"

int snt__soft_memory_init(struct snt__soft_memory *memory, unsigned max,
			  const uint32_t *order)
{
	uint32_t slots = snt__soft_ring_size(max);

	memory->regions = snt__soft_alloc(slots, sizeof(*memory->regions));
	if (!memory->regions)
		return -ENOMEM;
	memory->mask = slots - 1;
	memory->max = max;
	for (unsigned i = 0; i + 1 < max; i++)
		memory->regions[order[i]].next_free = order[i + 1];
	memory->first_free = order[0];
	memory->last_free = order[max - 1];
	return 0;
}

void snt__soft_memory_finish(struct snt__soft_memory *memory)
{
	snt__soft_free(memory->regions);
}

struct snt__soft_cursor snt__soft_seek(const struct ibv_sge *sge, unsigned count,
				       uint64_t offset)
{
	struct snt__soft_cursor cursor = { 0 };

	while (cursor.index < count && offset >= sge[cursor.index].length)
		offset -= sge[cursor.index++].length;
	cursor.offset = (uint32_t)offset;
	return cursor;
}

int snt__soft_span(const struct snt__soft_memory *memory, const struct ibv_pd *pd,
		   const struct ibv_sge *sge, unsigned sge_count,
		   struct snt__soft_cursor *cursor, uint32_t length, unsigned access,
		   struct iovec *pieces)
{
	struct snt__soft_cursor at = *cursor;
	int count = 0;

	while (length) {
		const struct ibv_sge *from = &sge[at.index];
		uint32_t part;

		if (at.index >= sge_count)
			return -1;
		part = from->length - at.offset;
		if (part > length)
			part = length;
		if (part) {
			uint8_t *bytes =
				snt__soft_local(memory, pd, from->lkey,
						from->addr + at.offset, part, access);

			if (!bytes)
				return -1;
			pieces[count].iov_base = bytes;
			pieces[count].iov_len = part;
			count++;
			length -= part;
			at.offset += part;
		}
		if (at.offset == from->length) {
			at.index++;
			at.offset = 0;
		}
	}
	*cursor = at;
	return count;
}

bool snt__soft_scatter(const struct snt__soft_memory *memory, const struct ibv_pd *pd,
		       const struct ibv_sge *sge, unsigned sge_count,
		       struct snt__soft_cursor *cursor, const uint8_t *bytes,
		       uint32_t length)
{
	struct iovec pieces[SNT__SOFT_SGE_MAX];
	int i, count;

	count = snt__soft_span(memory, pd, sge, sge_count, cursor, length,
			       IBV_ACCESS_LOCAL_WRITE, pieces);
	for (i = 0; i < count; i++) {
		memcpy(pieces[i].iov_base, bytes, pieces[i].iov_len);
		bytes += pieces[i].iov_len;
	}
	return count >= 0;
}
