/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/progress.h"

#include "util/assert.h"
#include "util/minmax.h"

/*
 * The owner after each event. An event that changes nothing is either one that cannot
 * happen there, or of no concern: while a thread has borrowed what arrives, others may
 * poll and arm as they like.
 */
#define THREAD	 SNT__OWNER_THREAD
#define POLLER	 SNT__OWNER_POLLER
#define BORROWER SNT__OWNER_BORROWER
#define WATCHER	 SNT__OWNER_WATCHER
#define RETURNED SNT__OWNER_RETURNED
#define OVERDUE	 SNT__OWNER_OVERDUE

/* clang-format off */
static const uint8_t next_owner[SNT__OWNER_COUNT][SNT__PROGRESS_EVENTS] = {
	/*         BUSY      ARMED     BORROWED  WATCHED   REFUSED   RETURNED  QUIET     LATE */
	[THREAD]  = {POLLER,   THREAD,   BORROWER, WATCHER,  THREAD,   THREAD,   THREAD,   THREAD},
	[POLLER]  = {POLLER,   THREAD,   BORROWER, WATCHER,  POLLER,   POLLER,   THREAD,   POLLER},
	[BORROWER]= {BORROWER, BORROWER, BORROWER, BORROWER, BORROWER, RETURNED, BORROWER, OVERDUE},
	[WATCHER] = {WATCHER,  WATCHER,  WATCHER,  WATCHER,  WATCHER,  RETURNED, WATCHER,  OVERDUE},
	[RETURNED]= {POLLER,   RETURNED, BORROWER, WATCHER,  POLLER,   RETURNED, THREAD,   THREAD},
	[OVERDUE] = {OVERDUE,  OVERDUE,  OVERDUE,  OVERDUE,  OVERDUE,  THREAD,   OVERDUE,  OVERDUE},
};
/* clang-format on */

static void change_owner(struct snt__progress *progress, enum snt__progress_event event)
{
	progress->owner = next_owner[progress->owner][event];
}

bool snt__progress_is_away(const struct snt__progress *progress)
{
	return progress->owner == POLLER || progress->owner == RETURNED ||
	       snt__progress_is_awaited(progress);
}

/*
 * Threads of the program
 */

/* Threads that count at the same time may count once: it is the others' polls that
 * matter to a thread that could not have the lock. */
void snt__progress_count_poll(struct snt__progress *progress)
{
	atomic_store_explicit(&progress->polls, snt__progress_polls(progress) + 1,
			      memory_order_relaxed);
}

void snt__progress_set_polled_at(struct snt__progress *progress, uint64_t now)
{
	atomic_store_explicit(&progress->polled_at, now, memory_order_relaxed);
}

/* Calls that come often and without a pause for long enough are those of a busy
 * poller. */
void snt__progress_see_poll(struct snt__progress *progress, uint64_t begin,
			    uint64_t end)
{
	unsigned polls = snt__progress_polls(progress);

	if (snt__progress_pause(progress, begin) > SNT__PROGRESS_PAUSE) {
		progress->polling_since = begin;
		progress->polls_before = polls;
	}
	snt__progress_set_polled_at(progress, end);
	if (end - progress->polling_since >= SNT__PROGRESS_PAUSE &&
	    polls - progress->polls_before >= SNT__PROGRESS_POLLS)
		change_owner(progress, SNT__PROGRESS_POLLS_BUSY);
}

/* While the post was in the kernel, other threads may have polled, or posted for as
 * long. */
void snt__progress_see_post(struct snt__progress *progress, uint64_t begin,
			    uint64_t end)
{
	uint64_t at = end - (uint64_t)snt__progress_pause(progress, begin);

	if (snt__progress_is_away(progress))
		snt__progress_set_polled_at(progress, at < end ? at : end);
}

bool snt__progress_borrow(struct snt__progress *progress, enum snt__progress_event how,
			  uint64_t now, bool possible)
{
	bool lent = snt__progress_is_lent(progress);

	possible &= !lent && now >= progress->lend_at;
	change_owner(progress, possible ? how : SNT__PROGRESS_REFUSED);
	return possible;
}

void snt__progress_return(struct snt__progress *progress, uint64_t now)
{
	snt__assert(snt__progress_is_lent(progress));
	change_owner(progress, SNT__PROGRESS_RETURNED);
	progress->returned_at = now;
	snt__progress_set_polled_at(progress, now);
	snt__progress_count_poll(progress);
	/* A program that sleeps is no busy poller, however often it comes. */
	progress->polling_since = now;
	progress->polls_before = snt__progress_polls(progress);
}

void snt__progress_arm(struct snt__progress *progress)
{
	change_owner(progress, SNT__PROGRESS_ARMED);
	if (!snt__progress_is_away(progress))
		snt__progress_set_polled_at(progress, 0);
}

/*
 * The device's thread
 */

void snt__progress_take_back(struct snt__progress *progress)
{
	if (snt__progress_is_lent(progress))
		change_owner(progress, SNT__PROGRESS_LATE);
}

/* A program that does it again soon after it was trusted again is trusted later. */
static void distrust_program(struct snt__progress *progress, uint64_t now)
{
	uint64_t longer = snt__min(2 * progress->distrust, SNT__PROGRESS_DISTRUST_MAX);
	bool again = progress->distrust && now - progress->lend_at < progress->distrust;

	progress->distrust = again ? longer : SNT__PROGRESS_DISTRUST;
	progress->lend_at = now + progress->distrust;
	change_owner(progress, SNT__PROGRESS_LATE);
}

void snt__progress_moved(struct snt__progress *progress, bool answered, uint64_t now)
{
	if (progress->owner != RETURNED)
		return;
	if (answered) {
		distrust_program(progress, now);
	} else if (snt__progress_pause(progress, now) > SNT__PROGRESS_SILENCE) {
		change_owner(progress, SNT__PROGRESS_QUIET);
	}
}

/* A poller handles timers, too; a thread that sleeps does not. One that has returned, and
 * has been away since, may or may not come back. */
bool snt__progress_yields(const struct snt__progress *progress, uint64_t deadline,
			  uint64_t now)
{
	if (progress->owner == RETURNED)
		return snt__progress_pause(progress, now) <= SNT__PROGRESS_PAUSE;
	return snt__progress_is_away(progress) &&
	       (!snt__progress_is_lent(progress) || deadline > now);
}

/* A poller may have lost its processor to this thread. It looks itself; if this thread
 * kept polling, that would keep the poller off the processor and be taken for a
 * pause. */
static bool goes_on(const struct snt__progress *progress, bool held, uint64_t now)
{
	uint64_t spin = held ? SNT__PROGRESS_PAUSE : SNT__PROGRESS_SPIN;

	return now - progress->active_at < spin &&
	       snt__progress_pause(progress, now) > SNT__PROGRESS_PAUSE;
}

static struct snt__progress_plan plan_thread_sleep(
	const struct snt__progress *progress, const struct snt__progress_work *work,
	uint64_t now)
{
	struct snt__progress_plan plan = { SNT__THREAD_ASLEEP, work->deadline };

	if (goes_on(progress, work->held, now))
		plan.until = now;
	else if (work->held)
		plan.until = snt__min(work->deadline, now + SNT__PROGRESS_IDLE);
	else if (now - progress->active_at < SNT__PROGRESS_HORIZON)
		plan.until = snt__min(work->deadline, now + SNT__PROGRESS_HORIZON);
	return plan;
}

/* A borrower that sleeps handles neither timers nor packets that wait for room. After a
 * silence it may be held up rather than asleep. One that may compute instead is checked
 * on at every nap. */
static struct snt__progress_plan plan_nap(const struct snt__progress *progress,
					  const struct snt__progress_work *work,
					  uint64_t now)
{
	struct snt__progress_plan plan = { SNT__THREAD_NAPPING,
					   now + SNT__PROGRESS_NAP };
	uint64_t quiet = now - progress->active_at;

	if (progress->owner == WATCHER)
		plan.thread = SNT__THREAD_CHECKING;
	if (!snt__progress_is_lent(progress) || work->stalled)
		return plan;
	if (quiet >= SNT__PROGRESS_SILENCE)
		plan = (struct snt__progress_plan){ SNT__THREAD_GUARDING,
						    SNT__PROGRESS_NEVER };
	else if (quiet >= SNT__PROGRESS_IDLE && progress->owner == BORROWER)
		plan.until = progress->active_at + SNT__PROGRESS_SILENCE;
	plan.until = snt__min(plan.until, work->deadline);
	return plan;
}

struct snt__progress_plan snt__progress_plan(const struct snt__progress *progress,
					     const struct snt__progress_work *work,
					     uint64_t now)
{
	struct snt__progress_plan plan =
		snt__progress_is_away(progress)
			? plan_nap(progress, work, now)
			: plan_thread_sleep(progress, work, now);

	if (plan.until <= now || work->left)
		plan.thread = SNT__THREAD_AWAKE;
	return plan;
}

void snt__progress_sleep(struct snt__progress *progress, struct snt__progress_plan plan)
{
	progress->thread = plan.thread;
	progress->wake_at = plan.thread == SNT__THREAD_AWAKE ? 0 : plan.until;
}

bool snt__progress_naps_on(const struct snt__progress *progress, unsigned *polls)
{
	unsigned before = *polls;

	*polls = snt__progress_polls(progress);
	return *polls - before >= SNT__PROGRESS_POLLS / 2;
}

/* A poller that seems to have stopped may have lost its processor for a while, or be
 * moving packets for long, for which it has the lock. */
void snt__progress_end_nap(struct snt__progress *progress, uint64_t now)
{
	if (progress->owner == POLLER &&
	    snt__progress_pause(progress, now) > SNT__PROGRESS_PAUSE)
		change_owner(progress, SNT__PROGRESS_QUIET);
}

void snt__progress_end_guard(struct snt__progress *progress, unsigned polls,
			     uint64_t now)
{
	if (snt__progress_polls(progress) != polls)
		return;
	if (progress->owner == WATCHER)
		distrust_program(progress, now);
	else
		change_owner(progress, SNT__PROGRESS_LATE);
}

/* The latest time at which the thread wakes up by itself: naps may follow each
 * other. */
static uint64_t awake_at(const struct snt__progress *progress, uint64_t now)
{
	uint64_t nap = snt__progress_naps(progress) ? now + SNT__PROGRESS_NAP : 0;

	return progress->wake_at > nap ? progress->wake_at : nap;
}

/* A busy poller handles timers and what did not fit, too; a thread that sleeps does
 * not. */
static bool has_to_work(const struct snt__progress *progress,
			const struct snt__progress_work *work, uint64_t now)
{
	if (snt__progress_naps(progress) && !snt__progress_is_lent(progress))
		return false;
	return work->stalled || work->left || work->deadline < awake_at(progress, now);
}

static bool has_to_wake(const struct snt__progress *progress,
			enum snt__progress_reason reason,
			const struct snt__progress_work *work, uint64_t now)
{
	switch (reason) {
	case SNT__WAKE_WORK:
		return has_to_work(progress, work, now);
	case SNT__WAKE_BORROWED:
		return progress->thread == SNT__THREAD_ASLEEP_APART;
	case SNT__WAKE_RETURNED:
		return progress->wake_at > now + SNT__PROGRESS_NAP;
	case SNT__WAKE_BELL:
		return true;
	case SNT__WAKE_ARMED:
		return snt__progress_naps(progress) && !snt__progress_is_away(progress);
	}
	return true;
}

bool snt__progress_wake(struct snt__progress *progress,
			enum snt__progress_reason reason,
			const struct snt__progress_work *work, uint64_t now)
{
	if (progress->thread == SNT__THREAD_AWAKE ||
	    !has_to_wake(progress, reason, work, now))
		return false;
	snt__progress_sleep(progress,
			    (struct snt__progress_plan){ SNT__THREAD_AWAKE, now });
	return true;
}
