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

static uint8_t pick_opcode(struct world *world, const struct end *here)
{
	static const uint8_t opcodes[] = {
		SNT_WRITE,     SNT_WRITE,    SNT_WRITE, SNT_WRITE_IMM,
		SNT_WRITE_IMM, SNT_READ,     SNT_SEND,	SNT_SEND_IMM,
		SNT_FETCH_ADD, SNT_CMP_SWAP, SNT_WRITE, SNT_WRITE_IMM
	};
	uint8_t opcode = opcodes[dice(world, sizeof(opcodes))];

	if ((opcode == SNT_SEND || opcode == SNT_SEND_IMM) &&
	    here->messages >= MESSAGES_MAX)
		opcode = SNT_WRITE;
	return opcode;
}

static uint32_t pick_length(struct world *world, const struct end *here,
			    const struct send *send)
{
	uint32_t most = is_message(send) ? MESSAGE_BYTES : here->message_max * 5;

	if (is_atomic(send))
		return 8;
	if (send->flags & SNT_INLINE)
		most = here->opts.inline_max;
	if (send->opcode == SNT_READ && most > SOURCE_SIZE)
		most = SOURCE_SIZE;
	switch (dice(world, 8)) {
	case 0:
		return 0;
	case 1:
		return most < here->message_max ? most : here->message_max;
	case 2:
	case 3:
		return dice(world, most + 1);
	default:
		return 1 + dice(world, most < 64 ? most : 64);
	}
}

static uint8_t pick_flags(struct world *world, const struct end *here, uint8_t opcode)
{
	uint8_t flags = (chance(world, 60) ? SNT_SIGNALED : 0) |
			(chance(world, 10) ? SNT_FENCE : 0) |
			(chance(world, 20) ? SNT_SOLICITED : 0);

	if (here->opts.inline_max && chance(world, 20) && opcode != SNT_READ &&
	    opcode < SNT_CMP_SWAP)
		flags |= SNT_INLINE;
	return flags;
}

/* Where at the peer. A fenced write may go where an earlier one went. */
static bool place_remote(struct world *world, unsigned end, struct draft *draft,
			 uint32_t *in_used)
{
	struct end *here = &world->end[end];
	struct send *send = &draft->send;
	uint32_t room =
		send->length ? (send->length + GRAIN - 1) / GRAIN * GRAIN : GRAIN;

	if (is_atomic(send))
		send->remote = WORD;
	else if (send->opcode == SNT_READ)
		send->remote = SOURCE + dice(world, SOURCE_SIZE - send->length + 1);
	if (!is_write(send))
		return true;
	if (send->flags & SNT_FENCE && here->sends && chance(world, 50)) {
		int victim = dice(world, here->sends);
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
static bool place_local(struct world *world, struct end *here, struct send *send)
{
	uint32_t left = send->length;
	unsigned most = here->opts.send_sge_max;

	send->pieces =
		is_atomic(send) || !chance(world, 40) ? 1 : 1 + dice(world, most);
	if (!send->length && chance(world, 50))
		send->pieces = 0;
	for (unsigned i = 0; i < send->pieces; i++) {
		uint32_t part = i + 1 == send->pieces ? left : dice(world, left + 1);
		int at = take_out(here, part);

		if (at < 0)
			return false;
		send->piece[i] = at;
		send->piece_length[i] = part;
		left -= part;
	}
	return true;
}

static void fill_local(struct world *world, unsigned end, int index,
		       struct draft *draft)
{
	struct end *here = &world->end[end];
	struct send *send = &draft->send;
	bool inlined = send->flags & SNT_INLINE;
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
static uint32_t pick_imm(struct world *world, int index)
{
	if (chance(world, 30) && (!world->may_fail || world->scheme == SNT_DQPLB))
		return 0;
	return (uint32_t)random_next(&world->random) << 8 | (index + 1);
}

static bool draft_send(struct world *world, unsigned end, int index,
		       struct draft *draft, uint64_t bits)
{
	struct end *here = &world->end[end], *there = &world->end[!end];
	struct send *send = &draft->send;

	memset(draft, 0, sizeof(*draft));
	send->opcode = pick_opcode(world, here);
	send->flags = pick_flags(world, here, send->opcode);
	send->length = pick_length(world, here, send);
	if (world->may_fail && send->opcode == SNT_SEND && !send->length)
		send->opcode = SNT_SEND_IMM;
	send->over = -1;
	draft->in_used = there->in_used;
	if (!place_local(world, here, send) ||
	    !place_remote(world, end, draft, &there->in_used))
		return false;
	fill_local(world, end, index, draft);
	send->imm = pick_imm(world, index);
	if (is_atomic(send)) {
		send->bit = UINT64_C(1) << index;
		send->compare = bits;
	}
	draft->wr = (struct snt_send_wr){
		.wr_id = SEND_ID + index,
		.opcode = send->opcode,
		.flags = send->flags,
		.sge_count = send->pieces,
		.imm = send->imm,
		.sge = draft->sge,
		.remote = &there->token,
		.remote_addr = (uintptr_t)there->memory + send->remote,
		.compare_add = send->opcode == SNT_FETCH_ADD ? send->bit : bits,
		.swap = bits | send->bit,
	};
	return true;
}

/* Makes a WR one that must be refused, and lets it name the canary. */
static void spoil(struct world *world, unsigned end, struct draft *draft)
{
	struct end *here = &world->end[end];
	struct snt_send_wr *wr = &draft->wr;
	bool remote = !is_message(&draft->send);

	if (is_write(&draft->send))
		wr->remote_addr = (uintptr_t)world->end[!end].memory + CANARY;
	draft->token = world->end[!end].token;
	wr->remote = &draft->token;
	draft->expect = EINVAL;
	switch (dice(world, 7)) {
	case 0:
		wr->opcode = chance(world, 50) ? 0 : SNT_RECV + dice(world, 200);
		break;
	case 1:
		wr->flags |= 0x10 << dice(world, 4);
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
		if (wr->flags & SNT_INLINE || !draft->send.length)
			goto atomic;
		draft->expect = ERANGE;
		draft->sge[wr->sge_count - 1].addr = here->memory + MEMORY - 1;
		draft->sge[wr->sge_count - 1].length = 8;
		break;
	default:
atomic:
		wr->opcode = SNT_FETCH_ADD;
		wr->flags = 0;
		wr->sge_count = 1;
		draft->sge[0] = (struct snt_sge){ here->mem, here->memory + OUT, 8 };
		wr->remote_addr = (uintptr_t)world->end[!end].memory + CANARY + 4;
	}
}

/* A WR was accepted: from here on the model knows of it. */
static void commit(struct world *world, unsigned end, const struct draft *draft)
{
	struct end *here = &world->end[end], *there = &world->end[!end];
	int index = here->sends++, owner = index;
	struct send *send = &here->send[index];

	*send = draft->send;
	send->posted = world->clock;
	here->messages += is_message(send);
	here->notifies += send->opcode == SNT_WRITE_IMM;
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

	while (at < here->sends && !(here->send[at].flags & SNT_SIGNALED))
		at++;
	*least = here->sends - at;
	*most = here->sends - here->sends_done;
}

/* Was it right to accept so many, and to refuse the next one for that reason? */
static int check_posted(struct world *world, unsigned end, const struct draft *draft,
			unsigned count, int ret)
{
	struct end *here = &world->end[end];
	unsigned taken = ret < 0 ? 0 : ret;
	unsigned least, most;

	if (ret == 0 || taken > count)
		return wrong(world, "end %u: %d of %u WRs taken", end, ret, count);
	for (unsigned i = 0; i < taken; i++) {
		ring_bounds(here, &least, &most);
		if (draft[i].expect || least >= here->opts.send_depth || here->closing)
			return wrong(world,
				     "end %u: WR %d taken: error %d was due, %u in the "
				     "ring",
				     end, here->sends, draft[i].expect, least);
		commit(world, end, &draft[i]);
	}
	if (ret > 0)
		return 0;
	ring_bounds(here, &least, &most);
	if (ret == -ESHUTDOWN && (here->closing || world->faulty))
		return 0;
	if (ret == -EAGAIN && most >= here->opts.send_depth && !here->closing)
		return 0;
	if (draft[0].expect && ret == -draft[0].expect && !here->closing)
		return 0;
	return wrong(world, "end %u: refused with %d, not %d, at most %u in the ring",
		     end, ret, -draft[0].expect, most);
}

int post_sends(struct world *world, unsigned end)
{
	static struct draft draft[BATCH_MAX];
	struct end *here = &world->end[end], *there = &world->end[!end];
	struct snt_send_wr wr[BATCH_MAX];
	unsigned count = 0, want = 1 + dice(world, BATCH_MAX), taken;
	uint64_t bits = here->atomic_bits;
	int ret;

	for (; count < want && here->sends + count < SENDS_MAX; count++) {
		struct draft *next = &draft[count];
		uint32_t out_used = here->out_used, in_used = there->in_used;

		if (!draft_send(world, end, here->sends + count, next, bits)) {
			here->out_used = out_used;
			there->in_used = in_used;
			break;
		}
		next->out_used = out_used;
		next->in_used = in_used;
		bits |= next->send.bit;
		if (chance(world, 5))
			spoil(world, end, next);
		wr[count] = next->wr;
	}
	if (!count)
		return 0;
	ret = snt_qp_post_send(here->qp, wr, count);
	if (world->trace)
		for (unsigned i = 0; i < count; i++)
			printf("# end %u: post opcode %u flags 0x%x length %u imm 0x%x "
			       "as WR %d: %d\n",
			       end, wr[i].opcode, wr[i].flags, draft[i].send.length,
			       wr[i].imm, here->sends + (int)i, ret);
	taken = ret < 0 ? 0 : ret;
	if (taken < count) {
		here->out_used = draft[taken].out_used;
		there->in_used = draft[taken].in_used;
	}
	for (unsigned i = 0; i < count; i++)
		memset(draft[i].payload, SPOILED, sizeof(draft[i].payload));
	world->clock++;
	return check_posted(world, end, draft, count, ret);
}

/*
 * Receives
 */

int post_recv(struct world *world, unsigned end, bool data)
{
	struct end *here = &world->end[end];
	struct snt_sge sge[PIECES_MAX];
	struct snt_recv_wr wr = { .wr_id = RECV_ID + here->recvs, .sge = sge };
	struct recv *recv = &here->recv[here->recvs];
	unsigned waiting = here->class_posted[data] - here->class_done[data];
	uint32_t left = RECV_ROOM;
	bool bad = data && chance(world, 3);
	int ret;

	if (here->recvs == RECVS_MAX || (data && here->class_posted[1] == RECV_MAX))
		return 0;
	*recv = (struct recv){ .data = data,
			       .at = RECV + here->class_posted[1] * RECV_ROOM,
			       .room = data ? RECV_ROOM : 0 };
	if (data)
		wr.sge_count = 1 + dice(world, here->opts.recv_sge_max);
	for (unsigned i = 0; i < wr.sge_count; i++) {
		uint32_t part = i + 1 == wr.sge_count ? left : dice(world, left + 1);

		sge[i] = (struct snt_sge){ here->mem,
					   here->memory + recv->at + RECV_ROOM - left,
					   part };
		left -= part;
	}
	if (bad)
		sge[0].addr = here->memory + MEMORY - sge[0].length + 1;
	ret = snt_qp_post_recv(here->qp, &wr, 1);
	if (world->trace)
		printf("# end %u: post receive %d, %s: %d\n", end, here->recvs,
		       data ? "data" : "notify", ret);
	if (ret == 1 && !bad && !here->closing && waiting < here->opts.recv_depth) {
		here->class_order[data][here->class_posted[data]++] = here->recvs++;
		return 0;
	}
	if ((ret == -ERANGE && bad) || (ret == -ESHUTDOWN && here->closing) ||
	    (ret == -EAGAIN && waiting >= here->opts.recv_depth) ||
	    (ret < 0 && world->faulty))
		return 0;
	return wrong(world, "end %u: receive %d (%s): %d, %u waiting", end, here->recvs,
		     data ? "data" : "notify", ret, waiting);
}
