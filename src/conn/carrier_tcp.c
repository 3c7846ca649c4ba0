/* SPDX-License-Identifier: MIT */
/*
 * Messages on a TCP connection. A message's header contains its length, so that no
 * framing is needed. A peer's input is limited by reading one message at a time.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "conn/carrier.h"
#include "conn/feed.h"
#include "conn/message.h"
#include "util/err.h"

#define MS_NS UINT64_C(1000000)
/* How long the last message may take. */
#define LINGER_NS (500 * MS_NS)
/* How long a listener pauses when no connection can be accepted. */
#define PAUSE_NS (100 * MS_NS)
/* Messages that are read at once, before other work gets its turn. */
#define TURN 16

struct tcp {
	struct snt__carrier carrier;
	struct snt__watch watch;
	struct snt__socket socket;
	struct snt_timer timer; /* for the last message */
	struct snt__last_word last_word;
	struct snt__arrival arrival;
	bool connecting;
	bool broken;
	bool blocked; /* waits until the socket is writable */
	size_t in_length;
	size_t out_length, out_sent;
	uint8_t in[SNT__MESSAGE_MAX];
	uint8_t out[3 * SNT__MESSAGE_MAX]; /* room of one: for the last message */
};

static struct tcp *tcp_of(struct snt__carrier *carrier)
{
	return snt__container(carrier, struct tcp, carrier);
}

static void free_tcp_carrier(struct tcp *tcp)
{
	snt__socket_close(&tcp->socket);
	if (tcp->carrier.conn_loop)
		tcp->carrier.conn_loop->lingering--;
	free(tcp);
}

static void destroy_tcp_carrier(struct tcp *tcp)
{
	snt_timer_stop(&tcp->timer);
	snt__unlink(&tcp->last_word.link);
	snt__conn_loop_unwatch(tcp->carrier.conn_loop, &tcp->watch);
	free_tcp_carrier(tcp);
}

/* The connection has failed. False: it has been freed. */
static bool break_tcp_carrier(struct tcp *tcp, int error, const char *text)
{
	struct snt_conn *conn = tcp->carrier.conn;

	if (!conn) {
		destroy_tcp_carrier(tcp);
		return false;
	}
	if (tcp->broken)
		return true;
	tcp->broken = true;
	snt__conn_loop_rewatch(tcp->carrier.conn_loop, &tcp->watch, 0);
	snt__conn_lost(conn, error, text);
	return true;
}

static void watch_for(struct tcp *tcp, bool writable)
{
	if (tcp->blocked == writable)
		return;
	tcp->blocked = writable;
	snt__conn_loop_rewatch(tcp->carrier.conn_loop, &tcp->watch,
			       EPOLLIN | (writable ? EPOLLOUT : 0));
}

/* False: it has been freed. */
static bool flush_output(struct tcp *tcp)
{
	while (tcp->out_sent < tcp->out_length) {
		ssize_t sent = send(tcp->watch.fd, tcp->out + tcp->out_sent,
				    tcp->out_length - tcp->out_sent,
				    MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			watch_for(tcp, true);
			return true;
		}
		if (sent < 0)
			return break_tcp_carrier(tcp, -errno, strerror(errno));
		tcp->out_sent += (size_t)sent;
	}
	tcp->out_sent = tcp->out_length = 0;
	watch_for(tcp, false);
	return true;
}

static bool tcp_has_room(struct snt__carrier *carrier, bool last)
{
	const struct tcp *tcp = tcp_of(carrier);
	size_t kept = last ? 0 : SNT__MESSAGE_MAX;

	return !tcp->connecting && !tcp->broken &&
	       tcp->out_length + SNT__MESSAGE_MAX + kept <= sizeof(tcp->out);
}

/* False: it has been freed. */
static bool send_bytes(struct tcp *tcp, const void *bytes, size_t length)
{
	memcpy(tcp->out + tcp->out_length, bytes, length);
	tcp->out_length += length;
	return flush_output(tcp);
}

static void tcp_send(struct snt__carrier *carrier, const void *bytes, size_t length)
{
	send_bytes(tcp_of(carrier), bytes, length);
}

static void give_up_last_tcp_word(struct snt__last_word *word)
{
	destroy_tcp_carrier(snt__container(word, struct tcp, last_word));
}

static void end_patience_with_socket(struct snt_timer *timer)
{
	destroy_tcp_carrier(timer->arg);
}

static void tcp_close(struct snt__carrier *carrier)
{
	struct tcp *tcp = tcp_of(carrier);

	carrier->conn = NULL;
	if (tcp->broken || tcp->connecting || !tcp->out_length) {
		destroy_tcp_carrier(tcp);
		return;
	}
	tcp->timer.fired = end_patience_with_socket;
	tcp->timer.arg = tcp;
	/* The peer's messages no longer matter. */
	snt__conn_loop_rewatch(carrier->conn_loop, &tcp->watch, EPOLLOUT);
	tcp->last_word.give_up = give_up_last_tcp_word;
	snt__list_append(&carrier->conn_loop->last_words, &tcp->last_word.link);
	if (snt_timer_start(carrier->conn_loop->loop, &tcp->timer, LINGER_NS))
		destroy_tcp_carrier(tcp);
}

/* Unacknowledged PINGs end the connection in this time. */
static void tcp_detect(struct snt__carrier *carrier, uint64_t detect_ns)
{
	unsigned ms = (unsigned)(detect_ns * 3 / 4 / MS_NS);

	setsockopt(tcp_of(carrier)->watch.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms,
		   sizeof(ms));
}

static void tcp_peer(struct snt__carrier *carrier, struct sockaddr_storage *out)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	struct sockaddr_in four = { .sin_family = AF_INET };
	socklen_t size = sizeof(*out);

	if (getpeername(tcp_of(carrier)->watch.fd, (struct sockaddr *)out, &size)) {
		out->ss_family = AF_UNSPEC;
		return;
	}
	if (out->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		return;
	/* An IPv4 peer of a socket for both families. */
	four.sin_port = six->sin6_port;
	memcpy(&four.sin_addr, &six->sin6_addr.s6_addr[12], sizeof(four.sin_addr));
	memset(out, 0, sizeof(*out));
	memcpy(out, &four, sizeof(four));
}

static const struct snt__carrier_table table = {
	.name = "TCP",
	.has_room = tcp_has_room,
	.send = tcp_send,
	.close = tcp_close,
	.detect = tcp_detect,
	.peer = tcp_peer,
};

/*
 * Input
 */

/* How many bytes are missing from the message that is being read; 0: it is complete;
 * -1: it is malformed. */
static ssize_t missing_bytes(const struct tcp *tcp)
{
	struct snt__header header;

	if (tcp->in_length < SNT__HEADER_SIZE)
		return (ssize_t)(SNT__HEADER_SIZE - tcp->in_length);
	if (snt__header_unpack(tcp->in, tcp->in_length, &header))
		return -1;
	return (ssize_t)(snt__message_size(&header) - tcp->in_length);
}

/* False: nothing more for now. */
static bool read_bytes(struct tcp *tcp, size_t length)
{
	ssize_t got =
		recv(tcp->watch.fd, tcp->in + tcp->in_length, length, MSG_DONTWAIT);

	if (got > 0) {
		tcp->in_length += (size_t)got;
		return true;
	}
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return false;
	if (got < 0)
		break_tcp_carrier(tcp, -errno, strerror(errno));
	else
		break_tcp_carrier(tcp, -ECONNRESET, "it has closed the TCP connection");
	return false;
}

static void read_messages(struct tcp *tcp)
{
	for (unsigned taken = 0; taken < TURN && !tcp->broken;) {
		ssize_t length = missing_bytes(tcp);

		if (length < 0) {
			/* Not a peer of this protocol; the engine reports that. */
			snt__conn_input(tcp->carrier.conn, tcp->in, tcp->in_length);
			break_tcp_carrier(tcp, -EPROTO,
					  "it does not speak sennit's protocol");
			return;
		}
		if (length && !read_bytes(tcp, (size_t)length))
			return;
		if (missing_bytes(tcp))
			continue;
		snt__conn_input(tcp->carrier.conn, tcp->in, tcp->in_length);
		tcp->in_length = 0;
		taken++;
	}
}

static bool finish_connecting(struct tcp *tcp)
{
	int error = 0;
	socklen_t size = sizeof(error);

	getsockopt(tcp->watch.fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error)
		return break_tcp_carrier(tcp, -error, strerror(error)) && false;
	tcp->connecting = false;
	tcp->blocked = true;
	watch_for(tcp, false);
	snt__conn_up(tcp->carrier.conn);
	return true;
}

static void tcp_ready(struct snt__watch *watch, uint32_t events)
{
	struct tcp *tcp = snt__container(watch, struct tcp, watch);

	if (tcp->broken) {
		/* Errors are reported whether they are asked for or not. */
		snt__conn_loop_unwatch(tcp->carrier.conn_loop, watch);
		return;
	}
	if (tcp->connecting && !finish_connecting(tcp))
		return;
	if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP) && tcp->out_length &&
	    !flush_output(tcp))
		return;
	if (!tcp->carrier.conn) {
		if (!tcp->out_length)
			destroy_tcp_carrier(tcp);
		return;
	}
	if (events & EPOLLOUT)
		snt__conn_writable(tcp->carrier.conn);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		read_messages(tcp);
}

/*
 * Creation
 */

/* Takes the socket, with forks held up; closes it on failure. It is not yet in a
 * loop. */
static int make_tcp_carrier(int fd, struct tcp **tcp_out)
{
	struct tcp *tcp = calloc(1, sizeof(*tcp));
	int one = 1;

	if (!tcp) {
		close(fd);
		return snt__fail(ENOMEM, "no memory for a TCP connection");
	}
	snt__socket_add(&tcp->socket, fd);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	tcp->carrier.table = &table;
	tcp->watch = (struct snt__watch){ .fd = fd, .ready = tcp_ready };
	*tcp_out = tcp;
	return 0;
}

static int join_conn_loop(struct tcp *tcp, struct snt__conn_loop *conn_loop,
			  uint32_t events)
{
	tcp->carrier.conn_loop = conn_loop;
	conn_loop->lingering++;
	return snt__conn_loop_watch(conn_loop, &tcp->watch, events);
}

static int open_connecting_socket(const struct sockaddr *source,
				  const struct sockaddr *target, int *fd_out)
{
	int fd = socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);
	char text[SNT__ADDRESS_TEXT];
	int ret;

	if (fd < 0)
		return snt__fail(errno, "no TCP socket: %s", strerror(errno));
	if (source && bind(fd, source, snt__address_size(source))) {
		ret = snt__fail(errno, "the source address %s cannot be used: %s",
				snt__address_text(source, text), strerror(errno));
		close(fd);
		return ret;
	}
	if (connect(fd, target, snt__address_size(target)) && errno != EINPROGRESS) {
		ret = snt__fail(errno, "no TCP connection to %s: %s",
				snt__address_text(target, text), strerror(errno));
		close(fd);
		return ret;
	}
	*fd_out = fd;
	return 0;
}

int snt__tcp_connect(struct snt__conn_loop *conn_loop, const struct sockaddr *source,
		     const struct sockaddr *target, struct snt_conn *conn,
		     struct snt__carrier **carrier_out)
{
	struct tcp *tcp = NULL;
	int fd = -1, ret;

	snt__fork_hold();
	ret = open_connecting_socket(source, target, &fd);
	if (!ret)
		ret = make_tcp_carrier(fd, &tcp);
	snt__fork_release();
	if (ret)
		return ret;
	tcp->connecting = true;
	tcp->carrier.conn = conn;
	ret = join_conn_loop(tcp, conn_loop, EPOLLOUT);
	if (ret) {
		free_tcp_carrier(tcp);
		return ret;
	}
	*carrier_out = &tcp->carrier;
	return 0;
}

/*
 * Listening
 */

struct acceptor {
	struct snt__acceptor acceptor;
	struct snt__watch watch;
	struct snt__socket socket;
	struct snt_timer timer; /* runs while it does not listen */
};

/* -1: none waits, or errno says why it cannot be accepted. *tcp_out is NULL if there is
 * no memory for it. */
static int accept_one(struct acceptor *acceptor, struct tcp **tcp_out)
{
	int fd;

	*tcp_out = NULL;
	snt__fork_hold();
	fd = accept4(acceptor->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		make_tcp_carrier(fd, tcp_out);
	snt__fork_release();
	return fd;
}

static void refuse_connection(struct tcp *tcp, enum snt__end_code code,
			      const char *text)
{
	uint8_t word[SNT__LAST_WORD_MAX];
	size_t length = snt__last_word(code, text, word);

	if (send_bytes(tcp, word, length))
		tcp_close(&tcp->carrier);
}

/* Without a listener it is refused. */
static void take_one(struct snt__conn_loop *conn_loop, struct snt_listener *listener,
		     struct tcp *tcp)
{
	if (join_conn_loop(tcp, conn_loop, EPOLLIN)) {
		free_tcp_carrier(tcp);
		return;
	}
	if (!listener) {
		refuse_connection(tcp, SNT__END_REFUSED, "the listener is closed");
		return;
	}
	tcp->carrier.conn = snt__listener_heard(listener, &tcp->carrier);
	if (tcp->carrier.conn)
		snt__conn_up(tcp->carrier.conn);
	else
		refuse_connection(tcp, SNT__END_RESOURCES,
				  "there are too many connections");
}

/* In the loop of the listener that it was dealt to. */
static void take_arrival(struct snt__arrival *arrival, struct snt__conn_loop *conn_loop,
			 struct snt_listener *listener)
{
	take_one(conn_loop, listener, snt__container(arrival, struct tcp, arrival));
}

static void listen_again(struct snt_timer *timer)
{
	struct acceptor *acceptor = timer->arg;

	snt__conn_loop_rewatch(acceptor->acceptor.conn_loop, &acceptor->watch, EPOLLIN);
}

/* The process has no more fds, or no more memory: peers in the backlog would make the
 * fd readable all the time. */
static void pause_acceptor(struct acceptor *acceptor)
{
	snt__log(&acceptor->acceptor.conn_loop->ctx->log, SNT_LOG_WARN,
		 "port %u: connections cannot be accepted: %s",
		 snt__address_port((struct sockaddr *)&acceptor->acceptor.bound),
		 strerror(errno));
	acceptor->timer.fired = listen_again;
	acceptor->timer.arg = acceptor;
	if (!snt_timer_start(acceptor->acceptor.conn_loop->loop, &acceptor->timer,
			     PAUSE_NS))
		snt__conn_loop_rewatch(acceptor->acceptor.conn_loop, &acceptor->watch,
				       0);
}

static void acceptor_ready(struct snt__watch *watch, uint32_t events)
{
	struct acceptor *acceptor = snt__container(watch, struct acceptor, watch);
	struct tcp *tcp;
	int fd;

	(void)events;
	for (unsigned i = 0; i < TURN; i++) {
		fd = accept_one(acceptor, &tcp);
		if (fd < 0)
			break;
		if (!tcp)
			continue;
		tcp->arrival.take = take_arrival;
		if (!snt__feed_give(snt__listener_member(acceptor->acceptor.listener),
				    &tcp->arrival))
			take_one(acceptor->acceptor.conn_loop,
				 acceptor->acceptor.listener, tcp);
	}
	if (fd < 0 &&
	    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
		pause_acceptor(acceptor);
}

static void tcp_acceptor_close(struct snt__acceptor *base)
{
	struct acceptor *acceptor = snt__container(base, struct acceptor, acceptor);

	snt_timer_stop(&acceptor->timer);
	snt__conn_loop_unwatch(base->conn_loop, &acceptor->watch);
	snt__socket_close(&acceptor->socket);
	free(acceptor);
}

static const struct snt__acceptor_table acceptor_table = { .close =
								   tcp_acceptor_close };

/* With forks held up. */
static int open_acceptor(const struct sockaddr *address, unsigned backlog,
			 struct acceptor *acceptor)
{
	struct sockaddr *bound = (struct sockaddr *)&acceptor->acceptor.bound;
	socklen_t size = sizeof(acceptor->acceptor.bound);
	char text[SNT__ADDRESS_TEXT];
	int one = 1, none = 0, ret;
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);

	if (fd < 0)
		return snt__fail(errno, "no TCP socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (address->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof(none));
	if (bind(fd, address, snt__address_size(address)) || listen(fd, (int)backlog) ||
	    getsockname(fd, bound, &size)) {
		ret = snt__fail(errno, "TCP cannot listen on %s: %s",
				snt__address_text(address, text), strerror(errno));
		close(fd);
		return ret;
	}
	snt__socket_add(&acceptor->socket, fd);
	acceptor->watch = (struct snt__watch){ .fd = fd, .ready = acceptor_ready };
	return 0;
}

int snt__tcp_listen(struct snt__conn_loop *conn_loop, const struct sockaddr *address,
		    unsigned backlog, struct snt_listener *listener,
		    struct snt__acceptor **acceptor_out)
{
	struct acceptor *acceptor = calloc(1, sizeof(*acceptor));
	int ret;

	if (!acceptor)
		return snt__fail(ENOMEM, "no memory for a listener");
	acceptor->acceptor = (struct snt__acceptor){ .table = &acceptor_table,
						     .conn_loop = conn_loop,
						     .listener = listener };
	snt__fork_hold();
	ret = open_acceptor(address, backlog, acceptor);
	snt__fork_release();
	if (ret)
		goto err_free;
	ret = snt__conn_loop_watch(conn_loop, &acceptor->watch, EPOLLIN);
	if (ret)
		goto err_close;
	*acceptor_out = &acceptor->acceptor;
	return 0;

err_close:
	snt__socket_close(&acceptor->socket);
err_free:
	free(acceptor);
	return ret;
}
