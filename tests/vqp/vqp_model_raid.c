/* SPDX-License-Identifier: MIT */
/*
 * A peer that keeps to no rule: plain QPs behind a card that looks good, and on them
 * whatever a device lets pass. Nearly right is worse than wrong, so most of what it
 * sends begins as what a virtual QP would send. The victim has to keep the contract
 * towards its own program, must not report what cannot be, and must give up the QP
 * where no other peer could have done it; the other links must not notice.
 */
#include "vqp_model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/rc.h"

#define DEPTH	 64
#define LAST	 (1u << 31)
#define FOLLOWED (1u << 30)
#define NUMBERS	 0xffffffu
#define FAR	 (1u << 20)

/* In the wr_id: the victim cannot take this for traffic of a virtual QP. */
#define VIOLATION UINT64_C(0xbad)

static const struct snt_control *control_of(const struct end *end)
{
	return scripted_adopted(end->host->device[0]).control;
}

static int to_init(const struct end *raider, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC };

	return control_of(raider)->modify_qp(qp, &attr, rc_mask(IBV_QPS_INIT));
}

/* As many plain QPs as the victim has lanes. */
int raid_open(struct link *link)
{
	struct end *raider = &link->end[0];
	struct snt_adopted device = scripted_adopted(raider->host->device[0]);
	struct ibv_qp_init_attr attr = { .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };

	if (device.control->create_cq(device.context, 4096, NULL, NULL, 0,
				      &link->raid.cq))
		return wrong(link, "no CQ for the raider");
	attr.send_cq = attr.recv_cq = link->raid.cq;
	for (; raider->lanes < link->end[1].lanes; raider->lanes++) {
		struct ibv_qp **qp = &raider->lane[raider->lanes];

		if (device.control->create_qp(device.pd, &attr, qp) ||
		    to_init(raider, *qp))
			return wrong(link, "no QP for the raider");
	}
	return 0;
}

static int connect_lane(struct end *raider, struct ibv_qp *qp,
			const struct snt_card *victim, unsigned lane)
{
	const struct snt_card_lane *remote = &victim->lane[lane];
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = remote->qp_num,
				    .rq_psn = remote->psn,
				    .max_dest_rd_atomic = 16,
				    .min_rnr_timer = 12 };
	int ret;

	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.hop_limit = 64;
	memcpy(attr.ah_attr.grh.dgid.raw, victim->device[remote->device].gid, 16);
	ret = control_of(raider)->modify_qp(qp, &attr, rc_mask(IBV_QPS_RTR));
	if (ret)
		return ret;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .sq_psn = lane,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 16 };
	return control_of(raider)->modify_qp(qp, &attr, rc_mask(IBV_QPS_RTS));
}

static int post_empty_recv(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

/* Where the victim is to write lengths: to a place that the raider has, to one that
 * it has not, or nowhere. */
static void offer_mailbox(struct link *link, struct snt_card *card)
{
	const struct end *raider = &link->end[0];

	card->flags &= ~SNT_QP_NOTIFY_LENGTH;
	card->mailbox_addr = 0;
	card->mailbox_slots = 0;
	card->device[0].mailbox_key = 0;
	if (!lacks_length(link) || chance(link->world, 30))
		return;
	card->flags |= SNT_QP_NOTIFY_LENGTH;
	card->mailbox_addr = (uintptr_t)raider->memory + RAID;
	card->mailbox_slots = RAID_SIZE / sizeof(uint64_t);
	card->device[0].mailbox_key =
		raider->token.key[0] ^ (chance(link->world, 20) ? 1 : 0);
}

static void find_mailbox(struct link *link, const struct snt_card *victim)
{
	struct snt_token *mailbox = &link->raid.mailbox;

	mailbox->addr = victim->mailbox_addr;
	mailbox->length = victim->mailbox_slots * sizeof(uint64_t);
	for (unsigned i = 0; i < victim->device_count; i++)
		mailbox->key[i] = victim->device[i].mailbox_key;
}

/* The victim's own card, with other QPs on one device. */
int raid_connect(struct link *link)
{
	struct end *raider = &link->end[0];
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_card victim, card;

	if (snt_qp_card(link->end[1].qp, &victim) ||
	    snt_device_query_gid(snt_ctx_device(raider->host->ctx, 0), 0, &gid))
		return wrong(link, "card: %s", snt_err_text());
	card = victim;
	card.generation ^= 2;
	link->raid.window = victim.window;
	card.device_count = 1;
	memcpy(card.device[0].gid, gid.raw, sizeof(gid.raw));
	offer_mailbox(link, &card);
	find_mailbox(link, &victim);
	for (unsigned i = 0; i < raider->lanes; i++) {
		card.lane[i] =
			(struct snt_card_lane){ .qp_num = raider->lane[i]->qp_num,
						.psn = i };
		if (connect_lane(raider, raider->lane[i], &victim, i))
			return wrong(link, "the raider cannot connect");
		for (unsigned j = dice(link->world, 16); j; j--)
			post_empty_recv(raider->lane[i]);
	}
	if (snt_qp_connect(link->end[1].qp, &card))
		return wrong(link, "connect to the raider: %s", snt_err_text());
	return 0;
}

/*
 * What it sends
 */

/*
 * A number that may be right, or one that cannot be: the second of its kind on one
 * lane, or further away than any window is wide. But where an earlier one may be kept
 * until others have come, it is unknown when the victim will look at it.
 */
static uint32_t make_number(struct link *link, unsigned lane, bool *violates_out)
{
	struct world *world = link->world;
	struct raid *raid = &link->raid;

	switch (dice(world, 16)) {
	case 0:
		return raid->sequence - 1 - dice(world, 3);
	case 1:
		return raid->sequence++ + 1 + dice(world, 20);
	case 2:
		*violates_out = true;
		return FAR + dice(world, NUMBERS - 2 * FAR);
	case 3:
		if (!raid->numbered[lane])
			return raid->sequence++;
		*violates_out = true;
		return raid->number[lane];
	default:
		return raid->sequence++;
	}
}

/* An immediate as DQPLB has them, now and then spoiled. */
static uint32_t make_imm(struct link *link, unsigned lane, bool *violates_out)
{
	struct world *world = link->world;
	struct raid *raid = &link->raid;
	bool raw = raid->announced[lane];
	uint32_t imm;

	raid->announced[lane] = false;
	if (raw)
		return random_next(&world->random);
	imm = make_number(link, lane, violates_out) & NUMBERS;
	if (!*violates_out && imm > raid->highest)
		raid->highest = imm;
	raid->number[lane] = imm;
	raid->numbered[lane] = true;
	if (chance(world, 60))
		imm |= LAST;
	if (imm & LAST && chance(world, 30))
		imm |= FOLLOWED;
	if (chance(world, 3))
		imm |= random_next(&world->random) & 0xff000000;
	raid->announced[lane] = (imm & (LAST | FOLLOWED)) == (LAST | FOLLOWED);
	*violates_out |= (imm & (LAST | FOLLOWED)) == FOLLOWED;
	*violates_out &= raid->highest < raid->window;
	return imm;
}

/* Does a lane bring what it is not there for? */
static bool is_violation(const struct link *link, unsigned lane, bool message,
			 uint32_t length)
{
	unsigned data_lanes = link->end[1].opts.lanes;
	unsigned message_lane = link->scheme == SNT_SCHEME_DQPLB ? data_lanes : 0;

	if (link->pass)
		return false;
	if (lane == message_lane)
		return !message;
	return message && !length;
}

static void describe(struct link *link, unsigned lane, struct ibv_send_wr *wr,
		     uint32_t length)
{
	struct world *world = link->world;
	bool sequenced = is_sequenced(link) && lane < link->end[1].opts.lanes;
	bool violates = false, announces = true, message = chance(world, 15);

	if (chance(world, 10)) {
		wr->opcode = chance(world, 50) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		announces = message = false;
	} else if (lane ==
		   (link->scheme == SNT_SCHEME_DQPLB ? link->end[1].opts.lanes : 0)) {
		message = !chance(world, 15);
	}
	if (message)
		wr->opcode = chance(world, 50) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
	else if (announces)
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->imm_data = htonl(announces && !message && sequenced
				     ? make_imm(link, lane, &violates)
				     : (uint32_t)random_next(&world->random));
	if (announces && is_violation(link, lane, message, length))
		violates = true;
	wr->wr_id = violates ? VIOLATION : 0;
}

/* Into the victim's mailbox, as it should be or nearly, or else into a place that
 * is there for it. */
static void aim(struct link *link, unsigned lane, uint32_t length,
		struct ibv_send_wr *wr)
{
	struct world *world = link->world;
	const struct end *victim = &link->end[1];
	const struct snt_token *mailbox = &link->raid.mailbox;
	unsigned device = victim->lane_device[lane];

	if (length && length <= mailbox->length && chance(world, 50)) {
		wr->wr.rdma.remote_addr =
			mailbox->addr + dice(world, mailbox->length - length + 1);
		wr->wr.rdma.rkey = mailbox->key[device];
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)victim->memory + RAID +
					  dice(world, RAID_SIZE - length);
		wr->wr.rdma.rkey = victim->token.key[device];
	}
	if (chance(world, 2))
		wr->wr.rdma.rkey ^= 1u << dice(world, 32);
}

void raid(struct link *link)
{
	struct world *world = link->world;
	struct end *raider = &link->end[0];
	unsigned lane = dice(world, raider->lanes);
	uint32_t length = chance(world, 40) ? 0 : dice(world, 400);
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = !!length,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct raid before = link->raid;

	/* As long as a length. */
	if (link->raid.mailbox.length && chance(world, 50))
		length = sizeof(uint64_t);
	if (chance(world, 30))
		post_empty_recv(raider->lane[lane]);
	describe(link, lane, &wr, length);
	snt_mem_sge(raider->mem, 0, OUT, length, &sge);
	aim(link, lane, length, &wr);
	if (world->trace)
		printf("# raider: lane %u opcode %u imm 0x%x length %u%s\n", lane,
		       wr.opcode, ntohl(wr.imm_data), length,
		       wr.wr_id == VIOLATION ? ", a violation" : "");
	if (ibv_post_send(raider->lane[lane], &wr, &bad))
		link->raid = before;
}

/* Of what got through the raider has completions. */
int raid_poll(struct link *link)
{
	struct ibv_wc wc[WIDTH_MAX];
	int count = ibv_poll_cq(link->raid.cq, WIDTH_MAX, wc);

	for (int i = 0; i < count; i++)
		if (wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == VIOLATION)
			link->raid.violated = true;
	return 0;
}

/* All is polled: a QP that got what it must not get takes no more WRs. */
int raid_check(struct link *link)
{
	struct end *victim = &link->end[1];
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE };
	int ret;

	raid_poll(link);
	if (!link->raid.violated || victim->closing)
		return 0;
	wr.remote = &link->end[0].token;
	wr.remote_addr = link->end[0].token.addr;
	ret = snt_qp_post_send(victim->qp, &wr, 1);
	if (ret != -ESHUTDOWN)
		return wrong(link, "the peer broke the rules, and a post returns %d",
			     ret);
	return 0;
}

int raid_close(struct link *link)
{
	struct end *raider = &link->end[0];
	int ret = 0;

	for (unsigned i = 0; i < raider->lanes; i++)
		ret |= control_of(raider)->destroy_qp(raider->lane[i]);
	ret |= control_of(raider)->destroy_cq(link->raid.cq);
	return ret ? wrong(link, "the raider's QPs") : 0;
}
