/* SPDX-License-Identifier: MIT */
/*
 * Virtual QPs on real devices: the cells of a grid (vqp_grid.h), chosen pairwise or
 * most of them. Both ends live in this process, each with its own context, and every
 * byte is compared. Prints TAP.
 *
 * usage: vqp_test [--most] [--cell N]
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sennit/sennit.h>

#include "vqp_grid.h"

/* Where bytes come from and go to: at no round address, and not at the same. */
#define FROM	   129
#define TO	   67
#define GAP	   64 /* behind each piece */
#define GUARD	   0xa5
#define BUFFER_MAX ((UINT64_C(64) << 20) + 4096)
#define SECONDS	   120
#define COUNT_MAX  32

static const unsigned access_all = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE |
				   SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_ATOMIC;

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	unsigned char *buffer;
};

static char why[256];

static bool wrong(const char *what)
{
	snprintf(why, sizeof(why), "%s: %s", what, snt_err_text());
	return false;
}

static bool open_end(struct end *end, const struct snt_qp_opts *given)
{
	struct snt_qp_opts opts = *given;

	if (snt_cq_create(end->ctx, NULL, &end->cq))
		return wrong("cq");
	opts.size = sizeof(opts);
	opts.cq = end->cq;
	opts.lane_depth = 32;
	if (snt_qp_create(end->ctx, &opts, &end->qp))
		return wrong("qp");
	return true;
}

/* Bit i of @asks: end i wants to be told lengths. */
static bool open_both(struct end *end, struct snt_qp_opts opts, unsigned asks)
{
	const uint32_t flags = opts.flags;
	struct snt_card card[2];

	for (int i = 0; i < 2; i++) {
		opts.flags = flags | (asks >> i & 1 ? SNT_QP_NOTIFY_LENGTH : 0);
		if (!open_end(&end[i], &opts) || snt_qp_card(end[i].qp, &card[i]))
			return wrong("open");
	}
	for (int i = 0; i < 2; i++)
		if (snt_qp_connect(end[i].qp, &card[!i]))
			return wrong("connect");
	return true;
}

/* To find out where it hangs. */
static void show_lanes(const struct end *end)
{
	for (int i = 0; i < 2; i++) {
		struct snt_lane_info lane = { .size = sizeof(lane) };

		for (unsigned j = 0; !snt_qp_query_lane(end[i].qp, j, &lane); j++)
			printf("# end %d, lane %u on device %u: %s, %u under way, "
			       "%" PRIu64 " posted, %" PRIu64 " completions\n",
			       i, j, lane.device, lane.alive ? "alive" : "dead",
			       lane.under_way, lane.fragments, lane.completions);
	}
}

/*
 * Polls both until each wanted completion has come: wr_ids from 0, in order. Those
 * of the second end are kept.
 */
static bool await(struct end *end, const unsigned *want, struct snt_wc *kept)
{
	time_t deadline = time(NULL) + SECONDS;
	unsigned got[2] = { 0, 0 };

	while (got[0] < want[0] || got[1] < want[1]) {
		for (int i = 0; i < 2; i++) {
			struct snt_wc wc;
			int count = snt_cq_poll(end[i].cq, &wc, 1);

			if (count < 0)
				return wrong("poll");
			if (!count)
				continue;
			if (wc.status || got[i] == want[i] || wc.wr_id != got[i]) {
				snprintf(why, sizeof(why),
					 "end %d: opcode %u, number %" PRIu64
					 " where %u was due, %s, lane %u",
					 i, wc.opcode, wc.wr_id, got[i],
					 snt_status_text(wc.status), wc.lane);
				return false;
			}
			if (i == 1 && kept)
				kept[got[i]] = wc;
			got[i]++;
		}
		if (time(NULL) > deadline) {
			snprintf(why, sizeof(why), "%u and %u completions are missing",
				 want[0] - got[0], want[1] - got[1]);
			show_lanes(end);
			return false;
		}
	}
	return true;
}

/*
 * Bytes
 */

/* Several WRs of one kind: number i at i strides from the first. */
struct job {
	unsigned count;
	uint64_t length;
	uint64_t stride;
};

static struct job plan(const struct grid_cell *cell)
{
	uint64_t lanes = grid_value(cell, GRID_LANES);
	uint64_t length = grid_value(cell, GRID_LENGTH);

	/* Short ones are to have used each lane. */
	return (struct job){
		.count = length > 65536		      ? 1
			 : lanes == GRID_PASS_THROUGH ? 2
						      : lanes + 1,
		.length = length,
		.stride = length + GAP,
	};
}

static void fill(unsigned char *to, uint64_t length, unsigned salt)
{
	for (uint64_t i = 0; i < length; i++)
		to[i] = i * 131 + (i >> 12) * 7 + salt;
}

/* Bytes at the source; at the other place nothing but guards. */
static void prepare(const struct job *job, unsigned char *from, unsigned char *to)
{
	memset(to - GAP, GUARD, GAP + job->count * job->stride);
	for (unsigned i = 0; i < job->count; i++)
		fill(from + i * job->stride, job->length, i * 29 + 1);
}

static bool same(const struct job *job, const unsigned char *from,
		 const unsigned char *to, const char *what)
{
	unsigned char guard[GAP];

	memset(guard, GUARD, sizeof(guard));
	for (unsigned i = 0; i < job->count;
	     i++, from += job->stride, to += job->stride) {
		if (memcmp(from, to, job->length)) {
			snprintf(why, sizeof(why), "%s %u: bytes differ", what, i);
			return false;
		}
		if (memcmp(to - GAP, guard, GAP) ||
		    memcmp(to + job->length, guard, GAP)) {
			snprintf(why, sizeof(why), "%s %u: more than its bytes", what,
				 i);
			return false;
		}
	}
	return true;
}

/*
 * Work
 */

static bool post_all(struct end *end, const struct job *job, unsigned opcode)
{
	struct snt_sge sge[COUNT_MAX];
	struct snt_send_wr wr[COUNT_MAX];

	for (unsigned i = 0; i < job->count; i++) {
		uint64_t at = i * job->stride;

		sge[i] = (struct snt_sge){ end[0].mem, end[0].buffer + FROM + at,
					   job->length };
		wr[i] = (struct snt_send_wr){ .wr_id = i,
					      .opcode = opcode,
					      .flags = SNT_SEND_SIGNALED,
					      .sge_count = 1,
					      .sge = &sge[i],
					      .imm = 0xc0ffee00 + i,
					      .remote = &end[1].token,
					      .remote_addr =
						      end[1].token.addr + TO + at };
	}
	return snt_qp_post_send(end[0].qp, wr, job->count) == (int)job->count ||
	       wrong("post");
}

/* Receives for messages, or empty ones for notifications. */
static bool post_receives(struct end *end, const struct job *job, bool data)
{
	for (unsigned i = 0; i < job->count; i++) {
		struct snt_sge sge = { end[1].mem, end[1].buffer + TO + i * job->stride,
				       job->length + GAP / 2 };
		struct snt_recv_wr recv = { .wr_id = i,
					    .sge = &sge,
					    .sge_count = data };

		if (snt_qp_post_recv(end[1].qp, &recv, 1) != 1)
			return wrong("receive");
	}
	return true;
}

/* Only in SPRAY is there a length that the receiver does not know, unless it asked. */
static bool knows_length(const struct grid_cell *cell)
{
	return grid_value(cell, GRID_SCHEME) == SNT_SCHEME_DQPLB ||
	       grid_value(cell, GRID_LANES) == GRID_PASS_THROUGH ||
	       grid_value(cell, GRID_ASKS) & 2;
}

static bool check_notification(const struct grid_cell *cell, const struct job *job,
			       const struct snt_wc *wc, unsigned number)
{
	bool unknown = wc->flags & SNT_WC_LENGTH_UNKNOWN;

	if (wc->opcode == SNT_OP_RECV_NOTIFY && wc->imm == 0xc0ffee00 + number &&
	    unknown != knows_length(cell) && (unknown || wc->length == job->length))
		return true;
	snprintf(why, sizeof(why),
		 "notification %u: opcode %u, imm 0x%x, %" PRIu64 " bytes%s", number,
		 wc->opcode, wc->imm, wc->length, unknown ? ", not known" : "");
	return false;
}

static bool run_write(struct end *end, const struct grid_cell *cell,
		      const struct job *job, unsigned opcode)
{
	bool notifies = opcode == SNT_OP_WRITE_IMM;
	struct snt_wc wc[COUNT_MAX];

	prepare(job, end[0].buffer + FROM, end[1].buffer + TO);
	if ((notifies && !post_receives(end, job, false)) ||
	    !post_all(end, job, opcode) ||
	    !await(end, (unsigned[]){ job->count, notifies ? job->count : 0 }, wc) ||
	    !same(job, end[0].buffer + FROM, end[1].buffer + TO, "write"))
		return false;
	for (unsigned i = 0; notifies && i < job->count; i++)
		if (!check_notification(cell, job, &wc[i], i))
			return false;
	return true;
}

static bool run_read(struct end *end, const struct job *job)
{
	prepare(job, end[1].buffer + TO, end[0].buffer + FROM);
	return post_all(end, job, SNT_OP_READ) &&
	       await(end, (unsigned[]){ job->count, 0 }, NULL) &&
	       same(job, end[1].buffer + TO, end[0].buffer + FROM, "read");
}

static bool run_send(struct end *end, const struct job *job, unsigned opcode)
{
	struct snt_wc wc[COUNT_MAX];

	prepare(job, end[0].buffer + FROM, end[1].buffer + TO);
	if (!post_receives(end, job, true) || !post_all(end, job, opcode) ||
	    !await(end, (unsigned[]){ job->count, job->count }, wc) ||
	    !same(job, end[0].buffer + FROM, end[1].buffer + TO, "message"))
		return false;
	for (unsigned i = 0; i < job->count; i++) {
		bool with_imm = wc[i].flags & SNT_WC_WITH_IMM;

		if (wc[i].opcode != SNT_OP_RECV || wc[i].length != job->length ||
		    with_imm != (opcode == SNT_OP_SEND_IMM) ||
		    (with_imm && wc[i].imm != 0xc0ffee00 + i))
			return wrong("message's completion");
	}
	return true;
}

/* An addition, an exchange that happens and one that does not, in this order. */
static bool run_atomics(struct end *end)
{
	uint64_t *word = (uint64_t *)(end[1].buffer + 4096);
	uint64_t *old = (uint64_t *)end[0].buffer;
	struct snt_sge sge[3];
	struct snt_send_wr wr[3];

	for (unsigned i = 0; i < 3; i++) {
		sge[i] = (struct snt_sge){ end[0].mem, &old[i], 8 };
		wr[i] = (struct snt_send_wr){
			.wr_id = i,
			.opcode = i ? SNT_OP_CMP_SWAP : SNT_OP_FETCH_ADD,
			.flags = SNT_SEND_SIGNALED,
			.sge_count = 1,
			.sge = &sge[i],
			.remote = &end[1].token,
			.remote_addr = end[1].token.addr + 4096,
			.compare_add = i ? 42 : 5,
			.swap = UINT64_C(0x123456789abcdef) + i,
		};
	}
	*word = 37;
	memset(old, GUARD, 64);
	if (snt_qp_post_send(end[0].qp, wr, 3) != 3 ||
	    !await(end, (unsigned[]){ 3, 0 }, NULL))
		return false;
	return (*word == wr[1].swap && old[0] == 37 && old[1] == 42 &&
		old[2] == wr[1].swap && ((unsigned char *)old)[24] == GUARD) ||
	       wrong("atomics");
}

static bool run_work(struct end *end, const struct grid_cell *cell)
{
	struct job job = plan(cell);

	switch (grid_value(cell, GRID_WORK)) {
	case GRID_WRITE:
		return run_write(end, cell, &job, SNT_OP_WRITE);
	case GRID_WRITE_IMM:
		return run_write(end, cell, &job, SNT_OP_WRITE_IMM);
	case GRID_READ:
		return run_read(end, &job);
	case GRID_SEND:
		return run_send(end, &job, SNT_OP_SEND) &&
		       run_send(end, &job, SNT_OP_SEND_IMM);
	default:
		return run_atomics(end);
	}
}

static bool close_end(struct end *end)
{
	time_t deadline = time(NULL) + SECONDS;
	struct snt_wc wc = { 0 };

	if (!end->qp)
		return true;
	if (snt_qp_close(end->qp, 0))
		return wrong("close");
	while (wc.opcode != SNT_OP_CLOSED) {
		if (snt_cq_poll(end->cq, &wc, 1) < 0 || time(NULL) > deadline)
			return wrong("closing does not end");
	}
	return (!snt_qp_destroy(end->qp) && !snt_cq_destroy(end->cq)) ||
	       wrong("destroy");
}

static bool close_both(struct end *end)
{
	bool good = true;

	for (int i = 0; i < 2; i++) {
		good = close_end(&end[i]) && good;
		end[i].qp = NULL;
	}
	return good;
}

static bool run_cell(struct end *end, const struct grid_cell *cell)
{
	uint64_t lanes = grid_value(cell, GRID_LANES);
	bool passes = lanes == GRID_PASS_THROUGH;
	struct snt_qp_opts opts = {
		.devices = grid_value(cell, GRID_DEVICES),
		.lanes = passes ? 1 : lanes,
		.flags = passes ? SNT_QP_PASS_THROUGH : 0,
		.scheme = passes ? SNT_SCHEME_SPRAY : grid_value(cell, GRID_SCHEME),
		.fragment_size = grid_value(cell, GRID_FRAGMENT),
	};
	bool good = open_both(end, opts, grid_value(cell, GRID_ASKS)) &&
		    run_work(end, cell);

	return close_both(end) && good;
}

/*
 * Lanes of the first device die of a key that is wrong there; those of the second
 * go on, in order, and closing ends. On a real device this shows that flushes,
 * markers and ERR play together as they do in simulation.
 */
static bool run_dying(struct end *end, enum snt_scheme scheme)
{
	const struct snt_qp_opts opts = {
		.devices = 3, .lanes = 4, .scheme = scheme, .fragment_size = 4096
	};
	struct snt_token bad = end[1].token;
	struct snt_sge sge = { end[0].mem, end[0].buffer, 4096 };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &bad,
				  .remote_addr = bad.addr };
	struct snt_wc wc;
	time_t deadline = time(NULL) + SECONDS;
	unsigned failed = 0, next = 0;

	if (!open_both(end, opts, 0))
		return false;
	bad.key[0] ^= 0xffffff00;
	for (wr.wr_id = 0; wr.wr_id < 8; wr.wr_id++)
		if (snt_qp_post_send(end[0].qp, &wr, 1) != 1)
			return wrong("post");
	while (next < 8 && time(NULL) < deadline) {
		if (snt_cq_poll(end[0].cq, &wc, 1) != 1)
			continue;
		if (wc.wr_id != next++)
			return wrong("order");
		failed += wc.status != SNT_WC_SUCCESS;
	}
	if (next < 8 || failed < 2)
		return wrong("failures are not reported");
	wr.remote = &end[1].token;
	if (scheme == SNT_SCHEME_DQPLB)
		return snt_qp_post_send(end[0].qp, &wr, 1) < 0 || wrong("not broken");
	/* All four went to the lanes in turn, so half of them failed. */
	if (failed != 4)
		return wrong("healthy lanes failed too");
	for (wr.wr_id = 0; wr.wr_id < 8; wr.wr_id++)
		if (snt_qp_post_send(end[0].qp, &wr, 1) != 1)
			return wrong("post after");
	return await(end, (unsigned[]){ 8, 0 }, NULL);
}

static bool set_up(struct end *end)
{
	for (int i = 0; i < 2; i++) {
		end[i].buffer = aligned_alloc(4096, BUFFER_MAX);
		if (!end[i].buffer || snt_ctx_create(NULL, &end[i].ctx) ||
		    snt_mem_register(end[i].ctx, end[i].buffer, BUFFER_MAX, access_all,
				     &end[i].mem) ||
		    snt_mem_token(end[i].mem, &end[i].token))
			return wrong("set-up");
	}
	return true;
}

/* Prints a line of TAP, and why. Returns whether it failed. */
static unsigned say(bool good, unsigned number, const char *what)
{
	printf("%s %u - %s\n", good ? "ok" : "not ok", number, what);
	if (!good)
		printf("# %s\n", why);
	return !good;
}

static void describe(const struct grid_cell *cell, char *text, size_t size)
{
	static const char *const works[] = { "write", "write with immediate", "read",
					     "send", "atomics" };
	static const char *const asks[] = { "", ", the sender asks for lengths",
					    ", the receiver asks for lengths",
					    ", both ask for lengths" };
	uint64_t lanes = grid_value(cell, GRID_LANES);

	snprintf(text, size,
		 "%s, %" PRIu64 " bytes, devices 0x%" PRIx64 ", %s%" PRIu64
		 " lanes, %s, fragments of %" PRIu64 "%s",
		 works[grid_value(cell, GRID_WORK)], grid_value(cell, GRID_LENGTH),
		 grid_value(cell, GRID_DEVICES),
		 lanes == GRID_PASS_THROUGH ? "pass-through " : "",
		 lanes == GRID_PASS_THROUGH ? 1 : lanes,
		 grid_value(cell, GRID_SCHEME) == SNT_SCHEME_SPRAY ? "SPRAY" : "DQPLB",
		 grid_value(cell, GRID_FRAGMENT), asks[grid_value(cell, GRID_ASKS)]);
}

static unsigned run_grid(struct end *end, const struct grid_cell *cells, unsigned count,
			 unsigned only)
{
	unsigned failed = 0;
	char text[200];

	for (unsigned i = 1; i <= count; i++) {
		if (only && only != i)
			continue;
		describe(&cells[i - 1], text, sizeof(text));
		failed += say(run_cell(end, &cells[i - 1]), only ? 1 : i, text);
	}
	return failed;
}

int main(int argc, char **argv)
{
	bool most = argc > 1 && !strcmp(argv[1], "--most");
	unsigned only = 0, count = 0, failed;
	struct grid_cell *cells = most ? grid_most(&count) : grid_pairwise(&count);
	struct end end[2] = { 0 };

	if (argc > 2 && !strcmp(argv[argc - 2], "--cell"))
		only = strtoul(argv[argc - 1], NULL, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..%u\n", only ? 1 : count + 2);
	if (!cells || !set_up(end)) {
		printf("Bail out! %s\n", why);
		return 1;
	}
	failed = run_grid(end, cells, count, only);
	for (enum snt_scheme scheme = SNT_SCHEME_SPRAY;
	     !only && scheme <= SNT_SCHEME_DQPLB; scheme++) {
		bool good = run_dying(end, scheme);

		good = close_both(end) && good;
		failed += say(good, count + scheme,
			      scheme == SNT_SCHEME_SPRAY
				      ? "lanes of one device die, SPRAY"
				      : "lanes of one device die, DQPLB");
	}
	free(cells);
	return failed ? 1 : 0;
}
