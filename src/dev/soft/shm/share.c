/* SPDX-License-Identifier: MIT */
#include "dev/soft/shm/share.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/shared_mem.h"
#include "dev/soft/shm/link.h"

/* Larger places are not faulted in at once: the whole device would wait for that. */
#define POPULATE_MAX (4u << 20)

static struct snt__shm_share *find_share_by_id(struct snt__shm_shares *shares,
					       uint64_t id)
{
	for (unsigned i = 0; i < shares->end; i++)
		if (shares->share[i].id == id)
			return &shares->share[i];
	return NULL;
}

static struct snt__shm_share *find_share(struct snt__shm_shares *shares, uint64_t place)
{
	for (unsigned i = 0; i < shares->end; i++)
		if (shares->share[i].place == place)
			return &shares->share[i];
	return NULL;
}

/* A free entry, or NULL. */
static struct snt__shm_share *add_share(struct snt__shm_shares *shares)
{
	struct snt__shm_share *share = find_share_by_id(shares, 0);

	if (share)
		return share;
	return shares->end < SNT__SHM_PLACES_MAX ? &shares->share[shares->end++] : NULL;
}

static void drop_share(struct snt__shm_shares *shares, struct snt__shm_share *share)
{
	*share = (struct snt__shm_share){ 0 };
	while (shares->end && !shares->share[shares->end - 1].id)
		shares->end--;
}

/*
 * Producer
 */

/* A socket that was full is tried again only after epoll has reported room. */
static bool send_word(struct snt__shm_link *link, enum snt__shm_word word, uint64_t id,
		      int fd)
{
	if (link->full)
		return false;
	if (snt__shm_say(link, word, id, fd))
		return true;
	link->full = errno == EAGAIN && snt__shm_await(link, EPOLLIN | EPOLLOUT);
	return false;
}

static void offer_place(struct snt__shm_link *link, const struct snt__shared_mem *place)
{
	struct snt__shm_share *share = link->full ? NULL : add_share(&link->shares);
	int fd;

	if (!share)
		return;
	fd = snt__shared_mem_fd(place->id);
	if (fd >= 0 &&
	    send_word(link, SNT__SHM_WORD_OFFER, link->shares.last_id + 1, fd))
		*share = (struct snt__shm_share){ .id = ++link->shares.last_id,
						  .place = place->id,
						  .bytes = place->bytes,
						  .size = place->size };
	else
		drop_share(&link->shares, share);
	if (fd >= 0)
		close(fd);
}

bool snt__shm_share_find(struct snt__shm_link *link, const void *bytes, size_t length,
			 uint64_t *id_out, uint64_t *offset_out)
{
	struct snt__shm_share *share;
	struct snt__shared_mem place;

	/* An address may belong to another place by now; ids are never reused. */
	if (!snt__shared_mem_find(bytes, length, &place))
		return false;
	share = find_share(&link->shares, place.id);
	if (!share)
		offer_place(link, &place);
	if (!share || !share->mapped || share->over)
		return false;
	*id_out = share->id;
	*offset_out = (const uint8_t *)bytes - place.bytes;
	return true;
}

void snt__shm_share_mapped(struct snt__shm_link *link, uint64_t id)
{
	struct snt__shm_share *share = id ? find_share_by_id(&link->shares, id) : NULL;

	if (share)
		share->mapped = true;
}

static void tell_of_ends(struct snt__shm_link *link)
{
	for (unsigned i = link->shares.end; i-- > 0;) {
		struct snt__shm_share *share = &link->shares.share[i];

		if (share->over && send_word(link, SNT__SHM_WORD_END, share->id, -1))
			drop_share(&link->shares, share);
	}
}

void snt__shm_share_end(struct snt__shm_link *link, const uint8_t *bytes, size_t length)
{
	for (unsigned i = 0; i < link->shares.end; i++) {
		struct snt__shm_share *share = &link->shares.share[i];

		share->over |=
			share->id &&
			(uintptr_t)bytes < (uintptr_t)share->bytes + share->size &&
			(uintptr_t)share->bytes < (uintptr_t)bytes + length;
	}
	tell_of_ends(link);
}

void snt__shm_share_resume(struct snt__shm_link *link)
{
	link->full = false;
	tell_of_ends(link);
	if (!link->full)
		snt__shm_await(link, EPOLLIN);
}

/*
 * Consumer
 */

/* Files can be larger than all memory, and would take our address space. */
static bool fits_address_space(const struct snt__shm_shares *shares, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t pages = (size_t)sysconf(_SC_PHYS_PAGES);

	for (unsigned i = 0; i < shares->end; i++) {
		if (shares->share[i].size / page >= pages)
			return false;
		pages -= shares->share[i].size / page;
	}
	return size / page <= pages;
}

bool snt__shm_share_map(struct snt__shm_link *link, uint64_t id, int fd)
{
	size_t size = snt__shared_mem_size(fd);
	struct snt__shm_share *share;
	void *bytes;

	if (!id || !size || find_share_by_id(&link->shares, id) ||
	    !fits_address_space(&link->shares, size))
		return false;
	share = add_share(&link->shares);
	if (!share)
		return false;
	bytes = mmap(NULL, size, PROT_READ,
		     MAP_SHARED | (size <= POPULATE_MAX ? MAP_POPULATE : 0), fd, 0);
	if (bytes == MAP_FAILED) {
		drop_share(&link->shares, share);
		return false;
	}
	madvise(bytes, size, MADV_DONTFORK);
	*share = (struct snt__shm_share){ .id = id, .bytes = bytes, .size = size };
	return true;
}

static void unmap_share(struct snt__shm_link *link, struct snt__shm_share *share)
{
	munmap((void *)share->bytes, share->size);
	drop_share(&link->shares, share);
}

void snt__shm_share_over(struct snt__shm_link *link, uint64_t id)
{
	struct snt__shm_share *share = id ? find_share_by_id(&link->shares, id) : NULL;

	if (share)
		share->over = link->shares.any_over = true;
}

void snt__shm_share_unmap_over(struct snt__shm_link *link)
{
	for (unsigned i = link->shares.end; i-- > 0;)
		if (link->shares.share[i].over)
			unmap_share(link, &link->shares.share[i]);
	link->shares.any_over = false;
}

void snt__shm_share_unmap_all(struct snt__shm_link *link)
{
	while (link->shares.end)
		unmap_share(link, &link->shares.share[link->shares.end - 1]);
}

const uint8_t *snt__shm_share_bytes(const struct snt__shm_link *link, uint64_t id,
				    uint64_t offset, size_t length)
{
	const struct snt__shm_shares *shares = &link->shares;

	for (unsigned i = 0; i < shares->end; i++) {
		const struct snt__shm_share *share = &shares->share[i];

		if (share->id == id)
			return offset <= share->size && length <= share->size - offset
				       ? share->bytes + offset
				       : NULL;
	}
	return NULL;
}
