/* SPDX-License-Identifier: MIT */
/* What was observed, in words. */
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kit.h"

#define MUST_COME_MS 5000
#define QUIET_MS     120

static void append(struct scene *scene, const char *separator, const char *format,
		   va_list args)
{
	char *at = scene->text + scene->length;
	size_t room = sizeof(scene->text) - scene->length;
	int n;

	n = snprintf(at, room, "%s", scene->length ? separator : "");
	if (n < (int)room)
		n += vsnprintf(at + n, room - n, format, args);
	scene->length += n < (int)room ? n : (int)room - 1;
}

void say(struct scene *scene, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	append(scene, "; ", format, args);
	va_end(args);
}

void say_more(struct scene *scene, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	append(scene, " ", format, args);
	va_end(args);
}

const char *verb_name(int ret)
{
	static char text[32];
	const char *name = strerrorname_np(ret < 0 ? -ret : ret);

	if (!ret)
		return "0";
	snprintf(text, sizeof(text), "%s%s", ret < 0 ? "-" : "", name ? name : "?");
	return text;
}

const char *control_name(int ret)
{
	return verb_name(-ret);
}

const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS",
					     "SQD",   "SQE",  "ERR" };

	return (unsigned)state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

const char *status_name(enum ibv_wc_status status)
{
	static const char *const names[] = {
		"ok",
		"LOC_LEN_ERR",
		"LOC_QP_OP_ERR",
		"LOC_EEC_OP_ERR",
		"LOC_PROT_ERR",
		"WR_FLUSH_ERR",
		"MW_BIND_ERR",
		"BAD_RESP_ERR",
		"LOC_ACCESS_ERR",
		"REM_INV_REQ_ERR",
		"REM_ACCESS_ERR",
		"REM_OP_ERR",
		"RETRY_EXC_ERR",
		"RNR_RETRY_EXC_ERR",
		"LOC_RDD_VIOL_ERR",
		"REM_INV_RD_REQ_ERR",
		"REM_ABORT_ERR",
		"INV_EECN_ERR",
		"INV_EEC_STATE_ERR",
		"FATAL_ERR",
		"RESP_TIMEOUT_ERR",
		"GENERAL_ERR",
	};

	return (unsigned)status < ARRAY_SIZE(names) ? names[status] : "unknown status";
}

const char *opcode_name(enum ibv_wc_opcode opcode)
{
	switch (opcode) {
	case IBV_WC_SEND:
		return "SEND";
	case IBV_WC_RDMA_WRITE:
		return "WRITE";
	case IBV_WC_RDMA_READ:
		return "READ";
	case IBV_WC_COMP_SWAP:
		return "COMP_SWAP";
	case IBV_WC_FETCH_ADD:
		return "FETCH_ADD";
	case IBV_WC_RECV:
		return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return "RECV_RDMA_WITH_IMM";
	case IBV_WC_BIND_MW:
		return "BIND_MW";
	case IBV_WC_LOCAL_INV:
		return "LOCAL_INV";
	default:
		return "unknown opcode";
	}
}

const char *event_name(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return "CQ_ERR";
	case IBV_EVENT_QP_FATAL:
		return "QP_FATAL";
	case IBV_EVENT_QP_REQ_ERR:
		return "QP_REQ_ERR";
	case IBV_EVENT_QP_ACCESS_ERR:
		return "QP_ACCESS_ERR";
	case IBV_EVENT_COMM_EST:
		return "COMM_EST";
	case IBV_EVENT_SQ_DRAINED:
		return "SQ_DRAINED";
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return "SRQ_LIMIT_REACHED";
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return "QP_LAST_WQE_REACHED";
	default:
		return ibv_event_type_str(type);
	}
}

static bool is_ours(const struct scene *scene, uint32_t qp_num)
{
	for (unsigned i = 0; i < QPS_MAX; i++)
		if (scene->qp[i] && scene->qp[i]->qp_num == qp_num)
			return true;
	return false;
}

/* Without the id. On errors verbs define nothing but the status. */
static void describe(const struct scene *scene, const struct ibv_wc *wc, char *text,
		     size_t size)
{
	const char *imm = "";
	char bytes[32] = "";

	if (!is_ours(scene, wc->qp_num)) {
		snprintf(text, size, "%s of no QP", status_name(wc->status));
		return;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		snprintf(text, size, "%s", status_name(wc->status));
		return;
	}
	if (wc->opcode & IBV_WC_RECV) {
		snprintf(bytes, sizeof(bytes), " %u bytes", wc->byte_len);
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			imm = wc->imm_data == IMM ? " imm" : " wrong imm";
	}
	snprintf(text, size, "%s ok%s%s", opcode_name(wc->opcode), bytes, imm);
}

static const char *id_name(uint64_t id, char *text, size_t size)
{
	if (id > RECV_IDS)
		snprintf(text, size, "r%u", (unsigned)(id - RECV_IDS));
	else
		snprintf(text, size, "%u", (unsigned)id);
	return text;
}

/* Completions that differ by nothing but consecutive ids are said as one. */
static void say_run(struct scene *scene, const struct ibv_wc *wcs, unsigned count,
		    const char *what, const char *separator)
{
	char first[16], last[16];

	id_name(wcs[0].wr_id, first, sizeof(first));
	id_name(wcs[count - 1].wr_id, last, sizeof(last));
	if (count > 1)
		say_more(scene, "%s-%s %s%s", first, last, what, separator);
	else
		say_more(scene, "%s %s%s", first, what, separator);
}

static void say_queue(struct scene *scene, const struct ibv_wc *wcs, unsigned count,
		      const char *separator)
{
	char what[96], next[96];

	for (unsigned i = 0, end; i < count; i = end) {
		describe(scene, &wcs[i], what, sizeof(what));
		for (end = i + 1; end < count; end++) {
			describe(scene, &wcs[end], next, sizeof(next));
			if (wcs[end].wr_id != wcs[end - 1].wr_id + 1 ||
			    strcmp(what, next) != 0)
				break;
		}
		say_run(scene, &wcs[i], end - i, what, end < count ? "," : separator);
	}
}

/* Sends first: verbs promise no order between the two queues of a QP. */
void say_list(struct scene *scene, const char *label, const struct ibv_wc *wcs,
	      unsigned count)
{
	struct ibv_wc sends[WCS_MAX], recvs[WCS_MAX];
	unsigned send_count = 0, recv_count = 0;

	for (unsigned i = 0; i < count; i++)
		if (wcs[i].wr_id > RECV_IDS)
			recvs[recv_count++] = wcs[i];
		else
			sends[send_count++] = wcs[i];
	say(scene, "%s:%s", label, count ? "" : " none");
	say_queue(scene, sends, send_count, recv_count ? "," : "");
	say_queue(scene, recvs, recv_count, "");
}

void say_states(struct scene *scene)
{
	say(scene, "states %s, %s", state_name(state_of(scene, A)),
	    state_name(state_of(scene, B)));
}

static const char *event_subject(const struct scene *scene,
				 const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq == scene->srq ? "the SRQ" : "another SRQ";
	case IBV_EVENT_CQ_ERR:
		if (event->element.cq == scene->cq[A])
			return "A";
		return event->element.cq == scene->cq[B] ? "B" : "another CQ";
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		if (event->element.qp == scene->qp[A])
			return "A";
		return event->element.qp == scene->qp[B] ? "B" : "another QP";
	default:
		return "the device";
	}
}

static bool readable(const struct scene *scene, int fd, unsigned ms)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	if (!scene->kit->pass)
		return poll(&wait, 1, scene->kit->at_once ? 0 : (int)ms) == 1;
	while (poll(&wait, 1, 0) < 1) {
		if (!ms--)
			return false;
		nap(scene, 1);
	}
	return true;
}

void say_events(struct scene *scene)
{
	struct ibv_context *context = scene->kit->context;
	struct ibv_async_event event;
	bool none = true;

	while (readable(scene, context->async_fd, QUIET_MS) &&
	       !scene->control->get_async_event(context, &event)) {
		say(scene, "%s on %s", event_name(event.event_type),
		    event_subject(scene, &event));
		scene->control->ack_async_event(&event);
		none = false;
	}
	if (none)
		say(scene, "no events");
}

void drain_events(struct scene *scene)
{
	struct ibv_context *context = scene->kit->context;
	struct ibv_async_event event;

	while (readable(scene, context->async_fd, 0) &&
	       !scene->control->get_async_event(context, &event))
		scene->control->ack_async_event(&event);
}

void say_data(struct scene *scene, const char *what, size_t at, size_t length)
{
	const unsigned char *bytes = scene->bytes + at;
	size_t same = 0, untouched = 0;

	if (!length)
		return;
	for (size_t i = 0; i < length; i++) {
		same += bytes[i] == scene->bytes[NEAR + i];
		untouched += bytes[i] == CANARY;
	}
	if (same == length)
		say(scene, "%s as sent", what);
	else
		say(scene, "%s %s", what, untouched == length ? "untouched" : "wrong");
}

int take_event(struct scene *scene, unsigned channel, bool must_come)
{
	struct ibv_comp_channel *from = scene->channel[channel];
	struct ibv_cq *cq;
	void *context;

	if (!readable(scene, from->fd, must_come ? MUST_COME_MS : QUIET_MS) ||
	    scene->control->get_cq_event(from, &cq, &context))
		return -1;
	scene->control->ack_cq_events(cq, 1);
	for (unsigned i = 0; i < CQS_MAX; i++)
		if (cq == scene->cq[i])
			return i;
	return CQS_MAX;
}

void say_cq_event(struct scene *scene, unsigned channel, bool must_come)
{
	static const char *const names[] = { "A", "B", "C", "D", "an unknown CQ" };
	int which = take_event(scene, channel, must_come);

	if (which < 0)
		say(scene, "no event");
	else
		say(scene, "event for %s", names[which]);
}
