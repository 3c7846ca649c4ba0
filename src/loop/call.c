/* SPDX-License-Identifier: MIT */
/*
 * Calls: functions that other threads have run in the loop's thread.
 *
 * Any thread pushes onto a stack, without a lock and in one step, so that a thread
 * which is stopped or killed in the middle holds up no other. The loop takes the whole
 * stack at once and reverses it. `queued` is cleared before the function runs: a thread
 * that finds it set is covered by the run that follows, and one that finds it cleared
 * queues again.
 */
#include <errno.h>

#include "loop/loop.h"
#include "util/assert.h"

/* In snt_call::queued. */
enum {
	NOT_QUEUED,
	OF_PROGRAM,
	OF_LIBRARY,
};

static void push_call(struct snt_loop *loop, struct snt_call *call)
{
	struct snt_call *top = atomic_load_explicit(&loop->inbox, memory_order_relaxed);

	do
		call->next = top;
	while (!atomic_compare_exchange_weak(&loop->inbox, &top, call));
	snt__loop_ring(loop);
}

int snt_loop_call(struct snt_loop *loop, struct snt_call *call)
{
	int kept = errno;

	if (snt__loop_forked(loop))
		return -ECHILD;
	if (!call->run)
		return -EINVAL;
	if (__atomic_exchange_n(&call->queued, OF_PROGRAM, __ATOMIC_ACQ_REL))
		return -EALREADY;
	push_call(loop, call);
	errno = kept;
	return 0;
}

void snt__call_post(struct snt_loop *loop, struct snt_call *call)
{
	call->queued = OF_LIBRARY;
	push_call(loop, call);
}

bool snt__call_waits(const struct snt_loop *loop)
{
	return loop->calls || atomic_load(&loop->inbox);
}

static void take_inbox(struct snt_loop *loop)
{
	struct snt_call *at, *first = NULL, **end;

	if (!atomic_load_explicit(&loop->inbox, memory_order_relaxed))
		return;
	at = atomic_exchange(&loop->inbox, NULL);
	if (!at)
		return;
	/* The latest is on top, and becomes the last. */
	end = &at->next;
	while (at) {
		struct snt_call *next = at->next;

		at->next = first;
		first = at;
		at = next;
	}
	snt__assert(!*loop->calls_end);
	*loop->calls_end = first;
	loop->calls_end = end;
}

/* Other threads may just be told that it is. */
static bool is_call_queued(const struct snt_call *call)
{
	return __atomic_load_n(&call->queued, __ATOMIC_RELAXED) != NOT_QUEUED;
}

void snt__call_run(struct snt__round *run, int reserve)
{
	struct snt_loop *loop = run->loop;

	take_inbox(loop);
	while (!run->gone && run->left > reserve && loop->calls) {
		struct snt_call *call = loop->calls;

		snt__assert(is_call_queued(call));
		loop->calls = call->next;
		if (!loop->calls)
			loop->calls_end = &loop->calls;
		run->count++;
		run->left--;
		__atomic_exchange_n(&call->queued, NOT_QUEUED, __ATOMIC_ACQ_REL);
		call->run(call);
	}
}

bool snt__call_has_programs(struct snt_loop *loop)
{
	bool found = false;

	take_inbox(loop);
	for (const struct snt_call *at = loop->calls; at; at = at->next)
		found |= __atomic_load_n(&at->queued, __ATOMIC_RELAXED) == OF_PROGRAM;
	return found;
}

void snt__call_run_those(struct snt_loop *loop, void (*run)(struct snt_call *call))
{
	struct snt_call **link = &loop->calls;

	take_inbox(loop);
	while (*link) {
		struct snt_call *call = *link;

		if (call->run != run) {
			link = &call->next;
			continue;
		}
		*link = call->next;
		if (!*link)
			loop->calls_end = link;
		run(call);
	}
}

void snt__call_run_own(struct snt_loop *loop)
{
	take_inbox(loop);
	while (loop->calls) {
		struct snt_call *call = loop->calls;

		loop->calls = call->next;
		call->run(call);
	}
	loop->calls_end = &loop->calls;
}
