/* SPDX-License-Identifier: MIT */
/* Packets go into rings. */
#include "dev/soft/cm_wire.h"
#include "dev/soft/shm/shm.h"

/* The most that a record takes. */
#define RECORD_MAX (SNT__SHM_PAYLOAD_MAX + 2 * SNT__SHM_LINE)

/* The consumer's position is in a cache line that the consumer writes: it is read only
 * if there seems to be less room than this. */
#define ENOUGH (SNT__SHM_RING_SIZE / 4 * 3)

/* Published at the latest after that many bytes, so that the consumer copies while the
 * producer does. */
#define TELL_BYTES (16u << 10)

/* In ns, and in bytes. A consumer that makes less room than this in that time, after its ring
 * was full, has stopped, or is too slow. Packets to other peers must not wait for it: what does
 * not fit is lost, as on a wire. */
#define PATIENCE INT64_C(50000000)
#define PROGRESS (SNT__SHM_RING_SIZE / 4)

/* Below these a system call costs more than any copy, and a copy less than finding out
 * where to read. */
#define PULL_MIN  (16u << 10)
#define SHARE_MIN (4u << 10)

static struct snt__shm_link *shm_link_at(struct snt__link *at)
{
	return snt__container(at, struct snt__shm_link, list);
}

/* Records do not wrap, so that the room of one is lost at the end of the ring. */
static unsigned records_in(uint32_t room)
{
	return room / RECORD_MAX - (room >= RECORD_MAX);
}

/* Less room than a packet needs counts as none. */
static void begin_stall(struct snt__shm *shm, struct snt__shm_link *link, uint64_t now)
{
	link->stalled_at = now;
	link->stalled_head = link->producer.head;
	shm->stats.stalls++;
}

/* Another thread may have been here with a later time. */
static void judge_stall(struct snt__shm_link *link, uint64_t now)
{
	if (link->producer.head - link->stalled_head < PROGRESS) {
		link->blocked |= (int64_t)(now - link->stalled_at) >= PATIENCE;
		return;
	}
	link->stalled_at = 0;
	link->blocked = false;
}

/* How many packets fit into the ring in any case. */
static unsigned link_max(struct snt__shm *shm, struct snt__shm_link *link, unsigned max,
			 uint64_t now)
{
	unsigned records = records_in(snt__shm_room(&link->producer, ENOUGH));

	if (!records) {
		snt__shm_await_room(&link->producer);
		records = records_in(snt__shm_room(&link->producer, 0));
	}
	link->lacks_room = !records;
	if (link->stalled_at)
		judge_stall(link, now);
	if (link->lacks_room && !link->stalled_at)
		begin_stall(shm, link, now);
	return link->blocked ? max : records;
}

unsigned snt__shm_send_max(struct snt__shm *shm, unsigned max, uint64_t now)
{
	for (struct snt__link *at = shm->outs.next, *next; at != &shm->outs;
	     at = next) {
		unsigned records = link_max(shm, shm_link_at(at), max, now);

		next = at->next;
		if (shm_link_at(at)->producer.broken)
			snt__shm_break(shm, shm_link_at(at));
		else if (records < max)
			max = records;
	}
	return max;
}

uint64_t snt__shm_deadline(const struct snt__shm *shm)
{
	uint64_t deadline = SNT__SOFT_NEVER;

	for (struct snt__link *at = shm->outs.next; at != &shm->outs; at = at->next) {
		const struct snt__shm_link *link = shm_link_at(at);

		if (link->lacks_room && !link->blocked &&
		    link->stalled_at + PATIENCE < deadline)
			deadline = link->stalled_at + PATIENCE;
	}
	return deadline;
}

static void ring_consumer_bell(struct snt__shm *shm, struct snt__shm_link *link)
{
	if (!snt__shm_tell(&link->producer))
		return;
	shm->stats.bells++;
	snt__shm_ring_bell(link);
}

/* Can the consumer read all of the payload where it is? */
static bool find_shared(struct snt__shm_link *link,
			const struct snt__soft_packet *packet,
			struct snt__shm_piece *pieces)
{
	for (unsigned i = 0; i < packet->payload_count; i++) {
		const struct iovec *bytes = &packet->payload[i];

		pieces[i].length = bytes->iov_len;
		if (!snt__shm_share_find(link, bytes->iov_base, bytes->iov_len,
					 &pieces[i].place, &pieces[i].addr))
			return false;
	}
	return true;
}

static void name_all(const struct snt__soft_packet *packet,
		     struct snt__shm_piece *pieces)
{
	for (unsigned i = 0; i < packet->payload_count; i++)
		pieces[i] = (struct snt__shm_piece){
			.addr = (uintptr_t)packet->payload[i].iov_base,
			.length = packet->payload[i].iov_len,
		};
}

/* The pieces that the consumer is to read, or false. Only payload that waits for an
 * acknowledgment (RC) stays in place until it has been read. */
static bool by_reference(const struct snt__shm *shm, struct snt__shm_link *link,
			 const struct snt__soft_packet *packet,
			 struct snt__shm_piece *pieces)
{
	if (packet->payload_length < SHARE_MIN ||
	    snt__wire_transport(packet->header[0]) != SNT__WIRE_RC)
		return false;
	if (find_shared(link, packet, pieces))
		return true;
	if (!shm->pull || !link->pulls || packet->payload_length < PULL_MIN)
		return false;
	name_all(packet, pieces);
	return true;
}

static void put_packet(struct snt__shm *shm, struct snt__shm_link *link,
		       const struct snt__soft_packet *packet)
{
	struct snt__shm_producer *producer = &link->producer;
	struct snt__shm_piece pieces[SNT__SOFT_SGE_MAX];

	if (link->blocked && records_in(snt__shm_room(producer, 2 * RECORD_MAX)) == 0) {
		shm->stats.lost++;
		return;
	}
	snt__shm_put(producer, packet,
		     by_reference(shm, link, packet, pieces) ? pieces : NULL);
	shm->stats.packets_out++;
	if (producer->tail - producer->told >= TELL_BYTES)
		ring_consumer_bell(shm, link);
}

/* QP 1 is any seat's. Its messages go by the receiver's id, if they name one, in order
 * with the packets of QPs; a request to connect goes through the socket. */
static struct snt__shm_link *find_link(struct snt__shm *shm,
				       const struct snt__soft_packet *packet)
{
	uint32_t qpn = snt__wire_get32(packet->header + 4) & SNT__QPN_MASK, id;

	if (qpn != SNT__WIRE_GSI_QPN)
		return snt__shm_find(shm, packet->path->target, snt__seat_of_qpn(qpn));
	if (packet->payload_length != SNT__CM_MAD_SIZE)
		return NULL;
	id = snt__cm_receiver_id(packet->payload[0].iov_base);
	return id ? snt__shm_find(shm, packet->path->target, id >> SNT__SEAT_IN_ID)
		  : NULL;
}

unsigned snt__shm_send(struct snt__shm *shm, struct snt__soft_packet *packets,
		       unsigned count)
{
	const struct snt__soft_path *path = NULL;
	struct snt__shm_link *link = NULL;
	unsigned others = 0;

	if (snt__list_empty(&shm->outs))
		return count;
	for (unsigned i = 0; i < count; i++) {
		if (packets[i].path != path) {
			path = packets[i].path;
			link = find_link(shm, &packets[i]);
		}
		if (link)
			put_packet(shm, link, &packets[i]);
		else if (others++ != i)
			packets[others - 1] = packets[i];
	}
	for (struct snt__link *at = shm->outs.next; at != &shm->outs; at = at->next)
		ring_consumer_bell(shm, shm_link_at(at));
	return others;
}
