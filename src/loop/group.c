/* SPDX-License-Identifier: MIT */
/* Groups of ops: a list of those that are pending, for cancelling, and their number. */
#include <errno.h>
#include <stdio.h>

#include "loop/op.h"
#include "util/err.h"
#include "vqp/wc_text.h"

int snt_op_group_add(struct snt_op_group *group, struct snt_op *op)
{
	if (op->state == SNT__OP_UNUSED || op->flags & SNT__OP_TOLD)
		return snt__fail(ENOENT, "the op is not in use, or has ended");
	if (op->flags & SNT__OP_GROUPED)
		return snt__fail(EALREADY, "the op is in a group");
	if (group->pending && group->loop != op->loop)
		return snt__fail(EINVAL, "the group has ops of another loop");
	group->loop = op->loop;
	group->pending++;
	op->flags |= SNT__OP_GROUPED;
	op->group = group;
	op->group_next = group->first;
	op->group_to = &group->first;
	if (group->first)
		group->first->group_to = &op->group_next;
	group->first = op;
	return 0;
}

struct snt_op_group *snt__group_leave(struct snt_op *op)
{
	struct snt_op_group *group = op->group;

	op->flags &= ~SNT__OP_GROUPED;
	*op->group_to = op->group_next;
	if (op->group_next)
		op->group_next->group_to = op->group_to;
	if (op->result < 0 && !group->result) {
		group->result = op->result;
		group->flags = op->flags;
		group->held = op->state == SNT__OP_POSTED;
		group->wc = op->wc;
	}
	return group;
}

const char *snt_op_group_text(const struct snt_op_group *group)
{
	const struct snt__op_end end = { .loop = group->loop,
					 .wc = &group->wc,
					 .result = group->result,
					 .flags = group->flags,
					 .held = group->held };

	if (!group->result)
		return snt__text("no op of the group has failed");
	return snt__op_end_text(&end);
}

static void tell_group_waiter(struct snt_op_group *group)
{
	struct snt__waiter *waiter = group->waiter;

	group->waiter = NULL;
	waiter->done = true;
	waiter->result = group->result;
	if (group->result < 0)
		snprintf(waiter->why.text, sizeof(waiter->why.text), "%s",
			 snt_op_group_text(group));
}

/* Its function may reuse the group, or free it. */
void snt__group_left(struct snt_op_group *group)
{
	if (--group->pending)
		return;
	if (group->waiter)
		tell_group_waiter(group);
	if (group->done)
		group->done(group);
}

int snt_op_group_cancel(struct snt_op_group *group, enum snt_cancel how)
{
	int count = 0;

	if (how != SNT_CANCEL_DETACH && how != SNT_CANCEL_ABORT)
		return snt__fail(EINVAL, "%d is no way to cancel ops", how);
	for (struct snt_op *op = group->first; op; op = op->group_next)
		count += snt__op_try_cancel(op, how);
	return count;
}

static void forget_waiter(void *arg)
{
	struct snt_op_group *group = arg;

	group->waiter = NULL;
}

int snt_op_group_wait(struct snt_op_group *group, int64_t timeout_ns)
{
	struct snt__waiter waiter = { 0 };
	int ret;

	if (!group->pending)
		return group->result < 0 ? snt__fail(-group->result, "%s",
						     snt_op_group_text(group))
					 : 0;
	ret = snt__loop_enter(group->loop, 0);
	if (ret)
		return ret;
	group->waiter = &waiter;
	return snt__wait_for(group->loop, &waiter, "the group", timeout_ns,
			     forget_waiter, group);
}
