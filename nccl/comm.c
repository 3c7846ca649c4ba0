/* SPDX-License-Identifier: MIT */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "plugin.h"

/* NCCL's messages are 128 KiB to 1 MiB: even the short ones go over two lanes. */
#define FRAGMENT_SIZE (64 * 1024)
#define LANE_DEPTH    64
#define SEND_DEPTH    (2 * NCCL_REQUESTS_MAX)
#define CQ_DEPTH      1024
/* 4.096 us << 17 = 0.54 s, 8 tries. The end of a process is seen by TCP long before. */
#define ACK_TIMEOUT 17

#define MS	UINT64_C(1000000)
#define LOOK_NS (20 * MS)
/* What arrived before the peer closed may still be on its way through this host's device. */
#define LINGER_NS  (500 * MS)
#define CLOSING_NS (2000 * MS)

#define GRANTS_BYTES (NCCL_REQUESTS_MAX * sizeof(struct grant))

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec * 1000 * MS + now.tv_nsec;
}

int comm_fail(struct comm *comm, enum nccl_result result, const char *format, ...)
{
	char text[512];
	va_list list;

	if (comm->failed)
		return comm->failed;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	comm->failed = result;
	return plugin_fail(result, "%s %s: %s",
			   comm->role == COMM_SENDS ? "sending to" : "receiving from",
			   comm->control.peer, text);
}

static int create_qp(struct comm *comm, const struct virtual_device *device,
		     int traffic_class)
{
	const struct snt_cq_opts cq_opts = SNT_INIT(cq_opts, .depth = CQ_DEPTH);
	const struct snt_qp_opts opts =
		SNT_INIT(opts, .scheme = SNT_SCHEME_DQPLB, .devices = device->mask,
			 .lane_depth = LANE_DEPTH, .send_depth = SEND_DEPTH,
			 .recv_depth = NCCL_REQUESTS_MAX,
			 .fragment_size = FRAGMENT_SIZE, .timeout = ACK_TIMEOUT,
			 .traffic_class = traffic_class == NCCL_ID_UNDEFINED
						  ? 0
						  : traffic_class);

	return snt_qp_create_with_cq(process_ctx(), &cq_opts, &opts, &comm->cq,
				     &comm->qp);
}

static int create_grants(struct comm *comm)
{
	comm->grants = calloc(1, GRANTS_BYTES);
	if (!comm->grants)
		return -1;
	return snt_mem_register(process_ctx(), comm->grants, GRANTS_BYTES,
				SNT_ACCESS_LOCAL_WRITE, &comm->grant_mem);
}

int comm_create(enum comm_role role, const struct virtual_device *device,
		int traffic_class, struct comm **comm_out)
{
	struct comm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return plugin_fail(NCCL_SYSTEM_ERROR, "no memory for a connection");
	comm->role = role;
	comm->control.fd = -1;
	for (unsigned i = 0; i < NCCL_REQUESTS_MAX; i++)
		comm->request[i].comm = comm;
	if (create_qp(comm, device, traffic_class) || create_grants(comm)) {
		plugin_fail(NCCL_SYSTEM_ERROR, "no queue pair on %s: %s", device->name,
			    snt_err_text());
		comm_destroy(comm);
		return NCCL_SYSTEM_ERROR;
	}
	*comm_out = comm;
	return NCCL_SUCCESS;
}

static void log_statistics(const struct comm *comm)
{
	struct snt_qp_info info = SNT_INIT(info);

	if (snt_qp_query(comm->qp, &info))
		return;
	plugin_log(NCCL_INFO,
		   "%s %s ends: %llu messages, %llu bytes, %llu fragments, %u of %u "
		   "lanes alive, %llu errors",
		   comm->role == COMM_SENDS ? "sending to" : "receiving from",
		   comm->control.peer, (unsigned long long)comm->messages,
		   (unsigned long long)comm->bytes, (unsigned long long)info.fragments,
		   info.lanes_alive, info.lanes, (unsigned long long)info.errors);
}

/* The local device alone decides how long this takes. */
static void close_qp(struct comm *comm)
{
	const uint64_t deadline = now_ns() + CLOSING_NS;

	comm->closing = true;
	if (snt_qp_close(comm->qp, 0))
		return; /* it was never connected */
	while (!comm->closed && now_ns() < deadline) {
		comm_poll(comm);
		if (!comm->closed)
			sched_yield();
	}
}

void comm_destroy(struct comm *comm)
{
	if (!comm)
		return;
	if (comm->qp) {
		if (comm->step == COMM_UP)
			log_statistics(comm);
		close_qp(comm);
	}
	control_end(&comm->control);
	if (snt_qp_destroy(comm->qp) || snt_cq_destroy(comm->cq) ||
	    snt_mem_release(comm->grant_mem)) {
		/* The device may still use it. */
		plugin_log(NCCL_WARN, "a connection was not freed: %s", snt_err_text());
		return;
	}
	free(comm->grants);
	free(comm);
}

static enum nccl_result result_of(const struct snt_wc *wc)
{
	const unsigned status = wc->status == SNT_WC_FLUSHED ? wc->cause : wc->status;

	switch (status) {
	case SNT_WC_LOC_LEN_ERR:
	case SNT_WC_LOC_QP_OP_ERR:
	case SNT_WC_LOC_PROT_ERR:
	case SNT_WC_LOC_ACCESS_ERR:
		return NCCL_SYSTEM_ERROR;
	default:
		return NCCL_REMOTE_ERROR;
	}
}

static void end_request(struct comm *comm, uint64_t place, size_t size)
{
	struct request *request = &comm->request[place];

	request->size = size;
	request->state = REQUEST_DONE;
	comm->messages++;
	comm->bytes += size;
}

/* The device adds up what has arrived, but the peer decides how much it writes. */
static void end_receive(struct comm *comm, uint64_t place, size_t size)
{
	if (size > comm->request[place].room)
		comm_fail(
			comm, NCCL_REMOTE_ERROR,
			"the peer has written %zu bytes in a receive of %zu bytes: its "
			"plugin does not keep to the protocol",
			size, comm->request[place].room);
	else
		end_request(comm, place, size);
}

static void take_completion(struct comm *comm, const struct snt_wc *wc)
{
	if (wc->opcode == SNT_OP_CLOSED) {
		comm->closed = true;
	} else if (comm->closing) {
		return;
	} else if (wc->status) {
		comm_fail(comm, result_of(wc), "%s", snt_wc_text(comm->cq, wc));
	} else if (wc->opcode == SNT_OP_WRITE_IMM) {
		end_request(comm, wc->wr_id, wc->length);
	} else if (wc->opcode == SNT_OP_RECV_NOTIFY) {
		end_receive(comm, wc->wr_id, wc->length);
	} else {
		comm->grants_done++;
	}
}

void comm_poll(struct comm *comm)
{
	struct snt_wc wc[NCCL_REQUESTS_MAX];
	const int count = snt_cq_poll(comm->cq, wc, NCCL_REQUESTS_MAX);

	if (count < 0)
		comm_fail(comm, NCCL_SYSTEM_ERROR, "%s", snt_err_text());
	for (int i = 0; i < count; i++)
		take_completion(comm, &wc[i]);
}

void comm_idle(struct comm *comm)
{
	const uint64_t now = now_ns();

	if (comm->failed || now - comm->looked_ns < LOOK_NS)
		return;
	comm->looked_ns = now;
	if (!comm->lost_ns && control_lost(&comm->control))
		comm->lost_ns = now;
	if (comm->lost_ns && now - comm->lost_ns >= LINGER_NS)
		comm_fail(comm, NCCL_REMOTE_ERROR,
			  "the peer's process has ended, or has closed the connection");
}

int net_test(void *handle, int *done, int *sizes)
{
	struct request *request = handle;
	struct comm *comm = request->comm;

	if (request->state == REQUEST_POSTED) {
		comm_poll(comm);
		if (request->state == REQUEST_POSTED)
			comm_idle(comm);
	}
	*done = request->state == REQUEST_DONE;
	if (!*done)
		return comm->failed;
	if (sizes)
		*sizes = request->size;
	request->state = REQUEST_FREE;
	return NCCL_SUCCESS;
}
