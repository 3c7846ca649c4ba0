/* SPDX-License-Identifier: MIT */
/* Regions are created and destroyed. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/soft/core.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

static bool access_valid(unsigned access)
{
	const unsigned needs_local_write =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	const unsigned known = needs_local_write | IBV_ACCESS_LOCAL_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND |
			       IBV_ACCESS_OPTIONAL_RANGE;

	if (access & ~known)
		return false;
	return !(access & needs_local_write) || (access & IBV_ACCESS_LOCAL_WRITE);
}

static uintptr_t page_size(void)
{
	return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static int populate_pages(uintptr_t first, uintptr_t end, bool write)
{
	uintptr_t page = page_size();

	first &= -page;
	return madvise((void *)first, end - first,
		       write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/*
 * Memory that does not exist, or is not writable, must be refused: as the kernel does
 * when it pins pages, and because an error could not be reported later. Faulting the
 * pages in finds out. A kernel that cannot (before 5.14) returns an error for good
 * memory, too.
 */
static int check_mapped(const void *addr, size_t length, unsigned access)
{
	uintptr_t first = (uintptr_t)addr;
	char probe;

	if (!populate_pages(first, first + length, access & IBV_ACCESS_LOCAL_WRITE))
		return 0;
	if (errno == EINVAL &&
	    populate_pages((uintptr_t)&probe, (uintptr_t)&probe + 1, false))
		return 0;
	return -EFAULT;
}

static bool is_same_key(uint32_t key, uint32_t other)
{
	return key >> SNT__SOFT_KEY_SHIFT == other >> SNT__SOFT_KEY_SHIFT;
}

/* Keys of a slot differ from one region to the next. */
static uint32_t new_key(struct snt__soft_device *device, uint32_t slot, uint32_t not_1,
			uint32_t not_2)
{
	uint32_t index_bits = device->memory.mask << SNT__SOFT_KEY_SHIFT;
	uint32_t index = slot << SNT__SOFT_KEY_SHIFT;
	uint32_t key;

	do {
		key = ((uint32_t)snt__soft_random(device) & ~index_bits) | index;
	} while (is_same_key(key, index) || is_same_key(key, not_1) ||
		 is_same_key(key, not_2));
	return key;
}

int snt__soft_region_enter(struct snt__soft_device *device,
			   const struct snt__soft_region *wanted, uint32_t *slot_out)
{
	struct snt__soft_memory *memory = &device->memory;
	struct snt__soft_region *region;
	uint32_t old_lkey, old_rkey, slot;

	if (device->dead)
		return -EIO;
	if (memory->count == memory->max)
		return -ENOMEM;
	slot = memory->first_free;
	region = &memory->regions[slot];
	memory->first_free = region->next_free;
	memory->count++;
	old_lkey = region->lkey;
	old_rkey = region->rkey;
	*region = *wanted;
	region->lkey = new_key(device, slot, old_lkey, old_rkey);
	region->rkey = new_key(device, slot, region->lkey, old_rkey);
	device->object_count++;
	*slot_out = slot;
	return 0;
}

static int enter_mr(struct snt__soft_device *device, struct snt__soft_mr *mr,
		    const struct snt__soft_region *wanted)
{
	int err = snt__soft_region_enter(device, wanted, &mr->slot);

	if (err)
		return err;
	mr->ibv.lkey = device->memory.regions[mr->slot].lkey;
	mr->ibv.rkey = device->memory.regions[mr->slot].rkey;
	snt__soft_pd(wanted->pd)->users++;
	return 0;
}

static int create_mr(const struct snt__soft_region *wanted,
		     struct snt__soft_mr **mr_out)
{
	struct snt__soft_device *device = snt__soft_device_of(wanted->pd->context);
	struct snt__soft_mr *mr;
	int err;

	if (!wanted->length || wanted->addr + wanted->length < wanted->addr ||
	    !access_valid(wanted->access))
		return -EINVAL;
	mr = snt__soft_alloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->ibv.context = wanted->pd->context;
	mr->ibv.pd = wanted->pd;
	mr->ibv.addr = (void *)(uintptr_t)wanted->addr;
	mr->ibv.length = wanted->length;
	snt__soft_lock(device);
	err = enter_mr(device, mr, wanted);
	snt__soft_unlock(device);
	if (err) {
		snt__soft_free(mr);
		return err;
	}
	*mr_out = mr;
	return 0;
}

int snt__soft_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned access, struct ibv_mr **mr_out)
{
	struct snt__soft_region wanted = {
		.kind = SNT__SOFT_REGION_MR,
		.pd = pd,
		.addr = iova,
		.length = length,
		.bytes = addr,
		.access = access,
	};
	struct snt__soft_mr *mr;
	int err;

	if (!length || (uintptr_t)addr + length < length || !access_valid(access))
		return -EINVAL;
	err = check_mapped(addr, length, access);
	if (!err)
		err = create_mr(&wanted, &mr);
	if (err)
		return err;
	mr->ibv.addr = addr;
	*mr_out = &mr->ibv;
	return 0;
}

int snt__soft_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		     struct ibv_mr **mr_out)
{
	return snt__soft_reg_mr_iova(pd, addr, length, (uintptr_t)addr, access, mr_out);
}

int snt__soft_reg_dmabuf_mr(struct ibv_pd *pd, int fd, uint64_t offset, size_t length,
			    uint64_t iova, unsigned access, struct ibv_mr **mr_out)
{
	int protection = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
	size_t before = offset & (page_size() - 1);
	struct snt__soft_mr *mr;
	uint8_t *mapping;
	int err;

	if (!length || before + length < length)
		return -EINVAL;
	mapping = mmap(NULL, before + length, protection, MAP_SHARED, fd,
		       (off_t)(offset - before));
	if (mapping == MAP_FAILED)
		return -errno;
	/* Access beyond the end of the file would be SIGBUS. */
	err = check_mapped(mapping + before, length, access);
	if (!err)
		err = create_mr(&(struct snt__soft_region){ .kind = SNT__SOFT_REGION_MR,
							    .pd = pd,
							    .addr = iova,
							    .length = length,
							    .bytes = mapping + before,
							    .access = access },
				&mr);
	if (err) {
		munmap(mapping, before + length);
		return err;
	}
	mr->mapping = mapping;
	mr->mapping_length = before + length;
	*mr_out = &mr->ibv;
	return 0;
}

/* The slot goes to the end of the queue of free ones. Its keys stay, so that the next
 * ones differ; without a PD they permit no access. */
void snt__soft_region_leave(struct snt__soft_device *device, uint32_t slot,
			    struct ibv_pd *pd)
{
	struct snt__soft_memory *memory = &device->memory;
	struct snt__soft_region *region = &memory->regions[slot];

	region->pd = NULL;
	region->kind = SNT__SOFT_REGION_FREE;
	if (memory->count-- == memory->max)
		memory->first_free = slot;
	else
		memory->regions[memory->last_free].next_free = slot;
	memory->last_free = slot;
	snt__soft_pd(pd)->users--;
	device->object_count--;
}

int snt__soft_dereg_mr(struct ibv_mr *ibv_mr)
{
	struct snt__soft_device *device = snt__soft_device_of(ibv_mr->context);
	struct snt__soft_mr *mr = snt__container(ibv_mr, struct snt__soft_mr, ibv);
	const struct snt__soft_region *region = &device->memory.regions[mr->slot];
	bool busy;

	snt__soft_lock(device);
	busy = region->windows;
	if (!busy && device->driver->forget)
		device->driver->forget(device->driver_arg, region->bytes,
				       ibv_mr->length);
	if (!busy)
		snt__soft_region_leave(device, mr->slot, ibv_mr->pd);
	snt__soft_unlock(device);
	if (busy)
		return -EBUSY;
	if (mr->mapping)
		munmap(mr->mapping, mr->mapping_length);
	snt__soft_free(mr);
	return 0;
}
