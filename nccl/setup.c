/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "plugin.h"

/* A stranger at the port that does not say what it wants is not waited for longer. */
#define STRANGER_S 5

/*
 * connect()                        accept()
 *
 * DIALING
 * SENDING_CARD   ---- CARD ---->   (the comm is made)
 * AWAITING_CARD  <--- CARD -----   SENDING_CARD
 * SENDING_READY  ---- READY --->   AWAITING_READY
 * UP                               UP
 *
 * Each end connects its queue pair when it has the peer's card, before it sends its next
 * frame. Instead of a frame an end may send REFUSED, with a reason.
 */

struct listener {
	const struct virtual_device *device;
	int traffic_class;
	int fd;
	uint64_t nonce;
	/* A peer that has not yet sent its card; from then on there is a comm. */
	struct control stranger;
	time_t stranger_since;
	struct comm *comm;
};

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec;
}

/* Logs why, and tells the peer. */
static int refuse_peer(struct control *control, uint64_t nonce, enum nccl_result result,
		       const char *format, ...) __attribute__((format(printf, 4, 5)));

static int refuse_peer(struct control *control, uint64_t nonce, enum nccl_result result,
		       const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	control_refuse(control, nonce, text);
	return plugin_fail(result, "%s: %s", control->peer, text);
}

/* Why a frame could not be received or sent. */
static int control_failed(struct control *control, uint64_t nonce, int err)
{
	switch (err) {
	case -EPROTO:
		return refuse_peer(
			control, nonce, NCCL_INVALID_USAGE,
			"the peer does not use sennit's plugin but another network "
			"of NCCL: set NCCL_NET_PLUGIN=sennit and NCCL_NET=sennit "
			"for every rank");
	case -EPROTONOSUPPORT:
		return refuse_peer(control, nonce, NCCL_INVALID_USAGE,
				   "the peers' plugins speak versions %u and %u of the "
				   "protocol: install the same sennit on every host",
				   PROTOCOL_VERSION, ntohl(control->in.version));
	case -ECONNRESET:
		return plugin_fail(
			NCCL_REMOTE_ERROR,
			"%s: the peer ended during the setup of a connection: "
			"its log says why",
			control->peer);
	default:
		return plugin_fail(NCCL_REMOTE_ERROR, "%s: no connection: %s",
				   control->peer, strerror(-err));
	}
}

static int put_card(struct comm *comm)
{
	uint8_t packed[SNT_CARD_PACKED_MAX];
	struct snt_card card;
	ssize_t length;

	if (snt_qp_card(comm->qp, &card))
		length = -1;
	else
		length = snt_card_pack(&card, packed, sizeof(packed));
	if (length < 0)
		return refuse_peer(&comm->control, comm->nonce, NCCL_SYSTEM_ERROR,
				   "no card of the queue pair: %s", snt_err_text());
	control_put(&comm->control, comm->nonce, FRAME_CARD, packed, length);
	comm->step = COMM_SENDING_CARD;
	return NCCL_SUCCESS;
}

/* The frame that has come is the peer's card. */
static int connect_qp(struct comm *comm)
{
	const struct frame *frame = &comm->control.in;
	struct snt_card card;

	if (snt_card_unpack(frame->body, ntohs(frame->length), &card) ||
	    snt_qp_connect(comm->qp, &card))
		return refuse_peer(&comm->control, comm->nonce, NCCL_SYSTEM_ERROR,
				   "the queue pairs cannot be connected: %s",
				   snt_err_text());
	for (uint32_t i = 0; comm->role == COMM_SENDS && i < NCCL_REQUESTS_MAX; i++) {
		if (comm_post_grant_recv(comm, i))
			return comm->failed;
	}
	return NCCL_SUCCESS;
}

static int take_frame(struct comm *comm)
{
	const struct frame *frame = &comm->control.in;
	int ret;

	if (ntohs(frame->kind) == FRAME_REFUSED)
		return plugin_fail(NCCL_REMOTE_ERROR, "%s refused the connection: %.*s",
				   comm->control.peer, (int)ntohs(frame->length),
				   (const char *)frame->body);
	if (comm->step == COMM_AWAITING_READY) {
		comm->step = COMM_UP;
		return NCCL_SUCCESS;
	}
	ret = connect_qp(comm);
	if (ret)
		return ret;
	if (comm->role == COMM_RECEIVES)
		return put_card(comm);
	control_put(&comm->control, comm->nonce, FRAME_READY, NULL, 0);
	comm->step = COMM_SENDING_READY;
	return NCCL_SUCCESS;
}

static void frame_is_sent(struct comm *comm)
{
	if (comm->step == COMM_SENDING_READY)
		comm->step = COMM_UP;
	else
		comm->step = comm->role == COMM_SENDS ? COMM_AWAITING_CARD
						      : COMM_AWAITING_READY;
}

/* 1, 0 or -errno, as control_send(). */
static int peer_answered(const struct comm *comm)
{
	struct pollfd entry = { .fd = comm->control.fd, .events = POLLOUT };
	socklen_t length = sizeof(int);
	int err = 0;

	if (poll(&entry, 1, 0) != 1)
		return 0;
	getsockopt(comm->control.fd, SOL_SOCKET, SO_ERROR, &err, &length);
	return err ? -err : 1;
}

/* Does what can be done without waiting. */
static int advance_setup(struct comm *comm)
{
	int ret = NCCL_SUCCESS, done = 1;

	while (done == 1 && !ret && comm->step != COMM_UP) {
		switch (comm->step) {
		case COMM_DIALING:
			done = peer_answered(comm);
			if (done == 1)
				ret = put_card(comm);
			break;
		case COMM_SENDING_CARD:
		case COMM_SENDING_READY:
			done = control_send(&comm->control);
			if (done == 1)
				frame_is_sent(comm);
			break;
		default:
			done = control_recv(&comm->control, comm->nonce);
			if (done == 1)
				ret = take_frame(comm);
		}
	}
	return done < 0 ? control_failed(&comm->control, comm->nonce, done) : ret;
}

/* Hands the comm over if it is up, and destroys it if it failed. */
static int advance_comm(struct comm **comm, void **comm_out)
{
	const int ret = advance_setup(*comm);

	if (ret) {
		comm_destroy(*comm);
		*comm = NULL;
	} else if ((*comm)->step == COMM_UP) {
		plugin_log(NCCL_INFO, "%s %s: connected over %u lanes",
			   (*comm)->role == COMM_SENDS ? "sending to"
						       : "receiving from",
			   (*comm)->control.peer, snt_qp_lane_count((*comm)->qp));
		*comm_out = *comm;
		*comm = NULL;
	}
	return ret;
}

/*
 * The connecting end
 */

static int dial_peer(struct comm *comm, const struct handle *handle)
{
	const int fd = socket(handle->address.any.sa_family,
			      SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return plugin_fail(NCCL_SYSTEM_ERROR, "no socket: %s", strerror(errno));
	control_begin(&comm->control, fd, &handle->address);
	comm->nonce = handle->nonce;
	if (connect(fd, &handle->address.any, address_length(&handle->address)) &&
	    errno != EINPROGRESS)
		return control_failed(&comm->control, comm->nonce, -errno);
	return NCCL_SUCCESS;
}

static int begin_connect(const struct virtual_device *device, int traffic_class,
			 struct handle *handle)
{
	struct comm *comm;
	int ret;

	ret = comm_create(COMM_SENDS, device, traffic_class, &comm);
	if (ret)
		return ret;
	ret = dial_peer(comm, handle);
	if (ret)
		comm_destroy(comm);
	else
		handle->comm = comm;
	return ret;
}

/*
 * NCCL drops the handle when it aborts, and says nothing: the comms of such attempts are
 * destroyed with the last user of the process.
 */

static struct {
	pthread_mutex_t lock;
	struct comm *first;
} attempts = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void add_attempt(struct comm *comm)
{
	pthread_mutex_lock(&attempts.lock);
	comm->next_attempt = attempts.first;
	attempts.first = comm;
	pthread_mutex_unlock(&attempts.lock);
}

static void remove_attempt(const struct comm *comm)
{
	struct comm **place;

	pthread_mutex_lock(&attempts.lock);
	for (place = &attempts.first; *place; place = &(*place)->next_attempt) {
		if (*place == comm) {
			*place = comm->next_attempt;
			break;
		}
	}
	pthread_mutex_unlock(&attempts.lock);
}

void net_forget_attempts(void)
{
	while (attempts.first) {
		struct comm *comm = attempts.first;

		remove_attempt(comm);
		comm_destroy(comm);
	}
}

int net_connect(int device, int traffic_class, void *data, void **comm_out)
{
	const struct virtual_device *virtual_device = process_device(device);
	struct handle *handle = data;
	int ret = NCCL_SUCCESS;

	*comm_out = NULL;
	if (!virtual_device)
		return NCCL_INVALID_USAGE;
	if (memcmp(handle->magic, PROTOCOL_MAGIC, sizeof(handle->magic)))
		return plugin_fail(
			NCCL_INVALID_USAGE,
			"the peer's handle is not sennit's: that rank uses "
			"another network of NCCL: set NCCL_NET_PLUGIN=sennit "
			"and NCCL_NET=sennit for every rank");
	if (!handle->comm)
		ret = begin_connect(virtual_device, traffic_class, handle);
	else
		remove_attempt(handle->comm);
	if (!ret)
		ret = advance_comm(&handle->comm, comm_out);
	if (handle->comm)
		add_attempt(handle->comm);
	return ret;
}

/*
 * The accepting end
 */

int net_listen(int device, int traffic_class, void *data, void **listener_out)
{
	const struct virtual_device *virtual_device = process_device(device);
	struct handle handle = { .version = htonl(PROTOCOL_VERSION) };
	struct listener *listener;
	char why[256];

	if (!virtual_device)
		return NCCL_INVALID_USAGE;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return plugin_fail(NCCL_SYSTEM_ERROR, "no memory for a listener");
	listener->device = virtual_device;
	listener->traffic_class = traffic_class;
	listener->stranger.fd = -1;
	listener->fd =
		address_listen(virtual_device->mask, &handle.address, why, sizeof(why));
	if (listener->fd < 0 ||
	    getrandom(&listener->nonce, sizeof(listener->nonce), 0) < 0) {
		plugin_fail(NCCL_SYSTEM_ERROR, "no listener on %s: %s",
			    virtual_device->name,
			    listener->fd < 0 ? why : strerror(errno));
		net_close_listen(listener);
		return NCCL_SYSTEM_ERROR;
	}
	memcpy(handle.magic, PROTOCOL_MAGIC, sizeof(handle.magic));
	handle.nonce = listener->nonce;
	memset(data, 0, NCCL_HANDLE_BYTES);
	memcpy(data, &handle, sizeof(handle));
	*listener_out = listener;
	return NCCL_SUCCESS;
}

int net_close_listen(void *handle)
{
	struct listener *listener = handle;

	if (listener->fd >= 0)
		socket_close(listener->fd);
	control_end(&listener->stranger);
	comm_destroy(listener->comm);
	free(listener);
	return NCCL_SUCCESS;
}

/* One that does not know the nonce is not a rank of this job. */
static bool is_peer(const struct listener *listener)
{
	return listener->stranger.received >= sizeof(listener->nonce) &&
	       listener->stranger.in.nonce == listener->nonce;
}

static void drop_stranger(struct listener *listener, const char *why)
{
	plugin_log(NCCL_INFO, "%s: ignored, since it %s", listener->stranger.peer, why);
	control_end(&listener->stranger);
}

static void accept_stranger(struct listener *listener)
{
	union address peer = { 0 };
	socklen_t length = sizeof(peer);
	const int fd =
		accept4(listener->fd, &peer.any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	memset(&listener->stranger, 0, sizeof(listener->stranger));
	control_begin(&listener->stranger, fd, &peer);
	listener->stranger_since = now_s();
}

/* The stranger is a peer, and its frame has come. */
static int begin_accept(struct listener *listener)
{
	struct comm *comm;
	int ret = comm_create(COMM_RECEIVES, listener->device, listener->traffic_class,
			      &comm);

	if (ret) {
		control_refuse(&listener->stranger, listener->nonce,
			       "no queue pair could be made: the log of that rank says "
			       "why");
		return ret;
	}
	comm->nonce = listener->nonce;
	comm->control = listener->stranger;
	comm->step = COMM_AWAITING_CARD;
	listener->stranger.fd = -1;
	listener->comm = comm;
	ret = take_frame(comm);
	if (ret) {
		comm_destroy(comm);
		listener->comm = NULL;
	}
	return ret;
}

static int meet_stranger(struct listener *listener)
{
	struct control *stranger = &listener->stranger;
	int ret;

	if (stranger->fd < 0)
		accept_stranger(listener);
	if (stranger->fd < 0)
		return NCCL_SUCCESS;
	ret = control_recv(stranger, listener->nonce);
	if (ret == 1)
		return begin_accept(listener);
	if (ret && (is_peer(listener) || ret == -EPROTONOSUPPORT)) {
		ret = control_failed(stranger, listener->nonce, ret);
		control_end(stranger);
		return ret;
	}
	if (ret)
		drop_stranger(listener, "does not know the handle");
	else if (!is_peer(listener) && now_s() - listener->stranger_since > STRANGER_S)
		drop_stranger(listener, "says nothing");
	return NCCL_SUCCESS;
}

int net_accept(void *handle, void **comm_out)
{
	struct listener *listener = handle;

	*comm_out = NULL;
	if (!listener->comm) {
		const int ret = meet_stranger(listener);

		if (ret)
			return ret;
	}
	return listener->comm ? advance_comm(&listener->comm, comm_out) : NCCL_SUCCESS;
}
