/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/send.h"

#include <endian.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include "dev/soft/alloc.h"
#include "dev/soft/crc.h"

/* Most segments that the kernel cuts a message into. */
#define SEGMENTS_MAX 64

#define BTH_SIZE 12

/* Batches that a thread sends for other threads before it leaves the rest to the
 * device's thread. */
#define BATCHES_FOR_OTHERS 16

/*
 * Making messages
 */

static size_t packet_size(const struct snt__soft_packet *packet)
{
	return packet->header_length + packet->payload_length +
	       snt__wire_pad(packet->payload_length) + SNT__ICRC_SIZE;
}

/* The source address and both ports are always the same. */
static bool same_way(const struct snt__soft_path *a, const struct snt__soft_path *b)
{
	return a == b ||
	       (a->traffic_class == b->traffic_class && a->hop_limit == b->hop_limit &&
		!memcmp(a->target, b->target, sizeof(a->target)));
}

/* Packets that are one message, if the kernel can cut it. */
struct run {
	unsigned length;
	size_t bytes;
	bool ended; /* nothing can follow, not even a shorter packet */
};

static struct run find_run(const struct snt__soft_packet *packets, unsigned count)
{
	size_t size = packet_size(packets);
	struct run run = { .length = 1, .bytes = size };

	while (!run.ended && run.length < count) {
		const struct snt__soft_packet *packet = &packets[run.length];
		size_t next = packet_size(packet);

		if (next > size || run.length == SEGMENTS_MAX ||
		    run.bytes + next > SNT__UDP_MESSAGE_MAX ||
		    !same_way(packet->path, packets->path))
			break;
		run.bytes += next;
		run.length++;
		run.ended = next < size;
	}
	return run;
}

/* An acknowledgment comes before the requests of its QP, and it is shorter. Placed
 * after them it needs no message of its own; their order does not matter. */
static bool may_follow(const struct snt__soft_packet *packet, const struct run *run,
		       const struct snt__soft_packet *packets)
{
	return packet->header[0] == SNT__WIRE_ACKNOWLEDGE && !run->ended &&
	       run->length < SEGMENTS_MAX &&
	       run->bytes + packet_size(packet) <= SNT__UDP_MESSAGE_MAX &&
	       packet_size(packet) < packet_size(packets) &&
	       same_way(packet->path, packets->path);
}

static void set_target(struct snt__udp_sender *sender, const uint8_t target[16])
{
	if (sender->flow.size && !memcmp(sender->target, target, 16))
		return;
	memcpy(sender->target, target, 16);
	snt__icrc_flow_init(&sender->flow, sender->address->gid, target, SNT__WIRE_PORT,
			    SNT__WIRE_PORT);
}

/* Copies the payload. Returns the CRC of the copy and of all before it. */
static uint32_t copy_payload(const struct snt__soft_packet *packet, uint8_t *to,
			     uint32_t crc)
{
	for (unsigned i = 0; i < packet->payload_count; i++) {
		const struct iovec *piece = &packet->payload[i];

		crc = snt__crc32_copy(crc, to, piece->iov_base, piece->iov_len);
		to += piece->iov_len;
	}
	return crc;
}

static void stage_packet(struct snt__udp_sender *sender,
			 const struct snt__soft_packet *packet, uint16_t identification)
{
	struct snt__icrc_ipv4 ipv4 = { identification, SNT__ICRC_DONT_FRAGMENT };
	uint8_t *bytes = sender->bytes + sender->used;
	size_t size = packet_size(packet), pad = snt__wire_pad(packet->payload_length);
	uint8_t *end = bytes + size - SNT__ICRC_SIZE;
	uint32_t crc = snt__icrc_begin(&sender->flow, ipv4, packet->header, size);

	crc = snt__crc32_copy(crc, bytes, packet->header, packet->header_length);
	crc = copy_payload(packet, bytes + packet->header_length, crc);
	if (pad) {
		memset(end - pad, 0, pad);
		crc = snt__crc32(crc, end - pad, pad);
	}
	crc = htole32(crc);
	memcpy(end, &crc, sizeof(crc));
	sender->used += size;
}

static void add_control(struct msghdr *header, int level, int type, const void *value,
			size_t size)
{
	struct cmsghdr *control =
		(void *)((uint8_t *)header->msg_control + header->msg_controllen);

	control->cmsg_level = level;
	control->cmsg_type = type;
	control->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(control), value, size);
	header->msg_controllen += CMSG_SPACE(size);
}

/* Fills in the header of a message whose other fields are set. Defaults need no control
 * message. */
static void make_header(struct snt__udp_sender *sender, unsigned index)
{
	struct snt__udp_message *message = &sender->messages[index];
	struct msghdr *header = &sender->headers[index].msg_hdr;
	bool ipv4 = message->target.any.sa_family == AF_INET;
	int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
	int hop_limit = message->hop_limit, traffic_class = message->traffic_class;

	header->msg_name = &message->target;
	header->msg_namelen =
		ipv4 ? sizeof(message->target.v4) : sizeof(message->target.v6);
	header->msg_iov = &message->bytes;
	header->msg_iovlen = 1;
	header->msg_control = message->control;
	header->msg_controllen = 0;
	if (message->packets > 1)
		add_control(header, IPPROTO_UDP, UDP_SEGMENT, &message->packet_size,
			    sizeof(message->packet_size));
	if (hop_limit != SNT__UDP_HOP_LIMIT)
		add_control(header, level, ipv4 ? IP_TTL : IPV6_HOPLIMIT, &hop_limit,
			    sizeof(hop_limit));
	if (traffic_class)
		add_control(header, level, ipv4 ? IP_TOS : IPV6_TCLASS, &traffic_class,
			    sizeof(traffic_class));
}

/* Adds a message of `count` packets, and of `last`, which is stored elsewhere. */
static void add_message(struct snt__udp_sender *sender,
			const struct snt__soft_packet *packets, unsigned count,
			const struct snt__soft_packet *last)
{
	struct snt__udp_message *message = &sender->messages[sender->count];
	const struct snt__soft_path *path = packets->path;
	uint8_t *begin = sender->bytes + sender->used;

	set_target(sender, path->target);
	for (unsigned i = 0; i < count; i++)
		stage_packet(sender, &packets[i], i);
	if (last)
		stage_packet(sender, last, count);
	message->bytes.iov_base = begin;
	message->bytes.iov_len = sender->bytes + sender->used - begin;
	snt__udp_sockaddr(path->target, sender->address->scope, SNT__WIRE_PORT,
			  &message->target);
	message->packets = count + !!last;
	message->packet_size = packet_size(packets);
	message->hop_limit = path->hop_limit;
	message->traffic_class = path->traffic_class;
	make_header(sender, sender->count++);
}

/* Returns how many packets were used. */
static unsigned add_run(struct snt__udp_sender *sender,
			const struct snt__soft_packet *packets, unsigned count)
{
	struct run run = find_run(packets, count);

	if (run.length == 1 && count > 1) {
		struct run next = find_run(packets + 1, count - 1);

		if (may_follow(packets, &next, packets + 1)) {
			add_message(sender, packets + 1, next.length, packets);
			return 1 + next.length;
		}
	}
	add_message(sender, packets, run.length, NULL);
	return run.length;
}

/*
 * Sending
 */

/* Makes packet `number` of a message a message of its own: the first of a send, so that
 * its identification changes. */
static void cut_packet(struct snt__udp_sender *sender,
		       const struct snt__udp_message *whole, unsigned number,
		       struct snt__udp_message *part)
{
	struct snt__icrc_ipv4 ipv4 = { 0, SNT__ICRC_DONT_FRAGMENT };
	size_t begin = (size_t)number * whole->packet_size;
	uint8_t *bytes = (uint8_t *)whole->bytes.iov_base + begin;
	size_t size = whole->bytes.iov_len - begin;
	struct iovec payload = { .iov_base = bytes + BTH_SIZE };

	if (size > whole->packet_size)
		size = whole->packet_size;
	payload.iov_len = size - BTH_SIZE - SNT__ICRC_SIZE;
	snt__icrc_seal(&sender->flow, ipv4, bytes, BTH_SIZE, &payload, 1,
		       bytes + size - SNT__ICRC_SIZE);
	*part = *whole;
	part->bytes = (struct iovec){ bytes, size };
	part->packets = 1;
	part->packet_size = size;
}

/*
 * The kernel supports segmentation, but not on the route of this message. It is cut
 * here, and so are all later ones. There is room, since a batch has at most as many
 * messages as packets.
 */
static void cut_message(struct snt__udp_sender *sender)
{
	struct snt__udp_message *first = &sender->messages[sender->next];
	const struct snt__udp_message whole = *first;
	unsigned more = whole.packets - 1;
	uint8_t target[16];

	sender->socket->gso = false;
	sender->cut = true;
	snt__udp_gid(&whole.target, target);
	set_target(sender, target);
	memmove(first + whole.packets, first + 1,
		(sender->count - sender->next - 1) * sizeof(*first));
	for (unsigned i = 0; i < whole.packets; i++)
		cut_packet(sender, &whole, i, first + i);
	sender->count += more;
	for (unsigned i = sender->next; i < sender->count; i++)
		make_header(sender, i);
}

/* Handles a failure to send the next message. False: it has to wait. */
static bool handle_error(struct snt__udp_sender *sender, int error)
{
	if (error == EINTR)
		return true;
	if (error == EAGAIN) {
		sender->stats.stalls++;
		return false;
	}
	if (sender->messages[sender->next].packets > 1 &&
	    (error == EIO || error == EINVAL || error == EMSGSIZE)) {
		cut_message(sender);
		return true;
	}
	/* The packets that were cut cannot be sent either: segmentation was not the
	 * reason. */
	sender->socket->gso |= sender->cut;
	sender->cut = false;
	/* Lost, as on a wire: the program learns of it by retries and timeouts. */
	sender->stats.failed++;
	sender->next++;
	return true;
}

/* With the gate open, unless `gate` is NULL. */
static int send_messages(struct snt__udp_sender *sender, struct snt__udp_gate *gate,
			 uint64_t *now)
{
	unsigned visits = 0;
	int sent;

	if (gate)
		visits = snt__udp_gate_open(gate);
	sent = snt__udp_sendmmsg(sender->socket->fd, sender->headers + sender->next,
				 sender->count - sender->next, MSG_DONTWAIT);
	if (gate)
		*now = snt__udp_gate_close(gate, visits, *now);
	sender->stats.calls++;
	return sent;
}

/* False: the socket does not have room for all. */
static bool flush_messages(struct snt__udp_sender *sender, struct snt__udp_gate *gate,
			   uint64_t *now)
{
	while (sender->next < sender->count) {
		int sent = send_messages(sender, gate, now);

		if (sent < 0 && !handle_error(sender, errno))
			return false;
		if (sent > 0) {
			sender->cut = false;
			sender->stats.messages += sent;
			sender->next += sent;
		}
	}
	return true;
}

static bool flush_and_reset(struct snt__udp_sender *sender, struct snt__udp_gate *gate,
			    uint64_t *now)
{
	if (!flush_messages(sender, gate, now))
		return false;
	sender->next = sender->count = 0;
	sender->used = 0;
	return true;
}

/* Would packets that follow make one message with the last of these? */
static bool may_grow(const struct snt__soft_packet *packets, unsigned count)
{
	struct run run = find_run(packets, count);

	return run.length == count && !run.ended && count < SEGMENTS_MAX &&
	       run.bytes + packet_size(packets) <= SNT__UDP_MESSAGE_MAX;
}

/* The number of packets of that size that make one message. */
static unsigned next_ask(size_t bytes, unsigned packets)
{
	size_t ask = packets ? SNT__UDP_MESSAGE_MAX * packets / bytes : SIZE_MAX;

	return ask < SNT__UDP_SEND_BATCH ? ask : SNT__UDP_SEND_BATCH;
}

/*
 * Makes a batch. Long messages are sent as soon as they are made, while they are in the
 * processor's cache, but with the gate shut: packets point to memory that may be
 * released as soon as it is open. If the socket is full, the rest is made all the same:
 * the device has already given it away. If more packets may follow, those that they
 * could join are kept as the first of the next batch. Returns how many.
 */
static unsigned make_batch(struct snt__udp_sender *sender, unsigned count, bool more)
{
	struct snt__soft_packet *packets = sender->packets;
	bool full = false;
	size_t bytes = 0;
	unsigned i = 0;

	while (i < count) {
		size_t before = sender->used;

		if (!sender->socket->gso)
			add_message(sender, packets + i++, 1, NULL);
		else if (more && i && !full && may_grow(packets + i, count - i))
			break;
		else
			i += add_run(sender, packets + i, count - i);
		bytes += sender->used - before;
		if (!full && sender->used >= SNT__UDP_MESSAGE_MAX / 2)
			full = i < count && !flush_and_reset(sender, NULL, NULL);
	}
	sender->stats.packets += i;
	sender->ask = next_ask(bytes, i);
	memmove(packets, packets + i, (count - i) * sizeof(*packets));
	return count - i;
}

struct sending {
	bool all;  /* acknowledgments, too */
	bool more; /* the device may have more */
	bool moved;
	unsigned kept; /* packets, for the next batch */
};

/* Takes packets from the device and makes messages of those that go to the socket. */
static void take_packet_batch(struct snt__udp_sender *sender,
			      struct snt__soft_device *device, struct sending *sending,
			      uint64_t now)
{
	struct snt__soft_packet *packets = sender->packets + sending->kept;
	unsigned ask = sender->ask > sending->kept ? sender->ask - sending->kept : 1;
	unsigned max = snt__shm_send_max(sender->shm, ask, now);
	unsigned count = sending->all
				 ? snt__soft_output(device, packets, max, now)
				 : snt__soft_output_posted(device, packets, max, now);

	sending->more = max && count == max;
	sending->moved |= count;
	count = snt__shm_send(sender->shm, packets, count);
	sending->kept = make_batch(sender, sending->kept + count, sending->more);
}

/* Sends everything there is: also what other threads want meanwhile, within limits. */
static bool send_as_one(struct snt__udp_sender *sender, struct snt__soft_device *device,
			uint64_t now, bool all)
{
	struct sending sending = { .all = all, .more = true };
	unsigned for_others = 0;

	while (flush_and_reset(sender, sending.kept ? NULL : sender->gate, &now)) {
		if (!sending.more &&
		    (!sender->wanted || ++for_others > BATCHES_FOR_OTHERS))
			return sending.moved;
		sending.all |= sender->wanted == SNT__UDP_ALL;
		sender->wanted = SNT__UDP_NOTHING;
		take_packet_batch(sender, device, &sending, now);
	}
	/* The socket is full. The kept packets fit, since they are of the last
	 * batch. */
	if (sending.kept)
		make_batch(sender, sending.kept, false);
	return sending.moved;
}

static bool send_or_want(struct snt__udp_sender *sender,
			 struct snt__soft_device *device, uint64_t now,
			 enum snt__udp_wanted wanted)
{
	bool moved;

	if (sender->busy) {
		if (sender->wanted < wanted)
			sender->wanted = wanted;
		return false;
	}
	sender->busy = true;
	moved = send_as_one(sender, device, now, wanted == SNT__UDP_ALL);
	sender->busy = false;
	if (sender->gate)
		snt__udp_gate_tell(sender->gate);
	return moved;
}

bool snt__udp_send(struct snt__udp_sender *sender, struct snt__soft_device *device,
		   uint64_t now)
{
	return send_or_want(sender, device, now, SNT__UDP_ALL);
}

bool snt__udp_send_posted(struct snt__udp_sender *sender,
			  struct snt__soft_device *device, uint64_t now)
{
	return send_or_want(sender, device, now, SNT__UDP_POSTED);
}

unsigned snt__udp_sender_discard(struct snt__udp_sender *sender)
{
	unsigned packets = 0;

	for (unsigned i = sender->next; i < sender->count; i++)
		packets += sender->messages[i].packets;
	sender->next = sender->count = 0;
	sender->used = 0;
	return packets;
}

int snt__udp_sender_init(struct snt__udp_sender *sender, struct snt__udp_socket *socket,
			 const struct snt__udp_address *address)
{
	sender->socket = socket;
	sender->address = address;
	sender->ask = SNT__UDP_SEND_BATCH;
	sender->bytes = snt__soft_alloc(SNT__UDP_SEND_BATCH, SNT__UDP_PACKET_MAX);
	return sender->bytes ? 0 : -ENOMEM;
}

void snt__udp_sender_finish(struct snt__udp_sender *sender)
{
	snt__soft_free(sender->bytes);
}
