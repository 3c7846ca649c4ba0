/* SPDX-License-Identifier: MIT */
/*
 * What other threads have to do with a loop: they wake it, have functions run in it and take
 * it over, and a device has one of its own.
 */
#include "lib/test.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sennit/sennit.h>
#include <stdatomic.h>
#include <stdbool.h>

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_op send, recv;
	unsigned char buffer[4096];
	unsigned rounds;
	bool answers;
	int spin;
	unsigned received;
};

static void open_end(struct end *end)
{
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .soft = SNT_SOFT_ONLY };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts), .lanes = 1 };

	memset(end, 0, sizeof(*end));
	assert_success(snt_ctx_create(&ctx_opts, &end->ctx));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	cq_opts.loop = end->loop;
	assert_success(snt_mem_register(end->ctx, end->buffer, sizeof(end->buffer),
					ACCESS, &end->mem));
	assert_success(snt_qp_create_with_cq(end->ctx, &cq_opts, &qp_opts, &end->cq,
					     &end->qp));
}

static void connect_ends(struct end end[2])
{
	struct snt_card card[2];

	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_card(end[i].qp, &card[i]));
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(end[i].qp, &card[!i]));
}

static void close_end(struct end *end)
{
	struct snt_op op = { 0 };

	assert_success(snt_op_close(end->qp, &op));
	assert_int_equal(snt_op_wait(&op, -1), 0);
	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_mem_release(end->mem));
	assert_success(snt_loop_destroy(end->loop));
	assert_success(snt_ctx_destroy(end->ctx));
}

/*
 * Wakes
 */

static int plain; /* handed over by nothing but the wake */
static sem_t taken;
static unsigned wakes;

static void take(void *arg, struct snt_loop *loop)
{
	(void)arg;
	(void)loop;
	assert_int_equal(plain, (int)++wakes);
	sem_post(&taken);
}

#define WAKES 2000

static void *wake_often(void *arg)
{
	for (int i = 1; i <= WAKES; i++) {
		plain = i;
		if (snt_loop_wake(arg))
			break;
		while (sem_wait(&taken))
			;
	}
	return NULL;
}

static void wakes_publish_memory(void **state)
{
	static struct end end;
	pthread_t thread;

	(void)state;
	wakes = 0;
	sem_init(&taken, 0, 0);
	open_end(&end);
	assert_success(snt_loop_fd(end.loop));
	assert_success(snt_loop_set_wake_handler(end.loop, take, NULL));
	assert_int_equal(pthread_create(&thread, NULL, wake_often, end.loop), 0);
	while (wakes < WAKES) {
		/* Asleep, spinning, and by hand. */
		assert_success(snt_loop_set_spin(end.loop, wakes % 2 ? 20000 : 0));
		if (wakes % 3)
			assert_success(snt_loop_wait(end.loop, -1));
		else
			assert_success(snt_loop_dispatch(end.loop, 0));
	}
	pthread_join(thread, NULL);
	assert_success(snt_qp_destroy(end.qp));
	assert_success(snt_cq_destroy(end.cq));
	assert_success(snt_mem_release(end.mem));
	assert_success(snt_loop_destroy(end.loop));
	assert_success(snt_ctx_destroy(end.ctx));
}

static atomic_uint storms;

static void *wake_in_a_storm(void *arg)
{
	for (int i = 0; i < WAKES; i++)
		snt_loop_wake(arg);
	atomic_fetch_add(&storms, 1);
	snt_loop_wake(arg);
	return NULL;
}

/* Whenever the last of them wakes, the loop runs afterwards. */
static void wakes_of_many_threads(void **state)
{
	static struct end end;
	pthread_t thread[3];

	(void)state;
	atomic_store(&storms, 0);
	open_end(&end);
	assert_success(snt_loop_fd(end.loop));
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, wake_in_a_storm,
						end.loop),
				 0);
	while (atomic_load(&storms) < 3)
		assert_success(snt_loop_wait(end.loop, -1));
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	assert_success(snt_qp_destroy(end.qp));
	assert_success(snt_cq_destroy(end.cq));
	assert_success(snt_mem_release(end.mem));
	assert_success(snt_loop_destroy(end.loop));
	assert_success(snt_ctx_destroy(end.ctx));
}

/*
 * Calls
 */

#define CALLERS 4
#define CALLS	500

/* Neither locked nor atomic: all of them run in one thread, and see what their own wrote. */
struct caller {
	pthread_t thread;
	struct snt_loop *loop;
	struct job {
		struct snt_call call;
		struct caller *caller;
		unsigned number;
	} job[CALLS];
	unsigned run;
	struct snt_call bell; /* of all jobs, made anew for each */
	unsigned rung, heard;
};

static void run_job(struct snt_call *call)
{
	struct job *job = call->arg;

	assert_int_equal(job->number, ++job->caller->run);
}

static void hear_bell(struct snt_call *call)
{
	struct caller *caller = call->arg;

	caller->heard = __atomic_load_n(&caller->rung, __ATOMIC_RELAXED);
}

static void *call_often(void *arg)
{
	struct caller *caller = arg;

	for (unsigned i = 0; i < CALLS; i++) {
		struct job *job = &caller->job[i];
		int ret;

		*job = (struct job){ { .run = run_job, .arg = job }, caller, i + 1 };
		if (snt_loop_call(caller->loop, &job->call))
			return "no call";
		__atomic_store_n(&caller->rung, i + 1, __ATOMIC_RELAXED);
		ret = snt_loop_call(caller->loop, &caller->bell);
		if (ret && ret != -EALREADY)
			return "no bell";
	}
	return NULL;
}

static bool all_called(const struct caller *callers)
{
	for (unsigned i = 0; i < CALLERS; i++)
		if (callers[i].run < CALLS || callers[i].heard < CALLS)
			return false;
	return true;
}

/* In the order in which each thread made them; a bell that is rung already is heard after the
 * last ring. */
static void calls_of_many_threads(void **state)
{
	static struct caller callers[CALLERS];
	static struct end end;

	(void)state;
	open_end(&end);
	for (unsigned i = 0; i < CALLERS; i++) {
		struct caller *caller = &callers[i];

		memset(caller, 0, sizeof(*caller));
		caller->loop = end.loop;
		caller->bell = (struct snt_call){ .run = hear_bell, .arg = caller };
		assert_int_equal(pthread_create(&caller->thread, NULL, call_often,
						caller),
				 0);
	}
	while (!all_called(callers))
		assert_success(snt_loop_wait(end.loop, -1));
	for (unsigned i = 0; i < CALLERS; i++) {
		void *wrong;

		pthread_join(callers[i].thread, &wrong);
		assert_null(wrong);
	}
	assert_success(snt_qp_destroy(end.qp));
	assert_success(snt_cq_destroy(end.cq));
	assert_success(snt_mem_release(end.mem));
	assert_success(snt_loop_destroy(end.loop));
	assert_success(snt_ctx_destroy(end.ctx));
}

/*
 * Talks: each end in a thread of its own, over devices with threads of their own. A
 * wake-up that is lost is a test that hangs.
 */

static void received(struct snt_op *op)
{
	struct end *end = op->arg;

	assert_int_equal(op->result, 0);
	end->received++;
}

static int post(struct end *end, bool sends)
{
	struct snt_sge from = { end->mem, end->buffer, 64 };
	struct snt_sge to = { end->mem, end->buffer + 2048, 64 };

	return sends ? snt_op_send(end->qp, &end->send, &from)
		     : snt_op_recv(end->qp, &end->recv, &to);
}

static void *talk(void *arg)
{
	struct end *end = arg;

	snt_loop_set_spin(end->loop, end->spin);
	for (unsigned i = 0; i < end->rounds; i++) {
		if (!end->answers && post(end, true))
			return "no send";
		while (end->received <= i)
			if (snt_loop_wait(end->loop, -1) < 0)
				return "no wait";
		if (i + 1 < end->rounds && post(end, false))
			return "no receive";
		if (snt_op_pending(&end->send) && snt_op_wait(&end->send, -1))
			return "no end of a send";
		if (end->answers && post(end, true))
			return "no answer";
	}
	return snt_op_pending(&end->send) && snt_op_wait(&end->send, -1) ? "no last"
									 : NULL;
}

static void talk_in_threads(struct end end[2], unsigned rounds, int spin)
{
	pthread_t thread[2];

	for (int i = 0; i < 2; i++) {
		end[i].rounds = rounds;
		end[i].answers = i;
		end[i].spin = spin;
		end[i].received = 0;
		end[i].recv.done = received;
		end[i].recv.arg = &end[i];
		assert_success(post(&end[i], false));
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, talk, &end[i]), 0);
	for (int i = 0; i < 2; i++) {
		void *wrong;

		pthread_join(thread[i], &wrong);
		if (wrong)
			fail_msg("end %d: %s: %s", i, (char *)wrong, snt_err_text());
	}
}

/* Every talk is in new threads, so the loops move. */
static void talks_in_threads(void **state)
{
	static const int spins[] = { 0, SNT_SPIN_AUTO, 50000, 0 };
	static struct end end[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		open_end(&end[i]);
	connect_ends(end);
	for (unsigned i = 0; i < ARRAY_SIZE(spins); i++)
		talk_in_threads(end, 500, spins[i]);
	for (int i = 0; i < 2; i++)
		close_end(&end[i]);
}

/*
 * A thread that ends before its loop
 */

static unsigned fires, calls;

static void fired(struct snt_timer *timer)
{
	(void)timer;
	fires++;
}

static void called(struct snt_call *call)
{
	(void)call;
	calls++;
}

static struct snt_timer timer = { .fired = fired };
static struct snt_call call = { .run = called };

/* With a receive posted, a timer that runs and a call that is queued. */
static void *leave_loop(void *arg)
{
	struct end *end = arg;

	for (int i = 0; i < 2; i++)
		open_end(&end[i]);
	connect_ends(end);
	assert_success(post(&end[0], false));
	assert_success(snt_timer_start(end[0].loop, &timer, 0));
	assert_success(snt_loop_call(end[0].loop, &call));
	return NULL;
}

static void a_loop_outlives_its_thread(void **state)
{
	static struct end end[2];
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, leave_loop, end), 0);
	pthread_join(thread, NULL);
	assert_error(snt_ctx_destroy(end[0].ctx), EBUSY, "1 loops left");
	assert_error(snt_loop_destroy(end[0].loop), EBUSY, "CQs left");
	assert_success(post(&end[1], true));
	assert_success(snt_op_wait(&end[0].recv, -1));
	assert_success(snt_op_wait(&end[1].send, -1));
	while (!fires || !calls)
		assert_success(snt_loop_wait(end[0].loop, -1));
	assert_int_equal(fires, 1);
	assert_int_equal(calls, 1);
	for (int i = 0; i < 2; i++)
		close_end(&end[i]);
}

/* On a device with a thread as well: armed, and left alone. */
static void an_idle_second(void **state)
{
	static struct end end[2];
	struct pollfd poller = { .events = POLLIN };
	unsigned wakes_seen = 0;
	uint64_t until;

	(void)state;
	for (int i = 0; i < 2; i++)
		open_end(&end[i]);
	connect_ends(end);
	talk_in_threads(end, 10, 0);
	poller.fd = snt_loop_fd(end[0].loop);
	until = snt_loop_now(end[0].loop) + 1000000000;
	for (;;) {
		uint64_t now = snt_loop_now(end[0].loop);

		if (now >= until || poll(&poller, 1, (until - now) / 1000000 + 1) == 0)
			break;
		wakes_seen++;
		assert_success(snt_loop_dispatch(end[0].loop, 0));
	}
	assert_in_range(wakes_seen, 0, 2);
	for (int i = 0; i < 2; i++)
		close_end(&end[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wakes_publish_memory),
		cmocka_unit_test(wakes_of_many_threads),
		cmocka_unit_test(calls_of_many_threads),
		cmocka_unit_test(talks_in_threads),
		cmocka_unit_test(a_loop_outlives_its_thread),
		cmocka_unit_test(an_idle_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
