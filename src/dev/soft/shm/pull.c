/* SPDX-License-Identifier: MIT */
#include "dev/soft/shm/pull.h"

#include <sys/uio.h>

/* The pieces from an offset on, as many as bring that many bytes. Returns how many. */
static unsigned pieces_from(const struct snt__shm_record *record, uint64_t offset,
			    uint64_t length, struct iovec *from)
{
	unsigned count = 0;

	for (unsigned i = 0; length && i < record->piece_count; i++) {
		const struct snt__shm_piece *piece = &record->pieces[i];
		uint64_t part;

		if (offset >= piece->length) {
			offset -= piece->length;
			continue;
		}
		part = piece->length - offset < length ? piece->length - offset
						       : length;
		from[count].iov_base = (void *)(uintptr_t)(piece->addr + offset);
		from[count++].iov_len = part;
		length -= part;
		offset = 0;
	}
	return count;
}

/* What was read counts only if the other is still there: its process id may be that of
 * somebody else by now. */
static bool copy(const struct snt__soft_source *source, uint64_t offset,
		 const struct iovec *to, unsigned count)
{
	const struct snt__shm_pull *pull =
		snt__container(source, const struct snt__shm_pull, source);
	struct iovec from[SNT__SOFT_SGE_MAX];
	uint64_t length = 0;
	unsigned pieces;

	for (unsigned i = 0; i < count; i++)
		length += to[i].iov_len;
	pieces = pieces_from(pull->record, offset, length, from);
	return process_vm_readv(pull->link->pid, to, count, from, pieces, 0) ==
		       (ssize_t)length &&
	       snt__shm_lives(pull->link);
}

void snt__shm_pull_init(struct snt__shm_pull *pull, const struct snt__shm_link *link,
			const struct snt__shm_record *record)
{
	pull->source.copy = copy;
	pull->link = link;
	pull->record = record;
}
