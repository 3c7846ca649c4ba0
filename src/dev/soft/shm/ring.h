/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_RING_H
#define SNT_DEV_SOFT_SHM_RING_H

#include <stdatomic.h>
#include <sys/uio.h>
#include "dev/soft/driver.h"

/*
 * A ring of packets in memory that two processes share: one puts, one takes.
 *
 * Neither trusts the other. Each keeps its own position to itself and only tells it; what
 * the other tells is checked before it is used, and what cannot be breaks the ring. The
 * header of a packet is copied before it is looked at, so that it cannot change behind
 * the judge's back. Payload is copied once, to where it goes; nothing depends on it.
 *
 * Records begin at multiples of a cache line, do not wrap, and are:
 *
 *	mark | header of the packet | payload, or a list of the pieces that it is in
 *
 * Positions count bytes, without end: tail - head are in use, at most the ring's size.
 */

#define SNT__SHM_RING_SIZE (2u << 20)

/* The most payload of a record. */
#define SNT__SHM_PAYLOAD_MAX (64u << 10)

#define SNT__SHM_LINE 64

/* As both processes see it. What one writes is a line of its own. */
struct snt__shm_area {
	_Alignas(SNT__SHM_LINE) _Atomic uint64_t tail; /* of who puts */
	_Alignas(SNT__SHM_LINE) _Atomic uint64_t head; /* of who takes */
	_Alignas(SNT__SHM_LINE) _Atomic uint32_t
		sleeps; /* who takes: ring for packets */
	_Alignas(SNT__SHM_LINE) _Atomic uint32_t waits; /* who puts: ring for room */
	_Alignas(4096) uint8_t bytes[SNT__SHM_RING_SIZE];
};

/* A piece of payload that is not in the ring. */
struct snt__shm_piece {
	uint64_t place; /* share.h; 0: in memory of the process who puts, see pull.h */
	uint64_t addr;	/* in the place, from its beginning */
	uint64_t length;
};

/*
 * Putting
 */

struct snt__shm_producer {
	struct snt__shm_area *area;
	uint64_t tail; /* behind what was put */
	uint64_t told; /* what the other knows of it */
	uint64_t head; /* what is known of the other's; it may be further */
	bool broken;   /* the other tells what cannot be */
};

/* How many bytes can be put in any case, whatever the records are. Looks at the other's
 * position only if there seem to be fewer than are wanted. */
uint32_t snt__shm_room(struct snt__shm_producer *producer, uint32_t wanted);

/* Puts a packet with its payload or, unless NULL, with where the pieces of its payload
 * are. There is room for it, and for a place at the end of the ring where it does not
 * fit. */
void snt__shm_put(struct snt__shm_producer *producer,
		  const struct snt__soft_packet *packet,
		  const struct snt__shm_piece *pieces);

/* The other can take what was put. Returns whether it sleeps and wants to be woken; it is
 * said once. */
bool snt__shm_tell(struct snt__shm_producer *producer);

/* Asks to be woken when there is more room, and looks whether there is now. */
void snt__shm_await_room(struct snt__shm_producer *producer);

/*
 * Taking
 */

struct snt__shm_consumer {
	struct snt__shm_area *area;
	uint64_t head; /* what is taken */
	uint64_t told; /* what the other knows of it */
	uint64_t tail; /* what is known of the other's */
};

struct snt__shm_record {
	uint8_t header[SNT__WIRE_HEADER_MAX];
	uint8_t header_length;
	uint8_t piece_count; /* if the payload is not here but there */
	uint32_t payload_length;
	const uint8_t *payload; /* in the ring */
	struct snt__shm_piece pieces[SNT__SOFT_SGE_MAX];
};

/* Takes the next packet, whose payload is valid until the next call. Returns 1; 0 if there
 * is none; -1 if the ring is broken. */
int snt__shm_take(struct snt__shm_consumer *consumer, struct snt__shm_record *record);

/* The other can use the room of what was taken. Returns whether it wants to be woken. */
bool snt__shm_release(struct snt__shm_consumer *consumer);

/* Is there, perhaps, something to take? */
static inline bool snt__shm_ready(const struct snt__shm_consumer *consumer)
{
	return consumer->head != consumer->tail ||
	       consumer->head != atomic_load_explicit(&consumer->area->tail,
						      memory_order_relaxed);
}

/* Asks to be woken, or no longer. Returns false if there is something to take. */
bool snt__shm_rest(struct snt__shm_consumer *consumer);
void snt__shm_rise(struct snt__shm_consumer *consumer);

#endif
