/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_SHM_H
#define SNT_DEV_SOFT_SHM_SHM_H

#include "dev/soft/device.h"
#include "dev/soft/shm/link.h"

/*
 * What a device has of links to others on the same host: a driver below a driver. Packets
 * to who can be reached so go into a ring instead of a socket; whether they do is nothing
 * that the device above notices, but for their size.
 *
 * All of it is behind the device's lock. One that was not opened has no links, and all of
 * this does nothing.
 */

struct snt__shm_stats {
	uint64_t packets_out, packets_in;
	uint64_t shared; /* packets whose payload was read in a place that both know */
	uint64_t pulled; /* and in the memory of the other process */
	uint64_t lost;	 /* for which there was no room, for too long */
	uint64_t bells;	 /* that were rung */
	uint64_t stalls; /* for which rings had no room */
	uint64_t links_out, links_in;
	uint64_t broken; /* links whose other end kept to no rule */
};

struct snt__shm {
	struct snt__soft_device *core;
	int fd; /* readable when snt__shm_serve() has something to do; -1: not open */
	int listener; /* -1: nobody finds us, for want of an fd */
	bool pull;    /* long payload is left where it is; see pull.h */
	unsigned in_count;
	uint8_t gid[16];
	struct snt__link outs, ins;
	struct snt__shm_stats stats;
};

/* Returns 0, or a negative errno: others cannot find this device. */
int snt__shm_open(struct snt__shm *shm, const uint8_t gid[16],
		  struct snt__soft_device *core);
void snt__shm_init(struct snt__shm *shm);
/* `ours` is false in a child of the process. */
void snt__shm_close(struct snt__shm *shm, bool ours);

/* Meets the device of an address, if it was not met before. Returns how many bytes of
 * payload a packet to it may have; 0: it is not to be reached. */
uint32_t snt__shm_reach(struct snt__shm *shm, const uint8_t target[16]);

/* How many packets, of at most `max`, may be taken from the device now: there is room for
 * them in every ring. */
unsigned snt__shm_send_max(struct snt__shm *shm, unsigned max, uint64_t now);
/* Sends those that have a link. The others move to the beginning; returns how many. */
unsigned snt__shm_send(struct snt__shm *shm, struct snt__soft_packet *packets,
		       unsigned count);
/* Until when there has to be another attempt to send; SNT__SOFT_NEVER: none waits. */
uint64_t snt__shm_deadline(const struct snt__shm *shm);

/* Nothing will be sent from there any more. */
void snt__shm_forget(struct snt__shm *shm, const void *bytes, size_t length);

/* Gives a batch of what came in to the device. Returns how many packets it was. */
unsigned snt__shm_receive(struct snt__shm *shm, uint64_t now);

/* Bells, and others who come and go. */
void snt__shm_serve(struct snt__shm *shm, uint64_t now);

/* Nobody will look at the rings any more unless woken. False: there is something. */
bool snt__shm_sleep(struct snt__shm *shm);
void snt__shm_wake(struct snt__shm *shm);

/* The other end of a link keeps to no rule: there is no link any more. */
void snt__shm_break(struct snt__shm *shm, struct snt__shm_link *link);

/* Takes what is left in the ring of somebody who has gone: his last words may be that he
 * has got everything. */
void snt__shm_drain(struct snt__shm *shm, struct snt__shm_link *link, uint64_t now);

/* The link to an address, or NULL. */
struct snt__shm_link *snt__shm_find(struct snt__shm *shm, const uint8_t target[16]);

/* Is anybody connected to us? */
static inline bool snt__shm_linked(const struct snt__shm *shm)
{
	return shm->in_count;
}

#endif
