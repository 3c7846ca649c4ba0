/* SPDX-License-Identifier: MIT */
#include "dev/soft/shm/ring.h"

#include <string.h>

#include "util/assert.h"

enum kind {
	KIND_PACKET = 1,    /* payload follows */
	KIND_REFERENCE = 2, /* a list of pieces follows */
	KIND_SKIP = 3,	    /* nothing follows: pads to the end of the ring */
};

struct mark {
	uint32_t length; /* of payload; of a skip: all of it */
	uint8_t kind;
	uint8_t header_length;
	uint8_t piece_count;
	uint8_t spare;
};

/* Copied at once; only the copy is checked and used. */
struct front {
	struct mark mark;
	uint8_t header[SNT__WIRE_HEADER_MAX];
};

_Static_assert(sizeof(struct front) == 48, "the front of a record, as in record_max");
_Static_assert(!(SNT__SHM_RING_SIZE & (SNT__SHM_RING_SIZE - 1)), "a power of two");

static uint32_t whole_lines(uint32_t bytes)
{
	return (bytes + SNT__SHM_LINE - 1) & ~(SNT__SHM_LINE - 1u);
}

/* Bytes up to the end of the ring. */
static uint32_t bytes_to_ring_end(uint64_t position)
{
	return SNT__SHM_RING_SIZE - (position & (SNT__SHM_RING_SIZE - 1));
}

static uint8_t *ring_at(struct snt__shm_area *area, uint64_t position)
{
	return area->bytes + (position & (SNT__SHM_RING_SIZE - 1));
}

/*
 * Producer
 */

static void look_at_head(struct snt__shm_producer *producer)
{
	uint64_t head = atomic_load(&producer->area->head);

	if (producer->tail - head > SNT__SHM_RING_SIZE ||
	    head - producer->head > SNT__SHM_RING_SIZE)
		producer->broken = true;
	else
		producer->head = head;
}

static uint32_t ring_room(const struct snt__shm_producer *producer)
{
	return SNT__SHM_RING_SIZE - (uint32_t)(producer->tail - producer->head);
}

uint32_t snt__shm_room(struct snt__shm_producer *producer, uint32_t wanted)
{
	if (ring_room(producer) < wanted)
		look_at_head(producer);
	return ring_room(producer);
}

static void put_payload(uint8_t *to, const struct snt__soft_packet *packet)
{
	for (unsigned i = 0; i < packet->payload_count; i++) {
		memcpy(to, packet->payload[i].iov_base, packet->payload[i].iov_len);
		to += packet->payload[i].iov_len;
	}
}

static void skip_to_start(struct snt__shm_producer *producer)
{
	struct mark mark = { .length = bytes_to_ring_end(producer->tail),
			     .kind = KIND_SKIP };

	memcpy(ring_at(producer->area, producer->tail), &mark, sizeof(mark));
	producer->tail += mark.length;
}

void snt__shm_put(struct snt__shm_producer *producer,
		  const struct snt__soft_packet *packet,
		  const struct snt__shm_piece *pieces)
{
	uint32_t length = pieces ? packet->payload_count * sizeof(*pieces)
				 : packet->payload_length;
	uint32_t size = whole_lines(sizeof(struct front) + length);
	struct mark mark = {
		.length = packet->payload_length,
		.kind = pieces ? KIND_REFERENCE : KIND_PACKET,
		.header_length = packet->header_length,
		.piece_count = pieces ? packet->payload_count : 0,
	};
	uint8_t *to;

	if (bytes_to_ring_end(producer->tail) < size)
		skip_to_start(producer);
	snt__assert(size <= ring_room(producer));
	to = ring_at(producer->area, producer->tail);
	memcpy(to, &mark, sizeof(mark));
	memcpy(to + sizeof(mark), packet->header, sizeof(packet->header));
	to += sizeof(struct front);
	if (pieces)
		memcpy(to, pieces, length);
	else
		put_payload(to, packet);
	producer->tail += size;
}

/*
 * Both sides publish before they check. The producer publishes its tail, then checks
 * whether the consumer sleeps; the consumer publishes that it sleeps, then checks for
 * packets. Both are sequentially consistent, so that neither misses the other.
 */
bool snt__shm_tell(struct snt__shm_producer *producer)
{
	struct snt__shm_area *area = producer->area;

	if (producer->told == producer->tail)
		return false;
	producer->told = producer->tail;
	atomic_store(&area->tail, producer->tail);
	return atomic_load(&area->sleeps) && atomic_exchange(&area->sleeps, 0);
}

void snt__shm_await_room(struct snt__shm_producer *producer)
{
	atomic_store(&producer->area->waits, 1);
	look_at_head(producer);
}

/*
 * Consumer
 */

/* Returns how many bytes are in use; 0, too, if the producer's position is impossible:
 * then `broken`. */
static uint32_t look_at_tail(struct snt__shm_consumer *consumer, bool *broken)
{
	uint64_t used;

	if (consumer->tail == consumer->head)
		consumer->tail = atomic_load_explicit(&consumer->area->tail,
						      memory_order_acquire);
	used = consumer->tail - consumer->head;
	*broken = used > SNT__SHM_RING_SIZE || used % SNT__SHM_LINE;
	return *broken ? 0 : (uint32_t)used;
}

/* Copies the pieces, and checks that their lengths add up to the payload's. */
static bool take_pieces(const uint8_t *from, struct snt__shm_record *record)
{
	uint64_t length = 0;

	memcpy(record->pieces, from, record->piece_count * sizeof(*record->pieces));
	atomic_signal_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < record->piece_count; i++) {
		if (record->pieces[i].length > SNT__SHM_PAYLOAD_MAX)
			return false;
		length += record->pieces[i].length;
	}
	return length == record->payload_length;
}

/* The length of a record, from a copy of its mark; 0: it is not valid. */
static uint32_t record_size(const struct mark *mark, uint32_t available)
{
	uint32_t size;

	if (mark->kind != KIND_PACKET && mark->kind != KIND_REFERENCE)
		return 0;
	if (mark->length > SNT__SHM_PAYLOAD_MAX ||
	    mark->header_length > SNT__WIRE_HEADER_MAX ||
	    mark->piece_count > SNT__SOFT_SGE_MAX)
		return 0;
	size = mark->kind == KIND_PACKET
		       ? mark->length
		       : mark->piece_count * sizeof(struct snt__shm_piece);
	size = whole_lines(sizeof(struct front) + size);
	return size <= available ? size : 0;
}

int snt__shm_take(struct snt__shm_consumer *consumer, struct snt__shm_record *record)
{
	for (;;) {
		bool broken;
		uint32_t used = look_at_tail(consumer, &broken), size;
		const uint8_t *from = ring_at(consumer->area, consumer->head);
		struct front front;

		if (!used)
			return broken ? -1 : 0;
		memcpy(&front, from, sizeof(front));
		/* From here on only the copy is used, also by compilers. */
		atomic_signal_fence(memory_order_seq_cst);
		if (used > bytes_to_ring_end(consumer->head))
			used = bytes_to_ring_end(consumer->head);
		if (front.mark.kind == KIND_SKIP) {
			/* A skip never covers the whole ring, so that there is at most
			 * one in a row. */
			if (front.mark.length != bytes_to_ring_end(consumer->head) ||
			    front.mark.length > used ||
			    front.mark.length == SNT__SHM_RING_SIZE)
				return -1;
			consumer->head += front.mark.length;
			continue;
		}
		size = record_size(&front.mark, used);
		if (!size)
			return -1;
		memcpy(record->header, front.header, sizeof(record->header));
		record->header_length = front.mark.header_length;
		record->payload_length = front.mark.length;
		record->payload = from + sizeof(front);
		record->piece_count =
			front.mark.kind == KIND_REFERENCE ? front.mark.piece_count : 0;
		if (front.mark.kind == KIND_REFERENCE &&
		    (!record->piece_count || !take_pieces(record->payload, record)))
			return -1;
		consumer->head += size;
		return 1;
	}
}

bool snt__shm_release(struct snt__shm_consumer *consumer)
{
	struct snt__shm_area *area = consumer->area;

	if (consumer->told == consumer->head)
		return false;
	consumer->told = consumer->head;
	atomic_store(&area->head, consumer->head);
	return atomic_load(&area->waits) && atomic_exchange(&area->waits, 0);
}

bool snt__shm_rest(struct snt__shm_consumer *consumer)
{
	consumer->rests = true;
	atomic_store(&consumer->area->sleeps, 1);
	return consumer->head == consumer->tail &&
	       atomic_load(&consumer->area->tail) == consumer->head;
}

void snt__shm_rise(struct snt__shm_consumer *consumer)
{
	consumer->rests = false;
	atomic_store_explicit(&consumer->area->sleeps, 0, memory_order_relaxed);
}
