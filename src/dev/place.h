/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_PLACE_H
#define SNT_DEV_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Memory that other processes of this user can be given: a file without a name, which
 * cannot be cut under the feet of who maps it. Soft devices on one host read what is to
 * be sent from there, so that it is copied once (dev/soft/shm/share.h); for all other
 * devices it is memory like any other.
 *
 * All places of a process are known by their addresses, to any thread. A child of the
 * process has none of them: at their addresses it may have something else.
 */

struct snt__place {
	uint64_t id;	/* that no other ever has */
	uint8_t *bytes; /* NULL: it is the parent's */
	size_t size;	/* whole pages */
	int fd;		/* -1: nobody can be given it */
};

/* Returns 0 or a negative errno. All bytes are 0. Where there can be no such file, because
 * of the fds that the process has, of RLIMIT_FSIZE or of the kernel, it is memory like any
 * other. */
int snt__place_make(size_t length, struct snt__place **place_out);
/* NULL does nothing. */
void snt__place_free(struct snt__place *place);

/* Which place these bytes are in, all of them; a copy, without the fd. False: in none that
 * anybody can be given. */
bool snt__place_find(const void *bytes, size_t length, struct snt__place *place_out);

/* A new fd of a place; -1: there is none, any more. */
int snt__place_fd(uint64_t id);

/* A file without a name that has that size for ever; -1: errno. */
int snt__place_file(const char *name, size_t size);

/* Can this fd be mapped without fear? If so, how large it is; else 0. */
size_t snt__place_size(int fd);

#endif
