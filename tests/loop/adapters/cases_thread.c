/* SPDX-License-Identifier: MIT */
/*
 * Several threads: the one call that is legal from others, and contexts that move.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "loop/adapters/cases.h"
#include "loop/adapters/talk.h"

/*
 * Waking
 */

#define WAKERS 3
#define WAKES  500

struct waker {
	pthread_t thread;
	struct snt_loop *loop;
	atomic_uint asked;
	unsigned seen; /* by the loop */
	sem_t answered;
};

struct bell {
	struct waker waker[WAKERS];
	unsigned seen; /* of all */
};

/* Every other time it waits for the answer, so that wakes find the loop asleep, waking
 * up, and busy. */
static void *wake_often(void *arg)
{
	struct waker *waker = arg;

	for (unsigned i = 1; i <= WAKES; i++) {
		atomic_store_explicit(&waker->asked, i, memory_order_relaxed);
		must(snt_loop_wake(waker->loop), "wake");
		if (i % 2)
			continue;
		while (sem_wait(&waker->answered))
			;
	}
	return NULL;
}

static void woken(void *arg, struct snt_loop *loop)
{
	struct bell *bell = arg;

	(void)loop;
	for (unsigned i = 0; i < WAKERS; i++) {
		struct waker *waker = &bell->waker[i];
		unsigned asked =
			atomic_load_explicit(&waker->asked, memory_order_relaxed);

		for (; waker->seen < asked; waker->seen++) {
			bell->seen++;
			if ((waker->seen + 1) % 2 == 0)
				sem_post(&waker->answered);
		}
	}
}

/* A letter is not locked, nor atomic: the wake makes it visible. */
struct letter {
	pthread_t thread;
	struct snt_loop *loop;
	unsigned text;
	unsigned read; /* by the loop */
	sem_t answered;
};

static void *write_letters(void *arg)
{
	struct letter *letter = arg;

	for (unsigned i = 1; i <= WAKES; i++) {
		letter->text = i;
		must(snt_loop_wake(letter->loop), "wake");
		while (sem_wait(&letter->answered))
			;
	}
	return NULL;
}

static void read_letter(void *arg, struct snt_loop *loop)
{
	struct letter *letter = arg;

	(void)loop;
	expect(letter->text == letter->read + 1, "letter %u after %u", letter->text,
	       letter->read);
	letter->read = letter->text;
	sem_post(&letter->answered);
}

static void letters_arrive(struct world *world)
{
	struct letter letter = { 0 };

	world_open(world, &(struct world_opts){ 0 });
	letter.loop = world->end[1].loop;
	sem_init(&letter.answered, 0, 0);
	must(snt_loop_set_wake_handler(letter.loop, read_letter, &letter), "wakes");
	expect(!pthread_create(&letter.thread, NULL, write_letters, &letter),
	       "no thread");
	while (letter.read < WAKES)
		world->driver->turn(true);
	pthread_join(letter.thread, NULL);
	sem_destroy(&letter.answered);
	world_close(world);
}

static void wake_from_threads(struct world *world)
{
	struct bell bell = { 0 };
	struct talk talk;

	world_open(world, &(struct world_opts){ 0 });
	must(snt_loop_set_wake_handler(world->end[0].loop, woken, &bell), "wakes");
	talk_begin(&talk, world, 0, 20);
	for (unsigned i = 0; i < WAKERS; i++) {
		struct waker *waker = &bell.waker[i];

		waker->loop = world->end[0].loop;
		sem_init(&waker->answered, 0, 0);
		expect(!pthread_create(&waker->thread, NULL, wake_often, waker),
		       "no thread");
	}
	while (bell.seen < WAKERS * WAKES) {
		world_step(world);
		world->driver->turn(!world_steps(world) || talk.done);
	}
	for (unsigned i = 0; i < WAKERS; i++) {
		pthread_join(bell.waker[i].thread, NULL);
		sem_destroy(&bell.waker[i].answered);
	}
	world_until(world, &talk.done, 1);
	world_close(world);
}

/*
 * Moving
 */

#define THREADS 2
#define MOVES	6

struct mover {
	pthread_t thread;
	struct world *world;
	sem_t mine, *next;
};

/* A loop of its own, in which the contexts are for a while. */
static void use(struct world *world)
{
	struct talk talk;

	must(world->driver->start(), "the event loop");
	for (unsigned i = 0; i < 2; i++)
		world_attach(world, i, 0);
	talk_begin(&talk, world, 0, 5);
	world_until(world, &talk.done, 1);
	for (unsigned i = 0; i < 2; i++)
		world_close_qp(world, i, 0);
	for (unsigned i = 0; i < 2; i++)
		world_detach(world, i);
	world->driver->stop();
}

static void renew(struct world *world)
{
	struct snt_card card[2];

	for (unsigned i = 0; i < 2; i++) {
		struct world_end *end = &world->end[i];
		struct snt_qp_opts opts = {
			.size = sizeof(opts), .cq = end->cq[0], .lanes = 1, .devices = 1
		};

		must(snt_qp_create(end->ctx, &opts, &end->qp[0]), "a QP");
		must(snt_qp_card(end->qp[0], &card[i]), "a card");
	}
	for (unsigned i = 0; i < 2; i++)
		must(snt_qp_connect(world->end[i].qp[0], &card[!i]), "connect");
}

static void *move(void *arg)
{
	struct mover *mover = arg;

	for (unsigned i = 0; i < MOVES; i++) {
		while (sem_wait(&mover->mine))
			;
		use(mover->world);
		renew(mover->world);
		sem_post(mover->next);
	}
	return NULL;
}

static void move_between_threads(struct world *world)
{
	struct mover mover[THREADS];

	world_open(world, &(struct world_opts){ .detached = true });
	for (unsigned i = 0; i < THREADS; i++) {
		mover[i].world = world;
		mover[i].next = &mover[(i + 1) % THREADS].mine;
		sem_init(&mover[i].mine, 0, !i);
	}
	for (unsigned i = 0; i < THREADS; i++)
		expect(!pthread_create(&mover[i].thread, NULL, move, &mover[i]),
		       "no thread");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(mover[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		sem_destroy(&mover[i].mine);
	world_close(world);
}

const struct loop_case cases_thread[] = {
	{ "wake from threads", ON_CLOCK, CASE_THREADS, wake_from_threads },
	{ "a wake makes writes visible", ON_CLOCK, CASE_THREADS, letters_arrive },
	{ "move between threads", ON_ALL, CASE_THREADS, move_between_threads },
	{ 0 },
};
