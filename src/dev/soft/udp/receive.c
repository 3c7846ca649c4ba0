/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/receive.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include "dev/soft/alloc.h"

/* How often to retry on a socket that has an error. */
#define TRIES 4

/* The segment size of what the kernel has joined (GRO); 0: it has not. */
static size_t joined_size(struct msghdr *header)
{
	for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control;
	     control = CMSG_NXTHDR(header, control)) {
		int size;

		if (control->cmsg_level != IPPROTO_UDP || control->cmsg_type != UDP_GRO)
			continue;
		memcpy(&size, CMSG_DATA(control), sizeof(size));
		return size > 0 ? size : 0;
	}
	return 0;
}

static void set_source(struct snt__udp_receiver *receiver,
		       const union snt__udp_sockaddr *from)
{
	if (!memcmp(&receiver->from, from, sizeof(*from)))
		return;
	receiver->from = *from;
	receiver->path.source_port = from->any.sa_family == AF_INET
					     ? ntohs(from->v4.sin_port)
					     : ntohs(from->v6.sin6_port);
	snt__udp_gid(from, receiver->path.source);
	snt__icrc_flow_init(&receiver->flow, receiver->path.source,
			    receiver->path.target, receiver->path.source_port,
			    SNT__WIRE_PORT);
	receiver->guess =
		(struct snt__icrc_ipv4){ .fragment = SNT__ICRC_DONT_FRAGMENT };
}

/* No peer should fragment, but some may leave DF clear. */
bool snt__udp_is_sealed(struct snt__icrc_flow *flow, struct snt__icrc_ipv4 *guess,
			const uint8_t *bytes, size_t size)
{
	struct snt__icrc_ipv4 other = *guess;

	if (!snt__icrc_check_any(flow, guess, bytes, size))
		return true;
	other.fragment ^= SNT__ICRC_DONT_FRAGMENT;
	if (snt__icrc_check_any(flow, &other, bytes, size))
		return false;
	*guess = other;
	return true;
}

static void take_packet(struct snt__udp_receiver *receiver,
			struct snt__soft_device *device, const uint8_t *bytes,
			size_t size, uint64_t now)
{
	receiver->stats.packets++;
	if (!snt__udp_is_sealed(&receiver->flow, &receiver->guess, bytes, size)) {
		receiver->stats.damaged++;
		return;
	}
	snt__soft_input(device, &receiver->path, bytes, size - SNT__ICRC_SIZE, now);
}

/* The IPv4 identification is 0 in all single packets of a sennit peer, and counts from
 * 0 in the segments of one send; other senders may count all the time. */
static void take_datagram(struct snt__udp_receiver *receiver,
			  struct snt__soft_device *device, unsigned index, uint64_t now)
{
	struct msghdr *header = &receiver->headers[index].msg_hdr;
	size_t left = receiver->headers[index].msg_len;
	size_t size = joined_size(header);
	const uint8_t *bytes = receiver->pieces[index].iov_base;

	if ((header->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || !left) {
		receiver->stats.damaged++;
		return;
	}
	set_source(receiver, &receiver->names[index]);
	if (!size || size > left)
		size = left;
	if (size < left)
		receiver->guess.identification = 0;
	for (; left; left -= size, bytes += size) {
		if (size > left)
			size = left;
		take_packet(receiver, device, bytes, size, now);
		if (size < left || receiver->guess.identification)
			receiver->guess.identification++;
	}
}

/* A pending error of the socket is about something that was sent, and is reported
 * once. */
static int receive_messages(struct snt__udp_receiver *receiver, int flags)
{
	unsigned tries = 0;
	int count;

	do {
		count = snt__udp_recvmmsg(receiver->socket->fd, receiver->headers,
					  receiver->ask, MSG_DONTWAIT | flags);
		receiver->stats.calls++;
	} while (count < 0 && errno != EAGAIN && ++tries < TRIES);
	return count;
}

/* The same with the gate open. */
static int receive_outside(struct snt__udp_receiver *receiver, int flags, uint64_t *now)
{
	unsigned visits;
	int count;

	receiver->busy = true;
	visits = snt__udp_gate_open(receiver->gate);
	count = receive_messages(receiver, flags);
	*now = snt__udp_gate_close(receiver->gate, visits, *now);
	receiver->busy = false;
	return count;
}

unsigned snt__udp_receive(struct snt__udp_receiver *receiver,
			  struct snt__soft_device *device, uint64_t now)
{
	int flags = snt__udp_rx_hold_flags(&receiver->rx_hold);
	uint32_t bytes = 0;
	int count;

	if (receiver->busy)
		return 0;
	count = receiver->gate ? receive_outside(receiver, flags, &now)
			       : receive_messages(receiver, flags);
	receiver->emptied = count < (int)receiver->ask;
	receiver->ask = count > 0 ? SNT__UDP_RECEIVE_BATCH : 1;
	receiver->last = count > 0 ? count : 0;
	if (count <= 0)
		return 0;
	receiver->stats.messages += count;
	for (int i = 0; i < count; i++) {
		struct msghdr *header = &receiver->headers[i].msg_hdr;

		take_datagram(receiver, device, i, now);
		bytes += receiver->headers[i].msg_len;
		header->msg_namelen = sizeof(receiver->names[i]);
		header->msg_controllen = sizeof(receiver->control[i]);
	}
	snt__udp_rx_hold_put(&receiver->rx_hold, flags, count, bytes);
	return count;
}

int snt__udp_receiver_init(struct snt__udp_receiver *receiver,
			   const struct snt__udp_socket *socket,
			   const struct snt__udp_address *address)
{
	receiver->socket = socket;
	receiver->ask = 1;
	memcpy(receiver->path.target, address->gid, 16);
	receiver->bytes = snt__soft_alloc(SNT__UDP_RECEIVE_BATCH, SNT__UDP_BUFFER_SIZE);
	if (!receiver->bytes)
		return -ENOMEM;
	for (unsigned i = 0; i < SNT__UDP_RECEIVE_BATCH; i++) {
		struct msghdr *header = &receiver->headers[i].msg_hdr;

		receiver->pieces[i].iov_base =
			receiver->bytes + (size_t)i * SNT__UDP_BUFFER_SIZE;
		receiver->pieces[i].iov_len = SNT__UDP_BUFFER_SIZE;
		header->msg_name = &receiver->names[i];
		header->msg_namelen = sizeof(receiver->names[i]);
		header->msg_iov = &receiver->pieces[i];
		header->msg_iovlen = 1;
		header->msg_control = receiver->control[i];
		header->msg_controllen = sizeof(receiver->control[i]);
	}
	return 0;
}

void snt__udp_receiver_finish(struct snt__udp_receiver *receiver)
{
	snt__soft_free(receiver->bytes);
}
