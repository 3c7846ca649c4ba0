/* SPDX-License-Identifier: MIT */
#include "vqp/pass.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/alone.h"
#include "vqp/check.h"
#include "vqp/layout.h"
#include "vqp/srq.h"
#include "vqp/words.h"

_Static_assert((int)SNT_FENCE == (int)IBV_SEND_FENCE &&
		       (int)SNT_SIGNALED == (int)IBV_SEND_SIGNALED &&
		       (int)SNT_SOLICITED == (int)IBV_SEND_SOLICITED &&
		       (int)SNT_INLINE == (int)IBV_SEND_INLINE,
	       "flags are passed on as they are");

/* The most frequent kind: one SGE, and a place at the peer. All is read before anything
 * is written, since the compiler cannot know that these are different places. */
static inline bool build_simple(const struct snt_qp *qp, const struct snt_send_wr *wr,
				struct snt__known *known, struct ibv_send_wr *physical)
{
	struct ibv_sge *to = physical->sg_list;
	const struct snt_sge *from = wr->sge;
	uint64_t wr_id = wr->wr_id, remote_addr = wr->remote_addr;
	uint32_t imm = wr->imm, flags = wr->flags;

	if (!snt__check_simple(qp, wr, known))
		return false;
	snt__sge_set(to, snt__sge_words((uintptr_t)from->addr, from->length,
					known->local_key));
	physical->wr_id = wr_id;
	physical->num_sge = 1;
	physical->opcode = known->whole_verb;
	physical->send_flags = flags;
	physical->imm_data = htonl(imm);
	physical->wr.rdma.remote_addr = remote_addr;
	physical->wr.rdma.rkey = known->remote_key;
	return true;
}

static void build_remote(const struct snt_qp *qp, const struct snt_send_wr *wr,
			 struct ibv_send_wr *physical)
{
	uint32_t key = wr->remote->key[qp->lane[0].remote_device];

	if (wr->opcode >= SNT_CMP_SWAP) {
		physical->wr.atomic.remote_addr = wr->remote_addr;
		physical->wr.atomic.rkey = key;
		physical->wr.atomic.compare_add = wr->compare_add;
		physical->wr.atomic.swap = wr->swap;
		return;
	}
	physical->wr.rdma.remote_addr = wr->remote_addr;
	physical->wr.rdma.rkey = key;
}

__attribute__((noinline)) int snt__pass_build(const struct snt_qp *qp,
					      const struct snt_send_wr *wr,
					      struct ibv_send_wr *physical)
{
	uint8_t device = qp->lane[0].device;
	uint64_t length;

	if (!snt__check_wr(qp, wr, &length))
		return snt__wr_fault(qp, wr);
	physical->wr_id = wr->wr_id;
	physical->num_sge = wr->sge_count;
	physical->opcode = snt__rules[wr->opcode].whole_verb;
	physical->send_flags = wr->flags;
	physical->imm_data = htonl(wr->imm);
	for (unsigned i = 0; i < wr->sge_count; i++) {
		const struct snt_sge *from = &wr->sge[i];
		bool has_key = !(wr->flags & SNT_INLINE);

		physical->sg_list[i] = (struct ibv_sge){
			.addr = (uintptr_t)from->addr,
			.length = from->length,
			.lkey = has_key ? from->mem->local_key[device] : 0,
		};
	}
	if (snt__rules[wr->opcode].remote_access)
		build_remote(qp, wr, physical);
	return 0;
}

/* Posts what has been built. If the device took some, the rest follows. Returns how many
 * it took, as far as it can be believed. */
static unsigned post_chain(struct snt__lane *lane, unsigned count)
{
	struct ibv_send_wr *first = lane->chain, *last = &first[count - 1];
	struct ibv_send_wr *bad = first;

	last->next = NULL;
	for (;;) {
		lane->doorbells++;
		if (__builtin_expect(!ibv_post_send(lane->qp, first, &bad), 1)) {
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

/*
 * The next chain; how many of the WRs are in it. A run ends with each signalled WR, whose
 * completion then says that all of it is done.
 */
static __attribute__((noinline)) unsigned build_chain(struct snt_qp *qp,
						      const struct snt_send_wr *wr,
						      unsigned count,
						      struct snt__known *known,
						      int *ret_out)
{
	struct snt__lane *lane = &qp->lane[0];
	struct ibv_send_wr *physical = lane->chain;
	struct snt__run *run = lane->run;
	uint32_t tail = lane->run_tail, mask = lane->run_mask, end = lane->built;
	unsigned built;

	for (built = 0; built < count; built++, wr++, physical++) {
		if (!build_simple(qp, wr, known, physical)) {
			*ret_out = snt__pass_build(qp, wr, physical);
			if (*ret_out)
				break;
		}
		run[tail & mask].end = ++end;
		tail += (wr->flags & SNT_SIGNALED) / SNT_SIGNALED;
	}
	lane->run_tail = tail;
	return built;
}

static unsigned least(unsigned a, unsigned b, unsigned c)
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
	int ret = 0;

	if (qp->refusal)
		return snt__qp_refusal(qp, qp->refusal);
	if (!count)
		return snt__qp_no_wrs(qp);
	do {
		want = least(count - taken, SNT__CHAIN_MAX,
			     qp->lane_depth - snt__lane_under_way(lane));
		built = build_chain(qp, wr + taken, want, &known, &ret);
		if (!built)
			break;
		posted = post_chain(lane, built);
		lane->built += built;
		taken += built;
		if (__builtin_expect(posted < built, 0)) {
			snt__doubt_sends(qp, &lane->chain[posted], built - posted);
			break;
		}
	} while (built == want && taken < count);
	lane->fragments += taken;
	if (!ret && !want)
		ret = snt__qp_full(qp);
	return taken ? (int)taken : ret;
}

/* One that stands alone, and for which there is room. */
static inline void post_single(struct snt_qp *qp, struct ibv_send_wr *wr)
{
	struct snt__lane *lane = &qp->lane[0];
	struct ibv_send_wr *bad;

	wr->next = NULL;
	lane->run[lane->run_tail & lane->run_mask].end = ++lane->built;
	lane->run_tail += (wr->send_flags & IBV_SEND_SIGNALED) / IBV_SEND_SIGNALED;
	lane->fragments++;
	lane->doorbells++;
	if (__builtin_expect(ibv_post_send(lane->qp, wr, &bad), 0))
		snt__doubt_sends(qp, wr, 1);
}

/* A write or read that has been checked. */
static inline int post_checked(struct snt_qp *qp, const struct snt_send_wr *wr,
			       uint32_t verb)
{
	struct ibv_send_wr physical;
	struct ibv_sge sge;

	physical.wr_id = wr->wr_id;
	physical.send_flags = wr->flags;
	physical.imm_data = htonl(wr->imm);
	snt__alone_fill(wr, &qp->lane[0], verb, &physical, &sge);
	post_single(qp, &physical);
	return 1;
}

int snt__pass_post_send(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count)
{
	const struct snt__rule *rule;

	if (count != 1 || snt__lane_under_way(&qp->lane[0]) == qp->lane_depth)
		return post_many(qp, wr, count);
	rule = snt__check_alone(qp, wr);
	return rule ? post_checked(qp, wr, rule->whole_verb) : post_many(qp, wr, 1);
}

int snt__pass_post_one(struct snt_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_send_wr single = *wr;

	if (snt__lane_under_way(&qp->lane[0]) == qp->lane_depth)
		return snt__qp_full(qp);
	post_single(qp, &single);
	return 0;
}

/* The sequence number behind the last that is signalled, or known to be done. */
static uint32_t signalled_end(const struct snt__lane *lane)
{
	if (lane->run_head == lane->run_tail)
		return lane->retired;
	return lane->run[(lane->run_tail - 1) & lane->run_mask].end;
}

bool snt__pass_is_drained(const struct snt_qp *qp)
{
	return qp->lane->run_head == qp->lane->run_tail || !qp->lanes_alive;
}

void snt__pass_ask(struct snt_qp *qp)
{
	const struct ibv_send_wr wr = {
		.wr_id = qp->generation ^ SNT__PASS_ASKED,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (signalled_end(qp->lane) == qp->lane->built || !qp->lanes_alive)
		return;
	qp->lane->passes = false;
	snt__pass_post_one(qp, &wr);
}

int snt__pass_fill_sges(const struct snt_ctx *ctx, uint8_t device, uint32_t sge_max,
			const struct snt_recv_wr *wr, struct ibv_sge *to)
{
	if (wr->sge_count > sge_max)
		return snt__recv_count_fault(wr->sge_count, sge_max);
	for (unsigned i = 0; i < wr->sge_count; i++) {
		const struct snt_sge *from = &wr->sge[i];
		int ret = snt__check_recv_sge(ctx, from);

		if (ret)
			return ret;
		to[i].addr = (uintptr_t)from->addr;
		to[i].length = from->length;
		to[i].lkey = from->mem->local_key[device];
	}
	return 0;
}

/* The device refused a receive, before there is a lane that could fail: whether it has it
 * or not, it is to forget it, with all others. */
static __attribute__((noinline, cold)) int forget_early(struct snt_qp *qp, int err)
{
	const struct snt_device *device = qp->ctx->device[qp->lane->device];

	if (!device->control.modify_qp)
		return snt__fail(err, "%s refuses a receive: %s", device->name,
				 strerror(err));
	snt__qp_reset_lanes(qp);
	snt__qp_abandon(qp);
	return snt__fail(err,
			 "%s refuses a receive: %s; all that were posted before are "
			 "forgotten",
			 device->name, strerror(err));
}

int snt__pass_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr, unsigned count)
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
		struct ibv_sge sge[SNT__PASS_SGES_MAX];
		struct ibv_recv_wr physical, *bad;

		ret = lane->recv_posted - lane->recv_retired < qp->recv_depth
			      ? snt__pass_fill_sges(qp->ctx, lane->device,
						    qp->recv_sge_max, &wr[taken], sge)
			      : snt__qp_recv_full(qp);
		if (ret)
			break;
		physical.wr_id = wr[taken].wr_id;
		physical.next = NULL;
		physical.sg_list = sge;
		physical.num_sge = wr[taken].sge_count;
		ret = ibv_post_recv(lane->qp, &physical, &bad);
		if (ret && !qp->connected)
			return forget_early(qp, ret);
		lane->recv_posted++;
		if (ret) {
			snt__doubt_recv(qp, physical.wr_id);
			return taken + 1;
		}
	}
	if (taken)
		return taken;
	return ret ? ret : snt__qp_no_wrs(qp);
}

/* Verbs' opcodes of completions in our numbers; 0 for those that we do not have. */
static const uint8_t opcodes[UINT8_MAX + 1] = {
	[IBV_WC_SEND] = SNT_SEND,
	[IBV_WC_RDMA_WRITE] = SNT_WRITE,
	[IBV_WC_RDMA_READ] = SNT_READ,
	[IBV_WC_COMP_SWAP] = SNT_CMP_SWAP,
	[IBV_WC_FETCH_ADD] = SNT_FETCH_ADD,
	[IBV_WC_BIND_MW] = SNT_BIND,
	[IBV_WC_LOCAL_INV] = SNT_INVALIDATE,
	[IBV_WC_RECV] = SNT_RECV,
	[IBV_WC_RECV_RDMA_WITH_IMM] = SNT_RECV_NOTIFY,
};

/* What only some successes have. Of sends, devices leave the length as it was. */
static inline void translate_more(const struct ibv_wc *physical, struct snt_wc *wc)
{
	if (physical->opcode & IBV_WC_RECV)
		wc->length = physical->byte_len;
	if (physical->wc_flags & IBV_WC_WITH_IMM) {
		wc->flags = SNT_WC_WITH_IMM;
		wc->imm = ntohl(physical->imm_data);
	} else if (physical->wc_flags & IBV_WC_WITH_INV) {
		wc->flags = SNT_WC_WITH_INV;
		wc->imm = physical->invalidated_rkey;
	}
}

/* A success, in our words. */
static inline void translate(const struct ibv_wc *physical, uint32_t num,
			     struct snt_wc *wc)
{
	*wc = (struct snt_wc){ .wr_id = physical->wr_id,
			       .qp_num = num,
			       .opcode = opcodes[(uint8_t)physical->opcode] };
	if (physical->opcode & IBV_WC_RECV ||
	    __builtin_expect(physical->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV),
			     0))
		translate_more(physical, wc);
}

/* So many signalled sends are done, and with them all before. */
static inline void retire(struct snt__lane *lane, uint32_t signalled)
{
	if (!signalled)
		return;
	lane->run_head += signalled;
	lane->retired = lane->run[(lane->run_head - 1) & lane->run_mask].end;
}

/* Have no more come back than were posted? Forgotten receives may, and what the program
 * posted to a QP of its own by itself. */
static inline bool are_posted(const struct snt__lane *lane, uint32_t receives,
			      uint32_t signalled)
{
	return receives <= lane->recv_posted - lane->recv_retired &&
	       signalled <= lane->run_tail - lane->run_head;
}

int snt__pass_take_run(struct snt__lane *lane, const struct ibv_wc *physical, int count,
		       struct snt_wc *wc, int *reported)
{
	const uint32_t num = lane->owner->num;
	const uint32_t physical_num = physical->qp_num;
	uint32_t receives = 0;
	int taken;

	for (taken = 0; taken < count; taken++, physical++, wc++) {
		if (physical->status != IBV_WC_SUCCESS ||
		    physical->qp_num != physical_num)
			break;
		translate(physical, num, wc);
		receives += physical->opcode & IBV_WC_RECV;
	}
	receives /= IBV_WC_RECV;
	if (__builtin_expect(!are_posted(lane, receives, taken - receives), 0))
		return 0;
	lane->completions += taken;
	lane->recv_retired += receives;
	retire(lane, taken - receives);
	*reported += taken;
	return taken;
}

static bool is_marker(uint64_t wr_id, uint64_t generation)
{
	return generation &&
	       !((wr_id ^ generation) &
		 ~(uint64_t)(SNT__PASS_RECV | SNT__PASS_CLOSE | SNT__PASS_ASKED));
}

static bool take_answer(struct snt_qp *qp, const struct ibv_wc *physical)
{
	if (physical->wr_id != (qp->generation ^ SNT__PASS_ASKED))
		return false;
	if (qp->lane->run_head != qp->lane->run_tail)
		retire(qp->lane, 1);
	if (physical->status != IBV_WC_SUCCESS)
		snt__pass_fail(qp);
	return true;
}

/* The end of a queue: true if this was a marker of ours. One of the life before may be
 * late, if the device had refused it and kept it all the same. */
static bool take_marker(struct snt_qp *qp, uint64_t wr_id)
{
	struct snt__lane *lane = &qp->lane[0];
	uint32_t kind = wr_id ^ qp->generation;
	bool receives = kind & SNT__PASS_RECV;

	if (!is_marker(wr_id, qp->generation))
		return is_marker(wr_id, qp->generation_before);
	if (kind & SNT__PASS_CLOSE)
		snt__qp_count_marker(qp, receives ? &lane->recv_marker_due
						  : &lane->send_marker_due);
	if (receives && kind & SNT__PASS_CLOSE)
		lane->wants_recv_marker = false; /* this one had been refused */
	if (qp->srq && kind & SNT__PASS_CLOSE)
		snt__srq_drain(qp);
	snt__doubt_end(qp, receives ? SNT__TAG_RECV : 0);
	snt__cq_ready(qp->cq, &qp->send_ready);
	return true;
}

/* A QP with an error is of no use any more; whatever else was posted is flushed.
 * Of an error nobody can say whether it was a receive's. */
void snt__pass_fail(struct snt_qp *qp)
{
	qp->lane[0].alive = false;
	qp->lanes_alive = 0;
	snt__qp_refuse(qp, -ESHUTDOWN);
	qp->data.refusal = -ESHUTDOWN;
}

static void take_failure(struct snt__lane *lane, const struct ibv_wc *physical,
			 uint64_t wr_id, struct snt_wc *wc)
{
	lane->completions++;
	lane->errors++;
	snt__pass_fail(lane->owner);
	*wc = (struct snt_wc){ .wr_id = wr_id,
			       .qp_num = lane->owner->num,
			       .status = snt__status_of(physical),
			       .vendor_err = physical->vendor_err,
			       .device = lane->device };
}

/* Of a receive that the QP shares with others. */
static void take_shared(struct snt__lane *lane, const struct ibv_wc *physical,
			uint64_t wr_id, struct snt_wc *wc)
{
	if (physical->status != IBV_WC_SUCCESS) {
		take_failure(lane, physical, wr_id, wc);
		return;
	}
	lane->completions++;
	translate(physical, lane->owner->num, wc);
	wc->wr_id = wr_id;
}

enum snt__whose snt__pass_take(struct snt__lane *lane, const struct ibv_wc *physical,
			       struct snt_wc *wc)
{
	struct snt_srq *srq = lane->owner->srq;
	int reported = 0;
	uint64_t wr_id;

	if (take_answer(lane->owner, physical) ||
	    take_marker(lane->owner, physical->wr_id))
		return SNT__WHOSE_OURS;
	if (srq && snt__srq_take(srq, physical->wr_id, &wr_id)) {
		take_shared(lane, physical, wr_id, wc);
		return SNT__WHOSE_PROGRAM;
	}
	if (physical->status == IBV_WC_SUCCESS &&
	    !snt__pass_take_run(lane, physical, 1, wc, &reported))
		return SNT__WHOSE_NOBODY;
	snt__doubt_see(&lane->owner->doubt, physical);
	if (physical->status == IBV_WC_SUCCESS)
		return SNT__WHOSE_PROGRAM;
	take_failure(lane, physical, physical->wr_id, wc);
	return SNT__WHOSE_PROGRAM;
}
