/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_UDP_VICTIM_H
#define SENNIT_TESTS_UDP_VICTIM_H

#include <sys/types.h>

#include "lib/udp_peer.h"

/*
 * A peer in a process of its own, on a soft device, which is killed while much is under
 * way; and the survivor, its peer.
 */

/* Of all victims of this process, one after the other; no other process has it. */
const char *victim_address(void);

/* Connects the survivor with a new victim, which takes one step after the other,
 * counted from 0, until it is killed. The timeout is that of both QPs. */
pid_t victim_start(struct peer *survivor, uint8_t timeout,
		   void (*step)(struct peer *victim, unsigned count));
void victim_kill(pid_t victim, const struct peer *survivor);

/* Some writes that end well, and then more WRs than can be done soon. */
void survivor_post(struct peer *survivor, unsigned writes);
/* Of those, first what was done before, then an error, then what it takes with it. */
void survivor_close(struct peer *survivor);

#endif
