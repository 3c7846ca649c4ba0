/* SPDX-License-Identifier: MIT */
/*
 * Making and unmaking, the fd and what is behind it, and the bell.
 */
#include "loop/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/err.h"
#include "util/setting.h"
#include "vqp/cq.h"

#define SPIN_MAX_NS 1000000000

/*
 * Sources
 */

static int watch(struct snt__loop *loop, struct snt__source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (epoll_ctl(loop->fd, EPOLL_CTL_ADD, source->fd, &event))
		return snt__fail(errno, "an fd cannot be watched: %s", strerror(errno));
	return 0;
}

int snt__loop_add(struct snt__loop *loop, struct snt__source *source)
{
	int ret = snt__loop_has_fd(loop) ? watch(loop, source, EPOLLIN) : 0;

	if (!ret)
		snt__list_append(&loop->sources, &source->all);
	return ret;
}

void snt__loop_remove(struct snt__loop *loop, struct snt__source *source)
{
	if (!snt__linked(&source->all))
		return;
	/* In a child of the process it stays in the epoll instance, which is not its own. */
	if (snt__loop_has_fd(loop) && !snt__loop_forked(loop))
		epoll_ctl(loop->fd, EPOLL_CTL_DEL, source->fd, NULL);
	snt__unlink(&source->all);
	snt__unlink(&source->readable);
}

/*
 * The bell. Its counter is never read: the edge of a write is all that is needed, and
 * the kernel reports it once. `rung` spares the writes that would tell nothing new.
 */

void snt__loop_ring(struct snt__loop *loop)
{
	uint64_t one = 1;

	if (!snt__loop_has_fd(loop) || atomic_exchange(&loop->rung, true))
		return;
	/* A counter that is full has an edge all the same. */
	if (write(loop->bell.fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		atomic_store(&loop->rung, false);
}

int snt_loop_wake(struct snt_ctx *ctx)
{
	struct snt__loop *loop = ctx->loop;
	int kept = errno;

	if (!loop || !snt__loop_has_fd(loop))
		return -ENOENT;
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

static int add_all(struct snt__loop *loop)
{
	int ret = watch(loop, &loop->bell, EPOLLIN | EPOLLET);

	for (struct snt__link *at = loop->sources.next; !ret && at != &loop->sources;
	     at = at->next)
		ret = watch(loop, snt__container(at, struct snt__source, all), EPOLLIN);
	if (!ret)
		ret = snt__timer_open(loop);
	if (!ret)
		ret = snt__channel_add_all(loop);
	return ret;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_fds(struct snt__loop *loop)
{
	close_fd(&loop->fd);
	close_fd(&loop->bell.fd);
	close_fd(&loop->clock.fd);
	loop->clock_set_ns = SNT__NEVER;
}

int snt__loop_open(struct snt__loop *loop)
{
	int ret;

	if (snt__loop_has_fd(loop))
		return 0;
	loop->bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->bell.fd < 0)
		return snt__fail(errno, "no eventfd for the loop: %s", strerror(errno));
	loop->fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->fd < 0) {
		ret = snt__fail(errno, "no epoll instance for the loop: %s",
				strerror(errno));
		close_fds(loop);
		return ret;
	}
	ret = add_all(loop);
	if (ret) {
		close_fds(loop);
		return ret;
	}
	snt__serve_list_later(&loop->ctx->event_cqs);
	snt__loop_ring(loop);
	return 0;
}

int snt_loop_fd(struct snt_ctx *ctx)
{
	struct snt__loop *loop;
	int ret = snt__loop_get(ctx, &loop);

	if (!ret)
		ret = snt__loop_open(loop);
	return ret ? ret : loop->fd;
}

/*
 * The whole
 */

/* Callbacks that are due would never run. */
static int may_close(struct snt_ctx *ctx)
{
	if (!ctx->loop->over)
		return 0;
	return snt__fail(EBUSY, "ops of the context have yet to get their callbacks; "
				"dispatch before closing it");
}

static void close_loop(struct snt_ctx *ctx)
{
	struct snt__loop *loop = ctx->loop;

	snt__timer_forget_all(loop);
	while (!snt__list_empty(&loop->sources))
		snt__loop_remove(loop, snt__container(loop->sources.next,
						      struct snt__source, all));
	close_fds(loop);
	if (loop->run)
		loop->run->gone = true;
	ctx->loop = NULL;
	free(loop);
}

static int channel_made(struct snt_ctx *ctx)
{
	return snt__loop_has_fd(ctx->loop) ? snt__channel_add_all(ctx->loop) : 0;
}

/* Nobody has armed what is new. */
static void cq_grown(struct snt_cq *cq)
{
	if (snt__loop_has_fd(cq->ctx->loop))
		snt__serve_soon(cq);
}

static const struct snt__loop_hooks hooks = {
	.may_close = may_close,
	.close = close_loop,
	.channel_made = channel_made,
	.cq_grown = cq_grown,
};

static int read_spin(struct snt__loop *loop)
{
	struct snt__value value = snt__setting_get(SNT__SETTING_SPIN, NULL, NULL);
	char *end;

	if (!strcmp(value.text, "auto")) {
		loop->spin_ns = SNT_SPIN_AUTO;
		return 0;
	}
	errno = 0;
	loop->spin_ns = strtoll(value.text, &end, 10);
	if (errno || *end || end == value.text || loop->spin_ns < 0 ||
	    loop->spin_ns > SPIN_MAX_NS)
		return snt__fail(
			EINVAL,
			"%s is \"%s\"; it must be auto or nanoseconds, at most "
			"a second",
			value.origin, value.text);
	return 0;
}

static int make(struct snt_ctx *ctx)
{
	struct snt__loop *loop = calloc(1, sizeof(*loop));
	int ret;

	if (!loop)
		return snt__fail(ENOMEM, "no memory for the loop of a context");
	ret = read_spin(loop);
	if (ret) {
		free(loop);
		return ret;
	}
	snt__fork_watch();
	loop->fork_mark = atomic_load(&snt__fork_mark);
	loop->ctx = ctx;
	loop->fd = loop->bell.fd = loop->clock.fd = -1;
	snt__list_init(&loop->sources);
	snt__list_init(&loop->readable);
	snt__list_init(&loop->signalled);
	snt__list_init(&loop->pending);
	loop->over_end = &loop->over;
	loop->clock_set_ns = SNT__NEVER;
	ctx->loop = loop;
	ctx->loop_hooks = &hooks;
	return 0;
}

int snt__loop_get(struct snt_ctx *ctx, struct snt__loop **loop_out)
{
	int ret = ctx->loop ? 0 : make(ctx);

	*loop_out = ctx->loop;
	if (ret)
		return ret;
	if (snt__loop_forked(ctx->loop))
		return snt__fail(ECHILD,
				 "the loop of this context belongs to the process "
				 "that forked; open a context in the child");
	return 0;
}

int snt_loop_wakes(struct snt_ctx *ctx, void (*woken)(void *arg, struct snt_ctx *ctx),
		   void *arg)
{
	struct snt__loop *loop;
	int ret = snt__loop_get(ctx, &loop);

	if (ret)
		return ret;
	loop->on_wake = woken;
	loop->on_wake_arg = arg;
	return 0;
}

int snt_loop_spin(struct snt_ctx *ctx, int64_t spin_ns)
{
	struct snt__loop *loop;
	int ret = snt__loop_get(ctx, &loop);

	if (ret)
		return ret;
	if (spin_ns < SNT_SPIN_AUTO || spin_ns > SPIN_MAX_NS)
		return snt__fail(EINVAL,
				 "to spin for %lld ns is not possible; 0 to %d "
				 "is, or SNT_SPIN_AUTO",
				 (long long)spin_ns, SPIN_MAX_NS);
	loop->spin_ns = spin_ns;
	return 0;
}

uint64_t snt_loop_now(const struct snt_ctx *ctx)
{
	return snt__ctx_now_ns(ctx);
}
