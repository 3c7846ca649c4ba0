/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_SHARE_H
#define SNT_DEV_SOFT_SHM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snt__shm_link;

/*
 * Payload that stays where it is, in memory that who takes can map (dev/place.h): he
 * copies it from there to where it belongs, and nobody else copies anything.
 *
 * Who puts offers a place when first something is to be sent from it, by its fd, over
 * the link's socket. Who takes maps it for reading and says that he has it; until then, or
 * if he never does, payload goes through the ring as that of other memory does. When a
 * region is deregistered its place is taken back, though there may be others in it: what is
 * on its way from there is taken first, and the next that is sent offers it anew.
 */

/* Places that one link knows at most, and together they are not larger than the host's
 * memory; payload from further ones goes through the ring. */
#define SNT__SHM_PLACES_MAX 64

/* A place, as one end of a link knows it. Who puts: what was offered, at his own address.
 * Who takes: what he has mapped. */
struct snt__shm_share {
	uint64_t id;	/* of the offer: a place may be offered again; 0: none */
	uint64_t place; /* who puts */
	const uint8_t *bytes;
	size_t size;
	bool mapped; /* who puts: the other has it */
	/* It is taken back. Who puts: the other does not know yet. Who takes: what was put
	 * before comes first. */
	bool over;
};

struct snt__shm_shares {
	unsigned end;	  /* behind the last one */
	bool any_over;	  /* who takes */
	uint64_t last_id; /* who puts */
	struct snt__shm_share share[SNT__SHM_PLACES_MAX];
};

/* Who puts: where bytes are as the other knows them. False: he does not, so far; he may
 * have been told of it now. */
bool snt__shm_share_find(struct snt__shm_link *link, const void *bytes, size_t length,
			 uint64_t *id_out, uint64_t *offset_out);
/* The other has mapped it. */
void snt__shm_share_mapped(struct snt__shm_link *link, uint64_t id);
/* Nothing will be sent from there any more. */
void snt__shm_share_end(struct snt__shm_link *link, const uint8_t *bytes,
			size_t length);
/* There is room for words again: says what could not be said. */
void snt__shm_share_resume(struct snt__shm_link *link);

/* Who takes: maps what is offered. Returns whether he has it. The fd stays the caller's. */
bool snt__shm_share_map(struct snt__shm_link *link, uint64_t id, int fd);
/* It was taken back: it is unmapped once all is taken that was put before. */
void snt__shm_share_over(struct snt__shm_link *link, uint64_t id);
void snt__shm_share_unmap_over(struct snt__shm_link *link);
void snt__shm_share_unmap_all(struct snt__shm_link *link);
/* So many bytes of a place; NULL if it has none there. */
const uint8_t *snt__shm_share_bytes(const struct snt__shm_link *link, uint64_t id,
				    uint64_t offset, size_t length);

#endif
