/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_LOOP_TICKER_H
#define SENNIT_TESTS_LOOP_TICKER_H

#include "loop/adapters/driver.h"

/* Something that happens again and again: by the loop's own timers, or, if it has none, by
 * a timerfd that it watches. */
void *ticker_start(const struct driver *driver, unsigned period_ms,
		   void (*ticked)(void *arg), void *arg);
void ticker_stop(const struct driver *driver, void *ticker);

#endif
