/* SPDX-License-Identifier: MIT */
/*
 * What an op and a burst cost: no allocation ever, no system call without an fd, and
 * with it only those that cannot be done without.
 */
#include "lib/test.h"

#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/count_calls.h"
#include "lib/no_system_calls.h"
#include "lib/loop_kit.h"

static unsigned waits, writes, settings;

COUNT_CALLS(waits, int, epoll_wait,
	    (int fd, struct epoll_event *events, int max, int timeout),
	    (fd, events, max, timeout))
COUNT_CALLS(writes, ssize_t, write, (int fd, const void *bytes, size_t length),
	    (fd, bytes, length))
COUNT_CALLS(settings, int, timerfd_settime,
	    (int fd, int flags, const struct itimerspec *at, struct itimerspec *old),
	    (fd, flags, at, old))

/* Calls to the device, on top of the scripted one's. */
static unsigned events, arms, polls, acks;
static const struct snt_control *real;
static int (*real_poll)(struct ibv_cq *cq, int max, struct ibv_wc *wc);
static int (*real_notify)(struct ibv_cq *cq, int solicited);

static int count_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		       void **context)
{
	events += counting;
	return real->get_cq_event(channel, cq, context);
}

static void count_ack(struct ibv_cq *cq, unsigned count)
{
	acks += counting;
	real->ack_cq_events(cq, count);
}

static int count_poll(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	polls += counting;
	return real_poll(cq, max, wc);
}

static int count_arm(struct ibv_cq *cq, int solicited)
{
	arms += counting;
	return real_notify(cq, solicited);
}

static const struct snt_control *instrument(const struct snt_adopted *adopted)
{
	static struct snt_control control;
	struct ibv_context_ops *ops = &adopted->context->ops;

	real = adopted->control;
	control = *real;
	control.get_cq_event = count_event;
	control.ack_cq_events = count_ack;
	real_poll = ops->poll_cq;
	real_notify = ops->req_notify_cq;
	ops->poll_cq = count_poll;
	ops->req_notify_cq = count_arm;
	return &control;
}

static void reset_counters(void)
{
	allocations = waits = writes = settings = 0;
	events = arms = polls = acks = 0;
}

/* Every verb, deadlines, and ops that are cancelled; false on any failure. */
static bool traffic(struct loop_pair *pair, bool dispatches)
{
	static struct snt_op op[8], recv[2];
	struct snt_sge sge = loop_sge(pair, 0, 0, 3000), word = loop_sge(pair, 0, 0, 8);
	struct snt_sge small = loop_sge(pair, 0, 0, 100),
		       to = loop_sge(pair, 1, 0, 100);
	struct snt_qp *qp = pair->end[0].qp;
	const struct snt_token *token = &pair->end[1].token;
	uint64_t addr = token->addr;
	bool good = true;

	for (unsigned i = 0; i < 100; i++) {
		good &= !snt_op_recv(pair->end[1].qp, &recv[0], &to);
		good &= !snt_op_recv(pair->end[1].qp, &recv[1], NULL);
		good &= !snt_op_write(qp, &op[0], &sge, token, addr);
		good &= !snt_op_post(qp, &op[1],
				     &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
							    .imm = i,
							    .sge = &sge,
							    .sge_count = 1,
							    .remote = token,
							    .remote_addr = addr });
		good &= !snt_op_read(qp, &op[2], &sge, token, addr);
		good &= !snt_op_send(qp, &op[3], &small);
		good &= !snt_op_post(qp, &op[4],
				     &(struct snt_send_wr){ .opcode = SNT_OP_FETCH_ADD,
							    .sge = &word,
							    .sge_count = 1,
							    .remote = token,
							    .remote_addr = addr,
							    .compare_add = 1 });
		good &= !snt_op_write(qp, &op[5], &sge, token, addr);
		good &= !snt_op_write(qp, &op[6], &sge, token, addr);
		good &= !snt_op_timeout(&op[5], UINT64_C(3600000000000),
					SNT_CANCEL_DETACH);
		good &= !snt_op_cancel(&op[6], SNT_CANCEL_DETACH);
		for (int n = 0;
		     n < 100 && (snt_op_pending(&op[5]) || snt_op_pending(&op[6]) ||
				 snt_op_pending(&recv[1]));
		     n++) {
			scripted_run(pair->fabric, n);
			for (int end = 0; end < 2; end++) {
				struct snt_loop *loop = pair->end[end].loop;

				good &= (dispatches ? snt_loop_dispatch(loop, 0)
						    : snt_loop_poll(loop, 0)) >= 0;
			}
		}
		good &= !op[5].result && op[6].result == -ECANCELED && !recv[1].result;
	}
	return good;
}

static void nothing_is_allocated(void **state)
{
	(void)state;
	for (int scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		for (int with_fd = 0; with_fd < 2; with_fd++) {
			struct loop_pair *pair =
				loop_pair_lanes(scheme, SNT_CQ_OPS_EVENTS);
			struct snt_loop *loop = pair->end[0].loop;

			assert_success(with_fd ? snt_loop_fd(loop)
					       : snt_loop_poll(loop, 0));
			assert_success(snt_loop_poll(pair->end[1].loop, 0));
			reset_counters();
			counting = true;
			assert_true(traffic(pair, with_fd));
			counting = false;
			assert_int_equal(allocations, 0);
			loop_pair_close(pair);
		}
	}
}

struct polled {
	enum snt_scheme scheme;
	struct loop_pair *pair;
};

/* In the child, since a loop is of the process that opened it. */
static void open_polled(void *arg)
{
	struct polled *polled = arg;

	polled->pair = loop_pair_lanes(polled->scheme, SNT_CQ_OPS_POLLED);
	for (int end = 0; end < 2; end++)
		snt_loop_poll(polled->pair->end[end].loop, 0);
}

static bool polled_traffic(void *arg)
{
	struct polled *polled = arg;

	return traffic(polled->pair, false);
}

static void without_an_fd_no_system_call_is_made(void **state)
{
	(void)state;
	for (int scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++)
		assert_no_system_calls(open_polled, polled_traffic,
				       &(struct polled){ .scheme = scheme });
}

#define BURST 16

/* An epoll_wait(), the channel until it is empty, one arming, one look; nothing else. */
static void a_burst_has_its_price(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS, .instrument = instrument };
	struct loop_pair *pair = loop_pair_open(&opts);
	struct snt_loop *loop = pair->end[0].loop;
	struct snt_op op[BURST] = { { 0 } };
	unsigned ack_calls = 0;

	(void)state;
	assert_success(snt_loop_fd(loop));
	assert_success(snt_loop_dispatch(loop, 0));
	for (unsigned burst = 0; burst < 128; burst++) {
		for (int i = 0; i < BURST; i++) {
			assert_success(loop_write(pair, 0, &op[i], 0, 8));
			assert_success(snt_op_timeout(&op[i], UINT64_C(60000000000),
						      SNT_CANCEL_DETACH));
		}
		loop_pair_run(pair);
		reset_counters();
		counting = true;
		assert_int_equal(snt_loop_dispatch(loop, 0), BURST);
		counting = false;
		assert_int_equal(waits, 1);
		assert_int_equal(events, 2);
		assert_int_equal(arms, 1);
		assert_int_equal(polls, 2);
		assert_int_equal(writes, 0);
		assert_int_equal(settings, 0);
		assert_int_equal(allocations, 0);
		ack_calls += acks;
	}
	assert_int_equal(ack_calls, 2); /* of 64 each */
	loop_pair_close(pair);
}

/* Deadlines that are kept do not set the timer. */
static void kept_deadlines_cost_no_system_call(void **state)
{
	struct loop_pair *pair = loop_pair_simple();
	struct snt_loop *loop = pair->end[0].loop;
	struct snt_op op = { 0 };

	(void)state;
	assert_success(snt_loop_fd(loop));
	reset_counters();
	counting = true;
	for (int i = 0; i < 1000; i++) {
		assert_success(loop_write(pair, 0, &op, 0, 8));
		assert_success(
			snt_op_timeout(&op, UINT64_C(1000000000), SNT_CANCEL_DETACH));
		loop_pair_run(pair);
		assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	}
	counting = false;
	assert_int_equal(settings, 1);
	loop_pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_allocated),
		cmocka_unit_test(without_an_fd_no_system_call_is_made),
		cmocka_unit_test(a_burst_has_its_price),
		cmocka_unit_test(kept_deadlines_cost_no_system_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
