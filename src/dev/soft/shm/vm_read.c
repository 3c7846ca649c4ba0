/* SPDX-License-Identifier: MIT */
#include "dev/soft/shm/vm_read.h"

#include <string.h>
#include <sys/uio.h>

/* Collects the pieces that hold `length` bytes from an offset on. Returns how many; 0:
 * one of them is in a place that is not mapped here. `foreign_out`: they are addresses
 * of the other process. Producers never mix the two. */
static unsigned pieces_from(const struct snt__shm_vm_read *pull, uint64_t offset,
			    uint64_t length, struct iovec *from, bool *foreign_out)
{
	const struct snt__shm_record *record = pull->record;
	unsigned count = 0;

	*foreign_out = !record->pieces->place;

	for (unsigned i = 0; length && i < record->piece_count; i++) {
		const struct snt__shm_piece *piece = &record->pieces[i];
		uint64_t part;

		if (offset >= piece->length) {
			offset -= piece->length;
			continue;
		}
		part = piece->length - offset < length ? piece->length - offset
						       : length;
		if (!piece->place != *foreign_out)
			return 0;
		from[count].iov_base =
			piece->place
				? (void *)snt__shm_share_bytes(pull->link, piece->place,
							       piece->addr + offset,
							       part)
				: (void *)(uintptr_t)(piece->addr + offset);
		if (!from[count].iov_base)
			return 0;
		from[count++].iov_len = part;
		length -= part;
		offset = 0;
	}
	return count;
}

/* Both lists have the same length. */
static void copy_pieces(struct iovec *from, const struct iovec *to, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint8_t *at = to[i].iov_base;
		size_t left = to[i].iov_len;

		while (left) {
			size_t part = from->iov_len < left ? from->iov_len : left;

			memcpy(at, from->iov_base, part);
			at += part;
			left -= part;
			from->iov_base = (uint8_t *)from->iov_base + part;
			from->iov_len -= part;
			from += !from->iov_len;
		}
	}
}

/* The data counts only if the peer is still there after the read: its process id may
 * belong to another process by now. */
static bool copy_from_peer(const struct snt__soft_source *source, uint64_t offset,
			   const struct iovec *to, unsigned count)
{
	const struct snt__shm_vm_read *pull =
		snt__container(source, const struct snt__shm_vm_read, source);
	struct iovec from[SNT__SOFT_SGE_MAX];
	uint64_t length = 0;
	unsigned pieces;
	bool foreign;

	for (unsigned i = 0; i < count; i++)
		length += to[i].iov_len;
	pieces = pieces_from(pull, offset, length, from, &foreign);
	if (!pieces)
		return !length;
	if (!foreign) {
		copy_pieces(from, to, count);
		return true;
	}
	return process_vm_readv(pull->link->pid, to, count, from, pieces, 0) ==
		       (ssize_t)length &&
	       snt__shm_lives(pull->link);
}

void snt__shm_vm_read_init(struct snt__shm_vm_read *pull,
			   const struct snt__shm_link *link,
			   const struct snt__shm_record *record)
{
	pull->source.copy = copy_from_peer;
	pull->link = link;
	pull->record = record;
}
