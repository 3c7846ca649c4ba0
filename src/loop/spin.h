/* SPDX-License-Identifier: MIT */
#ifndef SNT_LOOP_SPIN_H
#define SNT_LOOP_SPIN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How long a wait polls before it sleeps, without a clock.
 *
 * A wait that finds its answer while it polls saves a sleep, which costs about 10 us. So
 * waits poll for twice as long as answers took recently, and not at all if that is more
 * than a sleep could ever cost. A wait that sleeps learns as well: answers that are fast
 * again are noticed although the time to wake up is counted. Where even that takes too
 * long, a wait now and then polls all the same: probes, ever more rarely while they
 * fail, so that an idle program uses no processor time.
 *
 * Where processors are scarce, a wait that polls keeps the one that its answer needs. So
 * a few waits try the other way now and then, to poll or to sleep at once, and the way
 * with the quicker answers is kept.
 */

/* In ns: the longest spin that can pay off, and the first one. */
#define SNT__SPIN_MAX	100000
#define SNT__SPIN_FIRST 20000

/* How many waits there are between two probes: after answers were fast, and at most. A
 * wait every ms then spends 0.005 % of a processor on probes. */
#define SNT__SPIN_PROBE	    16
#define SNT__SPIN_PROBE_MAX 2048

/* How many waits try the other way, and how many there are between two trials: after a
 * trial that was worth it, and at most. */
#define SNT__SPIN_TRIAL	   4
#define SNT__SPIN_TERM	   8
#define SNT__SPIN_TERM_MAX 512

struct snt__spin {
	uint64_t gap_ns;      /* how long it recently took until something came */
	unsigned waits;	      /* since the last probe */
	unsigned probe_every; /* waits */
	bool probes;	      /* the wait that goes on does */

	/* While answers are fast. */
	bool sleeps;	    /* the better way is to sleep at once */
	bool tries;	    /* the other way */
	unsigned term;	    /* waits between two trials */
	unsigned count;	    /* waits of this term, or trial */
	uint64_t sum_ns;    /* of their answers */
	uint64_t before_ns; /* the mean of the term before the trial */

	bool alone; /* on its only processor: what it waits for cannot come meanwhile */
};

/* How long the next wait polls. */
uint64_t snt__spin_for(struct snt__spin *spin);

/* It took so long until something came, or time was up. */
void snt__spin_learn(struct snt__spin *spin, uint64_t gap_ns);

#endif
