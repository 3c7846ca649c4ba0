/* SPDX-License-Identifier: MIT */
/* How much may be sent: two ends that count, and no device. */
#include "lib/test.h"

#include "lib/seeds.h"
#include "stream/flow.h"

struct end {
	struct snt__outflow out;
	struct snt__inflow in;
};

static void words(void **state)
{
	struct snt__inflow in;
	struct snt__outflow out;

	(void)state;
	snt__inflow_init(&in, 1 << 20, 100);
	snt__outflow_init(&out, 1 << 20, 100);
	assert_int_equal(in.unit, 32);
	/* What is consumed of a unit in part is told later. */
	snt__outflow_spend(&out, 1000, 1);
	assert_null(snt__inflow_arrive(&in, 1000, 1));
	in.consumed += 63;
	assert_null(snt__outflow_credit(&out, snt__inflow_tell(&in)));
	assert_int_equal(out.freed, 32);
	in.consumed++;
	assert_null(snt__outflow_credit(&out, snt__inflow_tell(&in)));
	assert_int_equal(out.freed, 64);
	/* The same again is nothing new. */
	assert_null(snt__outflow_credit(&out, snt__inflow_tell(&in)));
	assert_int_equal(out.freed, 64);
	/* Never 0, which is no word in DQPLB. */
	assert_int_not_equal(snt__inflow_tell(&in), 0);
}

/* One note at a time, however many receives are left, and each is reported at once: credits
 * always find room. */
static void notes(void **state)
{
	struct snt__inflow in;
	struct snt__outflow out;

	(void)state;
	snt__inflow_init(&in, 1 << 20, 100);
	snt__outflow_init(&out, 1 << 20, 100);
	for (unsigned i = 0; i < 1000; i++) {
		snt__outflow_spend(&out, 100, 1);
		assert_true(snt__outflow_may_note(&out, 2));
		snt__outflow_spend_other(&out, 2);
		snt__outflow_noted(&out);
		assert_false(snt__outflow_may_note(&out, 1));
		assert_true(snt__outflow_may_tell(&out, 2));
		assert_null(snt__inflow_arrive(&in, 100, 1));
		snt__inflow_replace(&in, 1, 1);
		in.consumed += 100;
		/* What is before it is not enough. */
		assert_null(snt__outflow_credit(&out, snt__inflow_tell(&in)));
		assert_false(snt__outflow_may_note(&out, 1));
		assert_false(snt__inflow_due(&in));
		assert_null(snt__inflow_arrive(&in, 0, 2));
		in.owes = true;
		snt__inflow_replace(&in, 2, 0);
		assert_true(snt__inflow_due(&in));
		assert_true(snt__inflow_worth(&in));
		assert_null(snt__outflow_credit(&out, snt__inflow_tell(&in)));
		assert_false(snt__inflow_due(&in));
	}
}

/* Counters that wrap on the wire go on here, for every size of a ring. */
static void no_end_of_counting(void **state)
{
	(void)state;
	for (uint64_t size = 256; size <= 1u << 30; size *= 4) {
		struct snt__inflow in;
		struct snt__outflow out;

		snt__inflow_init(&in, size, 8223);
		snt__outflow_init(&out, size, 8223);
		for (unsigned i = 0; i < 70000; i++) {
			uint64_t part = size / 4 - i % 7;

			assert_true(snt__outflow_room(&out) >= part);
			assert_true(snt__outflow_may(&out, 1));
			snt__outflow_spend(&out, part, 1);
			assert_null(snt__inflow_arrive(&in, part, 1));
			snt__inflow_replace(&in, 1, 1);
			in.consumed += part;
			if (snt__inflow_due(&in))
				assert_null(snt__outflow_credit(&out,
								snt__inflow_tell(&in)));
		}
		assert_true(in.consumed - out.freed < size / 4 + in.unit);
	}
}

static void lies(void **state)
{
	struct snt__inflow in;
	struct snt__outflow out;

	(void)state;
	snt__inflow_init(&in, 1024, 40);
	snt__outflow_init(&out, 1024, 40);
	snt__outflow_spend(&out, 10, 1);
	assert_non_null(
		snt__outflow_credit(&out, snt__imm(SNT__IMM_CREDIT, 11u << 14)));
	assert_non_null(snt__outflow_credit(&out, snt__imm(SNT__IMM_CREDIT, 2)));
	/* Back is far ahead. */
	assert_null(
		snt__outflow_credit(&out, snt__imm(SNT__IMM_CREDIT, 10u << 14 | 1)));
	assert_non_null(
		snt__outflow_credit(&out, snt__imm(SNT__IMM_CREDIT, 9u << 14 | 1)));
	assert_int_equal(out.freed, 10);
	assert_int_equal(out.returned, 1);
	assert_non_null(snt__inflow_arrive(&in, 1025, 1));
	assert_null(snt__inflow_arrive(&in, 1024, 1));
	assert_non_null(snt__inflow_arrive(&in, 1, 1));
	assert_int_equal(in.arrived, 1024);
	assert_non_null(snt__inflow_end(&in, 1023));
	assert_null(snt__inflow_end(&in, 1024));
	assert_non_null(snt__inflow_end(&in, 1024));
	assert_non_null(snt__inflow_arrive(&in, 1, 1));
	assert_null(snt__inflow_arrive(&in, 0, 1));
	for (unsigned i = 5; i < 40; i++)
		assert_null(snt__inflow_arrive(&in, 0, 1));
	assert_non_null(snt__inflow_arrive(&in, 0, 1));
}

/*
 * Two ends by chance: messages and words are under way for any time, in order. Neither
 * more bytes nor more receives are ever under way than were granted, words can always
 * be sent, and when everything has arrived and was read, both can send again.
 */

#define QUEUE 4096

struct wire {
	struct {
		uint64_t bytes;
		uint32_t word;
		unsigned cost;
	} item[QUEUE];
	unsigned head, tail;
};

static void put(struct end *end, struct wire *wire, uint64_t bytes, uint32_t word,
		unsigned cost)
{
	unsigned at = wire->tail++ % QUEUE;

	wire->item[at].bytes = bytes;
	wire->item[at].word = word;
	wire->item[at].cost = cost;
	if (bytes)
		snt__outflow_spend(&end->out, bytes, cost);
	else
		snt__outflow_spend_other(&end->out, cost);
}

static void tell_if_due(struct end *end, struct wire *wire, unsigned cost)
{
	if (!snt__inflow_due(&end->in))
		return;
	assert_true(snt__outflow_may_tell(&end->out, cost));
	put(end, wire, 0, snt__inflow_tell(&end->in), cost);
}

static void take(struct end *end, struct wire *wire)
{
	unsigned at = wire->head % QUEUE;

	if (wire->head == wire->tail)
		return;
	wire->head++;
	assert_null(snt__inflow_arrive(&end->in, wire->item[at].bytes,
				       wire->item[at].cost));
	if (wire->item[at].word)
		assert_null(snt__outflow_credit(&end->out, wire->item[at].word));
	snt__inflow_replace(&end->in, wire->item[at].cost,
			    wire->item[at].bytes ? wire->item[at].cost : 0);
}

static void send_data(struct end *end, struct wire *wire, uint64_t bytes, bool along,
		      unsigned cost)
{
	uint64_t room = snt__outflow_room(&end->out);
	unsigned all = along ? cost : 1;

	if (bytes > room)
		bytes = room;
	if (!bytes || !snt__outflow_may(&end->out, all))
		return;
	put(end, wire, bytes, along ? snt__inflow_tell(&end->in) : 0, all);
}

static void play(uint64_t seed)
{
	static struct wire wire[2];
	struct end end[2];
	uint64_t random = seed;
	uint64_t size = UINT64_C(256) << random_below(&random, 10);
	unsigned depth = 1 + random_below(&random, seed % 2 ? 3 : 100);
	unsigned cost = 1 + random_below(&random, 2);

	memset(wire, 0, sizeof(wire));
	for (unsigned i = 0; i < 2; i++) {
		snt__outflow_init(&end[i].out, size, SNT__RECEIVES_KEPT + cost * depth);
		snt__inflow_init(&end[i].in, size, SNT__RECEIVES_KEPT + cost * depth);
	}
	for (unsigned i = 0; i < 2000; i++) {
		unsigned who = random_below(&random, 2);
		uint64_t unread = snt__inflow_unread(&end[who].in);

		switch (random_below(&random, 3)) {
		case 0:
			send_data(&end[who], &wire[who],
				  1 + random_below(&random, (uint32_t)size),
				  random_below(&random, 2), cost);
			break;
		case 1:
			take(&end[who], &wire[!who]);
			break;
		default:
			if (unread)
				end[who].in.consumed +=
					1 + random_below(&random, (uint32_t)unread);
		}
		tell_if_due(&end[who], &wire[who], cost);
	}
	/* All arrives and is read; no end sends anything without a reason. */
	for (bool again = true; again;) {
		again = false;
		for (unsigned i = 0; i < 2; i++) {
			take(&end[i], &wire[!i]);
			end[i].in.consumed = end[i].in.arrived;
			tell_if_due(&end[i], &wire[i], cost);
			again |= wire[0].head != wire[0].tail ||
				 wire[1].head != wire[1].tail;
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_true(snt__outflow_room(&end[i].out) > size / 2);
		assert_true(snt__outflow_may(&end[i].out, 1));
		assert_true(snt__outflow_may_tell(&end[i].out, cost));
	}
}

static void by_chance(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 1500; seed++)
		play(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words),     cmocka_unit_test(no_end_of_counting),
		cmocka_unit_test(lies),	     cmocka_unit_test(notes),
		cmocka_unit_test(by_chance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
