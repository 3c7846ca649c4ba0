/* SPDX-License-Identifier: MIT */
#ifndef SNT_LOOP_LOOP_H
#define SNT_LOOP_LOOP_H

#include <sennit/loop.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "dev/ctx.h"
#include "util/fork.h"
#include "util/list.h"
#include "vqp/notify.h"

/*
 * A loop, which one thread at a time uses. Its fd is made by the first call that asks for it.
 *
 * A CQ with events is in one of two states. Idle: armed, looked at afterwards, and
 * nothing found; whatever comes next makes the fd readable. Pending: on a list, to be
 * served by the next dispatch. Whoever makes a CQ pending outside of dispatch rings the
 * bell, which makes the fd readable as well. Dispatch ends with no CQ pending, or rings
 * the bell. So there is no moment at which somebody sleeps on the fd and something is
 * there that nobody will tell of.
 */

struct snt_op;

/* An fd that dispatch looks after, for as long as it is added. */
struct snt__source {
	int fd;
	/* The fd is readable. Reads until it is not, unless that many callbacks have been
	 * run; returns how many. */
	int (*ready)(struct snt__source *source, int budget);
	struct snt__link all;
	struct snt__link readable; /* on the list of those, or of signalled channels */
	bool is_channel; /* of completions: runs no callback, has no ready() */
};

/* One call that runs callbacks. They may do anything, also close the loop. */
struct snt__round {
	struct snt_loop *loop;
	int left; /* callbacks that may still run */
	int count;
	int error;
	unsigned waiting;  /* kinds that had something to do when it began, as a set */
	unsigned favoured; /* the one of them that has its turn in any case; 0: none */
	bool gone;	   /* the loop */
	bool arms;	   /* CQs that are done with are armed, else left pending */
	bool again;	   /* a source had more than the budget allowed */
	uint64_t now_ns;   /* when it began, if there were timers */
};

/* A completion channel, or the asynchronous events, of a device. */
struct snt__channel {
	struct snt__source source;
	struct snt_loop *loop;
	const struct snt_device *device;  /* NULL: not in use */
	struct ibv_comp_channel *channel; /* NULL: of asynchronous events */
};

/* A timerfd that is not set. */
#define SNT__NEVER UINT64_MAX

struct snt__hub;

struct snt_loop {
	struct snt__loop_base base; /* first */
	unsigned fork_mark;	    /* of the process that made it */
	int fd;			    /* -1: none yet */
	struct snt__source bell;
	struct snt__source clock;
	atomic_bool rung;		  /* the bell; its event is still to be taken */
	atomic_bool woken;		  /* by snt_loop_wake() */
	_Atomic(struct snt_call *) inbox; /* calls of any thread, the latest first */
	struct snt_call *calls;		  /* taken from there, the first first */
	struct snt_call **calls_end;
	struct snt__round *run;

	struct snt__link sources;
	struct snt__link readable;
	struct snt__link signalled; /* channels that are readable */
	struct snt__link pending;   /* CQs */
	struct snt_op *over;	    /* ops that ended without a completion */
	struct snt_op **over_end;

	struct snt_timer *timers;
	uint64_t clock_set_ns; /* when the timerfd fires, or has fired */
	struct snt_timer retry;
	unsigned favoured; /* the last kind that was, when there were several */

	struct snt__channel channel[SNT_DEVICES_MAX];
	struct snt__channel async[SNT_DEVICES_MAX];
	void (*happened)(void *arg, const struct snt_event *event);
	void *happened_arg;
	struct snt__link in_event_loops; /* while there is a function */
	void (*on_wake)(void *arg, struct snt_loop *loop);
	void *on_wake_arg;

	/* What src/conn has in this loop; NULL: nothing yet. Closing may be refused. */
	struct snt__hub *hub;
	int (*hub_close)(struct snt_loop *loop);

	/* A thread that is cancelled while it sleeps here leaves the loop to others. */
	int cancel_state;	 /* of the thread, while it sleeps */
	void (*undo)(void *arg); /* what it was waiting for forgets it; or NULL */
	void *undo_arg;

	bool dispatched; /* by the program, which then may also sleep by itself */
	int64_t spin_ns; /* or SNT_SPIN_AUTO */
	uint64_t gap_ns; /* how long it took lately until something came */
	unsigned probes;
	/* Instead of sleeping, in simulated time: until the fd is readable, a timer is
	 * due or time is up. NULL: epoll_wait(2). */
	int (*sleep)(void *arg, int fd, int64_t timeout_ns);
	void *sleep_arg;
};

/* loop.c: 0; -ECHILD in another process. */
int snt__loop_check(const struct snt_loop *loop);

/* loop.c: it has an fd from now on. */
int snt__loop_make_fd(struct snt_loop *loop);

/* loop.c: the fd is readable from now on, also if it is made later. For any thread. */
void snt__loop_ring(struct snt_loop *loop);

/* loop.c: fds of others, also before there is a loop's own. */
int snt__loop_add(struct snt_loop *loop, struct snt__source *source);
void snt__loop_remove(struct snt_loop *loop, struct snt__source *source);

static inline bool snt__loop_has_fd(const struct snt_loop *loop)
{
	return loop->fd >= 0;
}

/* For the loop's own thread: without an fd there is no system call, for making one rings. */
static inline void snt__loop_ring_fd(struct snt_loop *loop)
{
	if (snt__loop_has_fd(loop))
		snt__loop_ring(loop);
}

static inline struct snt_ctx *snt__loop_ctx(const struct snt_loop *loop)
{
	return loop->base.ctx;
}

static inline uint64_t snt__loop_now(const struct snt_loop *loop)
{
	return snt__ctx_now_ns(loop->base.ctx);
}

/* Is this a child of the process that the loop is of? */
static inline bool snt__loop_forked(const struct snt_loop *loop)
{
	return snt__fork_passed(loop->fork_mark);
}

/* channel.c: that of a device, made on first use. */
int snt__channel_get(struct snt_loop *loop, const struct snt_device *device,
		     struct ibv_comp_channel **channel_out);
/* channel.c: without CQs they can go. */
void snt__channel_close_all(struct snt_loop *loop);
/* channel.c: CQs whose events are there become pending. */
int snt__channel_drain(struct snt__channel *channel);
int snt__channel_drain_all(struct snt_loop *loop);
int snt__channel_drain_signalled(struct snt_loop *loop);

/* dispatch.c: nothing is known of what may be readable, so all of it may be. */
void snt__loop_suspect_all(struct snt_loop *loop);

/* dispatch.c */
int snt__loop_collect(struct snt_loop *loop, int64_t timeout_ns);
/* Runs callbacks; returns how many, or what went wrong. After the loop was closed in one of
 * them nothing of it may be touched. */
int snt__loop_run(struct snt_loop *loop, int budget, bool arms, bool *gone);
int snt__loop_poll(struct snt_loop *loop, int budget, bool *gone);
/* Before snt__loop_collect(): what the fd tells is not looked at. */
int snt__loop_arm(struct snt_loop *loop);
/* May callbacks be run now? */
int snt__loop_enter(const struct snt_loop *loop, int budget);

/* call.c: is there a call to run? Also those that no other thread can have seen taken. */
bool snt__call_waits(const struct snt_loop *loop);
/* call.c: as snt_loop_call(), of calls that are not the program's: closing the loop runs those
 * that are left, and is refused while there are others. */
void snt__call_post(struct snt_loop *loop, struct snt_call *call);
bool snt__call_has_programs(struct snt_loop *loop);
void snt__call_run_own(struct snt_loop *loop);
/* Those of one function, now. */
void snt__call_run_those(struct snt_loop *loop, void (*run)(struct snt_call *call));
void snt__call_run(struct snt__round *run, int reserve);

/*
 * wait.c: a call that does something around its waits is shielded from cancellation, but while
 * it sleeps in one of them. Callbacks that wait in another loop are not cancelled at all.
 */
struct snt__shield {
	const struct snt_loop *loop;
	int cancel_state; /* of the thread, where it sleeps in this loop */
	int outer_state;
};

void snt__shield_begin(const struct snt_loop *loop, struct snt__shield *kept);
void snt__shield_end(const struct snt__shield *kept);

/* wait.c: snt_loop_wait(); a thread that is cancelled in it has this called. */
int snt__loop_wait_undo(struct snt_loop *loop, int64_t timeout_ns,
			void (*undo)(void *arg), void *arg);

/* serve.c: does the loop do anything for it by itself? */
bool snt__serve_wants(const struct snt_cq *cq);
/* serve.c: it is pending; and the bell rings, unless callbacks are being run. */
void snt__serve_later(struct snt_cq *cq);
void snt__serve_soon(struct snt_cq *cq);
void snt__serve_list_later(struct snt__link *list);
/* serve.c: it cannot be polled any more. */
void snt__serve_never(struct snt_cq *cq);
/* serve.c: as long as there are callbacks left beyond so many. */
void snt__serve_pending(struct snt__round *run, int reserve);
/* serve.c: all that has come, at once, from a callback; for CQs whose ops are the library's,
 * which call nothing of the program's. */
void snt__serve_now(struct snt_cq *cq);
/* serve.c: arms it; 1 if it has to be polled first, 0 if it is idle now. */
int snt__serve_settle(struct snt_cq *cq);

/* async.c: it wants none any more. */
void snt__async_stop(struct snt_loop *loop);

/* timer.c */
void snt__timer_run(struct snt__round *run);
/* Looks at the clock, if there is a timer. */
bool snt__timer_due(struct snt__round *run);
bool snt__timer_is_due(const struct snt_loop *loop);
int snt__timer_open(struct snt_loop *loop);
/* The timerfd is set to the first timer, if it is not set to something earlier. */
void snt__timer_set(struct snt_loop *loop);
void snt__timer_forget_all(struct snt_loop *loop);

/* op.c: callbacks of ops that ended without a completion. */
void snt__op_add_over(struct snt_loop *loop, struct snt_op *op);
void snt__op_run_over(struct snt__round *run, int reserve);

#endif
