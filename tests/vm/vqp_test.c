/* SPDX-License-Identifier: MIT */
/*
 * Virtual QPs on real devices, chosen pairwise: lanes, devices, scheme, fragment
 * size and length. Both ends live in this process, each with its own context, and
 * every byte is compared. Prints TAP.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sennit/sennit.h>

#define BUFFER_MAX (UINT64_C(64) << 20)
#define SECONDS	   60

static const unsigned access_all = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE |
				   SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_ATOMIC;

/* Each pair of values of two columns appears in some row. */
static const struct cell {
	uint32_t devices; /* as bits */
	uint32_t lanes;
	enum snt_scheme scheme;
	uint64_t fragment_size;
	uint64_t length;
} cells[] = {
	{ 1, 1, SNT_SPRAY, 1 << 20, 0 },      { 3, 1, SNT_DQPLB, 1 << 20, 1 },
	{ 3, 2, SNT_SPRAY, 256, 0 },	      { 1, 2, SNT_DQPLB, 4096, 1 },
	{ 3, 2, SNT_SPRAY, 65536, 4097 },     { 1, 2, SNT_DQPLB, 1 << 20, 1 << 20 },
	{ 1, 4, SNT_SPRAY, 4096, 0 },	      { 3, 4, SNT_DQPLB, 256, 4097 },
	{ 3, 4, SNT_SPRAY, 1 << 20, 1 },      { 1, 4, SNT_DQPLB, 65536, 1 << 20 },
	{ 3, 4, SNT_SPRAY, 65536, 64 << 20 }, { 1, 16, SNT_DQPLB, 65536, 0 },
	{ 3, 16, SNT_SPRAY, 256, 1 },	      { 3, 16, SNT_DQPLB, 4096, 1 << 20 },
	{ 1, 16, SNT_SPRAY, 1 << 20, 4097 },  { 3, 16, SNT_DQPLB, 1 << 20, 64 << 20 },
};

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

static bool open_end(struct end *end, const struct cell *cell)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .devices = cell->devices,
				    .lanes = cell->lanes,
				    .scheme = cell->scheme,
				    .fragment_size = cell->fragment_size,
				    .lane_depth = 32 };

	if (snt_cq_create(end->ctx, NULL, &end->cq))
		return wrong("cq");
	opts.cq = end->cq;
	if (snt_qp_create(end->ctx, &opts, &end->qp))
		return wrong("qp");
	return true;
}

static bool connect_both(struct end *end)
{
	struct snt_card card[2];

	for (int i = 0; i < 2; i++)
		if (snt_qp_card(end[i].qp, &card[i]))
			return wrong("card");
	for (int i = 0; i < 2; i++)
		if (snt_qp_connect(end[i].qp, &card[!i]))
			return wrong("connect");
	return true;
}

/* Polls both until each wanted completion has come. */
static bool await(struct end *end, int want_first, int want_second, struct snt_wc *last)
{
	time_t deadline = time(NULL) + SECONDS;
	int left[2] = { want_first, want_second };

	while (left[0] || left[1]) {
		for (int i = 0; i < 2; i++) {
			struct snt_wc wc;
			int count = snt_cq_poll(end[i].cq, &wc, 1);

			if (count < 0)
				return wrong("poll");
			if (!count)
				continue;
			if (wc.status || !left[i]) {
				snprintf(why, sizeof(why),
					 "end %d: opcode %u, %s, lane %u", i, wc.opcode,
					 snt_status_text(wc.status), wc.lane);
				return false;
			}
			left[i]--;
			last[i] = wc;
		}
		if (time(NULL) > deadline) {
			snprintf(why, sizeof(why), "%d and %d completions are missing",
				 left[0], left[1]);
			return false;
		}
	}
	return true;
}

static void fill(unsigned char *buffer, uint64_t length, unsigned salt)
{
	for (uint64_t i = 0; i < length; i++)
		buffer[i] = i * 131 + (i >> 12) * 7 + salt;
}

static bool same(const struct end *end, uint64_t length, const char *what)
{
	if (!memcmp(end[0].buffer, end[1].buffer, length))
		return true;
	snprintf(why, sizeof(why), "%s: bytes differ", what);
	return false;
}

static bool run_bulk(struct end *end, const struct cell *cell)
{
	struct snt_sge sge = { end[0].mem, end[0].buffer, cell->length };
	struct snt_send_wr wr = { .wr_id = 1,
				  .opcode = SNT_WRITE,
				  .flags = SNT_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .imm = 0xc0ffee42,
				  .remote = &end[1].token,
				  .remote_addr = end[1].token.addr };
	struct snt_recv_wr recv = { .wr_id = 2 };
	struct snt_wc last[2];

	fill(end[0].buffer, cell->length, 1);
	memset(end[1].buffer, 0, cell->length);
	if (snt_qp_post_send(end[0].qp, &wr, 1) != 1 || !await(end, 1, 0, last) ||
	    !same(end, cell->length, "write"))
		return false;
	fill(end[0].buffer, cell->length, 2);
	wr.opcode = SNT_WRITE_IMM;
	if (snt_qp_post_recv(end[1].qp, &recv, 1) != 1 ||
	    snt_qp_post_send(end[0].qp, &wr, 1) != 1 || !await(end, 1, 1, last) ||
	    !same(end, cell->length, "write with immediate"))
		return false;
	if (last[1].imm != wr.imm || last[1].opcode != SNT_RECV_NOTIFY)
		return wrong("notification");
	memset(end[0].buffer, 0, cell->length);
	wr.opcode = SNT_READ;
	return snt_qp_post_send(end[0].qp, &wr, 1) == 1 && await(end, 1, 0, last) &&
	       same(end, cell->length, "read");
}

static bool run_small(struct end *end, const struct cell *cell)
{
	uint64_t *word = (uint64_t *)end[1].buffer;
	struct snt_sge from = { end[0].mem, end[0].buffer, 200 };
	struct snt_sge into = { end[1].mem, end[1].buffer + 4096, 1000 };
	struct snt_recv_wr recv = { .wr_id = 3, .sge = &into, .sge_count = 1 };
	struct snt_send_wr wr = { .opcode = SNT_SEND_IMM,
				  .flags = SNT_SIGNALED,
				  .sge_count = 1,
				  .sge = &from,
				  .imm = 7,
				  .remote = &end[1].token,
				  .remote_addr = end[1].token.addr,
				  .compare_add = 5 };
	struct snt_wc last[2];

	(void)cell;
	fill(end[0].buffer, 200, 9);
	if (snt_qp_post_recv(end[1].qp, &recv, 1) != 1 ||
	    snt_qp_post_send(end[0].qp, &wr, 1) != 1 || !await(end, 1, 1, last))
		return false;
	if (last[1].length != 200 || last[1].imm != 7 ||
	    memcmp(end[0].buffer, end[1].buffer + 4096, 200))
		return wrong("send");
	*word = 37;
	from.length = 8;
	wr.opcode = SNT_FETCH_ADD;
	if (snt_qp_post_send(end[0].qp, &wr, 1) != 1 || !await(end, 1, 0, last))
		return false;
	if (*word != 42 || *(uint64_t *)end[0].buffer != 37)
		return wrong("fetch and add");
	wr.opcode = SNT_CMP_SWAP;
	wr.compare_add = 42;
	wr.swap = 99;
	if (snt_qp_post_send(end[0].qp, &wr, 1) != 1 || !await(end, 1, 0, last))
		return false;
	return *word == 99 || wrong("compare and swap");
}

static bool close_end(struct end *end)
{
	time_t deadline = time(NULL) + SECONDS;
	struct snt_wc wc = { 0 };

	if (!end->qp)
		return true;
	if (snt_qp_close(end->qp, 0))
		return wrong("close");
	while (wc.opcode != SNT_CLOSED) {
		if (snt_cq_poll(end->cq, &wc, 1) < 0 || time(NULL) > deadline)
			return wrong("closing does not end");
	}
	return (!snt_qp_destroy(end->qp) && !snt_cq_destroy(end->cq)) ||
	       wrong("destroy");
}

static bool run_cell(struct end *end, const struct cell *cell)
{
	bool good = open_end(&end[0], cell) && open_end(&end[1], cell) &&
		    connect_both(end) && run_bulk(end, cell) && run_small(end, cell);

	for (int i = 0; i < 2; i++) {
		good = close_end(&end[i]) && good;
		end[i].qp = NULL;
	}
	return good;
}

/*
 * Lanes of the first device die of a key that is wrong there; those of the second
 * go on, in order, and closing ends. On a real device this shows that flushes,
 * markers and ERR play together as they do in simulation.
 */
static bool run_dying(struct end *end, enum snt_scheme scheme)
{
	const struct cell cell = { 3, 4, scheme, 4096, 0 };
	struct snt_token bad = end[1].token;
	struct snt_sge sge = { end[0].mem, end[0].buffer, 4096 };
	struct snt_send_wr wr = { .opcode = SNT_WRITE,
				  .flags = SNT_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &bad,
				  .remote_addr = bad.addr };
	struct snt_wc wc, last[2];
	time_t deadline = time(NULL) + SECONDS;
	unsigned failed = 0, next = 0;

	if (!open_end(&end[0], &cell) || !open_end(&end[1], &cell) ||
	    !connect_both(end))
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
		failed += wc.status != SNT_SUCCESS;
	}
	if (next < 8 || failed < 2)
		return wrong("failures are not reported");
	wr.remote = &end[1].token;
	if (scheme == SNT_DQPLB)
		return snt_qp_post_send(end[0].qp, &wr, 1) < 0 || wrong("not broken");
	/* All four went to the lanes in turn, so half of them failed. */
	if (failed != 4)
		return wrong("healthy lanes failed too");
	for (unsigned i = 0; i < 8; i++)
		if (snt_qp_post_send(end[0].qp, &wr, 1) != 1)
			return wrong("post after");
	return await(end, 8, 0, last);
}

static bool run_dying_and_close(struct end *end, enum snt_scheme scheme)
{
	bool good = run_dying(end, scheme);

	for (int i = 0; i < 2; i++) {
		good = close_end(&end[i]) && good;
		end[i].qp = NULL;
	}
	return good;
}

static bool set_up(struct end *end)
{
	for (int i = 0; i < 2; i++) {
		end[i].buffer = malloc(BUFFER_MAX);
		if (!end[i].buffer || snt_ctx_open(NULL, &end[i].ctx) ||
		    snt_mem_register(end[i].ctx, end[i].buffer, BUFFER_MAX, access_all,
				     &end[i].mem) ||
		    snt_mem_token(end[i].mem, &end[i].token))
			return wrong("set-up");
	}
	return true;
}

int main(void)
{
	const unsigned count = sizeof(cells) / sizeof(cells[0]);
	struct end end[2] = { 0 };
	unsigned failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..%u\n", count + 2);
	if (!set_up(end)) {
		printf("Bail out! %s\n", why);
		return 1;
	}
	for (unsigned i = 0; i < count; i++) {
		const struct cell *cell = &cells[i];
		bool good = run_cell(end, cell);

		failed += !good;
		printf("%s %u - devices 0x%x, %u lanes, %s, fragments of %" PRIu64
		       ", %" PRIu64 " bytes\n",
		       good ? "ok" : "not ok", i + 1, cell->devices, cell->lanes,
		       cell->scheme == SNT_SPRAY ? "SPRAY" : "DQPLB",
		       cell->fragment_size, cell->length);
		if (!good)
			printf("# %s\n", why);
	}
	for (enum snt_scheme scheme = SNT_SPRAY; scheme <= SNT_DQPLB; scheme++) {
		bool good = run_dying_and_close(end, scheme);

		failed += !good;
		printf("%s %u - lanes of one device die, %s\n", good ? "ok" : "not ok",
		       count + scheme, scheme == SNT_SPRAY ? "SPRAY" : "DQPLB");
		if (!good)
			printf("# %s\n", why);
	}
	return failed ? 1 : 0;
}
