/* SPDX-License-Identifier: MIT */
#ifndef SNT_PRELOAD_PRELOAD_H
#define SNT_PRELOAD_PRELOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <infiniband/verbs.h>
#include <sennit/control.h>

/*
 * A library for LD_PRELOAD that adds soft devices to those of libibverbs and librdmacm,
 * for programs that do not know sennit.
 *
 *	real.c         the two libraries themselves
 *	lookup.h       programs that load the two libraries themselves
 *	devices.c      soft devices: created once, listed, opened
 *	verbs.c        verbs on their objects
 *	query.c        queries
 *	datagram.c     address handles
 *	cm.h           rdma_cm, and the files that it is in
 *	files.c        the files in /dev and /sys that programs read
 *	links.c        where devices are in /sys
 *	fork.c         children of the process
 *
 * Each function that the two libraries export and that is given an object is here, too.
 * It checks which device the object belongs to: for a soft device it calls the control
 * table, otherwise the real function. Inline verbs need nothing, since they go through
 * the object's own context.
 */

/* Must this call bypass the library? The real librdmacm and sennit itself use the two
 * libraries as they are. */
bool snt__preload_bypassed(const void *caller);
#define BYPASSED() snt__preload_bypassed(__builtin_return_address(0))

/*
 * Devices
 */

struct snt__preload_devices {
	unsigned count;
	struct ibv_context **context;
};

/* Creates them on first use. None if they are not wanted or cannot be created; then
 * stderr says why, once. Valid for ever. */
struct snt__preload_devices snt__preload_devices(void);

/* Held while they are created. */
extern pthread_mutex_t snt__preload_devices_lock;

/* Makes sure that a child finds all locks free. Called only after there are devices,
 * which register handlers, too: the last one registered is called first, and uses
 * devices while it holds its locks. */
void snt__preload_watch_forks(void);

/* Can devices be used while the process ends? Not if a signal in the middle of a verb
 * ends it. */
bool snt__preload_may_end(void);

/* Does the program want the kernel's devices, too? */
bool snt__preload_wants_real(void);

bool snt__preload_is_soft(const struct ibv_context *context);
const struct snt_control *snt__preload_control(void);

/* The device by its own name; NULL: not one of ours. */
const struct ibv_device *snt__preload_find(const char *name, size_t length);

/*
 * Results in the conventions of verbs, from a negative errno or 0
 */

/* A pointer, or NULL and errno. */
#define AS_POINTER(ret, pointer) ((ret) ? (errno = -(ret), NULL) : (pointer))

/* 0, or -1 and errno. */
#define AS_MINUS_ONE(ret) ((ret) ? (errno = -(ret), -1) : 0)

#endif
