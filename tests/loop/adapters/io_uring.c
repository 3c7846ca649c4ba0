/* SPDX-License-Identifier: MIT */
#include <sennit/adapters/io_uring.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop/adapters/driver.h"
#include "loop/adapters/slot.h"

/* Few, so that queues are full now and then. */
#define ENTRIES 4

static _Thread_local struct {
	struct io_uring ring;
	struct slot *slots;
	unsigned turns;
} loop;

static int start(void)
{
	return io_uring_queue_init(ENTRIES, &loop.ring, 0);
}

static struct io_uring_sqe *next_sqe(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loop.ring);

	if (!sqe && io_uring_submit(&loop.ring) > 0)
		sqe = io_uring_get_sqe(&loop.ring);
	driver_must(sqe ? 0 : -EAGAIN, "io_uring_get_sqe");
	return sqe;
}

static void *attach(struct snt_loop *inner, int budget)
{
	struct slot *slot = slot_add(&loop.slots);
	struct snt_io_uring *sennit = calloc(1, sizeof(*sennit));

	driver_must(sennit ? 0 : -ENOMEM, "an adapter");
	sennit->budget = budget;
	slot->adapter = sennit;
	driver_must(snt_io_uring_attach(sennit, inner, &loop.ring, (uintptr_t)slot),
		    "attach");
	driver_refused(snt_io_uring_attach(sennit, inner, &loop.ring, (uintptr_t)slot));
	slot->pending = 1;
	return slot;
}

static void detach(void *attached)
{
	struct slot *slot = attached;

	driver_must(snt_io_uring_detach(slot->adapter), "detach");
	slot->is_gone = true;
}

/* The program's own polls fire once. */
static void poll_once(struct slot *slot)
{
	struct io_uring_sqe *sqe = next_sqe();

	io_uring_prep_poll_add(sqe, slot->fd, POLLIN);
	io_uring_sqe_set_data64(sqe, (uintptr_t)slot);
	slot->pending++;
}

static void *watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct slot *slot = slot_add(&loop.slots);

	slot->fd = fd;
	slot->ready = ready;
	slot->arg = arg;
	poll_once(slot);
	return slot;
}

static void unwatch(void *watched)
{
	struct slot *slot = watched;
	struct io_uring_sqe *sqe;

	slot->is_gone = true;
	if (!slot->pending)
		return;
	sqe = next_sqe();
	io_uring_prep_cancel64(sqe, (uintptr_t)slot, 0);
	io_uring_sqe_set_data64(sqe, (uintptr_t)slot);
	slot->pending++;
}

static void handle_adapter(struct slot *slot, const struct io_uring_cqe *cqe)
{
	struct snt_io_uring *sennit = slot->adapter;

	driver_must(snt_io_uring_ready(sennit, cqe), "the poll of an adapter");
	slot->pending = sennit->pending;
	if (slot->is_gone && !sennit->pending)
		free(sennit);
}

static void handle_own(struct slot *slot)
{
	slot->pending--;
	if (slot->is_gone)
		return;
	slot->ready(slot->arg);
	if (!slot->is_gone)
		poll_once(slot);
}

/* Every now and then the completion queue is full until the next turn: then the kernel ends
 * polls that have something to tell. */
static void crowd(void)
{
	if (++loop.turns % 4)
		return;
	for (int i = 0; i < 2 * ENTRIES; i++) {
		struct io_uring_sqe *sqe = next_sqe();

		io_uring_prep_nop(sqe);
		io_uring_sqe_set_data64(sqe, 0);
	}
	driver_must(io_uring_submit(&loop.ring), "io_uring_submit");
}

static void turn(bool may_sleep)
{
	int ret = io_uring_submit_and_wait(&loop.ring, may_sleep);
	struct io_uring_cqe *cqe;

	driver_must(ret == -EINTR ? 0 : ret, "io_uring_submit_and_wait");
	/* Wakes of this thread's own are not completions before it enters the kernel. */
	driver_must(io_uring_get_events(&loop.ring), "io_uring_get_events");
	while (!io_uring_peek_cqe(&loop.ring, &cqe)) {
		struct io_uring_cqe copy = *cqe;
		struct slot *slot = (struct slot *)(uintptr_t)copy.user_data;

		io_uring_cqe_seen(&loop.ring, cqe);
		if (!slot)
			continue;
		if (slot->adapter)
			handle_adapter(slot, &copy);
		else
			handle_own(slot);
	}
	for (struct slot *slot = loop.slots; slot; slot = slot->next)
		if (slot->adapter && !slot->is_gone)
			driver_dispatched(snt_io_uring_dispatch(slot->adapter));
	slot_sweep(&loop.slots);
	crowd();
}

/* What was given up is still told of. */
static void stop(void)
{
	for (int i = 0; loop.slots && i < 1000; i++)
		turn(false);
	driver_must(loop.slots ? -EBUSY : 0, "something is left in the loop");
	io_uring_queue_exit(&loop.ring);
}

static const struct driver driver = {
	.name = "io_uring",
	.start = start,
	.stop = stop,
	.turn = turn,
	.attach = attach,
	.detach = detach,
	.watch = watch,
	.unwatch = unwatch,
};

const struct driver *const drivers[] = { &driver, NULL };
