/* SPDX-License-Identifier: MIT */
/* Ports of listeners, and packets that one sharer passes to another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dev/cm.h"
#include "dev/soft/cm_wire.h"
#include "dev/soft/udp/device.h"

/* Room for the longest packet. */
#define PACKET_MAX (4096 + 128)

/* The most that is read before other work is done. */
#define BATCH 64

/* Changes whenever the message does. */
#define MAIL_VERSION 0x736e7401u

struct snt__udp_claim {
	struct snt__udp_claim *next;
	int fd;
	uint16_t port;
};

/* A packet, from BTH to pad, and where it came from. */
struct mail {
	uint32_t version;
	uint16_t source_port;
	uint16_t length;
	uint8_t source[16];
	uint8_t bytes[PACKET_MAX];
};

/*
 * Ports
 */

static bool has_claim(const struct snt__udp_share *share, uint16_t port)
{
	for (const struct snt__udp_claim *claim = share->claims; claim;
	     claim = claim->next)
		if (claim->port == port)
			return true;
	return false;
}

int snt__udp_share_claim(struct snt__udp_share *share, uint16_t port)
{
	struct snt__udp_claim *claim;
	int ret;

	if (has_claim(share, port))
		return 0;
	claim = calloc(1, sizeof(*claim));
	if (!claim)
		return -ENOMEM;
	claim->port = port;
	claim->fd = snt__share_bind(share->address, SOCK_DGRAM, SNT__SHARE_PORT, port);
	ret = claim->fd < 0 ? claim->fd : snt__share_watch(share, claim->fd);
	if (ret) {
		if (claim->fd >= 0)
			close(claim->fd);
		free(claim);
		return ret;
	}
	claim->next = share->claims;
	share->claims = claim;
	return 0;
}

void snt__udp_share_unclaim(struct snt__udp_share *share, uint16_t port)
{
	struct snt__udp_claim **at = &share->claims;

	while (*at) {
		struct snt__udp_claim *claim = *at;

		if (port && claim->port != port) {
			at = &claim->next;
			continue;
		}
		*at = claim->next;
		close(claim->fd);
		free(claim);
	}
}

/*
 * Mail
 */

/* The kernel names the sender: anybody can send to a name. */
static bool is_from_our_user(struct msghdr *message)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(message);
	struct ucred sender;

	if (!control || control->cmsg_level != SOL_SOCKET ||
	    control->cmsg_type != SCM_CREDENTIALS ||
	    control->cmsg_len != CMSG_LEN(sizeof(sender)))
		return false;
	memcpy(&sender, CMSG_DATA(control), sizeof(sender));
	return snt__shm_is_our_user(sender.uid);
}

/* Returns false if there is none. */
static bool receive_mail(int fd, struct mail *mail, bool *good_out)
{
	union {
		struct cmsghdr header;
		uint8_t space[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec all = { mail, sizeof(*mail) };
	struct msghdr message = { .msg_iov = &all,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0)
		return false;
	*good_out = got >= (ssize_t)offsetof(struct mail, bytes) &&
		    !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
		    mail->version == MAIL_VERSION &&
		    got == (ssize_t)offsetof(struct mail, bytes) + mail->length &&
		    is_from_our_user(&message);
	return true;
}

static void input_mail(struct snt__udp_device *device, const struct mail *mail)
{
	struct snt__soft_path path = { .source_port = mail->source_port };

	memcpy(path.source, mail->source, sizeof(path.source));
	memcpy(path.target, device->address.gid, sizeof(path.target));
	snt__soft_input(device->core, &path, mail->bytes, mail->length, snt__udp_now());
}

/* What one message does may end the claim on whose socket the others wait. */
static bool is_mail_socket(const struct snt__udp_share *share, int fd)
{
	const struct snt__udp_claim *claim = share->claims;

	while (claim && claim->fd != fd)
		claim = claim->next;
	return claim || fd == share->mailbox;
}

void snt__share_read_mail(struct snt__udp_device *device, int fd)
{
	struct mail mail;
	bool good;

	for (unsigned i = 0; i < BATCH && is_mail_socket(&device->share, fd); i++) {
		if (!receive_mail(fd, &mail, &good))
			return;
		if (good)
			input_mail(device, &mail);
	}
}

/*
 * The lobby
 */

static void send_to_all(struct snt__udp_device *device, const struct mail *mail)
{
	const struct snt__udp_share *share = &device->share;

	for (unsigned seat = 0; seat < SNT__SEATS; seat++)
		if (seat != share->seat.number)
			snt__share_send(share->mailbox, share->address, SNT__SHARE_SEAT,
					seat, mail,
					offsetof(struct mail, bytes) + mail->length);
	input_mail(device, mail);
}

/* To the listener. If no process has the port, it is refused by this one. */
static void send_to_port(struct snt__udp_device *device, const struct mail *mail,
			 uint16_t port)
{
	const struct snt__udp_share *share = &device->share;

	if (has_claim(share, port) ||
	    snt__share_send(share->mailbox, share->address, SNT__SHARE_PORT, port, mail,
			    offsetof(struct mail, bytes) + mail->length) ==
		    -ECONNREFUSED)
		input_mail(device, mail);
}

static void pass_on(struct snt__udp_device *device, const struct mail *mail)
{
	struct snt__wire_packet packet;
	struct snt__cm_message message;

	if (snt__wire_decode(mail->bytes, mail->length, &packet))
		return;
	if (packet.qpn != SNT__WIRE_GSI_QPN ||
	    packet.payload_length != SNT__CM_MAD_SIZE ||
	    snt__cm_decode(packet.payload, &message))
		input_mail(device, mail);
	else if (message.kind == SNT__CM_REQ)
		send_to_port(device, mail, (uint16_t)message.req.service);
	/* The only one without an id that is for a connection; it gets no answer. */
	else if (message.kind == SNT__CM_REJ &&
		 message.rej.reason == SNT__CM_REASON_TIMEOUT)
		send_to_all(device, mail);
	else
		input_mail(device, mail);
}

/* Returns false if there is nothing. */
static bool receive_visitor(const struct snt__udp_device *device, struct mail *mail,
			    bool *good_out)
{
	struct snt__icrc_ipv4 guess = { .fragment = SNT__ICRC_DONT_FRAGMENT };
	union snt__udp_sockaddr from = { 0 };
	socklen_t from_size = sizeof(from);
	struct snt__icrc_flow flow;
	ssize_t got = recvfrom(device->share.lobby, mail->bytes, sizeof(mail->bytes),
			       MSG_DONTWAIT | MSG_TRUNC, &from.any, &from_size);

	if (got < 0)
		return errno != EAGAIN;
	mail->version = MAIL_VERSION;
	mail->source_port = from.any.sa_family == AF_INET ? ntohs(from.v4.sin_port)
							  : ntohs(from.v6.sin6_port);
	snt__udp_gid(&from, mail->source);
	snt__icrc_flow_init(&flow, mail->source, device->address.gid, mail->source_port,
			    SNT__WIRE_PORT);
	*good_out = got >= SNT__ICRC_SIZE && got <= (ssize_t)sizeof(mail->bytes) &&
		    snt__udp_is_sealed(&flow, &guess, mail->bytes, got);
	if (*good_out)
		mail->length = (uint16_t)(got - SNT__ICRC_SIZE);
	return true;
}

void snt__share_read_lobby(struct snt__udp_device *device)
{
	struct mail mail;

	for (unsigned i = 0; i < BATCH; i++) {
		bool good = false;

		if (!receive_visitor(device, &mail, &good))
			return;
		if (good)
			pass_on(device, &mail);
	}
}
