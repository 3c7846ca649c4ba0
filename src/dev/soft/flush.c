/* SPDX-License-Identifier: MIT */
/* How WRs end: completions, errors, flushes. */
#include <string.h>

#include "dev/soft/qp.h"

static enum ibv_wc_opcode send_opcode(uint8_t kind)
{
	switch (kind) {
	case SNT__WIRE_KIND_WRITE:
		return IBV_WC_RDMA_WRITE;
	case SNT__WIRE_KIND_READ:
		return IBV_WC_RDMA_READ;
	case SNT__WIRE_KIND_COMPARE_SWAP:
		return IBV_WC_COMP_SWAP;
	case SNT__WIRE_KIND_FETCH_ADD:
		return IBV_WC_FETCH_ADD;
	case SNT__SOFT_KIND_BIND:
		return IBV_WC_BIND_MW;
	case SNT__SOFT_KIND_INVALIDATE:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

/* Takes the oldest WR out of the queue and reports it, if necessary. */
static void send_end(struct snt__soft_qp *qp, enum ibv_wc_status status)
{
	struct snt__soft_requester *requester = &qp->requester;
	const struct snt__soft_send *send =
		snt__soft_send_at(requester, requester->head++);
	struct ibv_wc wc = { .status = status, .qp_num = qp->ibv.qp_num };

	requester->landing = (struct snt__soft_cursor){ 0 };
	if (status == IBV_WC_SUCCESS && !(send->flags & SNT__SOFT_SIGNALED))
		return;
	wc.wr_id = send->wr_id;
	wc.opcode = send_opcode(send->kind);
	if (status == IBV_WC_SUCCESS)
		wc.byte_len = send->length;
	snt__soft_cq_push(snt__soft_cq(qp->ibv.send_cq), &wc, false);
}

void snt__soft_send_retire(struct snt__soft_qp *qp)
{
	send_end(qp, IBV_WC_SUCCESS);
	snt__soft_send_retire_local(qp);
}

void snt__soft_send_retire_local(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	while (requester->head != requester->tail &&
	       (snt__soft_send_at(requester, requester->head)->flags &
		SNT__SOFT_EXECUTED)) {
		/* After a rewind it may not have been passed again. */
		if (requester->at == requester->head)
			requester->at++;
		send_end(qp, IBV_WC_SUCCESS);
	}
}

void snt__soft_send_fail(struct snt__soft_qp *qp, enum ibv_wc_status status)
{
	send_end(qp, status);
	snt__soft_qp_error(qp);
}

void snt__soft_recv_retire(struct snt__soft_qp *qp, const struct ibv_wc *wc,
			   bool solicited)
{
	struct ibv_wc full = *wc;

	full.wr_id = qp->responder.recv.wr_id;
	full.qp_num = qp->ibv.qp_num;
	qp->responder.recv.taken = false;
	snt__soft_cq_push(snt__soft_cq(qp->ibv.recv_cq), &full, solicited);
}

void snt__soft_recv_fail(struct snt__soft_qp *qp, enum ibv_wc_status status)
{
	struct ibv_wc wc = { .status = status, .opcode = IBV_WC_RECV };

	snt__soft_recv_retire(qp, &wc, true);
}

/* Receives of an SRQ are not the QP's to flush, except for the one that it has
 * taken. */
void snt__soft_flush(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;
	struct snt__soft_recv *recv = &qp->responder.recv;

	while (requester->head != requester->tail)
		send_end(qp, IBV_WC_WR_FLUSH_ERR);
	requester->at = requester->tail;
	if (recv->taken)
		snt__soft_recv_fail(qp, IBV_WC_WR_FLUSH_ERR);
	while (!qp->ibv.srq && snt__soft_recv_take(&qp->recv_queue, recv))
		snt__soft_recv_fail(qp, IBV_WC_WR_FLUSH_ERR);
}

static void quiesce_requester(struct snt__soft_qp *qp)
{
	struct snt__soft_requester *requester = &qp->requester;

	snt__soft_rewind(qp);
	requester->rnr_wait = false;
	requester->probe = SNT__SOFT_PROBE_NONE;
	snt__soft_timer_halt(qp);
}

void snt__soft_qp_quiesce(struct snt__soft_qp *qp)
{
	struct snt__soft_responder *responder = &qp->responder;

	quiesce_requester(qp);
	responder->message = SNT__SOFT_MESSAGE_NONE;
	responder->waiting_count = 0;
	responder->answer = false;
	snt__unlink(&qp->active);
}

/* The responder still sends its pending answers. */
void snt__soft_qp_error(struct snt__soft_qp *qp)
{
	if (qp->ibv.state == IBV_QPS_ERR)
		return;
	qp->ibv.state = IBV_QPS_ERR;
	quiesce_requester(qp);
	snt__soft_flush(qp);
	if (qp->ibv.srq)
		snt__soft_raise(&qp->object, IBV_EVENT_QP_LAST_WQE_REACHED);
}
