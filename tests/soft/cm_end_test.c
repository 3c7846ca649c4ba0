/* SPDX-License-Identifier: MIT */
/* Connections end: refused, given up, let go of in every phase; and how many there may
 * be. */
#include "lib/test.h"
#include "lib/cm_kit.h"

#include "lib/fault.h"

#define SECOND UINT64_C(1000000000)

static enum kit_fate drop_kind(struct kit *kit, const struct kit_frame *frame)
{
	bool drops = frame->message.kind == kit->chosen_kind &&
		     frame->to != kit->chosen_from && kit->chosen;

	kit->chosen -= drops;
	return drops ? KIT_DROP : KIT_PASS;
}

/* The next @count messages of a kind, from one end, are lost. */
static void lose(struct kit *kit, unsigned from, enum snt__cm_kind kind, unsigned count)
{
	kit->fate = drop_kind;
	kit->chosen = count;
	kit->chosen_from = from;
	kit->chosen_kind = kind;
}

/*
 * Refusal
 */

static void passive_rejects(void **state)
{
	(void)state;
	/* The REJ is lost, or not: the program is asked once. */
	for (unsigned lost = 0; lost < 3; lost++) {
		struct kit *kit = kit_open(NULL, false);
		struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;
		struct snt__cm_event event;

		kit_pump(kit);
		b = kit_request(kit);
		lose(kit, B, SNT__CM_REJ, lost);
		assert_int_equal(snt__soft_cm_reject(kit->cm[B], b, "too many", 9), 0);
		assert_int_equal(snt__soft_cm_reject(kit->cm[B], b, "x", 2), -ENOTCONN);
		snt__soft_cm_release(kit->cm[B], b);
		kit_run_for(kit, SECOND);
		kit_expect_none(kit, B);
		event = kit_expect(kit, A, SNT__CM_EVENT_REJECTED);
		assert_int_equal(event.reason, SNT__CM_REASON_CONSUMER);
		assert_int_equal(event.data_length, SNT__CM_REJECT_DATA);
		assert_string_equal((char *)event.data, "too many");
		assert_int_equal(kit_seen(kit, B, SNT__CM_REJ)->rej.about,
				 SNT__CM_ABOUT_REQ);
		assert_int_equal(kit_sent(kit, A, SNT__CM_REQ), 1 + lost);
		snt__soft_cm_release(kit->cm[A], a);
		kit_expect_empty(kit);
		kit_close(kit);
	}
}

static void active_rejects(void **state)
{
	(void)state;
	for (unsigned lost = 0; lost < 3; lost++) {
		struct kit *kit = kit_open(NULL, false);
		struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;
		struct snt__cm_event event;

		kit_pump(kit);
		b = kit_request(kit);
		kit_accept(kit, b, 20);
		kit_pump(kit);
		kit_expect(kit, A, SNT__CM_EVENT_RESPONSE);
		lose(kit, A, SNT__CM_REJ, lost);
		assert_int_equal(snt__soft_cm_reject(kit->cm[A], a, "not you", 8), 0);
		snt__soft_cm_release(kit->cm[A], a);
		kit_run_for(kit, SECOND);
		event = kit_expect(kit, B, SNT__CM_EVENT_REJECTED);
		assert_int_equal(event.reason, SNT__CM_REASON_CONSUMER);
		assert_string_equal((char *)event.data, "not you");
		assert_int_equal(kit_seen(kit, A, SNT__CM_REJ)->rej.about,
				 SNT__CM_ABOUT_REP);
		assert_int_equal(kit_sent(kit, B, SNT__CM_REP), 1 + lost);
		snt__soft_cm_release(kit->cm[B], b);
		kit_expect_empty(kit);
		kit_close(kit);
	}
}

/* Found by fuzzing: the answer came after the refusal, with the data of the refusal. */
static void rejected_unheard(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;

	(void)state;
	kit_pump(kit);
	b = kit_request(kit);
	kit_accept(kit, b, 20);
	kit_pump(kit);
	assert_int_equal(snt__soft_cm_reject(kit->cm[A], a, "not you", 8), 0);
	kit_expect_none(kit, A);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_REJECTED);
	snt__soft_cm_release(kit->cm[A], a);
	snt__soft_cm_release(kit->cm[B], b);
	kit_expect_empty(kit);
	kit_close(kit);
}

static void nobody_listens(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a;
	struct snt__cm_event event;

	(void)state;
	snt__soft_cm_unlisten(kit->cm[B], kit->listener);
	a = kit_connect(kit, 10);
	kit_pump(kit);
	event = kit_expect(kit, A, SNT__CM_EVENT_REJECTED);
	assert_int_equal(event.reason, SNT__CM_REASON_NOBODY_LISTENS);
	/* There is no way on from here. */
	assert_int_equal(snt__soft_cm_establish(kit->cm[A], a), -ENOTCONN);
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[A], a), 0);
	kit_run_for(kit, 11 * SECOND);
	assert_int_equal(a->state, SNT__SOFT_CM_OVER);
	kit_run_for(kit, SECOND);
	assert_int_equal(a->state, SNT__SOFT_CM_DONE);
	assert_int_equal(kit->cm[A]->live, 1);
	snt__soft_cm_release(kit->cm[A], a);
	kit_expect_empty(kit);
	kit_close(kit);
}

/* Requests that were not taken are refused when their listener goes. */
static void listener_goes(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a[3], *taken;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		a[i] = kit_connect(kit, 10 + i);
	kit_pump(kit);
	taken = kit_request(kit);
	snt__soft_cm_unlisten(kit->cm[B], kit->listener);
	kit_expect_none(kit, B);
	kit_pump(kit);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(kit_expect(kit, A, SNT__CM_EVENT_REJECTED).reason,
				 SNT__CM_REASON_CONSUMER);
	/* The one that was taken is on its own. */
	kit_accept(kit, taken, 20);
	kit_pump(kit);
	kit_establish(kit, a[0]);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	for (unsigned i = 0; i < 3; i++)
		snt__soft_cm_release(kit->cm[A], a[i]);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_DISCONNECTED);
	snt__soft_cm_release(kit->cm[B], taken);
	kit_expect_empty(kit);
	kit_close(kit);
}

/* But not those of another. */
static void one_listener_of_two_goes(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__cm_param param = kit_param(11, NULL);
	struct snt__soft_cm_listener *other = NULL;
	struct snt__soft_cm_connection *a = NULL;
	struct snt__cm_id other_id;

	(void)state;
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], kit_gid[0][B],
					     KIT_PORT + 1, 1, &other_id, &other),
			 0);
	assert_int_equal(snt__soft_cm_resolve(&kit->channel[A], kit_gid[0][A],
					      kit_gid[0][B], KIT_PORT + 1, &a),
			 0);
	kit_expect(kit, A, SNT__CM_EVENT_RESOLVED);
	assert_int_equal(snt__soft_cm_connect(kit->cm[A], a, &param), 0);
	kit_connect(kit, 10);
	kit_pump(kit);
	snt__soft_cm_unlisten(kit->cm[B], kit->listener);
	kit_pump(kit);
	kit_expect(kit, A, SNT__CM_EVENT_REJECTED);
	kit_expect_none(kit, A);
	assert_ptr_equal(kit_expect(kit, B, SNT__CM_EVENT_REQUEST).listener, &other_id);
	kit_close(kit);
}

/*
 * Silence
 */

static enum kit_fate deaf(struct kit *kit, const struct kit_frame *frame)
{
	return frame->to == kit->chosen ? KIT_DROP : KIT_PASS;
}

static void nobody_there(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10);
	uint64_t patience = snt__soft_cm_patience_ns(kit->cm[A]);

	(void)state;
	kit->chosen = B;
	kit->fate = deaf;
	/* 25 ms and so on: about 8 s, and chance adds a quarter at most. */
	assert_in_range(patience, 8 * SECOND, 10 * SECOND);
	kit_run_for(kit, patience * 4 / 5 - 1000000);
	kit_expect_none(kit, A);
	kit_run_for(kit, patience / 5 + 1000000);
	assert_int_equal(kit_expect(kit, A, SNT__CM_EVENT_FAILED).status, -ETIMEDOUT);
	assert_int_equal(kit_sent(kit, A, SNT__CM_REQ), 10);
	/* A peer that has received the REQ should not bother. */
	assert_int_equal(kit_sent(kit, A, SNT__CM_REJ), 1);
	assert_int_equal(kit_seen(kit, A, SNT__CM_REJ)->rej.reason,
			 SNT__CM_REASON_TIMEOUT);
	assert_int_equal(kit_seen(kit, A, SNT__CM_REJ)->rej.info_length, 8);
	snt__soft_cm_release(kit->cm[A], a);
	kit_expect_empty(kit);
	kit_close(kit);
}

/* Nothing of A reaches B after its REQ: B gives up, and tries to say so. */
static void response_unanswered(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;

	(void)state;
	kit_pump(kit);
	b = kit_request(kit);
	kit->chosen = B;
	kit->fate = deaf;
	kit_accept(kit, b, 20);
	kit_pump(kit);
	kit_establish(kit, a);
	kit_run_for(kit, snt__soft_cm_patience_ns(kit->cm[B]));
	assert_int_equal(kit_expect(kit, B, SNT__CM_EVENT_FAILED).status, -ETIMEDOUT);
	assert_int_equal(kit_sent(kit, B, SNT__CM_REP), 10);
	/* A thought that all was well, until now. */
	kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED);
	assert_true(kit_sent(kit, A, SNT__CM_RTU) > 1);
	snt__soft_cm_release(kit->cm[A], a);
	kit_run_for(kit, snt__soft_cm_patience_ns(kit->cm[B]));
	kit_expect_none(kit, B);
	snt__soft_cm_release(kit->cm[B], b);
	kit_expect_empty(kit);
	kit_close(kit);
}

static void disconnect_unanswered(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *pair[ENDS];

	(void)state;
	kit_connected(kit, pair);
	kit->chosen = B;
	kit->fate = deaf;
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[A], pair[A]), 0);
	kit_run_for(kit, snt__soft_cm_patience_ns(kit->cm[A]));
	kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED);
	assert_int_equal(kit_sent(kit, A, SNT__CM_DREQ), 10);
	/* B is none the wiser, and finds out when it wants to disconnect. */
	kit_expect_none(kit, B);
	kit->fate = NULL;
	snt__soft_cm_release(kit->cm[A], pair[A]);
	kit_run_for(kit, 12 * SECOND);
	assert_int_equal(kit->cm[A]->lingering_count, 0);
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[B], pair[B]), 0);
	kit_pump(kit);
	kit_expect(kit, B, SNT__CM_EVENT_DISCONNECTED);
	snt__soft_cm_release(kit->cm[B], pair[B]);
	kit_expect_empty(kit);
	kit_close(kit);
}

/* Each message has patience of its own, however long and hard it was before. */
static void patience_begins_anew(void **state)
{
	(void)state;
	for (unsigned who = 0; who < ENDS; who++) {
		struct kit *kit = kit_open(NULL, false);
		struct snt__soft_cm_connection *pair[ENDS];

		pair[A] = kit_connect(kit, 10);
		lose(kit, A, SNT__CM_REQ, 5);
		kit_run_for(kit, 2 * SECOND);
		pair[B] = kit_request(kit);
		kit_accept(kit, pair[B], 20);
		lose(kit, B, SNT__CM_REP, 5);
		kit_run_for(kit, 2 * SECOND);
		kit_establish(kit, pair[A]);
		kit_pump(kit);
		kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
		kit_run_for(kit, 1000 * SECOND);
		lose(kit, who, SNT__CM_DREQ, 100);
		assert_int_equal(snt__soft_cm_disconnect(kit->cm[who], pair[who]), 0);
		kit_run_for(kit, 20 * SECOND);
		kit_expect(kit, who, SNT__CM_EVENT_DISCONNECTED);
		assert_int_equal(kit_sent(kit, who, SNT__CM_DREQ), 10);
		kit_close(kit);
	}
}

/* A response that the program has not taken when its sender takes it back. */
static void response_withdrawn(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;

	(void)state;
	kit_pump(kit);
	b = kit_request(kit);
	kit_accept(kit, b, 20);
	kit_pump(kit);
	snt__soft_cm_release(kit->cm[B], b);
	kit_pump(kit);
	assert_ptr_equal(kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED).id,
			 &a->handle.id);
	kit_expect_none(kit, A);
	assert_int_equal(snt__soft_cm_establish(kit->cm[A], a), -ENOTCONN);
	kit_close(kit);
}

static enum kit_fate delay_response(struct kit *kit, const struct kit_frame *frame)
{
	bool delays = frame->message.kind == SNT__CM_REP && !kit->chosen;

	kit->chosen |= delays;
	return delays ? KIT_LATE : KIT_PASS;
}

/* The same, and what takes it back comes first: the response must not be believed. */
static void withdrawal_overtakes_response(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a = kit_connect(kit, 10), *b;

	(void)state;
	kit_pump(kit);
	b = kit_request(kit);
	kit->fate = delay_response;
	kit_accept(kit, b, 20);
	kit_pump(kit);
	snt__soft_cm_release(kit->cm[B], b);
	kit_run_for(kit, 10 * SECOND);
	assert_ptr_equal(kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED).id,
			 &a->handle.id);
	kit_expect_none(kit, A);
	kit_close(kit);
}

/*
 * Letting go
 */

enum phase {
	RESOLVED,
	REQ_QUEUED,
	REQ_SENT,
	REQ_TAKEN,
	REP_QUEUED,
	REP_SENT,
	RESPONSE_TAKEN,
	RTU_QUEUED,
	RTU_SENT,
	ESTABLISHED,
	DREQ_QUEUED,
	DREQ_SENT,
	PHASES
};

/* Moves on up to a phase. Both ends are there from REQ_TAKEN on. */
static void reach(struct kit *kit, enum phase phase,
		  struct snt__soft_cm_connection *pair[ENDS])
{
	if (phase == RESOLVED) {
		assert_int_equal(snt__soft_cm_resolve(&kit->channel[A], kit_gid[0][A],
						      kit_gid[0][B], KIT_PORT,
						      &pair[A]),
				 0);
		return;
	}
	pair[A] = kit_connect(kit, 10);
	if (phase >= REQ_SENT)
		kit_pump(kit);
	if (phase >= REQ_TAKEN)
		pair[B] = kit_request(kit);
	if (phase >= REP_QUEUED)
		kit_accept(kit, pair[B], 20);
	if (phase >= REP_SENT)
		kit_pump(kit);
	if (phase >= RESPONSE_TAKEN)
		kit_expect(kit, A, SNT__CM_EVENT_RESPONSE);
	if (phase >= RTU_QUEUED)
		assert_int_equal(snt__soft_cm_establish(kit->cm[A], pair[A]), 0);
	if (phase >= RTU_SENT)
		kit_pump(kit);
	if (phase >= ESTABLISHED)
		kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED);
	if (phase >= DREQ_QUEUED)
		assert_int_equal(snt__soft_cm_disconnect(kit->cm[A], pair[A]), 0);
	if (phase >= DREQ_SENT)
		kit_pump(kit);
}

/* The other end hears the end of it: one final event, and which. */
static void expect_end(struct kit *kit, unsigned end)
{
	struct snt__cm_event event;
	unsigned finals = 0;

	while (!snt__soft_cm_next_event(&kit->channel[end], &event)) {
		finals += event.type >= SNT__CM_EVENT_REJECTED;
		assert_true(event.type != SNT__CM_EVENT_FAILED);
	}
	assert_int_equal(finals, 1);
}

/* One end lets go, and the message that says so is lost, or not; then the other hears
 * of it, or has never heard of anything. */
static void let_go(enum phase phase, unsigned who, unsigned lost)
{
	static const enum snt__cm_kind kinds[] = { SNT__CM_REJ, SNT__CM_DREQ };
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *pair[ENDS] = { NULL };

	reach(kit, phase, pair);
	if (!pair[who]) {
		kit_close(kit);
		return;
	}
	if (lost)
		lose(kit, who, kinds[lost - 1], 1);
	snt__soft_cm_release(kit->cm[who], pair[who]);
	kit_run_for(kit, SECOND);
	/* No event comes for a request that was never reported. */
	assert_true(kit->frames || phase <= REQ_QUEUED);
	assert_true(!kit->frames || phase > REQ_QUEUED);
	/* A request whose sender has gone is not shown to anybody; if that got lost,
	 * it is, and an answer to it ends it. */
	if (who == A && phase == REQ_SENT && lost == 1) {
		pair[B] = kit_request(kit);
		kit_accept(kit, pair[B], 20);
		kit_run_for(kit, SECOND);
		/* By now A knows which peer it refuses. */
		assert_int_equal(kit_seen(kit, A, SNT__CM_REJ)->remote_id,
				 pair[B]->local_id);
	}
	/* What was REQ_TAKEN as well. */
	if (who == A && phase == REQ_TAKEN && lost == 1) {
		kit_accept(kit, pair[B], 20);
		kit_run_for(kit, SECOND);
	}
	if (pair[!who]) {
		expect_end(kit, !who);
		snt__soft_cm_release(kit->cm[!who], pair[!who]);
	} else {
		kit_expect_none(kit, !who);
	}
	kit_expect_empty(kit);
	kit_close(kit);
}

static void let_go_in_every_phase(void **state)
{
	(void)state;
	for (unsigned phase = 0; phase < PHASES; phase++)
		for (unsigned who = 0; who < ENDS; who++)
			for (unsigned lost = 0; lost < 3; lost++)
				let_go(phase, who, lost);
}

/* Both at once. */
static void both_ends_let_go_in_every_phase(void **state)
{
	(void)state;
	for (unsigned phase = 0; phase < PHASES; phase++) {
		struct kit *kit = kit_open(NULL, false);
		struct snt__soft_cm_connection *pair[ENDS] = { NULL };

		reach(kit, phase, pair);
		for (unsigned end = 0; end < ENDS; end++)
			if (pair[end])
				snt__soft_cm_release(kit->cm[end], pair[end]);
		kit_expect_empty(kit);
		kit_close(kit);
	}
}

/* The other end vanishes without a word, its memory too: the end that is left gets to
 * an end, at the latest when it wants to. */
static void crash_in_every_phase(void **state)
{
	(void)state;
	for (unsigned phase = REQ_SENT; phase < PHASES; phase++) {
		for (unsigned who = 0; who < ENDS; who++) {
			struct kit *kit = kit_open(NULL, false);
			struct snt__soft_cm_connection *pair[ENDS] = { NULL };
			struct snt__cm_event event;

			reach(kit, phase, pair);
			kit->chosen = who;
			kit->fate = deaf;
			while (!snt__soft_cm_next_event(&kit->channel[!who], &event))
				if (event.type == SNT__CM_EVENT_REQUEST)
					pair[B] = snt__soft_cm_of(event.id);
			if (pair[!who] && pair[!who]->state < SNT__SOFT_CM_DREQ_SENT)
				snt__soft_cm_disconnect(kit->cm[!who], pair[!who]);
			kit_run_for(kit, 2 * snt__soft_cm_patience_ns(kit->cm[!who]));
			if (pair[!who])
				snt__soft_cm_release(kit->cm[!who], pair[!who]);
			kit_run_for(kit, snt__soft_cm_patience_ns(kit->cm[!who]) +
						 12 * SECOND);
			assert_int_equal(kit->cm[!who]->live, 0);
			assert_int_equal(kit->cm[!who]->lingering_count, 0);
			kit_close(kit);
		}
	}
}

/* Each wants to disconnect before it hears of the other. */
static void simultaneous_disconnect(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *pair[ENDS];

	(void)state;
	kit_connected(kit, pair);
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[A], pair[A]), 0);
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[B], pair[B]), 0);
	kit_pump(kit);
	kit_expect(kit, A, SNT__CM_EVENT_DISCONNECTED);
	kit_expect(kit, B, SNT__CM_EVENT_DISCONNECTED);
	kit_expect_none(kit, A);
	kit_expect_none(kit, B);
	assert_int_equal(kit_sent(kit, A, SNT__CM_DREQ), 1);
	assert_int_equal(kit_sent(kit, B, SNT__CM_DREQ), 1);
	assert_int_equal(kit_sent(kit, A, SNT__CM_DREP), 1);
	assert_int_equal(kit_sent(kit, B, SNT__CM_DREP), 1);
	kit_close(kit);
}

/*
 * Limits
 */

static void limit_of_connections(void **state)
{
	struct snt__soft_cm_config config = { .connection_max = 2, .linger_max = 1 };
	struct kit *kit = kit_open(&config, false);
	struct snt__soft_cm_connection *a[2], *more, *b[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		a[i] = kit_connect(kit, 10 + i);
	assert_int_equal(snt__soft_cm_resolve(&kit->channel[A], kit_gid[0][A],
					      kit_gid[0][B], 1, &more),
			 -ENOBUFS);
	kit_pump(kit);
	for (unsigned i = 0; i < 2; i++)
		b[i] = kit_request(kit);
	/* One of the other end's, which it cannot know: B has no room either. */
	snt__soft_cm_release(kit->cm[A], a[0]);
	a[0] = kit_connect(kit, 12);
	kit_pump(kit);
	assert_int_equal(kit_expect(kit, A, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_NO_RESOURCES);
	assert_int_equal(kit_expect(kit, B, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_TIMEOUT);
	/* What lingers makes room for what comes after it. */
	snt__soft_cm_release(kit->cm[B], b[0]);
	assert_int_equal(kit->cm[B]->lingering_count, 1);
	snt__soft_cm_release(kit->cm[B], b[1]);
	assert_int_equal(kit->cm[B]->lingering_count, 1);
	assert_int_equal(kit->cm[B]->stats.evicted, 1);
	kit_run_for(kit, SECOND);
	kit_expect(kit, A, SNT__CM_EVENT_REJECTED);
	for (unsigned i = 0; i < 2; i++)
		snt__soft_cm_release(kit->cm[A], a[i]);
	kit_expect_empty(kit);
	kit_close(kit);
}

static void limit_of_requests(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__soft_cm_connection *a[3];

	(void)state;
	kit->listener->backlog = 2;
	for (unsigned i = 0; i < 3; i++)
		a[i] = kit_connect(kit, 10 + i);
	kit_pump(kit);
	assert_int_equal(kit_expect(kit, A, SNT__CM_EVENT_REJECTED).reason,
			 SNT__CM_REASON_NO_RESOURCES);
	snt__soft_cm_release(kit->cm[A], a[2]);
	/* One is taken: there is room for another. */
	kit_request(kit);
	a[2] = kit_connect(kit, 12);
	kit_pump(kit);
	kit_expect_none(kit, A);
	assert_int_equal(kit->listener->waiting, 2);
	kit_close(kit);
}

static void limit_of_listeners(void **state)
{
	static const uint8_t any[16], any_ipv4[16] = { [10] = 0xff, 0xff };
	struct snt__soft_cm_config config = { .listener_max = 3 };
	struct kit *kit = kit_open(&config, false);
	struct snt__soft_cm_listener *listener[3];
	struct snt__cm_id id;

	(void)state;
	/* B's own address is taken, at this port; and so is all that includes it. */
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], kit_gid[0][B], KIT_PORT,
					     1, &id, &listener[0]),
			 -EADDRINUSE);
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], any, KIT_PORT, 1, &id,
					     &listener[0]),
			 -EADDRINUSE);
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], any_ipv4, KIT_PORT, 1,
					     &id, &listener[0]),
			 -EADDRINUSE);
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], kit_gid[1][B], KIT_PORT,
					     1, &id, &listener[0]),
			 0);
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], any_ipv4, KIT_PORT + 1,
					     1, &id, &listener[1]),
			 0);
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], any, KIT_PORT + 2, 1,
					     &id, &listener[2]),
			 -ENOBUFS);
	/* All of IPv4 is not all of IPv6. */
	assert_ptr_equal(snt__soft_cm_listener_find(kit->cm[B], kit_gid[0][B],
						    KIT_PORT + 1),
			 listener[1]);
	assert_null(
		snt__soft_cm_listener_find(kit->cm[B], kit_gid[1][B], KIT_PORT + 1));
	assert_null(snt__soft_cm_listener_find(kit->cm[B], kit_gid[0][A], KIT_PORT));
	snt__soft_cm_unlisten(kit->cm[B], listener[1]);
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], any, KIT_PORT + 1, 1,
					     &id, &listener[1]),
			 0);
	assert_ptr_equal(snt__soft_cm_listener_find(kit->cm[B], kit_gid[1][B],
						    KIT_PORT + 1),
			 listener[1]);
	kit_close(kit);
}

static void too_much_data(void **state)
{
	struct kit *kit = kit_open(NULL, false);
	struct snt__cm_param param = kit_param(10, NULL);
	struct snt__soft_cm_connection *a = NULL, *b;
	uint8_t data[256];

	(void)state;
	memset(data, 0x77, sizeof(data));
	param.data = data;
	assert_int_equal(snt__soft_cm_resolve(&kit->channel[A], kit_gid[0][A],
					      kit_gid[0][B], KIT_PORT, &a),
			 0);
	kit_expect(kit, A, SNT__CM_EVENT_RESOLVED);
	param.data_length = SNT__CM_REQUEST_DATA + 1;
	assert_int_equal(snt__soft_cm_connect(kit->cm[A], a, &param), -EINVAL);
	param.data_length = SNT__CM_REQUEST_DATA;
	assert_int_equal(snt__soft_cm_connect(kit->cm[A], a, &param), 0);
	assert_int_equal(snt__soft_cm_connect(kit->cm[A], a, &param), -ENOTCONN);
	kit_pump(kit);
	b = kit_request(kit);
	assert_memory_equal(b->request, data, SNT__CM_REQUEST_DATA);
	assert_int_equal(snt__soft_cm_reject(kit->cm[B], b, data,
					     SNT__CM_REJECT_DATA + 1),
			 -EINVAL);
	param.data_length = SNT__CM_RESPONSE_DATA + 1;
	assert_int_equal(snt__soft_cm_accept(kit->cm[B], b, &param), -EINVAL);
	param.data_length = SNT__CM_RESPONSE_DATA;
	assert_int_equal(snt__soft_cm_accept(kit->cm[B], b, &param), 0);
	assert_int_equal(snt__soft_cm_accept(kit->cm[B], b, &param), -ENOTCONN);
	assert_int_equal(snt__soft_cm_disconnect(kit->cm[B], b), -ENOTCONN);
	assert_int_equal(snt__soft_cm_establish(kit->cm[B], b), -ENOTCONN);
	kit_pump(kit);
	assert_memory_equal(kit_expect(kit, A, SNT__CM_EVENT_RESPONSE).data, data,
			    SNT__CM_RESPONSE_DATA);
	kit_close(kit);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void no_chance(void *arg, void *buffer, size_t length)
{
	(void)arg;
	memset(buffer, 1, length);
}

/* Every connection of the dead device fails; its peer is not told, and gives up. */
static void device_dies_in_every_phase(void **state)
{
	(void)state;
	for (unsigned phase = 0; phase < 4; phase++) {
		struct kit *kit = kit_open(NULL, false);
		struct snt__soft_cm_connection *pair[ENDS];

		pair[A] = kit_connect(kit, 10);
		if (phase > 0) {
			kit_pump(kit);
			pair[B] = kit_request(kit);
		}
		if (phase > 1) {
			kit_accept(kit, pair[B], 20);
			kit_pump(kit);
		}
		if (phase > 2)
			kit_establish(kit, pair[A]);
		snt__soft_cm_kill(kit->cm[A]);
		assert_int_equal(kit_expect(kit, A, SNT__CM_EVENT_FAILED).status,
				 -ENODEV);
		kit_expect_none(kit, A);
		snt__soft_cm_release(kit->cm[A], pair[A]);
		if (phase > 0)
			snt__soft_cm_release(kit->cm[B], pair[B]);
		kit_expect_empty(kit);
		kit_close(kit);
	}
}

static void creation(void **state)
{
	struct snt__soft_cm_config config = { .random = no_chance };
	struct snt__soft_cm_config wrong[] = { config, config, config, config };
	struct snt__soft_cm_channel channel = { .wake = nothing };
	struct snt__soft_cm *cm = NULL;
	unsigned nth = 0;
	uint32_t ids[4];
	int ret;

	(void)state;
	wrong[0].random = NULL;
	wrong[1].mtu = 6;
	wrong[2].connection_max = (1 << 16) + 1;
	wrong[3].ack_timeout = 32;
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(snt__soft_cm_create(&wrong[i], &cm), -EINVAL);
	do {
		fault_arm(++nth);
		ret = snt__soft_cm_create(&config, &cm);
		assert_int_equal(ret, fault_was_hit() ? -ENOMEM : 0);
	} while (ret);
	fault_arm(0);
	assert_true(nth > 5);
	assert_int_equal(cm->config.connection_max, 1024);
	snt__soft_cm_destroy(cm);
	/* Where there is no chance at all, numbers are still not used twice in a
	 * row. */
	config.connection_max = 1;
	assert_int_equal(snt__soft_cm_create(&config, &cm), 0);
	snt__soft_cm_channel_open(cm, &channel);
	for (unsigned i = 0; i < 4; i++) {
		struct snt__soft_cm_connection *connection;

		assert_int_equal(snt__soft_cm_resolve(&channel, kit_gid[0][A],
						      kit_gid[0][B], 1, &connection),
				 0);
		ids[i] = connection->local_id;
		assert_int_not_equal(ids[i], 0);
		snt__soft_cm_release(cm, connection);
	}
	assert_int_not_equal(ids[0], ids[2]);
	assert_int_not_equal(ids[1], ids[3]);
	snt__soft_cm_destroy(cm);
	snt__soft_cm_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(passive_rejects),
		cmocka_unit_test(active_rejects),
		cmocka_unit_test(rejected_unheard),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(listener_goes),
		cmocka_unit_test(one_listener_of_two_goes),
		cmocka_unit_test(nobody_there),
		cmocka_unit_test(response_unanswered),
		cmocka_unit_test(disconnect_unanswered),
		cmocka_unit_test(patience_begins_anew),
		cmocka_unit_test(response_withdrawn),
		cmocka_unit_test(withdrawal_overtakes_response),
		cmocka_unit_test(let_go_in_every_phase),
		cmocka_unit_test(both_ends_let_go_in_every_phase),
		cmocka_unit_test(crash_in_every_phase),
		cmocka_unit_test(simultaneous_disconnect),
		cmocka_unit_test(limit_of_connections),
		cmocka_unit_test(limit_of_requests),
		cmocka_unit_test(limit_of_listeners),
		cmocka_unit_test(too_much_data),
		cmocka_unit_test(device_dies_in_every_phase),
		cmocka_unit_test(creation),
	};

	return cmocka_run_group_tests_name("cm_end", tests, NULL, NULL);
}
