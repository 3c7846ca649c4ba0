/* SPDX-License-Identifier: MIT */
/* The state machine of QPs: which attributes go with which transition. */
#include <errno.h>
#include <string.h>

#include "dev/soft/burst.h"
#include "dev/soft/qp.h"
#include "dev/soft/window.h"

struct transition {
	enum ibv_qp_type type;
	enum ibv_qp_state from;
	enum ibv_qp_state to;
	int required;
	int optional;
};

/* BTH and ICRC, which is all that most packets have besides payload. */
#define FULL_HEADERS 16

/* In ns, there and back: a longer path is a long one. */
#define FAR UINT64_C(200000)

#define RC IBV_QPT_RC
#define UD IBV_QPT_UD

/* Besides those to RESET and ERR, which take no attributes. */
static const struct transition transitions[] = {
	{ RC, IBV_QPS_RESET, IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ RC, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ RC, IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ RC, IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ RC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ RC, IBV_QPS_RTS, IBV_QPS_SQD, 0,
	  IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ RC, IBV_QPS_SQD, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ UD, IBV_QPS_RESET, IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0 },
	{ UD, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
	{ UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
};

static bool transition_legal(const struct ibv_qp *qp, enum ibv_qp_state to, int mask)
{
	size_t i;

	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_ERR && qp->state == IBV_QPS_RESET)
		return false;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return (mask & ~IBV_QP_CUR_STATE) == 0;
	for (i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->type == qp->qp_type && t->from == qp->state && t->to == to)
			return (mask & t->required) == t->required &&
			       !(mask & ~(t->required | t->optional));
	}
	return false;
}

static bool attr_valid(const struct snt__soft_device *device,
		       const struct ibv_qp_attr *attr, int mask)
{
	const struct snt__soft_config *limits = &device->limits;
	struct snt__soft_path path;

	if ((mask & IBV_QP_PORT) && attr->port_num != 1)
		return false;
	if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
		return false;
	if ((mask & IBV_QP_AV) &&
	    snt__soft_path_init(device, &attr->ah_attr, 0, &path) != 0)
		return false;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (!snt__mtu_bytes(attr->path_mtu) || attr->path_mtu > limits->mtu))
		return false;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > limits->read_max)
		return false;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
	    attr->max_dest_rd_atomic > limits->read_max)
		return false;
	if ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31)
		return false;
	if ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31)
		return false;
	if ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7)
		return false;
	return !(mask & IBV_QP_RNR_RETRY) || attr->rnr_retry <= 7;
}

#define TAKE(bit, field)                         \
	do {                                     \
		if (mask & (bit))                \
			to->field = from->field; \
	} while (0)

static void take_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
}

/* The largest power of two in a number that is not 0. */
static uint32_t floor_power(uint32_t number)
{
	return UINT32_C(1) << (31 - __builtin_clz(number));
}

static uint32_t clamp_u32(uint32_t number, uint32_t min, uint32_t max)
{
	if (number < min)
		return min;
	return number < max ? number : max;
}

/*
 * A long path gets a longer window, and its ACKs come more often, so that the window moves
 * on while the rest of it is on its way. There a run is not worth waiting for.
 */
static void set_window(struct snt__soft_qp *qp, bool far)
{
	const struct snt__soft_config *limits = &qp->device->limits;
	struct snt__soft_requester *requester = &qp->requester;
	uint32_t bytes = far ? limits->far_window : limits->request_window;
	uint32_t window = clamp_u32(bytes / qp->mtu, 4, 4096);
	uint32_t run_max = far || qp->burst > 1 ? 1 : window / 4;

	requester->far = far;
	requester->window = window;
	requester->ack_mask =
		floor_power(clamp_u32(window / (far ? 8 : 2), 1, window)) - 1;
	requester->run =
		clamp_u32(limits->run_bytes / (qp->mtu + FULL_HEADERS), 1, run_max);
}

void snt__soft_adapt_window(struct snt__soft_qp *qp)
{
	const struct snt__soft_round_trip *trip = &qp->requester.trip;
	bool far = trip->min != UINT64_MAX && trip->min > FAR;

	if (far != qp->requester.far)
		set_window(qp, far);
}

/* Derives from the attributes what packets need. */
static void make_ready_to_receive(struct snt__soft_qp *qp)
{
	const struct snt__soft_config *limits = &qp->device->limits;
	const struct ibv_qp_attr *attr = &qp->attr;
	struct snt__soft_responder *responder = &qp->responder;

	if (qp->ibv.qp_type == IBV_QPT_UD) {
		qp->mtu = snt__mtu_bytes(limits->mtu);
		return;
	}
	snt__soft_path_init(qp->device, &attr->ah_attr, qp->source_port, &qp->path);
	qp->mtu = snt__mtu_bytes(attr->path_mtu);
	qp->peer_qpn = attr->dest_qp_num & SNT__QPN_MASK;
	qp->burst = snt__soft_burst_reach(qp);
	/* One wrap ahead, so that repeated requests have a number, too. */
	responder->expected = (attr->rq_psn & SNT__PSN_MASK) + SNT__PSN_MASK + 1;
	responder->memo_count = attr->max_dest_rd_atomic;
	qp->requester.chunk =
		floor_power(clamp_u32(limits->response_window / 4 / qp->mtu, 1, 64));
}

static void make_ready_to_send(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;
	const struct ibv_qp_attr *attr = &qp->attr;
	uint64_t timeout = snt__ack_timeout_ns(attr->timeout);

	requester->una = attr->sq_psn & SNT__PSN_MASK;
	requester->next = requester->una;
	requester->sent = requester->una;
	requester->end = requester->una;
	requester->retry_left = attr->retry_cnt;
	requester->rnr_left = attr->rnr_retry;
	requester->reads_max = attr->max_rd_atomic;
	if (timeout && timeout < qp->device->limits.ack_timeout_min)
		timeout = qp->device->limits.ack_timeout_min;
	requester->timeout = timeout;
	requester->asked = requester->una;
	requester->expires = SNT__SOFT_NEVER;
	snt__soft_round_trip_init(&requester->trip, requester->una);
	if (qp->ibv.qp_type == IBV_QPT_RC)
		set_window(qp, false);
}

/* Empties the queues without CQEs; nothing of the old connection is left. */
static void reset_qp(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__soft_responder *responder = &qp->responder;

	snt__soft_qp_quiesce(qp);
	snt__soft_windows_unbind(qp);
	requester->head = requester->tail = requester->at = 0;
	requester->una = requester->next = requester->sent = requester->end = 0;
	requester->rewound_once = false;
	requester->backoff = 0;
	requester->probed = false;
	requester->probes = 0;
	requester->cursor = (struct snt__soft_cursor){ 0 };
	requester->landing = (struct snt__soft_cursor){ 0 };
	responder->msn = 0;
	responder->nak_sent = false;
	responder->recv.taken = false;
	responder->memo_next = 0;
	memset(responder->memos, 0,
	       qp->device->limits.read_max * sizeof(*responder->memos));
	qp->recv_queue.head = qp->recv_queue.tail = 0;
	qp->established = false;
	qp->requests_first = false;
	qp->stats = (struct snt__soft_qp_stats){ 0 };
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->access = 0;
	qp->ibv.state = IBV_QPS_RESET;
}

static void enter_state(struct snt__soft_qp *qp, enum ibv_qp_state to)
{
	enum ibv_qp_state from = qp->ibv.state;

	qp->ibv.state = to;
	qp->access = qp->attr.qp_access_flags;
	qp->qkey = qp->attr.qkey;
	if (to == IBV_QPS_RTR)
		make_ready_to_receive(qp);
	if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
		make_ready_to_send(qp);
	qp->requester.drained = false;
	/* SQD has to check whether it is drained. */
	if (to == IBV_QPS_SQD || from == IBV_QPS_SQD)
		snt__soft_qp_activate(qp);
}

static int modify_qp_state(struct snt__soft_qp *qp, const struct ibv_qp_attr *attr,
			   int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->ibv.state;

	if (qp->device->dead && to != IBV_QPS_ERR && to != IBV_QPS_RESET)
		return -EIO;
	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != qp->ibv.state)
		return -EINVAL;
	if (!transition_legal(&qp->ibv, to, mask) ||
	    !attr_valid(qp->device, attr, mask))
		return -EINVAL;
	if (to == IBV_QPS_RESET) {
		reset_qp(qp);
	} else if (to == IBV_QPS_ERR) {
		snt__soft_qp_error(qp);
	} else {
		take_attr(&qp->attr, attr, mask);
		enter_state(qp, to);
	}
	return 0;
}

int snt__soft_modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
	struct snt__soft_qp *qp = snt__soft_qp(ibv_qp);
	struct snt__soft_device *device = qp->device;
	int err;

	snt__soft_lock(device);
	err = modify_qp_state(qp, attr, mask);
	snt__soft_unlock_kick(device);
	return err;
}

int snt__soft_query_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr_out, int mask,
		       struct ibv_qp_init_attr *init_attr_out)
{
	struct snt__soft_qp *qp = snt__soft_qp(ibv_qp);

	(void)mask; /* a hint: devices may fill in more */
	snt__soft_lock(qp->device);
	*attr_out = qp->attr;
	attr_out->qp_state = ibv_qp->state;
	attr_out->cur_qp_state = ibv_qp->state;
	attr_out->sq_psn = qp->requester.next & SNT__PSN_MASK;
	attr_out->rq_psn = qp->responder.expected & SNT__PSN_MASK;
	attr_out->sq_draining = ibv_qp->state == IBV_QPS_SQD && !qp->requester.drained;
	attr_out->cap = qp->init.cap;
	snt__soft_unlock(qp->device);
	if (init_attr_out)
		*init_attr_out = qp->init;
	return 0;
}
