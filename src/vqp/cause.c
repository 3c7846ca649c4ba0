/* SPDX-License-Identifier: MIT */
#include "vqp/cause.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/log.h"
#include "vqp/qp.h"
#include "vqp/wc_text.h"

/* Room for snt_status_text() or strerror(), and a little more. */
struct words {
	char text[160];
};

static struct words describe_cause(const struct snt__cause *cause)
{
	struct words words;
	char vendor[32] = "";

	switch (cause->what) {
	case SNT_CAUSE_STATUS:
		if (cause->vendor_err)
			snprintf(vendor, sizeof(vendor), ", vendor error 0x%x",
				 cause->vendor_err);
		snprintf(words.text, sizeof(words.text), "%s (status %u%s)",
			 snt_status_text(cause->status), cause->status, vendor);
		break;
	case SNT_CAUSE_REFUSED:
		snprintf(words.text, sizeof(words.text),
			 "the device refused a post%s%s", cause->vendor_err ? ": " : "",
			 cause->vendor_err ? strerror((int)cause->vendor_err) : "");
		break;
	case SNT_CAUSE_PEER:
		snprintf(words.text, sizeof(words.text),
			 "the peer violated the protocol of the scheme");
		break;
	case SNT_CAUSE_ENDED:
		snprintf(words.text, sizeof(words.text),
			 "the peer has given up the connection");
		break;
	default:
		snprintf(words.text, sizeof(words.text),
			 "flushed, by an error that is not known (yet)");
		break;
	}
	return words;
}

void snt__cause_log_lane(const struct snt__lane *lane)
{
	const struct snt_qp *qp = lane->owner;
	char ends[SNT__LANE_TEXT];

	snt__log(&qp->ctx->log, SNT_LOG_WARN, "QP %u: lane %u (QP %u of %s) failed: %s",
		 qp->num, lane->index, lane->qp ? lane->qp->qp_num : 0,
		 snt__lane_text(qp, lane->index, ends),
		 describe_cause(&lane->cause).text);
}

const char *snt__cause_text(const struct snt_qp *qp, char buffer[SNT__CAUSE_TEXT])
{
	const struct snt__cause *cause = &qp->cause;
	char ends[SNT__LANE_TEXT];

	if (!cause->what)
		return "all its lanes were flushed";
	snprintf(buffer, SNT__CAUSE_TEXT, "its first error was on lane %u (%s): %s",
		 cause->lane, snt__lane_text(qp, cause->lane, ends),
		 describe_cause(cause).text);
	return buffer;
}

int snt__status_error(unsigned status)
{
	switch (status) {
	case SNT_WC_FLUSHED:
		return 0;
	case SNT_WC_RETRY_EXC_ERR:
		return -EHOSTUNREACH;
	case SNT_WC_RNR_RETRY_EXC_ERR:
		return -ENOBUFS;
	case SNT_WC_REM_ACCESS_ERR:
		return -EACCES;
	case SNT_WC_REM_INV_REQ_ERR:
	case SNT_WC_REM_OP_ERR:
		return -EREMOTEIO;
	default:
		return -EIO;
	}
}

int snt__cause_error(const struct snt_qp *qp)
{
	switch (qp->cause.what) {
	case SNT_CAUSE_STATUS:
		return snt__status_error(qp->cause.status);
	case SNT_CAUSE_REFUSED:
		return -EIO;
	case SNT_CAUSE_PEER:
		return -EPROTO;
	case SNT_CAUSE_ENDED:
		return -ECONNRESET;
	default:
		return 0;
	}
}

void snt__cause_log_qp(const struct snt_qp *qp)
{
	char buffer[SNT__CAUSE_TEXT];

	snt__log(&qp->ctx->log, SNT_LOG_WARN, "QP %u is broken: %s; close it", qp->num,
		 snt__cause_text(qp, buffer));
}

static void record_cause(struct snt__lane *lane, struct snt__cause cause)
{
	struct snt_qp *qp = lane->owner;

	cause.lane = lane->index;
	if (lane->cause.what)
		return;
	lane->cause = cause;
	if (!qp->cause.what)
		qp->cause = cause;
	/* Its flush was polled first. */
	if (!lane->alive && lane->used && !qp->closing && !qp->phase)
		snt__cause_log_lane(lane);
}

void snt__cause_completion(struct snt__lane *lane, unsigned status, uint32_t vendor_err)
{
	if (status != SNT_WC_FLUSHED)
		record_cause(lane, (struct snt__cause){ .what = SNT_CAUSE_STATUS,
							.status = status,
							.vendor_err = vendor_err });
}

void snt__cause_refused(struct snt__lane *lane, int err)
{
	record_cause(lane, (struct snt__cause){ .what = SNT_CAUSE_REFUSED,
						.status = SNT_WC_GENERAL_ERR,
						.vendor_err = err });
}

void snt__cause_ended(struct snt__lane *lane)
{
	record_cause(lane, (struct snt__cause){ .what = SNT_CAUSE_ENDED,
						.status = SNT_WC_GENERAL_ERR });
}

void snt__cause_peer(struct snt__lane *lane)
{
	record_cause(lane, (struct snt__cause){ .what = SNT_CAUSE_PEER,
						.status = SNT_WC_GENERAL_ERR });
}
