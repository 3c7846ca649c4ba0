/* SPDX-License-Identifier: MIT */
#include "conn/probing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/card.h>
#include <sennit/op.h>

#include "conn/ping.h"
#include "util/err.h"

/* Concurrent ones of a context that connects, or that accepts. */
#define PROBINGS_MAX 64
#define MESSAGES     3
#define SHORT_SIZE   64
#define BYTES_MAX    4096

struct probe_qp {
	struct snt__probing *owner;
	struct snt_qp *qp;
	uint8_t verdict; /* NONE: not known yet */
	uint8_t received;
	uint8_t sent;
	bool connected;
	bool spoken;
	struct snt_op recv[MESSAGES];
	struct snt_op send[MESSAGES];
	struct snt__ping ping;
	struct snt_op close;
};

struct snt__probing {
	struct snt__conn_loop *conn_loop;
	struct snt_conn *conn;	/* NULL: the result is no longer wanted */
	struct snt_timer timer; /* of trials */
	struct snt_mem *mem;
	/* The bytes that all send; then a receive buffer for each, since devices write
	 * at the same time. */
	uint8_t *bytes;
	uint16_t mtu;
	bool connects;
	bool closing;
	bool reported;
	bool has_turn;	    /* counts among those that may try at the same time */
	uint64_t detect_ns; /* of the QPs that are kept; 0: trials */
	unsigned ops;	    /* in flight */
	unsigned count;
	struct probe_qp probe_qp[];
};

bool snt__probing_may_begin(const struct snt__conn_loop *conn_loop, bool connects)
{
	return conn_loop->probings[connects] < PROBINGS_MAX;
}

static void give_turn(struct snt__probing *probing)
{
	struct snt__conn_loop *conn_loop = probing->conn_loop;
	bool connects = probing->connects;

	if (!probing->has_turn)
		return;
	probing->has_turn = false;
	conn_loop->probings[connects]--;
	if (!snt__list_empty(&conn_loop->probe_waiting[connects]))
		snt__conn_may_probe(&conn_loop->probe_waiting[connects]);
}

static void free_probing_if_done(struct snt__probing *probing)
{
	if (!probing->closing || probing->ops)
		return;
	for (unsigned i = 0; i < probing->count; i++)
		if (probing->probe_qp[i].qp)
			return;
	snt_timer_stop(&probing->timer);
	snt_mem_release(probing->mem);
	free(probing->bytes);
	give_turn(probing);
	probing->conn_loop->lingering--;
	free(probing);
}

/*
 * Verdicts
 */

static uint8_t verdict_so_far(const struct probe_qp *probe_qp)
{
	static const uint8_t verdicts[MESSAGES + 1] = {
		SNT__VERDICT_SILENT,
		SNT__VERDICT_MTU,
		SNT__VERDICT_EMPTY,
		SNT__VERDICT_UNHEARD,
	};

	if (probe_qp->received == MESSAGES && probe_qp->sent == MESSAGES)
		return SNT__VERDICT_GOOD;
	return verdicts[probe_qp->received];
}

static void report_if_all(struct snt__probing *probing)
{
	uint8_t verdict[SNT__PAIRS_MAX];

	if (probing->reported || !probing->conn)
		return;
	for (unsigned i = 0; i < probing->count; i++) {
		verdict[i] = probing->probe_qp[i].verdict;
		if (verdict[i] == SNT__VERDICT_NONE)
			return;
	}
	probing->reported = true;
	snt_timer_stop(&probing->timer);
	snt__conn_probed(probing->conn, verdict);
}

static void time_is_up(struct snt_timer *timer)
{
	struct snt__probing *probing = timer->arg;

	/* Completions that have arrived count. They may end the trials; the extra op
	 * keeps this alive. */
	probing->ops++;
	snt__conn_loop_take(probing->conn_loop);
	probing->ops--;
	if (probing->closing) {
		free_probing_if_done(probing);
		return;
	}
	for (unsigned i = 0; i < probing->count; i++)
		if (probing->probe_qp[i].verdict == SNT__VERDICT_NONE)
			probing->probe_qp[i].verdict =
				verdict_so_far(&probing->probe_qp[i]);
	report_if_all(probing);
}

static void settle_verdict(struct probe_qp *probe_qp, bool failed)
{
	if (probe_qp->verdict == SNT__VERDICT_NONE &&
	    (failed || verdict_so_far(probe_qp) == SNT__VERDICT_GOOD)) {
		probe_qp->verdict = verdict_so_far(probe_qp);
		report_if_all(probe_qp->owner);
	}
}

/*
 * Messages
 */

static void on_probe_sent(struct snt_op *op)
{
	struct probe_qp *probe_qp = op->arg;
	struct snt__probing *probing = probe_qp->owner;

	probing->ops--;
	if (!op->result)
		probe_qp->sent++;
	if (!probing->closing)
		settle_verdict(probe_qp, op->result != 0);
	free_probing_if_done(probing);
}

static void send_probes(struct probe_qp *probe_qp)
{
	struct snt__probing *probing = probe_qp->owner;
	const uint32_t size[MESSAGES] = { SHORT_SIZE, probing->mtu, 0 };

	probe_qp->spoken = true;
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct snt_sge sge = { probing->mem, probing->bytes, size[i] };

		probe_qp->send[i].done = on_probe_sent;
		probe_qp->send[i].arg = probe_qp;
		if (snt_op_send(probe_qp->qp, &probe_qp->send[i],
				size[i] ? &sge : NULL)) {
			settle_verdict(probe_qp, true);
			return;
		}
		probing->ops++;
	}
}

static void on_probe_received(struct snt_op *op)
{
	struct probe_qp *probe_qp = op->arg;
	struct snt__probing *probing = probe_qp->owner;
	const uint32_t size[MESSAGES] = { SHORT_SIZE, probing->mtu, 0 };

	probing->ops--;
	if (!probing->closing && !op->result) {
		/* In order, and with the length that was sent. */
		if (probe_qp->received < MESSAGES &&
		    op->wc.length == size[probe_qp->received])
			probe_qp->received++;
		if (!probe_qp->spoken)
			send_probes(probe_qp);
		settle_verdict(probe_qp, false);
	} else if (!probing->closing) {
		settle_verdict(probe_qp, true);
	}
	free_probing_if_done(probing);
}

static int listen_up(struct probe_qp *probe_qp)
{
	struct snt__probing *probing = probe_qp->owner;
	size_t place = 1 + (size_t)(probe_qp - probing->probe_qp);
	struct snt_sge sge = { probing->mem, probing->bytes + place * BYTES_MAX,
			       BYTES_MAX };

	for (unsigned i = 0; i < MESSAGES; i++) {
		int ret;

		probe_qp->recv[i].done = on_probe_received;
		probe_qp->recv[i].arg = probe_qp;
		ret = snt_op_recv(probe_qp->qp, &probe_qp->recv[i], &sge);
		if (ret)
			return ret;
		probing->ops++;
	}
	return 0;
}

/*
 * Creation and end
 */

static int open_probe_qp(struct probe_qp *probe_qp, const struct snt_qp_opts *like,
			 unsigned device, struct snt__probe_qp *out)
{
	struct snt__probing *probing = probe_qp->owner;
	struct snt_qp_opts opts = {
		.size = sizeof(opts),
		.cq = probing->conn_loop->cq,
		.flags = SNT_QP_PASS_THROUGH,
		.devices = 1u << device,
		.lane_depth = MESSAGES + 1,
		.send_depth = MESSAGES + 1,
		.recv_depth = MESSAGES + 1,
		.mtu = probing->mtu,
		.traffic_class = like->traffic_class,
		.service_level = like->service_level,
		.hop_limit = like->hop_limit,
		.pkey_index = like->pkey_index,
		.timeout = like->timeout,
		.retry_count = 7,
		.read_depth = 1,
	};
	struct snt_card card;
	int ret = snt_qp_create(probing->conn_loop->ctx, &opts, &probe_qp->qp);

	if (!ret)
		ret = snt_qp_card(probe_qp->qp, &card);
	if (!ret)
		ret = listen_up(probe_qp);
	if (ret)
		return ret;
	out->qp_num = card.lane[0].qp_num;
	out->psn = card.lane[0].psn;
	return 0;
}

static void on_probe_closed(struct snt_op *op)
{
	struct probe_qp *probe_qp = op->arg;
	struct snt__probing *probing = probe_qp->owner;

	probing->ops--;
	if (!snt_qp_destroy(probe_qp->qp))
		probe_qp->qp = NULL;
	free_probing_if_done(probing);
}

static void close_probe_qp(struct probe_qp *probe_qp)
{
	if (!probe_qp->qp || snt_op_pending(&probe_qp->close))
		return;
	snt__ping_stop(&probe_qp->ping);
	probe_qp->close.done = on_probe_closed;
	probe_qp->close.arg = probe_qp;
	if (probe_qp->connected && !snt_op_close(probe_qp->qp, &probe_qp->close))
		probe_qp->owner->ops++;
	else if (!snt_qp_destroy(probe_qp->qp))
		probe_qp->qp = NULL;
}

/*
 * Pings
 */

/* Kept for pings. */
static bool is_kept(const struct probe_qp *probe_qp)
{
	return probe_qp->qp && !snt_op_pending(&probe_qp->close);
}

static void give_up_probe(struct probe_qp *probe_qp)
{
	struct snt__probing *probing = probe_qp->owner;

	close_probe_qp(probe_qp);
	for (unsigned i = 0; i < probing->count; i++)
		if (is_kept(&probing->probe_qp[i]))
			return;
	snt__conn_silent(probing->conn);
}

static void on_probe_ping_answered(struct snt__ping *ping, int result)
{
	struct probe_qp *probe_qp = snt__container(ping, struct probe_qp, ping);
	struct snt__probing *probing = probe_qp->owner;

	probing->ops--;
	if (result && !probing->closing && is_kept(probe_qp))
		give_up_probe(probe_qp);
	free_probing_if_done(probing);
}

static void on_probe_ping_lost(struct snt__ping *ping)
{
	give_up_probe(snt__container(ping, struct probe_qp, ping));
}

static void start_probe_ping(struct probe_qp *probe_qp)
{
	struct snt__probing *probing = probe_qp->owner;

	probe_qp->ping.ended = on_probe_ping_answered;
	probe_qp->ping.silent = on_probe_ping_lost;
	if (snt__ping_send(&probe_qp->ping, probing->conn_loop, probe_qp->qp,
			   probing->detect_ns))
		give_up_probe(probe_qp);
	else
		probing->ops++;
}

void snt__probing_ping(struct snt__probing *probing)
{
	for (unsigned i = 0; i < probing->count; i++)
		if (is_kept(&probing->probe_qp[i]) &&
		    probing->probe_qp[i].ping.state == SNT__PING_IDLE)
			start_probe_ping(&probing->probe_qp[i]);
}

void snt__probing_keep(struct snt__probing *probing, const bool *keep,
		       uint64_t detect_ns)
{
	snt_timer_stop(&probing->timer);
	probing->detect_ns = detect_ns;
	for (unsigned i = 0; i < probing->count; i++)
		if (!keep[i])
			close_probe_qp(&probing->probe_qp[i]);
	give_turn(probing);
}

void snt__probing_close(struct snt__probing *probing)
{
	if (!probing)
		return;
	probing->conn = NULL;
	probing->closing = true;
	snt_timer_stop(&probing->timer);
	for (unsigned i = 0; i < probing->count; i++)
		close_probe_qp(&probing->probe_qp[i]);
	free_probing_if_done(probing);
}

static int allocate_probing(struct snt__conn_loop *conn_loop,
			    const struct snt__probe *probe,
			    struct snt__probing **probing_out)
{
	struct snt__probing *probing =
		calloc(1, sizeof(*probing) + probe->count * sizeof(struct probe_qp));
	size_t places = 1 + (size_t)probe->count;
	int ret;

	if (!probing)
		return snt__fail(ENOMEM, "no memory for trying pairs of devices");
	probing->bytes = calloc(places, BYTES_MAX);
	ret = probing->bytes
		      ? snt_mem_register(conn_loop->ctx, probing->bytes,
					 places * BYTES_MAX, SNT_ACCESS_LOCAL_WRITE,
					 &probing->mem)
		      : snt__fail(ENOMEM, "no memory for trying pairs of devices");
	if (ret) {
		free(probing->bytes);
		free(probing);
		return ret;
	}
	probing->conn_loop = conn_loop;
	probing->mtu = probe->mtu;
	probing->count = probe->count;
	probing->timer.fired = time_is_up;
	probing->timer.arg = probing;
	*probing_out = probing;
	return 0;
}

int snt__probing_begin(struct snt__conn_loop *conn_loop, struct snt_conn *conn,
		       bool connects, const struct snt_qp_opts *like,
		       const struct snt__probe *probe, struct snt__probe_qp *out,
		       struct snt__probing **probing_out)
{
	struct snt__probing *probing = NULL;
	int ret = allocate_probing(conn_loop, probe, &probing);

	if (ret)
		return ret;
	conn_loop->lingering++;
	conn_loop->probings[connects]++;
	probing->has_turn = true;
	probing->connects = connects;
	probing->conn = conn;
	for (unsigned i = 0; i < probe->count; i++) {
		struct probe_qp *probe_qp = &probing->probe_qp[i];

		probe_qp->owner = probing;
		out[i].verdict = SNT__VERDICT_NONE;
		if (!open_probe_qp(probe_qp, like, probe->probe_qp[i].device, &out[i]))
			continue;
		probe_qp->verdict = out[i].verdict = SNT__VERDICT_RESOURCES;
	}
	*probing_out = probing;
	return 0;
}

static int connect_probe_qp(struct probe_qp *probe_qp,
			    const struct snt__offer_device *device,
			    const struct snt__probe_qp *to)
{
	const struct snt_card card = {
		.version = SNT_CARD_VERSION,
		.qp_num = 1,
		.generation = 1,
		.scheme = SNT_SCHEME_SPRAY,
		.flags = SNT_QP_PASS_THROUGH,
		.read_depth = 1,
		.mtu = probe_qp->owner->mtu,
		.lane_depth = MESSAGES + 1,
		.recv_depth = MESSAGES + 1,
		.fragment_size = BYTES_MAX,
		.device_count = 1,
		.data_lanes = 1,
		.lane_count = 1,
		.device = { device->address },
		.lane = { { .qp_num = to->qp_num, .psn = to->psn } },
	};
	int ret = snt_qp_connect(probe_qp->qp, &card);

	probe_qp->connected = !ret;
	return ret;
}

int snt__probing_connect(struct snt__probing *probing, const struct snt__offer *peer,
			 const struct snt__probe *peer_probe, uint64_t patience_ns)
{
	int ret =
		snt_timer_start(probing->conn_loop->loop, &probing->timer, patience_ns);

	if (ret)
		return ret;
	for (unsigned i = 0; i < probing->count; i++) {
		struct probe_qp *probe_qp = &probing->probe_qp[i];
		const struct snt__probe_qp *to = &peer_probe->probe_qp[i];

		if (probe_qp->verdict == SNT__VERDICT_NONE &&
		    to->verdict != SNT__VERDICT_NONE)
			probe_qp->verdict = SNT__VERDICT_RESOURCES;
		if (probe_qp->verdict == SNT__VERDICT_NONE &&
		    connect_probe_qp(probe_qp, &peer->device[to->device], to))
			probe_qp->verdict = SNT__VERDICT_SILENT;
	}
	for (unsigned i = 0; probing->connects && i < probing->count; i++)
		if (probing->probe_qp[i].connected)
			send_probes(&probing->probe_qp[i]);
	report_if_all(probing);
	return 0;
}
