/* SPDX-License-Identifier: MIT */
/* Carries out the engine's actions, with devices and carriers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sennit/card.h>

#include "conn/conn.h"
#include "conn/plain.h"
#include "util/err.h"
#include "vqp/cause.h"
#include "vqp/failure.h"
#include "vqp/view.h"

#define MS_NS UINT64_C(1000000)
/* The interval of checks for unacknowledged WRs. */
#define DRAIN_NS MS_NS
/* The part of the setup time that one round of trials may take. */
#define PROBE_SHARE 4
/* 17 ms: busy hosts get half a second, even with a shorter detection time; 134 ms:
 * longer retransmission timeouts would make the setup slow. */
#define PROBE_TIMEOUT_MIN 12
#define PROBE_TIMEOUT_MAX 15
#define LANE_TRIES	  8
#define PLAIN_CAUSE_NS	  (100 * MS_NS)
#define LANE_TIMEOUT_MAX  18

void snt__conn_fail(struct snt_conn *conn, enum snt__end_code code, int error,
		    const char *text)
{
	snt__handshake_end(&conn->hs, code, error, text, NULL, 0);
}

static void note_event(struct snt_conn *conn, enum snt_conn_event event)
{
	conn->events |= (uint8_t)(1u << event);
	snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
}

/* The longest ACK timeout within that time. */
static uint8_t timeout_within(uint64_t each_ns, uint8_t max)
{
	uint8_t timeout = 1;

	while (timeout < max && (UINT64_C(4096) << (timeout + 1)) <= each_ns)
		timeout++;
	return timeout;
}

/*
 * The ACK timeout with which lanes give up an unresponsive peer, within seven eighths
 * of the detection time: eight tries, each of which InfiniBand allows to take four
 * times the timeout. At most a second, since this is also the delay of a
 * retransmission.
 */
static uint8_t lane_timeout(uint64_t detect_ns)
{
	return timeout_within(detect_ns * 7 / 8 / (LANE_TRIES * 4), LANE_TIMEOUT_MAX);
}

/*
 * For QPs that try pairs. When they give up does not matter afterwards, because pings
 * have a timeout of their own; so they are at least as patient as lanes, for peers that
 * are busy. A lost ping is sent again within half of the time in which an answer has to
 * come.
 */
static uint8_t probe_qp_timeout(uint64_t detect_ns)
{
	uint8_t patient = timeout_within(detect_ns * 5 / 16 / 4, PROBE_TIMEOUT_MAX);
	uint8_t lane = lane_timeout(detect_ns);
	uint8_t timeout = patient > lane ? patient : lane;

	return timeout > PROBE_TIMEOUT_MIN ? timeout : PROBE_TIMEOUT_MIN;
}

/*
 * Trials
 */

static void connect_probe_qps(struct snt_conn *conn)
{
	struct snt__handshake *hs = &conn->hs;
	int ret = snt__probing_connect(conn->probing, &hs->theirs, &hs->peer_probe,
				       conn->setup_ns / PROBE_SHARE);

	if (ret)
		snt__conn_fail(conn, SNT__END_FAILED, ret, snt_err_text());
}

void snt__conn_probe(struct snt_conn *conn)
{
	struct snt__probe_qp probe_qps[SNT__PAIRS_MAX] = { 0 };
	struct snt_qp_opts like = conn->qp_opts;
	int ret;

	if (snt__handshake_over(&conn->hs))
		return;
	like.timeout = probe_qp_timeout(snt__handshake_detect_ns(&conn->hs));
	ret = snt__probing_begin(conn->conn_loop, conn, conn->hs.connects, &like,
				 &conn->hs.probe, probe_qps, &conn->probing);
	if (ret) {
		snt__conn_fail(conn, SNT__END_RESOURCES, ret, snt_err_text());
		return;
	}
	snt__handshake_probe_qps(&conn->hs, probe_qps);
	if (!conn->hs.connects)
		connect_probe_qps(conn);
}

void snt__conn_may_probe(struct snt__link *waiting)
{
	struct snt_conn *conn =
		snt__container(waiting->next, struct snt_conn, in_waiting);

	snt__unlink(&conn->in_waiting);
	conn->due |= SNT__CONN_DUE_PROBE;
	snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
}

/* Limited, because a storm of connections would need several times as many QPs as the
 * connections themselves. */
static void probe_qp(struct snt_conn *conn)
{
	snt__probing_close(conn->probing);
	conn->probing = NULL;
	if (snt__probing_may_begin(conn->conn_loop, conn->hs.connects))
		snt__conn_probe(conn);
	else
		snt__list_append(&conn->conn_loop->probe_waiting[conn->hs.connects],
				 &conn->in_waiting);
}

/* Called from inside the probing, which must not be closed here. */
void snt__conn_probed(struct snt_conn *conn, const uint8_t *verdict)
{
	snt__handshake_probed(&conn->hs, verdict);
	snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
}

/*
 * The QP
 */

static void qp_broke(void *arg)
{
	struct snt_conn *conn = arg;

	snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
}

/* The options of a QP by the plan; @devices: room for the devices of its lanes. */
static void plan_qp_opts(const struct snt_conn *conn, unsigned *devices,
			 struct snt_qp_opts *opts)
{
	const struct snt__plan *plan = &conn->hs.plan;

	*opts = conn->qp_opts;
	for (unsigned i = 0; i < plan->lane_count; i++)
		devices[i] = plan->lane[i].local;
	opts->lanes = plan->data_lanes;
	opts->devices = 0;
	opts->mtu = plan->mtu;
	opts->lane_devices = devices;
	if (plan->lane_count == plan->data_lanes) {
		opts->flags |= SNT_QP_PASS_THROUGH;
		opts->scheme = SNT_SCHEME_DEFAULT;
	} else if (conn->hs.ours.scheme == SNT_SCHEME_SPRAY) {
		opts->notify_lanes = plan->lane_count - plan->data_lanes;
	}
}

static int make_conn_qp(struct snt_conn *conn)
{
	unsigned devices[SNT_LANES_MAX];
	struct snt_qp_opts opts;
	uint64_t detect_ns = conn->detect_ns;
	int ret = 0;

	if (snt__conn_is_plain(conn)) {
		ret = snt__plain_qp_opts(conn, &opts);
	} else {
		plan_qp_opts(conn, devices, &opts);
		detect_ns = snt__handshake_detect_ns(&conn->hs);
	}
	if (ret)
		return ret;
	if (!opts.timeout)
		opts.timeout = lane_timeout(detect_ns);
	ret = snt_qp_create(conn->conn_loop->ctx, &opts, &conn->qp);
	if (ret)
		return ret;
	snt__qp_on_broken(conn->qp, qp_broke, conn);
	return 0;
}

static bool is_planned(const struct snt__plan *plan,
		       const struct snt__probe_qp *probe_qp)
{
	for (unsigned i = 0; i < plan->lane_count; i++)
		if (plan->lane[i].local == probe_qp->device &&
		    plan->lane[i].remote == probe_qp->remote)
			return true;
	return false;
}

/*
 * Where a carrier cannot ask the peer's device, the QPs that tried the pairs of the
 * lanes ask it, as far as the last round has them. Both ends keep the same ones.
 */
static void end_trials(struct snt_conn *conn)
{
	bool keep[SNT__PAIRS_MAX], any = false;

	for (unsigned i = 0; i < conn->hs.probe.count; i++) {
		keep[i] = is_planned(&conn->hs.plan, &conn->hs.probe.probe_qp[i]);
		any |= keep[i];
	}
	if (any && conn->probing && conn->carrier && !conn->carrier->table->ping) {
		snt__probing_keep(conn->probing, keep,
				  snt__handshake_detect_ns(&conn->hs));
		return;
	}
	snt__probing_close(conn->probing);
	conn->probing = NULL;
}

/* Called from inside the probing, like snt__conn_probed(). */
void snt__conn_silent(struct snt_conn *conn)
{
	snt__conn_lost(conn, -ETIMEDOUT, "its devices do not answer");
}

static void make_and_announce_qp(struct snt_conn *conn)
{
	int ret;

	end_trials(conn);
	ret = make_conn_qp(conn);
	if (ret)
		snt__conn_fail(conn, SNT__END_RESOURCES, ret, snt_err_text());
	else
		note_event(conn, SNT_CONN_PREPARE);
}

/* The program has had its turn. */
void snt__conn_prepared(struct snt_conn *conn)
{
	struct snt_card card;
	int ret;

	if (snt__handshake_over(&conn->hs))
		return;
	if (snt__conn_is_plain(conn)) {
		ret = snt__plain_prepared(conn);
		if (ret)
			snt__conn_fail(conn, SNT__END_FAILED, ret, snt_err_text());
		return;
	}
	ret = snt_qp_card(conn->qp, &card);
	if (!ret && !conn->hs.connects)
		ret = snt_qp_connect(conn->qp, &conn->hs.peer_card);
	if (ret)
		snt__conn_fail(conn, SNT__END_MISMATCH, ret, snt_err_text());
	else
		snt__handshake_card(&conn->hs, &card);
}

static void connect_conn_qp(struct snt_conn *conn)
{
	int ret = snt_qp_connect(conn->qp, &conn->hs.peer_card);

	if (ret)
		snt__conn_fail(conn, SNT__END_MISMATCH, ret, snt_err_text());
	else
		snt__handshake_connected(&conn->hs,
					 snt__conn_loop_now(conn->conn_loop));
}

static void bring_conn_up(struct snt_conn *conn)
{
	conn->took_ns = snt__conn_loop_now(conn->conn_loop) - conn->began_at;
	conn->carrier->table->detect(conn->carrier, 4 * conn->hs.ping_interval);
	note_event(conn, SNT_CONN_CONNECTED);
}

static void leave_if_drained(struct snt_conn *conn)
{
	if (conn->state != SNT__CONN_LEAVING || conn->hs.state != SNT__HS_UP ||
	    conn->hs.bye_sent || snt__qp_is_broken(conn->qp))
		return;
	if (!snt__qp_is_drained(conn->qp))
		return;
	if (snt__conn_is_plain(conn))
		snt__plain_disconnect(conn);
	else
		snt__handshake_bye(&conn->hs);
}

static void abort_if_late(struct snt_conn *conn)
{
	if (conn->state != SNT__CONN_LEAVING || conn->hs.state != SNT__HS_UP ||
	    snt__conn_loop_now(conn->conn_loop) < conn->leave_by)
		return;
	snt__conn_fail(conn, SNT__END_ABORTED, -ETIMEDOUT,
		       conn->hs.bye_sent
			       ? "timed out waiting for the peer to disconnect"
			       : "timed out disconnecting: posted WRs have not "
				 "completed");
}

/*
 * A QP that is broken
 */

/* How long an end whose WRs were only flushed waits for the peer to tell the cause; a plain one,
 * for its connection manager. */
static uint64_t cause_deadline(const struct snt_conn *conn)
{
	return conn->broken_at +
	       (snt__conn_is_plain(conn) ? PLAIN_CAUSE_NS : conn->hs.ping_interval);
}

/* The other lanes of a QP may go on when one fails; a QP without lanes is of no use. */
static void end_if_broken(struct snt_conn *conn)
{
	uint64_t now = snt__conn_loop_now(conn->conn_loop);
	char cause[SNT__CAUSE_TEXT], text[sizeof(conn->hs.text)];
	int error;

	if (conn->hs.state != SNT__HS_UP || !snt__qp_is_broken(conn->qp))
		return;
	if (!conn->broken_at)
		conn->broken_at = now;
	error = snt__cause_error(conn->qp);
	if (!error && now < cause_deadline(conn))
		return;
	snprintf(text, sizeof(text), "QP %u is broken: %s", snt_qp_num(conn->qp),
		 snt__cause_text(conn->qp, cause));
	snt__conn_fail(conn, SNT__END_FAILED, error ? error : -EIO, text);
}

/*
 * The whole step
 */

static void do_handshake_action(struct snt_conn *conn,
				enum snt__handshake_action action)
{
	switch (action) {
	case SNT__DO_ASK:
		snt__listener_request(conn);
		break;
	case SNT__DO_PROBE_QPS:
		probe_qp(conn);
		break;
	case SNT__DO_PROBE:
		connect_probe_qps(conn);
		break;
	case SNT__DO_MAKE:
		make_and_announce_qp(conn);
		break;
	case SNT__DO_CONNECT:
		connect_conn_qp(conn);
		break;
	case SNT__DO_UP:
		bring_conn_up(conn);
		break;
	case SNT__DO_LEAVE:
		note_event(conn, SNT_CONN_PEER_DONE);
		break;
	case SNT__DO_END:
		note_event(conn, SNT_CONN_OVER);
		break;
	case SNT__DO_NOTHING:
		break;
	}
}

/* A path that loses empty messages may lose a carrier's pings, too. */
static bool loses_empty(const struct snt_conn *conn)
{
	const struct snt__trials *trials = &conn->hs.trials;

	for (unsigned i = 0; i < trials->count; i++)
		if (trials->trial[i].ours == SNT__VERDICT_EMPTY ||
		    trials->trial[i].ours == SNT__VERDICT_UNHEARD ||
		    trials->trial[i].theirs == SNT__VERDICT_EMPTY)
			return true;
	return false;
}

static void send_handshake_messages(struct snt_conn *conn)
{
	uint8_t bytes[SNT__MESSAGE_MAX];
	bool last = snt__handshake_over(&conn->hs);

	if (conn->carrier && conn->carrier->table->ping && !loses_empty(conn) &&
	    snt__handshake_take_ping(&conn->hs))
		conn->carrier->table->ping(conn->carrier);
	if (conn->probing && snt__handshake_wants_ping(&conn->hs))
		snt__probing_ping(conn->probing);
	while (conn->carried && conn->carrier && snt__handshake_has_output(&conn->hs) &&
	       conn->carrier->table->has_room(conn->carrier, last)) {
		size_t length = snt__handshake_output(&conn->hs, bytes);

		conn->carrier->table->send(conn->carrier, bytes, length);
	}
}

/* A plain peer's confirmation may be lost; its first message is as good. */
static bool awaits_confirmation(const struct snt_conn *conn)
{
	return conn->hs.plain && !conn->hs.connects && conn->hs.state == SNT__HS_CARD;
}

static void set_handshake_timer(struct snt_conn *conn)
{
	uint64_t due = snt__handshake_due(&conn->hs);
	bool drains = conn->state == SNT__CONN_LEAVING &&
		      conn->hs.state == SNT__HS_UP && !conn->hs.bye_sent;

	drains |= awaits_confirmation(conn);
	if (snt__conn_is_idle(conn) || snt_op_pending(&conn->close_op))
		return;
	if (conn->state == SNT__CONN_LEAVING && conn->hs.state == SNT__HS_UP &&
	    due > conn->leave_by)
		due = conn->leave_by;
	if (conn->broken_at && conn->hs.state == SNT__HS_UP &&
	    due > cause_deadline(conn))
		due = cause_deadline(conn);
	if (drains && due > snt__conn_loop_now(conn->conn_loop) + DRAIN_NS)
		due = snt__conn_loop_now(conn->conn_loop) + DRAIN_NS;
	if (due == UINT64_MAX)
		snt_timer_stop(&conn->timer);
	else if (!conn->timer.loop || conn->timer.deadline_ns != due)
		snt_timer_start_at(conn->conn_loop->loop, &conn->timer, due);
}

void snt__conn_step(struct snt_conn *conn)
{
	enum snt__handshake_action action;

	if (awaits_confirmation(conn))
		snt__plain_notice_messages(conn);
	end_if_broken(conn);
	leave_if_drained(conn);
	abort_if_late(conn);
	while ((action = snt__handshake_action(&conn->hs)))
		do_handshake_action(conn, action);
	send_handshake_messages(conn);
	/* Only a connection that is over waits for nothing. */
	set_handshake_timer(conn);
}

/*
 * Calls from carriers
 */

void snt__conn_up(struct snt_conn *conn)
{
	conn->carried = true;
	conn->carrier->table->peer(conn->carrier, &conn->peer);
	snt__conn_step(conn);
}

void snt__conn_input(struct snt_conn *conn, const void *bytes, size_t length)
{
	snt__handshake_input(&conn->hs, bytes, length,
			     snt__conn_loop_now(conn->conn_loop));
	snt__conn_step(conn);
}

void snt__conn_writable(struct snt_conn *conn)
{
	snt__conn_step(conn);
}

/* The text names the peer that was lost. */
void snt__conn_lost(struct snt_conn *conn, int error, const char *text)
{
	const struct sockaddr *peer = (const struct sockaddr *)&conn->peer;
	char address[SNT__ADDRESS_TEXT], named[sizeof(conn->hs.text)];

	if (peer->sa_family == AF_UNSPEC)
		peer = (const struct sockaddr *)&conn->target;
	if (peer->sa_family != AF_UNSPEC) {
		snprintf(named, sizeof(named), "%s: %s",
			 snt__address_text(peer, address), text);
		text = named;
	}
	snt__handshake_lost(&conn->hs, error, text);
	snt__conn_loop_add_work(conn->conn_loop, &conn->worker);
}
