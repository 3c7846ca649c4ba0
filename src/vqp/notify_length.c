/* SPDX-License-Identifier: MIT */
#include "vqp/notify_length.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/err.h"
#include "vqp/build.h"

#define SLOT sizeof(uint64_t)

/* On pages of its own, since a process that forks may lose pages of registered
 * memory. */
static int allocate_mailbox(struct snt__words *words, uint32_t count)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t size = (count * SLOT + page - 1) & ~(page - 1);
	void *memory;
	int ret = posix_memalign(&memory, page, size);

	if (ret)
		return snt__fail(ret, "no memory for %u lengths of notifications",
				 count);
	memset(memory, 0, size);
	words->word = memory;
	return 0;
}

/* All lengths are written over the first notify lanes, so that one device at each end
 * has to be given the memory. */
static const struct snt_device *device_of_mailbox(const struct snt_qp *qp)
{
	return qp->ctx->device[qp->extra->device];
}

static bool can_register(const struct snt_device *device)
{
	return device->control.reg_mr && device->control.dereg_mr;
}

static int register_words(const struct snt_qp *qp, struct snt__words *words,
			  uint32_t count, unsigned access)
{
	const struct snt_device *device = device_of_mailbox(qp);
	int ret = device->control.reg_mr(device->pd, words->word, count * SLOT, access,
					 &words->mr);

	if (!ret)
		return 0;
	free(words->word);
	words->word = NULL;
	return snt__fail(-ret, "%s: cannot register %u lengths of notifications: %s",
			 device->name, count, strerror(-ret));
}

static int release_mailbox(const struct snt_qp *qp, struct snt__words *words)
{
	int ret = 0;

	if (words->mr)
		ret = device_of_mailbox(qp)->control.dereg_mr(words->mr);
	if (ret)
		return snt__fail(-ret,
				 "%s: cannot deregister lengths of notifications: %s",
				 device_of_mailbox(qp)->name, strerror(-ret));
	free(words->word);
	*words = (struct snt__words){ 0 };
	return 0;
}

int snt__mailbox_open(struct snt_qp *qp)
{
	uint32_t slots = 2;
	int ret;

	if (!(qp->opts.flags & SNT_QP_NOTIFY_LENGTH))
		return 0;
	if (!can_register(device_of_mailbox(qp)))
		return snt__fail(EOPNOTSUPP,
				 "%s has no control table to register the mailbox of "
				 "SNT_QP_NOTIFY_LENGTH with",
				 device_of_mailbox(qp)->name);
	while (slots <= qp->recv_depth)
		slots *= 2;
	qp->mailbox.in_mask = slots - 1;
	ret = allocate_mailbox(&qp->mailbox.in, slots);
	if (ret)
		return ret;
	return register_words(qp, &qp->mailbox.in, slots,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

int snt__mailbox_close(struct snt_qp *qp)
{
	int ret = release_mailbox(qp, &qp->mailbox.in);

	return ret ? ret : release_mailbox(qp, &qp->mailbox.out);
}

void snt__mailbox_describe(const struct snt_qp *qp, struct snt_card *card)
{
	const struct snt__words *in = &qp->mailbox.in;

	if (!in->mr)
		return;
	card->mailbox_addr = (uintptr_t)in->word;
	card->mailbox_slots = qp->mailbox.in_mask + 1;
	card->device[qp->extra->device].mailbox_key = in->mr->rkey;
}

/* One slot for each notification that the lane can have in flight. */
static int make_out(struct snt_qp *qp)
{
	struct snt__mailbox *mailbox = &qp->mailbox;
	bool inlined = qp->inline_max >= SLOT;
	uint32_t count = qp->extra->run_mask + 1;
	int ret;

	if (mailbox->out.word)
		return 0;
	if (!inlined && !can_register(device_of_mailbox(qp)))
		return snt__fail(EOPNOTSUPP,
				 "the peer wants to be told lengths, but %s has no "
				 "control table to register memory for them; create "
				 "the QP with an inline_max of %zu or more",
				 device_of_mailbox(qp)->name, SLOT);
	ret = allocate_mailbox(&mailbox->out, count);
	if (!ret && !inlined)
		ret = register_words(qp, &mailbox->out, count, 0);
	if (ret)
		return ret;
	mailbox->out_flags = inlined ? IBV_SEND_INLINE : 0;
	mailbox->out_key = inlined ? 0 : mailbox->out.mr->lkey;
	return 0;
}

int snt__mailbox_agree(struct snt_qp *qp, const struct snt_card *peer)
{
	int ret;

	qp->tells_length = peer->mailbox_slots != 0;
	if (!qp->tells_length)
		return 0;
	ret = make_out(qp);
	if (ret)
		return ret;
	qp->mailbox.peer_addr = peer->mailbox_addr;
	qp->mailbox.peer_mask = peer->mailbox_slots - 1;
	qp->mailbox.peer_key =
		peer->device[peer->lane[peer->data_lanes].device].mailbox_key;
	return 0;
}

/* No more notifications are in flight than WRs fit on the lane, so that the one of the
 * previous round of these words has retired. */
void snt__mailbox_tell(const struct snt_qp *qp, uint64_t length, struct ibv_send_wr *wr)
{
	const struct snt__mailbox *mailbox = &qp->mailbox;
	uint32_t number = qp->notified;
	uint64_t *word = &mailbox->out.word[number & qp->extra->run_mask];

	*word = htobe64(length);
	wr->num_sge = 1;
	wr->send_flags |= mailbox->out_flags;
	snt__build_sge(wr->sg_list, (uintptr_t)word, SLOT, mailbox->out_key);
	snt__build_target(wr, mailbox->peer_addr + (number & mailbox->peer_mask) * SLOT,
			  mailbox->peer_key);
}
