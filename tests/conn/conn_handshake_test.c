/* SPDX-License-Identifier: MIT */
/* The engine of connections: what two ends agree on, and what they refuse. */
#include "lib/test.h"

#include "lib/conn_ends.h"

struct pair {
	struct snt__handshake hs[2];
	struct snt__offer offer[2];
	/* Changes messages on their way; NULL: none. */
	void (*tamper)(struct pair *pair, uint8_t *bytes, size_t *length);
	unsigned messages;
	unsigned tampered; /* which one, from 1 */
	/* Verdicts of the first device pairs, else good. */
	uint8_t verdict[SNT_DEVICES_MAX][SNT_DEVICES_MAX];
};

static void init(struct pair *pair, unsigned devices_a, unsigned devices_b,
		 const char *secret_a, const char *secret_b)
{
	memset(pair, 0, sizeof(*pair));
	pair->offer[0] = ends_offer(0, devices_a);
	pair->offer[1] = ends_offer(1, devices_b);
	ends_init(&pair->hs[0], 0, 0, &pair->offer[0], secret_a);
	ends_init(&pair->hs[1], 1, 0, NULL, secret_b);
}

static void start_again(struct pair *pair)
{
	ends_init(&pair->hs[0], 0, 0, &pair->offer[0], NULL);
	ends_init(&pair->hs[1], 1, 0, NULL, NULL);
}

static void judge(struct pair *pair, unsigned end)
{
	struct snt__handshake *hs = &pair->hs[end];
	uint8_t verdict[SNT__PAIRS_MAX];

	for (unsigned i = 0; i < hs->probe.count; i++) {
		const struct snt__probe_qp *probe_qp = &hs->probe.probe_qp[i];
		unsigned bad = end ? pair->verdict[probe_qp->remote][probe_qp->device]
				   : pair->verdict[probe_qp->device][probe_qp->remote];

		/* A network that carries 1024. */
		if (bad == SNT__VERDICT_MTU && hs->probe.mtu <= 1024)
			bad = 0;
		verdict[i] = bad ? (uint8_t)bad : SNT__VERDICT_GOOD;
	}
	snt__handshake_probed(hs, verdict);
}

static void answer(struct pair *pair, unsigned end)
{
	struct snt__handshake *hs = &pair->hs[end];

	if (hs->action == SNT__DO_PROBE_QPS || hs->action == SNT__DO_PROBE) {
		if (snt__handshake_action(hs) == SNT__DO_PROBE_QPS)
			ends_probe_qps(hs, SNT__VERDICT_NONE);
		if (hs->state == SNT__HS_PROBING)
			judge(pair, end);
		return;
	}
	if (hs->action != SNT__DO_UP && hs->action != SNT__DO_END &&
	    hs->action != SNT__DO_LEAVE)
		ends_answer(hs, &pair->offer[end]);
}

static bool pass(struct pair *pair, unsigned from)
{
	uint8_t bytes[SNT__MESSAGE_MAX + 1];
	size_t length = snt__handshake_output(&pair->hs[from], bytes);

	if (!length)
		return false;
	if (++pair->messages == pair->tampered && pair->tamper)
		pair->tamper(pair, bytes, &length);
	snt__handshake_input(&pair->hs[!from], bytes, length, 0);
	for (unsigned i = 0; i < 4; i++)
		answer(pair, !from);
	return true;
}

static void run(struct pair *pair)
{
	bool moved = true;

	while (moved) {
		moved = pass(pair, 0);
		moved |= pass(pair, 1);
	}
}

static void expect_up(struct pair *pair)
{
	const char *fault;

	run(pair);
	for (unsigned i = 0; i < 2; i++)
		if (pair->hs[i].state != SNT__HS_UP)
			fail_msg("end %u: %s", i, pair->hs[i].text);
	fault = ends_fault(&pair->hs[0], &pair->hs[1]);
	if (fault)
		fail_msg("%s", fault);
}

static void expect_over(struct pair *pair, int error_a, int error_b, const char *phrase)
{
	run(pair);
	assert_int_equal(pair->hs[0].error, error_a);
	assert_int_equal(pair->hs[1].error, error_b);
	for (unsigned i = 0; i < 2; i++)
		if (!strstr(pair->hs[i].text, phrase))
			fail_msg("end %u: \"%s\" is not in \"%s\"", i, phrase,
				 pair->hs[i].text);
}

static void two_ends_agree(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 2, 2, NULL, NULL);
	pair.offer[1].mtu = 1024;
	expect_up(&pair);
	assert_int_equal(pair.hs[0].plan.mtu, 1024);
	assert_int_equal(pair.hs[0].plan.data_lanes, 2);
	assert_int_equal(pair.hs[0].plan.lane_count, 4);
	assert_int_equal(pair.hs[0].ping_interval, UINT64_C(1000000000));
	assert_memory_equal(pair.hs[1].theirs.data, "en0", 3);
	assert_memory_equal(pair.hs[0].theirs.data, "en1", 3);
}

static void only_a_pass_through_lane_is_alone(void **state)
{
	struct pair pair;

	(void)state;
	for (unsigned passes = 0; passes < 2; passes++) {
		init(&pair, 2, 2, NULL, NULL);
		pair.offer[0].lanes = 1;
		pair.offer[0].flags = pair.offer[1].flags =
			passes ? SNT_QP_PASS_THROUGH : 0;
		start_again(&pair);
		expect_up(&pair);
		assert_int_equal(pair.hs[0].plan.data_lanes, 1);
		assert_int_equal(pair.hs[0].plan.lane_count, passes ? 1 : 2);
		/* One pair is enough, so that only one is tried. */
		assert_int_equal(pair.hs[1].trials.count, 1);
	}
	/* As streams do, whose lanes the ends choose. */
	init(&pair, 2, 2, NULL, NULL);
	pair.offer[0].flags = pair.offer[1].flags = SNT_QP_PASS_THROUGH;
	start_again(&pair);
	expect_up(&pair);
	assert_int_equal(pair.hs[0].plan.lane_count, 4);
}

static void pass_through_is_set_at_both_ends_or_none(void **state)
{
	struct pair pair;

	(void)state;
	for (unsigned end = 0; end < 2; end++) {
		init(&pair, 1, 1, NULL, NULL);
		pair.offer[end].flags = SNT_QP_PASS_THROUGH;
		start_again(&pair);
		expect_over(&pair, -EINVAL, -EINVAL,
			    end ? "only the end that accepts has SNT_QP_PASS_THROUGH"
				: "only the end that connects has SNT_QP_PASS_THROUGH");
	}
}

static void different_numbers_of_devices(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 3, 2, NULL, NULL);
	pair.offer[0].lanes = pair.offer[1].lanes = 0;
	start_again(&pair);
	expect_up(&pair);
	assert_int_equal(pair.hs[0].plan.data_lanes, 3);
	assert_int_equal(pair.hs[0].plan.lane_count, 6);

	init(&pair, 2, 32, NULL, NULL);
	pair.offer[0].lanes = pair.offer[1].lanes = 0;
	start_again(&pair);
	expect_up(&pair);
	assert_int_equal(pair.hs[0].plan.data_lanes, 32);
	assert_int_equal(pair.hs[0].plan.lane_count, 64);
}

static void pairs_that_do_not_work_are_left_out(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 2, 2, NULL, NULL);
	pair.verdict[0][0] = SNT__VERDICT_SILENT;
	expect_up(&pair);
	assert_int_equal(pair.hs[0].probe.round, 2);
	for (unsigned i = 0; i < pair.hs[0].plan.lane_count; i++)
		assert_false(!pair.hs[0].plan.lane[i].local &&
			     !pair.hs[0].plan.lane[i].remote);
	assert_int_equal(pair.hs[0].trials.trial[0].ours, SNT__VERDICT_SILENT);
}

static void a_rail_is_enough(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 2, 2, NULL, NULL);
	pair.verdict[0][0] = pair.verdict[0][1] = pair.verdict[1][0] =
		SNT__VERDICT_SILENT;
	expect_up(&pair);
	for (unsigned i = 0; i < pair.hs[0].plan.lane_count; i++) {
		assert_int_equal(pair.hs[0].plan.lane[i].local, 1);
		assert_int_equal(pair.hs[0].plan.lane[i].remote, 1);
	}
	/* Still one that goes through the ring, as was wished for. */
	assert_int_equal(pair.hs[0].plan.data_lanes, 2);
	assert_int_equal(pair.hs[0].plan.lane_count, 3);
}

static void nothing_works(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 1, 1, NULL, NULL);
	pair.verdict[0][0] = SNT__VERDICT_SILENT;
	expect_over(&pair, -EHOSTUNREACH, -EHOSTUNREACH, "nothing comes through");
}

static void a_network_of_smaller_packets(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 1, 1, NULL, NULL);
	pair.verdict[0][0] = SNT__VERDICT_MTU;
	expect_up(&pair);
	assert_int_equal(pair.hs[0].plan.mtu, 1024);
	assert_int_equal(pair.hs[0].probe.round, 2);
}

static void addresses_of_different_kinds(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 2, 2, NULL, NULL);
	/* The first of the second end has IPv6, so 0-0 and 1-0 cannot work. */
	memset(pair.offer[1].device[0].address.gid, 0xfd, 16);
	expect_up(&pair);
	for (unsigned i = 0; i < pair.hs[0].plan.lane_count; i++)
		assert_int_equal(pair.hs[0].plan.lane[i].remote, 1);
	assert_int_equal(pair.hs[0].trials.trial[0].ours, SNT__VERDICT_KIND);
}

static void schemes_differ(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 1, 1, NULL, NULL);
	pair.offer[1].scheme = SNT_SCHEME_DQPLB;
	expect_over(&pair, -EINVAL, -EINVAL, "schemes differ");
}

static void secrets(void **state)
{
	struct pair pair;

	(void)state;
	if (!snt__mac_available())
		skip_because("built without libcrypto");
	init(&pair, 1, 1, ends_secret, ends_secret);
	expect_up(&pair);
	init(&pair, 1, 1, ends_secret, "another secret which is not it");
	expect_over(&pair, -EACCES, -EACCES, "different secrets");
	assert_int_equal(pair.messages, 3);
	init(&pair, 1, 1, ends_secret, NULL);
	expect_over(&pair, -EACCES, -EACCES, "secret");
	init(&pair, 1, 1, NULL, ends_secret);
	expect_over(&pair, -EACCES, -EACCES, "secret");
}

static void change_a_byte(struct pair *pair, uint8_t *bytes, size_t *length)
{
	(void)pair;
	bytes[*length - 40] ^= 1;
}

static void cut_the_tag_off(struct pair *pair, uint8_t *bytes, size_t *length)
{
	(void)pair;
	bytes[5] = 0;
	*length -= SNT__TAG_SIZE;
}

/* With a secret, changing a message ends the connection, and does no more. */
static void tampering_shows(void **state)
{
	static void (*const tampers[])(struct pair *, uint8_t *,
				       size_t *) = { change_a_byte, cut_the_tag_off };
	struct pair pair;
	unsigned total;

	(void)state;
	if (!snt__mac_available())
		skip_because("built without libcrypto");
	init(&pair, 1, 1, ends_secret, ends_secret);
	expect_up(&pair);
	total = pair.messages;
	for (unsigned kind = 0; kind < ARRAY_SIZE(tampers); kind++)
		/* HELLO has no tag of its own: the keys depend on it. */
		for (unsigned i = 1 + kind; i <= total; i++) {
			init(&pair, 1, 1, ends_secret, ends_secret);
			pair.tampered = i;
			pair.tamper = tampers[kind];
			run(&pair);
			for (unsigned end = 0; end < 2; end++)
				if (!pair.hs[end].error)
					fail_msg("message %u, change %u, end %u", i,
						 kind, end);
		}
}

static void goodbye(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 1, 1, NULL, NULL);
	expect_up(&pair);
	assert_int_equal(snt__handshake_action(&pair.hs[0]), SNT__DO_UP);
	assert_int_equal(snt__handshake_action(&pair.hs[1]), SNT__DO_UP);
	snt__handshake_bye(&pair.hs[0]);
	run(&pair);
	assert_int_equal(snt__handshake_action(&pair.hs[0]), SNT__DO_NOTHING);
	assert_int_equal(snt__handshake_action(&pair.hs[1]), SNT__DO_LEAVE);
	snt__handshake_bye(&pair.hs[1]);
	assert_int_equal(snt__handshake_action(&pair.hs[1]), SNT__DO_END);
	run(&pair);
	assert_int_equal(snt__handshake_action(&pair.hs[0]), SNT__DO_END);
	assert_int_equal(pair.hs[0].error, 0);
	assert_int_equal(pair.hs[1].error, 0);
}

static void pings_and_patience(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 1, 1, NULL, NULL);
	expect_up(&pair);
	assert_int_equal(snt__handshake_due(&pair.hs[0]), UINT64_C(1000000000));
	snt__handshake_timer(&pair.hs[0], UINT64_C(1000000000));
	assert_true(snt__handshake_has_output(&pair.hs[0]));
	assert_int_equal(snt__handshake_due(&pair.hs[0]), UINT64_C(2000000000));
	run(&pair);
	assert_int_equal(pair.hs[1].state, SNT__HS_UP);

	init(&pair, 1, 1, NULL, NULL);
	snt__handshake_timer(&pair.hs[0], ENDS_DEADLINE - 1);
	assert_int_equal(pair.hs[0].state, SNT__HS_HELLO);
	snt__handshake_timer(&pair.hs[0], ENDS_DEADLINE);
	assert_int_equal(pair.hs[0].error, -ETIMEDOUT);
	assert_non_null(
		strstr(pair.hs[0].text, "waiting for the peer's answer (WELCOME)"));
}

static void a_refusal_has_data(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair, 1, 1, NULL, NULL);
	while (pair.hs[1].state != SNT__HS_ASK) {
		uint8_t bytes[SNT__MESSAGE_MAX];
		size_t length = snt__handshake_output(&pair.hs[0], bytes);

		if (length)
			snt__handshake_input(&pair.hs[1], bytes, length, 0);
		length = snt__handshake_output(&pair.hs[1], bytes);
		if (length)
			snt__handshake_input(&pair.hs[0], bytes, length, 0);
	}
	snt__handshake_end(&pair.hs[1], SNT__END_REFUSED, -ECANCELED, "full\033[2J",
			   "why", 3);
	run(&pair);
	assert_int_equal(pair.hs[0].error, -ECONNREFUSED);
	assert_non_null(strstr(pair.hs[0].text, "full?[2J"));
	assert_int_equal(pair.hs[0].end.data_length, 3);
	assert_memory_equal(pair.hs[0].end.data, "why", 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_ends_agree),
		cmocka_unit_test(only_a_pass_through_lane_is_alone),
		cmocka_unit_test(pass_through_is_set_at_both_ends_or_none),
		cmocka_unit_test(different_numbers_of_devices),
		cmocka_unit_test(pairs_that_do_not_work_are_left_out),
		cmocka_unit_test(a_rail_is_enough),
		cmocka_unit_test(nothing_works),
		cmocka_unit_test(a_network_of_smaller_packets),
		cmocka_unit_test(addresses_of_different_kinds),
		cmocka_unit_test(schemes_differ),
		cmocka_unit_test(secrets),
		cmocka_unit_test(tampering_shows),
		cmocka_unit_test(goodbye),
		cmocka_unit_test(pings_and_patience),
		cmocka_unit_test(a_refusal_has_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
