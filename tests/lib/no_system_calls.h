/* SPDX-License-Identifier: MIT */
#ifndef NO_SYSTEM_CALLS_H
#define NO_SYSTEM_CALLS_H

#include <stdbool.h>

/* The work is done, and says so, in a process that any system call but exit would end.
 * What it still needs them for is prepared there before; or NULL. */
void assert_no_system_calls(void (*prepare)(void *arg), bool (*work)(void *arg),
			    void *arg);

#endif
