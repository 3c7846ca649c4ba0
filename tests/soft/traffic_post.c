/* SPDX-License-Identifier: MIT */
#include "traffic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BATCH_MAX      4
#define INLINE_MAX     512
#define CONSUMERS_MAX  40
#define WRITE_MAX      6000
#define RECVS_MARGIN   8 /* of a shared queue: what a failure may take along */
#define ALIGN8(length) (((length) + 7) & ~7u)

/* A WR on its way to the device; becomes the end's if it is accepted. */
struct draft {
	struct send send;
	struct ibv_send_wr wr;
	struct ibv_sge sge[PIECES_MAX];
	unsigned char payload[INLINE_MAX]; /* of an inline WR */
};

/* What is used up by the drafts so far. */
struct claim {
	uint32_t out_used, in_used;
	uint64_t word;
	int unsignalled, consumers;
	bool sent_bad;
	bool related; /* to an earlier WR: there is one in a batch, or it gets unclear */
	bool local;   /* likewise */
	bool by_window, window_left;
};

/* WRs by the window of the peer that are not done. */
static bool uses_window(const struct end *end)
{
	for (int i = end->sends_done; i < end->sends; i++)
		if (end->send[i].by_window)
			return true;
	return false;
}

/* A change of the end's own window that is possible now, or else the WR that it was to
 * be. */
static enum ibv_wr_opcode pick_local(const struct end *end, struct claim *claim,
				     enum ibv_wr_opcode otherwise)
{
	if (claim->local || (end->window != UNBOUND && end->window != BOUND) ||
	    uses_window(end->peer))
		return otherwise;
	claim->local = true;
	return end->window == BOUND ? IBV_WR_LOCAL_INV : IBV_WR_BIND_MW;
}

/* What windows make of a WR. */
static enum ibv_wr_opcode pick_window_work(struct world *world, const struct end *end,
					   struct claim *claim,
					   enum ibv_wr_opcode opcode)
{
	if (!has(world, WINDOW))
		return opcode;
	if (chance(world, 15))
		return pick_local(end, claim, opcode);
	if (opcode != IBV_WR_SEND || end->peer->window != BOUND || claim->by_window ||
	    claim->window_left || uses_window(end))
		return opcode;
	claim->window_left = true;
	return IBV_WR_SEND_WITH_INV;
}

/* The key for a request. */
static uint32_t pick_key(struct world *world, const struct end *end, struct send *send,
			 struct claim *claim)
{
	const struct end *peer = end->peer;

	if (peer->window != BOUND || claim->window_left || is_message(send) ||
	    is_local(send) || chance(world, 30))
		return peer->mr->rkey;
	claim->by_window = true;
	send->by_window = true;
	return peer->mw->rkey;
}

static void draft_local(const struct end *end, struct draft *draft)
{
	struct ibv_send_wr *wr = &draft->wr;

	if (draft->send.opcode == IBV_WR_LOCAL_INV) {
		wr->invalidate_rkey = end->mw->rkey;
		return;
	}
	wr->bind_mw.mw = end->mw;
	wr->bind_mw.rkey = ibv_inc_rkey(end->mw->rkey);
	wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = end->closed_mr,
		.addr = (uintptr_t)end->memory,
		.length = EDGE,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
}

/* Such a WR was accepted. */
static void commit_window(struct end *end, const struct send *send)
{
	if (send->opcode == IBV_WR_BIND_MW) {
		end->mw->rkey = ibv_inc_rkey(end->mw->rkey);
		end->window = BINDING;
	} else if (send->opcode == IBV_WR_LOCAL_INV) {
		end->window = LEAVING;
	} else if (send->opcode == IBV_WR_SEND_WITH_INV) {
		end->peer->window = LEAVING;
	}
}

static enum ibv_wr_opcode pick_opcode(struct world *world, const struct claim *claim)
{
	static const struct {
		uint8_t opcode, weight;
	} choice[] = {
		{ IBV_WR_RDMA_WRITE, 25 },	     { IBV_WR_RDMA_READ, 20 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 10 }, { IBV_WR_ATOMIC_CMP_AND_SWP, 8 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 15 },  { IBV_WR_SEND, 12 },
		{ IBV_WR_SEND_WITH_IMM, 10 },
	};
	/* The last three take receives, of which there is a limit. */
	uint32_t at = dice(world, claim->consumers < CONSUMERS_MAX ? 100 : 63), i = 0;

	while (at >= choice[i].weight)
		at -= choice[i++].weight;
	return choice[i].opcode;
}

/* Often what is special to the MTU. */
static uint32_t pick_length(struct world *world, const struct end *end,
			    const struct send *send)
{
	uint32_t most = is_message(send)		   ? RECV_ROOM
			: send->opcode == IBV_WR_RDMA_READ ? SOURCE_SIZE
							   : WRITE_MAX;
	uint32_t mtu = end->mtu, length;

	if (is_atomic(send))
		return 8;
	if (is_local(send))
		return 0;
	switch (dice(world, 10)) {
	case 0:
		return 0;
	case 1:
		return between(world, 1, 8);
	case 2:
	case 3:
		length = mtu * between(world, 1, 4);
		break;
	case 4:
		length = mtu * between(world, 1, 4) + between(world, 0, 2) - 1;
		break;
	case 5:
		length = between(world, 1, 12 * mtu);
		break;
	default:
		length = between(world, 1, 2 * mtu);
	}
	return length <= most ? length : between(world, 0, most);
}

static unsigned pick_flags(struct world *world, const struct end *end,
			   struct send *send, const struct claim *claim)
{
	unsigned flags = 0;
	bool can_inline = is_write(send) || is_message(send);

	send->signalled = end->sig_all || chance(world, 60) ||
			  claim->unsignalled + 2 >= (int)end->cap.max_send_wr;
	if (send->signalled && !end->sig_all)
		flags |= IBV_SEND_SIGNALED;
	if (chance(world, 20))
		flags |= IBV_SEND_SOLICITED;
	if (can_inline && send->length <= end->cap.max_inline_data &&
	    send->length <= INLINE_MAX && chance(world, 50))
		flags |= IBV_SEND_INLINE;
	return flags;
}

/* An earlier WR that may be written over, or read back. */
static int find_write(struct world *world, const struct end *end,
		      const struct claim *claim)
{
	int index = end->sends ? (int)dice(world, end->sends) : 0;
	const struct send *send = &end->send[index];

	if (!end->sends || claim->related || !is_write(send) || send->bad ||
	    send->over >= 0 || !send->length || (send->done && send->failed))
		return -1;
	return index;
}

/* What a READ wants may be written over if that is fenced. */
static bool place_write(struct world *world, struct end *end, struct send *send,
			struct claim *claim)
{
	int victim = chance(world, 30) ? find_write(world, end, claim) : -1;

	if (victim >= 0 &&
	    (!end->send[victim].read_back || send->flags & IBV_SEND_FENCE) &&
	    end->send[victim].length >= send->length && send->length) {
		send->remote = end->send[victim].remote;
		claim->related = true;
		return true;
	}
	if (claim->in_used + send->length > IN_SIZE)
		return false;
	send->remote = IN + claim->in_used;
	claim->in_used += ALIGN8(send->length);
	return true;
}

static void place_read(struct world *world, struct end *end, struct send *send,
		       struct claim *claim)
{
	int source = chance(world, 40) ? find_write(world, end, claim) : -1;

	send->remote = SOURCE + dice(world, SOURCE_SIZE - send->length + 1);
	if (source < 0 || end->send[source].consumed)
		return;
	send->source = source;
	claim->related = true;
	send->remote = end->send[source].remote;
	if (send->length > end->send[source].length)
		send->length = end->send[source].length;
}

/* Cut into pieces, some of them empty, with gaps in between. */
static bool place_local(struct world *world, const struct end *end, struct send *send,
			struct claim *claim)
{
	uint32_t left = send->length;

	send->pieces = is_atomic(send) ? 1 : between(world, 1, end->cap.max_send_sge);
	if (send->pieces > PIECES_MAX)
		send->pieces = PIECES_MAX;
	if (!left && chance(world, 50))
		send->pieces = 0;
	for (unsigned i = 0; i < send->pieces; i++) {
		uint32_t part = i + 1 == send->pieces ? left : dice(world, left + 1);

		if (claim->out_used + part > OUT_SIZE)
			return false;
		send->piece[i] = OUT + claim->out_used;
		send->piece_length[i] = part;
		claim->out_used += ALIGN8(part) + 8;
		left -= part;
	}
	return true;
}

static void fill_local(const struct end *end, int index, struct draft *draft)
{
	const struct send *send = &draft->send;
	bool inlined = send->flags & IBV_SEND_INLINE;
	uint32_t at = 0;

	for (unsigned i = 0; i < send->pieces; i++) {
		unsigned char *to =
			inlined ? draft->payload + at : end->memory + send->piece[i];

		draft->sge[i] = (struct ibv_sge){ (uintptr_t)to, send->piece_length[i],
						  inlined ? 0 : end->mr->lkey };
		for (uint32_t j = 0; j < send->piece_length[i]; j++)
			to[j] = pattern(end, index, at + j);
		at += send->piece_length[i];
	}
}

/* All of a QP's atomics run in order, so that what they find is known; those on the
 * device's word are additions of 1 by anybody. */
static void draft_atomic(struct world *world, struct end *end, struct draft *draft,
			 struct claim *claim)
{
	struct send *send = &draft->send;
	uint64_t operand = random_next(&world->random);
	struct ibv_send_wr *wr = &draft->wr;
	bool matches = chance(world, 70);

	send->before = claim->word;
	wr->wr.atomic.remote_addr = (uintptr_t)end->peer->memory + WORD;
	wr->wr.atomic.rkey = pick_key(world, end, send, claim);
	if (send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.atomic.compare_add = matches ? send->before : ~send->before;
		wr->wr.atomic.swap = operand;
		send->after = matches ? operand : send->before;
	} else if (chance(world, 50)) {
		send->shared = true;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.remote_addr = (uintptr_t)end->peer->device->memory;
		wr->wr.atomic.rkey = end->peer->device->mr->rkey;
		send->by_window = false;
		return;
	} else {
		wr->wr.atomic.compare_add = operand;
		send->after = send->before + operand;
	}
	claim->word = send->after;
}

/* Makes it a request that the peer must refuse, with nothing having changed. */
static void spoil(struct world *world, struct end *end, struct draft *draft)
{
	struct send *send = &draft->send;
	struct ibv_send_wr *wr = &draft->wr;
	uint64_t canary = (uintptr_t)end->peer->memory + CANARY;

	if (is_local(send))
		return;
	if (is_message(send)) {
		if (send->flags & IBV_SEND_INLINE || !send->pieces)
			return;
		send->bad = BAD_LENGTH;
		draft->sge[0].addr = (uintptr_t)end->memory + SOURCE;
		draft->sge[0].length = RECV_ROOM + between(world, 1, 512);
		return;
	}
	send->bad = between(world, BAD_KEY, BAD_ACCESS);
	if (is_atomic(send)) {
		if (chance(world, 30)) {
			send->bad = BAD_ALIGNMENT;
			wr->wr.atomic.remote_addr += 4;
		} else {
			send->bad = BAD_KEY;
			wr->wr.atomic.rkey ^= 0x100;
		}
		return;
	}
	if (!send->length) {
		send->bad = GOOD;
		return;
	}
	wr->wr.rdma.remote_addr = canary;
	if (send->bad == BAD_KEY && end->peer->window == UNBOUND && has(world, WINDOW))
		wr->wr.rdma.rkey = end->peer->mw->rkey;
	else if (send->bad == BAD_KEY)
		wr->wr.rdma.rkey ^= 0x100;
	else if (send->bad == BAD_ACCESS)
		wr->wr.rdma.rkey = end->peer->closed_mr->rkey;
	else
		wr->wr.rdma.remote_addr = (uintptr_t)end->peer->memory +
					  (send->by_window ? EDGE : MEMORY) -
					  send->length + 1;
}

static bool draft_send(struct world *world, struct end *end, int index,
		       struct draft *draft, struct claim *claim)
{
	struct send *send = &draft->send;
	struct ibv_send_wr *wr = &draft->wr;

	memset(draft, 0, sizeof(*draft));
	send->opcode = pick_opcode(world, claim);
	send->opcode = pick_window_work(world, end, claim, send->opcode);
	send->over = send->source = -1;
	send->length = pick_length(world, end, send);
	send->flags = chance(world, 15) ? IBV_SEND_FENCE : 0;
	if (is_write(send) && !place_write(world, end, send, claim))
		return false;
	if (send->opcode == IBV_WR_RDMA_READ)
		place_read(world, end, send, claim);
	send->flags |= pick_flags(world, end, send, claim);
	if (!place_local(world, end, send, claim))
		return false;
	fill_local(end, index, draft);
	send->imm = (uint32_t)random_next(&world->random);
	wr->wr_id = ID_SEND | end->pair << 20 | end->side << 16 | index;
	wr->opcode = send->opcode;
	wr->send_flags = send->flags;
	wr->imm_data = htonl(send->imm);
	wr->sg_list = draft->sge;
	wr->num_sge = send->pieces;
	if (is_atomic(send)) {
		draft_atomic(world, end, draft, claim);
	} else if (is_local(send)) {
		draft_local(end, draft);
	} else if (send->opcode == IBV_WR_SEND_WITH_INV) {
		send->imm = end->peer->mw->rkey;
		wr->invalidate_rkey = send->imm;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)end->peer->memory + send->remote;
		wr->wr.rdma.rkey = pick_key(world, end, send, claim);
	}
	if (chance(world, 4) && has(world, BAD) && !claim->sent_bad)
		spoil(world, end, draft);
	claim->sent_bad |= send->bad != GOOD;
	claim->unsignalled = send->signalled ? 0 : claim->unsignalled + 1;
	claim->consumers += takes_receive(send);
	return true;
}

/* A WR was accepted: from here on it is known. */
static void commit(struct world *world, struct end *end, const struct draft *draft)
{
	int index = end->sends++;
	struct send *send = &end->send[index];

	*send = draft->send;
	world->ops++;
	end->unsignalled = send->signalled ? 0 : end->unsignalled + 1;
	end->sent_bad |= send->bad != GOOD;
	if (send->shared)
		end->peer->device->adds++;
	else if (is_atomic(send))
		end->word = send->after;
	commit_window(end, send);
	if (takes_receive(send))
		end->consumer[end->consumers++] = index;
	if (send->source >= 0)
		end->send[send->source].read_back = true;
	for (int i = 0; is_write(send) && !send->bad && i < index; i++)
		if (is_write(&end->send[i]) && !end->send[i].bad &&
		    end->send[i].remote == send->remote && end->send[i].over < 0 &&
		    end->send[i].length && send->length)
			end->send[i].over = index;
	/* What comes back is not what was there. */
	if (send->opcode == IBV_WR_RDMA_READ || is_atomic(send) ||
	    send->flags & IBV_SEND_INLINE)
		for (unsigned i = 0; i < send->pieces; i++)
			memset(end->memory + send->piece[i], SPOILED,
			       send->piece_length[i]);
	trace(world, "%u.%u: WR %d: opcode %u flags 0x%x length %u to 0x%x, bad %u",
	      end->pair, end->side, index, send->opcode, send->flags, send->length,
	      send->remote, send->bad);
}

/* How many of a chain were accepted, or -1. */
static int post_chain(struct world *world, struct end *end, struct draft *draft,
		      int count)
{
	struct ibv_send_wr *bad = NULL;
	int taken = 0, ret;

	for (int i = 1; i < count; i++)
		draft[i - 1].wr.next = &draft[i].wr;
	ret = ibv_post_send(end->qp, &draft[0].wr, &bad);
	if (!ret)
		return count;
	while (taken < count && bad != &draft[taken].wr)
		taken++;
	if (taken == count)
		return wrong(world, "%u.%u: post_send: %d, without bad_wr", end->pair,
			     end->side, ret);
	if (ret == ENOMEM &&
	    end->sends + taken - end->sends_done >= (int)end->cap.max_send_wr)
		return taken;
	if (end->device->killed)
		return taken;
	if (ret == EINVAL && draft[taken].send.bad == BAD_ALIGNMENT)
		return taken;
	return wrong(world, "%u.%u: post_send: %d after %d, with %d under way",
		     end->pair, end->side, ret, taken, end->sends - end->sends_done);
}

static int post_drafts(struct world *world, struct end *end, struct draft *draft,
		       int count)
{
	int taken;

	if (!count)
		return 0;
	taken = post_chain(world, end, draft, count);
	for (int i = 0; i < taken; i++)
		commit(world, end, &draft[i]);
	for (int i = 0; i < count; i++)
		memset(draft[i].payload, SPOILED, sizeof(draft[i].payload));
	return taken < 0 ? -1 : 0;
}

int post_sends(struct world *world, struct end *end)
{
	static struct draft draft[BATCH_MAX];
	struct claim claim = { end->out_used,  end->in_used,
			       end->word,      end->unsignalled,
			       end->consumers, end->sent_bad,
			       false,	       false,
			       false,	       false };
	int want = between(world, 1, BATCH_MAX), count = 0;

	for (; count < want; count++) {
		struct claim before = claim;

		if (end->sends + count >= SENDS_MAX - 1 ||
		    world->ops + count >= world->plan->ops ||
		    !draft_send(world, end, end->sends + count, &draft[count],
				&claim)) {
			claim = before;
			break;
		}
	}
	/* Places of what is refused are not used again. */
	end->out_used = claim.out_used;
	end->in_used = claim.in_used;
	return post_drafts(world, end, draft, count);
}

int post_marker(struct world *world, struct end *end)
{
	static struct draft draft;

	if (!end->unsignalled || end->sends == SENDS_MAX)
		return 0;
	memset(&draft, 0, sizeof(draft));
	draft.send.opcode = IBV_WR_RDMA_WRITE;
	draft.send.flags = IBV_SEND_SIGNALED;
	draft.send.signalled = true;
	draft.send.over = draft.send.source = -1;
	draft.send.remote = IN;
	draft.wr.wr_id = ID_SEND | end->pair << 20 | end->side << 16 | end->sends;
	draft.wr.opcode = IBV_WR_RDMA_WRITE;
	draft.wr.send_flags = IBV_SEND_SIGNALED;
	draft.wr.wr.rdma.remote_addr = (uintptr_t)end->peer->memory + IN;
	draft.wr.wr.rdma.rkey = end->peer->mr->rkey;
	return post_drafts(world, end, &draft, 1);
}

/*
 * Receives
 */

static void draft_recv(struct world *world, const struct recv *recv, uint32_t lkey,
		       unsigned pieces, struct ibv_recv_wr *wr, struct ibv_sge *sge)
{
	uint32_t left = recv->room;

	wr->sg_list = sge;
	wr->num_sge = pieces > PIECES_MAX ? PIECES_MAX : pieces;
	for (int i = 0; i < wr->num_sge; i++) {
		uint32_t part = i + 1 == wr->num_sge ? left : dice(world, left + 1);

		sge[i] = (struct ibv_sge){ (uintptr_t)recv->bytes + recv->room - left,
					   part, lkey };
		left -= part;
	}
}

static int post_srq_recv(struct world *world, struct device *device)
{
	struct recv *recv = &device->recv[device->recvs];
	struct ibv_sge sge[PIECES_MAX];
	struct ibv_recv_wr wr = { .wr_id = ID_RECV | device->recvs }, *bad;
	int ret;

	if (device->recvs == SRQ_RECVS_MAX)
		return 0;
	*recv = (struct recv){ device->memory + SRQ_RECV + device->recvs * RECV_ROOM,
			       RECV_ROOM, false };
	draft_recv(world, recv, device->mr->lkey, between(world, 1, PIECES_MAX), &wr,
		   sge);
	ret = ibv_post_srq_recv(device->srq, &wr, &bad);
	trace(world, "%s: receive %d: %d", device->sim->name, device->recvs, ret);
	if (ret && (ret != ENOMEM || device->recvs - device->recvs_done < 64) &&
	    !device->killed)
		return wrong(world, "post_srq_recv: %d", ret);
	device->recvs += !ret;
	return 0;
}

int post_recv(struct world *world, struct end *end)
{
	struct recv *recv = &end->recv[end->recvs];
	int waiting = end->recvs - end->recvs_done, ret;
	struct ibv_sge sge[PIECES_MAX];
	struct ibv_recv_wr *bad;
	struct ibv_recv_wr wr = { .wr_id = ID_RECV | end->pair << 20 | end->side << 16 |
					   end->recvs };

	if (end->srq)
		return post_srq_recv(world, end->device);
	if (end->recvs == RECVS_MAX || (end->recv_failed && !chance(world, 5)))
		return 0;
	*recv = (struct recv){ end->memory + RECV + end->recvs * RECV_ROOM, RECV_ROOM,
			       false };
	draft_recv(world, recv, end->mr->lkey, between(world, 1, end->cap.max_recv_sge),
		   &wr, sge);
	ret = ibv_post_recv(end->qp, &wr, &bad);
	trace(world, "%u.%u: receive %d: %d", end->pair, end->side, end->recvs, ret);
	if (ret && (ret != ENOMEM || waiting < (int)end->cap.max_recv_wr) &&
	    !end->device->killed)
		return wrong(world, "%u.%u: post_recv: %d, %d waiting", end->pair,
			     end->side, ret, waiting);
	end->recvs += !ret;
	return 0;
}

int post_recvs(struct world *world, struct end *end)
{
	struct device *device = end->device;
	int need = end->peer->consumers - end->peer->arrived;

	if (end->srq) {
		if (!need || device->recvs - device->recvs_done >= need + RECVS_MARGIN)
			return 0;
		return post_srq_recv(world, device);
	}
	if (need > (int)end->cap.max_recv_wr)
		need = end->cap.max_recv_wr;
	while (end->recvs - end->recvs_done < need && end->recvs < RECVS_MAX) {
		int before = end->recvs;

		if (post_recv(world, end))
			return -1;
		if (end->recvs == before)
			break;
	}
	return 0;
}
