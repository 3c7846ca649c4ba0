/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "scripted_internal.h"

/*
 * A key names a table slot, the slot's generation and the device:
 *
 *	bit 31      rkey, not lkey
 *	bits 30-24  device
 *	bits 23-12  slot
 *	bits 11-0   generation, of the slot
 *
 * A slot is used again at once, so it is the generation that tells stale keys.
 */
#define KEY_REMOTE	    (1u << 31)
#define KEY_SLOT_SHIFT	    12
#define KEY_GENERATION_MASK 0xfffu

static uint32_t key_make(const struct scripted_device *device, unsigned slot)
{
	return device->ordinal << 24 | slot << KEY_SLOT_SHIFT |
	       (device->keys[slot].generation & KEY_GENERATION_MASK);
}

static struct scripted_mr *key_find(const struct scripted_device *device, uint32_t key)
{
	unsigned slot = key >> KEY_SLOT_SHIFT & (SCRIPTED_KEYS_MAX - 1);

	if (slot >= (unsigned)device->limits.mr_max || key_make(device, slot) != key)
		return NULL;
	return device->keys[slot].mr;
}

static int key_claim(struct scripted_device *device, struct scripted_mr *mr)
{
	int slot;

	for (slot = 0; slot < device->limits.mr_max; slot++) {
		if (device->keys[slot].mr)
			continue;
		device->keys[slot].mr = mr;
		device->keys[slot].generation++;
		mr->key_index = slot;
		mr->ibv.lkey = key_make(device, slot);
		mr->ibv.rkey = mr->ibv.lkey | KEY_REMOTE;
		return 0;
	}
	return -ENOMEM;
}

static bool access_valid(unsigned access)
{
	const unsigned needs_local_write =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	const unsigned known = needs_local_write | IBV_ACCESS_LOCAL_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_OPTIONAL_RANGE;

	if (access & ~known)
		return false;
	return !(access & needs_local_write) || (access & IBV_ACCESS_LOCAL_WRITE);
}

static int mr_create(struct ibv_pd *pd, void *bytes, uint64_t iova, size_t length,
		     unsigned access, struct scripted_mr **mr_out)
{
	struct scripted_device *device = scripted__device(pd->context);
	struct scripted_mr *mr;
	int err;

	if (!length || length > device->limits.mr_size_max || iova + length < iova ||
	    !access_valid(access))
		return -EINVAL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	err = key_claim(device, mr);
	if (err) {
		free(mr);
		return err;
	}
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = (void *)(uintptr_t)iova;
	mr->ibv.length = length;
	mr->access = access;
	mr->iova = iova;
	mr->bytes = bytes;
	scripted__pd(pd)->object.users++;
	scripted__object_add(device, &mr->object, SCRIPTED_MR);
	*mr_out = mr;
	return 0;
}

int scripted__reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		     struct ibv_mr **mr_out)
{
	struct scripted_mr *mr;
	int err;

	CONTROL_ENTER(scripted__device(pd->context));
	err = mr_create(pd, addr, (uintptr_t)addr, length, access, &mr);
	if (!err)
		*mr_out = &mr->ibv;
	return err;
}

int scripted__reg_dmabuf_mr(struct ibv_pd *pd, int fd, uint64_t offset, size_t length,
			    uint64_t iova, unsigned access, struct ibv_mr **mr_out)
{
	struct scripted_device *device = scripted__device(pd->context);
	size_t before = offset & (sysconf(_SC_PAGESIZE) - 1);
	struct scripted_mr *mr;
	char *mapping;
	int err;

	CONTROL_ENTER(device);
	if (device->limits.no_dmabuf)
		return -EOPNOTSUPP;
	mapping = mmap(NULL, before + length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		       offset - before);
	if (mapping == MAP_FAILED)
		return -errno;
	err = mr_create(pd, mapping + before, iova, length, access, &mr);
	if (err) {
		munmap(mapping, before + length);
		return err;
	}
	mr->mapping = mapping;
	mr->mapping_length = before + length;
	*mr_out = &mr->ibv;
	return 0;
}

void scripted__mr_free(struct scripted_mr *mr)
{
	if (mr->mapping)
		munmap(mr->mapping, mr->mapping_length);
	free(mr);
}

int scripted__dereg_mr(struct ibv_mr *ibv_mr)
{
	struct scripted_mr *mr = container_of(ibv_mr, struct scripted_mr, ibv);
	struct scripted_device *device = mr->object.device;

	CONTROL_ENTER(device);
	device->keys[mr->key_index].mr = NULL;
	scripted__pd(ibv_mr->pd)->object.users--;
	scripted__object_remove(&mr->object);
	scripted__mr_free(mr);
	return 0;
}

/*
 * Access
 */

static bool span_add(struct scripted_spans *spans, const struct scripted_mr *mr,
		     const struct ibv_pd *pd, uint64_t addr, uint64_t length,
		     unsigned access)
{
	if (!mr || mr->ibv.pd != pd || (access & ~mr->access))
		return false;
	if (addr < mr->iova || length > mr->ibv.length ||
	    addr - mr->iova > mr->ibv.length - length)
		return false;
	spans->span[spans->count].bytes = mr->bytes + (addr - mr->iova);
	spans->span[spans->count].length = length;
	spans->count++;
	spans->length += length;
	return true;
}

/* The memory of a local SGE list, or false if a key does not grant it. Empty SGEs
 * name no memory and their key is not looked at. */
bool scripted__local_spans(const struct ibv_pd *pd, const struct ibv_sge *sge,
			   int num_sge, unsigned access,
			   struct scripted_spans *spans_out)
{
	int i;

	spans_out->count = 0;
	spans_out->length = 0;
	for (i = 0; i < num_sge; i++) {
		struct scripted_mr *mr;

		if (!sge[i].length)
			continue;
		mr = key_find(scripted__device(pd->context), sge[i].lkey);
		if (!span_add(spans_out, mr, pd, sge[i].addr, sge[i].length, access))
			return false;
	}
	return true;
}

/* The memory that a peer's request names, seen from the QP that responds. No bytes
 * need no key (IBA C9-88). */
bool scripted__remote_span(struct scripted_qp *qp, uint32_t rkey, uint64_t addr,
			   uint64_t length, unsigned access,
			   struct scripted_spans *span_out)
{
	struct scripted_mr *mr = NULL;

	span_out->count = 0;
	span_out->length = 0;
	if (access & ~qp->attr.qp_access_flags)
		return false;
	if (!length)
		return true;
	if (rkey & KEY_REMOTE)
		mr = key_find(qp->object.device, rkey & ~KEY_REMOTE);
	return span_add(span_out, mr, qp->ibv.pd, addr, length, access);
}

/* memmove(), because a QP may be connected to its own memory. */
void scripted__copy(const struct scripted_spans *to, const struct scripted_spans *from)
{
	uint64_t left = to->length < from->length ? to->length : from->length;
	uint64_t to_offset = 0, from_offset = 0;
	unsigned t = 0, f = 0;

	while (left) {
		uint64_t part = to->span[t].length - to_offset;

		if (part > from->span[f].length - from_offset)
			part = from->span[f].length - from_offset;
		if (part > left)
			part = left;
		memmove(to->span[t].bytes + to_offset,
			from->span[f].bytes + from_offset, part);
		left -= part;
		to_offset += part;
		from_offset += part;
		if (to_offset == to->span[t].length) {
			to_offset = 0;
			t++;
		}
		if (from_offset == from->span[f].length) {
			from_offset = 0;
			f++;
		}
	}
}
