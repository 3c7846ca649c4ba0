/* SPDX-License-Identifier: MIT */
#include "conn/scout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/card.h>
#include <sennit/op.h>

#include "conn/ping.h"
#include "util/err.h"

/* Concurrent ones of a context that connects, or that accepts. */
#define SCOUTINGS_MAX 64
#define MESSAGES      3
#define SHORT_SIZE    64
#define BYTES_MAX     4096

struct scout {
	struct snt__scouting *owner;
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

struct snt__scouting {
	struct snt__hub *hub;
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
	struct scout scout[];
};

bool snt__scouting_may_begin(const struct snt__hub *hub, bool connects)
{
	return hub->scoutings[connects] < SCOUTINGS_MAX;
}

static void give_turn(struct snt__scouting *scouting)
{
	struct snt__hub *hub = scouting->hub;
	bool connects = scouting->connects;

	if (!scouting->has_turn)
		return;
	scouting->has_turn = false;
	hub->scoutings[connects]--;
	if (!snt__list_empty(&hub->scout_waiting[connects]))
		snt__conn_may_scout(&hub->scout_waiting[connects]);
}

static void free_if_done(struct snt__scouting *scouting)
{
	if (!scouting->closing || scouting->ops)
		return;
	for (unsigned i = 0; i < scouting->count; i++)
		if (scouting->scout[i].qp)
			return;
	snt_timer_stop(&scouting->timer);
	snt_mem_release(scouting->mem);
	free(scouting->bytes);
	give_turn(scouting);
	scouting->hub->lingering--;
	free(scouting);
}

/*
 * Verdicts
 */

static uint8_t judge(const struct scout *scout)
{
	static const uint8_t verdicts[MESSAGES + 1] = {
		SNT__VERDICT_SILENT,
		SNT__VERDICT_MTU,
		SNT__VERDICT_EMPTY,
		SNT__VERDICT_UNHEARD,
	};

	if (scout->received == MESSAGES && scout->sent == MESSAGES)
		return SNT__VERDICT_GOOD;
	return verdicts[scout->received];
}

static void report_if_all(struct snt__scouting *scouting)
{
	uint8_t verdict[SNT__PAIRS_MAX];

	if (scouting->reported || !scouting->conn)
		return;
	for (unsigned i = 0; i < scouting->count; i++) {
		verdict[i] = scouting->scout[i].verdict;
		if (verdict[i] == SNT__VERDICT_NONE)
			return;
	}
	scouting->reported = true;
	snt_timer_stop(&scouting->timer);
	snt__conn_probed(scouting->conn, verdict);
}

static void time_is_up(struct snt_timer *timer)
{
	struct snt__scouting *scouting = timer->arg;

	/* Completions that have arrived count. They may end the trials; the extra op
	 * keeps this alive. */
	scouting->ops++;
	snt__hub_take(scouting->hub);
	scouting->ops--;
	if (scouting->closing) {
		free_if_done(scouting);
		return;
	}
	for (unsigned i = 0; i < scouting->count; i++)
		if (scouting->scout[i].verdict == SNT__VERDICT_NONE)
			scouting->scout[i].verdict = judge(&scouting->scout[i]);
	report_if_all(scouting);
}

static void settle(struct scout *scout, bool failed)
{
	if (scout->verdict == SNT__VERDICT_NONE &&
	    (failed || judge(scout) == SNT__VERDICT_GOOD)) {
		scout->verdict = judge(scout);
		report_if_all(scout->owner);
	}
}

/*
 * Messages
 */

static void sent(struct snt_op *op)
{
	struct scout *scout = op->arg;
	struct snt__scouting *scouting = scout->owner;

	scouting->ops--;
	if (!op->result)
		scout->sent++;
	if (!scouting->closing)
		settle(scout, op->result != 0);
	free_if_done(scouting);
}

static void speak(struct scout *scout)
{
	struct snt__scouting *scouting = scout->owner;
	const uint32_t size[MESSAGES] = { SHORT_SIZE, scouting->mtu, 0 };

	scout->spoken = true;
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct snt_sge sge = { scouting->mem, scouting->bytes, size[i] };

		scout->send[i].done = sent;
		scout->send[i].arg = scout;
		if (snt_op_send(scout->qp, &scout->send[i], &sge, size[i] != 0, 0)) {
			settle(scout, true);
			return;
		}
		scouting->ops++;
	}
}

static void received(struct snt_op *op)
{
	struct scout *scout = op->arg;
	struct snt__scouting *scouting = scout->owner;
	const uint32_t size[MESSAGES] = { SHORT_SIZE, scouting->mtu, 0 };

	scouting->ops--;
	if (!scouting->closing && !op->result) {
		/* In order, and with the length that was sent. */
		if (scout->received < MESSAGES &&
		    op->wc.length == size[scout->received])
			scout->received++;
		if (!scout->spoken)
			speak(scout);
		settle(scout, false);
	} else if (!scouting->closing) {
		settle(scout, true);
	}
	free_if_done(scouting);
}

static int listen_up(struct scout *scout)
{
	struct snt__scouting *scouting = scout->owner;
	size_t place = 1 + (size_t)(scout - scouting->scout);
	struct snt_sge sge = { scouting->mem, scouting->bytes + place * BYTES_MAX,
			       BYTES_MAX };

	for (unsigned i = 0; i < MESSAGES; i++) {
		int ret;

		scout->recv[i].done = received;
		scout->recv[i].arg = scout;
		ret = snt_op_recv(scout->qp, &scout->recv[i], &sge, 1);
		if (ret)
			return ret;
		scouting->ops++;
	}
	return 0;
}

/*
 * Creation and end
 */

static int open_scout(struct scout *scout, const struct snt_qp_opts *like,
		      unsigned device, struct snt__scout *out)
{
	struct snt__scouting *scouting = scout->owner;
	struct snt_qp_opts opts = {
		.size = sizeof(opts),
		.cq = scouting->hub->cq,
		.lanes = 1,
		.devices = 1u << device,
		.lane_depth = MESSAGES + 1,
		.send_depth = MESSAGES + 1,
		.recv_depth = MESSAGES + 1,
		.mtu = scouting->mtu,
		.traffic_class = like->traffic_class,
		.service_level = like->service_level,
		.hop_limit = like->hop_limit,
		.timeout = like->timeout,
		.retry_count = 7,
		.read_depth = 1,
	};
	struct snt_card card;
	int ret = snt_qp_create(scouting->hub->ctx, &opts, &scout->qp);

	if (!ret)
		ret = snt_qp_card(scout->qp, &card);
	if (!ret)
		ret = listen_up(scout);
	if (ret)
		return ret;
	out->qp_num = card.lane[0].qp_num;
	out->psn = card.lane[0].psn;
	return 0;
}

static void closed(struct snt_op *op)
{
	struct scout *scout = op->arg;
	struct snt__scouting *scouting = scout->owner;

	scouting->ops--;
	if (!snt_qp_destroy(scout->qp))
		scout->qp = NULL;
	free_if_done(scouting);
}

static void close_scout(struct scout *scout)
{
	if (!scout->qp || snt_op_pending(&scout->close))
		return;
	snt__ping_stop(&scout->ping);
	scout->close.done = closed;
	scout->close.arg = scout;
	if (scout->connected && !snt_op_close(scout->qp, &scout->close))
		scout->owner->ops++;
	else if (!snt_qp_destroy(scout->qp))
		scout->qp = NULL;
}

/*
 * Pings
 */

/* Kept for pings. */
static bool is_kept(const struct scout *scout)
{
	return scout->qp && !snt_op_pending(&scout->close);
}

static void give_up(struct scout *scout)
{
	struct snt__scouting *scouting = scout->owner;

	close_scout(scout);
	for (unsigned i = 0; i < scouting->count; i++)
		if (is_kept(&scouting->scout[i]))
			return;
	snt__conn_silent(scouting->conn);
}

static void answered(struct snt__ping *ping, int result)
{
	struct scout *scout = snt__container(ping, struct scout, ping);
	struct snt__scouting *scouting = scout->owner;

	scouting->ops--;
	if (result && !scouting->closing && is_kept(scout))
		give_up(scout);
	free_if_done(scouting);
}

static void unanswered(struct snt__ping *ping)
{
	give_up(snt__container(ping, struct scout, ping));
}

static void ping(struct scout *scout)
{
	struct snt__scouting *scouting = scout->owner;

	scout->ping.ended = answered;
	scout->ping.silent = unanswered;
	if (snt__ping_send(&scout->ping, scouting->hub, scout->qp, scouting->detect_ns))
		give_up(scout);
	else
		scouting->ops++;
}

void snt__scouting_ping(struct snt__scouting *scouting)
{
	for (unsigned i = 0; i < scouting->count; i++)
		if (is_kept(&scouting->scout[i]) &&
		    scouting->scout[i].ping.state == SNT__PING_IDLE)
			ping(&scouting->scout[i]);
}

void snt__scouting_keep(struct snt__scouting *scouting, const bool *keep,
			uint64_t detect_ns)
{
	snt_timer_stop(&scouting->timer);
	scouting->detect_ns = detect_ns;
	for (unsigned i = 0; i < scouting->count; i++)
		if (!keep[i])
			close_scout(&scouting->scout[i]);
	give_turn(scouting);
}

void snt__scouting_close(struct snt__scouting *scouting)
{
	if (!scouting)
		return;
	scouting->conn = NULL;
	scouting->closing = true;
	snt_timer_stop(&scouting->timer);
	for (unsigned i = 0; i < scouting->count; i++)
		close_scout(&scouting->scout[i]);
	free_if_done(scouting);
}

static int allocate(struct snt__hub *hub, const struct snt__probe *probe,
		    struct snt__scouting **scouting_out)
{
	struct snt__scouting *scouting =
		calloc(1, sizeof(*scouting) + probe->count * sizeof(struct scout));
	size_t places = 1 + (size_t)probe->count;
	int ret;

	if (!scouting)
		return snt__fail(ENOMEM, "no memory for trying pairs of devices");
	scouting->bytes = calloc(places, BYTES_MAX);
	ret = scouting->bytes
		      ? snt_mem_register(hub->ctx, scouting->bytes, places * BYTES_MAX,
					 SNT_ACCESS_LOCAL_WRITE, &scouting->mem)
		      : snt__fail(ENOMEM, "no memory for trying pairs of devices");
	if (ret) {
		free(scouting->bytes);
		free(scouting);
		return ret;
	}
	scouting->hub = hub;
	scouting->mtu = probe->mtu;
	scouting->count = probe->count;
	scouting->timer.fired = time_is_up;
	scouting->timer.arg = scouting;
	*scouting_out = scouting;
	return 0;
}

int snt__scouting_begin(struct snt__hub *hub, struct snt_conn *conn, bool connects,
			const struct snt_qp_opts *like, const struct snt__probe *probe,
			struct snt__scout *out, struct snt__scouting **scouting_out)
{
	struct snt__scouting *scouting = NULL;
	int ret = allocate(hub, probe, &scouting);

	if (ret)
		return ret;
	hub->lingering++;
	hub->scoutings[connects]++;
	scouting->has_turn = true;
	scouting->connects = connects;
	scouting->conn = conn;
	for (unsigned i = 0; i < probe->count; i++) {
		struct scout *scout = &scouting->scout[i];

		scout->owner = scouting;
		out[i].verdict = SNT__VERDICT_NONE;
		if (!open_scout(scout, like, probe->scout[i].device, &out[i]))
			continue;
		scout->verdict = out[i].verdict = SNT__VERDICT_RESOURCES;
	}
	*scouting_out = scouting;
	return 0;
}

static int connect_scout(struct scout *scout, const struct snt__offer_device *device,
			 const struct snt__scout *to)
{
	const struct snt_card card = {
		.version = SNT_CARD_VERSION,
		.qp_num = 1,
		.generation = 1,
		.scheme = SNT_SCHEME_SPRAY,
		.read_depth = 1,
		.mtu = scout->owner->mtu,
		.lane_depth = MESSAGES + 1,
		.recv_depth = MESSAGES + 1,
		.fragment_size = BYTES_MAX,
		.device_count = 1,
		.data_lanes = 1,
		.lane_count = 1,
		.device = { device->address },
		.lane = { { .qp_num = to->qp_num, .psn = to->psn } },
	};
	int ret = snt_qp_connect(scout->qp, &card);

	scout->connected = !ret;
	return ret;
}

int snt__scouting_connect(struct snt__scouting *scouting, const struct snt__offer *peer,
			  const struct snt__probe *peer_probe, uint64_t patience_ns)
{
	int ret = snt_timer_start(scouting->hub->loop, &scouting->timer, patience_ns);

	if (ret)
		return ret;
	for (unsigned i = 0; i < scouting->count; i++) {
		struct scout *scout = &scouting->scout[i];
		const struct snt__scout *to = &peer_probe->scout[i];

		if (scout->verdict == SNT__VERDICT_NONE &&
		    to->verdict != SNT__VERDICT_NONE)
			scout->verdict = SNT__VERDICT_RESOURCES;
		if (scout->verdict == SNT__VERDICT_NONE &&
		    connect_scout(scout, &peer->device[to->device], to))
			scout->verdict = SNT__VERDICT_SILENT;
	}
	for (unsigned i = 0; scouting->connects && i < scouting->count; i++)
		if (scouting->scout[i].connected)
			speak(&scouting->scout[i]);
	report_if_all(scouting);
	return 0;
}
