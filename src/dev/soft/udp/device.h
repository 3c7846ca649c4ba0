/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_UDP_DEVICE_H
#define SNT_DEV_SOFT_UDP_DEVICE_H

#include <pthread.h>
#include "dev/provider.h"
#include "dev/soft/device.h"
#include "dev/soft/shm/shm.h"
#include "dev/soft/udp/gate.h"
#include "dev/soft/udp/progress.h"
#include "dev/soft/udp/receive.h"
#include "dev/soft/udp/send.h"
#include "dev/soft/udp/share.h"

/*
 * A soft device on a UDP socket.
 *
 * Packets are moved by the thread at hand: after a post by the posting thread, during a
 * poll by the polling thread, else by the device's own thread, which sleeps while
 * nothing happens. Each device has a thread of its own, rather than one for the
 * process, so that devices share nothing: two of them use two processors. The thread
 * that moves packets has the device's lock.
 *
 * Which thread that is, progress.h decides.
 */
struct snt__udp_device {
	struct snt__udp_gate gate;
	struct snt__soft_device *core;
	struct snt__udp_socket socket;
	struct snt__udp_address address;
	struct snt__udp_share share; /* the address, with other processes */
	struct snt__shm shm;	     /* to devices on the same host, if there are any */
	/* A socket that is not expected to have anything is polled only now and then:
	 * when it last was; 0: to be polled next. */
	uint64_t socket_at;
	uint64_t served_at; /* when a thread that moves packets last served links */
	/* A watcher has taken an edge of the socket, which may not be empty since. */
	bool edge_taken;

	struct snt__progress progress; /* which thread moves packets */
	uint64_t send_long; /* ns; a thread that sends for so long receives as well */

	pthread_t thread;
	int wake_fd;
	bool over; /* the device closes: the thread ends */

	unsigned users; /* contexts and lists; with forks held off */
	bool shm_wanted;
	bool foreign; /* this process is a child of the one that opened the device */
	struct snt__udp_device *next, **to; /* list of all devices of the process */

	struct snt__udp_sender sender;
	struct snt__udp_receiver receiver;
};

struct snt__udp_opts {
	const char *name;
	const struct snt__udp_address *address;
	uint32_t buffer_bytes; /* of the socket; 0: SNT__UDP_BUFFER */
	bool no_gso;
	bool join;     /* share the address with processes that have it */
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

struct snt_device_stats;
struct snt__lane_stats;

/* stats.c: see snt__provider. */
void snt__udp_device_stats(struct snt__udp_device *device,
			   struct snt_device_stats *stats_out);
void snt__udp_lane_stats(struct snt__udp_device *device, struct ibv_qp *qp,
			 struct snt__lane_stats *stats_out);

/* See snt__provider. */
int snt__udp_device_fail(struct snt__udp_device *device, enum snt_fault kind,
			 uint64_t after_sent);
int snt__udp_device_heal(struct snt__udp_device *device);

/*
 * Internal
 */

/* `now`, or a later time that the device was given while the gate was open. */
static inline uint64_t snt__udp_latest(const struct snt__udp_device *device,
				       uint64_t now)
{
	return device->gate.now > now ? device->gate.now : now;
}

/* See snt__provider. */
unsigned snt__udp_rx_borrow(struct snt__udp_device *device, int fds[SNT__RX_FDS],
			    struct ibv_comp_channel *channel);
unsigned snt__udp_rx_watch(struct snt__udp_device *device, int fds[SNT__RX_FDS],
			   unsigned readable);
void snt__udp_rx_return(struct snt__udp_device *device, unsigned readable,
			struct ibv_comp_channel *channel);

/* Serves links, whose bells may have been another thread's: that one is woken, or asked
 * for again. With the lock. */
void snt__udp_hear_bells(struct snt__udp_device *device, uint64_t now);

/* Receives, and runs timers. With the lock. Returns whether packets have arrived. */
bool snt__udp_take_in(struct snt__udp_device *device, uint64_t now);
/* The same, and sends. Returns whether there was anything. */
bool snt__udp_move(struct snt__udp_device *device, uint64_t now);
uint64_t snt__udp_now(void);
void snt__udp_lock(struct snt__udp_device *device);
void snt__udp_unlock(struct snt__udp_device *device);
/* Is no thread inside? A signal may have interrupted one for good. */
bool snt__udp_is_free(struct snt__udp_device *device);

/* When the device next has work without being called, and what it has. With the
 * lock. */
uint64_t snt__udp_deadline(struct snt__udp_device *device);
struct snt__progress_work snt__udp_work(struct snt__udp_device *device);

/* Random numbers from the system. Returns 0 or a negative errno. */
int snt__udp_random(void *buffer, size_t length);

extern const struct snt__soft_driver snt__udp_driver;

/* Returns 0 or a negative errno. */
int snt__udp_thread_start(struct snt__udp_device *device, const char *name);
void snt__udp_thread_stop(struct snt__udp_device *device);
/* Wakes the device's thread, if it has to be for that reason. With the lock. */
void snt__udp_thread_wake(struct snt__udp_device *device,
			  enum snt__progress_reason reason, uint64_t now);

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
