/* SPDX-License-Identifier: MIT */
/*
 * Forks while threads run their loops: the child can use none of what it has a copy of,
 * whatever the threads were doing, and can open a context of its own. The parent goes on.
 */
#include "lib/test.h"

#include <pthread.h>
#include <sennit/sennit.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/loopback.h"
#include "lib/patience.h"

#define THREADS 4
#define FORKS	6 /* of each thread, and of the main thread */
#define BYTES	1000

static struct snt_ctx *ctx;

/* A loop with two QPs, which send each other a message for ever. */
struct runner {
	pthread_t thread;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp[2];
	struct snt_mem *mem;
	unsigned char bytes[2][BYTES];
	struct snt_op send, recv;
	unsigned rounds;
	atomic_bool over;
	const char *wrong;
};

static int open_runner(struct runner *runner, struct snt_ctx *of)
{
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp = { .size = sizeof(qp), .lanes = 1 };
	struct snt_card card[2];
	int ret = snt_loop_create(of, NULL, &runner->loop);

	cq.loop = runner->loop;
	ret = ret ? ret : snt_cq_create(of, &cq, &runner->cq);
	ret = ret ? ret
		  : snt_mem_register(of, runner->bytes, sizeof(runner->bytes),
				     SNT_ACCESS_LOCAL_WRITE, &runner->mem);
	qp.cq = runner->cq;
	for (unsigned i = 0; !ret && i < 2; i++) {
		ret = snt_qp_create(of, &qp, &runner->qp[i]);
		ret = ret ? ret : snt_qp_card(runner->qp[i], &card[i]);
	}
	for (unsigned i = 0; !ret && i < 2; i++)
		ret = snt_qp_connect(runner->qp[i], &card[!i]);
	return ret;
}

static int run_once(struct runner *runner)
{
	unsigned from = runner->rounds++ % 2;
	struct snt_sge out = { runner->mem, runner->bytes[from], BYTES };
	struct snt_sge in = { runner->mem, runner->bytes[!from], BYTES };
	int ret = snt_op_recv(runner->qp[!from], &runner->recv, &in);

	memset(runner->bytes[from], (int)runner->rounds, BYTES);
	ret = ret ? ret : snt_op_send(runner->qp[from], &runner->send, &out);
	ret = ret ? ret : snt_op_wait(&runner->recv, -1);
	ret = ret ? ret : snt_op_wait(&runner->send, -1);
	return ret ? ret : memcmp(runner->bytes[0], runner->bytes[1], BYTES);
}

static int close_runner(struct runner *runner)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < 2; i++) {
		struct snt_op op = { 0 };

		ret = snt_op_close(runner->qp[i], &op);
		ret = ret ? ret : snt_op_wait(&op, -1);
		ret = ret ? ret : snt_qp_destroy(runner->qp[i]);
	}
	ret = ret ? ret : snt_cq_destroy(runner->cq);
	ret = ret ? ret : snt_mem_release(runner->mem);
	return ret ? ret : snt_loop_destroy(runner->loop);
}

static struct runner runners[THREADS];

/*
 * The child
 */

static void ignore(struct snt_call *call)
{
	(void)call;
}

/* Returns the number of the line that went wrong. */
static int look_at_loop(struct runner *runner)
{
	struct snt_call call = { .run = ignore };
	struct snt_sge sge = { runner->mem, runner->bytes, 1 };
	struct snt_send_wr wr = { .opcode = SNT_OP_SEND };
	struct snt_op op = { 0 };

#define EXPECT_ECHILD(call)              \
	do {                             \
		if (call != -ECHILD)     \
			return __LINE__; \
	} while (0)
	EXPECT_ECHILD(snt_loop_wake(runner->loop));
	EXPECT_ECHILD(snt_loop_call(runner->loop, &call));
	EXPECT_ECHILD(snt_loop_fd(runner->loop));
	EXPECT_ECHILD(snt_loop_dispatch(runner->loop, 0));
	EXPECT_ECHILD(snt_loop_poll(runner->loop, 0));
	EXPECT_ECHILD(snt_loop_arm(runner->loop));
	EXPECT_ECHILD(snt_loop_wait(runner->loop, 0));
	EXPECT_ECHILD(snt_op_send(runner->qp[0], &op, &sge));
	EXPECT_ECHILD(snt_op_recv(runner->qp[0], &op, &sge));
	EXPECT_ECHILD(snt_op_post(runner->qp[0], &op, &wr));
	return 0;
}

static int use_own_context(void)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .soft_addresses = loopback_text(0) };
	static struct runner runner;
	struct snt_ctx *own;

	if (snt_ctx_create(&opts, &own) || open_runner(&runner, own))
		return __LINE__;
	for (unsigned i = 0; i < 10; i++)
		if (run_once(&runner))
			return __LINE__;
	if (close_runner(&runner) || snt_ctx_destroy(own))
		return __LINE__;
	return 0;
}

static void be_child(void)
{
	static char byte;
	struct snt_loop *loop;
	struct snt_mem *mem;
	int line = 0;

	alarm(patience_s(60));
	for (unsigned i = 0; !line && i < THREADS; i++)
		line = look_at_loop(&runners[i]);
	if (!line && snt_loop_create(ctx, NULL, &loop) != -ECHILD)
		line = __LINE__;
	if (!line && !snt_mem_register(ctx, &byte, 1, 0, &mem))
		line = __LINE__;
	if (!line && snt_ctx_destroy(ctx) != -EBUSY)
		line = __LINE__;
	if (!line)
		line = use_own_context();
	if (line)
		fprintf(stderr, "child: line %d: %s\n", line, snt_err_text());
	_exit(line != 0);
}

/* Returns whether all went well. */
static bool fork_once(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		be_child();
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

/*
 * The parent
 */

static void *run(void *arg)
{
	struct runner *runner = arg;

	while (!runner->wrong && !atomic_load(&runner->over)) {
		if (run_once(runner))
			runner->wrong = "a message is lost";
		if (runner->rounds <= FORKS && !fork_once())
			runner->wrong = "a child failed";
	}
	return NULL;
}

static void forks_while_loops_run(void **state)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .soft_addresses = loopback_text(0) };

	(void)state;
	assert_success(snt_ctx_create(&opts, &ctx));
	for (unsigned i = 0; i < THREADS; i++)
		assert_success(open_runner(&runners[i], ctx));
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&runners[i].thread, NULL, run,
						&runners[i]),
				 0);
	for (unsigned i = 0; i < FORKS; i++)
		assert_true(fork_once());
	/* No thread forks any more when the first loop is closed. */
	for (unsigned i = 0; i < THREADS; i++)
		atomic_store(&runners[i].over, true);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(runners[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		if (runners[i].wrong)
			fail_msg("thread %u: %s", i, runners[i].wrong);
		assert_success(run_once(&runners[i]));
		assert_success(close_runner(&runners[i]));
	}
	assert_success(snt_ctx_destroy(ctx));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(forks_while_loops_run) };

	return cmocka_run_group_tests_name("loop_fork", tests, NULL, NULL);
}
