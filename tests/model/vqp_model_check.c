/* SPDX-License-Identifier: MIT */
#include "vqp_model.h"

#include <stdio.h>
#include <string.h>

/*
 * What memory tells
 */

/* A place that was written again later may show bytes of either. */
static bool write_seen(const struct world *world, unsigned end, int index)
{
	const struct end *here = &world->end[end], *there = &world->end[!end];
	const struct send *send = &here->send[index];
	const unsigned char *bytes = there->memory + send->remote;

	if (!memcmp(bytes, there->image + (send->remote - IN), send->length))
		return true;
	for (uint32_t i = 0; i < send->length; i++) {
		int at = index;

		while (at >= 0 &&
		       (i >= here->send[at].length || bytes[i] != pattern(end, at, i)))
			at = here->send[at].over;
		if (at < 0)
			return false;
	}
	return true;
}

static bool read_seen(const struct world *world, unsigned end, const struct send *send)
{
	const unsigned char *from = world->end[!end].memory + send->remote;

	for (unsigned i = 0; i < send->pieces; i++) {
		if (memcmp(world->end[end].memory + send->piece[i], from,
			   send->piece_length[i]))
			return false;
		from += send->piece_length[i];
	}
	return true;
}

static uint64_t word_of(const struct end *end, uint32_t at)
{
	uint64_t word;

	memcpy(&word, end->memory + at, sizeof(word));
	return word;
}

/* Has this WR had its effect? Where nothing can tell, yes. */
static bool effect_seen(const struct world *world, unsigned end, int index)
{
	const struct send *send = &world->end[end].send[index];

	if (is_write(send))
		return write_seen(world, end, index);
	if (send->opcode == SNT_READ)
		return read_seen(world, end, send);
	if (send->opcode == SNT_FETCH_ADD)
		return word_of(&world->end[!end], WORD) & send->bit;
	return true;
}

/* An ordering point takes effect right now: all earlier ones must have. */
static int check_order(struct world *world, unsigned end, int index)
{
	struct end *here = &world->end[end];
	bool all = true;

	for (int i = here->seen; i < index; i++) {
		const struct send *send = &here->send[i];
		bool excused = send->failed && send->reported &&
			       send->reported < here->send[index].posted;

		if (effect_seen(world, end, i)) {
			if (all)
				here->seen = i + 1;
			continue;
		}
		all = false;
		if (!excused)
			return wrong(world,
				     "end %u: WR %d took effect, WR %d (opcode %u) "
				     "before it has not",
				     end, index, i, send->opcode);
	}
	return 0;
}

int check_effects(struct world *world)
{
	for (unsigned end = 0; end < 2; end++) {
		struct end *here = &world->end[end];
		uint64_t word = word_of(&world->end[!end], WORD);
		uint64_t news = word & ~here->bits_seen;

		if (word == here->bits_seen)
			continue;
		if (here->bits_seen & ~word || word & ~here->atomic_bits)
			return wrong(world, "end %u: atomics 0x%llx became 0x%llx", end,
				     (unsigned long long)here->bits_seen,
				     (unsigned long long)word);
		here->bits_seen = word;
		for (int i = 0; news && i < here->sends; i++)
			if (here->send[i].bit & news && check_order(world, end, i))
				return -1;
	}
	return 0;
}

/*
 * Sends
 */

static int check_atomic(struct world *world, unsigned end, int index)
{
	const struct end *here = &world->end[end];
	const struct send *send = &here->send[index];
	uint64_t old = word_of(here, send->piece[0]);
	uint64_t due = 0, allowed = 0;

	for (int i = 0; i < index; i++) {
		const struct send *before = &here->send[i];

		allowed |= before->bit;
		if (before->opcode == SNT_FETCH_ADD && !before->failed)
			due |= before->bit;
	}
	if (due & ~old || old & ~allowed)
		return wrong(world, "end %u: atomic WR %d found 0x%llx, 0x%llx was due",
			     end, index, (unsigned long long)old,
			     (unsigned long long)due);
	if (!world->faulty && old != allowed)
		return wrong(world, "end %u: atomic WR %d found 0x%llx, not 0x%llx",
			     end, index, (unsigned long long)old,
			     (unsigned long long)allowed);
	if ((send->opcode == SNT_FETCH_ADD || old == send->compare) &&
	    !(here->bits_seen & send->bit))
		return wrong(world, "end %u: atomic WR %d had no effect", end, index);
	return 0;
}

/* In DQPLB notifications do not wait for each other's acknowledgements. */
static bool order_is_strict(const struct world *world, const struct send *earlier,
			    const struct send *later)
{
	return world->scheme != SNT_DQPLB || earlier->opcode != SNT_WRITE_IMM ||
	       later->opcode != SNT_WRITE_IMM;
}

static int check_success(struct world *world, unsigned end, int index)
{
	const struct end *here = &world->end[end];
	const struct send *send = &here->send[index];

	if (is_atomic(send) && check_atomic(world, end, index))
		return -1;
	if (!effect_seen(world, end, index))
		return wrong(world,
			     "end %u: WR %d (opcode %u) succeeded without effect", end,
			     index, send->opcode);
	for (int i = 0; is_ordering(send) && i < index; i++) {
		const struct send *before = &here->send[i];

		if (before->failed && before->reported > send->posted &&
		    order_is_strict(world, before, send))
			return wrong(world,
				     "end %u: WR %d succeeded although WR %d failed "
				     "and that was reported after it was posted",
				     end, index, i);
	}
	return 0;
}

/* From now on nobody may read it. */
static void retire(struct end *here, struct send *send)
{
	send->retired = true;
	if (send->opcode == SNT_READ || is_atomic(send) || send->flags & SNT_INLINE)
		return;
	for (unsigned i = 0; i < send->pieces; i++)
		memset(here->memory + send->piece[i], SPOILED, send->piece_length[i]);
}

/* Those without a report before this position have succeeded. */
static int pass_over(struct world *world, unsigned end, int until)
{
	struct end *here = &world->end[end];

	for (; here->sends_done < until; here->sends_done++) {
		struct send *send = &here->send[here->sends_done];

		if (send->flags & SNT_SIGNALED)
			return wrong(world,
				     "end %u: signalled WR %d of %d not reported", end,
				     here->sends_done, here->sends);
		if (check_success(world, end, here->sends_done))
			return -1;
		retire(here, send);
	}
	return 0;
}

static int check_send(struct world *world, unsigned end, const struct snt_wc *wc)
{
	struct end *here = &world->end[end];
	uint64_t index = wc->wr_id - SEND_ID;
	struct send *send;

	if (index >= (uint64_t)here->sends || (int)index < here->sends_done)
		return wrong(world, "end %u: wr_id 0x%llx reported twice, or unknown",
			     end, (unsigned long long)wc->wr_id);
	if (pass_over(world, end, index))
		return -1;
	send = &here->send[index];
	here->sends_done++;
	send->status = wc->status;
	send->reported = ++world->clock;
	send->failed = wc->status != SNT_SUCCESS;
	if (wc->opcode != send->opcode || wc->length != send->length)
		return wrong(world, "end %u: WR %d: opcode %u, length %llu", end,
			     (int)index, wc->opcode, (unsigned long long)wc->length);
	if (!send->failed) {
		if (!(send->flags & SNT_SIGNALED))
			return wrong(world, "end %u: WR %d reported, but not signalled",
				     end, (int)index);
		if (check_success(world, end, index))
			return -1;
	} else if (!world->faulty) {
		return wrong(world, "end %u: WR %d (opcode %u) failed: %s", end,
			     (int)index, send->opcode, snt_status_text(wc->status));
	}
	if (world->injected == 1 && !world->other_faults && send->injected &&
	    wc->status != send->injected)
		return wrong(world, "end %u: WR %d: %s, but its first error was %d",
			     end, (int)index, snt_status_text(wc->status),
			     send->injected);
	retire(here, send);
	return 0;
}

/*
 * Receives
 */

/* Which WR of the peer is it? Where some may have failed the WR itself tells. */
static int find_sender(const struct world *world, unsigned end, bool data,
		       const struct recv *recv, const struct snt_wc *wc)
{
	const struct end *here = &world->end[end], *there = &world->end[!end];
	int index = here->matched[data] + 1;

	for (; index < there->sends; index++) {
		const struct send *send = &there->send[index];

		if (data ? !is_message(send) : send->opcode != SNT_WRITE_IMM)
			continue;
		if (!world->faulty || (!data && world->scheme == SNT_DQPLB))
			return index;
		if (!(wc->flags & SNT_WC_WITH_IMM) != (send->opcode == SNT_SEND))
			continue;
		if (send->opcode != SNT_SEND && send->imm != wc->imm)
			continue;
		if (send->opcode == SNT_SEND &&
		    here->memory[recv->at] != (uint8_t)(index + 1))
			continue;
		return index;
	}
	return -1;
}

static int check_message(struct world *world, unsigned end, int index,
			 const struct recv *recv, const struct snt_wc *wc)
{
	const struct send *send = &world->end[!end].send[index];
	const unsigned char *bytes = world->end[end].memory + recv->at;

	if (wc->length != send->length || wc->flags & SNT_WC_LENGTH_UNKNOWN)
		return wrong(world, "end %u: length %llu of message %d", end,
			     (unsigned long long)wc->length, index);
	for (uint32_t i = 0; i < recv->room; i++) {
		uint8_t due = i < send->length ? pattern(!end, index, i) : EMPTY;

		if (bytes[i] != due)
			return wrong(world, "end %u: message %d differs at %u of %u",
				     end, index, i, send->length);
	}
	return 0;
}

static int check_arrival(struct world *world, unsigned end, const struct recv *recv,
			 const struct snt_wc *wc)
{
	struct end *here = &world->end[end];
	int index = find_sender(world, end, recv->data, recv, wc);
	const struct send *send = &world->end[!end].send[index];
	bool with_imm;

	if (index < 0)
		return wrong(world, "end %u: a receive that nobody sent, imm 0x%x", end,
			     wc->imm);
	here->matched[recv->data] = index;
	with_imm = send->opcode != SNT_SEND;
	if (with_imm != !!(wc->flags & SNT_WC_WITH_IMM) ||
	    (with_imm && wc->imm != send->imm))
		return wrong(world, "end %u: imm 0x%x of the peer's WR %d is not 0x%x",
			     end, wc->imm, index, send->imm);
	if (check_order(world, !end, index))
		return -1;
	if (recv->data)
		return check_message(world, end, index, recv, wc);
	if (!effect_seen(world, !end, index))
		return wrong(world, "end %u: the peer's WR %d is not there in full",
			     end, index);
	if (world->scheme == SNT_SPRAY
		    ? !(wc->flags & SNT_WC_LENGTH_UNKNOWN)
		    : wc->flags & SNT_WC_LENGTH_UNKNOWN || wc->length != send->length)
		return wrong(world, "end %u: length %llu of notification %d", end,
			     (unsigned long long)wc->length, index);
	return 0;
}

static int check_recv(struct world *world, unsigned end, const struct snt_wc *wc)
{
	struct end *here = &world->end[end];
	bool data = wc->opcode == SNT_RECV;
	uint64_t index = wc->wr_id - RECV_ID;
	struct recv *recv;
	int next;

	if (here->class_done[data] == here->class_posted[data])
		return wrong(world, "end %u: a receive too many, opcode %u", end,
			     wc->opcode);
	next = here->class_order[data][here->class_done[data]++];
	if (index != (uint64_t)next)
		return wrong(world, "end %u: receive 0x%llx where %d was due", end,
			     (unsigned long long)wc->wr_id, next);
	recv = &here->recv[next];
	recv->retired = true;
	world->clock++;
	if (wc->status == SNT_SUCCESS)
		return check_arrival(world, end, recv, wc);
	if (!world->faulty && !here->closing)
		return wrong(world, "end %u: receive %d failed: %s", end, next,
			     snt_status_text(wc->status));
	return 0;
}

static int check_closed(struct world *world, unsigned end, const struct snt_wc *wc)
{
	struct end *here = &world->end[end];

	if (!here->closing || here->closed || wc->wr_id != CLOSE_ID + end)
		return wrong(world, "end %u: SNT_CLOSED out of place", end);
	here->closed = true;
	for (int data = 0; data < 2; data++)
		if (here->class_done[data] != here->class_posted[data])
			return wrong(world, "end %u: closed with receives not reported",
				     end);
	return pass_over(world, end, here->sends);
}

int check_completion(struct world *world, unsigned end, const struct snt_wc *wc)
{
	if (world->trace)
		printf("# end %u: wc opcode %u id 0x%llx status %u length %llu imm 0x%x\n",
		       end, wc->opcode, (unsigned long long)wc->wr_id, wc->status,
		       (unsigned long long)wc->length, wc->imm);
	if (world->end[end].closed)
		return wrong(world, "end %u: a completion after SNT_CLOSED", end);
	if (wc->qp_num != snt_qp_num(world->end[end].qp))
		return wrong(world, "end %u: qp_num %u", end, wc->qp_num);
	if (wc->opcode == SNT_CLOSED)
		return check_closed(world, end, wc);
	if (wc->opcode == SNT_RECV || wc->opcode == SNT_RECV_NOTIFY)
		return check_recv(world, end, wc);
	return check_send(world, end, wc);
}

/*
 * What the device has in its hands
 */

static int local_owner(const struct end *here, uint64_t addr)
{
	uint64_t at = addr - (uintptr_t)here->memory - OUT;

	return at < OUT_SIZE ? here->out_owner[at / GRAIN] : NOBODY;
}

int owner_of(const struct world *world, unsigned end, const struct scripted_send *send)
{
	const struct end *here = &world->end[end], *there = &world->end[!end];
	uint64_t at = send->wr.wr.rdma.remote_addr - (uintptr_t)there->memory - IN;
	bool write = send->wr.opcode == IBV_WR_RDMA_WRITE ||
		     send->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	if (send->wr.num_sge && !(send->wr.send_flags & IBV_SEND_INLINE))
		return local_owner(here, send->sge[0].addr);
	return write && at < IN_SIZE ? there->in_owner[at / GRAIN] : NOBODY;
}

static int check_physical(struct world *world, unsigned end,
			  const struct scripted_send *send, int owner)
{
	const struct end *here = &world->end[end];
	bool announces = send->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
			 send->wr.opcode == IBV_WR_SEND ||
			 send->wr.opcode == IBV_WR_SEND_WITH_IMM;
	bool solicited = send->wr.send_flags & IBV_SEND_SOLICITED;

	if (owner >= here->sends)
		return wrong(world, "end %u: a WR that was refused is with the device",
			     end);
	if (here->send[owner].retired)
		return wrong(world, "end %u: WR %d retired, but a lane still has it",
			     end, owner);
	if (announces && solicited != !!(here->send[owner].flags & SNT_SOLICITED))
		return wrong(world, "end %u: WR %d: solicited is %d", end, owner,
			     solicited);
	return 0;
}

static int check_recv_queue(struct world *world, unsigned end, struct ibv_qp *qp)
{
	const struct end *here = &world->end[end];
	struct scripted_recv recv;

	for (unsigned i = 0; !scripted_peek_recv(qp, i, &recv); i++) {
		uint64_t at;

		if (!recv.wr.num_sge)
			continue;
		at = (recv.sge[0].addr - (uintptr_t)here->memory - RECV) / RECV_ROOM;
		if (at >= (uint64_t)here->class_posted[1] ||
		    here->recv[here->class_order[1][at]].retired)
			return wrong(world,
				     "end %u: the device has data receive %d, which "
				     "was refused or has retired",
				     end, (int)at);
	}
	return 0;
}

int check_pending(struct world *world, unsigned end)
{
	const struct end *here = &world->end[end];
	int oldest = SENDS_MAX, fenced = -1;

	for (unsigned lane = 0; lane < here->lanes; lane++) {
		struct scripted_send send;
		unsigned count = scripted_pending(here->lane[lane]);

		for (unsigned i = 0; i < count; i++) {
			int owner;

			scripted_peek(here->lane[lane], i, &send);
			owner = owner_of(world, end, &send);
			if (owner < 0)
				continue;
			if (check_physical(world, end, &send, owner))
				return -1;
			if (owner < oldest)
				oldest = owner;
			if (here->send[owner].flags & SNT_FENCE && owner > fenced)
				fenced = owner;
		}
		if (check_recv_queue(world, end, here->lane[lane]))
			return -1;
	}
	if (fenced > oldest)
		return wrong(world, "end %u: fenced WR %d was sent, WR %d is under way",
			     end, fenced, oldest);
	return 0;
}

/*
 * The end
 */

static int check_guards(struct world *world, unsigned end)
{
	const struct end *here = &world->end[end];
	unsigned char guard[CANARY_SIZE];

	memset(guard, GUARD, sizeof(guard));
	if (memcmp(here->memory + CANARY, guard, sizeof(guard)))
		return wrong(world, "end %u: a refused WR had an effect", end);
	for (uint32_t i = 0; i < SOURCE_SIZE; i++)
		if (here->memory[SOURCE + i] != source_byte(end, i))
			return wrong(world, "end %u: memory to be read changed", end);
	return 0;
}

/* Of each WR that succeeded the effect is there to stay; of no other place. */
int check_memory(struct world *world)
{
	for (unsigned end = 0; end < 2; end++) {
		const struct end *here = &world->end[end];

		if (check_guards(world, end))
			return -1;
		for (int i = 0; i < here->sends; i++)
			if (here->send[i].retired && !here->send[i].failed &&
			    !effect_seen(world, end, i))
				return wrong(world, "end %u: WR %d lost its effect",
					     end, i);
		if (!world->faulty && memcmp(here->memory + IN, here->image, IN_SIZE))
			return wrong(world, "end %u: memory differs from the model",
				     end);
		for (uint32_t i = 0; i < IN_SIZE; i++) {
			int owner = here->in_owner[i / GRAIN];

			if (owner == NOBODY && here->memory[IN + i] != EMPTY)
				return wrong(world, "end %u: written where no WR was",
					     end);
		}
	}
	return 0;
}
