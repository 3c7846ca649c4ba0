/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_LOOP_H
#define SENNIT_LOOP_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/cq.h>
#include <sennit/ctx.h>

/*
 * A loop has one file descriptor, which the program's own event loop watches, and one
 * function to call when the fd is readable. A program has a loop in each thread that
 * sends or receives; all of them share the context with its devices and memory.
 *
 *	struct epoll_event event = { .events = EPOLLIN };
 *	struct snt_loop *loop;
 *
 *	check(snt_loop_create(ctx, NULL, &loop));
 *	check(epoll_ctl(epoll, EPOLL_CTL_ADD, snt_loop_fd(loop), &event));
 *	use(loop);
 *	while (epoll_wait(epoll, &event, 1, -1) == 1)
 *		check(snt_loop_dispatch(loop, 0));
 *
 * A loop contains CQs with their QPs and ops, timers, connections, listeners and
 * streams. The fd covers the completion channels of these CQs, the asynchronous events
 * of devices, one timer for all deadlines, and one eventfd for wake-ups by other
 * threads. It may be watched level-triggered, edge-triggered or one-shot: whenever
 * dispatch returns, either everything is armed and nothing is left to do, or the fd has
 * been made readable again. The same holds for a program that polls instead of
 * dispatching, once snt_loop_arm() has returned 0.
 *
 * A loop serves the CQs made with snt_cq_opts::loop. If snt_cq_opts::ops is set as
 * well, dispatch polls them and delivers their completions to callbacks (op.h). CQs
 * without ops are polled by the program: in a function given to snt_cq_set_ready_handler(), which
 * dispatch calls, or anywhere else; in the latter case the program calls snt_loop_arm()
 * before it sleeps. CQs made without a loop are unrelated to any loop.
 *
 * Callbacks run only inside snt_loop_dispatch(), snt_loop_poll(), snt_loop_wait() and
 * snt_op_wait(). In a callback every call of the library is legal except these four,
 * which fail with -EBUSY. Destroying an object in a callback, even the callback's own
 * object or the loop, takes effect at once, as anywhere else; ops that had finished
 * before still get their callbacks.
 *
 * A program that never sleeps does not need the fd. The fd is created by snt_loop_fd(),
 * snt_loop_arm(), the calls that wait, and the first connection, listener or stream
 * (conn.h, stream.h). Without these there is no fd, nothing is ever armed, and
 * snt_loop_poll() serves all CQs without a system call.
 *
 * After a fork the child must not use the loop: the objects behind the fd are the
 * parent's. In the child every call here that can fail returns -ECHILD, except stopping
 * a timer and closing a loop without connections.
 *
 * Thread: loop, for every call here but snt_loop_create(), snt_loop_ctx(), snt_loop_wake() and
 * snt_loop_call(): one thread at a time uses a loop and the objects in it.
 * docs/use/threads.md has the rules, also for cancelling a thread that waits.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_loop;
struct snt_qp;
struct snt_srq;

/* Adaptive: spin for as long as spinning has recently found completions, and not where
 * they come sooner without, as on a busy machine; never in a process that may use one
 * processor only. */
#define SNT_SPIN_AUTO (-1)

struct snt_loop_opts {
	size_t size;
	/* How long waits poll the CQs before they sleep: nanoseconds, or SNT_SPIN_AUTO.
	 * 0: as SENNIT_SPIN says, else not at all. snt_loop_set_spin() changes it. */
	int64_t spin_ns;
};

/**
 * snt_loop_create - make a loop
 * @opts: NULL for all defaults
 *
 * Any number of loops share a context.
 *
 * Thread: any; the result belongs to the calling thread until it is handed to another.
 * Returns: 0; -EINVAL for options out of range, or a malformed SENNIT_SPIN; -ENOMEM; the errno
 * of eventfd(2).
 */
SNT_API int snt_loop_create(struct snt_ctx *ctx, const struct snt_loop_opts *opts,
			    struct snt_loop **loop_out);

/**
 * snt_loop_destroy - free a loop
 *
 * NULL is legal and does nothing. Running timers are dropped. The call waits, for up to
 * a few seconds, for destroyed connections that are still being torn down.
 *
 * No other thread may call snt_loop_wake() or snt_loop_call() during this call. Not a
 * cancellation point.
 *
 * Returns: 0; -EBUSY while it has CQs, connections, listeners or streams, or queued calls
 * (snt_loop_call()) or callbacks of ops that have yet to run; -ECHILD after a fork, if it has
 * connections.
 */
SNT_API int snt_loop_destroy(struct snt_loop *loop);

/**
 * snt_loop_ctx - get the context of a loop
 *
 * Thread: any.
 */
SNT_API struct snt_ctx *snt_loop_ctx(const struct snt_loop *loop);

/**
 * snt_loop_fd - get the file descriptor to watch for reading
 *
 * The first call creates the fd. It stays the same until the loop is closed and is
 * closed with it. It is an epoll instance, so it can be added to another epoll, to
 * poll(2), select(2) and io_uring; the program must not read from it nor add to it.
 * Events before the first call are not lost: they make the fd readable.
 *
 * Ownership: the loop's.
 * Returns: the fd; -ECHILD after a fork; -ENOMEM; the errno of epoll_create1(2),
 * timerfd_create(2) or epoll_ctl(2).
 */
SNT_API int snt_loop_fd(struct snt_loop *loop);

/**
 * snt_loop_dispatch - handle everything pending, then prepare for sleeping
 * @budget: callbacks to be run at most; 0: 64. Completions of every CQ, timers, wakes,
 *	connections and events of devices make progress with any budget: with a small one
 *	they take turns from call to call.
 *
 * Takes and acknowledges all events from the channels, serves their CQs, arms them, and
 * polls them once more; runs timers that are due. When it returns, either nothing is
 * pending and everything is armed, or the budget is used up and the fd is readable. It
 * never blocks. Calling it when nothing has happened is harmless. Without an fd it is
 * the same as snt_loop_poll().
 *
 * Returns: how many callbacks it ran, including expired deadlines of ops;
 *   -EBUSY   inside a callback
 *   -ECHILD  after a fork
 *   -EINVAL  a negative budget
 *   -EIO     a CQ can no longer be polled; the text names its device. The other CQs are
 *            still served; the failed one is skipped from now on.
 *
 * After -EIO the ops of that CQ's QPs get no callback by themselves, since their
 * outcome is unknown. To get their memory back: call snt_op_close() for each QP, so
 * that its device stops using the memory; then snt_op_cancel() for each op, including
 * that of the close, whose callbacks then come with the next dispatch; then the QPs and
 * the CQ can be destroyed. Connections (conn.h) are aborted; the program cancels the
 * ops of their QPs.
 */
SNT_API int snt_loop_dispatch(struct snt_loop *loop, int budget);

/**
 * snt_loop_poll - handle completions and timers without preparing for sleeping
 * @budget: as in snt_loop_dispatch()
 *
 * For programs that never sleep. Polls every CQ with ops and every watched CQ, and runs
 * timers that are due and the function of snt_loop_set_wake_handler(). It arms nothing, and makes
 * no system calls but those of the devices. It does not check the fd: connections and
 * events of devices make progress only after snt_loop_arm() or snt_loop_dispatch() has
 * found them. A program that has an fd and is about to sleep on it calls snt_loop_arm()
 * first, and polls again until that returns 0.
 *
 * Returns: as snt_loop_dispatch().
 */
SNT_API int snt_loop_poll(struct snt_loop *loop, int budget);

/**
 * snt_loop_arm - prepare for sleeping on the fd
 *
 * For programs that have polled since the last dispatch, with snt_cq_poll() or
 * snt_loop_poll(). Collects the events of the fd, arms every CQ with events, and checks
 * whether something came before that: a completion, a wake, a timer that is due, a
 * connection, an event of a device. Whatever it finds is kept for the next
 * snt_loop_poll() or snt_loop_dispatch(), completions also for the next snt_cq_poll().
 * No callback runs. Costs one epoll_wait(2) plus the devices' cost of arming.
 *
 * Returns: 0: sleep; the fd is not readable, and whatever comes from now on makes it
 * readable, with an edge; 1: do not sleep but call snt_loop_poll() or
 * snt_loop_dispatch(), and snt_cq_poll() for CQs that neither of them serves: the fd
 * may not become readable again for events already found; -ECHILD; -EIO, the errno of
 * the device or of snt_loop_fd().
 */
SNT_API int snt_loop_arm(struct snt_loop *loop);

/**
 * snt_loop_timeout - get the time until the next timer is due
 *
 * For programs that pass a timeout to their own ppoll(2); milliseconds, as for poll(2), must
 * be rounded up. This is optional: timers make the fd readable as well.
 *
 * Returns: nanoseconds; 0 if there is something to do now; -1, for ever, if there is no
 * timer; -ECHILD after a fork.
 */
SNT_API int64_t snt_loop_timeout(struct snt_loop *loop);

/**
 * snt_loop_wake - make the fd readable from anywhere
 *
 * One dispatch follows one or many wakes; memory written by the waking thread before
 * the call is visible to that dispatch. The loop must not be closed during this call.
 *
 * Thread: any, also in signal handlers.
 * Returns: 0; without a text, -ECHILD after a fork.
 */
SNT_API int snt_loop_wake(struct snt_loop *loop);

/* A function for a loop to run. Owned by the program; zero it before its first use. It
 * must not move from snt_loop_call() until the function begins. Members below `arg` are
 * the library's. */
struct snt_call {
	void (*run)(struct snt_call *call);
	void *arg;
	struct snt_call *next;
	uint32_t queued;
	uint32_t reserved_32;
	uint64_t reserved[2];
};

/**
 * snt_loop_call - run a function in the thread of a loop
 *
 * The function runs inside the loop's next dispatch, poll or wait, as a callback:
 * everything that is legal in callbacks is legal in it, including queueing or freeing
 * the call. Memory written by the calling thread before is visible to it. Calls from
 * one thread run in the order in which they were made. Takes no lock and allocates no
 * memory.
 *
 * A call that is already queued keeps its place, so that a program with a queue of jobs
 * can use one call to announce all of them. A queued call cannot be withdrawn. The loop
 * must not be closed during this call.
 *
 * Thread: any, also in signal handlers.
 * Returns: 0; without a text, -EALREADY if it is already queued, in any loop, and will
 * run after this call; -EINVAL without a function; -ECHILD after a fork.
 */
SNT_API int snt_loop_call(struct snt_loop *loop, struct snt_call *call);

/**
 * snt_loop_set_wake_handler - set the function that dispatch calls after snt_loop_wake()
 * @woken: NULL: none. It counts as a callback.
 *
 * Returns: 0; -ECHILD; -ENOMEM.
 */
SNT_API int snt_loop_set_wake_handler(struct snt_loop *loop,
				      void (*woken)(void *arg, struct snt_loop *loop),
				      void *arg);

/**
 * snt_loop_wait - sleep until something has been done
 * @timeout_ns: negative: no timeout; 0: do not sleep
 *
 * For programs that have no event loop of their own. Polls the CQs for as long as
 * snt_loop_set_spin() says, then sleeps on the fd, then dispatches. It may return early
 * with nothing done, for instance because of snt_loop_wake() or a signal. While it
 * sleeps it is a cancellation point, like all waits; another thread may use the loop of
 * a thread cancelled here.
 *
 * Returns: how many callbacks it ran, 0 on timeout or after a wake; -EBUSY inside a
 * callback; otherwise as snt_loop_fd() and snt_loop_dispatch(). It waits for nothing in
 * particular, so unlike the waits for an object it has no -ETIME: a program that calls it
 * in a loop treats a timeout, a wake and a signal alike.
 */
SNT_API int snt_loop_wait(struct snt_loop *loop, int64_t timeout_ns);

/**
 * snt_loop_set_spin - set how long to poll the CQs before sleeping
 * @spin_ns: nanoseconds, at most a second; 0: sleep at once; or SNT_SPIN_AUTO
 *
 * Applies to snt_loop_wait() and snt_op_wait(). A completion that comes while they poll
 * costs no system call at all. The default is snt_loop_opts.spin_ns.
 *
 * Returns: 0; -EINVAL; -ECHILD; -ENOMEM.
 */
SNT_API int snt_loop_set_spin(struct snt_loop *loop, int64_t spin_ns);

/**
 * snt_loop_now - get the time of the context's clock
 *
 * Returns: nanoseconds.
 */
SNT_API uint64_t snt_loop_now(const struct snt_loop *loop);

/**
 * snt_cq_set_ready_handler - set the function that dispatch calls when a CQ should be polled
 * @cq: made with snt_cq_opts::loop, and without ops
 * @ready: polls @cq until it gets fewer completions than it asked for; NULL: none
 *
 * It may be called when the CQ is empty. If it leaves completions in the CQ, dispatch
 * calls it again, sooner or later.
 *
 * Returns: 0; -EINVAL if the CQ has no loop, or ops.
 */
SNT_API int snt_cq_set_ready_handler(struct snt_cq *cq,
				     void (*ready)(void *arg, struct snt_cq *cq),
				     void *arg);

/*
 * Timers
 */

/* Owned by the program; zero it before its first use. It must not move while it runs.
 * Members below `arg` are the library's. */
struct snt_timer {
	void (*fired)(struct snt_timer *timer);
	void *arg;
	struct snt_loop *loop; /* NULL: not running */
	uint64_t deadline_ns;
	struct snt_timer *child, *next, *prev;
	uint64_t reserved[2];
};

/**
 * snt_timer_start, snt_timer_start_at - start a timer, which fires once
 * @delay_ns: from now
 * @deadline_ns: by snt_loop_now(); in the past: at once, that is, with the next dispatch or,
 *	in a callback, with this one, as far as its budget goes, and after timers that
 *	are due already
 *
 * A timer that is running is moved. When its function is called it has stopped running,
 * and can be started again or freed. Any number of timers share one timerfd; timers
 * with the same deadline fire in any order. Closing a loop drops its timers. Starting
 * and stopping cost no system call, except when a timer becomes the first to fire.
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
 * snt_timer_stop - stop a timer before it fires
 *
 * Returns: 1 if it was running; 0 if not, because it has fired or was never started.
 */
SNT_API int snt_timer_stop(struct snt_timer *timer);

/*
 * Events of devices
 */

enum snt_event_type {
	SNT_EVENT_OTHER = 0,	/* none of these; verbs_type has its number */
	SNT_EVENT_DEVICE_FATAL, /* the device can no longer be used */
	SNT_EVENT_PORT_ACTIVE,
	SNT_EVENT_PORT_DOWN,
	SNT_EVENT_GID_CHANGE, /* snt_device_refresh() has the new ones */
	SNT_EVENT_LID_CHANGE,
	SNT_EVENT_PKEY_CHANGE,
	SNT_EVENT_SM_CHANGE,
	SNT_EVENT_QP_FATAL,
	SNT_EVENT_QP_REQUEST, /* a peer sent an invalid or malformed request */
	SNT_EVENT_QP_ACCESS,
	SNT_EVENT_QP_ESTABLISHED,
	SNT_EVENT_QP_DRAINED,
	SNT_EVENT_QP_LAST_WQE,
	SNT_EVENT_QP_MIGRATED,
	SNT_EVENT_CQ_ERROR,
	SNT_EVENT_SRQ_ERROR,
	SNT_EVENT_SRQ_LIMIT, /* fewer receives than the limit of snt_srq_arm() */
};

/* Valid during the call only. */
struct snt_event {
	enum snt_event_type type;
	int verbs_type;		 /* enum ibv_event_type */
	unsigned device;	 /* index in the context */
	const char *device_name; /* "mlx5_0" */
	uint8_t port;		 /* of events of a port, else 0 */
	uint32_t qp_num;	 /* the device's number, of events of a QP, else 0 */
	struct snt_qp *qp;   /* QP of that lane, if it reports to a CQ of this loop */
	struct snt_srq *srq; /* the same for events of an SRQ, else NULL */
	const char *text;    /* "mlx5_0 port 1: port is down" */
};

/**
 * snt_loop_set_event_handler - set the function that dispatch calls with events of devices
 * @happened: NULL: none
 *
 * From this call on dispatch takes the asynchronous events of all devices of the
 * context, including adopted ones, and makes the fd they come from non-blocking. Before
 * this call events and fd are not touched. Events are acknowledged before the function
 * is called, so that it can destroy the object concerned. Each event is also logged. If
 * several loops of a context have a function, each gets all events. Devices without a
 * control table have no events.
 *
 * Completions already report a dead lane; the event only says why.
 *
 * Returns: 0; -ECHILD; -ENOMEM; the errno of fcntl(2) or epoll_ctl(2).
 */
SNT_API int snt_loop_set_event_handler(struct snt_loop *loop,
				       void (*happened)(void *arg,
							const struct snt_event *event),
				       void *arg);

#ifdef __cplusplus
}
#endif

#endif
