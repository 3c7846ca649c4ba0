/* SPDX-License-Identifier: MIT */
#include "perf_end.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "path.h"
#include "perf_control.h"
#include "perf_error.h"
#include "perf_pattern.h"
#include "perf_stream.h"

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

/* Announcements and credits that can be in flight besides the messages. */
#define ASIDE_MAX 16

/* More than a stream reserves for itself. */
#define STREAM_RECEIVES 128

/* The library's. */
#define CQ_DEPTH 4096

/* Polls without a completion between two checks of the clock and the socket. */
#define IDLE_POLLS 256

/*
 * Description of this end
 */

static void name_cpu(char *name)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[PERF_TEXT_MAX];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "model name : %255[^\n]", name) == 1)
			break;
	if (file)
		fclose(file);
}

/* "mlx5_0 (eth2 10.0.0.1), mlx5_1 (eth3 10.0.1.1)"; those that do not fit are counted. */
static void name_devices(struct snt_ctx *ctx, char *names)
{
	const unsigned count = snt_ctx_device_count(ctx);
	const size_t rest = sizeof(", and 32 more");
	char device[PATH_DEVICE];
	size_t used = 0;

	for (unsigned i = 0; i < count; i++) {
		path_device(snt_ctx_device(ctx, i), device);
		if (used + 2 + strlen(device) + rest > PERF_TEXT_MAX) {
			snprintf(names + used, PERF_TEXT_MAX - used, ", and %u more",
				 count - i);
			return;
		}
		used += (size_t)snprintf(names + used, PERF_TEXT_MAX - used, "%s%s",
					 i ? ", " : "", device);
	}
}

void perf_end_hello(const struct perf_end *end, struct perf_hello *hello)
{
	struct utsname system;

	memset(hello, 0, sizeof(*hello));
	hello->device_count = snt_ctx_device_count(end->ctx);
	snprintf(hello->version, sizeof(hello->version), "%s", TOOL_VERSION);
	if (!uname(&system)) {
		snprintf(hello->host, sizeof(hello->host), "%s", system.nodename);
		snprintf(hello->kernel, sizeof(hello->kernel), "%s %s", system.sysname,
			 system.release);
	}
	name_cpu(hello->cpu);
	name_devices(end->ctx, hello->devices);
}

/*
 * A case
 */

static int register_end_memory(struct perf_end *end)
{
	int ret = snt_mem_alloc(end->ctx, end->shape.memory, ACCESS, &end->mem);

	if (ret)
		return perf_fail_library(ret, "registering memory");
	end->memory = (void *)(uintptr_t)snt_mem_addr(end->mem);
	return 0;
}

static int make_end_qp(struct perf_end *end)
{
	const struct perf_case *c = &end->c;
	struct snt_cq_opts cq = { .size = sizeof(cq),
				  .loop = c->events ? end->loop : NULL };
	/* Both ends have messages, announcements and credits in flight. */
	const uint32_t asides = c->bidirectional ? 4 * ASIDE_MAX : ASIDE_MAX;
	struct snt_qp_opts qp = {
		.size = sizeof(qp),
		/* The baseline for many lanes, by verbs' own rules. */
		.flags = c->lanes == 1 && !(end->receives_data && !end->one_queue)
				 ? SNT_QP_PASS_THROUGH
				 : 0,
		/* A single lane has none. */
		.scheme =
			c->lanes > 1 ? (enum snt_scheme)c->scheme : SNT_SCHEME_DEFAULT,
		.balance = (enum snt_balance)c->balance,
		.lanes = c->lanes,
		.send_depth = c->depth + asides,
		.recv_depth = perf_max(end->shape.window, ASIDE_MAX) + ASIDE_MAX,
		.fragment_size = c->fragment,
		.mtu = c->mtu,
		.timeout = c->timeout,
	};
	int ret;

	/* On a single lane its depth is that of the queue; and its completions must find
	 * room in one CQ. */
	if (c->lanes == 1)
		qp.lane_depth = qp.send_depth;
	if (c->lanes == 1 && qp.send_depth + qp.recv_depth > CQ_DEPTH / 2)
		cq.depth = 2 * CQ_DEPTH;
	/* A stream's completions are the loop's. */
	if (c->op == PERF_STREAM) {
		cq.loop = end->loop;
		cq.ops = c->events ? SNT_CQ_OPS_EVENTS : SNT_CQ_OPS_POLLED;
		qp.recv_depth = perf_max(qp.recv_depth, STREAM_RECEIVES);
	}
	/* There must be one for each device of the other end that has lanes. */
	if (c->lanes > 1 && c->scheme != SNT_SCHEME_DQPLB)
		qp.notify_lanes =
			perf_min(c->lanes, perf_max(snt_ctx_device_count(end->ctx),
						    end->peer_devices));
	ret = snt_qp_create_with_cq(end->ctx, &cq, &qp, &end->cq, &end->qp);
	return ret ? perf_fail_library(ret, "making a QP") : 0;
}

/* READs read this end's memory. */
static void fill_for_reads(struct perf_end *end)
{
	const struct perf_case *c = &end->c;

	if (!c->verify || c->op != PERF_READ || !(end->serves || c->bidirectional))
		return;
	for (uint32_t i = 0; i < end->shape.slots; i++)
		pattern_fill(perf_end_out(end, i), c->size, c->seed, i);
}

/* An end that sends SENDs receives only credits, unless messages come back. */
int perf_end_make(struct perf_end *end, const struct perf_case *c, bool serves)
{
	int ret = perf_case_check(c);

	if (ret)
		return ret;
	end->c = *c;
	end->shape = perf_case_shape(c);
	end->posted = end->done = end->announced = 0;
	end->received = end->recv_posted = 0;
	end->serves = serves;
	end->receives_data = c->op == PERF_SEND && perf_case_takes(c, serves);
	/* A message must find the slot it belongs to, and credits on a pass-through
	 * lane would shift the order. */
	end->one_queue = c->lanes == 1 && !(c->bidirectional && c->verify);
	end->credited = perf_case_sends(c, serves) ? end->shape.window : 0;
	end->told = end->expected = 0;
	ret = register_end_memory(end);
	if (!ret)
		ret = make_end_qp(end);
	end->offer.length = 0;
	if (!ret && c->op == PERF_STREAM)
		ret = perf_stream_make(end);
	if (ret)
		perf_end_unmake(end);
	else
		fill_for_reads(end);
	return ret;
}

int perf_end_address(struct perf_end *end, struct perf_address *address)
{
	struct snt_card card;
	struct snt_token token;
	ssize_t length;
	int ret;

	ret = snt_qp_card(end->qp, &card);
	if (ret)
		return perf_fail_library(ret, "the QP's card");
	length = snt_card_pack(&card, address->card, sizeof(address->card));
	if (length < 0)
		return perf_fail_library((int)length, "the QP's card");
	address->card_length = (size_t)length;
	ret = snt_mem_token(end->mem, &token);
	if (ret)
		return perf_fail_library(ret, "the memory's token");
	length = snt_token_pack(&token, address->token, sizeof(address->token));
	if (length < 0)
		return perf_fail_library((int)length, "the memory's token");
	address->token_length = (size_t)length;
	address->offer_length = end->offer.length;
	memcpy(address->offer, end->offer.bytes, end->offer.length);
	return 0;
}

/* Posted before the other end can send: receives for messages, and in both directions
 * for credits as well. An end that receives only credits has a few. */
static int post_first_receives(struct perf_end *end)
{
	uint32_t credits = end->c.bidirectional ? ASIDE_MAX : 0;
	int ret = 0;

	for (uint32_t i = 0; i < perf_max(end->shape.window, ASIDE_MAX) && !ret; i++)
		ret = perf_end_recv(end);
	for (uint32_t i = 0; i < credits && !ret; i++)
		ret = perf_end_recv_credit(end);
	return ret;
}

int perf_end_connect(struct perf_end *end, const struct perf_address *peer)
{
	struct snt_card card;
	int ret;

	ret = snt_card_unpack(peer->card, peer->card_length, &card);
	if (ret)
		return perf_fail_library(ret, "the other end's card");
	ret = snt_token_unpack(peer->token, peer->token_length, &end->peer);
	if (ret)
		return perf_fail_library(ret, "the other end's token");
	if (end->peer.length < end->shape.memory)
		return perf_fail(EINVAL,
				 "the other end registered %llu bytes; %zu are needed",
				 (unsigned long long)end->peer.length,
				 end->shape.memory);
	memcpy(end->peer_offer.bytes, peer->offer, peer->offer_length);
	end->peer_offer.length = peer->offer_length;
	/* A stream has receives of its own. */
	ret = end->stream ? 0 : post_first_receives(end);
	if (ret)
		return ret;
	ret = snt_qp_connect(end->qp, &card);
	if (ret)
		return perf_fail_library(ret, "connecting");
	end->connected = true;
	return 0;
}

/* Flushed completions are ignored. */
static void close_end_qp(struct perf_end *end)
{
	uint64_t deadline_ns = perf_now_ns() + PERF_PATIENCE_NS;
	struct snt_wc wc = { 0 };

	if (snt_qp_close(end->qp, 0))
		return;
	while (wc.opcode != SNT_OP_CLOSED && perf_now_ns() < deadline_ns)
		if (snt_cq_poll(end->cq, &wc, 1) < 0)
			return;
}

void perf_end_unmake(struct perf_end *end)
{
	if (end->stream)
		perf_stream_unmake(end);
	else if (end->connected)
		close_end_qp(end);
	end->connected = false;
	snt_qp_destroy(end->qp);
	snt_cq_destroy(end->cq);
	snt_mem_release(end->mem);
	end->qp = NULL;
	end->cq = NULL;
	end->mem = NULL;
	end->memory = NULL;
}

/*
 * Messages
 */

static uint64_t slot_offset(const struct perf_end *end, uint64_t message)
{
	return message % end->shape.slots * end->shape.stride;
}

static uint64_t half_size(const struct perf_end *end)
{
	return end->shape.slots * end->shape.stride;
}

unsigned char *perf_end_out(const struct perf_end *end, uint64_t message)
{
	return end->memory + slot_offset(end, message);
}

unsigned char *perf_end_in(const struct perf_end *end, uint64_t message)
{
	return end->memory + half_size(end) + slot_offset(end, message);
}

uint64_t perf_end_remote_in(const struct perf_end *end, uint64_t message)
{
	return end->peer.addr + half_size(end) + slot_offset(end, message);
}

uint64_t perf_end_remote_out(const struct perf_end *end, uint64_t message)
{
	return end->peer.addr + slot_offset(end, message);
}

int perf_end_post(struct perf_end *end, const struct snt_send_wr *wr, unsigned count)
{
	while (count) {
		int taken = snt_qp_post_send(end->qp, wr, count);

		if (taken < 0)
			return perf_fail_library(taken, "posting");
		wr += taken;
		count -= (unsigned)taken;
	}
	return 0;
}

int perf_end_tell(struct perf_end *end, uint32_t imm)
{
	struct snt_send_wr wr = { .wr_id = PERF_ASIDE,
				  .opcode = SNT_OP_WRITE_IMM,
				  .flags = SNT_SEND_SIGNALED,
				  .imm = imm,
				  .remote = &end->peer,
				  .remote_addr = end->peer.addr };

	return perf_end_post(end, &wr, 1);
}

static int post_receive(struct perf_end *end, const struct snt_recv_wr *wr)
{
	int ret = snt_qp_post_recv(end->qp, wr, 1);

	return ret < 0 ? perf_fail_library(ret, "posting a receive") : 0;
}

/* Of a SEND into the slot of its message; of anything else without memory. */
int perf_end_recv(struct perf_end *end)
{
	struct snt_sge sge = { end->mem, perf_end_in(end, end->recv_posted),
			       end->c.size };
	struct snt_recv_wr wr = { .wr_id = end->recv_posted++,
				  .sge = &sge,
				  .sge_count = end->receives_data };

	return post_receive(end, &wr);
}

int perf_end_recv_credit(struct perf_end *end)
{
	struct snt_recv_wr wr = { .wr_id = PERF_ASIDE };

	if (end->one_queue || !end->receives_data)
		return perf_end_recv(end);
	return post_receive(end, &wr);
}

int perf_end_hear(struct perf_end *end)
{
	struct perf_message said;
	int ret =
		perf_expect(end->control, end->serves ? PERF_STOP : PERF_FAILED, &said);

	if (ret)
		return ret;
	if (said.type != PERF_STOP || end->expected != UINT64_MAX ||
	    said.messages < end->received)
		return perf_fail(
			EPROTO, "unexpected message %u, of %llu messages, during a run",
			said.type, (unsigned long long)said.messages);
	end->expected = said.messages;
	return 0;
}

static int sleep_until_ready(struct perf_end *end)
{
	struct pollfd watch[2] = { { .fd = snt_loop_fd(end->loop), .events = POLLIN },
				   { .fd = end->control, .events = POLLIN } };
	int ret;

	if (watch[0].fd < 0)
		return perf_fail_library(watch[0].fd, "the loop");
	ret = snt_loop_arm(end->loop);
	if (ret < 0)
		return perf_fail_library(ret, "arming");
	if (!ret && poll(watch, 2, 100) < 0 && errno != EINTR)
		return perf_fail(errno, "poll: %s", strerror(errno));
	ret = ret || watch[0].revents ? snt_loop_dispatch(end->loop, 0) : 0;
	return ret < 0 ? perf_fail_library(ret, "the loop") : 0;
}

static int check_status(const struct perf_end *end, const struct snt_wc *wc, int count)
{
	for (int i = 0; i < count; i++)
		if (wc[i].status)
			return perf_fail(EIO, "%s", snt_wc_text(end->cq, &wc[i]));
	return 0;
}

int perf_end_poll(struct perf_end *end, struct snt_wc *wc)
{
	int count = snt_cq_poll(end->cq, wc, PERF_POLL_MAX), ret;

	if (!count && end->c.events) {
		ret = sleep_until_ready(end);
		if (ret)
			return ret;
		count = snt_cq_poll(end->cq, wc, PERF_POLL_MAX);
	}
	if (count < 0)
		return perf_fail_library(count, "polling");
	ret = check_status(end, wc, count);
	return ret ? ret : count;
}

int perf_end_idle(struct perf_end *end, int polled)
{
	uint64_t now;

	if (polled) {
		end->idle_polls = 0;
		return 0;
	}
	if (++end->idle_polls % IDLE_POLLS && !end->c.events)
		return 0;
	now = perf_now_ns();
	if (end->idle_polls <= IDLE_POLLS)
		end->idle_since_ns = now;
	if (perf_told(end->control))
		return 1;
	/* If processors are scarce, the other end may be waiting for this one. */
	if (!end->c.events)
		sched_yield();
	if (now - end->idle_since_ns > PERF_PATIENCE_NS)
		return perf_fail(ETIMEDOUT,
				 "nothing arrived for %u s; check the other end",
				 (unsigned)(PERF_PATIENCE_NS / 1000000000));
	return 0;
}

/*
 * Keeping count
 */

void perf_end_wrong(struct perf_end *end, uint64_t message)
{
	if (!end->use.wrong_bytes++)
		end->use.wrong_message = message;
}

/* The final count is known; the other end saw the values in between. */
void perf_end_verify_counter(struct perf_end *end, uint64_t count)
{
	uint64_t counter;

	if (!end->c.verify || !perf_case_is_atomic(&end->c))
		return;
	memcpy(&counter, perf_end_out(end, 0), sizeof(counter));
	if (counter != count)
		perf_end_wrong(end, count);
}

void perf_end_verify(struct perf_end *end, const void *memory, uint64_t message)
{
	struct pattern_fault fault =
		pattern_check(memory, end->c.size, end->c.seed, message);

	end->use.checked_bytes += end->c.size;
	if (fault.wrong && !end->use.wrong_bytes) {
		end->use.wrong_message = message;
		end->use.wrong_offset = fault.first;
	}
	end->use.wrong_bytes += fault.wrong;
}

static uint64_t cpu_ns(const struct rusage *usage)
{
	return ((uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec) *
		       1000000000 +
	       ((uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec) *
		       1000;
}

void perf_end_begin(struct perf_end *end)
{
	struct rusage usage;

	memset(&end->use, 0, sizeof(end->use));
	getrusage(RUSAGE_SELF, &usage);
	end->cpu_begin_ns = cpu_ns(&usage);
	end->wakeups_begin = (uint64_t)usage.ru_nvcsw;
	loss_read(end->ctx, &end->loss_begin);
	end->begin_ns = perf_now_ns();
}

static uint32_t paths_of(const struct perf_end *end)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	uint32_t paths = 0;

	for (unsigned i = 0; i < snt_qp_lane_count(end->qp); i++)
		if (!snt_qp_query_lane(end->qp, i, &lane))
			paths |= 1u << lane.path;
	return paths;
}

void perf_end_finish(struct perf_end *end)
{
	struct rusage usage;

	end->use.elapsed_ns = perf_now_ns() - end->begin_ns;
	getrusage(RUSAGE_SELF, &usage);
	end->use.cpu_ns = cpu_ns(&usage) - end->cpu_begin_ns;
	end->use.wakeups = (uint64_t)usage.ru_nvcsw - end->wakeups_begin;
	end->use.paths = paths_of(end);
	loss_read(end->ctx, &end->use.loss);
	loss_subtract(&end->use.loss, &end->loss_begin);
}
