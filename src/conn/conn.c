/* SPDX-License-Identifier: MIT */
/* Connections as the program sees them. */
#include "conn/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "conn/carrier_cm.h"
#include "conn/feed.h"
#include "conn/plain.h"
#include "util/assert.h"
#include "util/err.h"
#include "util/opts.h"
#include "vqp/close.h"
#include "vqp/view.h"

#define MS_NS	       UINT64_C(1000000)
#define BACK_OFF_FIRST (10 * MS_NS)
#define BACK_OFF_MAX   (10000 * MS_NS)
#define ADDRESSES_MAX  4
#define POLL_NS	       MS_NS
#define LOST_POLL_NS   (10 * MS_NS)

void snt__conn_enter(struct snt_conn *conn, enum snt__conn_state state)
{
#define TO(state) (1u << SNT__CONN_##state)
	static const uint8_t legal[SNT__CONN_STATES] = {
		[SNT__CONN_ATTEMPT] = TO(ESTABLISHED) | TO(LEAVING) | TO(AWAITING) |
				      TO(PAUSING) | TO(OVER),
		[SNT__CONN_ESTABLISHED] = TO(LEAVING) | TO(PAUSING) | TO(OVER),
		[SNT__CONN_LEAVING] = TO(OVER),
		[SNT__CONN_AWAITING] = TO(ATTEMPT) | TO(PAUSING) | TO(OVER),
		[SNT__CONN_PAUSING] = TO(ATTEMPT) | TO(OVER),
	};
#undef TO

	snt__assert(legal[conn->state] >> state & 1);
	conn->state = (uint8_t)state;
}

/*
 * The end of an attempt
 */

static void on_conn_qp_closed(struct snt_op *op)
{
	struct snt_conn *conn = op->arg;

	conn->events |= 1u << SNT_CONN_OVER;
	snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
}

/* No completion will report that the QP is closed. */
static void end_lost_close(struct snt_conn *conn)
{
	if (snt_op_pending(&conn->close_op) && snt__qp_is_lost(conn->qp))
		snt_op_cancel(&conn->close_op, SNT_CANCEL_DETACH);
}

static void close_conn_qp(struct snt_conn *conn)
{
	if (!conn->qp || !snt__qp_is_connected(conn->qp) || conn->qp_closing)
		return;
	conn->qp_closing = true;
	conn->close_op.done = on_conn_qp_closed;
	conn->close_op.arg = conn;
	if (snt__cq_has_ops(snt__qp_cq(conn->qp, SNT__QUEUE_SEND)))
		snt_op_close(conn->qp, &conn->close_op);
	else
		snt_qp_close(conn->qp, conn->close_wr_id);
}

static void close_carrier(struct snt_conn *conn)
{
	if (!conn->carrier)
		return;
	conn->carrier->table->close(conn->carrier);
	conn->carrier = NULL;
	conn->carried = false;
}

static void drop_lookup(struct snt_conn *conn)
{
	if (!conn->lookup)
		return;
	snt__conn_loop_unwatch(conn->conn_loop, &conn->lookup_watch);
	snt__lookup_drop(conn->lookup);
	conn->lookup = NULL;
}

/* Releases everything but the QP, which is told to end. */
void snt__conn_shut(struct snt_conn *conn)
{
	snt__unlink(&conn->in_waiting);
	drop_lookup(conn);
	close_carrier(conn);
	snt__probing_close(conn->probing);
	conn->probing = NULL;
	close_conn_qp(conn);
}

int snt__conn_drop_qp(struct snt_conn *conn)
{
	int ret = snt_qp_destroy(conn->qp);

	if (ret)
		return ret;
	conn->qp = NULL;
	conn->qp_closing = false;
	conn->broken_at = 0;
	return 0;
}

/* Can another attempt succeed? */
static bool may_retry(const struct snt_conn *conn)
{
	if (conn->state == SNT__CONN_LEAVING)
		return false;
	/* A new connection has a new QP. */
	if (conn->state == SNT__CONN_ESTABLISHED &&
	    conn->hs.end.code == SNT__END_FAILED)
		return true;
	switch (conn->hs.error) {
	case -ECONNREFUSED:
		return !conn->hs.by_peer;
	case -EBUSY:
	case -ECONNRESET:
	case -EHOSTDOWN:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -EPIPE:
	case -ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

static uint64_t back_off(const struct snt_conn *conn)
{
	uint64_t delay = BACK_OFF_FIRST;
	uint32_t chance = 0;

	for (uint32_t i = 1; i < conn->attempts && delay < BACK_OFF_MAX; i++)
		delay *= 2;
	if (delay > BACK_OFF_MAX)
		delay = BACK_OFF_MAX;
	if (snt__ctx_random(conn->conn_loop->ctx, &chance, sizeof(chance)))
		chance = 0;
	return delay - delay / 2 * (chance % 1024) / 1024;
}

static void try_later(struct snt_conn *conn)
{
	snt__conn_enter(conn, SNT__CONN_PAUSING);
	conn->retries--;
	snt_timer_start(conn->conn_loop->loop, &conn->timer, back_off(conn));
}

/* The last attempt ended before, for another reason, and there is no peer to tell. */
static void end_without_attempt(struct snt_conn *conn, int error, const char *text)
{
	snt_timer_stop(&conn->timer);
	conn->hs.error = error;
	conn->hs.by_peer = false;
	snprintf(conn->hs.text, sizeof(conn->hs.text), "%s", text);
	conn->events |= 1u << SNT_CONN_OVER;
	snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
}

static int start_attempt(struct snt_conn *conn);

/* The QP of the last attempt must be destroyed first, which may need the program's
 * polling. */
static void try_connecting_again(struct snt_conn *conn)
{
	int ret;

	if (conn->qp && !snt__qp_is_over(conn->qp)) {
		snt_timer_start(conn->conn_loop->loop, &conn->timer, POLL_NS);
		return;
	}
	snt__conn_enter(conn, SNT__CONN_ATTEMPT);
	ret = snt__conn_drop_qp(conn);
	if (!ret)
		ret = start_attempt(conn);
	if (!ret)
		return;
	snt__conn_fail(conn, SNT__END_FAILED, ret, snt_err_text());
	end_without_attempt(conn, ret, snt_err_text());
}

/*
 * Reports to the program
 */

static int call_program(struct snt_conn *conn, enum snt_conn_event event)
{
	if (!conn->event || !conn->programs)
		return 0;
	conn->event(conn->arg, conn, event);
	return 1;
}

/* on_conn_qp_closed() comes back to tell_over(). Nothing reports that a CQ can no longer be
 * polled. */
static void await_qp_closed(struct snt_conn *conn)
{
	end_lost_close(conn);
	snt_timer_start(conn->conn_loop->loop, &conn->timer, LOST_POLL_NS);
}

static int tell_over(struct snt_conn *conn)
{
	snt__conn_shut(conn);
	if (snt_op_pending(&conn->close_op)) {
		await_qp_closed(conn);
		return 0;
	}
	if (!conn->programs || snt__linked(&conn->in_requests)) {
		snt__conn_free(conn);
		return 0;
	}
	if (snt__simultaneous_awaits(conn))
		return 0;
	if (conn->retries && may_retry(conn)) {
		try_later(conn);
		return call_program(conn, SNT_CONN_RETRYING);
	}
	snt_timer_stop(&conn->timer);
	snt__listener_forget(conn);
	snt__unlink(&conn->in_meetings);
	snt__conn_enter(conn, SNT__CONN_OVER);
	return call_program(conn, SNT_CONN_OVER);
}

/* Reports the next event to the program. Comes last, since the program may destroy the
 * connection. */
static int report_next_event(struct snt_conn *conn)
{
	unsigned event;

	if (!conn->events)
		return 0;
	event = (unsigned)__builtin_ctz(conn->events);
	conn->events &= (uint8_t)(conn->events - 1);
	if (event == SNT_CONN_PREPARE)
		conn->due |= SNT__CONN_DUE_PREPARED;
	if (conn->events || conn->due)
		snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
	switch (event) {
	case SNT__CONN_REQUEST:
		return snt__listener_tell(conn);
	case SNT_CONN_CONNECTED:
		if (conn->state == SNT__CONN_ATTEMPT)
			snt__conn_enter(conn, SNT__CONN_ESTABLISHED);
		return call_program(conn, SNT_CONN_CONNECTED);
	case SNT_CONN_PEER_DONE:
		if (!conn->event)
			snt_conn_disconnect(conn, 0);
		return call_program(conn, SNT_CONN_PEER_DONE);
	case SNT_CONN_OVER:
		return tell_over(conn);
	default:
		return call_program(conn, (enum snt_conn_event)event);
	}
}

static int work_on_conn(struct snt__worker *worker)
{
	struct snt_conn *conn = snt__container(worker, struct snt_conn, worker);

	uint8_t due = conn->due;

	conn->due = 0;
	if (due & SNT__CONN_DUE_MEET && snt__simultaneous_open(conn))
		return 0;
	if (due & SNT__CONN_DUE_PROBE)
		snt__conn_probe(conn);
	if (due & SNT__CONN_DUE_PREPARED)
		snt__conn_prepared(conn);
	snt__conn_step(conn);
	return report_next_event(conn);
}

/* From now on the timer is that of the setup. */
static void look_no_longer(struct snt_conn *conn)
{
	char text[sizeof(conn->hs.text)];

	snprintf(text, sizeof(text), "timed out resolving the host \"%s\"", conn->host);
	snt__conn_fail(conn, SNT__END_TIMEOUT, -ETIMEDOUT, text);
}

static void timer_fired(struct snt_timer *timer)
{
	struct snt_conn *conn = timer->arg;

	if (snt_op_pending(&conn->close_op)) {
		await_qp_closed(conn);
		return;
	}
	if (conn->state == SNT__CONN_PAUSING) {
		try_connecting_again(conn);
		return;
	}
	if (conn->state == SNT__CONN_AWAITING) {
		end_without_attempt(conn, -ETIMEDOUT,
				    "timed out waiting for the other end's attempt, "
				    "which is the one that counts");
		return;
	}
	if (conn->lookup)
		look_no_longer(conn);
	else
		snt__handshake_timer(&conn->hs, snt__conn_loop_now(conn->conn_loop));
	snt__conn_step(conn);
}

/*
 * Creation and destruction
 */

int snt__conn_make(struct snt__conn_loop *conn_loop,
		   const struct snt_endpoint *endpoint, struct snt_conn **conn_out)
{
	struct snt_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return snt__fail(ENOMEM, "no memory for a connection");
	conn->conn_loop = conn_loop;
	conn->worker.work = work_on_conn;
	conn->timer.fired = timer_fired;
	conn->timer.arg = conn;
	conn->setup_ns = endpoint->setup_ns;
	conn->detect_ns = endpoint->detect_ns;
	conn->carrier_kind = endpoint->carrier;
	conn->secret_length = endpoint->secret_length;
	if (endpoint->secret)
		memcpy(conn->secret, endpoint->secret, endpoint->secret_length);
	conn->peer.ss_family = AF_UNSPEC;
	*conn_out = conn;
	return 0;
}

void snt__conn_free(struct snt_conn *conn)
{
	snt__conn_loop_waiters_end(conn->waiter);
	snt__listener_forget(conn);
	drop_lookup(conn);
	free(conn->host);
	close_carrier(conn);
	snt__probing_close(conn->probing);
	snt_timer_stop(&conn->timer);
	snt__unlink(&conn->in_waiting);
	snt__unlink(&conn->in_meetings);
	snt__unlink(&conn->worker.link);
	conn->conn_loop->users -= conn->programs;
	explicit_bzero(conn, sizeof(*conn));
	free(conn);
}

/* The engine starts over. */
static int begin_handshake(struct snt_conn *conn)
{
	uint8_t nonce[SNT__NONCE_SIZE];
	int ret;

	if (snt__conn_is_plain(conn)) {
		snt__handshake_init_plain(&conn->hs, true, snt__conn_deadline(conn));
		conn->hs.ours = conn->offer;
		return 0;
	}
	ret = snt__conn_loop_random(conn->conn_loop, nonce, sizeof(nonce));
	if (ret)
		return ret;
	snt__handshake_init(&conn->hs,
			    &(struct snt__handshake_opts){
				    .connects = true,
				    .identity = conn->conn_loop->identity,
				    .nonce = nonce,
				    .offer = &conn->offer,
				    .secret = conn->secret_length ? conn->secret : NULL,
				    .secret_length = conn->secret_length,
				    .deadline = snt__conn_deadline(conn),
			    });
	return 0;
}

static int start_conn_timer(struct snt_conn *conn)
{
	return snt_timer_start_at(conn->conn_loop->loop, &conn->timer,
				  snt__handshake_due(&conn->hs));
}

static int call_target(struct snt_conn *conn)
{
	const struct sockaddr *source = (struct sockaddr *)&conn->source;
	const struct sockaddr *target = (struct sockaddr *)&conn->target;
	int ret = begin_handshake(conn);

	if (ret)
		return ret;
	if (conn->source.ss_family == AF_UNSPEC)
		source = NULL;
	if (conn->carrier_kind == SNT_CARRIER_TCP)
		ret = snt__tcp_connect(conn->conn_loop, source, target, conn,
				       &conn->carrier);
	else if (snt__conn_is_plain(conn))
		ret = snt__plain_connect(conn->conn_loop, source, target, conn,
					 &conn->carrier);
	else
		ret = snt__cm_connect(conn->conn_loop, source, target,
				      conn->offer.detect_ms, conn, &conn->carrier);
	return ret ? ret : start_conn_timer(conn);
}

/* The first address that can be reached from here, as far as is known by now. */
static int call_any(struct snt_conn *conn, const struct sockaddr_storage *found,
		    int count)
{
	int ret = -EINVAL;

	for (int i = 0; i < count; i++) {
		conn->target = found[i];
		ret = call_target(conn);
		if (ret != -ENETUNREACH && ret != -EADDRNOTAVAIL &&
		    ret != -EAFNOSUPPORT)
			break;
	}
	return ret;
}

static void looked_up(struct snt__watch *watch, uint32_t events)
{
	struct snt_conn *conn = snt__container(watch, struct snt_conn, lookup_watch);
	struct sockaddr_storage found[ADDRESSES_MAX];
	int ret = snt__lookup_result(conn->lookup, found, ADDRESSES_MAX);

	(void)events;
	drop_lookup(conn);
	if (ret > 0)
		ret = call_any(conn, found, ret);
	if (!ret)
		return;
	conn->target.ss_family = AF_UNSPEC;
	snt__conn_fail(conn, SNT__END_FAILED, ret, snt_err_text());
	conn->hs.error = ret;
	snt__conn_step(conn);
}

static int look_up_host(struct snt_conn *conn)
{
	int ret = begin_handshake(conn);

	if (!ret)
		ret = snt__lookup_start(conn->host, conn->port, &conn->lookup);
	if (ret)
		return ret;
	conn->lookup_watch = (struct snt__watch){ .fd = snt__lookup_fd(conn->lookup),
						  .ready = looked_up };
	ret = snt__conn_loop_watch(conn->conn_loop, &conn->lookup_watch, EPOLLIN);
	return ret ? ret : start_conn_timer(conn);
}

/* Starts an attempt. */
static int start_attempt(struct snt_conn *conn)
{
	conn->attempts++;
	conn->moment_count = 0;
	conn->began_at = snt__conn_loop_now(conn->conn_loop);
	return conn->target.ss_family == AF_UNSPEC ? look_up_host(conn)
						   : call_target(conn);
}

static int start_at(struct snt_conn *conn, const char *host, uint16_t port)
{
	struct sockaddr_storage found[ADDRESSES_MAX];
	int count = snt__address_parse(host, port, found);

	conn->target.ss_family = AF_UNSPEC;
	if (count == -ENOENT) {
		conn->port = port;
		conn->host = strdup(host);
		return conn->host ? start_attempt(conn)
				  : snt__fail(ENOMEM, "no memory for a host's name");
	}
	conn->attempts++;
	conn->began_at = snt__conn_loop_now(conn->conn_loop);
	return count < 0 ? count : call_any(conn, found, count);
}

static int find_source_address(struct snt_conn *conn,
			       const struct snt_endpoint *endpoint)
{
	int ret;

	if (!endpoint->host)
		return snt__fail(EINVAL, "snt_endpoint.host is missing");
	if (!endpoint->port)
		return snt__fail(EINVAL,
				 "snt_endpoint.port is 0; which one does \"%s\" "
				 "listen on?",
				 endpoint->host);
	conn->source.ss_family = AF_UNSPEC;
	if (!endpoint->source)
		return 0;
	ret = snt__address_parse(endpoint->source, 0, &conn->source);
	if (ret == -ENOENT)
		return snt__fail(EINVAL,
				 "snt_endpoint.source \"%s\" is not a numeric address",
				 endpoint->source);
	return ret < 0 ? ret : 0;
}

/* The options that both ends have. */
static int take_conn_opts(struct snt_conn *conn, const struct snt_conn_opts *opts)
{
	int ret = snt__opts_import(&conn->qp_opts, sizeof(conn->qp_opts), opts->qp,
				   "struct snt_qp_opts");

	if (!ret)
		ret = snt__offer_make(conn->conn_loop, opts, &conn->qp_opts,
				      &conn->offer);
	if (!ret && snt__conn_is_plain(conn))
		ret = snt__plain_check_opts(opts, &conn->qp_opts, !conn->requested);
	if (ret)
		return ret;
	if (conn->single_passes)
		conn->offer.flags |= SNT_QP_PASS_THROUGH;
	conn->offer.detect_ms = (uint32_t)(conn->detect_ns / MS_NS);
	conn->event = opts->event;
	conn->arg = opts->arg;
	conn->close_wr_id = opts->close_wr_id;
	return 0;
}

static int take_meet(struct snt_conn *conn, struct snt_listener *meet)
{
	if (!meet)
		return 0;
	if (!conn->offer.name[0])
		return snt__fail(EINVAL,
				 "snt_conn_opts.meet needs snt_endpoint.name, the same "
				 "at both ends");
	if (snt__listener_conn_loop(meet) != conn->conn_loop ||
	    snt__feed_is_shared(snt__listener_member(meet)))
		return snt__fail(EINVAL, "snt_conn_opts.meet is in another loop, or "
					 "shares its port with other listeners");
	conn->meet = meet;
	conn->offer.meets = true;
	snt__list_append(&conn->conn_loop->meetings, &conn->in_meetings);
	return 0;
}

static int set_up_conn(struct snt_conn *conn, const struct snt_endpoint *endpoint,
		       const struct snt_conn_opts *opts)
{
	int ret = take_conn_opts(conn, opts);

	if (!ret)
		ret = find_source_address(conn, endpoint);
	if (!ret)
		ret = snt__endpoint_check_name(endpoint->name);
	if (!ret && snt__conn_is_plain(conn))
		ret = snt__plain_check_endpoint(endpoint);
	if (ret)
		return ret;
	if (endpoint->name)
		memcpy(conn->offer.name, endpoint->name, strlen(endpoint->name));
	conn->retries = opts->retries;
	ret = take_meet(conn, opts->meet);
	return ret ? ret : start_at(conn, endpoint->host, endpoint->port);
}

static int open_conn(struct snt_loop *loop, const struct snt_endpoint *user_endpoint,
		     const struct snt_conn_opts *user_opts, bool single_passes,
		     struct snt_conn **conn_out)
{
	struct snt_endpoint endpoint;
	struct snt_conn_opts opts;
	struct snt_conn *conn = NULL;
	struct snt__conn_loop *conn_loop;
	int ret = snt__endpoint_import(user_endpoint, &endpoint);

	if (!ret)
		ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				       "struct snt_conn_opts");
	if (!ret)
		ret = snt__conn_loop_get(loop, &conn_loop);
	if (!ret)
		ret = snt__conn_make(conn_loop, &endpoint, &conn);
	if (ret)
		return ret;
	conn->programs = true;
	conn->single_passes = single_passes;
	conn_loop->users++;
	ret = set_up_conn(conn, &endpoint, &opts);
	if (ret) {
		snt__conn_free(conn);
		return ret;
	}
	*conn_out = conn;
	return 0;
}

int snt_conn_connect(struct snt_loop *loop, const struct snt_endpoint *endpoint,
		     const struct snt_conn_opts *opts, struct snt_conn **conn_out)
{
	return open_conn(loop, endpoint, opts, false, conn_out);
}

int snt__conn_connect_stream(struct snt_loop *loop, const struct snt_endpoint *endpoint,
			     const struct snt_conn_opts *opts,
			     struct snt_conn **conn_out)
{
	return open_conn(loop, endpoint, opts, true, conn_out);
}

int snt_conn_accept(struct snt_conn *conn, const struct snt_conn_opts *user_opts)
{
	struct snt_conn_opts opts;
	int ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				   "struct snt_conn_opts");

	if (!ret)
		ret = snt__conn_loop_check(conn->conn_loop);
	if (ret)
		return ret;
	if (!conn->requested)
		return snt__fail(EALREADY,
				 "the connection was accepted or rejected before");
	if (snt__handshake_over(&conn->hs))
		return snt__fail(ENOTCONN, "the peer has gone: %s", conn->hs.text);
	ret = take_conn_opts(conn, &opts);
	if (!ret && snt__conn_is_plain(conn))
		ret = snt__plain_accept(conn);
	if (ret)
		return ret;
	conn->requested = false;
	snt__handshake_accept(&conn->hs, &conn->offer);
	snt__conn_step(conn);
	return 0;
}

int snt__conn_accept_stream(struct snt_conn *conn, const struct snt_conn_opts *opts)
{
	conn->single_passes = true;
	return snt_conn_accept(conn, opts);
}

int snt_conn_reject(struct snt_conn *conn, const char *text, const void *data,
		    size_t data_length)
{
	int ret = snt__conn_loop_check(conn->conn_loop);

	if (ret)
		return ret;
	if (!conn->requested)
		return snt__fail(EALREADY,
				 "the connection was accepted or rejected before");
	ret = snt__offer_check_data(data, data_length);
	if (!ret && snt__conn_is_plain(conn))
		ret = snt__plain_reject(conn, data, data_length);
	if (ret)
		return ret;
	snt__handshake_end(&conn->hs, SNT__END_REFUSED, -ECANCELED,
			   text ? text : "it is refused", data, data_length);
	snt__conn_step(conn);
	snt__conn_free(conn);
	return 0;
}

int snt_conn_disconnect(struct snt_conn *conn, int64_t timeout_ns)
{
	int ret = snt__conn_loop_check(conn->conn_loop);

	if (ret)
		return ret;
	if (conn->state == SNT__CONN_LEAVING)
		return snt__fail(EALREADY,
				 "the connection is being disconnected already");
	if (conn->hs.state != SNT__HS_UP)
		return snt__fail(ENOTCONN, "the connection is not established%s%s",
				 conn->hs.text[0] ? ": " : "", conn->hs.text);
	snt__conn_enter(conn, SNT__CONN_LEAVING);
	conn->leave_by = timeout_ns > 0 ? snt__conn_loop_now(conn->conn_loop) +
						  (uint64_t)timeout_ns
					: UINT64_MAX;
	snt__conn_step(conn);
	return 0;
}

int snt_conn_abort(struct snt_conn *conn, const char *text)
{
	int ret = snt__conn_loop_check(conn->conn_loop);

	if (ret)
		return ret;
	if (conn->state == SNT__CONN_OVER)
		return snt__fail(ENOTCONN, "the connection is over already: %s",
				 conn->hs.text);
	conn->retries = 0;
	text = text ? text : "it is aborted";
	if (snt__conn_is_idle(conn)) {
		end_without_attempt(conn, -ECANCELED, text);
		return 0;
	}
	snt__handshake_end(&conn->hs, SNT__END_ABORTED, -ECANCELED, text, NULL, 0);
	snt__conn_step(conn);
	return 0;
}

/* No device may use it any more. */
static int release_qp(struct snt_conn *conn)
{
	if (!conn->qp)
		return 0;
	if (snt__qp_is_connected(conn->qp) && !conn->qp_closing)
		return snt__fail(EBUSY,
				 "the connection is not over; disconnect or abort it "
				 "before destroying it");
	if (snt_op_pending(&conn->close_op)) {
		end_lost_close(conn);
		return snt__fail(EBUSY,
				 "the connection's QP is being closed; dispatch");
	}
	return snt__conn_drop_qp(conn);
}

int snt_conn_destroy(struct snt_conn *conn)
{
	int ret;

	if (!conn)
		return 0;
	ret = snt__conn_loop_check(conn->conn_loop);
	if (!ret)
		ret = release_qp(conn);
	if (ret)
		return ret;
	if (conn->state != SNT__CONN_OVER && !snt__conn_is_idle(conn)) {
		snt__conn_fail(conn, SNT__END_ABORTED, -ECANCELED, "it is given up");
		snt__conn_step(conn);
	}
	snt__conn_free(conn);
	return 0;
}

struct snt_qp *snt_conn_qp(const struct snt_conn *conn)
{
	return conn->qp;
}

/*
 * Waiting
 */

static bool is_conn_over(const void *what)
{
	const struct snt_conn *conn = what;

	return conn->state == SNT__CONN_OVER;
}

static bool is_settled(const void *what)
{
	const struct snt_conn *conn = what;

	return conn->state == SNT__CONN_ESTABLISHED ||
	       conn->state == SNT__CONN_LEAVING || conn->state == SNT__CONN_OVER;
}

static int wait_until(struct snt_conn *conn, int64_t timeout_ns,
		      bool (*has_come)(const void *what))
{
	int ret = snt__conn_loop_wait(conn->conn_loop, &conn->waiter, has_come, conn,
				      timeout_ns);

	if (ret == -ETIME)
		return snt__fail(ETIME,
				 "timed out waiting for the connection, which goes on");
	if (!ret && is_conn_over(conn) && conn->hs.error)
		return snt__fail(-conn->hs.error, "%s", conn->hs.text);
	return ret;
}

int snt_conn_wait(struct snt_conn *conn, int64_t timeout_ns)
{
	return wait_until(conn, timeout_ns, is_settled);
}

int snt_conn_wait_over(struct snt_conn *conn, int64_t timeout_ns)
{
	return wait_until(conn, timeout_ns, is_conn_over);
}
