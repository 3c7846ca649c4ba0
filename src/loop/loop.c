/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing, the fd and its sources, and the bell.
 */
#include "loop/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/err.h"
#include "util/lines.h"
#include "util/opts.h"
#include "util/setting.h"
#include "vqp/view.h"

#define SPIN_MAX_NS 1000000000

/*
 * Sources
 */

int snt__loop_watch(const struct snt_loop *loop, struct snt__source *source,
		    uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (epoll_ctl(loop->fd, EPOLL_CTL_ADD, source->fd, &event))
		return snt__fail(errno, "an fd cannot be watched: %s", strerror(errno));
	return 0;
}

/* A child of the process leaves it in the epoll instance, which is the parent's. */
void snt__loop_unwatch(const struct snt_loop *loop, struct snt__source *source)
{
	if (snt__loop_has_fd(loop) && !snt__loop_forked(loop))
		epoll_ctl(loop->fd, EPOLL_CTL_DEL, source->fd, NULL);
}

int snt__loop_add(struct snt_loop *loop, struct snt__source *source)
{
	int ret = snt__loop_has_fd(loop) ? snt__loop_watch(loop, source, EPOLLIN) : 0;

	if (!ret)
		snt__list_append(&loop->sources, &source->all);
	return ret;
}

void snt__loop_remove(struct snt_loop *loop, struct snt__source *source)
{
	if (!snt__linked(&source->all))
		return;
	snt__loop_unwatch(loop, source);
	snt__unlink(&source->all);
	snt__unlink(&source->readable);
}

/*
 * The bell. Its counter is never read: the edge of a write is enough, and the kernel
 * reports it once. `rung` saves redundant writes.
 */

void snt__loop_ring(struct snt_loop *loop)
{
	uint64_t one = 1;

	if (atomic_exchange(&loop->rung, true))
		return;
	/* A write to a full counter fails, but still makes an edge. */
	if (write(loop->bell.fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		atomic_store(&loop->rung, false);
}

int snt_loop_wake(struct snt_loop *loop)
{
	int kept = errno;

	if (snt__loop_forked(loop))
		return -ECHILD;
	atomic_store(&loop->woken, true);
	snt__loop_ring(loop);
	errno = kept;
	return 0;
}

/*
 * The fd
 */

static int add_all(struct snt_loop *loop)
{
	int ret = snt__loop_watch(loop, &loop->bell, EPOLLIN | EPOLLET);

	for (struct snt__link *at = loop->sources.next; !ret && at != &loop->sources;
	     at = at->next)
		ret = snt__loop_watch(loop, snt__container(at, struct snt__source, all),
				      EPOLLIN);
	if (!ret)
		ret = snt__timer_open(loop);
	return ret;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_fds(struct snt_loop *loop)
{
	close_fd(&loop->fd);
	close_fd(&loop->clock.fd);
	loop->clock_set_ns = SNT__NEVER;
}

int snt__loop_make_fd(struct snt_loop *loop)
{
	int ret;

	if (snt__loop_has_fd(loop))
		return 0;
	loop->fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->fd < 0)
		return snt__fail(errno, "no epoll instance for the loop: %s",
				 strerror(errno));
	ret = add_all(loop);
	if (ret) {
		close_fds(loop);
		return ret;
	}
	snt__serve_list_later(&loop->base.event_cqs);
	snt__loop_ring(loop);
	return 0;
}

int snt_loop_fd(struct snt_loop *loop)
{
	int ret = snt__loop_check(loop);

	if (!ret)
		ret = snt__loop_make_fd(loop);
	return ret ? ret : loop->fd;
}

/*
 * Opening and closing
 */

/* A CQ that has grown is not armed. */
static void cq_grown(struct snt_cq *cq)
{
	if (snt__loop_has_fd(snt__cq_loop(cq)))
		snt__serve_soon(cq);
}

static int check_spin(int64_t spin_ns)
{
	if (spin_ns >= SNT_SPIN_AUTO && spin_ns <= SPIN_MAX_NS)
		return 0;
	return snt__fail(
		EINVAL,
		"a spin of %lld ns is out of range; use 0 to %d, or SNT_SPIN_AUTO",
		(long long)spin_ns, SPIN_MAX_NS);
}

static int read_spin(int64_t *spin_ns_out)
{
	struct snt__value value = snt__setting_get(SNT__SETTING_SPIN, NULL, NULL);
	char *end;

	if (!strcmp(value.text, "auto")) {
		*spin_ns_out = SNT_SPIN_AUTO;
		return 0;
	}
	errno = 0;
	*spin_ns_out = strtoll(value.text, &end, 10);
	if (errno || *end || end == value.text || *spin_ns_out < 0 ||
	    *spin_ns_out > SPIN_MAX_NS)
		return snt__fail(
			EINVAL,
			"%s is \"%s\"; it must be auto or nanoseconds, at most "
			"a second",
			value.origin, value.text);
	return 0;
}

/* More processors than fit into the set count as many. */
static bool has_one_processor(void)
{
	cpu_set_t set;

	return !sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) == 1;
}

static void init_loop(struct snt_loop *loop, struct snt_ctx *ctx)
{
	loop->fork_mark = ctx->fork_mark;
	loop->base = (struct snt__loop_base){ .ctx = ctx,
					      .channel = snt__channel_get,
					      .cq_grown = cq_grown };
	snt__list_init(&loop->base.event_cqs);
	snt__list_init(&loop->base.polled_cqs);
	loop->fd = loop->bell.fd = loop->clock.fd = -1;
	snt__list_init(&loop->sources);
	snt__list_init(&loop->readable);
	snt__list_init(&loop->signalled);
	snt__list_init(&loop->arrivals);
	snt__list_init(&loop->pending);
	loop->over_end = &loop->over;
	loop->calls_end = &loop->calls;
	loop->clock_set_ns = SNT__NEVER;
	loop->cancel_state = PTHREAD_CANCEL_DISABLE;
}

int snt_loop_create(struct snt_ctx *ctx, const struct snt_loop_opts *user_opts,
		    struct snt_loop **loop_out)
{
	struct snt_loop_opts opts;
	struct snt_loop *loop;
	int ret = snt__opts_import(&opts, sizeof(opts), user_opts,
				   "struct snt_loop_opts");

	if (!ret)
		ret = snt__ctx_check(ctx);
	if (!ret)
		ret = opts.spin_ns ? check_spin(opts.spin_ns)
				   : read_spin(&opts.spin_ns);
	if (ret)
		return ret;
	loop = snt__lines_alloc(1, sizeof(*loop));
	if (!loop)
		return snt__fail(ENOMEM, "no memory for a loop");
	init_loop(loop, ctx);
	loop->spin_ns = opts.spin_ns;
	loop->spin.alone = has_one_processor();
	loop->bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->bell.fd < 0) {
		ret = snt__fail(errno, "no eventfd for the loop: %s", strerror(errno));
		free(loop);
		return ret;
	}
	snt__ctx_add(ctx, SNT__CTX_LOOPS, 1);
	*loop_out = loop;
	return 0;
}

/* Callbacks that are due would never run. */
static int check_unused(struct snt_loop *loop)
{
	if (!snt__list_empty(&loop->base.event_cqs) ||
	    !snt__list_empty(&loop->base.polled_cqs))
		return snt__fail(EBUSY, "the loop has CQs left; destroy them before "
					"closing it");
	if (snt__call_has_programs(loop))
		return snt__fail(EBUSY, "calls of the loop have yet to run; dispatch "
					"before closing it");
	if (loop->over)
		return snt__fail(EBUSY, "ops of the loop have yet to get their "
					"callbacks; dispatch before closing it");
	return 0;
}

static int close_uncancelled(struct snt_loop *loop)
{
	int ret = loop->conn_loop ? loop->conn_loop_close(loop) : 0;
	if (ret)
		return ret;
	snt__deferred_releases_try(loop->base.ctx, loop);
	ret = check_unused(loop);
	if (ret)
		return ret;
	snt__async_stop(loop);
	snt__call_run_own(loop);
	snt__timer_forget_all(loop);
	snt__rx_stop(loop);
	while (!snt__list_empty(&loop->sources))
		snt__loop_remove(loop, snt__container(loop->sources.next,
						      struct snt__source, all));
	snt__channel_close_all(loop);
	close_fds(loop);
	close_fd(&loop->bell.fd);
	if (loop->run)
		loop->run->gone = true;
	snt__ctx_add(loop->base.ctx, SNT__CTX_LOOPS, -1);
	free(loop);
	return 0;
}

/* It may sleep until connections have ended; cancellation must not leave a half-closed
 * loop. */
int snt_loop_destroy(struct snt_loop *loop)
{
	int state, ret;

	if (!loop)
		return 0;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	ret = close_uncancelled(loop);
	pthread_setcancelstate(state, NULL);
	return ret;
}

int snt__loop_check(const struct snt_loop *loop)
{
	if (snt__loop_forked(loop))
		return snt__fail(ECHILD,
				 "the loop belongs to the process that forked; open a "
				 "context and a loop in the child");
	return 0;
}

struct snt_ctx *snt_loop_ctx(const struct snt_loop *loop)
{
	return loop->base.ctx;
}

int snt_loop_set_wake_handler(struct snt_loop *loop,
			      void (*woken)(void *arg, struct snt_loop *loop),
			      void *arg)
{
	int ret = snt__loop_check(loop);

	if (ret)
		return ret;
	loop->on_wake = woken;
	loop->on_wake_arg = arg;
	return 0;
}

int snt_loop_set_spin(struct snt_loop *loop, int64_t spin_ns)
{
	int ret = snt__loop_check(loop);

	if (!ret)
		ret = check_spin(spin_ns);
	if (!ret)
		loop->spin_ns = spin_ns;
	return ret;
}

uint64_t snt_loop_now(const struct snt_loop *loop)
{
	return snt__loop_now(loop);
}
