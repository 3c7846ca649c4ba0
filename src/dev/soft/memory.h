/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_MEMORY_H
#define SNT_DEV_SOFT_MEMORY_H

#include <stdbool.h>
#include <infiniband/verbs.h>
#include <sys/uio.h>

/*
 * Memory regions and windows, and access to their bytes.
 *
 * A key has the index of a slot above its lowest byte and is random above that. The
 * lowest byte is random, too, but for windows, where the program chooses it. lkey and
 * rkey of a region differ, so that neither can stand in for the other. A slot that is
 * used again gets keys that differ in more than the lowest byte, and free slots wait in
 * a queue before that.
 *
 * No pointer into a region outlives a call: every packet looks its keys up again, since
 * the region may be gone.
 */

struct snt__soft_device;

#define SNT__SOFT_KEY_SHIFT 8 /* below the index */

enum snt__soft_region_kind {
	SNT__SOFT_REGION_FREE,
	SNT__SOFT_REGION_MR,
	SNT__SOFT_REGION_WINDOW,
};

/* One cache line. A slot that is free, and a window that is not bound, have no PD. */
struct snt__soft_region {
	struct ibv_pd *pd;
	uint64_t addr; /* the address of the first byte in requests */
	uint64_t length;
	uint8_t *bytes;
	uint32_t lkey; /* of a window: never given out */
	uint32_t rkey;
	uint32_t access;
	uint32_t next_free;
	uint32_t qpn;	  /* the only QP that may use a window; 0: any */
	uint32_t parent;  /* the slot of the MR that a window is bound to */
	uint32_t windows; /* bound to an MR */
	uint8_t kind;	  /* enum snt__soft_region_kind */
} __attribute__((aligned(64)));

struct snt__soft_memory {
	struct snt__soft_region *regions;
	uint32_t mask; /* of the index in a key */
	uint32_t count;
	uint32_t max;
	uint32_t first_free; /* the queue; meaningless if count is max */
	uint32_t last_free;
};

struct snt__soft_mr {
	struct ibv_mr ibv;
	uint32_t slot;
	void *mapping; /* of a dma-buf */
	size_t mapping_length;
};

/* Slots are given out in this order, a permutation of all below max. */
int snt__soft_memory_init(struct snt__soft_memory *memory, unsigned max,
			  const uint32_t *order);
void snt__soft_memory_finish(struct snt__soft_memory *memory);

/* @iova is the address of the first byte in verbs, local and from peers. */
int snt__soft_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned access, struct ibv_mr **mr_out);
int snt__soft_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		     struct ibv_mr **mr_out);
int snt__soft_reg_dmabuf_mr(struct ibv_pd *pd, int fd, uint64_t offset, size_t length,
			    uint64_t iova, unsigned access, struct ibv_mr **mr_out);
/* -EBUSY while a window is bound to it. */
int snt__soft_dereg_mr(struct ibv_mr *mr);

/* A slot for an MR or a window, with new keys. The rest of @wanted is copied. With the
 * lock. Returns 0; -EIO; -ENOMEM: all are in use. */
int snt__soft_region_enter(struct snt__soft_device *device,
			   const struct snt__soft_region *wanted, uint32_t *slot_out);
void snt__soft_region_leave(struct snt__soft_device *device, uint32_t slot,
			    struct ibv_pd *pd);

static inline struct snt__soft_region *snt__soft_region_of(
	const struct snt__soft_memory *memory, uint32_t key)
{
	return &memory->regions[key >> SNT__SOFT_KEY_SHIFT & memory->mask];
}

static inline uint8_t *snt__soft_region_bytes(const struct snt__soft_region *region,
					      const struct ibv_pd *pd, uint64_t addr,
					      uint64_t length, unsigned access)
{
	uint64_t offset = addr - region->addr;

	if (region->pd != pd || (access & ~region->access) || addr < region->addr ||
	    length > region->length || offset > region->length - length)
		return NULL;
	return region->bytes + offset;
}

/* The bytes that a local key permits access to, or NULL. @access:
 * IBV_ACCESS_LOCAL_WRITE, or 0 to read. */
static inline uint8_t *snt__soft_local(const struct snt__soft_memory *memory,
				       const struct ibv_pd *pd, uint32_t lkey,
				       uint64_t addr, uint64_t length, unsigned access)
{
	const struct snt__soft_region *region = snt__soft_region_of(memory, lkey);

	if (region->lkey != lkey)
		return NULL;
	return snt__soft_region_bytes(region, pd, addr, length, access);
}

/* The same for a key from the peer of a QP, with the access that it needs. */
static inline uint8_t *snt__soft_remote(const struct snt__soft_memory *memory,
					const struct ibv_qp *qp, uint32_t rkey,
					uint64_t addr, uint64_t length, unsigned access)
{
	const struct snt__soft_region *region = snt__soft_region_of(memory, rkey);

	if (region->rkey != rkey || (region->qpn && region->qpn != qp->qp_num))
		return NULL;
	return snt__soft_region_bytes(region, qp->pd, addr, length, access);
}

/* A place within a list of SGEs. */
struct snt__soft_cursor {
	uint32_t index;
	uint32_t offset;
};

/* The place of a byte of the message. */
struct snt__soft_cursor snt__soft_seek(const struct ibv_sge *sge, unsigned count,
				       uint64_t offset);

/**
 * snt__soft_span - the memory of the next bytes of an SGE list
 * @sge_count: at most SNT__SOFT_SGE_MAX, for which there is room in @pieces
 * @cursor: the first byte; advanced past the last on success
 *
 * Empty SGEs need no memory, so their keys are not checked.
 *
 * Returns: how many pieces, or -1 if a key does not permit it, or the list is too
 * short.
 */
int snt__soft_span(const struct snt__soft_memory *memory, const struct ibv_pd *pd,
		   const struct ibv_sge *sge, unsigned sge_count,
		   struct snt__soft_cursor *cursor, uint32_t length, unsigned access,
		   struct iovec *pieces);

/* Copies to the memory of snt__soft_span(), or copies nothing and returns false. */
bool snt__soft_scatter(const struct snt__soft_memory *memory, const struct ibv_pd *pd,
		       const struct ibv_sge *sge, unsigned sge_count,
		       struct snt__soft_cursor *cursor, const uint8_t *bytes,
		       uint32_t length);

#endif
