/* SPDX-License-Identifier: MIT */
/*
 * Shared receive queues and memory windows on whatever devices there are: the kernel's in
 * the VM, soft ones (SENNIT_SOFT=only) anywhere. Two contexts in one process, on the
 * first device.
 */
#include "lib/test.h"

#include <stdbool.h>
#include <sennit/sennit.h>
#include <time.h>

#define QPS    3
#define BYTES  64
#define BUFFER 65536
#define ALL                                                                          \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_mem *mem;
	struct snt_qp *qp[QPS];
	unsigned char *buffer;
};

struct ends {
	struct end end[2]; /* 0 sends, 1 has the SRQ and the windows */
	struct snt_srq *srq;
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void open_end(struct end *end, uint32_t ops)
{
	struct snt_cq_opts opts = { .size = sizeof(opts), .ops = ops };

	assert_success(snt_ctx_create(NULL, &end->ctx));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	opts.loop = end->loop;
	end->buffer = aligned_alloc(4096, BUFFER);
	memset(end->buffer, 0, BUFFER);
	assert_success(snt_mem_register(end->ctx, end->buffer, BUFFER, ALL, &end->mem));
	assert_success(snt_cq_create(end->ctx, &opts, &end->cq));
}

static void add_pair(struct ends *ends, unsigned index)
{
	struct snt_card card[2];

	for (int i = 0; i < 2; i++) {
		struct snt_qp_opts opts = { .size = sizeof(opts),
					    .cq = ends->end[i].cq,
					    .flags = SNT_QP_PASS_THROUGH,
					    .srq = i ? ends->srq : NULL,
					    .devices = 1 };

		assert_success(snt_qp_create(ends->end[i].ctx, &opts,
					     &ends->end[i].qp[index]));
		assert_success(snt_qp_card(ends->end[i].qp[index], &card[i]));
	}
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(ends->end[i].qp[index], &card[!i]));
}

static struct ends *open_ends(bool with_srq, uint32_t ops)
{
	struct ends *ends = calloc(1, sizeof(*ends));
	struct snt_srq_opts opts = { .size = sizeof(opts), .depth = 16 };

	for (int i = 0; i < 2; i++)
		open_end(&ends->end[i], ops);
	opts.cq = ends->end[1].cq;
	if (with_srq)
		assert_success(snt_srq_create(ends->end[1].ctx, &opts, &ends->srq));
	for (unsigned i = 0; i < (with_srq ? QPS : 1); i++)
		add_pair(ends, i);
	return ends;
}

static struct snt_wc poll_one(struct end *end)
{
	uint64_t deadline = now_ms() + 20000;
	struct snt_wc wc = { 0 };

	while (now_ms() < deadline) {
		int count = snt_cq_poll(end->cq, &wc, 1);

		assert_success(count);
		if (count)
			return wc;
	}
	fail_msg("no completion");
	return wc;
}

static void close_qp(struct end *end, unsigned index)
{
	if (!end->qp[index])
		return;
	assert_success(snt_qp_close(end->qp[index], 99));
	while (poll_one(end).opcode != SNT_OP_CLOSED)
		continue;
	assert_success(snt_qp_destroy(end->qp[index]));
	end->qp[index] = NULL;
}

static void close_ends(struct ends *ends)
{
	for (int i = 0; i < 2; i++)
		for (unsigned at = 0; at < QPS; at++)
			close_qp(&ends->end[i], at);
	assert_success(snt_srq_destroy(ends->srq));
	for (int i = 0; i < 2; i++) {
		assert_success(snt_cq_destroy(ends->end[i].cq));
		assert_success(snt_mem_release(ends->end[i].mem));
		assert_success(snt_loop_destroy(ends->end[i].loop));
		assert_success(snt_ctx_destroy(ends->end[i].ctx));
		free(ends->end[i].buffer);
	}
	free(ends);
}

static struct snt_sge sge_at(const struct end *end, uint64_t offset, uint64_t length)
{
	return (struct snt_sge){ end->mem, end->buffer + offset, length };
}

/*
 * Shared receives
 */

static void give(struct ends *ends, uint64_t first, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct snt_sge sge = sge_at(&ends->end[1], BYTES * (first + i), BYTES);
		struct snt_recv_wr wr = { .wr_id = first + i,
					  .sge = &sge,
					  .sge_count = 1 };

		assert_int_equal(snt_srq_post_recv(ends->srq, &wr, 1), 1);
	}
}

static void send_on(struct ends *ends, unsigned index, unsigned char byte)
{
	struct end *end = &ends->end[0];
	struct snt_sge sge = sge_at(end, 0, BYTES);
	struct snt_send_wr wr = { .wr_id = byte,
				  .opcode = SNT_OP_SEND,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1 };
	struct snt_wc wc;

	memset(end->buffer, byte, BYTES);
	assert_int_equal(snt_qp_post_send(end->qp[index], &wr, 1), 1);
	wc = poll_one(end);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.wr_id, byte);
}

static void expect_recv(struct ends *ends, unsigned index, uint64_t wr_id,
			unsigned char byte)
{
	struct end *end = &ends->end[1];
	struct snt_wc wc = poll_one(end);

	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.qp_num, snt_qp_num(end->qp[index]));
	assert_int_equal(wc.opcode, SNT_OP_RECV);
	assert_int_equal(wc.length, BYTES);
	assert_int_equal(end->buffer[BYTES * wr_id], byte);
	assert_int_equal(end->buffer[BYTES * wr_id + BYTES - 1], byte);
}

static void qps_share_receives(void **state)
{
	static const unsigned order[] = { 1, 0, 2, 2, 1, 0, 0, 2 };
	struct ends *ends = open_ends(true, 0);

	(void)state;
	give(ends, 0, ARRAY_SIZE(order));
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		send_on(ends, order[i], i + 1);
		expect_recv(ends, order[i], i, i + 1);
	}
	close_ends(ends);
}

static void closing_one_leaves_the_stock(void **state)
{
	struct ends *ends = open_ends(true, 0);
	struct snt_srq_info info = { .size = sizeof(info) };
	struct end *end = &ends->end[1];

	(void)state;
	give(ends, 0, 4);
	send_on(ends, 0, 1);
	send_on(ends, 0, 2);
	assert_success(snt_qp_close(end->qp[0], 99));
	expect_recv(ends, 0, 0, 1);
	expect_recv(ends, 0, 1, 2);
	assert_int_equal(poll_one(end).opcode, SNT_OP_CLOSED);
	assert_error(snt_srq_destroy(ends->srq), EBUSY, "QPs use");
	assert_success(snt_qp_destroy(end->qp[0]));
	end->qp[0] = NULL;
	assert_success(snt_srq_query(ends->srq, &info));
	assert_int_equal(info.posted, 2);
	send_on(ends, 2, 3);
	expect_recv(ends, 2, 2, 3);
	close_ends(ends);
}

static struct snt_srq *told;

static void note(void *arg, const struct snt_event *event)
{
	(void)arg;
	if (event->type == SNT_EVENT_SRQ_LIMIT)
		told = event->srq;
}

static void the_limit_is_told(void **state)
{
	struct ends *ends = open_ends(true, 0);
	uint64_t deadline = now_ms() + 20000;

	(void)state;
	told = NULL;
	assert_success(snt_loop_set_event_handler(ends->end[1].loop, note, NULL));
	give(ends, 0, 4);
	assert_success(snt_srq_arm(ends->srq, 3));
	for (unsigned i = 0; i < 2; i++) {
		send_on(ends, i, i);
		expect_recv(ends, i, i, i);
	}
	while (!told && now_ms() < deadline)
		assert_success(snt_loop_wait(ends->end[1].loop, 100000000));
	assert_ptr_equal(told, ends->srq);
	close_ends(ends);
}

static void receives_as_ops(void **state)
{
	struct ends *ends = open_ends(true, SNT_CQ_OPS_EVENTS);
	struct end *end = ends->end;
	struct snt_op recv[3] = { { 0 } }, send = { 0 }, close[2 * QPS] = { { 0 } };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct snt_sge sge = sge_at(&end[1], BYTES * i, BYTES);

		assert_success(
			snt_op_post_srq_recv(ends->srq, &recv[i],
					     &(struct snt_recv_wr){ .sge = &sge,
								    .sge_count = 1 }));
	}
	for (unsigned i = 0; i < 2; i++) {
		struct snt_sge sge = sge_at(&end[0], 0, BYTES);

		assert_success(snt_op_send(end[0].qp[2 - i], &send, &sge));
		assert_int_equal(snt_op_wait(&send, -1), 0);
		assert_int_equal(snt_op_wait(&recv[i], -1), 0);
		assert_int_equal(recv[i].wc.qp_num, snt_qp_num(end[1].qp[2 - i]));
	}
	for (unsigned i = 0; i < 2 * QPS; i++) {
		struct snt_qp **qp = &end[i % 2].qp[i / 2];

		assert_success(snt_op_close(*qp, &close[i]));
		assert_int_equal(snt_op_wait(&close[i], -1), 0);
		assert_success(snt_qp_destroy(*qp));
		*qp = NULL;
	}
	assert_success(snt_srq_destroy(ends->srq));
	ends->srq = NULL;
	assert_int_equal(snt_op_wait(&recv[2], -1), -ECANCELED);
	close_ends(ends);
}

/*
 * Windows
 */

struct window {
	struct ends *ends;
	struct snt_mem *mem; /* without remote rights of its own */
	struct snt_mw *mw;
	struct snt_token token;
};

static struct window open_window(void)
{
	struct window window = { .ends = open_ends(false, 0) };
	struct end *end = &window.ends->end[1];

	assert_success(snt_mem_register(end->ctx, end->buffer, BUFFER,
					SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_WINDOW,
					&window.mem));
	assert_success(snt_mw_alloc(end->ctx, 0, &window.mw));
	return window;
}

static void close_window(struct window *window)
{
	/* Before its QP: rxe waits for a minute with that. */
	assert_success(snt_mw_free(window->mw));
	for (int i = 0; i < 2; i++)
		close_qp(&window->ends->end[i], 0);
	assert_success(snt_mem_release(window->mem));
	close_ends(window->ends);
}

static void bind_at(struct window *window, uint64_t offset, uint64_t length)
{
	struct end *end = &window->ends->end[1];
	struct snt_sge range = { window->mem, end->buffer + offset, length };
	struct snt_wc wc;

	assert_success(snt_mw_bind(end->qp[0], window->mw, &range,
				   SNT_ACCESS_REMOTE_WRITE, 31, SNT_SEND_SIGNALED));
	wc = poll_one(end);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 31);
	assert_int_equal(wc.opcode, SNT_OP_BIND);
	assert_success(snt_mw_token(window->mw, &window->token));
}

/* Its status. */
static unsigned write_by(struct window *window, const struct snt_token *token,
			 uint64_t offset, unsigned char byte)
{
	struct end *end = window->ends->end;
	struct snt_sge sge = sge_at(end, 0, BYTES);
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = token,
				  .remote_addr = (uintptr_t)end[1].buffer + offset };

	memset(end->buffer, byte, BYTES);
	assert_int_equal(snt_qp_post_send(end->qp[0], &wr, 1), 1);
	return poll_one(end).status;
}

/* The device of this end wrote it before the other end's WRITE completed: an order that
 * ThreadSanitizer does not see. */
__attribute__((no_sanitize("thread"))) static unsigned char written_at(
	const struct end *end, uint64_t offset)
{
	return *(const volatile unsigned char *)&end->buffer[offset];
}

static void a_window_opens_and_closes(void **state)
{
	struct window window;
	struct end *end;
	struct snt_wc wc;

	(void)state;
	window = open_window();
	end = &window.ends->end[1];
	bind_at(&window, 4096, 256);
	assert_int_equal(write_by(&window, &window.token, 4096 + 64, 'w'),
			 SNT_WC_SUCCESS);
	assert_int_equal(written_at(end, 4096 + 64), 'w');
	assert_success(snt_mw_invalidate(end->qp[0], window.mw, 32, SNT_SEND_SIGNALED));
	wc = poll_one(end);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.opcode, SNT_OP_INVALIDATE);
	/* Elsewhere, and by another key. */
	bind_at(&window, 8192, 64);
	assert_int_equal(write_by(&window, &window.token, 8192, 'x'), SNT_WC_SUCCESS);
	assert_int_equal(written_at(end, 8192), 'x');
	close_window(&window);
}

static void beyond_a_window_is_refused(void **state)
{
	struct window window;
	struct end *end;
	struct snt_sge sge;
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE, .sge = &sge, .sge_count = 1 };

	(void)state;
	window = open_window();
	end = window.ends->end;
	sge = sge_at(end, 0, BYTES);
	bind_at(&window, 4096, 256);
	wr.remote = &window.token;
	wr.remote_addr = window.token.addr + 256 - 32;
	assert_int_equal(snt_qp_post_send(end->qp[0], &wr, 1), -ERANGE);
	wr.opcode = SNT_OP_READ;
	wr.remote_addr = window.token.addr;
	assert_int_equal(snt_qp_post_send(end->qp[0], &wr, 1), -EACCES);
	close_window(&window);
}

static void an_old_key_is_of_no_use(void **state)
{
	struct window window;
	struct end *end;

	(void)state;
	window = open_window();
	end = &window.ends->end[1];
	bind_at(&window, 4096, 256);
	assert_success(snt_mw_invalidate(end->qp[0], window.mw, 32, SNT_SEND_SIGNALED));
	assert_int_equal(poll_one(end).status, SNT_WC_SUCCESS);
	assert_int_equal(write_by(&window, &window.token, 4096, 'o'),
			 SNT_WC_REM_ACCESS_ERR);
	assert_int_equal(end->buffer[4096], 0);
	close_window(&window);
}

static void the_peer_invalidates_it(void **state)
{
	struct window window;
	struct end *end;
	struct snt_sge sge, into;
	struct snt_recv_wr recv = { .wr_id = 5, .sge = &into, .sge_count = 1 };
	struct snt_wc wc;

	(void)state;
	window = open_window();
	end = window.ends->end;
	bind_at(&window, 4096, 256);
	into = sge_at(&end[1], 0, BYTES);
	sge = sge_at(&end[0], 0, BYTES);
	assert_int_equal(snt_qp_post_recv(end[1].qp[0], &recv, 1), 1);
	assert_success(snt_mw_send_inv(end[0].qp[0], &sge, 1, &window.token, 6,
				       SNT_SEND_SIGNALED));
	assert_int_equal(poll_one(&end[0]).status, SNT_WC_SUCCESS);
	wc = poll_one(&end[1]);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 5);
	/* So that it can be bound again, with no more ado. rxe means to set a flag, but
	 * takes one of another meaning. */
	bind_at(&window, 8192, 64);
	assert_int_equal(write_by(&window, &window.token, 8192, 'p'), SNT_WC_SUCCESS);
	close_window(&window);
}

/* rxe does not look at the range of a window, so that only soft devices are asked. */
static void the_device_checks_the_range(void **state)
{
	struct window window;
	struct snt_token forged;

	(void)state;
	window = open_window();
	bind_at(&window, 4096, 256);
	forged = window.token;
	forged.length = 4096;
	assert_int_equal(write_by(&window, &forged, 4096 + 256 - BYTES + 1, 'f'),
			 SNT_WC_REM_ACCESS_ERR);
	assert_int_equal(window.ends->end[1].buffer[4096 + 255], 0);
	close_window(&window);
}

/* Nor does it say which key was invalidated. */
static void the_receive_names_the_key(void **state)
{
	struct window window;
	struct snt_recv_wr recv = { .wr_id = 5 };
	struct snt_wc wc;

	(void)state;
	window = open_window();
	bind_at(&window, 4096, 256);
	assert_int_equal(snt_qp_post_recv(window.ends->end[1].qp[0], &recv, 1), 1);
	assert_success(snt_mw_send_inv(window.ends->end[0].qp[0], NULL, 0,
				       &window.token, 6, SNT_SEND_SIGNALED));
	assert_int_equal(poll_one(&window.ends->end[0]).status, SNT_WC_SUCCESS);
	wc = poll_one(&window.ends->end[1]);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.flags, SNT_WC_WITH_INV);
	assert_int_equal(wc.imm, window.token.key[0]);
	close_window(&window);
}

/* All of a memory goes, or nothing: a window keeps it. */
static void bound_memory_stays(void **state)
{
	struct window window;

	(void)state;
	window = open_window();
	bind_at(&window, 4096, 256);
	assert_int_equal(snt_mem_release(window.mem), -EBUSY);
	assert_int_equal(write_by(&window, &window.token, 4096, 'b'), SNT_WC_SUCCESS);
	close_window(&window);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qps_share_receives),
		cmocka_unit_test(closing_one_leaves_the_stock),
		cmocka_unit_test(the_limit_is_told),
		cmocka_unit_test(receives_as_ops),
		cmocka_unit_test(a_window_opens_and_closes),
		cmocka_unit_test(beyond_a_window_is_refused),
		cmocka_unit_test(an_old_key_is_of_no_use),
		cmocka_unit_test(the_peer_invalidates_it),
	};
	const struct CMUnitTest soft[] = {
		cmocka_unit_test(qps_share_receives),
		cmocka_unit_test(closing_one_leaves_the_stock),
		cmocka_unit_test(the_limit_is_told),
		cmocka_unit_test(receives_as_ops),
		cmocka_unit_test(a_window_opens_and_closes),
		cmocka_unit_test(beyond_a_window_is_refused),
		cmocka_unit_test(an_old_key_is_of_no_use),
		cmocka_unit_test(the_peer_invalidates_it),
		cmocka_unit_test(the_device_checks_the_range),
		cmocka_unit_test(the_receive_names_the_key),
		cmocka_unit_test(bound_memory_stays),
	};
	const char *wish = getenv("SENNIT_SOFT");

	if (wish && !strcmp(wish, "only"))
		return cmocka_run_group_tests(soft, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
