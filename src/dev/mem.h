/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_MEM_H
#define SNT_DEV_MEM_H

#include <stdbool.h>
#include <sennit/mem.h>

#include "dev/deferred_release.h"
#include "dev/shared_mem.h"

/* What the data path reads comes first, with the keys next to each other. */
struct snt_mem {
	uint64_t addr;
	size_t length;	     /* 0: partly released; can only be released again */
	struct snt_ctx *ctx; /* NULL: released */
	unsigned access;
	unsigned key_count; /* as many as the context has devices */
	uint32_t local_key[SNT_DEVICES_MAX];
	uint32_t remote_key[SNT_DEVICES_MAX];
	struct ibv_mr *mr[SNT_DEVICES_MAX];
	struct snt__deferred_release
		deferred; /* of a registration that a later device refused */
	bool adopted;	  /* the program deregisters the regions */
	struct snt__shared_mem *shared; /* its shared, if the library allocated it */
};

/* Do all `length` bytes from `offset` on lie in a range of `size` bytes? A sum that
 * wraps is less than its operands. */
static inline bool snt__range_holds(uint64_t size, uint64_t offset, uint64_t length)
{
	uint64_t end = offset + length;

	return end >= length && end <= size;
}

/* Is any needed right not granted? There are at most 8 that can be needed. */
static inline bool snt__access_lacks(uint8_t granted, uint8_t needed)
{
	return needed & (uint8_t)~granted;
}

static inline bool snt__mem_holds(const struct snt_mem *mem, uint64_t addr,
				  uint64_t length)
{
	return snt__range_holds(mem->length, addr - mem->addr, length);
}

static inline bool snt__token_holds(const struct snt_token *token, uint64_t addr,
				    uint64_t length)
{
	return snt__range_holds(token->length, addr - token->addr, length);
}

#endif
