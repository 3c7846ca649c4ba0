/* SPDX-License-Identifier: MIT */
#ifndef SNT_PRELOAD_PRELOAD_H
#define SNT_PRELOAD_PRELOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <infiniband/verbs.h>
#include <sennit/control.h>

/*
 * A library for LD_PRELOAD that puts soft devices among those that libibverbs and
 * librdmacm have, for programs that know nothing of sennit.
 *
 *	real.c         the two libraries themselves
 *	devices.c      soft devices: made once, listed, opened
 *	verbs.c        verbs on what was made of them
 *	query.c        what they say of themselves
 *	datagram.c     address handles
 *	cm.h           rdma_cm, and which files it is in
 *	files.c        what programs look for in /dev and /sys
 *	fork.c         children of the process
 *
 * Each function that the two libraries export and that is given an object is here, too. It
 * looks at whose object it is: one of a soft device goes to the control table, the rest
 * to the real function. Verbs that are inline need nothing, since they go through the
 * object's own context.
 */

/* Is this call one that must see nothing of us? The real librdmacm and sennit itself
 * use the two libraries as they are. */
bool snt__preload_bypassed(const void *caller);
#define BYPASSED() snt__preload_bypassed(__builtin_return_address(0))

/*
 * Devices
 */

struct snt__preload_devices {
	unsigned count;
	struct ibv_context **context;
};

/* Makes them when asked for the first time. None, where they are not wanted or cannot be
 * made; then stderr says why, once. Valid for ever. */
struct snt__preload_devices snt__preload_devices(void);

/* Of whoever makes them. */
extern pthread_mutex_t snt__preload_devices_lock;

/* A child finds all locks free. Not before there are devices, which do the same: who comes
 * last is asked first, and has devices in use while he has his locks. */
void snt__preload_watch_forks(void);

/* Can devices be used while the process ends? Not if it is a signal in the middle of a
 * verb that ends it. */
bool snt__preload_may_end(void);

/* Does the program want those of the kernel, too? */
bool snt__preload_wants_real(void);

bool snt__preload_is_soft(const struct ibv_context *context);
const struct snt_control *snt__preload_control(void);

/* The device by its own name; NULL: none of ours. */
const struct ibv_device *snt__preload_find(const char *name, size_t length);

/*
 * Results in the words of verbs, of a negative errno or 0
 */

/* A pointer, or NULL and errno. */
#define AS_POINTER(ret, pointer) ((ret) ? (errno = -(ret), NULL) : (pointer))

/* 0, or -1 and errno. */
#define AS_MINUS_ONE(ret) ((ret) ? (errno = -(ret), -1) : 0)

#endif
