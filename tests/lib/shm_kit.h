/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_SHM_KIT_H
#define SENNIT_TESTS_SHM_KIT_H

#include "lib/udp_side.h"

/* What tests of shared memory look at, and what they take away. */

struct snt__shm_stats shm_stats(struct side *side);

/* Lines of a file that have a word in them. */
unsigned count_lines(const char *path, const char *with);

/* No more fds for this process, or as many as before. */
void fds_exhaust(void);
void fds_restore(void);

/* As after ulimit -f: files of this process have at most 64 KiB, or as before. */
void file_size_limit(void);
void file_size_restore(void);

#endif
