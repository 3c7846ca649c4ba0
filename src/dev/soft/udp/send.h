/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_SEND_H
#define SNT_DEV_SOFT_UDP_SEND_H

#include <sys/socket.h>
#include "dev/soft/driver.h"
#include "dev/soft/icrc.h"
#include "dev/soft/shm/shm.h"
#include "dev/soft/udp/gate.h"
#include "dev/soft/udp/socket.h"

/*
 * Packets become datagrams.
 *
 * Packets of one size to one target, and a shorter one at their end, are one message to
 * the kernel if it can cut it into segments; all messages of a batch are one call.
 *
 * Payload is copied before the ICRC is computed. Memory may change while it is sent,
 * and a READ of memory that changes all the time must still arrive. Since there is a
 * copy, a full socket costs nothing: the messages that it did not take are kept, and no
 * others are taken from the device until it has taken them.
 *
 * One thread sends at a time, so that packets of a QP stay in order. While it is in the
 * kernel the gate is open; another thread that has something to send meanwhile sets
 * `wanted` and goes on, and the sending thread sends that, too, before it returns.
 */

/* Four runs of the longest packets. */
#define SNT__UDP_SEND_BATCH 60
/* The most that the kernel takes as one message. */
#define SNT__UDP_MESSAGE_MAX 65000
/* Headers, payload, pad and ICRC of a packet. */
#define SNT__UDP_PACKET_MAX (SNT__WIRE_HEADER_MAX + 4096 + SNT__ICRC_TRAILER_MAX)

struct snt__udp_send_stats {
	uint64_t calls;
	uint64_t messages;
	uint64_t packets;
	uint64_t failed; /* messages that the kernel refused: no route, or a firewall */
	uint64_t stalls; /* times the socket had no room */
};

/* What one message needs besides its bytes. */
struct snt__udp_message {
	struct iovec bytes;
	union snt__udp_sockaddr target;
	uint16_t packets;
	uint16_t packet_size; /* of all but the last */
	uint8_t hop_limit, traffic_class;
	/* Segment size, hop limit and traffic class. */
	_Alignas(struct cmsghdr) uint8_t
		control[CMSG_SPACE(sizeof(uint16_t)) + 2 * CMSG_SPACE(sizeof(int))];
};

/* What other threads want the sending thread to send. */
enum snt__udp_wanted {
	SNT__UDP_NOTHING,
	SNT__UDP_POSTED, /* all but acknowledgments */
	SNT__UDP_ALL,
};

struct snt__udp_sender {
	struct snt__udp_gate *gate; /* NULL: no other thread uses the device */
	bool busy;		    /* a thread is sending */
	enum snt__udp_wanted wanted;
	/* How many packets to ask the device for. If packets are long, those of one
	 * message, which is still in the cache when the kernel takes it with the gate
	 * open. */
	unsigned ask;
	struct snt__shm *shm; /* takes packets first, for devices on this host */
	struct snt__udp_socket *socket;
	const struct snt__udp_address *address;
	struct snt__icrc_flow flow; /* to the last target */
	uint8_t target[16];
	bool cut; /* a message was cut, and nothing was sent since */
	/* Messages [next, count) are not yet taken by the kernel. */
	unsigned next, count;
	struct mmsghdr headers[SNT__UDP_SEND_BATCH];
	struct snt__udp_message messages[SNT__UDP_SEND_BATCH];
	struct snt__soft_packet packets[SNT__UDP_SEND_BATCH];
	size_t used; /* part of `bytes` */
	uint8_t *bytes;
	struct snt__udp_send_stats stats;
};

/* Returns 0 or -ENOMEM. */
int snt__udp_sender_init(struct snt__udp_sender *sender, struct snt__udp_socket *socket,
			 const struct snt__udp_address *address);
void snt__udp_sender_finish(struct snt__udp_sender *sender);

/* Sends all that the device has. Returns whether there was something. */
bool snt__udp_send(struct snt__udp_sender *sender, struct snt__soft_device *device,
		   uint64_t now);
/* The same without acknowledgments: see snt__soft_output_posted(). */
bool snt__udp_send_posted(struct snt__udp_sender *sender,
			  struct snt__soft_device *device, uint64_t now);

/* Drops messages that wait until the socket has room. Returns how many packets were in
 * them. No thread is sending. */
unsigned snt__udp_sender_discard(struct snt__udp_sender *sender);

/* Does a message wait until the socket has room? */
static inline bool snt__udp_sender_stalled(const struct snt__udp_sender *sender)
{
	return !sender->busy && sender->next != sender->count;
}

/* Did the sending thread leave something, since other threads wanted more and more?
 * What a full socket holds up as well is sent when there is room. */
static inline bool snt__udp_sender_left(const struct snt__udp_sender *sender)
{
	return !sender->busy && sender->wanted && sender->next == sender->count;
}

#endif
