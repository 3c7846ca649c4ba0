/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ADAPTERS_POLL_H
#define SENNIT_ADAPTERS_POLL_H

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sennit/loop.h>

/*
 * A loop (loop.h) inside an event loop of poll(2).
 *
 *	struct snt_poll sennit = { 0 };
 *	struct pollfd fds[16];
 *
 *	snt_poll_attach(&sennit, loop, &fds[0]);
 *	...
 *	while (poll(fds, count, -1) >= 0) {
 *		snt_poll_ready(&sennit, &fds[0]);
 *		...the program's own...
 *	}
 *
 * Timers and deadlines make the fd readable as well: the timeout is for the program's
 * own purposes. The array is the program's, and the entry may have another place each
 * time.
 *
 * One object for each loop. Detach before the loop is closed; both are legal in
 * callbacks, as is freeing the object afterwards.
 *
 * Thread: loop, for every call here: the thread that runs both loops.
 */

/* Zero it before its first use. */
struct snt_poll {
	/* The program's. */
	int budget; /* callbacks in one turn; 0: as snt_loop_dispatch() */

	/* The adapter's. */
	struct snt_loop *loop; /* NULL: not attached */
};

/**
 * snt_poll_attach - start watching a loop
 * @entry: filled in
 *
 * Returns: 0; -EALREADY if it is attached; the errno of snt_loop_fd().
 */
static inline int snt_poll_attach(struct snt_poll *self, struct snt_loop *loop,
				  struct pollfd *entry)
{
	int fd;

	if (self->loop)
		return -EALREADY;
	fd = snt_loop_fd(loop);
	if (fd < 0)
		return fd;
	entry->fd = fd;
	entry->events = POLLIN;
	entry->revents = 0;
	self->loop = loop;
	return 0;
}

/**
 * snt_poll_ready - after poll(2) has returned: callbacks run if the entry is readable
 *
 * Returns: as snt_loop_dispatch(); 0 if there is nothing to do, or it is not attached.
 */
static inline int snt_poll_ready(struct snt_poll *self, struct pollfd *entry)
{
	int is_ready = self->loop && entry->revents;

	entry->revents = 0;
	return is_ready ? snt_loop_dispatch(self->loop, self->budget) : 0;
}

/**
 * snt_poll_detach - stop watching the loop
 * @entry: poll(2) leaves it out from now on
 *
 * Nothing is lost: later events are reported when the loop is attached again, anywhere.
 */
static inline void snt_poll_detach(struct snt_poll *self, struct pollfd *entry)
{
	entry->fd = -1;
	entry->revents = 0;
	self->loop = NULL;
}

#endif
