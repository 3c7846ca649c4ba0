/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_SHM_H
#define SNT_DEV_SOFT_SHM_SHM_H

#include "dev/soft/device.h"
#include "dev/soft/shm/link.h"

/*
 * A device's links to others on the same host: a driver below a driver. Packets to
 * local peers go into a ring instead of a socket; the device above does not notice the
 * difference, apart from their size.
 *
 * All of it is behind the device's lock. If it was not opened there are no links, and
 * all calls do nothing.
 */

struct snt__shm_stats {
	uint64_t packets_out, packets_in;
	uint64_t shared; /* packets whose payload was read from a shared place */
	uint64_t pulled; /* the same, from the memory of the other process */
	uint64_t lost;	 /* packets that were dropped: no room for too long */
	uint64_t bells;	 /* bells rung */
	uint64_t stalls; /* times that a ring had no room */
	uint64_t links_out, links_in;
	uint64_t broken; /* links whose peer broke the protocol */
};

struct snt__shm {
	struct snt__soft_device *core;
	int fd; /* readable when snt__shm_serve() has something to do; -1: not open */
	bool links;   /* peers may be reached */
	int listener; /* -1: peers cannot find us, because no fd was free */
	bool pull;    /* long payload may stay where it is; see vm_read.h */
	unsigned in_count;
	uint8_t gid[16];
	uint8_t seat;
	/* Another fd that snt__shm_serve() watches, and what it calls. */
	void (*serve_other)(void *arg);
	void *other_arg;
	struct snt__link outs, ins;
	struct snt__shm_stats stats;
};

/* Peers are reached if that is wanted and possible: `links`. Returns 0 or a negative
 * errno. */
int snt__shm_open(struct snt__shm *shm, const uint8_t gid[16], unsigned seat,
		  bool wanted, struct snt__soft_device *core);
/* Has snt__shm_serve() call shm->serve_other() when the fd is readable, too. Returns 0
 * or a negative errno. */
int snt__shm_watch_other(struct snt__shm *shm, int fd);
void snt__shm_init(struct snt__shm *shm);
/* `ours` is false in a child of the process. */
void snt__shm_close(struct snt__shm *shm, bool ours);

/* Connects to the device at a seat of an address, unless it is connected. Returns how
 * many bytes of payload a packet to it may have; 0: it cannot be reached. */
uint32_t snt__shm_reach(struct snt__shm *shm, const uint8_t target[16], unsigned seat);

/* How many packets, of at most `max`, may be taken from the device now: they fit in
 * every ring. */
unsigned snt__shm_send_max(struct snt__shm *shm, unsigned max, uint64_t now);
/* Sends those packets that have a link. The rest moves to the beginning; returns how
 * many. */
unsigned snt__shm_send(struct snt__shm *shm, struct snt__soft_packet *packets,
		       unsigned count);
/* When sending has to be tried again at the latest; SNT__SOFT_NEVER: nothing waits. */
uint64_t snt__shm_deadline(const struct snt__shm *shm);

/* Nothing more will be sent from there. */
void snt__shm_forget(struct snt__shm *shm, const void *bytes, size_t length);

/* Passes a batch of received packets to the device. Returns how many. */
unsigned snt__shm_receive(struct snt__shm *shm, uint64_t now);

/* Handles bells, new links and links that end. */
void snt__shm_serve(struct snt__shm *shm, uint64_t now);

/* A thread was woken by bells. Notes which links have rung, so that the bells can be
 * taken later, while no peer waits. False: none has, so that there is something else to
 * serve. */
bool snt__shm_note_bells(struct snt__shm *shm);
/* Takes the bells that were noted, before a thread sleeps on them again. */
void snt__shm_take_bells(struct snt__shm *shm, uint64_t now);

/* Asks for bells: the rings will not be polled until one rings. False: there are
 * packets. */
bool snt__shm_sleep(struct snt__shm *shm);
void snt__shm_wake(struct snt__shm *shm);

/* The peer broke the protocol: removes the link. */
void snt__shm_break(struct snt__shm *shm, struct snt__shm_link *link);

/* Takes what a peer that is gone has left in its ring: its last packets may acknowledge
 * everything. */
void snt__shm_drain(struct snt__shm *shm, struct snt__shm_link *link, uint64_t now);

/* The link to a seat of an address, or NULL. */
struct snt__shm_link *snt__shm_find(struct snt__shm *shm, const uint8_t target[16],
				    unsigned seat);

/* Is any peer connected to us? */
static inline bool snt__shm_linked(const struct snt__shm *shm)
{
	return shm->in_count;
}

#endif
