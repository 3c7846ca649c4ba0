/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_SHARE_H
#define SNT_DEV_SOFT_SHM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snt__shm_link;

/*
 * Payload that stays where it is, in memory that the consumer can map (dev/shared_mem.h):
 * the consumer copies it from there to its destination, and there is no other copy.
 *
 * The producer offers a place when something is first sent from it, by its fd, over the
 * link's socket. The consumer maps it for reading and confirms that; until then, or if
 * it never does, payload goes through the ring like that of other memory. When a region
 * is deregistered its place is taken back, even if there are other regions in it:
 * packets sent from there before are taken first, and the next one offers the place
 * again.
 */

/* The most places of one link. Together they are not larger than the host's memory;
 * payload from further ones goes through the ring. */
#define SNT__SHM_PLACES_MAX 64

/* A place, as one end of a link knows it. Producer: an offered place, at its own
 * address. Consumer: a mapping. */
struct snt__shm_share {
	uint64_t id;	/* of the offer: a place may be offered again; 0: none */
	uint64_t place; /* producer */
	const uint8_t *bytes;
	size_t size;
	bool mapped; /* producer: the consumer has mapped it */
	/* It is taken back. Producer: the consumer has not been told yet. Consumer: it
	 * is unmapped after what was put before has been taken. */
	bool over;
};

struct snt__shm_shares {
	unsigned end;	  /* behind the last one */
	bool any_over;	  /* consumer */
	uint64_t last_id; /* producer */
	struct snt__shm_share share[SNT__SHM_PLACES_MAX];
};

/* Producer: finds the id and offset by which the consumer knows some bytes. False: the
 * consumer does not have them mapped; the place may have been offered by this call. */
bool snt__shm_share_find(struct snt__shm_link *link, const void *bytes, size_t length,
			 uint64_t *id_out, uint64_t *offset_out);
/* The consumer has mapped it. */
void snt__shm_share_mapped(struct snt__shm_link *link, uint64_t id);
/* Nothing more will be sent from there. */
void snt__shm_share_end(struct snt__shm_link *link, const uint8_t *bytes,
			size_t length);
/* The socket has room again: sends the words that did not fit. */
void snt__shm_share_resume(struct snt__shm_link *link);

/* Consumer: maps an offered place. Returns whether it is mapped. The caller keeps the
 * fd. */
bool snt__shm_share_map(struct snt__shm_link *link, uint64_t id, int fd);
/* The producer has taken it back: it is unmapped once everything that was put before is
 * taken. */
void snt__shm_share_over(struct snt__shm_link *link, uint64_t id);
void snt__shm_share_unmap_over(struct snt__shm_link *link);
void snt__shm_share_unmap_all(struct snt__shm_link *link);
/* That many bytes of a place; NULL if they are not within it. */
const uint8_t *snt__shm_share_bytes(const struct snt__shm_link *link, uint64_t id,
				    uint64_t offset, size_t length);

#endif
