/* SPDX-License-Identifier: MIT */
#ifndef PATIENCE_H
#define PATIENCE_H

#include <stdint.h>
#include <stdlib.h>

/*
 * Deadlines in wall-clock time, for what happens soon or never. On a busy host "soon" takes
 * longer: they grow by SNT_TIMEOUT_MULTIPLIER, as Meson's timeouts do in scripts/check.py.
 */

static inline unsigned patience_s(unsigned seconds)
{
	const char *text = getenv("SNT_TIMEOUT_MULTIPLIER");
	double multiplier = text ? strtod(text, NULL) : 1;

	return multiplier > 1 ? (unsigned)(seconds * multiplier) : seconds;
}

static inline uint64_t patience_ns(unsigned seconds)
{
	return patience_s(seconds) * UINT64_C(1000000000);
}

#endif
