/* SPDX-License-Identifier: MIT */
/*
 * The programs' own channel for receipts: each end has a few messages under way to its
 * peer, of which any may come next, come again, or never. What is lost is said again.
 */
#include "vqp_sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAILS 4

struct mail {
	ssize_t length; /* 0: none */
	uint64_t generation;
	uint8_t bytes[SNT_RECEIPT_PACKED_MAX];
};

static struct mail mails[LINKS_MAX][2][MAILS]; /* from that end */

void forget_receipts(void)
{
	memset(mails, 0, sizeof(mails));
}

bool has_failover(const struct world *world)
{
	for (unsigned i = 0; i < world->links; i++)
		if (world->link[i].failover)
			return true;
	return false;
}

static struct snt_qp_info query(const struct end *end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	snt_qp_query(end->qp, &info);
	return info;
}

static int write_receipt(struct link *link, unsigned end)
{
	struct end *here = &link->end[end];
	struct world *world = link->world;
	struct mail *mail = &mails[link->index][end][dice(world, MAILS)];

	here->receipt_due = false;
	mail->length = snt_qp_receipt(here->qp, mail->bytes, sizeof(mail->bytes));
	mail->generation = query(here).generation;
	end_list_lanes(here);
	if (world->trace)
		printf("# link %u, end %u: receipt of %zd bytes, says %u of life %u\n",
		       link->index, end, mail->length,
		       mail->length > 0 ? mail->bytes[1] : 0, mail->bytes[7]);
	if (mail->length > 0 && chance(world, 30))
		mail->length =
			0; /* lost; it is said again while this end is suspended */
	if (mail->length >= 0)
		return 0;
	if (mail->length != -EPROTO || !link->faulty)
		return wrong(link, "end %u: receipt: %zd, %s", end, mail->length,
			     snt_err_text());
	mail->length = 0;
	return 0;
}

/* One of those under way, if there is any. */
static int read_receipt(struct link *link, unsigned end)
{
	struct end *here = &link->end[end];
	struct world *world = link->world;
	struct mail *mail = &mails[link->index][!end][dice(world, MAILS)];
	bool known;
	int ret;

	if (!mail->length)
		return 0;
	known = mail->generation == query(&link->end[!end]).generation;
	ret = snt_qp_resume(here->qp, mail->bytes, mail->length);
	if (world->trace)
		printf("# link %u, end %u: resume: %d\n", link->index, end, ret);
	if (chance(world, 70))
		mail->length = 0;
	if (ret == 0 || (ret == -EINVAL && !known))
		return 0;
	return wrong(link, "end %u: resume: %d, %s", end, ret, snt_err_text());
}

int carry_receipts(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		for (unsigned end = 0; link->failover && end < 2; end++) {
			if (link->end[end].receipt_due && chance(world, 50) &&
			    write_receipt(link, end))
				return -1;
			if (chance(world, 50) && read_receipt(link, end))
				return -1;
		}
	}
	return 0;
}

static int suspend_end(struct link *link, unsigned end)
{
	int ret = snt_qp_suspend(link->end[end].qp);

	if (link->world->trace)
		printf("# link %u, end %u: suspend: %d\n", link->index, end, ret);
	if (!ret || (ret == -ESHUTDOWN && (link->faulty || link->end[end].closing)))
		return 0;
	return wrong(link, "end %u: suspend: %d, %s", end, ret, snt_err_text());
}

int urge(struct world *world)
{
	for (unsigned i = 0; i < world->links; i++) {
		struct link *link = &world->link[i];

		for (unsigned end = 0; link->failover && end < 2; end++) {
			if (query(&link->end[end]).state != SNT_QP_SUSPENDED)
				continue;
			/* The dead do not come back, however often they are tried. */
			if (!fabric.killed && chance(world, 30) &&
			    suspend_end(link, end))
				return -1;
			link->end[end].receipt_due = true;
		}
	}
	return 0;
}

int stop_lanes(struct world *world)
{
	struct link *link = &world->link[dice(world, world->links)];

	return link->failover ? suspend_end(link, dice(world, 2)) : 0;
}
