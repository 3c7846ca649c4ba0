/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_RECEIVE_H
#define SNT_DEV_SOFT_UDP_RECEIVE_H

#include <sys/socket.h>
#include "dev/soft/driver.h"
#include "dev/soft/icrc.h"
#include "dev/soft/udp/gate.h"
#include "dev/soft/udp/rx_hold.h"
#include "dev/soft/udp/socket.h"

/*
 * Datagrams become packets: received from the socket in batches, split where the kernel
 * has joined several of one flow, checked, and given to the device.
 */

/* The kernel joins no more than this. */
#define SNT__UDP_BUFFER_SIZE   65536
#define SNT__UDP_RECEIVE_BATCH 8

struct snt__udp_receive_stats {
	uint64_t calls;
	uint64_t messages;
	uint64_t packets;
	uint64_t damaged; /* too short, too long, or with a wrong ICRC */
};

struct snt__udp_receiver {
	struct snt__udp_gate *gate; /* NULL: no other thread uses the device */
	bool busy;		    /* a thread is in recvmmsg(), with the gate open */
	const struct snt__udp_socket *socket;
	struct snt__udp_rx_hold rx_hold;
	/* How many messages to ask for: one if there was none lately, for it will come
	 * alone, and looking for more costs time. */
	unsigned ask;
	unsigned last; /* how many messages the last call took */
	bool emptied;  /* it took all that there were */
	/* The source of the last packet, and the IPv4 fields expected in the next. */
	union snt__udp_sockaddr from;
	struct snt__soft_path path;
	struct snt__icrc_flow flow;
	struct snt__icrc_ipv4 guess;

	struct mmsghdr headers[SNT__UDP_RECEIVE_BATCH];
	struct iovec pieces[SNT__UDP_RECEIVE_BATCH];
	union snt__udp_sockaddr names[SNT__UDP_RECEIVE_BATCH];
	_Alignas(struct cmsghdr)
		uint8_t control[SNT__UDP_RECEIVE_BATCH][CMSG_SPACE(sizeof(int))];
	uint8_t *bytes;
	struct snt__udp_receive_stats stats;
};

/* Returns 0 or -ENOMEM. */
int snt__udp_receiver_init(struct snt__udp_receiver *receiver,
			   const struct snt__udp_socket *socket,
			   const struct snt__udp_address *address);
void snt__udp_receiver_finish(struct snt__udp_receiver *receiver);

/* Gives a batch to the device. Returns the number of messages; 0: no more for now, or
 * another thread receives. */
unsigned snt__udp_receive(struct snt__udp_receiver *receiver,
			  struct snt__soft_device *device, uint64_t now);

/* Is a packet's ICRC right? Updates what is expected in the next one of the flow. */
bool snt__udp_is_sealed(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 *guess,
			const uint8_t *bytes, size_t size);

#endif
