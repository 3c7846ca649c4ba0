/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_RING_H
#define SNT_DEV_SOFT_SHM_RING_H

#include <stdatomic.h>
#include <sys/uio.h>
#include "dev/soft/driver.h"

/*
 * A ring of packets in memory that two processes share: one producer, one consumer.
 *
 * Neither trusts the other. Each keeps its own position in private memory and only
 * publishes it; the peer's position is checked before it is used, and an impossible one
 * breaks the ring. A packet's header is copied before it is parsed, so that it cannot
 * change after a check. Payload is copied once, to its destination; no decision depends
 * on it.
 *
 * Records begin at multiples of a cache line, do not wrap, and are:
 *
 *	mark | header of the packet | payload, or a list of the pieces that it is in
 *
 * Positions count bytes and never wrap: tail - head bytes are in use, at most the
 * ring's size.
 */

#define SNT__SHM_RING_SIZE (2u << 20)

/* The most payload of a record. */
#define SNT__SHM_PAYLOAD_MAX (64u << 10)

#define SNT__SHM_LINE 64

/* Shared by both processes. Each side's variables have cache lines of their own. */
struct snt__shm_area {
	_Alignas(SNT__SHM_LINE) _Atomic uint64_t tail;	 /* the producer's */
	_Alignas(SNT__SHM_LINE) _Atomic uint64_t head;	 /* the consumer's */
	_Alignas(SNT__SHM_LINE) _Atomic uint32_t sleeps; /* consumer: ring for data */
	_Alignas(SNT__SHM_LINE) _Atomic uint32_t waits;	 /* producer: ring for room */
	_Alignas(4096) uint8_t bytes[SNT__SHM_RING_SIZE];
};

/* A piece of payload that is not in the ring. */
struct snt__shm_piece {
	uint64_t place; /* share.h; 0: in the producer's own memory, see vm_read.h */
	uint64_t addr;	/* offset in the place, or address in the producer's memory */
	uint64_t length;
};

/*
 * Producer
 */

struct snt__shm_producer {
	struct snt__shm_area *area;
	uint64_t tail; /* the end of the records */
	uint64_t told; /* the tail that the consumer has been told */
	uint64_t head; /* the consumer's, when last read; it may be further by now */
	bool broken;   /* the consumer's position is impossible */
};

/* How many bytes can be put in any case, whatever the sizes of the records. Reads the
 * consumer's position only if there seems to be less room than wanted. */
uint32_t snt__shm_room(struct snt__shm_producer *producer, uint32_t wanted);

/* Puts a packet with its payload or, unless NULL, with the list of the pieces of its
 * payload. The caller has checked that there is room, including for the gap at the end
 * of the ring where a record does not fit. */
void snt__shm_put(struct snt__shm_producer *producer,
		  const struct snt__soft_packet *packet,
		  const struct snt__shm_piece *pieces);

/* Publishes what was put. Returns whether the consumer sleeps and must be woken; true
 * once per sleep. */
bool snt__shm_tell(struct snt__shm_producer *producer);

/* Asks to be woken when there is more room, and checks for it once more. */
void snt__shm_await_room(struct snt__shm_producer *producer);

/*
 * Consumer
 */

struct snt__shm_consumer {
	struct snt__shm_area *area;
	uint64_t head; /* the end of what was taken */
	uint64_t told; /* the head that the producer has been told */
	uint64_t tail; /* the producer's, when last read */
	bool rests;    /* asked to be woken */
};

struct snt__shm_record {
	uint8_t header[SNT__WIRE_HEADER_MAX];
	uint8_t header_length;
	uint8_t piece_count; /* 0: the payload is in the ring */
	uint32_t payload_length;
	const uint8_t *payload; /* in the ring */
	struct snt__shm_piece pieces[SNT__SOFT_SGE_MAX];
};

/* Takes the next packet, whose payload is valid until the next call. Returns 1; 0 if
 * there is none; -1 if the ring is broken. */
int snt__shm_take(struct snt__shm_consumer *consumer, struct snt__shm_record *record);

/* Gives the room of what was taken back. Returns whether the producer must be woken. */
bool snt__shm_release(struct snt__shm_consumer *consumer);

/* Is there, perhaps, something to take? */
static inline bool snt__shm_ready(const struct snt__shm_consumer *consumer)
{
	return consumer->head != consumer->tail ||
	       consumer->head != atomic_load_explicit(&consumer->area->tail,
						      memory_order_relaxed);
}

/* rest() asks to be woken, rise() no longer. False: there is something to take. */
bool snt__shm_rest(struct snt__shm_consumer *consumer);
void snt__shm_rise(struct snt__shm_consumer *consumer);

/* Has the producer rung, or is about to, since rest()? Until rise(). */
static inline bool snt__shm_is_rung(const struct snt__shm_consumer *consumer)
{
	return consumer->rests &&
	       !atomic_load_explicit(&consumer->area->sleeps, memory_order_relaxed);
}

#endif
