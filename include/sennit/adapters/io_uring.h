/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ADAPTERS_IO_URING_H
#define SENNIT_ADAPTERS_IO_URING_H

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <sennit/loop.h>

/*
 * A loop (loop.h) inside an event loop of io_uring, by one multishot poll (Linux 5.13):
 *	struct snt_io_uring sennit = { 0 };
 *	snt_io_uring_attach(&sennit, loop, &ring, SENNIT_TAG);
 *	while (io_uring_submit_and_wait(&ring, 1) >= 0) {
 *		while (!io_uring_peek_cqe(&ring, &cqe)) {
 *			if (cqe->user_data == SENNIT_TAG)
 *				snt_io_uring_ready(&sennit, cqe);
 *			io_uring_cqe_seen(&ring, cqe);
 *		}
 *		snt_io_uring_dispatch(&sennit);
 *	}
 *
 * Requests are put into the ring here; the program submits them. One object for each
 * loop; it must not move while attached, and after that until `pending` is 0, for
 * completions are still to come. Detach before closing the loop, in callbacks or not.
 * Thread: loop, for every call here: the thread that runs both loops.
 */

/* Zero it before its first use. All but the budget is the adapter's. */
struct snt_io_uring {
	int budget; /* callbacks in one dispatch; 0: as snt_loop_dispatch() */
	struct snt_loop *loop; /* NULL: not attached */
	int fd, is_ready;
	struct io_uring *ring;
	__u64 user_data;
	unsigned pending; /* requests under way */
};

/* A request; a full queue is submitted, to make room for it. */
static inline int snt_io_uring_put(struct snt_io_uring *self, int is_removal)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(self->ring);

	if (!sqe && io_uring_submit(self->ring) > 0)
		sqe = io_uring_get_sqe(self->ring);
	if (!sqe)
		return -EAGAIN;
	if (is_removal)
		io_uring_prep_cancel64(sqe, self->user_data, 0);
	else
		io_uring_prep_poll_multishot(sqe, self->fd, POLLIN);
	io_uring_sqe_set_data64(sqe, self->user_data);
	self->pending++;
	return 0;
}

/**
 * snt_io_uring_attach - start watching a loop
 * @user_data: of the completions, by which the program knows them
 *
 * Returns: 0; -EALREADY; -EAGAIN if the ring has no room; the errno of snt_loop_fd().
 */
static inline int snt_io_uring_attach(struct snt_io_uring *self, struct snt_loop *loop,
				      struct io_uring *ring, __u64 user_data)
{
	if (self->loop || self->pending)
		return -EALREADY;
	self->ring = ring;
	self->user_data = user_data;
	self->fd = snt_loop_fd(loop);
	if (self->fd >= 0 && !snt_io_uring_put(self, 0))
		self->loop = loop;
	return self->fd < 0 ? self->fd : self->loop ? 0 : -EAGAIN;
}

/**
 * snt_io_uring_ready - handle a completion with that user_data
 *
 * Where the kernel ends the poll, say for want of room, another one is begun.
 * Returns: 0; the errno of a poll that failed, or could not be begun: it is detached.
 */
static inline int snt_io_uring_ready(struct snt_io_uring *self,
				     const struct io_uring_cqe *cqe)
{
	int is_last = !(cqe->flags & IORING_CQE_F_MORE);
	int ret = self->loop && cqe->res < 0 ? cqe->res : 0;

	self->is_ready = 1;
	self->pending -= is_last;
	if (self->loop && !ret && is_last)
		ret = snt_io_uring_put(self, 0);
	self->loop = ret ? NULL : self->loop;
	return ret;
}

/**
 * snt_io_uring_dispatch - after the last completion: run callbacks once for all
 * Returns: as snt_loop_dispatch(); 0 if there was none, or it is not attached.
 */
static inline int snt_io_uring_dispatch(struct snt_io_uring *self)
{
	int is_ready = self->loop && self->is_ready;

	self->is_ready = 0;
	return is_ready ? snt_loop_dispatch(self->loop, self->budget) : 0;
}

/**
 * snt_io_uring_detach - stop watching the loop; nothing is lost
 * Returns: 0; -EAGAIN, and it is still attached, if the ring has no room for a request.
 */
static inline int snt_io_uring_detach(struct snt_io_uring *self)
{
	int ret = self->loop ? snt_io_uring_put(self, 1) : 0;

	self->loop = ret ? self->loop : NULL;
	return ret;
}

#endif
