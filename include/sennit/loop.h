/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_LOOP_H
#define SENNIT_LOOP_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/cq.h>
#include <sennit/ctx.h>

/*
 * A loop: one file descriptor, to be watched by whatever event loop the program has, and
 * one function to be called when it is readable. A program has one in each thread that
 * sends or receives; all of them share the context with its devices and memory.
 *
 *	snt_loop_open(ctx, NULL, &loop);
 *	int fd = snt_loop_fd(loop);
 *	...let epoll, poll, libuv, libevent, ... watch fd for reading; when it fires:
 *	snt_loop_dispatch(loop, 0);
 *
 * In a loop are CQs with their QPs and ops, timers, connections, listeners and streams.
 * Behind the fd are the completion channels of these CQs, the asynchronous events of
 * devices, one timer for all deadlines, and one bell for other threads. It does not
 * matter whether the fd is watched by level, by edge or one-shot: whenever dispatch
 * returns, either everything is armed and nothing is left to do, or the fd has been made
 * readable anew. The same holds for a program that polls instead of dispatching, once
 * snt_loop_arm() has returned 0.
 *
 * Which CQs. Those made with snt_cq_opts::loop. With snt_cq_opts::ops as well their
 * completions are callbacks (op.h), and dispatch serves them as a whole. Without ops they
 * are polled by the program: in a function given to snt_cq_watch(), which dispatch calls,
 * or wherever else it wants to; then it calls snt_loop_arm() before it sleeps. CQs made
 * without a loop have nothing to do with any.
 *
 * Callbacks run inside snt_loop_dispatch(), snt_loop_poll(), snt_loop_wait() and
 * snt_op_wait(), and nowhere else. Every call of the library is legal in them but
 * for these four, which are -EBUSY there. To destroy something in a callback, be it the
 * object whose callback it is or the loop, takes effect at once, as anywhere else; ops
 * that had finished before that still get their callbacks.
 *
 * A program that never sleeps does without the fd. It is made by snt_loop_fd(),
 * snt_loop_arm(), waiting, and by the first connection, listener or stream (conn.h,
 * stream.h). Without these there is none, nothing is ever armed, and snt_loop_poll() serves
 * all CQs without a system call.
 *
 * After a fork the child must not use the loop: what the fd refers to is the
 * parent's. Every call here that can fail is -ECHILD in it, except stopping a timer and
 * closing a loop without connections.
 *
 * Thread: loop, for every call here but snt_loop_open(), snt_loop_ctx(), snt_loop_wake() and
 * snt_loop_call(): one thread at a time uses a loop and what is in it. docs/threads.md has
 * the rules, also for cancelling a thread that waits.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_loop;
struct snt_qp;
struct snt_srq;

/* As long as it has paid off lately, and not at all when it does not. */
#define SNT_SPIN_AUTO (-1)

struct snt_loop_opts {
	size_t size;
	/* How long waits look at the CQs before they sleep: nanoseconds, or SNT_SPIN_AUTO.
	 * 0: as SENNIT_SPIN says, else not at all. snt_loop_spin() changes it. */
	int64_t spin_ns;
};

/**
 * snt_loop_open - make a loop
 * @opts: NULL for all defaults
 *
 * Any number of loops share a context.
 *
 * Thread: any; the result belongs to the calling thread until it is handed to another.
 * Returns: 0; -EINVAL for options out of range, or a malformed SENNIT_SPIN; -ENOMEM; the errno
 * of eventfd(2).
 */
SNT_API int snt_loop_open(struct snt_ctx *ctx, const struct snt_loop_opts *opts,
			  struct snt_loop **loop_out);

/**
 * snt_loop_close - end a loop
 *
 * NULL is legal and does nothing. Timers that run in it are forgotten. Connections that are
 * destroyed but still on their way out are waited for, for up to a few seconds.
 *
 * No other thread may call snt_loop_wake() or snt_loop_call() meanwhile. Not a cancellation
 * point.
 *
 * Returns: 0; -EBUSY while it has CQs, connections, listeners or streams, or queued calls
 * (snt_loop_call()) or callbacks of ops that have yet to run; -ECHILD after a fork, if it has
 * connections.
 */
SNT_API int snt_loop_close(struct snt_loop *loop);

/**
 * snt_loop_ctx - the context it was opened in
 *
 * Thread: any.
 */
SNT_API struct snt_ctx *snt_loop_ctx(const struct snt_loop *loop);

/**
 * snt_loop_fd - the file descriptor to be watched for reading
 *
 * The first call makes it. It stays the same until the loop is closed and is
 * closed with it. It is an epoll instance, so it can be added to another epoll, to
 * poll(2), select(2) and io_uring; the program must not read from it nor add to it.
 * What has been done before the first call is not lost: the fd is readable then.
 *
 * Ownership: the loop's.
 * Returns: the fd; -ECHILD after a fork; -ENOMEM; the errno of epoll_create1(2),
 * timerfd_create(2) or epoll_ctl(2).
 */
SNT_API int snt_loop_fd(struct snt_loop *loop);

/**
 * snt_loop_dispatch - do what there is to do, and get ready for sleeping
 * @budget: callbacks to be run at most; 0: 64. Completions of every CQ, timers, wakes,
 *	connections and events of devices make progress with any budget: with a small one
 *	they take turns from call to call.
 *
 * Takes all events off the channels, serves the CQs they were for, arms them, and
 * looks again; runs timers that are due; acknowledges what it took. When it returns
 * nothing is left and all is armed, or the budget has come to its end and the fd is
 * readable. It never blocks. To call it when nothing has happened is harmless.
 * Without an fd it is snt_loop_poll().
 *
 * Returns: how many callbacks it ran, deadlines of ops that passed included;
 *   -EBUSY   inside a callback
 *   -ECHILD  after a fork
 *   -EINVAL  a negative budget
 *   -EIO     a CQ cannot be polled any more; the text names its device. The others are
 *            served all the same, and it is left out from now on.
 *
 * After -EIO no op of that CQ's QPs gets its callback by itself, since nobody can say any
 * more what became of it. To get their memory back: snt_op_close() each QP, so that its
 * device lets go; snt_op_cancel() each op, that of the close included, whose callbacks
 * then come with the next dispatch; then the QPs and the CQ can be destroyed. Connections
 * (conn.h) are aborted; the ops of their QPs are the program's to cancel.
 */
SNT_API int snt_loop_dispatch(struct snt_loop *loop, int budget);

/**
 * snt_loop_poll - the same for programs that never sleep
 * @budget: as in snt_loop_dispatch()
 *
 * Looks at every CQ with ops and every watched one, and runs timers that are due and
 * the function of snt_loop_wakes(). Nothing is armed, and there is no system call but
 * those of the devices. Nor is the fd looked at: connections and events of devices make
 * progress only after snt_loop_arm() or snt_loop_dispatch() has found them. A program that
 * has an fd and is about to sleep on it calls snt_loop_arm() first, and polls again until
 * that returns 0.
 *
 * Returns: as snt_loop_dispatch().
 */
SNT_API int snt_loop_poll(struct snt_loop *loop, int budget);

/**
 * snt_loop_arm - may the program sleep on the fd?
 *
 * For programs that polled by themselves since the last dispatch, be it with
 * snt_cq_poll() or with snt_loop_poll(). Takes what the fd has told of, arms every CQ
 * with events, and looks whether something came before that: a completion, a wake, a timer
 * that is due, a connection, an event of a device. What it finds is kept for the next
 * snt_loop_poll() or snt_loop_dispatch(), completions also for the next snt_cq_poll(). No
 * callback runs. Costs one epoll_wait(2) and what arming costs the devices.
 *
 * Returns: 0: sleep; the fd is not readable, and what comes from now on makes it so, with
 * an edge; 1: do not sleep but call snt_loop_poll() or snt_loop_dispatch(), and
 * snt_cq_poll() for CQs that neither of them serves: for what has been found the fd may not
 * become readable again; -ECHILD; -EIO, the errno of the device or of snt_loop_fd().
 */
SNT_API int snt_loop_arm(struct snt_loop *loop);

/**
 * snt_loop_timeout - how long a program may sleep before a timer is due
 *
 * For programs that hand a timeout to their own poll(2). Nobody has to: the fd
 * becomes readable for timers as well.
 *
 * Returns: milliseconds, rounded up; 0 if there is something to do now; -1 if there
 * is no timer.
 */
SNT_API int snt_loop_timeout(struct snt_loop *loop);

/**
 * snt_loop_wake - make the fd readable from anywhere
 *
 * One dispatch follows one or many wakes; what the waking thread wrote before is
 * visible to it. The loop must not be closed meanwhile.
 *
 * Thread: any, also in signal handlers.
 * Returns: 0; without a text, -ECHILD after a fork.
 */
SNT_API int snt_loop_wake(struct snt_loop *loop);

/* A function to be run by a loop. Owned by the program; zero it before its first use. From
 * snt_loop_call() until the function begins it must stay where it is. Members below `arg`
 * are the library's. */
struct snt_call {
	void (*run)(struct snt_call *call);
	void *arg;
	struct snt_call *next;
	uint32_t queued;
};

/**
 * snt_loop_call - run a function in the thread of a loop
 *
 * Inside the loop's next dispatch, poll or wait, as a callback: everything is legal in it that
 * is legal in callbacks, queueing or freeing the call included. What the calling thread wrote
 * before is visible to it. Calls of one thread run in the order in which they were made. Takes
 * no lock and no memory.
 *
 * A call that is queued already stays where it is in the queue, so that a program with a queue
 * of jobs can use one call as the bell of them all. A queued call cannot be taken back. The
 * loop must not be closed meanwhile.
 *
 * Thread: any, also in signal handlers.
 * Returns: 0; without a text, -EALREADY if it is queued already, in whatever loop, and will
 * run after this call; -EINVAL without a function; -ECHILD after a fork.
 */
SNT_API int snt_loop_call(struct snt_loop *loop, struct snt_call *call);

/**
 * snt_loop_wakes - a function for dispatch to call after snt_loop_wake()
 * @woken: NULL: none. It counts as a callback.
 *
 * Returns: 0; -ECHILD; -ENOMEM.
 */
SNT_API int snt_loop_wakes(struct snt_loop *loop,
			   void (*woken)(void *arg, struct snt_loop *loop), void *arg);

/**
 * snt_loop_wait - sleep until something has been done
 * @timeout_ns: -1: for ever; 0: do not sleep
 *
 * A whole event loop for programs that have no other. Looks at the CQs as long as
 * snt_loop_spin() says, then sleeps on the fd, then dispatches. It may return early
 * with nothing done; snt_loop_wake() and signals make it do so. While it sleeps it is a
 * cancellation point, as all waits are: a thread that is cancelled leaves the loop to
 * another.
 *
 * Returns: how many callbacks it ran, 0 if time is up or it was woken; -EBUSY inside
 * a callback; otherwise as snt_loop_fd() and snt_loop_dispatch().
 */
SNT_API int snt_loop_wait(struct snt_loop *loop, int64_t timeout_ns);

/**
 * snt_loop_spin - how long to look at the CQs before sleeping
 * @spin_ns: nanoseconds, at most a second; 0: sleep at once; or SNT_SPIN_AUTO
 *
 * Of snt_loop_wait() and snt_op_wait(). A completion that comes while they look costs
 * no system call at all. Until this is called it is as snt_loop_opts.spin_ns says.
 *
 * Returns: 0; -EINVAL; -ECHILD; -ENOMEM.
 */
SNT_API int snt_loop_spin(struct snt_loop *loop, int64_t spin_ns);

/**
 * snt_loop_now - what time it is by the context's clock
 *
 * Returns: nanoseconds.
 */
SNT_API uint64_t snt_loop_now(const struct snt_loop *loop);

/**
 * snt_cq_watch - a function for dispatch to call when a CQ should be polled
 * @cq: made with snt_cq_opts::loop, and without ops
 * @ready: polls @cq until there is less than it asked for; NULL: none any more
 *
 * It may be called in vain. What it leaves in the CQ makes dispatch call it again,
 * sooner or later.
 *
 * Returns: 0; -EINVAL if the CQ has no loop, or ops.
 */
SNT_API int snt_cq_watch(struct snt_cq *cq, void (*ready)(void *arg, struct snt_cq *cq),
			 void *arg);

/*
 * Timers
 */

/* Owned by the program; zero it before its first use. While it runs it must stay
 * where it is. Members below `arg` are the library's. */
struct snt_timer {
	void (*fired)(struct snt_timer *timer);
	void *arg;
	struct snt_loop *loop; /* NULL: does not run */
	uint64_t deadline_ns;
	struct snt_timer *child, *next, *prev;
};

/**
 * snt_timer_start, snt_timer_start_at - let a timer fire, once
 * @delay_ns: from now
 * @deadline_ns: by snt_loop_now(); in the past: at once, that is, with the next dispatch or,
 *	in a callback, with this one, as far as its budget goes, and after timers that
 *	are due already
 *
 * One that runs already is moved. In its function it does not run any more, and can be
 * started again or freed. Any number of timers share one timerfd; timers of the same
 * deadline fire in any order. A loop that is closed forgets its timers. Starting and
 * stopping cost no system call, except when a timer becomes the first to fire.
 *
 * Ownership: the timer stays the program's.
 * Returns: 0; -EINVAL without a function; -EBUSY if it runs in another loop;
 * -ECHILD; -ENOMEM; the errno of timerfd_create(2).
 */
SNT_API int snt_timer_start(struct snt_loop *loop, struct snt_timer *timer,
			    uint64_t delay_ns);
SNT_API int snt_timer_start_at(struct snt_loop *loop, struct snt_timer *timer,
			       uint64_t deadline_ns);

/**
 * snt_timer_stop - do not let it fire
 *
 * Returns: 1 if it ran; 0 if it did not, because it has fired, or was never started.
 */
SNT_API int snt_timer_stop(struct snt_timer *timer);

/*
 * Events of devices
 */

enum snt_event_type {
	SNT_EVENT_OTHER = 0,	/* none of these; verbs_type has its number */
	SNT_EVENT_DEVICE_FATAL, /* the device is of no use any more */
	SNT_EVENT_PORT_ACTIVE,
	SNT_EVENT_PORT_DOWN,
	SNT_EVENT_GID_CHANGE, /* snt_device_refresh() has the new ones */
	SNT_EVENT_LID_CHANGE,
	SNT_EVENT_PKEY_CHANGE,
	SNT_EVENT_SM_CHANGE,
	SNT_EVENT_QP_FATAL,
	SNT_EVENT_QP_REQUEST, /* a peer asked for what is not allowed, or malformed */
	SNT_EVENT_QP_ACCESS,
	SNT_EVENT_QP_ESTABLISHED,
	SNT_EVENT_QP_DRAINED,
	SNT_EVENT_QP_LAST_WQE,
	SNT_EVENT_QP_MIGRATED,
	SNT_EVENT_CQ_ERROR,
	SNT_EVENT_SRQ_ERROR,
	SNT_EVENT_SRQ_LIMIT, /* fewer receives than snt_srq_arm() said */
};

/* Valid during the call only. */
struct snt_event {
	enum snt_event_type type;
	int verbs_type;		 /* enum ibv_event_type */
	unsigned device;	 /* index in the context */
	const char *device_name; /* "mlx5_0" */
	uint8_t port;		 /* of events of a port, else 0 */
	uint32_t qp_num;	 /* the device's number, of events of a QP, else 0 */
	struct snt_qp *qp; /* whose lane that is, if it reports to a CQ of this loop */
	struct snt_srq *srq; /* the same of events of an SRQ, else NULL */
	const char *text;    /* "mlx5_0 port 1: port is down" */
};

/**
 * snt_loop_events - a function for dispatch to call with events of devices
 * @happened: NULL: none any more
 *
 * From this call on dispatch takes the asynchronous events of all devices of the
 * context, those of adopted devices too, and makes the fd that they come from
 * non-blocking. Before it they are not touched. They are acknowledged before the
 * function is called, so that it can destroy what they are about. Each is a line in
 * the log as well. Of several loops of a context that have a function each gets all
 * events. Devices without a control table have none.
 *
 * The flow of completions tells of a dead lane by itself; the event only says why.
 *
 * Returns: 0; -ECHILD; -ENOMEM; the errno of fcntl(2) or epoll_ctl(2).
 */
SNT_API int snt_loop_events(struct snt_loop *loop,
			    void (*happened)(void *arg, const struct snt_event *event),
			    void *arg);

#ifdef __cplusplus
}
#endif

#endif
