/* SPDX-License-Identifier: MIT */
#include "vqp/passthrough.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/build.h"
#include "vqp/cause.h"
#include "vqp/check.h"
#include "vqp/failure.h"
#include "vqp/lane_set.h"
#include "vqp/marker.h"
#include "vqp/ready_list.h"
#include "vqp/recv_sges.h"
#include "vqp/refusal.h"
#include "vqp/refused_wr.h"
#include "vqp/srq.h"

_Static_assert((int)SNT_SEND_FENCE == (int)IBV_SEND_FENCE &&
		       (int)SNT_SEND_SIGNALED == (int)IBV_SEND_SIGNALED &&
		       (int)SNT_SEND_SOLICITED == (int)IBV_SEND_SOLICITED &&
		       (int)SNT_SEND_INLINE == (int)IBV_SEND_INLINE,
	       "flags are passed on as they are");

/* The most frequent kind: one SGE, and a target at the peer. All is read before
 * anything is written, since the compiler cannot know that these do not overlap. */
static inline bool build_simple(const struct snt_qp *qp, const struct snt_send_wr *wr,
				struct snt__known *known, struct ibv_send_wr *physical)
{
	struct ibv_sge *to = physical->sg_list;
	const struct snt_sge *from = wr->sge;
	uint64_t remote_addr = wr->remote_addr;
	uint32_t imm = wr->imm, flags = wr->flags;

	if (!snt__check_simple(qp, wr, known))
		return false;
	snt__sge_set(to, snt__sge_words((uintptr_t)from->addr, from->length,
					known->local_key));
	snt__build_kind(physical, 1, known->whole_verb, flags, htonl(imm));
	snt__build_target(physical, remote_addr, known->remote_key);
	return true;
}

__attribute__((noinline)) int snt__passthrough_build(const struct snt_qp *qp,
						     const struct snt_send_wr *wr,
						     struct ibv_send_wr *physical)
{
	const struct snt__lane *lane = &qp->lane[0];
	const struct snt__rule *rule;
	uint64_t length;
	uint32_t key;

	if (!snt__check_wr(qp, wr, &length))
		return snt__wr_fault(qp, wr);
	rule = &snt__rules[wr->opcode];
	snt__build_kind(physical,
			snt__build_list(physical->sg_list, wr->sge, wr->sge_count,
					lane->device, wr->flags & SNT_SEND_INLINE),
			rule->whole_verb, wr->flags, htonl(wr->imm));
	if (!rule->remote_access)
		return 0;
	key = wr->remote->key[lane->remote_device];
	if (rule->shape == SNT__SHAPE_ATOMIC)
		snt__build_atomic(physical, wr->remote_addr, key, wr->compare_add,
				  wr->swap);
	else
		snt__build_target(physical, wr->remote_addr, key);
	return 0;
}

/* Posts what has been built. If the device took some, the rest follows. Returns how
 * many it took, as far as it can be trusted. */
static unsigned post_chain(struct snt__lane *lane, unsigned count, int *err_out)
{
	struct ibv_send_wr *first = lane->chain, *last = &first[count - 1];
	struct ibv_send_wr *bad = first;

	last->next = NULL;
	for (;;) {
		lane->doorbells++;
		*err_out = ibv_post_send(lane->qp, first, &bad);
		if (__builtin_expect(!*err_out, 1)) {
			first = last + 1;
			break;
		}
		if (bad <= first || bad > last)
			break;
		first = bad;
	}
	last->next = last + 1;
	return first - lane->chain;
}

/* Builds the next chain; returns how many of the WRs are in it. They count as in flight
 * when it is posted. */
static __attribute__((noinline)) unsigned build_chain(struct snt_qp *qp,
						      const struct snt_send_wr *wr,
						      unsigned count,
						      struct snt__known *known,
						      int *ret_out)
{
	struct snt__lane *lane = &qp->lane[0];
	struct ibv_send_wr *physical = lane->chain;
	const struct snt__ids ids = qp->ids[SNT__QUEUE_SEND];
	uint32_t sequence = lane->built, tag = lane->tag;
	unsigned built;

	for (built = 0; built < count; built++, wr++, physical++) {
		uint64_t wr_id = wr->wr_id;

		if (!build_simple(qp, wr, known, physical)) {
			*ret_out = snt__passthrough_build(qp, wr, physical);
			if (*ret_out)
				break;
		}
		physical->wr_id = snt__wr_id(tag, sequence);
		ids.id[sequence++ & ids.mask] = wr_id;
	}
	return built;
}

static unsigned least_unsigned(unsigned a, unsigned b, unsigned c)
{
	if (b < a)
		a = b;
	return c < a ? c : a;
}

static __attribute__((noinline)) int post_many(struct snt_qp *qp,
					       const struct snt_send_wr *wr,
					       unsigned count)
{
	struct snt__known known = SNT__KNOWN_NONE;
	struct snt__lane *lane = &qp->lane[0];
	unsigned taken = 0, want, built, posted;
	int ret = 0, err;

	if (qp->refusal)
		return snt__qp_refusal(qp, qp->refusal);
	if (!count)
		return snt__qp_no_wrs(qp);
	do {
		want = least_unsigned(count - taken, SNT__CHAIN_MAX,
				      qp->lane_depth - snt__lane_under_way(lane));
		built = build_chain(qp, wr + taken, want, &known, &ret);
		if (!built)
			break;
		posted = post_chain(lane, built, &err);
		lane->built += built;
		taken += built;
		if (__builtin_expect(posted < built, 0)) {
			snt__refused_wr_sends(qp, lane->built - (built - posted), err);
			if (!ret && taken < count)
				ret = snt__qp_refusal(qp, qp->refusal);
			break;
		}
	} while (built == want && taken < count);
	lane->fragments += taken;
	if (!ret && !want)
		ret = snt__qp_full(qp);
	return taken ? (int)taken : ret;
}

/* Posts a WR by itself, for which there is room. False: the device refused it. */
static inline bool post_single(struct snt_qp *qp, struct ibv_send_wr *wr, uint32_t tag,
			       uint64_t wr_id)
{
	struct snt__lane *lane = &qp->lane[0];
	uint32_t sequence = lane->built++;
	struct ibv_send_wr *bad;
	int err;

	snt__qp_set_id(qp, SNT__QUEUE_SEND, sequence, wr_id);
	wr->wr_id = snt__wr_id(tag, sequence);
	wr->next = NULL;
	lane->fragments++;
	lane->doorbells++;
	err = ibv_post_send(lane->qp, wr, &bad);
	if (__builtin_expect(!err, 1))
		return true;
	snt__refused_wr_sends(qp, sequence, err);
	return false;
}

/* A write or read that has been checked. */
static inline int post_checked(struct snt_qp *qp, const struct snt_send_wr *wr,
			       uint32_t verb)
{
	struct ibv_send_wr physical;
	struct ibv_sge sge;

	snt__single_build(wr, &qp->lane[0], verb, wr->flags, htonl(wr->imm), &physical,
			  &sge);
	post_single(qp, &physical, qp->lane[0].tag, wr->wr_id);
	return 1;
}

int snt__passthrough_post_send(struct snt_qp *qp, const struct snt_send_wr *wr,
			       unsigned count)
{
	const struct snt__rule *rule;

	if (count != 1 || snt__lane_under_way(&qp->lane[0]) == qp->lane_depth)
		return post_many(qp, wr, count);
	rule = snt__check_single(qp, wr);
	return rule ? post_checked(qp, wr, rule->whole_verb) : post_many(qp, wr, 1);
}

int snt__passthrough_post_one(struct snt_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_send_wr single = *wr;

	if (snt__lane_under_way(&qp->lane[0]) == qp->lane_depth)
		return snt__qp_full(qp);
	post_single(qp, &single, qp->lane[0].tag, wr->wr_id);
	return 0;
}

bool snt__passthrough_is_drained(const struct snt_qp *qp)
{
	return qp->lane->retired == qp->lane->built || !qp->lanes_alive;
}

void snt__passthrough_ask(struct snt_qp *qp)
{
	struct snt__lane *lane = qp->lane;
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (lane->retired == lane->built || qp->asked_end == lane->built ||
	    snt__lane_under_way(lane) == qp->lane_depth || !qp->lanes_alive)
		return;
	qp->asked_end = lane->built + 1;
	/* The program does not see this WR, so there is nothing to report. */
	if (!post_single(qp, &wr, lane->tag | SNT__TAG_ASKED, 0))
		lane->built--;
}

/* The device refused a receive before there is a connected lane that could fail:
 * whether it queued it or not, the device is made to drop it, with all other
 * receives. */
static __attribute__((noinline, cold)) int forget_early(struct snt_qp *qp, int err)
{
	const struct snt_device *device = qp->ctx->device[qp->lane->device];

	if (!device->control.modify_qp) {
		/* A completion of the receive, if the device has it, could not be
		 * attributed. */
		qp->data.refusal = -ESHUTDOWN;
		return snt__fail(
			err, "%s refuses a receive: %s; QP %u takes no more of them",
			device->name, strerror(err), qp->num);
	}
	snt__qp_reset_lanes(qp);
	snt__qp_abandon(qp);
	return snt__fail(err,
			 "%s refuses a receive: %s; all that were posted before are "
			 "forgotten",
			 device->name, strerror(err));
}

int snt__passthrough_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr,
			       unsigned count)
{
	struct snt__lane *lane = &qp->lane[0];
	unsigned taken;
	int ret = 0;

	if (qp->data.refusal)
		return snt__qp_refusal(qp, qp->data.refusal);
	if (qp->srq)
		return snt__fail(EINVAL,
				 "QP %u has a shared receive queue; post to that",
				 qp->num);
	for (taken = 0; taken < count; taken++) {
		struct ibv_sge sge[SNT_SGES_MAX];
		struct ibv_recv_wr physical, *bad;

		ret = lane->recv_posted - lane->recv_retired < qp->recv_depth
			      ? snt__recv_fill_sges(qp->ctx, lane->device,
						    qp->recv_sge_max, &wr[taken], sge)
			      : snt__qp_recv_full(qp);
		if (ret)
			break;
		physical.wr_id =
			snt__wr_id(lane->tag | SNT__TAG_RECV, lane->recv_posted);
		physical.next = NULL;
		physical.sg_list = sge;
		physical.num_sge = wr[taken].sge_count;
		ret = ibv_post_recv(lane->qp, &physical, &bad);
		if (ret && !qp->connected)
			return forget_early(qp, ret);
		snt__qp_set_id(qp, SNT__QUEUE_RECV, lane->recv_posted++,
			       wr[taken].wr_id);
		if (ret) {
			snt__refused_wr_recv(qp, ret);
			if (taken + 1 < count)
				snt__qp_refusal(qp, qp->data.refusal);
			return taken + 1;
		}
	}
	if (taken)
		return taken;
	return ret ? ret : snt__qp_no_wrs(qp);
}

/* Verbs' completion opcodes as ours; 0 for those without an equivalent. */
static const uint8_t opcodes[UINT8_MAX + 1] = {
	[IBV_WC_SEND] = SNT_OP_SEND,
	[IBV_WC_RDMA_WRITE] = SNT_OP_WRITE,
	[IBV_WC_RDMA_READ] = SNT_OP_READ,
	[IBV_WC_COMP_SWAP] = SNT_OP_CMP_SWAP,
	[IBV_WC_FETCH_ADD] = SNT_OP_FETCH_ADD,
	[IBV_WC_BIND_MW] = SNT_OP_BIND,
	[IBV_WC_LOCAL_INV] = SNT_OP_INVALIDATE,
	[IBV_WC_RECV] = SNT_OP_RECV,
	[IBV_WC_RECV_RDMA_WITH_IMM] = SNT_OP_RECV_NOTIFY,
};

/* Translates the success of a send. Devices leave its length as it was. */
static inline void translate_send(const struct ibv_wc *physical, uint32_t num,
				  uint64_t wr_id, struct snt_wc *wc)
{
	*wc = (struct snt_wc){ .wr_id = wr_id,
			       .qp_num = num,
			       .opcode = opcodes[(uint8_t)physical->opcode] };
}

static inline void translate_recv(const struct ibv_wc *physical, uint32_t num,
				  uint64_t wr_id, struct snt_wc *wc)
{
	*wc = (struct snt_wc){ .wr_id = wr_id,
			       .length = physical->byte_len,
			       .qp_num = num,
			       .opcode = opcodes[(uint8_t)physical->opcode] };
	if (physical->wc_flags & IBV_WC_WITH_IMM) {
		wc->flags = SNT_WC_WITH_IMM;
		wc->imm = ntohl(physical->imm_data);
	} else if (physical->wc_flags & IBV_WC_WITH_INV) {
		wc->flags = SNT_WC_WITH_INV;
		wc->imm = physical->invalidated_rkey;
	}
}

int snt__passthrough_take_run(struct snt__lane *lane, const struct ibv_wc *physical,
			      int count, struct snt_wc *wc, int *reported)
{
	const struct snt_qp *qp = lane->owner;
	const struct snt__ids sends = qp->ids[SNT__QUEUE_SEND];
	const uint32_t num = qp->num, tag = lane->tag;
	const uint32_t physical_num = physical->qp_num;
	uint32_t retired = lane->retired, recv_retired = lane->recv_retired;
	int taken;

	for (taken = 0; taken < count; taken++, physical++, wc++) {
		uint32_t sequence = snt__wr_id_sequence(physical->wr_id);
		uint32_t kind = snt__wr_id_tag(physical->wr_id) ^ tag;

		if (physical->status != IBV_WC_SUCCESS ||
		    physical->qp_num != physical_num)
			break;
		if (__builtin_expect(!kind, 1)) {
			translate_send(physical, num, sends.id[sequence & sends.mask],
				       wc);
			retired = sequence + 1;
		} else if (kind == SNT__TAG_RECV) {
			translate_recv(physical, num,
				       snt__qp_id(qp, SNT__QUEUE_RECV, sequence), wc);
			recv_retired++;
		} else {
			break; /* to be handled alone */
		}
	}
	/* No more than were posted. */
	if (__builtin_expect(recv_retired - lane->recv_retired >
					     lane->recv_posted - lane->recv_retired ||
				     retired - lane->retired >
					     snt__lane_under_way(lane),
			     0))
		return 0;
	lane->completions += taken;
	lane->recv_retired = recv_retired;
	lane->retired = retired;
	*reported += taken;
	return taken;
}

/* The marker of a queue has come. */
static void take_marker(struct snt_qp *qp, enum snt__queue queue, uint32_t marker)
{
	struct snt__lane *lane = &qp->lane[0];
	bool receives = queue == SNT__QUEUE_RECV;

	if (marker == SNT__MARKER_CLOSE) {
		snt__qp_count_marker(qp, receives ? &lane->recv_marker_due
						  : &lane->send_marker_due);
		if (receives)
			lane->wants_recv_marker = false; /* the device had claimed to
							  * refuse it */
		if (qp->srq)
			snt__srq_drain(qp);
	}
	snt__refused_wr_end(qp, queue);
	snt__cq_ready(qp->cq, &qp->send_ready);
}

static void take_failure(struct snt__lane *lane, const struct ibv_wc *physical,
			 uint64_t wr_id, struct snt_wc *wc)
{
	uint8_t status = snt__status_of(physical);

	lane->completions++;
	lane->errors++;
	snt__cause_completion(lane, status, physical->vendor_err);
	snt__passthrough_fail(lane->owner);
	*wc = (struct snt_wc){ .wr_id = wr_id,
			       .qp_num = lane->owner->num,
			       .status = status,
			       .vendor_err = physical->vendor_err,
			       .device = lane->device };
	if (status == SNT_WC_FLUSHED)
		snt__qp_tell_cause(lane->owner, wc);
}

/* A receive of the program, with its wr_id. */
static void take_passed_recv(struct snt__lane *lane, const struct ibv_wc *physical,
			     uint64_t wr_id, struct snt_wc *wc)
{
	if (physical->status != IBV_WC_SUCCESS) {
		take_failure(lane, physical, wr_id, wc);
		return;
	}
	lane->completions++;
	translate_recv(physical, lane->owner->num, wr_id, wc);
}

static void take_passed_send(struct snt__lane *lane, const struct ibv_wc *physical,
			     uint64_t wr_id, struct snt_wc *wc)
{
	if (physical->status != IBV_WC_SUCCESS) {
		take_failure(lane, physical, wr_id, wc);
		return;
	}
	lane->completions++;
	translate_send(physical, lane->owner->num, wr_id, wc);
}

/* Earlier sends that have not come back were not signalled, and succeeded. */
static bool retire_send(struct snt__lane *lane, uint32_t sequence)
{
	if (!snt__lane_has(lane, sequence))
		return false; /* reported before, as one that the device had refused */
	lane->retired = sequence + 1;
	return true;
}

static bool retire_recv(struct snt__lane *lane, uint32_t sequence)
{
	if (sequence != lane->recv_retired || lane->recv_retired == lane->recv_posted)
		return false;
	lane->recv_retired++;
	return true;
}

enum snt__whose snt__passthrough_take(struct snt__lane *lane,
				      const struct ibv_wc *physical, struct snt_wc *wc)
{
	struct snt_qp *qp = lane->owner;
	uint32_t kind = snt__wr_id_tag(physical->wr_id) ^ lane->tag;
	uint32_t sequence = snt__wr_id_sequence(physical->wr_id);
	uint64_t wr_id;

	switch (kind) {
	case 0:
		if (!retire_send(lane, sequence))
			return SNT__WHOSE_NOBODY;
		wr_id = snt__qp_id(qp, SNT__QUEUE_SEND, sequence);
		take_passed_send(lane, physical, wr_id, wc);
		return SNT__WHOSE_PROGRAM;
	case SNT__TAG_RECV:
		if (!retire_recv(lane, sequence))
			return SNT__WHOSE_NOBODY;
		wr_id = snt__qp_id(qp, SNT__QUEUE_RECV, sequence);
		take_passed_recv(lane, physical, wr_id, wc);
		return SNT__WHOSE_PROGRAM;
	case SNT__TAG_ASKED:
		if (!retire_send(lane, sequence) || physical->status == IBV_WC_SUCCESS)
			return SNT__WHOSE_OURS;
		snt__cause_completion(lane, snt__status_of(physical),
				      physical->vendor_err);
		snt__passthrough_fail(qp);
		return SNT__WHOSE_OURS;
	case SNT__TAG_MARKER:
		take_marker(qp, SNT__QUEUE_SEND, sequence);
		return SNT__WHOSE_OURS;
	case SNT__TAG_MARKER | SNT__TAG_RECV:
		take_marker(qp, SNT__QUEUE_RECV, sequence);
		return SNT__WHOSE_OURS;
	default:
		if (!qp->srq || !snt__srq_take(qp->srq, physical->wr_id, &wr_id))
			return SNT__WHOSE_NOBODY;
		take_passed_recv(lane, physical, wr_id, wc);
		return SNT__WHOSE_PROGRAM;
	}
}
