/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_DEVICE_H
#define SNT_DEV_SOFT_UDP_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include "dev/soft/device.h"
#include "dev/soft/shm/shm.h"
#include "dev/soft/udp/gate.h"
#include "dev/soft/udp/receive.h"
#include "dev/soft/udp/send.h"

/*
 * A soft device on a UDP socket.
 *
 * Packets are moved by the thread at hand: after a post by the posting thread, during a
 * poll by the polling thread, else by the device's own thread, which sleeps while
 * nothing happens. Each device has a thread of its own, rather than one for the
 * process, so that devices share nothing: two of them use two processors. The thread
 * that moves packets has the device's lock.
 *
 * The device's thread yields to busy pollers, and to threads that sleep on the socket
 * themselves: it leaves the socket alone as long as they do, since it would only take
 * turns with them at the cost of a wake-up for every packet. If a thread that sleeps
 * there does not come for its packets, the device's thread takes over.
 */
struct snt__udp_device {
	struct snt__udp_gate gate;
	struct snt__soft_device *core;
	struct snt__udp_socket socket;
	struct snt__udp_address address;
	struct snt__shm shm; /* to devices on the same host, if there are any */
	/* While packets come through shared memory, the socket is polled only now and
	 * then. */
	uint64_t socket_at; /* when it was last polled */
	bool socket_busy;   /* the last poll found something */
	uint64_t served_at; /* when the thread that moves packets last served links */

	/* A busy poller exists: set once polls have come often and without a pause for
	 * a while, until the device's thread finds that they have stopped, or a thread
	 * wants to be woken by an event. polled_at is also set without the lock. */
	bool polled;
	atomic_uint polls; /* counted, also without the lock; wraps */
	atomic_uint_least64_t polled_at;
	uint64_t polling_since;
	unsigned polls_before; /* at polling_since */

	/* A thread sleeps on the socket, and moves packets when it wakes up.
	 * `attended_lately`: also if one did so lately, and the device's thread has not
	 * found yet that it has stopped. */
	bool attended;
	bool attended_lately;
	/* Threads that post, poll or wait: when one was last seen, and since when there
	 * was no long gap. `asleep`: one waits, which is no gap. */
	bool asleep;
	uint64_t seen_at;
	uint64_t steady_since;

	uint64_t send_long; /* ns; a thread that sends for so long receives as well */

	/* The device's thread. It sleeps until wake_at, or until sleep_fd is readable;
	 * 0: it is awake. `napping`: it sleeps briefly, and leaves the socket alone. */
	pthread_t thread;
	int wake_fd;
	int sleep_fd; /* the socket's, or that of held messages instead */
	bool over;
	bool napping;
	bool resting; /* a producer that fills a ring has to wake it */
	uint64_t wake_at;

	unsigned users; /* contexts and lists; with forks held off */
	bool shm_wanted;
	bool foreign; /* this process is a child of the one that opened the device */
	struct snt__udp_device *next, **to; /* list of all devices of the process */

	struct snt__udp_sender sender;
	struct snt__udp_receiver receiver;
};

/* In ns: the shortest pause between two polls, how long polling without a pause makes a
 * busy poller, and how long a send is a long one. And the least number of polls. A
 * thread that reads a stream spends some time copying between two polls. */
#define SNT__UDP_POLL_PAUSE  50000
#define SNT__UDP_POLL_ENOUGH 50000
#define SNT__UDP_SEND_LONG   10000
#define SNT__UDP_POLLS	     8
/* In ns: a thread that has come for so long (STEADY) without a longer gap (AWAY) may
 * service the socket itself: packets of other threads do not wait much longer then. */
#define SNT__UDP_AWAY	100000
#define SNT__UDP_STEADY 200000

struct snt__udp_opts {
	const char *name;
	const struct snt__udp_address *address;
	uint32_t buffer_bytes; /* of the socket; 0: SNT__UDP_BUFFER */
	bool no_gso;
	bool shm;      /* reach devices on the same host through shared memory */
	bool shm_pull; /* and read long payload where it is, in the peer's memory */
	struct snt__soft_config config; /* limits; zeros are replaced by defaults */
};

/**
 * snt__udp_device_create - create a device, with its socket and thread
 *
 * Returns: 0; -EADDRINUSE or -EADDRNOTAVAIL, from bind(2), without a sentence; or
 * another negative errno, with one.
 */
int snt__udp_device_create(const struct snt__udp_opts *opts,
			   struct snt__udp_device **device_out);

/**
 * snt__udp_device_take - find a device of this process, or create one
 *
 * All threads and contexts that use one address with the same options share its device.
 *
 * Returns: as snt__udp_device_create(); also -EADDRINUSE for other options.
 */
int snt__udp_device_take(const struct snt__udp_opts *opts,
			 struct snt__udp_device **device_out);
/* Take and drop a reference; with the last one the device ends. */
void snt__udp_device_use(struct snt__udp_device *device);
void snt__udp_device_put(struct snt__udp_device *device);

/* Returns 0; -EBUSY if objects made by verbs are left: the device has ended all the
 * same, but its memory stays. NULL does nothing. */
int snt__udp_device_destroy(struct snt__udp_device *device);

/* The device behind one of its contexts. */
struct snt__udp_device *snt__udp_device_of(struct ibv_context *context);

/* What carries the packets of a QP; if NULL, the best that any QP can have. */
enum snt_path snt__udp_device_path(struct snt__udp_device *device, struct ibv_qp *qp);

/*
 * Internal
 */

static inline uint64_t snt__udp_polled_at(const struct snt__udp_device *device)
{
	return atomic_load_explicit(&device->polled_at, memory_order_relaxed);
}

static inline void snt__udp_set_polled_at(struct snt__udp_device *device, uint64_t now)
{
	atomic_store_explicit(&device->polled_at, now, memory_order_relaxed);
}

/* The time since the last poll. */
static inline int64_t snt__udp_pause(const struct snt__udp_device *device, uint64_t now)
{
	return (int64_t)(now - snt__udp_polled_at(device));
}

/* `now`, or a later time that the device was given while the gate was open. */
static inline uint64_t snt__udp_latest(const struct snt__udp_device *device,
				       uint64_t now)
{
	return device->gate.now > now ? device->gate.now : now;
}

/* See snt__provider. */
int snt__udp_rx_borrow(struct snt__udp_device *device);
void snt__udp_rx_return(struct snt__udp_device *device, bool readable);

/* Moves packets. With the lock. Returns whether there were any. */
bool snt__udp_move(struct snt__udp_device *device, uint64_t now);
uint64_t snt__udp_now(void);
void snt__udp_lock(struct snt__udp_device *device);
void snt__udp_unlock(struct snt__udp_device *device);
/* Is no thread inside? A signal may have interrupted one for good. */
bool snt__udp_is_free(struct snt__udp_device *device);

/* Returns 0 or a negative errno. */
int snt__udp_thread_start(struct snt__udp_device *device, const char *name);
void snt__udp_thread_stop(struct snt__udp_device *device);
/* When the device next has work without being called. With the lock. */
uint64_t snt__udp_deadline(struct snt__udp_device *device);
/* Another thread sleeps on the socket from now on, and may alone be notified of what
 * has arrived. With the lock. */
void snt__udp_thread_part(struct snt__udp_device *device);
/* Wakes the device's thread if it would sleep past the device's deadline. With the
 * lock. */
void snt__udp_thread_hurry(struct snt__udp_device *device);
/* Another thread has served the links: it may have consumed a bell for the device's
 * thread, or accepted a link whose peer does not know that this thread sleeps. With the
 * lock. */
void snt__udp_thread_stay(struct snt__udp_device *device);
/* Returns the socket to the device's thread when polling has ended. With the lock. */
void snt__udp_thread_watch(struct snt__udp_device *device);
/* A program leaves the socket to the device's thread for a moment, perhaps for ever,
 * and may have left something to be sent. The device's thread may still sleep although
 * packets have come: ppoll(2) goes on when another thread has taken them first. With
 * the lock. */
void snt__udp_thread_mind(struct snt__udp_device *device, uint64_t now);

/* Hold off forks: while a device is opened or closed, a child would get half of it. */
void snt__udp_fork_hold(void);
void snt__udp_fork_release(void);
/* Lists a device of this process, which a child must not use. Both with forks held
 * off. */
void snt__udp_fork_add(struct snt__udp_device *device);
void snt__udp_fork_remove(struct snt__udp_device *device);
/* The device that this process has at an address, or NULL. With forks held off. */
struct snt__udp_device *snt__udp_fork_find(const struct snt__udp_address *address);

#endif
