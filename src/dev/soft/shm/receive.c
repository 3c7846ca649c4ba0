/* SPDX-License-Identifier: MIT */
/* Packets come out of rings. */
#include <string.h>

#include "dev/soft/burst.h"
#include "dev/soft/shm/vm_read.h"
#include "dev/soft/shm/shm.h"

/* The most that is taken from a ring before the next one is served, and answers go
 * out. */
#define PACKETS 64
#define BYTES	(256u << 10)

static bool is_datagram(const struct snt__shm_record *record)
{
	return snt__wire_transport(record->header[0]) != SNT__WIRE_RC;
}

/* A peer refers to its memory only if this process said that it can read it, and never
 * for datagrams, which their sender does not keep until they are read. */
static bool is_possible_record(const struct snt__shm_link *link,
			       const struct snt__shm_record *record)
{
	return !record->piece_count ||
	       ((record->pieces->place || link->pulls) && !is_datagram(record));
}

static void take_record(struct snt__shm *shm, const struct snt__shm_link *link,
			struct snt__shm_record *record, uint64_t now)
{
	uint8_t message[SNT__SOFT_MAD_SIZE];
	struct snt__shm_vm_read pull;

	/* MADs are parsed, so that the peer must not be able to change them
	 * meanwhile. */
	if (is_datagram(record) && record->payload_length == sizeof(message)) {
		memcpy(message, record->payload, sizeof(message));
		atomic_signal_fence(memory_order_seq_cst);
		record->payload = message;
	}

	if (record->piece_count) {
		if (record->pieces->place)
			shm->stats.shared++;
		else
			shm->stats.pulled++;
		snt__shm_vm_read_init(&pull, link, record);
	}
	snt__soft_input_burst(shm->core, &link->path, record->header,
			      record->header_length, record->payload,
			      record->payload_length,
			      record->piece_count ? &pull.source : NULL, now);
}

/* Returns the number of packets; -1: the ring is broken. */
static int receive_from_link(struct snt__shm *shm, struct snt__shm_link *link,
			     uint64_t now)
{
	struct snt__shm_record record;
	uint32_t bytes = 0;
	int count = 0, got = 1;

	while (count < PACKETS && bytes < BYTES) {
		got = snt__shm_take(&link->consumer, &record);
		if (got <= 0)
			break;
		if (!is_possible_record(link, &record))
			return -1;
		take_record(shm, link, &record, now);
		bytes += record.payload_length;
		count++;
	}
	if (count && snt__shm_release(&link->consumer)) {
		shm->stats.bells++;
		snt__shm_ring_bell(link);
	}
	shm->stats.packets_in += count;
	return got < 0 ? -1 : count;
}

/* At most one ring full, so that a peer that goes on writing cannot keep this
 * thread. */
void snt__shm_drain(struct snt__shm *shm, struct snt__shm_link *link, uint64_t now)
{
	uint64_t end = link->consumer.head + SNT__SHM_RING_SIZE;

	while ((int64_t)(end - link->consumer.head) > 0 &&
	       receive_from_link(shm, link, now) > 0)
		;
}

unsigned snt__shm_receive(struct snt__shm *shm, uint64_t now)
{
	unsigned count = 0;

	for (struct snt__link *at = shm->ins.next, *next; at != &shm->ins; at = next) {
		struct snt__shm_link *link =
			snt__container(at, struct snt__shm_link, list);
		int got;

		next = at->next;
		if (!link->greeted || !snt__shm_ready(&link->consumer))
			continue;
		got = receive_from_link(shm, link, now);
		if (got < 0)
			snt__shm_break(shm, link);
		else
			count += got;
	}
	return count;
}
