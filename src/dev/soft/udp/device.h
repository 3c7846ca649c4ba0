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
 * Packets move in whatever thread is there: after a post in the one that posted, while a
 * CQ is polled in the one that polls, else in a thread of the device's own, which sleeps
 * when nothing happens. One thread for each device, not for all of a process, because
 * nothing then is shared between devices: two of them use two processors. Whoever moves
 * packets has the device's lock.
 *
 * The thread gives way to programs that poll all the time, and to those that sleep on the
 * socket themselves: it leaves the socket alone as long as they do, since it would only take
 * turns with them at the cost of a wake-up for every packet. One that sleeps and does not come
 * for its packets is not waited for.
 */
struct snt__udp_device {
	struct snt__udp_gate gate;
	struct snt__soft_device *core;
	struct snt__udp_socket socket;
	struct snt__udp_address address;
	struct snt__shm shm; /* to devices on the same host, if there is any */
	/* While packets come that way, the socket is looked at now and then only. */
	uint64_t socket_at; /* when it was */
	bool socket_busy;   /* and there was something */
	uint64_t served_at; /* when who moves packets last saw to links */

	/* Somebody polls all the time, if often and for a while without a pause, until the
	 * thread finds that nobody does, or somebody wants to be woken by an event.
	 * polled_at is also set without the lock. */
	bool polled;
	atomic_uint polls; /* counted, also without the lock; wraps */
	atomic_uint_least64_t polled_at;
	uint64_t polling_since;
	unsigned polls_before; /* then */

	/* Somebody sleeps on the socket, and moves packets when he wakes up; or has done so
	 * lately, and the thread has not found yet that he does no more. */
	bool attended;
	bool attended_lately;
	/* Whoever posts, polls or waits: when he was last seen, and since when he has not been
	 * away for long. `asleep`: he waits, and is not away. */
	bool asleep;
	uint64_t seen_at;
	uint64_t steady_since;

	uint64_t send_long; /* ns; who sends for so long looks at what came in */

	/* The thread. It sleeps until wake_at, or until there is something at the fd;
	 * 0: it is awake. `napping`: for a moment, and leaves the socket alone. */
	pthread_t thread;
	int wake_fd;
	int sleep_fd; /* the socket's, or what the shelf has for it */
	bool over;
	bool napping;
	bool resting; /* who puts something into a ring has to wake it */
	uint64_t wake_at;

	unsigned users; /* contexts and lists; while no fork can come */
	bool shm_wanted;
	bool foreign; /* this is a child of the process it is of */
	struct snt__udp_device *next, **to; /* of all devices of the process */

	struct snt__udp_sender sender;
	struct snt__udp_receiver receiver;
};

/* In ns: what is a pause between two polls, how long is all the time, and how long a send is
 * long. And how many polls are often. Who reads a stream copies for some time between two. */
#define SNT__UDP_POLL_PAUSE  50000
#define SNT__UDP_POLL_ENOUGH 50000
#define SNT__UDP_SEND_LONG   10000
#define SNT__UDP_POLLS	     8
/* And who has not been away for longer than that, since so long, may move the packets that he
 * waits for: those of others do not wait much longer then. */
#define SNT__UDP_AWAY	100000
#define SNT__UDP_STEADY 200000

struct snt__udp_opts {
	const char *name;
	const struct snt__udp_address *address;
	uint32_t buffer_bytes; /* of the socket; 0: SNT__UDP_BUFFER */
	bool no_gso;
	bool shm;      /* devices on the same host are reached through memory */
	bool shm_pull; /* and read long payload where it is */
	struct snt__soft_config config; /* limits; what is not set is chosen here */
};

/**
 * snt__udp_device_create - make a device, with its socket and thread
 *
 * Returns: 0; -EADDRINUSE or -EADDRNOTAVAIL, from bind(2), without a sentence; or another
 * negative errno, with one.
 */
int snt__udp_device_create(const struct snt__udp_opts *opts,
			   struct snt__udp_device **device_out);

/**
 * snt__udp_device_take - find a device of this process, or make one
 *
 * All that use one address with the same options share its device, in whatever thread.
 *
 * Returns: as snt__udp_device_create(); -EADDRINUSE for other options, too.
 */
int snt__udp_device_take(const struct snt__udp_opts *opts,
			 struct snt__udp_device **device_out);
/* One more, or one less, uses it; with the last one it ends. */
void snt__udp_device_use(struct snt__udp_device *device);
void snt__udp_device_put(struct snt__udp_device *device);

/* Returns 0; -EBUSY if something that verbs made is left: the device has ended all the
 * same, but its memory stays. NULL does nothing. */
int snt__udp_device_destroy(struct snt__udp_device *device);

/* The device behind the context of one. */
struct snt__udp_device *snt__udp_device_of(struct ibv_context *context);

/* What carries the packets of a QP; with NULL, of any, at best. */
enum snt_path snt__udp_device_path(struct snt__udp_device *device, struct ibv_qp *qp);

/*
 * Inside
 */

static inline uint64_t snt__udp_polled_at(const struct snt__udp_device *device)
{
	return atomic_load_explicit(&device->polled_at, memory_order_relaxed);
}

static inline void snt__udp_set_polled_at(struct snt__udp_device *device, uint64_t now)
{
	atomic_store_explicit(&device->polled_at, now, memory_order_relaxed);
}

/* How long nobody has polled. */
static inline int64_t snt__udp_pause(const struct snt__udp_device *device, uint64_t now)
{
	return (int64_t)(now - snt__udp_polled_at(device));
}

/* The time after something that may have opened the gate. */
static inline uint64_t snt__udp_latest(const struct snt__udp_device *device,
				       uint64_t now)
{
	return device->gate.now > now ? device->gate.now : now;
}

/* As of snt__provider. */
int snt__udp_attend(struct snt__udp_device *device);
void snt__udp_leave(struct snt__udp_device *device, bool readable);

/* Lets packets move. With the lock. Returns whether any did. */
bool snt__udp_move(struct snt__udp_device *device, uint64_t now);
uint64_t snt__udp_now(void);
void snt__udp_lock(struct snt__udp_device *device);
void snt__udp_unlock(struct snt__udp_device *device);
/* Is no thread in the middle of something? A signal may have interrupted one for good. */
bool snt__udp_is_free(struct snt__udp_device *device);

/* Returns 0 or a negative errno. */
int snt__udp_thread_start(struct snt__udp_device *device, const char *name);
void snt__udp_thread_stop(struct snt__udp_device *device);
/* When the device next has something to do by itself. With the lock. */
uint64_t snt__udp_deadline(struct snt__udp_device *device);
/* Somebody else sleeps on the socket from now on, and what has come by now is his. With the
 * lock. */
void snt__udp_thread_part(struct snt__udp_device *device);
/* Wakes it if it sleeps longer than the device can wait. With the lock. */
void snt__udp_thread_hurry(struct snt__udp_device *device);
/* Somebody else has served the links, and may have heard a bell that was for it, or welcomed
 * a link that does not know that it sleeps. With the lock. */
void snt__udp_thread_stay(struct snt__udp_device *device);
/* Lets it look after the socket again, because nobody polls any more. With the lock. */
void snt__udp_thread_watch(struct snt__udp_device *device);
/* A program leaves the socket to the thread for a moment, perhaps for ever, and may have left
 * something to be sent. The thread may still sleep, although packets have come: ppoll(2) goes on
 * when another thread has taken them first. With the lock. */
void snt__udp_thread_mind(struct snt__udp_device *device, uint64_t now);

/* Nobody forks in between: while devices come and go a child would have half of one. */
void snt__udp_fork_hold(void);
void snt__udp_fork_release(void);
/* A device of this process, of which a child of it is to keep its hands off. Both in
 * between. */
void snt__udp_fork_add(struct snt__udp_device *device);
void snt__udp_fork_remove(struct snt__udp_device *device);
/* The device that this process has at an address, or NULL. In between, too. */
struct snt__udp_device *snt__udp_fork_find(const struct snt__udp_address *address);

#endif
