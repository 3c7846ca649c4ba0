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
 * Packets of one size to one place, and a shorter one at their end, are one message to
 * the kernel if it can cut it into segments; all messages of a batch are one call.
 *
 * Payload is copied before the ICRC is computed. Memory may change while it is sent, and
 * a READ of something that changes all the time must still arrive. Since the copy is
 * there, a socket that is full costs nothing: what it did not take is kept and nothing
 * else is taken from the device until it did.
 *
 * One thread sends at a time, so that packets of a QP stay in order. While it is in the kernel
 * the gate is open; a thread that has something to send meanwhile says so and goes on, and
 * the one that sends takes that, too, before it is done.
 */

/* Four runs of the longest packets. */
#define SNT__UDP_SEND_BATCH 60
/* What the kernel takes at once. */
#define SNT__UDP_MESSAGE_MAX 65000
/* Headers, payload, pad and ICRC of a packet. */
#define SNT__UDP_PACKET_MAX (SNT__WIRE_HEADER_MAX + 4096 + SNT__ICRC_TRAILER_MAX)

struct snt__udp_send_stats {
	uint64_t calls;
	uint64_t messages;
	uint64_t packets;
	uint64_t
		failed; /* messages that the kernel refused, for no route or a firewall */
	uint64_t stalls; /* for which the socket had no room */
};

/* What one message needs beside its bytes. */
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

/* What other threads want to have sent by the one that sends. */
enum snt__udp_wanted {
	SNT__UDP_NOTHING,
	SNT__UDP_POSTED, /* all but acknowledgments */
	SNT__UDP_ALL,
};

struct snt__udp_sender {
	struct snt__udp_gate *gate; /* NULL: no other thread has the device */
	bool busy;		    /* a thread sends */
	enum snt__udp_wanted wanted;
	/* How many packets to ask the device for. While they are long they make one message,
	 * which the kernel takes with the gate open and which is in the cache then. */
	unsigned ask;
	struct snt__shm *shm; /* to which packets go first */
	struct snt__udp_socket *socket;
	const struct snt__udp_address *address;
	struct snt__icrc_flow flow; /* to the last target */
	uint8_t target[16];
	bool cut; /* a message, and nothing was sent since */
	/* Messages [next, count) were not taken by the kernel yet. */
	unsigned next, count;
	struct mmsghdr headers[SNT__UDP_SEND_BATCH];
	struct snt__udp_message messages[SNT__UDP_SEND_BATCH];
	struct snt__soft_packet packets[SNT__UDP_SEND_BATCH];
	size_t used; /* of bytes */
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

/* Does something wait until the socket has room? */
static inline bool snt__udp_sender_stalled(const struct snt__udp_sender *sender)
{
	return !sender->busy && sender->next != sender->count;
}

/* Did the thread that sent leave something, since others wanted more and more of it? What a full
 * socket holds up as well is sent when there is room. */
static inline bool snt__udp_sender_left(const struct snt__udp_sender *sender)
{
	return !sender->busy && sender->wanted && sender->next == sender->count;
}

#endif
