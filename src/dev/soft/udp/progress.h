/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_PROGRESS_H
#define SNT_DEV_SOFT_UDP_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Which thread services a device: the policy, without I/O and without a clock.
 *
 * To service a device is to take packets from its socket and rings, to send replies and
 * to run timers. Threads of the program do it in verbs; when none does, the device's
 * own thread must. Two state machines say which: the owner of what arrives, and how the
 * device's thread sleeps meanwhile.
 *
 * What holds in every state, and what tests/soft/udp/progress_test.c checks: if all
 * threads of the program stop, the device's thread alone still takes every packet, runs
 * every timer and sends what is left, at the latest SNT__PROGRESS_TAKEOVER after
 * it is due. If the owner is not the thread, the owner alone is woken by a packet.
 *
 * The device calls everything here with its lock, except where stated.
 */

/*
 * The tuning constants, in ns unless stated. The figures are from
 * docs/measured/soft-speed.md.
 */

/* The thread keeps polling for so long after it had something to do, before it sleeps.
 * The echo of a stream takes 11 to 16 us by sockets: the next message is found awake. */
#define SNT__PROGRESS_SPIN 20000
/* Polls further apart are not those of a busy poller; polls without such a gap for as
 * long are; and the thread keeps polling as long while messages are long. A copy of
 * 1 MiB between two polls takes 38 us. With 200 us programs that read streams were
 * recognized late, and the thread moved a third of their packets. */
#define SNT__PROGRESS_PAUSE 50000
/* The least number of polls of a busy poller; half as many keep it one for a nap. Few,
 * because a thread that reads a stream copies between two polls. */
#define SNT__PROGRESS_POLLS 8
/* A send that takes longer than the 5 us of one long message: acknowledgments have
 * arrived meanwhile, and the sender takes them. */
#define SNT__PROGRESS_SEND_LONG 10000
/* How long packets are left to another thread before the device's thread checks on it:
 * 2000 wake-ups a second of 2 us each are 0.4 % of a processor. */
#define SNT__PROGRESS_NAP 500000
/* A device without packets for so long is idle: nothing is held in its socket, and naps
 * become long. Links are served as often. */
#define SNT__PROGRESS_IDLE (2 * SNT__PROGRESS_NAP)
/* After so long without a packet, a borrower may be held up rather than asleep: the
 * thread watches along with it. Each packet that follows such a silence wakes two
 * threads, hence many naps. */
#define SNT__PROGRESS_SILENCE (20 * SNT__PROGRESS_NAP)
/* The thread of a device that was used lately wakes up by itself this often, which saves
 * waking it whenever a timer is started: acknowledgment timeouts are at least 10 ms,
 * and mostly much longer than that. */
#define SNT__PROGRESS_HORIZON (100 * SNT__PROGRESS_NAP)
/* A program that computes between two waits holds up peers that write to its memory: for
 * up to a nap, since then the device's thread looks; one that watches, for a few. It may
 * not borrow again for so long, so that peers are held up for few % of the time. */
#define SNT__PROGRESS_DISTRUST (100 * SNT__PROGRESS_NAP)
/* Twice as long each time that it does so again: peers of a program that computes all
 * the time are held up for at most 2 ms in 5 s, which their 99th percentile does not
 * see. */
#define SNT__PROGRESS_DISTRUST_MAX (UINT64_C(100) * SNT__PROGRESS_DISTRUST)

/* The longest time that anything waits for the thread alone: a nap that began as long
 * as possible ago, another one, a packet that is seen by a thread that guards, and its
 * grace. */
#define SNT__PROGRESS_TAKEOVER (2 * SNT__PROGRESS_SILENCE + 4 * SNT__PROGRESS_NAP)

#define SNT__PROGRESS_NEVER UINT64_MAX

/* Which thread takes what arrives. */
enum snt__progress_owner {
	/* The device's own. */
	SNT__OWNER_THREAD,
	/* A program that polls without a pause. */
	SNT__OWNER_POLLER,
	/* A thread of the program that sleeps on the device's fds (rx_borrow). */
	SNT__OWNER_BORROWER,
	/* A program whose event loop watches these fds (rx_watch), and which may compute
	 * before it sleeps there. */
	SNT__OWNER_WATCHER,
	/* Either of them, having woken up (rx_return), is expected to poll, or to sleep
	 * there again. */
	SNT__OWNER_RETURNED,
	/* The device's thread, since the borrower did not come for its packets; until
	 * it returns. */
	SNT__OWNER_OVERDUE,
	SNT__OWNER_COUNT,
};

enum snt__progress_event {
	/* Polls come often, and without a pause. */
	SNT__PROGRESS_POLLS_BUSY,
	/* A thread that polled wants to be woken by an event instead. */
	SNT__PROGRESS_ARMED,
	SNT__PROGRESS_BORROWED,
	SNT__PROGRESS_WATCHED,
	/* A thread is going to sleep and could not borrow. */
	SNT__PROGRESS_REFUSED,
	SNT__PROGRESS_RETURNED,
	/* No polls came during a nap; from a program that has returned, for long. */
	SNT__PROGRESS_QUIET,
	/* A packet has come, and the program has not, for a whole nap. */
	SNT__PROGRESS_LATE,
	SNT__PROGRESS_EVENTS,
};

/* How the device's thread sleeps. */
enum snt__progress_thread {
	/* It services the device, or is about to look whether it has to. */
	SNT__THREAD_AWAKE,
	/* On the socket and the bells of rings. */
	SNT__THREAD_ASLEEP,
	/* The same, while messages are held in the socket: on an fd that reports only
	 * what comes after them (rx_hold.h). */
	SNT__THREAD_ASLEEP_APART,
	/* It leaves packets to their owner, and watches neither. */
	SNT__THREAD_NAPPING,
	/* The same for a short time, after which it looks whether packets have been left
	 * lying. */
	SNT__THREAD_CHECKING,
	/* It leaves packets to a borrower, and watches whether that one takes them. */
	SNT__THREAD_GUARDING,
	SNT__THREAD_COUNT,
};

/* Why the device's thread may have to be woken. */
enum snt__progress_reason {
	/* A verb has left work: a timer, or packets that the socket has no room for, or
	 * that the sending thread has left. */
	SNT__WAKE_WORK,
	/* A borrower sleeps on the fd that reports arrivals: it alone may have been
	 * notified of the last one, and may not come back. */
	SNT__WAKE_BORROWED,
	/* A borrower has returned, perhaps for the last time. The thread may sleep
	 * although packets have come: ppoll(2) goes on when another thread has taken
	 * them first. */
	SNT__WAKE_RETURNED,
	/* Another thread has taken a bell, and a ring does not become empty: no further
	 * bell would come. */
	SNT__WAKE_BELL,
	/* A CQ was armed: packets must move without polls. */
	SNT__WAKE_ARMED,
};

/* What there is to do besides taking what arrives. */
struct snt__progress_work {
	uint64_t deadline; /* the first timer's; SNT__PROGRESS_NEVER: none */
	bool stalled;	   /* packets wait for room in the socket */
	bool left;	   /* packets are left for the device's thread to send */
	bool held;	   /* long messages have come lately */
};

struct snt__progress {
	enum snt__progress_owner owner;
	enum snt__progress_thread thread;
	uint64_t wake_at; /* when it wakes up by itself; 0: it is awake */

	/* Polls: how many, and when the last one ended. Both are also written without
	 * the lock, which another thread had. */
	atomic_uint polls;
	atomic_uint_least64_t polled_at;
	uint64_t polling_since; /* without a pause */
	unsigned polls_before;	/* at polling_since */

	uint64_t returned_at; /* when a borrower last did */
	/* The program has held up a peer, and may not borrow before; for how long that
	 * was, when it last did. */
	uint64_t lend_at, distrust;

	/* The thread's own: when there was last something to do. */
	uint64_t active_at;
};

/* How the thread is to sleep; `until` is SNT__PROGRESS_NEVER without a limit. */
struct snt__progress_plan {
	enum snt__progress_thread thread;
	uint64_t until;
};

/*
 * Threads of the program
 */

/* Counts a poll. For any thread, without the lock. */
void snt__progress_count_poll(struct snt__progress *progress);
/* The last poll ended then. For any thread, without the lock. */
void snt__progress_set_polled_at(struct snt__progress *progress, uint64_t now);

/* A thread was in the library from `begin` to `end`, to poll. Time spent inside is no
 * pause. */
void snt__progress_see_poll(struct snt__progress *progress, uint64_t begin,
			    uint64_t end);
/* The same, to post: to a busy poller, that is no pause either. */
void snt__progress_see_post(struct snt__progress *progress, uint64_t begin,
			    uint64_t end);

/* A thread is going to sleep (BORROWED), or is soon (WATCHED). Returns whether it may
 * borrow what arrives: only one thread at a time, which more would share every wake-up
 * with, and no program that has held up its peers lately. `possible`: the device can be
 * borrowed. */
bool snt__progress_borrow(struct snt__progress *progress, enum snt__progress_event how,
			  uint64_t now, bool possible);
void snt__progress_return(struct snt__progress *progress, uint64_t now);

/* A CQ was armed. */
void snt__progress_arm(struct snt__progress *progress);

/*
 * The device's thread
 */

/* Packets are there of which the borrower will not hear: they are the thread's. */
void snt__progress_take_back(struct snt__progress *progress);

/* Does it leave everything that arrives, and timers, to the owner? It still sends. If it
 * does not, it reports whether a peer waited for a reply. */
bool snt__progress_yields(const struct snt__progress *progress, uint64_t deadline,
			  uint64_t now);
void snt__progress_moved(struct snt__progress *progress, bool answered, uint64_t now);

/* How to sleep, now that everything is done; AWAKE: not at all. */
struct snt__progress_plan snt__progress_plan(const struct snt__progress *progress,
					     const struct snt__progress_work *work,
					     uint64_t now);
void snt__progress_sleep(struct snt__progress *progress,
			 struct snt__progress_plan plan);

/* A nap has passed. Returns whether polls go on, so that the next one may begin; without
 * the lock. `polls`: how many there were when it began; updated. */
bool snt__progress_naps_on(const struct snt__progress *progress, unsigned *polls);
/* A nap has passed with too few polls. */
void snt__progress_end_nap(struct snt__progress *progress, uint64_t now);
/* A nap has passed since the thread saw a packet that it leaves to a borrower. `polls`:
 * how many there were before that. */
void snt__progress_end_guard(struct snt__progress *progress, unsigned polls,
			     uint64_t now);

/* Must the thread be woken? If so it counts as awake. */
bool snt__progress_wake(struct snt__progress *progress,
			enum snt__progress_reason reason,
			const struct snt__progress_work *work, uint64_t now);

/*
 * Questions
 */

static inline unsigned snt__progress_polls(const struct snt__progress *progress)
{
	return atomic_load_explicit(&progress->polls, memory_order_relaxed);
}

/* The time since the last poll. */
static inline int64_t snt__progress_pause(const struct snt__progress *progress,
					  uint64_t now)
{
	return (int64_t)(now - atomic_load_explicit(&progress->polled_at,
						    memory_order_relaxed));
}

/* Is what arrives left to a borrower that has not returned yet? */
static inline bool snt__progress_is_awaited(const struct snt__progress *progress)
{
	return progress->owner == SNT__OWNER_BORROWER ||
	       progress->owner == SNT__OWNER_WATCHER;
}

/* Has a borrower not returned yet? */
static inline bool snt__progress_is_lent(const struct snt__progress *progress)
{
	return snt__progress_is_awaited(progress) ||
	       progress->owner == SNT__OWNER_OVERDUE;
}

/* Does the thread sleep for a short time, whatever arrives? */
static inline bool snt__progress_naps_shortly(const struct snt__progress *progress)
{
	return progress->thread == SNT__THREAD_NAPPING ||
	       progress->thread == SNT__THREAD_CHECKING;
}

/* Does the thread leave packets to their owner while it sleeps? */
static inline bool snt__progress_naps(const struct snt__progress *progress)
{
	return snt__progress_naps_shortly(progress) ||
	       progress->thread == SNT__THREAD_GUARDING;
}

/* May replies wait for the next poll? If none comes, the thread sends them after a short
 * nap. */
static inline bool snt__progress_defers(const struct snt__progress *progress)
{
	return snt__progress_naps_shortly(progress) &&
	       progress->owner == SNT__OWNER_POLLER;
}

/* Do they wait until the program posts, or sleeps again? Programs that sleep have peers
 * that do: an acknowledgment that goes out before the reply would wake these twice. If
 * neither comes soon, the next poll sends them, or the thread after a short nap. */
static inline bool snt__progress_collects(const struct snt__progress *progress,
					  uint64_t now)
{
	return snt__progress_naps_shortly(progress) &&
	       progress->owner == SNT__OWNER_RETURNED &&
	       now - progress->returned_at < SNT__PROGRESS_PAUSE;
}

/* Does a thread sleep until producers ring? Does the device's thread? */
static inline bool snt__progress_wants_bells(const struct snt__progress *progress)
{
	return snt__progress_is_awaited(progress) ||
	       progress->thread == SNT__THREAD_ASLEEP ||
	       progress->thread == SNT__THREAD_ASLEEP_APART;
}

static inline bool snt__progress_rests(const struct snt__progress *progress)
{
	return progress->thread == SNT__THREAD_ASLEEP ||
	       progress->thread == SNT__THREAD_ASLEEP_APART;
}

/* Does it leave what arrives to another thread? */
bool snt__progress_is_away(const struct snt__progress *progress);

#endif
