/* SPDX-License-Identifier: MIT */
/*
 * Waiting: spins first, then sleeps.
 */
#include <errno.h>
#include <pthread.h>

#include "loop/op.h"
#include "loop/sleep.h"
#include "vqp/qp.h"

#define BUDGET 256

/* In simulated time polls take none, so that a spin would have no end. */
static int64_t spin_for(struct snt_loop *loop)
{
	bool simulated = loop->sleep;

	if (loop->spin_ns != SNT_SPIN_AUTO)
		return loop->spin_ns;
	return simulated ? 0 : (int64_t)snt__spin_for(&loop->spin);
}

/* Polls between two readings of the clock. */
#define SPINS 8

/* Spinning between two checks of the fd, for a loop that must not sleep. */
#define AWAKE_NS 50000

static bool is_woken(struct snt_loop *loop)
{
	return atomic_load_explicit(&loop->woken, memory_order_relaxed);
}

/* The rest of a timeout; -1 is for ever. */
static int64_t left_of(const struct snt_loop *loop, int64_t timeout_ns, uint64_t begin)
{
	uint64_t spent;

	if (timeout_ns <= 0)
		return timeout_ns;
	spent = snt__loop_now(loop) - begin;
	return spent < (uint64_t)timeout_ns ? timeout_ns - (int64_t)spent : 0;
}

/* Returns the result of polling; 0: nothing came. The clock is read only now and
 * then. */
static int spin_loop(struct snt_loop *loop, uint64_t begin, uint64_t spin_ns,
		     bool *woken, bool *gone)
{
	do {
		for (int i = 0; i < SPINS; i++) {
			int count;

			*woken = is_woken(loop);
			count = snt__loop_poll(loop, BUDGET, gone);
			if (count || *woken || *gone)
				return count;
		}
	} while (snt__loop_now(loop) - begin < spin_ns);
	return 0;
}

static int sleep_and_list(struct snt_loop *loop, struct snt__sleep *sleep,
			  int64_t timeout_ns, bool *gone)
{
	int ret = snt__sleep_on(loop, sleep, timeout_ns);

	if (ret)
		return ret;
	snt__rx_take(loop);
	snt__serve_list_later(&loop->base.polled_cqs);
	return snt__loop_run(loop, BUDGET, true, gone);
}

/* For CQs without events, which cannot wake a sleeping thread. */
static int wait_awake(struct snt_loop *loop, int64_t timeout_ns, uint64_t begin,
		      bool *gone)
{
	for (;;) {
		int64_t left = left_of(loop, timeout_ns, begin);
		bool woken;
		int ret = spin_loop(loop, snt__loop_now(loop), AWAKE_NS, &woken, gone);

		if (ret || woken || *gone)
			return ret;
		woken = is_woken(loop);
		if (snt__loop_has_fd(loop))
			ret = sleep_and_list(loop, &(struct snt__sleep){ 0 }, 0, gone);
		if (ret || woken || *gone || !left)
			return ret;
	}
}

static int wait_asleep(struct snt_loop *loop, int64_t timeout_ns, uint64_t begin,
		       bool *gone)
{
	int ret = snt__loop_make_fd(loop);
	struct snt__sleep sleep;

	if (ret)
		return ret;
	snt__sleep_borrow(loop, &sleep, timeout_ns);
	ret = snt__loop_arm(loop);
	if (ret < 0) {
		snt__sleep_not(loop, &sleep);
		return ret;
	}
	ret = sleep_and_list(loop, &sleep, ret ? 0 : left_of(loop, timeout_ns, begin),
			     gone);
	if (!*gone && loop->dispatched)
		snt__rx_lend(loop);
	return ret;
}

/* The innermost shield of this thread. */
static _Thread_local struct snt__shield shield;

void snt__shield_begin(const struct snt_loop *loop, struct snt__shield *kept)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	*kept = shield;
	kept->outer_state = state;
	if (shield.loop != loop)
		shield = (struct snt__shield){ .loop = loop, .cancel_state = state };
}

void snt__shield_end(const struct snt__shield *kept)
{
	shield = *kept;
	pthread_setcancelstate(kept->outer_state, NULL);
}

static int wait_loop_shielded(struct snt_loop *loop, int64_t timeout_ns, bool *gone)
{
	int ret = snt__loop_enter(loop, BUDGET);
	bool woken = false;
	int64_t spin_ns;
	uint64_t begin;

	if (ret)
		return ret;
	loop->cancel_state = shield.cancel_state;
	begin = snt__loop_now(loop);
	if (!snt__list_empty(&loop->base.polled_cqs))
		return wait_awake(loop, timeout_ns, begin, gone);
	spin_ns = spin_for(loop);
	if (timeout_ns >= 0 && timeout_ns < spin_ns)
		spin_ns = timeout_ns;
	if (spin_ns)
		ret = spin_loop(loop, begin, spin_ns, &woken, gone);
	if (!ret && !woken && !*gone)
		ret = wait_asleep(loop, timeout_ns, begin, gone);
	if (!*gone && ret >= 0 && loop->spin_ns == SNT_SPIN_AUTO)
		snt__spin_learn(&loop->spin, snt__loop_now(loop) - begin);
	return ret;
}

/* Callbacks, and everything else that must not stay half done, run with cancellation
 * disabled. */
static int wait_loop(struct snt_loop *loop, int64_t timeout_ns, bool *gone)
{
	struct snt__shield kept;
	int ret;

	snt__shield_begin(loop, &kept);
	ret = wait_loop_shielded(loop, timeout_ns, gone);
	snt__shield_end(&kept);
	return ret;
}

/* In a callback, where waiting is refused, there may be a wait around it with an undo
 * of its own. */
static int wait_undo(struct snt_loop *loop, int64_t timeout_ns, void (*undo)(void *arg),
		     void *arg, bool *gone)
{
	void (*kept_undo)(void *arg) = loop->undo;
	void *kept_arg = loop->undo_arg;
	int ret;

	loop->undo = undo;
	loop->undo_arg = arg;
	ret = wait_loop(loop, timeout_ns, gone);
	if (*gone)
		return ret;
	loop->undo = kept_undo;
	loop->undo_arg = kept_arg;
	return ret;
}

int snt__loop_wait_undo(struct snt_loop *loop, int64_t timeout_ns,
			void (*undo)(void *arg), void *arg)
{
	bool gone = false;

	return wait_undo(loop, timeout_ns, undo, arg, &gone);
}

int snt_loop_wait(struct snt_loop *loop, int64_t timeout_ns)
{
	bool gone = false;

	return wait_loop(loop, timeout_ns, &gone);
}

int snt__wait_for(struct snt_loop *loop, struct snt__waiter *waiter, const char *what,
		  int64_t timeout_ns, void (*forget)(void *arg), void *arg)
{
	uint64_t begin = snt__loop_now(loop);
	bool gone = false;

	for (;;) {
		int64_t left = left_of(loop, timeout_ns, begin);
		int ret = wait_undo(loop, left, forget, arg, &gone);

		if (waiter->done)
			return waiter->result < 0 ? snt__fail(-waiter->result, "%s",
							      waiter->why.text)
						  : waiter->result;
		if (ret >= 0 && !gone && left)
			continue;
		forget(arg);
		return ret < 0 ? ret
			       : snt__fail(ETIME,
					   "timed out waiting for %s, which goes on",
					   what);
	}
}

static void forget_op_waiter(void *arg)
{
	struct snt_op *op = arg;

	op->flags &= ~SNT__OP_WAITED;
}

int snt_op_wait(struct snt_op *op, int64_t timeout_ns)
{
	struct snt__waiter waiter = { 0 };
	int ret;

	if (op->state == SNT__OP_UNUSED || op->flags & SNT__OP_TOLD)
		return op->result < 0 ? snt__fail(-op->result, "%s", snt_op_text(op))
				      : op->result;
	/* A caller inside a callback may be waiting for the same op already. */
	ret = snt__loop_enter(op->loop, BUDGET);
	if (ret)
		return ret;
	op->waiter = &waiter;
	op->flags |= SNT__OP_WAITED;
	return snt__wait_for(op->loop, &waiter, "the op", timeout_ns, forget_op_waiter,
			     op);
}
