/* SPDX-License-Identifier: MIT */
#include "vqp_model.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/*
 * What memory tells
 */

/* A place that was written again later may show bytes of either. */
static bool write_seen(const struct link *link, unsigned end, int index)
{
	const struct end *here = &link->end[end], *there = &link->end[!end];
	const struct send *send = &here->send[index];
	const unsigned char *bytes = there->memory + send->remote;

	if (!memcmp(bytes, there->image + (send->remote - IN), send->length))
		return true;
	if (send->taken)
		return send->over >= 0;
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

static bool read_seen(const struct link *link, unsigned end, const struct send *send)
{
	const unsigned char *from = link->end[!end].memory + send->remote;

	for (unsigned i = 0; i < send->pieces; i++) {
		if (memcmp(link->end[end].memory + send->piece[i], from,
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
static bool effect_seen(const struct link *link, unsigned end, int index)
{
	const struct send *send = &link->end[end].send[index];

	if (is_write(send))
		return write_seen(link, end, index);
	if (send->opcode == SNT_OP_READ)
		return read_seen(link, end, send);
	if (send->opcode == SNT_OP_FETCH_ADD)
		return word_of(&link->end[!end], WORD) & send->bit;
	return true;
}

/* An ordering point takes effect right now: all earlier ones must have. */
static int check_order(struct link *link, unsigned end, int index)
{
	struct end *here = &link->end[end];
	bool all = true;

	for (int i = here->seen; i < index; i++) {
		const struct send *send = &here->send[i];
		bool excused = send->failed && send->reported &&
			       send->reported < here->send[index].posted;

		/* Verbs do not wait for what a READ brings, unless there is a fence. */
		excused |= link->pass && send->opcode == SNT_OP_READ;
		if (effect_seen(link, end, i)) {
			if (all)
				here->seen = i + 1;
			continue;
		}
		all = false;
		if (!excused)
			return wrong(link,
				     "end %u: WR %d took effect, WR %d (opcode %u) "
				     "before it has not",
				     end, index, i, send->opcode);
	}
	return 0;
}

static int check_word(struct link *link, unsigned end)
{
	struct end *here = &link->end[end];
	uint64_t word = word_of(&link->end[!end], WORD);
	uint64_t news = word & ~here->bits_seen;

	if (word == here->bits_seen)
		return 0;
	if (here->bits_seen & ~word || word & ~here->atomic_bits)
		return wrong(link, "end %u: atomics 0x%llx became 0x%llx", end,
			     (unsigned long long)here->bits_seen,
			     (unsigned long long)word);
	here->bits_seen = word;
	for (int i = 0; news && i < here->sends; i++)
		if (here->send[i].bit & news && check_order(link, end, i))
			return -1;
	return 0;
}

int check_effects(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		if (check_word(&world->link[i], 0) || check_word(&world->link[i], 1))
			return -1;
	return 0;
}

/*
 * Sends
 */

static int check_atomic(struct link *link, unsigned end, int index)
{
	const struct end *here = &link->end[end];
	const struct send *send = &here->send[index];
	uint64_t old = word_of(here, send->piece[0]);
	uint64_t due = 0, allowed = 0;

	for (int i = 0; i < index; i++) {
		const struct send *before = &here->send[i];

		allowed |= before->bit;
		if (before->opcode == SNT_OP_FETCH_ADD && !before->failed)
			due |= before->bit;
	}
	if (due & ~old || old & ~allowed)
		return wrong(link, "end %u: atomic WR %d found 0x%llx, 0x%llx was due",
			     end, index, (unsigned long long)old,
			     (unsigned long long)due);
	if (!link->faulty && old != allowed)
		return wrong(link, "end %u: atomic WR %d found 0x%llx, not 0x%llx", end,
			     index, (unsigned long long)old,
			     (unsigned long long)allowed);
	if ((send->opcode == SNT_OP_FETCH_ADD || old == send->compare) &&
	    !(here->bits_seen & send->bit))
		return wrong(link, "end %u: atomic WR %d had no effect", end, index);
	return 0;
}

/* In DQPLB notifications do not wait for each other's acknowledgements. */
static bool order_is_strict(const struct link *link, const struct send *earlier,
			    const struct send *later)
{
	return !is_sequenced(link) || earlier->opcode != SNT_OP_WRITE_IMM ||
	       later->opcode != SNT_OP_WRITE_IMM;
}

static int check_success(struct link *link, unsigned end, int index)
{
	const struct end *here = &link->end[end];
	const struct send *send = &here->send[index];

	if (is_atomic(send) && check_atomic(link, end, index))
		return -1;
	if (!effect_seen(link, end, index))
		return wrong(link, "end %u: WR %d (opcode %u) succeeded without effect",
			     end, index, send->opcode);
	for (int i = 0; is_ordering(send) && i < index; i++) {
		const struct send *before = &here->send[i];

		if (before->failed && before->reported > send->posted &&
		    order_is_strict(link, before, send))
			return wrong(link,
				     "end %u: WR %d succeeded although WR %d failed "
				     "and that was reported after it was posted",
				     end, index, i);
	}
	return 0;
}

/* From now on it may not be read. */
static void retire(struct end *here, struct send *send)
{
	send->retired = true;
	if (send->opcode == SNT_OP_READ || is_atomic(send) ||
	    send->flags & SNT_SEND_INLINE)
		return;
	for (unsigned i = 0; i < send->pieces; i++)
		memset(here->memory + send->piece[i], SPOILED, send->piece_length[i]);
}

/* Those without a report before this position have succeeded. */
static int pass_over(struct link *link, unsigned end, int until)
{
	struct end *here = &link->end[end];

	for (; here->sends_done < until; here->sends_done++) {
		struct send *send = &here->send[here->sends_done];

		if (send->flags & SNT_SEND_SIGNALED)
			return wrong(link, "end %u: signalled WR %d of %d not reported",
				     end, here->sends_done, here->sends);
		if (check_success(link, end, here->sends_done))
			return -1;
		retire(here, send);
	}
	return 0;
}

/* What a completion says of its WR. Of a pass-through lane it is what verbs say: no
 * length of sends, no immediates told apart, and nothing at all on failure. */
static int check_words(struct link *link, unsigned end, const struct send *send,
		       const struct snt_wc *wc)
{
	unsigned opcode = send->opcode;

	if (link->pass && opcode == SNT_OP_WRITE_IMM)
		opcode = SNT_OP_WRITE;
	if (link->pass && opcode == SNT_OP_SEND_IMM)
		opcode = SNT_OP_SEND;
	if (link->pass && send->failed)
		return 0;
	if (wc->opcode != opcode || (!link->pass && wc->length != send->length))
		return wrong(link, "end %u: opcode %u, length %llu of WR 0x%llx", end,
			     wc->opcode, (unsigned long long)wc->length,
			     (unsigned long long)wc->wr_id);
	return 0;
}

/* Atomics stay on one device of the peer. */
static bool has_no_lane(const struct link *link, const struct send *send)
{
	return link->failover && is_atomic(send) && send->status == SNT_WC_FLUSHED;
}

/* What is in doubt after a failover; ordering points behind it are flushed. */
static int check_doubt(struct link *link, unsigned end, int index)
{
	const struct end *here = &link->end[end];
	const struct send *send = &here->send[index];
	bool strict = here->opts.flags & SNT_QP_STRICT;

	if (!link->failover || link->calm ||
	    !(is_atomic(send) || (strict && send->opcode == SNT_OP_WRITE)))
		return wrong(link, "end %u: WR %d (opcode %u) is in doubt", end, index,
			     send->opcode);
	link->faulty = true;
	return 0;
}

static int check_send(struct link *link, unsigned end, const struct snt_wc *wc)
{
	struct end *here = &link->end[end];
	uint64_t index = wc->wr_id - id_of(link, SEND_ID, 0);
	struct send *send;

	if (index >= (uint64_t)here->sends || (int)index < here->sends_done)
		return wrong(link, "end %u: wr_id 0x%llx reported twice, or unknown",
			     end, (unsigned long long)wc->wr_id);
	if (pass_over(link, end, index))
		return -1;
	send = &here->send[index];
	here->sends_done++;
	send->status = wc->status;
	send->reported = ++link->world->clock;
	send->failed = wc->status != SNT_WC_SUCCESS;
	if (check_words(link, end, send, wc))
		return -1;
	if (!send->failed) {
		if (!(send->flags & SNT_SEND_SIGNALED))
			return wrong(link, "end %u: WR %d reported, but not signalled",
				     end, (int)index);
		if (check_success(link, end, index))
			return -1;
	} else if (wc->status == SNT_WC_INDETERMINATE || has_no_lane(link, send)) {
		if (check_doubt(link, end, index))
			return -1;
	} else if (!link->faulty) {
		return wrong(link, "end %u: WR %d (opcode %u) failed: %s", end,
			     (int)index, send->opcode, snt_status_text(wc->status));
	}
	if (link->injected == 1 && !link->other_faults && send->injected &&
	    wc->status != send->injected)
		return wrong(link, "end %u: WR %d: %s, but its first error was %d", end,
			     (int)index, snt_status_text(wc->status), send->injected);
	retire(here, send);
	return 0;
}

/*
 * Receives
 */

/* Which WR of the peer is it? Where some may have failed the WR itself tells, except
 * where nothing can be left out: in a sequence, and on a single queue. */
static int find_sender(const struct link *link, unsigned end, bool data,
		       const struct recv *recv, const struct snt_wc *wc)
{
	const struct end *here = &link->end[end], *there = &link->end[!end];
	int index = here->matched[class_of(link, data)] + 1;

	for (; index < there->sends; index++) {
		const struct send *send = &there->send[index];

		if (link->pass &&
		    (is_message(send) || send->opcode == SNT_OP_WRITE_IMM))
			return is_message(send) == data ? index : -1;
		if (data ? !is_message(send) : send->opcode != SNT_OP_WRITE_IMM)
			continue;
		if (!link->faulty || (!data && is_sequenced(link)))
			return index;
		if (!(wc->flags & SNT_WC_WITH_IMM) != (send->opcode == SNT_OP_SEND))
			continue;
		if (send->opcode != SNT_OP_SEND && send->imm != wc->imm)
			continue;
		if (send->opcode == SNT_OP_SEND &&
		    here->memory[recv->at] != (uint8_t)(index + 1))
			continue;
		return index;
	}
	return -1;
}

/* A receive's own place: these bytes, and nothing behind them. */
static int check_place(struct link *link, unsigned end, int index,
		       const struct recv *recv, uint32_t length)
{
	const unsigned char *bytes = link->end[end].memory + recv->at;

	for (uint32_t i = 0; i < recv->room; i++) {
		uint8_t due = i < length ? pattern(!end, index, i) : EMPTY;

		if (bytes[i] != due)
			return wrong(link, "end %u: message %d differs at %u of %u",
				     end, index, i, length);
	}
	return 0;
}

static int check_message(struct link *link, unsigned end, int index,
			 const struct recv *recv, const struct snt_wc *wc)
{
	const struct send *send = &link->end[!end].send[index];

	if (wc->length != send->length || wc->flags & SNT_WC_LENGTH_UNKNOWN)
		return wrong(link, "end %u: length %llu of message %d", end,
			     (unsigned long long)wc->length, index);
	return check_place(link, end, index, recv, send->length);
}

static int check_notification(struct link *link, unsigned end, int index,
			      const struct recv *recv, const struct snt_wc *wc)
{
	const struct send *send = &link->end[!end].send[index];
	bool unknown = wc->flags & SNT_WC_LENGTH_UNKNOWN;

	if (!effect_seen(link, !end, index))
		return wrong(link, "end %u: the peer's WR %d is not there in full", end,
			     index);
	if (unknown != (lacks_length(link) && !wants_length(&link->end[end])) ||
	    (!unknown && wc->length != send->length))
		return wrong(link, "end %u: length %llu of notification %d", end,
			     (unsigned long long)wc->length, index);
	return check_place(link, end, index, recv, 0);
}

/* A peer that has been notified uses the memory for something else at once. Nothing may be
 * written there again. */
static void reuse_memory(struct link *link, unsigned end, int index)
{
	struct end *here = &link->end[end];

	for (int i = 0; link->failover && !link->faulty && i <= index; i++) {
		struct send *send = &link->end[!end].send[i];

		if (!is_write(send) || send->taken || send->over >= 0 ||
		    !send->length || here->in_owner[(send->remote - IN) / GRAIN] != i)
			continue;
		send->taken = true;
		memset(here->memory + send->remote, TAKEN, send->length);
		memset(here->image + (send->remote - IN), TAKEN, send->length);
	}
}

static int check_arrival(struct link *link, unsigned end, const struct recv *recv,
			 const struct snt_wc *wc)
{
	struct end *here = &link->end[end];
	bool data = wc->opcode == SNT_OP_RECV;
	int index = find_sender(link, end, data, recv, wc);
	const struct send *send;
	bool with_imm;

	if (index < 0)
		return wrong(link, "end %u: a receive that was not sent, imm 0x%x", end,
			     wc->imm);
	here->matched[class_of(link, data)] = index;
	send = &link->end[!end].send[index];
	with_imm = send->opcode != SNT_OP_SEND;
	if (with_imm != !!(wc->flags & SNT_WC_WITH_IMM) ||
	    (with_imm && wc->imm != send->imm))
		return wrong(link, "end %u: imm 0x%x of the peer's WR %d is not 0x%x",
			     end, wc->imm, index, send->imm);
	if (check_order(link, !end, index))
		return -1;
	if (data ? check_message(link, end, index, recv, wc)
		 : check_notification(link, end, index, recv, wc))
		return -1;
	reuse_memory(link, end, index);
	return 0;
}

/* Whichever end sent it: no more bytes than there was room for, and no length from
 * nowhere. One that was asked for is whatever the peer says. */
static int check_raid(struct link *link, const struct recv *recv,
		      const struct snt_wc *wc)
{
	if (wc->opcode == SNT_OP_RECV && wc->length > recv->room)
		return wrong(link, "%llu bytes in a receive of %u",
			     (unsigned long long)wc->length, recv->room);
	if (wc->opcode == SNT_OP_RECV_NOTIFY && lacks_length(link) &&
	    !wants_length(&link->end[1]) && !(wc->flags & SNT_WC_LENGTH_UNKNOWN))
		return wrong(link, "a length that was not asked for");
	return 0;
}

static int check_recv(struct link *link, unsigned end, const struct snt_wc *wc)
{
	struct end *here = &link->end[end];
	bool data = class_of(link, wc->opcode == SNT_OP_RECV);
	uint64_t index = wc->wr_id - id_of(link, RECV_ID, 0);
	struct recv *recv;
	int next;

	if (here->class_done[data] == here->class_posted[data])
		return wrong(link, "end %u: a receive too many, opcode %u", end,
			     wc->opcode);
	next = here->class_order[data][here->class_done[data]++];
	if (index != (uint64_t)next)
		return wrong(link, "end %u: receive 0x%llx where %d was due", end,
			     (unsigned long long)wc->wr_id, next);
	recv = &here->recv[next];
	recv->retired = true;
	link->world->clock++;
	if (wc->status == SNT_WC_SUCCESS)
		return link->hostile ? check_raid(link, recv, wc)
				     : check_arrival(link, end, recv, wc);
	if (!link->faulty && !here->closing)
		return wrong(link, "end %u: receive %d failed: %s", end, next,
			     snt_status_text(wc->status));
	if (link->recvs_injected == 1 && !link->recvs_refused && recv->injected &&
	    wc->status != recv->injected)
		return wrong(link, "end %u: receive %d: %s, but its first error was %d",
			     end, next, snt_status_text(wc->status), recv->injected);
	return 0;
}

static int settle_twins(struct link *link, unsigned end);

static int check_closed(struct link *link, unsigned end, const struct snt_wc *wc)
{
	struct end *here = &link->end[end];

	if (!here->closing || here->closed || wc->wr_id != id_of(link, CLOSE_ID, end))
		return wrong(link, "end %u: SNT_OP_CLOSED out of place", end);
	here->closed = true;
	if (link->twins && settle_twins(link, end))
		return -1;
	for (int data = 0; data < 2; data++)
		if (here->class_done[data] != here->class_posted[data])
			return wrong(link, "end %u: closed with receives not reported",
				     end);
	return pass_over(link, end, here->sends);
}

/* On failure, where: a lane of this QP and the device that it is on. */
static int check_lane(struct link *link, unsigned end, const struct snt_wc *wc)
{
	const struct end *here = &link->end[end];

	if (wc->lane >= here->lanes ||
	    (wc->status ? wc->device != here->lane_device[wc->lane] : wc->device))
		return wrong(link, "end %u: lane %u, device %u, %s", end, wc->lane,
			     wc->device, snt_status_text(wc->status));
	return 0;
}

/* The library flushes DQPLB's notification receives when an error has come to it; it
 * must say which. */
static int check_cause(struct link *link, unsigned end, const struct snt_wc *wc)
{
	const struct end *here = &link->end[end];

	if (wc->cause && wc->status != SNT_WC_FLUSHED)
		return wrong(link, "end %u: a cause of %s", end,
			     snt_status_text(wc->status));
	if (!is_sequenced(link) || !link->only_status || link->only_end != end ||
	    here->closing || wc->status != SNT_WC_FLUSHED ||
	    wc->opcode != SNT_OP_RECV_NOTIFY)
		return 0;
	if (wc->cause != link->only_status)
		return wrong(link, "end %u: flushed because of %u, not %d", end,
			     wc->cause, link->only_status);
	return 0;
}

static bool is_recv(const struct link *link, const struct snt_wc *wc)
{
	/* After a failure the opcode is unknown on a pass-through lane. */
	if (link->pass && wc->status)
		return wc->wr_id - id_of(link, RECV_ID, 0) < LINK_IDS;
	return wc->opcode == SNT_OP_RECV || wc->opcode == SNT_OP_RECV_NOTIFY;
}

/*
 * Twins: a completion is of some WR, and in the end there were as many as WRs.
 * Successes tell what they are of, and come in order.
 */

static int check_twin(struct link *link, unsigned end, const struct snt_wc *wc)
{
	struct end *here = &link->end[end];
	int sends = here->sends - here->sends_done;
	int recvs = here->class_posted[1] - here->class_done[1];
	struct snt_wc named = *wc;

	if (wc->wr_id != TWIN_ID)
		return wrong(link, "end %u: wr_id 0x%llx is of no WR", end,
			     (unsigned long long)wc->wr_id);
	if (!wc->status && is_recv(link, wc)) {
		if (!recvs)
			return wrong(link, "end %u: a receive too many", end);
		named.wr_id =
			id_of(link, RECV_ID, here->class_order[1][here->class_done[1]]);
		return check_recv(link, end, &named);
	}
	if (!wc->status) {
		named.wr_id = id_of(link, SEND_ID, here->sends_done);
		return check_send(link, end, &named);
	}
	link->world->clock++;
	if (!link->faulty && !here->closing)
		return wrong(link, "end %u: a twin failed: %s", end,
			     snt_status_text(wc->status));
	if (++here->twins_failed > sends + recvs)
		return wrong(link, "end %u: %d WRs failed, of %d that were under way",
			     end, here->twins_failed, sends + recvs);
	return 0;
}

/* All that failed is known now, by what did not succeed. */
static int settle_twins(struct link *link, unsigned end)
{
	struct end *here = &link->end[end];
	int sends = here->sends - here->sends_done;
	int recvs = here->class_posted[1] - here->class_done[1];

	if (here->twins_failed != sends + recvs)
		return wrong(link, "end %u: closed with %d of %d failed WRs reported",
			     end, here->twins_failed, sends + recvs);
	for (; here->sends_done < here->sends; here->sends_done++) {
		here->send[here->sends_done].failed = true;
		retire(here, &here->send[here->sends_done]);
	}
	while (here->class_done[1] < here->class_posted[1])
		here->recv[here->class_order[1][here->class_done[1]++]].retired = true;
	return 0;
}

int check_completion(struct world *world, unsigned host, const struct snt_cq *cq,
		     const struct snt_wc *wc)
{
	struct link *link = world->link;
	struct link *last = link + world->links;
	const struct snt_cq *due;

	while (link < last &&
	       !(link->end[host].qp && wc->qp_num == snt_qp_num(link->end[host].qp)))
		link++;
	if (link == last)
		return wrong(world->link, "a completion of QP %u, which is none",
			     wc->qp_num);
	if (world->trace)
		printf("# link %u, end %u: wc opcode %u id 0x%llx status %u length %llu "
		       "imm 0x%x\n",
		       link->index, host, wc->opcode, (unsigned long long)wc->wr_id,
		       wc->status, (unsigned long long)wc->length, wc->imm);
	if (world->saw)
		world->saw(wc);
	if (link->end[host].closed)
		return wrong(link, "end %u: a completion after SNT_OP_CLOSED", host);
	due = is_recv(link, wc) ? link->end[host].recv_cq : link->end[host].cq;
	if (link->twins && wc->status)
		due = cq; /* either */
	if (cq && cq != due)
		return wrong(link, "end %u: opcode %u on the wrong CQ", host,
			     wc->opcode);
	if (wc->opcode == SNT_OP_RECEIPT && !wc->status && link->failover) {
		link->end[host].receipt_due = true;
		return 0;
	}
	if (wc->opcode == SNT_OP_CLOSED && !wc->status)
		return check_closed(link, host, wc);
	if (check_lane(link, host, wc) || check_cause(link, host, wc))
		return -1;
	if (link->twins)
		return check_twin(link, host, wc);
	return is_recv(link, wc) ? check_recv(link, host, wc)
				 : check_send(link, host, wc);
}

/*
 * What the device has in its hands
 */

static int local_owner(const struct end *here, uint64_t addr)
{
	uint64_t at = addr - (uintptr_t)here->memory - OUT;

	return at < OUT_SIZE ? here->out_owner[at / GRAIN] : NOBODY;
}

/* A notification may go to a mailbox, of which the model knows nothing; then its
 * immediate tells, unless it is 0. */
static int notifier(const struct end *here, uint32_t imm)
{
	for (int i = 0; imm && i < here->sends; i++)
		if (here->send[i].opcode == SNT_OP_WRITE_IMM &&
		    here->send[i].imm == imm)
			return i;
	return NOBODY;
}

int owner_of(const struct link *link, unsigned end, const struct scripted_send *send)
{
	const struct end *here = &link->end[end], *there = &link->end[!end];
	uint64_t at = send->wr.wr.rdma.remote_addr - (uintptr_t)there->memory - IN;
	bool write = send->wr.opcode == IBV_WR_RDMA_WRITE ||
		     send->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	for (int i = 0; i < send->wr.num_sge; i++)
		if (send->sge[i].length && !(send->wr.send_flags & IBV_SEND_INLINE) &&
		    local_owner(here, send->sge[i].addr) != NOBODY)
			return local_owner(here, send->sge[i].addr);
	if (write && at < IN_SIZE)
		return there->in_owner[at / GRAIN];
	return send->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && lacks_length(link)
		       ? notifier(here, ntohl(send->wr.imm_data))
		       : NOBODY;
}

static int check_physical(struct link *link, unsigned end,
			  const struct scripted_send *send, int owner)
{
	const struct end *here = &link->end[end];
	bool announces = send->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
			 send->wr.opcode == IBV_WR_SEND ||
			 send->wr.opcode == IBV_WR_SEND_WITH_IMM;
	bool solicited = send->wr.send_flags & IBV_SEND_SOLICITED;

	if (owner >= here->sends)
		return wrong(link, "end %u: a WR that was refused is with the device",
			     end);
	if (here->send[owner].retired)
		return wrong(link, "end %u: WR %d retired, but a lane still has it",
			     end, owner);
	if (announces && solicited != !!(here->send[owner].flags & SNT_SEND_SOLICITED))
		return wrong(link, "end %u: WR %d: solicited is %d", end, owner,
			     solicited);
	return 0;
}

static int check_recv_queue(struct link *link, unsigned end, struct ibv_qp *qp)
{
	const struct end *here = &link->end[end];
	struct scripted_recv recv;

	for (unsigned i = 0; !scripted_peek_recv(qp, i, &recv); i++) {
		uint64_t at;

		if (!recv.wr.num_sge)
			continue;
		at = (recv.sge[0].addr - (uintptr_t)here->memory - RECV) / RECV_ROOM;
		if (at >= (uint64_t)here->class_posted[1] ||
		    here->recv[here->class_order[1][at]].retired)
			return wrong(link,
				     "end %u: the device has data receive %d, which "
				     "was refused or has retired",
				     end, (int)at);
	}
	return 0;
}

int check_pending(struct link *link, unsigned end)
{
	const struct end *here = &link->end[end];
	int oldest = SENDS_MAX, fenced = -1;

	for (unsigned lane = 0; lane < here->lanes; lane++) {
		struct scripted_send send;
		unsigned count = scripted_pending(here->lane[lane]);

		for (unsigned i = 0; i < count; i++) {
			int owner;

			scripted_peek(here->lane[lane], i, &send);
			owner = owner_of(link, end, &send);
			if (owner < 0)
				continue;
			if (check_physical(link, end, &send, owner))
				return -1;
			if (owner < oldest)
				oldest = owner;
			if (here->send[owner].flags & SNT_SEND_FENCE && owner > fenced)
				fenced = owner;
		}
		if (check_recv_queue(link, end, here->lane[lane]))
			return -1;
	}
	/* On a pass-through lane FENCE is what it is in verbs. */
	if (fenced > oldest && !link->pass)
		return wrong(link, "end %u: fenced WR %d was sent, WR %d is under way",
			     end, fenced, oldest);
	return 0;
}

/*
 * The end
 */

static int check_guards(struct link *link, unsigned end)
{
	const struct end *here = &link->end[end];
	unsigned char guard[CANARY_SIZE];

	memset(guard, GUARD, sizeof(guard));
	if (memcmp(here->memory + CANARY, guard, sizeof(guard)))
		return wrong(link, "end %u: a refused WR had an effect", end);
	for (uint32_t i = 0; i < RAID_SIZE && !link->hostile; i++)
		if (here->memory[RAID + i] != EMPTY)
			return wrong(link, "end %u: another link's raider was here",
				     end);
	for (uint32_t i = 0; i < SOURCE_SIZE; i++)
		if (here->memory[SOURCE + i] != source_byte(end, i))
			return wrong(link, "end %u: memory to be read changed", end);
	return 0;
}

/* Of each WR that succeeded the effect is there to stay; of no other place. */
int check_memory(struct link *link)
{
	for (unsigned end = 0; end < 2; end++) {
		const struct end *here = &link->end[end];

		if (check_guards(link, end))
			return -1;
		for (int i = 0; i < here->sends; i++)
			if (here->send[i].retired && !here->send[i].failed &&
			    !effect_seen(link, end, i))
				return wrong(link, "end %u: WR %d lost its effect", end,
					     i);
		if (!link->faulty && memcmp(here->memory + IN, here->image, IN_SIZE))
			return wrong(link, "end %u: memory differs from the model",
				     end);
		for (uint32_t i = 0; i < IN_SIZE; i++) {
			int owner = here->in_owner[i / GRAIN];

			if (owner == NOBODY && here->memory[IN + i] != EMPTY)
				return wrong(link, "end %u: written where no WR was",
					     end);
		}
	}
	return 0;
}
