/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SHARED_MEM_H
#define SNT_DEV_SHARED_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Memory that can be shared with other processes of this user: a file without a name,
 * which cannot be truncated while another process maps it. Soft devices on one host
 * read what is to be sent from there, so that it is copied once (dev/soft/shm/share.h);
 * for all other devices it is ordinary memory.
 *
 * All shared memories of a process are found by their addresses, from any thread. A child of the
 * process has none of them: at their addresses it may have something else.
 */

struct snt__shared_mem {
	uint64_t id;	/* never reused */
	uint8_t *bytes; /* NULL in a child: it is the parent's */
	size_t size;	/* whole pages */
	int fd;		/* -1: it cannot be shared */
};

/* Returns 0 or a negative errno. All bytes are 0. Where there can be no such file,
 * because of the process's limit on fds, of RLIMIT_FSIZE or of the kernel, it is
 * ordinary memory. */
int snt__shared_mem_make(size_t length, struct snt__shared_mem **shared_out);
/* NULL does nothing. */
void snt__shared_mem_free(struct snt__shared_mem *shared);

/* The shared that holds all of these bytes; a copy, without the fd. False: they are not
 * in a shared that can be shared. */
bool snt__shared_mem_find(const void *bytes, size_t length,
			  struct snt__shared_mem *shared_out);

/* A new fd of a shared; -1: the shared is gone. */
int snt__shared_mem_fd(uint64_t id);

/* A file without a name whose size is fixed; -1: errno. */
int snt__shared_mem_file(const char *name, size_t size);

/* Can this fd be mapped safely? If so, its size; else 0. */
size_t snt__shared_mem_size(int fd);

#endif
