/* SPDX-License-Identifier: MIT */
#include "lib/test.h"
#include "cm_kit.h"

#include "lib/cm_check.h"
#include "lib/seeds.h"

#define TIME_MAX UINT64_C(100000000000000) /* what lasts longer will not end */
#define LATE_NS	 1000000

const uint8_t kit_gid[2][ENDS][16] = {
	{ { [10] = 0xff, 0xff, 10, 0, 0, 1 }, { [10] = 0xff, 0xff, 10, 0, 0, 2 } },
	{ { 0xfd, [15] = 1 }, { 0xfd, [15] = 2 } },
};

struct ring {
	struct kit *kit;
	unsigned end;
};

/* Two, for there is one kit at a time. */
static struct ring rings[ENDS];

static void cm_kit_random(void *arg, void *buffer, size_t length)
{
	struct ring *ring = arg;
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(random_next(&ring->kit->random) >> 32);
}

static void kit_wake(void *arg)
{
	struct ring *ring = arg;

	ring->kit->rung[ring->end]++;
}

static void check_machines(struct kit *kit)
{
	for (unsigned end = 0; end < ENDS; end++) {
		const char *wrong = cm_check(kit->cm[end]);

		if (wrong)
			fail_msg("end %u: %s", end, wrong);
	}
}

struct kit *kit_open(const struct snt__soft_cm_config *config, bool ipv6)
{
	struct kit *kit = calloc(1, sizeof(*kit));

	assert_non_null(kit);
	kit->last = &kit->first;
	kit->random = 11;
	kit->ipv6 = ipv6;
	for (unsigned end = 0; end < ENDS; end++) {
		struct snt__soft_cm_config own = { .connection_max = 8 };

		if (config)
			own = *config;
		rings[end] = (struct ring){ kit, end };
		own.random = cm_kit_random;
		own.arg = &rings[end];
		own.guid = 0x1000 + end;
		assert_int_equal(snt__soft_cm_create(&own, &kit->cm[end]), 0);
		kit->channel[end].wake = kit_wake;
		kit->channel[end].arg = &rings[end];
		snt__soft_cm_channel_open(kit->cm[end], &kit->channel[end]);
	}
	assert_int_equal(snt__soft_cm_listen(&kit->channel[B], kit_gid[ipv6][B],
					     KIT_PORT, 16, &kit->listener_id,
					     &kit->listener),
			 0);
	return kit;
}

void kit_close(struct kit *kit)
{
	check_machines(kit);
	while (kit->first) {
		struct kit_frame *frame = kit->first;

		kit->first = frame->next;
		free(frame);
	}
	free(kit->late);
	snt__soft_cm_destroy(kit->cm[A]);
	snt__soft_cm_destroy(kit->cm[B]);
	free(kit);
}

/*
 * The wire
 */

static void add_frame(struct kit *kit, const struct kit_frame *frame)
{
	struct kit_frame *copy = malloc(sizeof(*copy));

	assert_non_null(copy);
	*copy = *frame;
	copy->next = NULL;
	*kit->last = copy;
	kit->last = &copy->next;
}

static void take_output(struct kit *kit, unsigned from)
{
	struct kit_frame frame = { .to = !from };

	while (snt__soft_cm_output(kit->cm[from], &frame.path, frame.mad, kit->now)) {
		unsigned kind;
		enum kit_fate fate;

		assert_int_equal(snt__cm_decode(frame.mad, &frame.message), 0);
		assert_memory_equal(frame.path.source, kit_gid[kit->ipv6][from], 16);
		assert_memory_equal(frame.path.target, kit_gid[kit->ipv6][!from], 16);
		kind = frame.message.kind - SNT__CM_REQ;
		kit->sent[from][kind]++;
		kit->seen[from][kind] = frame.message;
		kit->seen[from][kind].data = NULL;
		frame.index = kit->frames++;
		fate = kit->fate ? kit->fate(kit, &frame) : KIT_PASS;
		if (fate == KIT_PASS || fate == KIT_TWICE)
			add_frame(kit, &frame);
		if (fate == KIT_TWICE)
			add_frame(kit, &frame);
		if (fate == KIT_LATE) {
			assert_null(kit->late);
			kit->late = malloc(sizeof(*kit->late));
			assert_non_null(kit->late);
			*kit->late = frame;
			kit->late_at = kit->now + LATE_NS;
		}
	}
	check_machines(kit);
}

void kit_pump(struct kit *kit)
{
	for (;;) {
		struct kit_frame *frame;

		take_output(kit, A);
		take_output(kit, B);
		frame = kit->first;
		if (!frame)
			return;
		kit->first = frame->next;
		if (!kit->first)
			kit->last = &kit->first;
		snt__soft_cm_input(kit->cm[frame->to], &frame->path, frame->mad,
				   kit->now);
		free(frame);
		check_machines(kit);
	}
}

static void deliver_late(struct kit *kit)
{
	struct kit_frame *frame = kit->late;

	kit->late = NULL;
	snt__soft_cm_input(kit->cm[frame->to], &frame->path, frame->mad, kit->now);
	free(frame);
	check_machines(kit);
}

static uint64_t next_cm_time(struct kit *kit)
{
	uint64_t at = kit->late ? kit->late_at : SNT__SOFT_NEVER;

	for (unsigned end = 0; end < ENDS; end++) {
		uint64_t deadline = snt__soft_cm_deadline(kit->cm[end]);

		if (deadline < at)
			at = deadline;
	}
	return at;
}

/* False: nothing happens until then. */
static bool step_cm(struct kit *kit, uint64_t until)
{
	uint64_t at = next_cm_time(kit);

	if (at > until)
		return false;
	assert_true(at >= kit->now);
	assert_true(at < TIME_MAX);
	kit->now = at;
	if (kit->late && kit->late_at <= at)
		deliver_late(kit);
	for (unsigned end = 0; end < ENDS; end++)
		snt__soft_cm_timer(kit->cm[end], at);
	kit_pump(kit);
	return true;
}

void kit_run_for(struct kit *kit, uint64_t ns)
{
	uint64_t until = kit->now + ns;

	kit_pump(kit);
	while (step_cm(kit, until))
		;
	kit->now = until;
}

void kit_run(struct kit *kit)
{
	kit_pump(kit);
	while (step_cm(kit, SNT__SOFT_NEVER - 1))
		;
}

void kit_inject(struct kit *kit, unsigned to, const struct snt__soft_path *path,
		const struct snt__cm_message *message)
{
	struct snt__soft_path own = { .hop_limit = 64, .source_port = 0xc000 };
	uint8_t mad[SNT__CM_MAD_SIZE];

	memcpy(own.source, kit_gid[kit->ipv6][!to], 16);
	memcpy(own.target, kit_gid[kit->ipv6][to], 16);
	snt__cm_encode(message, mad);
	snt__soft_cm_input(kit->cm[to], path ? path : &own, mad, kit->now);
	check_machines(kit);
}

/*
 * Events
 */

struct snt__cm_event kit_expect(struct kit *kit, unsigned end,
				enum snt__cm_event_type type)
{
	struct snt__cm_event event;

	assert_int_equal(snt__soft_cm_next_event(&kit->channel[end], &event), 0);
	assert_int_equal(event.type, type);
	check_machines(kit);
	return event;
}

void kit_expect_none(struct kit *kit, unsigned end)
{
	struct snt__cm_event event;

	assert_int_equal(snt__soft_cm_next_event(&kit->channel[end], &event), -EAGAIN);
}

void kit_expect_empty(struct kit *kit)
{
	kit_run(kit);
	for (unsigned end = 0; end < ENDS; end++) {
		kit_expect_none(kit, end);
		assert_int_equal(kit->cm[end]->live, 0);
		assert_int_equal(kit->cm[end]->lingering_count, 0);
		assert_int_equal(snt__soft_cm_deadline(kit->cm[end]), SNT__SOFT_NEVER);
	}
}

/*
 * Steps
 */

struct snt__cm_param kit_param(uint32_t qpn, const char *word)
{
	return (struct snt__cm_param){
		.data = word,
		.data_length = (uint8_t)(word ? strlen(word) + 1 : 0),
		.qpn = qpn,
		.responder_resources = 3,
		.initiator_depth = 5,
		.retry_count = 6,
		.rnr_retry_count = 4,
	};
}

struct snt__soft_cm_connection *kit_connect(struct kit *kit, uint32_t qpn)
{
	struct snt__cm_param param = kit_param(qpn, "request");
	struct snt__soft_cm_connection *connection = NULL;

	assert_int_equal(snt__soft_cm_resolve(&kit->channel[A], kit_gid[kit->ipv6][A],
					      kit_gid[kit->ipv6][B], KIT_PORT,
					      &connection),
			 0);
	assert_ptr_equal(kit_expect(kit, A, SNT__CM_EVENT_RESOLVED).id,
			 &connection->handle.id);
	assert_int_equal(snt__soft_cm_connect(kit->cm[A], connection, &param), 0);
	return connection;
}

struct snt__soft_cm_connection *kit_request(struct kit *kit)
{
	struct snt__cm_event event = kit_expect(kit, B, SNT__CM_EVENT_REQUEST);

	assert_ptr_equal(event.listener, &kit->listener_id);
	return snt__soft_cm_of(event.id);
}

void kit_accept(struct kit *kit, struct snt__soft_cm_connection *connection,
		uint32_t qpn)
{
	struct snt__cm_param param = kit_param(qpn, "response");

	assert_int_equal(snt__soft_cm_accept(kit->cm[B], connection, &param), 0);
}

void kit_establish(struct kit *kit, struct snt__soft_cm_connection *connection)
{
	struct snt__cm_event event = kit_expect(kit, A, SNT__CM_EVENT_RESPONSE);

	assert_ptr_equal(event.id, &connection->handle.id);
	assert_int_equal(snt__soft_cm_establish(kit->cm[A], connection), 0);
}

void kit_connected(struct kit *kit, struct snt__soft_cm_connection *pair[ENDS])
{
	static uint32_t qpn = 100;

	pair[A] = kit_connect(kit, ++qpn);
	kit_pump(kit);
	pair[B] = kit_request(kit);
	kit_accept(kit, pair[B], ++qpn);
	kit_pump(kit);
	kit_establish(kit, pair[A]);
	kit_pump(kit);
	assert_ptr_equal(kit_expect(kit, B, SNT__CM_EVENT_ESTABLISHED).id,
			 &pair[B]->handle.id);
}
