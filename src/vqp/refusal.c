/* SPDX-License-Identifier: MIT */
#include "vqp/refusal.h"

#include <errno.h>

#include "util/err.h"
#include "vqp/cause.h"
#include "vqp/check.h"
#include "vqp/phase.h"

void snt__qp_refuse(struct snt_qp *qp, int why)
{
	qp->refusal = why;
	snt__check_update(qp);
}

__attribute__((noinline, cold)) int snt__qp_refusal(const struct snt_qp *qp, int why)
{
	char cause[SNT__CAUSE_TEXT];

	if (!qp->connected && !qp->closing)
		return snt__fail(-why, "QP %u is not connected", qp->num);
	if (qp->closed_reported)
		return snt__fail(-why, "QP %u is closed; reset it to use it again",
				 qp->num);
	if (qp->closing)
		return snt__fail(-why, "QP %u is being closed", qp->num);
	if (qp->broken || (!qp->lanes_alive && !snt__qp_is_suspended(qp)))
		return snt__fail(-why, "QP %u is broken: %s; close it", qp->num,
				 snt__cause_text(qp, cause));
	return snt__fail(-why, "QP %u: a lane that this needs has failed", qp->num);
}

__attribute__((noinline, cold)) int snt__qp_full(const struct snt_qp *qp)
{
	if (qp->pass_through)
		return snt__fail_later(
			EAGAIN,
			"QP %u: lane_depth (%u) is used up; signal one of "
			"each lane_depth sends, and poll",
			qp->num, qp->lane_depth);
	return snt__fail_later(EAGAIN, "QP %u: send_depth (%u) is used up; poll first",
			       qp->num, qp->depth);
}

__attribute__((noinline, cold)) int snt__qp_recv_full(const struct snt_qp *qp)
{
	return snt__fail_later(EAGAIN, "QP %u: recv_depth (%u) is used up; poll first",
			       qp->num, qp->recv_depth);
}

__attribute__((noinline, cold)) int snt__qp_no_wrs(const struct snt_qp *qp)
{
	return snt__fail(EINVAL, "QP %u: a list of no WRs", qp->num);
}

__attribute__((noinline, cold)) int snt__qp_wants_ops(const struct snt_qp *qp)
{
	return snt__fail(EINVAL, "QP %u reports to a CQ with ops; post ops to it",
			 qp->num);
}
