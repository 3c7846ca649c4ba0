/* SPDX-License-Identifier: MIT */
/*
 * A single lane as verbs have it: no ring, the program's own wr_id, the device's
 * own rules. Only ranges and rights are checked, as everywhere.
 */
#include <arpa/inet.h>
#include <errno.h>

#include "vqp/qp.h"

#define SGES_MAX    16
#define FLAGS_KNOWN (SNT_SIGNALED | SNT_FENCE | SNT_SOLICITED | SNT_INLINE)

static const uint8_t verbs[] = {
	[SNT_WRITE] = IBV_WR_RDMA_WRITE,
	[SNT_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[SNT_READ] = IBV_WR_RDMA_READ,
	[SNT_SEND] = IBV_WR_SEND,
	[SNT_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[SNT_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[SNT_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static const uint8_t rights[] = {
	[SNT_WRITE] = SNT_ACCESS_REMOTE_WRITE,
	[SNT_WRITE_IMM] = SNT_ACCESS_REMOTE_WRITE,
	[SNT_READ] = SNT_ACCESS_REMOTE_READ,
	[SNT_CMP_SWAP] = SNT_ACCESS_REMOTE_ATOMIC,
	[SNT_FETCH_ADD] = SNT_ACCESS_REMOTE_ATOMIC,
};

static unsigned writes_locally(unsigned opcode)
{
	return opcode == SNT_READ || opcode >= SNT_CMP_SWAP ? SNT_ACCESS_LOCAL_WRITE
							    : 0;
}

static int fill_sges(const struct snt_qp *qp, const struct snt_sge *from,
		     unsigned count, bool is_inline, unsigned access,
		     struct ibv_sge *to, uint64_t *length_out)
{
	uint8_t device = qp->lane[0].device;
	uint64_t length = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct snt_mem *mem = from[i].mem;

		if (from[i].length > UINT32_MAX)
			return -EMSGSIZE;
		if (!is_inline) {
			if (!mem || mem->ctx != qp->ctx)
				return -EINVAL;
			if (!snt__mem_holds(mem, (uintptr_t)from[i].addr,
					    from[i].length))
				return -ERANGE;
			if ((mem->access & access) != access)
				return -EACCES;
			to[i].lkey = mem->local_key[device];
		}
		to[i].addr = (uintptr_t)from[i].addr;
		to[i].length = from[i].length;
		length += from[i].length;
	}
	*length_out = length;
	return 0;
}

static int fill_remote(const struct snt_qp *qp, const struct snt_send_wr *wr,
		       uint64_t length, struct ibv_send_wr *physical)
{
	const struct snt_token *token = wr->remote;
	unsigned right = rights[wr->opcode];

	if (!token || token->key_count <= qp->lane[0].remote_device)
		return -EINVAL;
	if (!snt__token_holds(token, wr->remote_addr, length))
		return -ERANGE;
	if (!(token->access & right))
		return -EACCES;
	if (right == SNT_ACCESS_REMOTE_ATOMIC) {
		if (length != 8 || wr->remote_addr & 7)
			return -EINVAL;
		physical->wr.atomic.remote_addr = wr->remote_addr;
		physical->wr.atomic.rkey = token->key[qp->lane[0].remote_device];
		physical->wr.atomic.compare_add = wr->compare_add;
		physical->wr.atomic.swap = wr->swap;
		return 0;
	}
	physical->wr.rdma.remote_addr = wr->remote_addr;
	physical->wr.rdma.rkey = token->key[qp->lane[0].remote_device];
	return 0;
}

_Static_assert((int)SNT_FENCE == (int)IBV_SEND_FENCE &&
		       (int)SNT_SIGNALED == (int)IBV_SEND_SIGNALED &&
		       (int)SNT_SOLICITED == (int)IBV_SEND_SOLICITED &&
		       (int)SNT_INLINE == (int)IBV_SEND_INLINE,
	       "flags are passed on as they are");

/* What all WRs have in common. */
static inline int post_physical(struct snt_qp *qp, const struct snt_send_wr *wr,
				struct ibv_send_wr *physical, struct ibv_sge *sge)
{
	struct ibv_send_wr *bad;
	int ret;

	physical->wr_id = wr->wr_id;
	physical->next = NULL;
	physical->sg_list = sge;
	physical->num_sge = wr->sge_count;
	physical->opcode = verbs[wr->opcode];
	physical->send_flags = wr->flags;
	physical->imm_data = htonl(wr->imm);
	ret = ibv_post_send(qp->lane[0].qp, physical, &bad);
	return __builtin_expect(ret, 0) ? ret == ENOMEM ? -EAGAIN : -ret : 0;
}

/* The most frequent kind: one SGE, and a place at the peer. */
static inline int post_simple(struct snt_qp *qp, const struct snt_send_wr *wr)
{
	const struct snt__lane *lane = &qp->lane[0];
	const struct snt_sge *from = wr->sge;
	const struct snt_mem *mem = from->mem;
	const struct snt_token *token = wr->remote;
	unsigned access = wr->opcode == SNT_READ ? SNT_ACCESS_LOCAL_WRITE : 0;
	struct ibv_send_wr physical;
	struct ibv_sge sge;

	if (!mem || mem->ctx != qp->ctx || !token ||
	    token->key_count <= lane->remote_device)
		return -EINVAL;
	if (!snt__mem_holds(mem, (uintptr_t)from->addr, from->length) ||
	    !snt__token_holds(token, wr->remote_addr, from->length))
		return -ERANGE;
	if (!(token->access & rights[wr->opcode]) || (mem->access & access) != access)
		return -EACCES;
	if (from->length > qp->fragment_size)
		return -EMSGSIZE;
	sge.addr = (uintptr_t)from->addr;
	sge.length = from->length;
	sge.lkey = mem->local_key[lane->device];
	physical.wr.rdma.remote_addr = wr->remote_addr;
	physical.wr.rdma.rkey = token->key[lane->remote_device];
	return post_physical(qp, wr, &physical, &sge);
}

static __attribute__((noinline)) int post_general(struct snt_qp *qp,
						  const struct snt_send_wr *wr)
{
	struct ibv_sge sge[SGES_MAX];
	struct ibv_send_wr physical;
	uint64_t length;
	int ret;

	if (wr->opcode < SNT_WRITE || wr->opcode > SNT_FETCH_ADD ||
	    wr->sge_count > qp->send_sge_max || wr->flags & ~FLAGS_KNOWN)
		return -EINVAL;
	ret = fill_sges(qp, wr->sge, wr->sge_count, wr->flags & SNT_INLINE,
			writes_locally(wr->opcode), sge, &length);
	if (ret)
		return ret;
	if (length > qp->fragment_size)
		return -EMSGSIZE;
	ret = rights[wr->opcode] ? fill_remote(qp, wr, length, &physical) : 0;
	return ret ? ret : post_physical(qp, wr, &physical, sge);
}

static inline int post_send(struct snt_qp *qp, const struct snt_send_wr *wr)
{
	bool simple = wr->opcode >= SNT_WRITE && wr->opcode <= SNT_READ &&
		      wr->sge_count == 1 && !(wr->flags & ~(FLAGS_KNOWN & ~SNT_INLINE));

	return __builtin_expect(simple, 1) ? post_simple(qp, wr) : post_general(qp, wr);
}

int snt__pass_post_send(struct snt_qp *qp, const struct snt_send_wr *wr, unsigned count)
{
	unsigned taken;
	int ret = -EINVAL;

	if (qp->refusal)
		return qp->refusal;
	for (taken = 0; taken < count; taken++) {
		ret = post_send(qp, &wr[taken]);
		if (ret)
			break;
	}
	qp->lane[0].fragments += taken;
	return taken ? (int)taken : ret;
}

int snt__pass_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr, unsigned count)
{
	unsigned taken;
	int ret = -EINVAL;

	if (qp->closing)
		return -ESHUTDOWN;
	for (taken = 0; taken < count; taken++) {
		struct ibv_sge sge[SGES_MAX];
		struct ibv_recv_wr physical, *bad;
		uint64_t length;

		ret = -EINVAL;
		if (wr[taken].sge_count > qp->recv_sge_max)
			break;
		ret = fill_sges(qp, wr[taken].sge, wr[taken].sge_count, false,
				SNT_ACCESS_LOCAL_WRITE, sge, &length);
		if (ret)
			break;
		physical.wr_id = wr[taken].wr_id;
		physical.next = NULL;
		physical.sg_list = sge;
		physical.num_sge = wr[taken].sge_count;
		ret = ibv_post_recv(qp->lane[0].qp, &physical, &bad);
		if (ret) {
			ret = ret == ENOMEM ? -EAGAIN : -ret;
			break;
		}
	}
	return taken ? (int)taken : ret;
}

/* Verbs number sends from 0 and receives from 128. */
static inline unsigned virtual_opcode(enum ibv_wc_opcode opcode)
{
	static const uint8_t sends[] = {
		[IBV_WC_SEND] = SNT_SEND,	    [IBV_WC_RDMA_WRITE] = SNT_WRITE,
		[IBV_WC_RDMA_READ] = SNT_READ,	    [IBV_WC_COMP_SWAP] = SNT_CMP_SWAP,
		[IBV_WC_FETCH_ADD] = SNT_FETCH_ADD,
	};

	if (opcode & IBV_WC_RECV)
		return opcode == IBV_WC_RECV_RDMA_WITH_IMM ? SNT_RECV_NOTIFY : SNT_RECV;
	return opcode < sizeof(sends) ? sends[opcode] : 0;
}

/* The end of the queues: true if this was a marker of ours. */
static bool take_marker(struct snt_qp *qp, const struct ibv_wc *physical)
{
	uint32_t tag = physical->wr_id >> 32;

	if (!qp->closing ||
	    (tag & ~SNT__TAG_RECV) != (qp->lane[0].tag | SNT__TAG_MARKER))
		return false;
	snt__qp_count_marker(qp, tag & SNT__TAG_RECV ? &qp->lane[0].recv_marker_due
						     : &qp->lane[0].send_marker_due);
	snt__cq_ready(qp->cq, &qp->send_ready);
	return true;
}

static __attribute__((noinline, cold)) void take_error(struct snt_qp *qp,
						       const struct ibv_wc *physical,
						       struct snt_wc *wc)
{
	qp->lane[0].errors++;
	*wc = (struct snt_wc){ .wr_id = physical->wr_id,
			       .qp_num = qp->num,
			       .status = physical->status,
			       .vendor_err = physical->vendor_err,
			       .device = qp->lane[0].device };
}

bool snt__pass_take(struct snt_qp *qp, const struct ibv_wc *physical, struct snt_wc *wc)
{
	if (__builtin_expect(qp->closing, 0) && take_marker(qp, physical))
		return false;
	qp->lane[0].completions++;
	if (__builtin_expect(physical->status != IBV_WC_SUCCESS, 0)) {
		take_error(qp, physical, wc);
		return true;
	}
	wc->wr_id = physical->wr_id;
	wc->length = physical->byte_len;
	wc->qp_num = qp->num;
	wc->imm = 0;
	wc->vendor_err = 0;
	wc->lane = 0;
	wc->device = 0;
	wc->flags = 0;
	wc->opcode = virtual_opcode(physical->opcode);
	wc->status = SNT_SUCCESS;
	if (__builtin_expect(physical->wc_flags & IBV_WC_WITH_IMM, 0)) {
		wc->flags = SNT_WC_WITH_IMM;
		wc->imm = ntohl(physical->imm_data);
	}
	return true;
}
