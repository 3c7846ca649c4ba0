/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin.h"

/* A host that is gone is noticed after about this many seconds. */
#define SILENCE_S     5
#define KEEPALIVE_S   2
#define KEEPALIVE_MAX 5

/*
 * A child of this process would keep a connection open that its parent's death should end, so
 * that no peer noticed. It closes its copies before fork() returns in it.
 */

static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	int *fd;
	size_t count, room;
} sockets = { .lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT };

static void lock_sockets(void)
{
	pthread_mutex_lock(&sockets.lock);
}

static void unlock_sockets(void)
{
	pthread_mutex_unlock(&sockets.lock);
}

static void close_childs_sockets(void)
{
	while (sockets.count)
		close(sockets.fd[--sockets.count]);
	unlock_sockets();
}

static void watch_forks(void)
{
	pthread_atfork(lock_sockets, unlock_sockets, close_childs_sockets);
}

int socket_keep(int fd)
{
	pthread_once(&sockets.once, watch_forks);
	lock_sockets();
	if (sockets.count == sockets.room) {
		const size_t room = 2 * sockets.room + 16;
		int *more = realloc(sockets.fd, room * sizeof(*more));

		if (more) {
			sockets.fd = more;
			sockets.room = room;
		}
	}
	if (sockets.count < sockets.room)
		sockets.fd[sockets.count++] = fd;
	unlock_sockets();
	return fd;
}

void socket_close(int fd)
{
	lock_sockets();
	for (size_t i = 0; i < sockets.count; i++) {
		if (sockets.fd[i] == fd)
			sockets.fd[i] = sockets.fd[--sockets.count];
	}
	close(fd);
	unlock_sockets();
}

static void set_option(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

void control_begin(struct control *control, int fd, const union address *peer)
{
	control->fd = socket_keep(fd);
	address_text(peer, control->peer, sizeof(control->peer));
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, SILENCE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_MAX);
}

void control_end(struct control *control)
{
	if (control->fd >= 0)
		socket_close(control->fd);
	control->fd = -1;
}

void control_put(struct control *control, uint64_t nonce, enum frame_kind kind,
		 const void *body, size_t length)
{
	struct frame *frame = &control->out;

	frame->nonce = nonce;
	memcpy(frame->magic, PROTOCOL_MAGIC, sizeof(frame->magic));
	frame->version = htonl(PROTOCOL_VERSION);
	frame->kind = htons(kind);
	frame->length = htons(length);
	if (length)
		memcpy(frame->body, body, length);
	control->sent = 0;
}

int control_send(struct control *control)
{
	const size_t size = FRAME_HEAD + ntohs(control->out.length);
	ssize_t count;

	while (control->sent < size) {
		count = send(control->fd, (char *)&control->out + control->sent,
			     size - control->sent, MSG_NOSIGNAL);
		if (count < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		control->sent += count;
	}
	return 1;
}

/* As far as it has been received: a peer that is not sennit may say less than a head. */
static int check_frame(const struct control *control, uint64_t nonce)
{
	const struct frame *frame = &control->in;
	size_t magic_length;

	if (control->received < sizeof(nonce))
		return 0;
	if (frame->nonce != nonce)
		return -ESTALE;
	magic_length = control->received - sizeof(nonce);
	if (magic_length > sizeof(frame->magic))
		magic_length = sizeof(frame->magic);
	if (memcmp(frame->magic, PROTOCOL_MAGIC, magic_length))
		return -EPROTO;
	if (control->received >= FRAME_HEAD &&
	    ntohs(frame->length) > sizeof(frame->body))
		return -EPROTO;
	return 0;
}

static size_t bytes_wanted(const struct control *control)
{
	if (control->received < FRAME_HEAD)
		return FRAME_HEAD - control->received;
	return FRAME_HEAD + ntohs(control->in.length) - control->received;
}

int control_recv(struct control *control, uint64_t nonce)
{
	ssize_t count;
	int ret;

	while (control->received < FRAME_HEAD || bytes_wanted(control)) {
		count = recv(control->fd, (char *)&control->in + control->received,
			     bytes_wanted(control), 0);
		if (!count)
			return -ECONNRESET;
		if (count < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		control->received += count;
		ret = check_frame(control, nonce);
		if (ret)
			return ret;
	}
	control->received = 0;
	return ntohl(control->in.version) == PROTOCOL_VERSION ? 1 : -EPROTONOSUPPORT;
}

void control_refuse(struct control *control, uint64_t nonce, const char *text)
{
	if (control->fd < 0)
		return;
	control_put(control, nonce, FRAME_REFUSED, text,
		    strnlen(text, sizeof(control->out.body)));
	/* It fits the socket's buffer; a peer that does not get it sees the end. */
	control_send(control);
}

bool control_lost(const struct control *control)
{
	char byte;
	const ssize_t count = recv(control->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return !count || (count < 0 && errno != EAGAIN && errno != EINTR);
}
