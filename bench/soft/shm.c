/* SPDX-License-Identifier: MIT */
#include "soft/shm.h"

#include <string.h>
#include <sys/mman.h>

#include "lib/bench.h"
#include "soft/end.h"

void shm_copy_mib(void *arg, unsigned count)
{
	static unsigned char from[END_BYTES];
	static unsigned char *to;

	(void)arg;
	if (!to) {
		to = mmap(NULL, END_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (to == MAP_FAILED)
			die("memory");
		memset(from, 1, sizeof(from));
	}
	for (unsigned i = 0; i < count; i++) {
		memcpy(to, from, END_BYTES);
		bench_use(to);
	}
}
