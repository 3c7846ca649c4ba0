/* SPDX-License-Identifier: MIT */
#ifndef SNT_LOOP_LOOP_H
#define SNT_LOOP_LOOP_H

#include <sennit/loop.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "dev/ctx.h"
#include "loop/spin.h"
#include "util/fork.h"
#include "util/list.h"
#include "vqp/loop_base.h"

/*
 * A loop, which one thread at a time uses. Its fd is created by the first call that
 * asks for it.
 *
 * A CQ with events is in one of two states. Idle: armed, polled afterwards, and found
 * empty; the next completion makes the fd readable. Pending: on a list, to be served by
 * the next dispatch. Making a CQ pending outside of dispatch rings the bell, which
 * makes the fd readable as well. Dispatch ends with no CQ pending, or rings the bell.
 * So a thread that sleeps on the fd never misses anything.
 */

struct snt_op;

enum snt__source_type {
	SNT__SOURCE_CALLBACKS,
	/* Completion channels, and where packets arrive: both run no callback, and have
	 * no ready(). */
	SNT__SOURCE_CHANNEL,
	SNT__SOURCE_RX,
};

/* An fd that dispatch watches, for as long as it is added. */
struct snt__source {
	int fd;
	/* The fd is readable. Reads until it is not, unless that many callbacks have
	 * been run; returns how many. */
	int (*ready)(struct snt__source *source, int budget);
	struct snt__link all;
	struct snt__link readable; /* in the loop's list for its type */
	enum snt__source_type type;
};

/* A device's fds in the epoll instance, where packets arrive for programs that sleep in
 * an event loop of their own (rx_watch.c). */
struct snt__rx {
	struct snt__source source[SNT__RX_FDS];
	unsigned count; /* of fds that are watched; 0: none */
	bool lent;	/* the device leaves packets to this loop */
};

/* One call that runs callbacks. Callbacks may do anything, also close the loop. */
struct snt__round {
	struct snt_loop *loop;
	int left; /* callbacks that may still run */
	int count;
	int error;
	unsigned waiting;  /* kinds that had work when it began, as a set */
	unsigned favoured; /* the kind that gets a turn in any case; 0: none */
	bool gone;	   /* the loop was closed */
	bool arms;	   /* arms CQs that are done, else leaves them pending */
	bool again;	   /* a source had more than the budget allowed */
	uint64_t now_ns;   /* when it began, if there were timers */
};

/* A device's completion channel, or its asynchronous events. */
struct snt__channel {
	struct snt__source source;
	struct snt_loop *loop;
	const struct snt_device *device;  /* NULL: not in use */
	struct ibv_comp_channel *channel; /* NULL: of asynchronous events */
};

/* The timerfd is not set. */
#define SNT__NEVER UINT64_MAX

struct snt__conn_loop;

struct snt_loop {
	struct snt__loop_base base; /* first */
	unsigned fork_mark;	    /* of the process that created it */
	int fd;			    /* -1: none yet */
	struct snt__source bell;
	struct snt__source clock;
	atomic_bool rung;  /* the bell; its event has not been taken yet */
	atomic_bool woken; /* by snt_loop_wake() */
	_Atomic(struct snt_call *) inbox; /* calls from any thread, the latest first */
	struct snt_call *calls;		  /* calls taken from there, the oldest first */
	struct snt_call **calls_end;
	struct snt__round *run;

	struct snt__link sources;
	struct snt__link readable;  /* sources with callbacks that are */
	struct snt__link signalled; /* channels that are */
	struct snt__link arrivals;  /* fds of devices that are */
	struct snt__link pending;   /* CQs */
	struct snt_op *over;	    /* ops whose callback no completion brings */
	struct snt_op **over_end;

	struct snt_timer *timers;
	uint64_t clock_set_ns; /* when the timerfd fires, or has fired */
	struct snt_timer retry;
	unsigned favoured; /* the last favoured kind, when there were several */

	struct snt__channel channel[SNT_DEVICES_MAX];
	struct snt__channel async[SNT_DEVICES_MAX];
	struct snt__rx rx[SNT_DEVICES_MAX];
	unsigned rx_lent; /* devices */
	void (*happened)(void *arg, const struct snt_event *event);
	void *happened_arg;
	struct snt__link in_event_loops; /* while it has a function for events */
	void (*on_wake)(void *arg, struct snt_loop *loop);
	void *on_wake_arg;

	/* src/conn's state for this loop; NULL: none yet. Closing may be refused. */
	struct snt__conn_loop *conn_loop;
	int (*conn_loop_close)(struct snt_loop *loop);

	/* A thread that is cancelled while it sleeps here leaves the loop usable for
	 * other threads. */
	int cancel_state;	 /* of the thread, while it sleeps */
	void (*undo)(void *arg); /* on cancellation: ends the wait; or NULL */
	void *undo_arg;

	bool dispatched; /* by the program, which then may sleep in its own event loop */
	int64_t spin_ns; /* or SNT_SPIN_AUTO */
	struct snt__spin spin;
	/* Replaces sleeping in simulated time: until the fd is readable, a timer is due
	 * or time is up. NULL: epoll_wait(2). */
	int (*sleep)(void *arg, int fd, int64_t timeout_ns);
	void *sleep_arg;
};

/* loop.c: 0; -ECHILD in another process. */
int snt__loop_check(const struct snt_loop *loop);

/* loop.c: creates the fd, unless it exists. */
int snt__loop_make_fd(struct snt_loop *loop);

/* loop.c: makes the fd readable, also if it is created later. For any thread. */
void snt__loop_ring(struct snt_loop *loop);

/* loop.c: adds an fd; works before the loop has its own. */
int snt__loop_add(struct snt_loop *loop, struct snt__source *source);
/* The same for sources that need not be kept: with an fd, and these events. */
int snt__loop_watch(const struct snt_loop *loop, struct snt__source *source,
		    uint32_t events);
void snt__loop_unwatch(const struct snt_loop *loop, struct snt__source *source);
void snt__loop_remove(struct snt_loop *loop, struct snt__source *source);

static inline bool snt__loop_has_fd(const struct snt_loop *loop)
{
	return loop->fd >= 0;
}

/* For the loop's own thread: without an fd there is no system call, because creating
 * one rings. */
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

/* Is this a child of the process that created the loop? */
static inline bool snt__loop_forked(const struct snt_loop *loop)
{
	return snt__fork_passed(loop->fork_mark);
}

/* channel.c: the channel of a device, created on first use. */
int snt__channel_get(struct snt_loop *loop, const struct snt_device *device,
		     struct ibv_comp_channel **channel_out);
/* channel.c: the one whose events the loop takes, or NULL. */
struct ibv_comp_channel *snt__channel_find(const struct snt_loop *loop,
					   const struct snt_device *device);
/* channel.c: ends a loan of the device (dev/device.h). */
void snt__channel_rx_return(struct snt_loop *loop, const struct snt_device *device,
			    unsigned readable);
/* channel.c: closes the channels, once there are no CQs. */
void snt__channel_close_all(struct snt_loop *loop);
/* channel.c: makes CQs pending whose events are there. */
int snt__channel_drain(struct snt__channel *channel);
int snt__channel_drain_all(struct snt_loop *loop);
int snt__channel_drain_signalled(struct snt_loop *loop);

/*
 * rx_watch.c: a program that sleeps in an event loop of its own is woken by packets
 * themselves, through the loop's fd.
 */
/* Before it may sleep: from now on packets are left to it. */
void snt__rx_lend(struct snt_loop *loop);
/* Takes packets that made the fd readable, as far as snt__loop_collect() knows. */
void snt__rx_take(struct snt_loop *loop);
/* The program is awake, and will poll. */
void snt__rx_return_all(struct snt_loop *loop);
/* Edges may have been lost. */
void snt__rx_suspect_all(struct snt_loop *loop);
/* The loop is closed. */
void snt__rx_stop(struct snt_loop *loop);

/* dispatch.c: treats all sources as readable, since nothing is known of them. */
void snt__loop_suspect_all(struct snt_loop *loop);

/* dispatch.c */
int snt__loop_collect(struct snt_loop *loop, int64_t timeout_ns);
/* Runs callbacks; returns how many, or an error. After a callback has closed the loop,
 * the loop must not be touched. */
int snt__loop_run(struct snt_loop *loop, int budget, bool arms, bool *gone);
int snt__loop_poll(struct snt_loop *loop, int budget, bool *gone);
/* Before snt__loop_collect(): ignores what the fd shows. */
int snt__loop_arm(struct snt_loop *loop);
/* May callbacks be run now? */
int snt__loop_enter(const struct snt_loop *loop, int budget);

/* call.c: is there a call to run? Also one that no other thread can have seen taken. */
bool snt__call_waits(const struct snt_loop *loop);
/* call.c: as snt_loop_call(), for internal calls: closing the loop runs those that are
 * left, and is refused while there are calls of the program. */
void snt__call_post(struct snt_loop *loop, struct snt_call *call);
bool snt__call_has_programs(struct snt_loop *loop);
void snt__call_run_own(struct snt_loop *loop);
/* Runs those of one function now. */
void snt__call_run_those(struct snt_loop *loop, void (*run)(struct snt_call *call));
void snt__call_run(struct snt__round *run, int reserve);

/*
 * wait.c: a call that changes state around its waits is shielded from cancellation,
 * except while it sleeps in one of them. Callbacks that wait in another loop are not
 * cancelled at all.
 */
struct snt__shield {
	const struct snt_loop *loop;
	int cancel_state; /* of the thread, where it sleeps in this loop */
	int outer_state;
};

void snt__shield_begin(const struct snt_loop *loop, struct snt__shield *kept);
void snt__shield_end(const struct snt__shield *kept);

/* wait.c: snt_loop_wait(); if the thread is cancelled in it, `undo` is called. */
int snt__loop_wait_undo(struct snt_loop *loop, int64_t timeout_ns,
			void (*undo)(void *arg), void *arg);

/* serve.c: does the loop serve this CQ itself? */
bool snt__serve_wants(const struct snt_cq *cq);
/* serve.c: makes it pending, and rings the bell unless callbacks are being run. */
void snt__serve_later(struct snt_cq *cq);
void snt__serve_soon(struct snt_cq *cq);
void snt__serve_list_later(struct snt__link *list);
/* serve.c: it can no longer be polled. */
void snt__serve_never(struct snt_cq *cq);
/* serve.c: while more than `reserve` callbacks are left. */
void snt__serve_pending(struct snt__round *run, int reserve);
/* serve.c: everything that has arrived, at once, from a callback; for CQs whose ops are
 * the library's and run no callback of the program. */
void snt__serve_now(struct snt_cq *cq);
/* serve.c: arms it; 1 if it has to be polled first, 0 if it is idle now. */
int snt__serve_settle(struct snt_cq *cq);

/* async.c: the loop wants no more events. */
void snt__async_stop(struct snt_loop *loop);

/* timer.c */
void snt__timer_run(struct snt__round *run);
/* Reads the clock, if there is a timer. */
bool snt__timer_due(struct snt__round *run);
bool snt__timer_is_due(const struct snt_loop *loop);
int snt__timer_open(struct snt_loop *loop);
/* Sets the timerfd to the first timer, unless it is set to something earlier. */
void snt__timer_set(struct snt_loop *loop);
void snt__timer_forget_all(struct snt_loop *loop);

/* op.c: its QP goes, between polling and passing on the completion of the op. */
void snt__op_forget_qp(const struct snt_wc *wc);

/* op.c: callbacks of ops that ended without a completion. */
void snt__op_run_over(struct snt__round *run, int reserve);

#endif
