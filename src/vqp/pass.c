/* SPDX-License-Identifier: MIT */
#include "vqp/pass.h"

#include <errno.h>
#include <string.h>

#include "util/err.h"
#include "vqp/check.h"
#include "vqp/layout.h"

#define SGES_MAX 16

_Static_assert((int)SNT_FENCE == (int)IBV_SEND_FENCE &&
		       (int)SNT_SIGNALED == (int)IBV_SEND_SIGNALED &&
		       (int)SNT_SOLICITED == (int)IBV_SEND_SOLICITED &&
		       (int)SNT_INLINE == (int)IBV_SEND_INLINE,
	       "flags are passed on as they are");

static inline void build_common(const struct snt_send_wr *wr,
				struct ibv_send_wr *physical)
{
	physical->wr_id = wr->wr_id;
	physical->num_sge = wr->sge_count;
	physical->opcode = snt__rules[wr->opcode].whole_verb;
	physical->send_flags = wr->flags;
	physical->imm_data = htonl(wr->imm);
}

/* The most frequent kind: one SGE, and a place at the peer. */
static inline bool build_simple(const struct snt_qp *qp, const struct snt_send_wr *wr,
				struct snt__known *known, struct ibv_send_wr *physical)
{
	struct ibv_sge *sge = physical->sg_list;

	if (!snt__check_simple(qp, wr, known))
		return false;
	build_common(wr, physical);
	sge->addr = (uintptr_t)wr->sge->addr;
	sge->length = wr->sge->length;
	sge->lkey = known->local_key;
	physical->wr.rdma.remote_addr = wr->remote_addr;
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

static __attribute__((noinline)) int build_general(const struct snt_qp *qp,
						   const struct snt_send_wr *wr,
						   struct ibv_send_wr *physical)
{
	uint8_t device = qp->lane[0].device;
	uint64_t length;
	int ret = snt__check_wr(qp, wr, &length);

	if (ret)
		return ret;
	build_common(wr, physical);
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
	struct ibv_send_wr *next = last->next, *bad = first;

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
	last->next = next;
	return first - lane->chain;
}

/* A run ends with each signalled WR, whose completion then says that all of it is
 * done. */
static inline void end_run(struct snt__lane *lane, uint32_t built, uint32_t flags)
{
	lane->run[lane->run_tail & lane->run_mask].end = built;
	lane->run_tail += (flags & SNT_SIGNALED) / SNT_SIGNALED;
}

/* The next chain; how many of the WRs are in it. */
static inline unsigned build_chain(struct snt_qp *qp, const struct snt_send_wr *wr,
				   unsigned count, struct snt__known *known,
				   int *ret_out)
{
	struct snt__lane *lane = &qp->lane[0];
	struct ibv_send_wr *physical = lane->chain;
	unsigned built;

	for (built = 0; built < count; built++, wr++, physical++) {
		if (!build_simple(qp, wr, known, physical)) {
			*ret_out = build_general(qp, wr, physical);
			if (*ret_out)
				break;
		}
		end_run(lane, lane->built + built + 1, wr->flags);
	}
	return built;
}

static unsigned least(unsigned a, unsigned b, unsigned c)
{
	if (b < a)
		a = b;
	return c < a ? c : a;
}

int snt__pass_post_send(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count)
{
	struct snt__known known = SNT__KNOWN_NONE;
	struct snt__lane *lane = &qp->lane[0];
	unsigned taken = 0, want, built, posted;
	int ret = count ? -EAGAIN : -EINVAL;

	if (qp->refusal)
		return qp->refusal;
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
			snt__doubt_sends(qp, posted, built);
			break;
		}
	} while (built == want && taken < count);
	lane->fragments += taken;
	return taken ? (int)taken : ret;
}

static int fill_sges(const struct snt_qp *qp, const struct snt_recv_wr *wr,
		     struct ibv_sge *to)
{
	uint8_t device = qp->lane[0].device;

	if (wr->sge_count > qp->recv_sge_max)
		return -EINVAL;
	for (unsigned i = 0; i < wr->sge_count; i++) {
		const struct snt_sge *from = &wr->sge[i];

		if (!from->mem || from->mem->ctx != qp->ctx)
			return -EINVAL;
		if (from->length > UINT32_MAX)
			return -EMSGSIZE;
		if (!snt__mem_holds(from->mem, (uintptr_t)from->addr, from->length))
			return -ERANGE;
		if (!(from->mem->access & SNT_ACCESS_LOCAL_WRITE))
			return -EACCES;
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
	int ret = -EINVAL;

	if (qp->data.refusal)
		return qp->data.refusal;
	for (taken = 0; taken < count; taken++) {
		struct ibv_sge sge[SGES_MAX];
		struct ibv_recv_wr physical, *bad;

		ret = lane->recv_posted - lane->recv_retired < qp->recv_depth
			      ? fill_sges(qp, &wr[taken], sge)
			      : -EAGAIN;
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
	return taken ? (int)taken : ret;
}

const uint8_t snt__pass_opcode[SNT__PASS_OPCODES] = {
	[IBV_WC_SEND] = SNT_SEND,
	[IBV_WC_RDMA_WRITE] = SNT_WRITE,
	[IBV_WC_RDMA_READ] = SNT_READ,
	[IBV_WC_COMP_SWAP] = SNT_CMP_SWAP,
	[IBV_WC_FETCH_ADD] = SNT_FETCH_ADD,
	[IBV_WC_RECV] = SNT_RECV,
	[IBV_WC_RECV_RDMA_WITH_IMM] = SNT_RECV_NOTIFY,
};

static bool is_marker(uint64_t wr_id, uint64_t generation)
{
	return generation &&
	       !((wr_id ^ generation) & ~(uint64_t)(SNT__PASS_RECV | SNT__PASS_CLOSE));
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
	qp->refusal = -ESHUTDOWN;
	qp->data.refusal = -ESHUTDOWN;
}

enum snt__whose snt__pass_take(struct snt__lane *lane, const struct ibv_wc *physical,
			       struct snt_wc *wc)
{
	if (take_marker(lane->owner, physical->wr_id))
		return SNT__WHOSE_OURS;
	if (physical->status == IBV_WC_SUCCESS &&
	    !snt__pass_take_run(lane, physical, 1, wc))
		return SNT__WHOSE_NOBODY;
	snt__doubt_see(&lane->owner->doubt, physical);
	if (physical->status == IBV_WC_SUCCESS)
		return SNT__WHOSE_PROGRAM;
	lane->completions++;
	lane->errors++;
	snt__pass_fail(lane->owner);
	*wc = (struct snt_wc){ .wr_id = physical->wr_id,
			       .qp_num = lane->owner->num,
			       .status = snt__status_of(physical),
			       .vendor_err = physical->vendor_err,
			       .device = lane->device };
	return SNT__WHOSE_PROGRAM;
}
