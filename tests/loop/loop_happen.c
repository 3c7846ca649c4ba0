/* SPDX-License-Identifier: MIT */
#include "lib/test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loop/loop_happen.h"

#define TIMER_STEP_NS 1000

struct happen happen;

/*
 * Time
 */

static uint64_t read_clock(void *arg)
{
	(void)arg;
	happen.read_ns = happen.now_ns;
	return happen.now_ns;
}

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *at,
			   struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at,
			   struct itimerspec *old);

/* The kernel's timer runs out, and is seen to have done so. */
static void fire_clock(void)
{
	struct itimerspec soon = { .it_value.tv_nsec = 1 };
	struct pollfd poller = { .fd = happen.clock_fd, .events = POLLIN };

	if (happen.clock_fires_ns > happen.now_ns)
		return;
	happen.clock_fires_ns = UINT64_MAX;
	assert_int_equal(__real_timerfd_settime(happen.clock_fd, 0, &soon, NULL), 0);
	assert_int_equal(poll(&poller, 1, -1), 1);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at,
			   struct itimerspec *old)
{
	static const struct itimerspec never;
	uint64_t delay_ns = at->it_value.tv_sec * UINT64_C(1000000000) +
			    (uint64_t)at->it_value.tv_nsec;

	happen_place();
	/* It has been read to its end, as it is when the kernel sets it anew. */
	assert_int_equal(__real_timerfd_settime(fd, flags, &never, old), 0);
	happen.clock_fd = fd;
	/* From when the loop read the clock: a delay between that and this call makes the
	 * timer late by as much, but loses nothing. The least that can be set means at
	 * once. */
	happen.clock_fires_ns = happen.read_ns + (delay_ns > 1 ? delay_ns : 0);
	fire_clock();
	happen_place();
	return 0;
}

/*
 * Places
 */

static void happen_next(bool slept)
{
	unsigned i = happen.happened++;
	struct loop_end *end = &happen.pair->end[0];
	struct ibv_async_event event = { .event_type = IBV_EVENT_PORT_ACTIVE,
					 .element.port_num = 1 };

	happen.exploring = false;
	switch (happen.kind[i]) {
	case COMPLETION:
		assert_int_equal(scripted_complete(happen.lane[i], IBV_WC_SUCCESS), 0);
		break;
	case TIMER:
		happen.now_ns = happen.timer[i].deadline_ns;
		fire_clock();
		break;
	case WAKE:
		happen.wake_is_due = true;
		assert_success(snt_loop_wake(end->loop));
		break;
	case EVENT:
		scripted_raise(end->device[0], event);
		break;
	default:
		assert_int_equal(write(happen.connection_end, "", 1), 1);
	}
	happen.exploring = true;
	happen.slept[i] = slept;
}

void happen_place(void)
{
	if (!happen.exploring)
		return;
	while (happen.happened < happen.count &&
	       happen.at[happen.happened] == happen.places)
		happen_next(false);
	happen.places++;
}

void happen_in_sleep(void)
{
	happen_next(true);
}

/* The call, with a place before and one after it. */
#define BETWEEN_PLACES(type, call) \
	do {                       \
		type ret_;         \
                                   \
		happen_place();    \
		ret_ = (call);     \
		happen_place();    \
		return ret_;       \
	} while (0)

int __real_epoll_wait(int fd, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
	BETWEEN_PLACES(int, __real_epoll_wait(fd, events, max, timeout));
}

ssize_t __real_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
	BETWEEN_PLACES(ssize_t, __real_write(fd, bytes, length));
}

static const struct snt_control *real;
static int (*real_poll)(struct ibv_cq *cq, int max, struct ibv_wc *wc);
static int (*real_notify)(struct ibv_cq *cq, int solicited);

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	BETWEEN_PLACES(int, real_poll(cq, max, wc));
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
	BETWEEN_PLACES(int, real_notify(cq, solicited));
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			void **context)
{
	BETWEEN_PLACES(int, real->get_cq_event(channel, cq, context));
}

static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	BETWEEN_PLACES(int, real->get_async_event(context, event));
}

static const struct snt_control *instrument(const struct snt_adopted *adopted)
{
	static struct snt_control control;
	struct ibv_context_ops *ops = &adopted->context->ops;

	real = adopted->control;
	control = *real;
	control.get_cq_event = get_cq_event;
	control.get_async_event = get_async_event;
	real_poll = ops->poll_cq;
	real_notify = ops->req_notify_cq;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify;
	return &control;
}

/*
 * Callbacks
 */

static void count_callback(void)
{
	happen_place();
	happen.done++;
	happen.progress++;
}

void happen_completed(void)
{
	count_callback();
}

static void op_done(struct snt_op *op)
{
	(void)op;
	count_callback();
}

static void timer_fired(struct snt_timer *timer)
{
	(void)timer;
	count_callback();
}

static void event_told(void *arg, const struct snt_event *event)
{
	(void)arg;
	(void)event;
	count_callback();
}

static void woken(void *arg, struct snt_loop *loop)
{
	(void)arg;
	(void)loop;
	happen.wake_is_due = false;
	happen.progress++;
	happen_place();
}

static void connection_work(struct snt_timer *timer)
{
	if (--happen.connection_events)
		assert_success(snt_timer_start_at(happen.pair->end[0].loop, timer, 0));
	count_callback();
}

static int connection_ready(struct snt__source *source, int budget)
{
	char byte;

	(void)budget;
	happen_place();
	while (read(source->fd, &byte, 1) == 1) {
		happen.connection_events++;
		happen_place();
	}
	if (happen.connection_events && !happen.connection_work.loop)
		assert_success(snt_timer_start_at(happen.pair->end[0].loop,
						  &happen.connection_work, 0));
	return 0;
}

bool happen_all_told(void)
{
	unsigned wakes = 0;

	for (unsigned i = 0; i < happen.happened; i++)
		wakes += happen.kind[i] == WAKE;
	return happen.done == happen.happened - wakes && !happen.wake_is_due;
}

/*
 * A run
 */

static void post(unsigned i)
{
	struct loop_end *here = &happen.pair->end[0], *there = &happen.pair->end[1];
	struct snt_sge sge = { here->mem, here->buffer, 8 };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .remote = &there->token,
				  .remote_addr = there->token.addr };

	happen.op[i].done = op_done;
	if (happen.pair->opts.ops)
		assert_success(snt_op_write(happen.qp[i][0], &happen.op[i], &sge,
					    wr.remote, wr.remote_addr));
	else
		assert_int_equal(snt_qp_post_send(happen.qp[i][0], &wr, 1), 1);
}

void happen_begin(void)
{
	uint64_t begin_ns = happen.now_ns;

	for (unsigned i = 0; i < happen.count; i++) {
		if (happen.kind[i] == COMPLETION)
			post(i);
		happen.timer[i].fired = timer_fired;
		if (happen.kind[i] == TIMER)
			assert_success(
				snt_timer_start_at(happen.pair->end[0].loop,
						   &happen.timer[i],
						   begin_ns + (i + 1) * TIMER_STEP_NS));
	}
	happen.happened = happen.done = happen.places = happen.progress = 0;
	happen.exploring = true;
}

/*
 * The world of a search
 */

static void connect_one(unsigned i, bool own_cq)
{
	struct loop_pair *pair = happen.pair;
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .loop = pair->end[0].loop,
				       .ops = pair->opts.ops };
	struct snt_qp_opts opts = { .size = sizeof(opts) };
	struct snt_lane_info info = { .size = sizeof(info) };
	struct snt_card card[2];

	happen.cq[i] = pair->end[0].cq;
	if (own_cq)
		assert_success(
			snt_cq_create(pair->end[0].ctx, &cq_opts, &happen.cq[i]));
	for (int end = 0; end < 2; end++) {
		opts.cq = end ? pair->end[1].cq : happen.cq[i];
		assert_success(
			snt_qp_create(pair->end[end].ctx, &opts, &happen.qp[i][end]));
		assert_success(snt_qp_card(happen.qp[i][end], &card[end]));
	}
	for (int end = 0; end < 2; end++)
		assert_success(snt_qp_connect(happen.qp[i][end], &card[!end]));
	assert_success(snt_qp_query_lane(happen.qp[i][0], 0, &info));
	happen.lane[i] = info.qp;
}

static void open_connection(struct snt_loop *loop)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	happen.connection =
		(struct snt__source){ .fd = ends[0], .ready = connection_ready };
	happen.connection_end = ends[1];
	happen.connection_work.fired = connection_work;
	assert_success(snt__loop_add(loop, &happen.connection));
}

void happen_open(const struct loop_opts *opts, bool own_cqs, unsigned count)
{
	struct loop_opts with_places = *opts;
	struct snt_loop *loop;

	memset(&happen, 0, sizeof(happen));
	happen.count = count;
	happen.now_ns = 1;
	happen.clock_fires_ns = UINT64_MAX;
	with_places.instrument = instrument;
	with_places.clock = read_clock;
	happen.pair = loop_pair_open(&with_places);
	loop = happen.pair->end[0].loop;
	for (unsigned i = 0; i < count; i++)
		connect_one(i, own_cqs);
	assert_success(snt_loop_fd(loop));
	assert_success(snt_loop_set_wake_handler(loop, woken, NULL));
	assert_success(snt_loop_set_event_handler(loop, event_told, NULL));
	open_connection(loop);
}

static void close_one(unsigned i)
{
	struct loop_pair *pair = happen.pair;
	struct snt_op op[2] = { { 0 } };
	struct snt_wc wc = { 0 };

	for (int end = 0; end < 2; end++) {
		if (pair->opts.ops)
			assert_success(snt_op_close(happen.qp[i][end], &op[end]));
		else
			assert_success(snt_qp_close(happen.qp[i][end], 1));
		loop_pair_run(pair);
		for (int n = 0; pair->opts.ops && n < 10; n++)
			assert_success(snt_loop_dispatch(pair->end[end].loop, 0));
		for (int n = 0; !pair->opts.ops && n < 10; n++)
			assert_success(snt_cq_poll(end ? pair->end[1].cq : happen.cq[i],
						   &wc, 1));
		assert_success(snt_qp_destroy(happen.qp[i][end]));
	}
	if (happen.cq[i] != pair->end[0].cq)
		assert_success(snt_cq_destroy(happen.cq[i]));
}

void happen_close(void)
{
	for (unsigned i = 0; i < happen.count; i++)
		close_one(i);
	snt__loop_remove(happen.pair->end[0].loop, &happen.connection);
	close(happen.connection.fd);
	close(happen.connection_end);
	loop_pair_close(happen.pair);
}
