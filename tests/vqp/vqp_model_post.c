/* SPDX-License-Identifier: MIT */
/* Random WRs, good and bad, and whether it was right to accept or refuse them. */
#include "vqp_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BATCH_MAX 3

/*
 * Sends
 */

/* A WR as it is posted, and the model's idea of it. */
struct draft {
	struct send send;
	struct snt_sge sge[PIECES_MAX + 1];
	struct snt_token token;
	struct snt_send_wr wr;
	unsigned char payload[MESSAGE_BYTES];
	int expect; /* 0, or the errno that must refuse it */
	uint32_t out_used, in_used;
	uint64_t bits;
};

static int take_out(struct end *end, uint32_t length)
{
	uint32_t at = end->out_used;

	length = (length + GRAIN - 1) / GRAIN * GRAIN;
	if (at + length > OUT_SIZE)
		return -1;
	end->out_used += length;
	return OUT + at;
}

static uint8_t pick_opcode(struct link *link, const struct end *here, int index)
{
	static const uint8_t opcodes[] = {
		SNT_OP_WRITE,	  SNT_OP_WRITE,	   SNT_OP_WRITE, SNT_OP_WRITE_IMM,
		SNT_OP_WRITE_IMM, SNT_OP_READ,	   SNT_OP_SEND,	 SNT_OP_SEND_IMM,
		SNT_OP_FETCH_ADD, SNT_OP_CMP_SWAP, SNT_OP_WRITE, SNT_OP_WRITE_IMM
	};
	uint8_t opcode = opcodes[dice(link->world, sizeof(opcodes))];

	if (link->floods && chance(link->world, 80))
		opcode = SNT_OP_WRITE_IMM;

	if ((opcode == SNT_OP_SEND || opcode == SNT_OP_SEND_IMM ||
	     (link->pass && opcode == SNT_OP_WRITE_IMM)) &&
	    here->messages + (link->pass ? here->notifies : 0) >= MESSAGES_MAX)
		opcode = SNT_OP_WRITE;
	if (opcode >= SNT_OP_CMP_SWAP && (index >= ATOMICS_MAX || link->calm))
		opcode = SNT_OP_WRITE;
	return opcode;
}

static uint32_t pick_length(struct link *link, const struct end *here,
			    const struct send *send)
{
	uint32_t most = is_message(send) ? MESSAGE_BYTES
			: link->pass	 ? here->message_max
					 : here->message_max * 5;

	if (is_atomic(send))
		return 8;
	if (send->flags & SNT_SEND_INLINE)
		most = here->opts.inline_max;
	if (send->opcode == SNT_OP_READ && most > SOURCE_SIZE)
		most = SOURCE_SIZE;
	switch (link->floods ? 7 : dice(link->world, 8)) {
	case 0:
		return 0;
	case 1:
		return most < here->message_max ? most : here->message_max;
	case 2:
	case 3:
		return dice(link->world, most + 1);
	default:
		return 1 + dice(link->world, most < 64 ? most : 64);
	}
}

/* On a pass-through lane every second one is signalled, since it is the program that
 * has to see to it that the queue does not fill up with others. */
static uint8_t pick_flags(struct link *link, const struct end *here, int index,
			  uint8_t opcode)
{
	bool must =
		link->pass && (link->twins || index % 2 || here->opts.lane_depth == 1);
	uint8_t flags = (must || chance(link->world, 60) ? SNT_SEND_SIGNALED : 0) |
			(chance(link->world, 10) ? SNT_SEND_FENCE : 0) |
			(chance(link->world, 20) ? SNT_SEND_SOLICITED : 0);

	if (here->opts.inline_max && chance(link->world, 20) && opcode != SNT_OP_READ &&
	    opcode < SNT_OP_CMP_SWAP)
		flags |= SNT_SEND_INLINE;
	return flags;
}

/* Where at the peer. A fenced write may go where an earlier one went. */
static bool place_remote(struct link *link, unsigned end, struct draft *draft,
			 uint32_t *in_used)
{
	struct end *here = &link->end[end];
	struct send *send = &draft->send;
	uint32_t room =
		send->length ? (send->length + GRAIN - 1) / GRAIN * GRAIN : GRAIN;

	if (is_atomic(send))
		send->remote = WORD;
	else if (send->opcode == SNT_OP_READ)
		send->remote =
			SOURCE + dice(link->world, SOURCE_SIZE - send->length + 1);
	if (!is_write(send))
		return true;
	if (send->flags & SNT_SEND_FENCE && here->sends && chance(link->world, 50)) {
		int victim = dice(link->world, here->sends);
		const struct send *other = &here->send[victim];

		if (is_write(other) && other->over < 0 &&
		    other->length == send->length && send->length) {
			send->remote = other->remote;
			return true;
		}
	}
	if (*in_used + room > IN_SIZE)
		return false;
	send->remote = IN + *in_used;
	*in_used += room;
	return true;
}

/* Cuts the local bytes into pieces, some of them empty. */
static bool place_local(struct link *link, struct end *here, struct send *send)
{
	uint32_t left = send->length;
	unsigned most = here->opts.send_sge_max;

	send->pieces = is_atomic(send) || !chance(link->world, 40)
			       ? 1
			       : 1 + dice(link->world, most);
	if (!send->length && chance(link->world, 50))
		send->pieces = 0;
	for (unsigned i = 0; i < send->pieces; i++) {
		uint32_t part =
			i + 1 == send->pieces ? left : dice(link->world, left + 1);
		int at = take_out(here, part);

		if (at < 0)
			return false;
		send->piece[i] = at;
		send->piece_length[i] = part;
		left -= part;
	}
	return true;
}

static void fill_local(struct link *link, unsigned end, int index, struct draft *draft)
{
	struct end *here = &link->end[end];
	struct send *send = &draft->send;
	bool inlined = send->flags & SNT_SEND_INLINE;
	uint32_t at = 0;

	for (unsigned i = 0; i < send->pieces; i++) {
		unsigned char *to =
			inlined ? draft->payload + at : here->memory + send->piece[i];

		draft->sge[i] = (struct snt_sge){ inlined ? NULL : here->mem, to,
						  send->piece_length[i] };
		for (uint32_t j = 0; j < send->piece_length[i]; j++)
			to[j] = pattern(end, index, at + j);
		at += send->piece_length[i];
	}
}

/* 0 is an immediate of its own in DQPLB; where some WRs fail in SPRAY it could
 * not be told which one came. */
static uint32_t pick_imm(struct link *link, int index)
{
	if (chance(link->world, 30) && (!link->world->may_fail || is_sequenced(link)))
		return 0;
	return (uint32_t)random_next(&link->world->random) << 8 | (index + 1);
}

static bool draft_send(struct link *link, unsigned end, int index, struct draft *draft,
		       uint64_t bits)
{
	struct end *here = &link->end[end], *there = &link->end[!end];
	struct send *send = &draft->send;

	memset(draft, 0, sizeof(*draft));
	send->opcode = pick_opcode(link, here, index);
	send->flags = pick_flags(link, here, index, send->opcode);
	send->length = pick_length(link, here, send);
	if (link->world->may_fail && send->opcode == SNT_OP_SEND && !send->length)
		send->opcode = SNT_OP_SEND_IMM;
	send->over = -1;
	draft->in_used = there->in_used;
	if (!place_local(link, here, send) ||
	    !place_remote(link, end, draft, &there->in_used))
		return false;
	fill_local(link, end, index, draft);
	send->imm = pick_imm(link, index);
	if (is_atomic(send)) {
		send->bit = UINT64_C(1) << index;
		send->compare = bits;
	}
	draft->wr = (struct snt_send_wr){
		.wr_id = link->twins ? TWIN_ID : id_of(link, SEND_ID, index),
		.opcode = send->opcode,
		.flags = send->flags,
		.sge_count = send->pieces,
		.imm = send->imm,
		.sge = draft->sge,
		.remote = &there->token,
		.remote_addr = (uintptr_t)there->memory + send->remote,
		.compare_add = send->opcode == SNT_OP_FETCH_ADD ? send->bit : bits,
		.swap = bits | send->bit,
	};
	return true;
}

/* Makes a WR one that must be refused, and lets it name the canary. */
static void spoil(struct link *link, unsigned end, struct draft *draft)
{
	struct end *here = &link->end[end];
	struct snt_send_wr *wr = &draft->wr;
	bool remote = !is_message(&draft->send);

	if (is_write(&draft->send))
		wr->remote_addr = (uintptr_t)link->end[!end].memory + CANARY;
	draft->token = link->end[!end].token;
	wr->remote = &draft->token;
	draft->expect = EINVAL;
	switch (dice(link->world, 7)) {
	case 0:
		wr->opcode = chance(link->world, 50)
				     ? 0
				     : SNT_OP_RECV + dice(link->world, 200);
		break;
	case 1:
		wr->flags |= 0x10 << dice(link->world, 4);
		break;
	case 2:
		while (wr->sge_count <= here->opts.send_sge_max)
			draft->sge[wr->sge_count++] =
				(struct snt_sge){ here->mem, here->memory + OUT, 0 };
		break;
	case 3:
		if (!remote || !draft->send.length)
			goto atomic;
		draft->expect = ERANGE;
		wr->remote_addr = draft->token.addr + MEMORY - draft->send.length + 8;
		break;
	case 4:
		if (!remote)
			goto atomic;
		draft->expect = EACCES;
		draft->token.access = 0;
		break;
	case 5:
		if (wr->flags & SNT_SEND_INLINE || !draft->send.length)
			goto atomic;
		draft->expect = ERANGE;
		draft->sge[wr->sge_count - 1].addr = here->memory + MEMORY - 1;
		draft->sge[wr->sge_count - 1].length = 8;
		break;
	default:
atomic:
		wr->opcode = SNT_OP_FETCH_ADD;
		wr->flags = 0;
		wr->sge_count = 1;
		draft->sge[0] = (struct snt_sge){ here->mem, here->memory + OUT, 8 };
		wr->remote_addr = (uintptr_t)link->end[!end].memory + CANARY + 4;
	}
}

/* A WR was accepted: from here on the model knows of it. */
static void commit(struct link *link, unsigned end, const struct draft *draft)
{
	struct end *here = &link->end[end], *there = &link->end[!end];
	int index = here->sends++, owner = index;
	struct send *send = &here->send[index];

	*send = draft->send;
	send->posted = link->world->clock;
	here->messages += is_message(send);
	here->notifies += send->opcode == SNT_OP_WRITE_IMM;
	here->atomic_bits |= send->bit;
	for (unsigned i = 0; i < send->pieces; i++)
		for (uint32_t at = 0; at < send->piece_length[i]; at += GRAIN)
			here->out_owner[(send->piece[i] - OUT + at) / GRAIN] = index;
	if (!is_write(send))
		return;
	for (int i = 0; i < index; i++)
		if (is_write(&here->send[i]) && here->send[i].remote == send->remote &&
		    here->send[i].over < 0) {
			here->send[i].over = index;
			owner = SHARED;
		}
	for (uint32_t at = 0; at < send->length || !at; at += GRAIN)
		there->in_owner[(send->remote - IN + at) / GRAIN] = owner;
	for (uint32_t i = 0; i < send->length; i++)
		there->image[send->remote - IN + i] = pattern(end, index, i);
}

void ring_bounds(const struct end *here, unsigned *least, unsigned *most)
{
	int at = here->sends_done;

	while (at < here->sends && !(here->send[at].flags & SNT_SEND_SIGNALED))
		at++;
	*least = here->sends - at;
	*most = here->sends - here->sends_done;
}

unsigned unreported(const struct end *here, unsigned least)
{
	unsigned failed = here->twins_failed;

	return failed < least ? least - failed : 0;
}

/* A pass-through lane has no ring of its own. */
static unsigned send_depth(const struct link *link, const struct end *here)
{
	return link->pass ? here->opts.lane_depth : here->opts.send_depth;
}

/* Was it right to refuse a WR for that reason? */
static bool may_refuse(const struct link *link, const struct end *here, int ret,
		       int due)
{
	unsigned least, most;

	ring_bounds(here, &least, &most);
	if (ret == -ESHUTDOWN)
		return here->closing || link->faulty;
	if (here->closing)
		return false;
	if (ret == -EAGAIN && most >= send_depth(link, here))
		return true;
	return due && ret == -due;
}

/* Was it right to accept so many? */
static int check_posted(struct link *link, unsigned end, const struct draft *draft,
			unsigned count, int ret)
{
	struct end *here = &link->end[end];
	unsigned taken = ret < 0 ? 0 : ret;
	unsigned least, most;

	if (ret == 0 || taken > count)
		return wrong(link, "end %u: %d of %u WRs taken", end, ret, count);
	for (unsigned i = 0; i < taken; i++) {
		bool full;

		ring_bounds(here, &least, &most);
		full = (link->pass ? most : least) >= send_depth(link, here);
		if (draft[i].expect || full || here->closing)
			return wrong(link,
				     "end %u: WR %d taken: error %d was due, %u in the "
				     "ring",
				     end, here->sends, draft[i].expect, least);
		commit(link, end, &draft[i]);
	}
	if (ret > 0 || may_refuse(link, here, ret, draft[0].expect))
		return 0;
	ring_bounds(here, &least, &most);
	return wrong(link, "end %u: refused with %d, not %d, at most %u in the ring",
		     end, ret, -draft[0].expect, most);
}

int post_sends(struct link *link, unsigned end)
{
	static struct draft draft[BATCH_MAX];
	struct end *here = &link->end[end], *there = &link->end[!end];
	struct snt_send_wr wr[BATCH_MAX];
	unsigned count = 0, want = 1 + dice(link->world, BATCH_MAX), taken;
	uint64_t bits = here->atomic_bits;
	int ret;

	for (; count < want && here->sends + count < SENDS_MAX; count++) {
		struct draft *next = &draft[count];
		uint32_t out_used = here->out_used, in_used = there->in_used;

		if (!draft_send(link, end, here->sends + count, next, bits)) {
			here->out_used = out_used;
			there->in_used = in_used;
			break;
		}
		next->out_used = out_used;
		next->in_used = in_used;
		bits |= next->send.bit;
		if (chance(link->world, 5))
			spoil(link, end, next);
		wr[count] = next->wr;
	}
	if (!count)
		return 0;
	ret = snt_qp_post_send(here->qp, wr, count);
	if (link->world->trace)
		for (unsigned i = 0; i < count; i++)
			printf("# link %u, end %u: post opcode %u flags 0x%x length %u imm 0x%x "
			       "as WR %d: %d\n",
			       link->index, end, wr[i].opcode, wr[i].flags,
			       draft[i].send.length, wr[i].imm, here->sends + (int)i,
			       ret);
	taken = ret < 0 ? 0 : ret;
	if (taken < count) {
		here->out_used = draft[taken].out_used;
		there->in_used = draft[taken].in_used;
	}
	for (unsigned i = 0; i < count; i++)
		memset(draft[i].payload, SPOILED, sizeof(draft[i].payload));
	link->world->clock++;
	return check_posted(link, end, draft, count, ret);
}

/*
 * Receives
 */

/* Cuts a receive's room into pieces. */
static void cut_recv(struct link *link, struct end *here, const struct recv *recv,
		     struct snt_recv_wr *wr, struct snt_sge *sge)
{
	uint32_t left = RECV_ROOM;

	wr->sge_count = 1 + dice(link->world, here->opts.recv_sge_max);
	for (unsigned i = 0; i < wr->sge_count; i++) {
		uint32_t part =
			i + 1 == wr->sge_count ? left : dice(link->world, left + 1);

		sge[i] = (struct snt_sge){ here->mem,
					   here->memory + recv->at + RECV_ROOM - left,
					   part };
		left -= part;
	}
}

/* A device that refuses a receive on a pass-through lane forgets all, as long as there
 * is no connection that could fail instead. */
static bool forget_recvs(struct link *link, struct end *here, int ret)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	if (!link->pass || !link->faulty || snt_qp_query(here->qp, &info) ||
	    info.state != SNT_QP_UNCONNECTED)
		return false;
	if (ret != -ENOMEM && ret != -EIO && ret != -EINVAL)
		return false;
	here->class_done[1] = here->class_posted[1];
	return true;
}

int post_recv(struct link *link, unsigned end, bool wanted)
{
	struct end *here = &link->end[end];
	bool data = class_of(link, wanted);
	struct snt_sge sge[PIECES_MAX];
	struct snt_recv_wr wr = { .wr_id = link->twins
						   ? TWIN_ID
						   : id_of(link, RECV_ID, here->recvs),
				  .sge = sge };
	struct recv *recv = &here->recv[here->recvs];
	unsigned waiting = here->class_posted[data] - here->class_done[data];
	bool full = waiting >= here->opts.recv_depth;
	bool bad = data && chance(link->world, 3);
	int ret;

	if (here->recvs == RECVS_MAX || (data && here->class_posted[1] == RECV_MAX))
		return 0;
	*recv = (struct recv){ .data = data,
			       .at = RECV + here->class_posted[1] * RECV_ROOM,
			       .room = data ? RECV_ROOM : 0 };
	if (data)
		cut_recv(link, here, recv, &wr, sge);
	if (bad)
		sge[0].addr = here->memory + MEMORY - sge[0].length + 1;
	ret = snt_qp_post_recv(here->qp, &wr, 1);
	if (link->world->trace)
		printf("# link %u, end %u: post receive %d, %s: %d\n", link->index, end,
		       here->recvs, data ? "data" : "notify", ret);
	if (ret == 1 && !bad && !here->closing && !full) {
		here->class_order[data][here->class_posted[data]++] = here->recvs++;
		return 0;
	}
	if ((ret == -ERANGE && bad) || (ret == -EAGAIN && full) ||
	    (ret == -ESHUTDOWN && (here->closing || link->faulty)) ||
	    forget_recvs(link, here, ret))
		return 0;
	return wrong(link, "end %u: receive %d (%s): %d, %u waiting", end, here->recvs,
		     data ? "data" : "notify", ret, waiting);
}
