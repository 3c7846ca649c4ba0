/* SPDX-License-Identifier: MIT */
#ifndef SEARCH_H
#define SEARCH_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/sim/sim.h"
#include "lib/seeds.h"

/*
 * What programs on a simulated fabric have in common:
 *
 *	--seed N --seeds COUNT	which seeds
 *	--ops N			at most so many operations in each
 *	--without KIND,KIND	these faults do not happen
 *	--shrink		looks for less that fails in the same way
 *	--capture FILE		the last seed's packets, for Wireshark
 *	--verbose		says what happens
 *	--hashes FILE		the runs must have these trace hashes
 *	--write-hashes FILE	writes such a file
 *
 * A failure prints the command that replays it, also if the program crashes or
 * hangs.
 */

struct search_plan {
	uint64_t seed;
	uint32_t ops;
	uint32_t faults; /* bit i: kind i may happen */
	const char *capture;
	bool verbose;
};

struct search {
	const char *const *kinds; /* of faults, up to a NULL */
	uint32_t ops_max;
	uint64_t seeds_default;
	/* Packets have addresses of this process in them, so that hashes are of what was
	 * seen alone. */
	bool has_addresses;
	/* 0, or -1 after search_wrong(). */
	int (*run)(const struct search_plan *plan);
};

/* The program; prints TAP. */
int search_main(int argc, char **argv, const struct search *search);

/* Says what went wrong. Always -1. */
int search_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
int search_wrong_args(const char *format, va_list args)
	__attribute__((format(printf, 1, 0)));

/* Something that the same seed has to bring about everywhere, beside packets. */
void search_saw(uint64_t what);
/* Before a fabric goes: what it did is added up. Its hash, and that of what was seen, is
 * this seed's. */
void search_count(const struct snt__sim *sim);

static inline bool search_has(const struct search_plan *plan, unsigned kind)
{
	return plan->faults >> kind & 1;
}

#endif
