/* SPDX-License-Identifier: MIT */
/* What goes wrong on real fabrics, one by one, in virtual time. */
#include "lib/test.h"

#include "conn/conn.h"
#include "lib/conn_world.h"
#include "dev/soft/core.h"

static void good(const char *text)
{
	if (text)
		fail_msg("%s", text);
}

static void open_world(struct conn_world *world, unsigned a, unsigned b)
{
	struct snt__sim_device_opts opts = { 0 };

	good(conn_world_open(world, 1));
	for (unsigned i = 0; i < a; i++)
		good(conn_world_add_device(world, 0, &opts));
	for (unsigned i = 0; i < b; i++)
		good(conn_world_add_device(world, 1, &opts));
}

static void finish(struct conn_world *world)
{
	good(conn_world_send(world, 0, 1));
	good(conn_world_send(world, 1, 2));
	good(conn_world_leave(world, 0));
	good(conn_world_close(world));
}

static void expect_phrase(const char *text, const char *phrase)
{
	if (!strstr(text, phrase))
		fail_msg("\"%s\" is not in:\n%s", phrase, text);
}

/* Programs are told the same of pairs as people. */
static void expect_pairs(const struct snt_conn *conn, const char *text)
{
	struct snt_conn_pair_info pair = { .size = sizeof(pair) };
	struct snt_conn_info info = { .size = sizeof(info) };
	unsigned count, works = 0;
	char phrase[256];

	assert_success(snt_conn_query(conn, &info));
	for (count = 0; !snt_conn_query_pair(conn, count, &pair); count++) {
		snprintf(phrase, sizeof(phrase), "pair %u-%u: %s", pair.device,
			 pair.remote_device, pair.text);
		expect_phrase(text, phrase);
		snprintf(phrase, sizeof(phrase), "our device %u: %s, MTU", pair.device,
			 pair.name);
		expect_phrase(text, phrase);
		snprintf(phrase, sizeof(phrase), "GID %s", pair.address);
		expect_phrase(text, phrase);
		snprintf(phrase, sizeof(phrase), "GID %s", pair.remote_address);
		expect_phrase(text, phrase);
		snprintf(phrase, sizeof(phrase), "our device %u, the peer's %u\n",
			 pair.device, pair.remote_device);
		assert_int_equal(!!strstr(text, phrase), pair.lane >= 0);
		assert_int_equal(pair.lane >= 0, pair.lane_count > 0);
		works += !!pair.works;
	}
	assert_int_equal(works, info.pairs_good);
	assert_error(snt_conn_query_pair(conn, count, &pair), ENOENT,
		     "none with number");
	pair.size = 1;
	if (count)
		assert_error(snt_conn_query_pair(conn, 0, &pair), EINVAL, "size");
}

static void expect_text(struct conn_world *world, unsigned end, const char *phrase)
{
	char text[4096];

	snt_conn_explain(world->end[end].conn, text, sizeof(text));
	expect_phrase(text, phrase);
	expect_pairs(world->end[end].conn, text);
}

/* What the end that connects knows of a pair, and how many lanes are on it. */
static void expect_pair(struct conn_world *world, unsigned local, unsigned remote,
			enum snt_pair_verdict verdict, unsigned lanes)
{
	struct snt_conn_pair_info pair = { .size = sizeof(pair) };
	unsigned i = 0;

	while (!snt_conn_query_pair(world->end[0].conn, i++, &pair)) {
		if (pair.device != local || pair.remote_device != remote)
			continue;
		assert_int_equal(pair.verdict, verdict);
		assert_int_equal(pair.peer_verdict, verdict);
		assert_int_equal(pair.works, verdict == SNT_PAIR_WORKS);
		assert_int_equal(pair.lane_count, lanes);
		return;
	}
	fail_msg("there is no pair %u-%u", local, remote);
}

/* Nothing is wrong, for comparison. */
static void all_is_well(void **state)
{
	struct conn_world world;

	(void)state;
	open_world(&world, 2, 2);
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	expect_text(&world, 0, "pair 0-0: works");
	expect_text(&world, 1, "pair 1-1: works");
	finish(&world);
}

/* Not every NIC reaches every other one. */
static void a_rail_that_leads_nowhere(void **state)
{
	struct conn_world world;

	(void)state;
	open_world(&world, 2, 2);
	good(conn_world_ready(&world));
	snt__sim_device_cut(world.end[1].device[1], true);
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 9000 * CONN_MS));
	expect_text(&world, 0, "pair 1-1: nothing comes through");
	expect_text(&world, 0, "pair 0-1: nothing comes through");
	/* The first round has two pairs, the second the other two. */
	expect_text(&world, 0, "pair 1-0: works");
	expect_pair(&world, 1, 1, SNT_PAIR_SILENT, 0);
	expect_pair(&world, 0, 0, SNT_PAIR_WORKS, 2);
	expect_pair(&world, 1, 0, SNT_PAIR_WORKS, 2);
	finish(&world);
}

static void ports_of_different_mtus(void **state)
{
	struct snt__sim_device_opts small = { .config = { .mtu = IBV_MTU_1024 } };
	struct conn_world world;

	(void)state;
	open_world(&world, 1, 0);
	good(conn_world_add_device(&world, 1, &small));
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	expect_text(&world, 0, "MTU 1024");
	finish(&world);
}

/* Both ports have 4096, but a switch in between drops what is longer than 2000. */
static void a_switch_of_a_smaller_mtu(void **state)
{
	const struct snt__sim_link_opts narrow = { .mbps = 100000,
						   .queue_bytes = 2000 };
	struct snt__sim_device_opts opts = { .out = &narrow, .in = &narrow };
	struct conn_world world;

	(void)state;
	open_world(&world, 1, 0);
	good(conn_world_add_device(&world, 1, &opts));
	good(conn_world_ready(&world));
	world.to.setup_ns = world.at.setup_ns = 60000 * CONN_MS;
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 60000 * CONN_MS));
	expect_text(&world, 0, "MTU 1024");
	expect_text(&world, 0, "the network in between has less");
	good(conn_world_close(&world));
}

/* One end has IPv6 only on its second device, and index 0 is not what counts. */
static void gids_of_different_kinds(void **state)
{
	struct snt__sim_device_opts opts = { .ipv6 = true };
	struct conn_world world;

	(void)state;
	open_world(&world, 2, 1);
	good(conn_world_add_device(&world, 1, &opts));
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 9000 * CONN_MS));
	expect_text(&world, 0, "pair 1-1: their addresses are of different families");
	finish(&world);
}

/* Without a host it listens on all addresses, those of IPv6 included. */
static void listener_on_all_addresses_hears_ipv6(void **state)
{
	struct snt__sim_device_opts opts = { .ipv6 = true };
	char address[SNT_ADDRESS_MAX];
	struct conn_world world;

	(void)state;
	good(conn_world_open(&world, 1));
	good(conn_world_add_device(&world, 0, &opts));
	good(conn_world_add_device(&world, 1, &opts));
	good(conn_world_ready(&world));
	world.at.host = NULL;
	good(conn_world_connect(&world));
	assert_success(
		snt_listener_address(world.listener, 0, address, sizeof(address)));
	assert_string_equal(address, world.to.host);
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	finish(&world);
}

/* Everything by IPv6, and from the second device. */
static void ipv6_and_a_source(void **state)
{
	struct snt__sim_device_opts opts = { .ipv6 = true };
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_conn_info info = { .size = sizeof(info) };
	struct conn_world world;

	(void)state;
	good(conn_world_open(&world, 1));
	for (unsigned i = 0; i < 2; i++) {
		good(conn_world_add_device(&world, 0, &opts));
		good(conn_world_add_device(&world, 1, &opts));
	}
	good(conn_world_ready(&world));
	snt_device_query_gid(snt_ctx_device(world.end[0].ctx, 1), 0, &gid);
	world.to.source = gid.text;
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	assert_success(snt_conn_query(world.end[1].conn, &info));
	if (!strstr(info.peer_address, gid.text))
		fail_msg("from %s, not from %s", info.peer_address, gid.text);
	finish(&world);

	open_world(&world, 1, 1);
	good(conn_world_ready(&world));
	world.to.source = "192.0.2.1";
	assert_non_null(conn_world_connect(&world));
	good(conn_world_close(&world));
}

/* The host is gone in the middle of it, without notice. */
static void a_host_that_vanishes(void **state)
{
	struct conn_world world;
	uint64_t begin;

	(void)state;
	open_world(&world, 2, 2);
	good(conn_world_ready(&world));
	world.to.detect_ns = 300 * CONN_MS;
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	for (unsigned i = 0; i < 2; i++)
		snt__sim_device_cut(world.end[0].device[i], true);
	begin = snt__sim_now(world.sim);
	good(conn_world_run(&world, SNT_CONN_OVER, 10000 * CONN_MS));
	assert_true(snt__sim_now(world.sim) - begin <= 300 * CONN_MS);
	assert_int_not_equal(conn_world_status(&world, 0), 0);
	assert_int_not_equal(conn_world_status(&world, 1), 0);
	good(conn_world_close(&world));
}

/* The detection time is the lanes', too: what is away for less than that comes back. */
static void a_network_that_comes_back_in_time(void **state)
{
	struct conn_world world;
	struct snt_op write = { 0 };
	struct snt_sge sge;
	uint64_t until;

	(void)state;
	open_world(&world, 1, 1);
	good(conn_world_ready(&world));
	world.to.detect_ns = world.at.detect_ns = 10000 * CONN_MS;
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	snt__sim_device_cut(world.end[0].device[0], true);
	sge = (struct snt_sge){ world.end[0].mem, world.end[0].bytes, 64 };
	assert_success(snt_op_write(snt_conn_qp(world.end[0].conn), &write, &sge,
				    &world.end[1].token, world.end[1].token.addr));
	until = snt__sim_now(world.sim) + 3000 * CONN_MS;
	while (conn_world_step(&world, until))
		;
	assert_true(snt_op_pending(&write));
	snt__sim_device_cut(world.end[0].device[0], false);
	until = snt__sim_now(world.sim) + 10000 * CONN_MS;
	while (snt_op_pending(&write))
		assert_true(conn_world_step(&world, until));
	assert_int_equal(write.result, 0);
	finish(&world);
}

/* Whether or not something is being sent. */
static void a_busy_peer_that_vanishes(void **state)
{
	(void)state;
	for (uint64_t detect = 50; detect <= 40000; detect *= 3) {
		struct conn_world world;
		struct snt_op write = { 0 };
		struct snt_sge sge;
		uint64_t begin;

		open_world(&world, 1, 1);
		good(conn_world_ready(&world));
		world.to.detect_ns = world.at.detect_ns = detect * CONN_MS;
		good(conn_world_connect(&world));
		good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
		snt__sim_device_cut(world.end[0].device[0], true);
		sge = (struct snt_sge){ world.end[0].mem, world.end[0].bytes, 64 };
		assert_success(snt_op_write(snt_conn_qp(world.end[0].conn), &write,
					    &sge, &world.end[1].token,
					    world.end[1].token.addr));
		begin = snt__sim_now(world.sim);
		while (snt_op_pending(&write))
			assert_true(conn_world_step(&world, begin + detect * CONN_MS));
		assert_int_not_equal(write.result, 0);
		good(conn_world_run(&world, SNT_CONN_OVER, detect * CONN_MS));
		assert_true(snt__sim_now(world.sim) - begin <= detect * CONN_MS);
		good(conn_world_close(&world));
	}
}

/*
 * A network in between that drops messages without a byte in them, as some that are
 * virtual do.
 */

static const struct snt__sim_device *drops_empty[2];

static bool is_empty(const uint8_t *bytes, size_t length)
{
	/* SEND and WRITE in one packet, without and with an immediate, and how long
	 * their headers are. */
	static const struct {
		uint8_t opcode, size;
	} kinds[] = { { 0x04, 12 }, { 0x05, 16 }, { 0x0a, 28 }, { 0x0b, 32 } };

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
		if (bytes[0] == kinds[i].opcode)
			return length == kinds[i].size;
	return false;
}

/* Acknowledgements, and nothing else, get lost on the way to this one. */
static const struct snt__sim_device *drops_acks;

static bool is_ack(const uint8_t *bytes)
{
	return bytes[0] == 0x11;
}

/* What came, to come again later; the last so many. */
#define KEPT 512

static struct kept {
	struct snt__sim_device *device;
	struct snt__soft_path path;
	uint8_t bytes[4200];
	size_t length;
} kept[KEPT];
static unsigned kept_count;
static bool keeps;

static void keep(struct snt__sim_device *device, const struct snt__soft_path *path,
		 const uint8_t *bytes, size_t length)
{
	struct kept *to = &kept[kept_count++ % KEPT];

	to->device = device;
	to->path = *path;
	to->length = length < sizeof(to->bytes) ? length : sizeof(to->bytes);
	memcpy(to->bytes, bytes, to->length);
}

void __real_snt__sim_device_receive(struct snt__sim_device *device,
				    const struct snt__soft_path *path,
				    const uint8_t *bytes, size_t length);
void __wrap_snt__sim_device_receive(struct snt__sim_device *device,
				    const struct snt__soft_path *path,
				    const uint8_t *bytes, size_t length);
void __wrap_snt__sim_device_receive(struct snt__sim_device *device,
				    const struct snt__soft_path *path,
				    const uint8_t *bytes, size_t length)
{
	if ((device == drops_empty[0] || device == drops_empty[1]) &&
	    is_empty(bytes, length))
		return;
	if (device == drops_acks && is_ack(bytes))
		return;
	if (keeps)
		keep(device, path, bytes, length);
	__real_snt__sim_device_receive(device, path, bytes, length);
}

/* A farewell for which the carrier has no place yet, because what it has sent is not
 * acknowledged, is said all the same. */
static void last_words_that_have_to_wait(void **state)
{
	struct conn_world world;
	uint64_t until;

	(void)state;
	open_world(&world, 1, 1);
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	until = snt__sim_now(world.sim) + 1000 * CONN_MS;
	/* From the moment at which it has tried the pair, and says so. */
	while (!world.end[1].conn || !world.end[1].conn->hs.trials.trial[0].ours)
		assert_true(conn_world_step(&world, until));
	drops_acks = world.end[1].device[0];
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 100 * CONN_MS));
	assert_success(snt_conn_disconnect(world.end[0].conn, 0));
	while (!world.end[1].events[SNT_CONN_OVER])
		assert_true(conn_world_step(&world, until));
	drops_acks = NULL;
	good(conn_world_run(&world, SNT_CONN_OVER, 5000 * CONN_MS));
	assert_string_equal(conn_world_text(&world, 0), "both ends have disconnected");
	assert_int_equal(conn_world_status(&world, 0), 0);
	assert_int_equal(conn_world_status(&world, 1), 0);
	good(conn_world_close(&world));
}

/* The network is away when the farewell is said, for as long as two of its retries
 * take. */
static void last_words_that_get_lost(void **state)
{
	const struct snt__sim_link_opts far = { .delay_ns = CONN_MS };
	struct snt__sim_device_opts opts = { .out = &far, .in = &far };
	struct conn_world world;
	uint64_t until;

	(void)state;
	open_world(&world, 1, 0);
	good(conn_world_add_device(&world, 1, &opts));
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 100 * CONN_MS));
	assert_success(snt_conn_disconnect(world.end[0].conn, 0));
	until = snt__sim_now(world.sim) + 700 * CONN_MS;
	while (!world.end[1].events[SNT_CONN_OVER])
		assert_true(conn_world_step(&world, until));
	snt__sim_device_cut(world.end[0].device[0], true);
	assert_int_equal(world.end[0].events[SNT_CONN_OVER], 0);
	while (conn_world_step(&world, until))
		;
	assert_int_equal(world.end[0].events[SNT_CONN_OVER], 0);
	snt__sim_device_cut(world.end[0].device[0], false);
	good(conn_world_run(&world, SNT_CONN_OVER, 5000 * CONN_MS));
	assert_string_equal(conn_world_text(&world, 0), "both ends have disconnected");
	good(conn_world_close(&world));
}

/* A peer that is gone acknowledges nothing. The loop used to wait for it for as long as the
 * carrier's retries take, up to two seconds; here, where time stands still, for ever. */
static void closing_gives_last_words_up(void **state)
{
	struct conn_world world;
	struct conn_end *end = &world.end[0];
	uint64_t until;

	(void)state;
	open_world(&world, 1, 1);
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 100 * CONN_MS));
	snt__sim_device_cut(end->device[0], true);
	assert_success(snt_conn_abort(end->conn, NULL));
	until = snt__sim_now(world.sim) + 100 * CONN_MS;
	while (!end->events[SNT_CONN_OVER])
		assert_true(conn_world_step(&world, until));
	assert_success(snt_conn_destroy(end->conn));
	end->conn = NULL;
	assert_false(snt__list_empty(&end->loop->conn_loop->last_words));
	assert_success(snt_cq_destroy(end->cq));
	end->cq = NULL;
	assert_success(snt_loop_destroy(end->loop));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	snt__sim_device_cut(end->device[0], false);
	while (!world.end[1].events[SNT_CONN_OVER])
		assert_true(conn_world_step(&world,
					    snt__sim_now(world.sim) + 10000 * CONN_MS));
	good(conn_world_close(&world));
}

static void expect_late(struct conn_world *world, uint64_t begin, const char *text)
{
	good(conn_world_run(world, SNT_CONN_OVER, 1000 * CONN_MS));
	assert_in_range(snt__sim_now(world->sim) - begin, 100 * CONN_MS, 120 * CONN_MS);
	assert_int_equal(conn_world_status(world, 0), -ETIMEDOUT);
	assert_string_equal(conn_world_text(world, 0), text);
	assert_int_equal(conn_world_status(world, 1), -ECONNABORTED);
	good(conn_world_close(world));
}

static void disconnecting_from_a_peer_that_stays(void **state)
{
	struct conn_world world;
	uint64_t begin;

	(void)state;
	open_world(&world, 1, 1);
	world.end[1].stays = true;
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 100 * CONN_MS));
	begin = snt__sim_now(world.sim);
	assert_success(snt_conn_disconnect(world.end[0].conn, 100 * CONN_MS));
	assert_int_equal(snt_conn_disconnect(world.end[0].conn, 0), -EALREADY);
	expect_late(&world, begin, "timed out waiting for the peer to disconnect");
}

/* A SEND for which the peer has no receive. */
static void disconnecting_with_a_wr_that_stays(void **state)
{
	struct snt_op op = { 0 };
	struct conn_world world;
	struct snt_sge sge;
	uint64_t begin;

	(void)state;
	open_world(&world, 1, 1);
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 100 * CONN_MS));
	sge = (struct snt_sge){ world.end[0].mem, world.end[0].bytes, 8 };
	assert_success(snt_op_send(snt_conn_qp(world.end[0].conn), &op, &sge));
	begin = snt__sim_now(world.sim);
	assert_success(snt_conn_disconnect(world.end[0].conn, 100 * CONN_MS));
	expect_late(&world, begin,
		    "timed out disconnecting: posted WRs have not completed");
	assert_false(snt_op_pending(&op));
}

static void disconnecting_in_time(void **state)
{
	struct conn_world world;

	(void)state;
	open_world(&world, 1, 1);
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 100 * CONN_MS));
	assert_success(snt_conn_disconnect(world.end[0].conn, 100 * CONN_MS));
	good(conn_world_run(&world, SNT_CONN_OVER, 1000 * CONN_MS));
	assert_int_equal(conn_world_status(&world, 0), 0);
	assert_int_equal(conn_world_status(&world, 1), 0);
	good(conn_world_close(&world));
}

static void empty_messages_that_get_lost(void **state)
{
	(void)state;
	/* On the second rail, then on that of the carrier. */
	for (unsigned rail = 2; rail--;) {
		char text[80];
		struct conn_world world;

		open_world(&world, 2, 2);
		for (unsigned i = 0; i < 2; i++)
			drops_empty[i] = world.end[i].device[rail];
		good(conn_world_ready(&world));
		world.to.detect_ns = 300 * CONN_MS;
		good(conn_world_connect(&world));
		good(conn_world_run(&world, SNT_CONN_CONNECTED, 20000 * CONN_MS));
		snprintf(text, sizeof(text),
			 "pair %u-%u: messages come through, but no empty ones", rail,
			 rail);
		expect_text(&world, 0, text);
		snprintf(text, sizeof(text), "pair %u-%u: works", !rail, !rail);
		expect_text(&world, 0, text);
		/* It is not taken for dead. */
		while (conn_world_step(&world, snt__sim_now(world.sim) + CONN_MS) &&
		       snt__sim_now(world.sim) < 30000 * CONN_MS)
			continue;
		assert_int_equal(world.end[0].events[SNT_CONN_OVER], 0);
		assert_int_equal(world.end[1].events[SNT_CONN_OVER], 0);
		finish(&world);
		drops_empty[0] = drops_empty[1] = NULL;
	}
}

/* Where there is nothing else it says so, and does not begin. */
static void nothing_but_a_network_that_loses_them(void **state)
{
	struct conn_world world;

	(void)state;
	open_world(&world, 1, 1);
	for (unsigned i = 0; i < 2; i++)
		drops_empty[i] = world.end[i].device[0];
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_OVER, 20000 * CONN_MS));
	assert_int_not_equal(conn_world_status(&world, 0), 0);
	expect_text(&world, 0, "pair 0-0: messages come through, but no empty ones");
	good(conn_world_close(&world));
	drops_empty[0] = drops_empty[1] = NULL;
}

/*
 * QP numbers are a device's own affair: two NICs may give out the same ones, and one
 * gives out again what it had given to others before. Here the part that is chance
 * always comes out the same, so that they differ by their place in the device's table
 * only.
 */

#define NUMBERS 64

static struct conn_world *numbered;
static struct {
	const struct snt__sim_device *device;
	uint32_t num;
} given[NUMBERS];
static unsigned given_count;

static struct snt__sim_device *device_of(const struct ibv_context *context)
{
	for (unsigned end = 0; end < 2; end++)
		for (unsigned i = 0; i < numbered->end[end].devices; i++)
			if (numbered->end[end].device[i]->adopted->context == context)
				return numbered->end[end].device[i];
	fail_msg("a QP on no device");
	return NULL;
}

/* Places are given out in the same order by all. */
static void order_places(struct snt__soft_device *device)
{
	if (device->qp_free_head)
		return;
	for (uint32_t i = 0; i <= device->qp_mask; i++)
		device->qp_free[i] = i;
}

int __real_snt__soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			       struct ibv_qp **qp_out);
int __wrap_snt__soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			       struct ibv_qp **qp_out);
int __wrap_snt__soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			       struct ibv_qp **qp_out)
{
	struct snt__sim_device *device;
	int ret;

	if (!numbered)
		return __real_snt__soft_create_qp(pd, attr, qp_out);
	device = device_of(pd->context);
	device->random = 77;
	order_places(snt__soft_device_of(pd->context));
	ret = __real_snt__soft_create_qp(pd, attr, qp_out);
	if (!ret && given_count < NUMBERS) {
		given[given_count].device = device;
		given[given_count++].num = (*qp_out)->qp_num;
	}
	return ret;
}

/* Of both ends; which of them were given out at least twice, by the same device or
 * not? */
static unsigned count_again(bool same_device)
{
	unsigned count = 0;

	for (unsigned i = 0; i < given_count; i++)
		for (unsigned n = 0; n < i; n++)
			if (given[i].num == given[n].num &&
			    (given[i].device == given[n].device) == same_device) {
				count++;
				break;
			}
	return count;
}

static void nics_with_the_same_qp_numbers(void **state)
{
	struct conn_world world;
	struct snt_qp *qp;

	(void)state;
	numbered = &world;
	given_count = 0;
	open_world(&world, 2, 2);
	good(conn_world_ready(&world));
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	qp = snt_conn_qp(world.end[0].conn);
	assert_int_equal(snt_qp_lane_count(qp), 2);
	assert_true(count_again(false) >= 4);
	finish(&world);
	numbered = NULL;
}

static void come_again(void)
{
	unsigned count = kept_count < KEPT ? kept_count : KEPT;

	keeps = false;
	for (unsigned i = 0; i < count; i++)
		__real_snt__sim_device_receive(kept[i].device, &kept[i].path,
					       kept[i].bytes, kept[i].length);
}

static void connect_again(struct conn_world *world)
{
	for (unsigned end = 0; end < 2; end++) {
		assert_success(snt_conn_destroy(world->end[end].conn));
		world->end[end].conn = NULL;
		memset(world->end[end].events, 0, sizeof(world->end[0].events));
	}
	assert_success(snt_conn_connect(world->end[0].loop, &world->to, &world->connect,
					&world->end[0].conn));
	good(conn_world_run(world, SNT_CONN_CONNECTED, 9000 * CONN_MS));
}

static uint32_t number_of(struct conn_world *world, unsigned end)
{
	struct snt_lane_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query_lane(snt_conn_qp(world->end[end].conn), 0, &info));
	return info.qp->qp_num;
}

/* All packets of a connection that is over come again, to one with the same numbers. */
static void qp_numbers_that_come_again(void **state)
{
	struct snt__sim_device_opts opts = { .config = { .qp_max = 8 } };
	uint32_t num[2];
	struct conn_world world;

	(void)state;
	numbered = &world;
	given_count = kept_count = 0;
	good(conn_world_open(&world, 1));
	for (unsigned i = 0; i < 2; i++)
		good(conn_world_add_device(&world, i, &opts));
	good(conn_world_ready(&world));
	world.end[0].qp.lanes = 1;
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 9000 * CONN_MS));
	for (unsigned i = 0; i < 2; i++)
		num[i] = number_of(&world, i);
	keeps = true;
	good(conn_world_send(&world, 0, 1));
	good(conn_world_send(&world, 1, 2));
	keeps = false;
	good(conn_world_leave(&world, 0));
	for (unsigned i = 0; i < 8; i++) {
		connect_again(&world);
		if (number_of(&world, 0) == num[0] && number_of(&world, 1) == num[1])
			break;
		good(conn_world_leave(&world, 0));
	}
	assert_int_equal(number_of(&world, 0), num[0]);
	assert_int_equal(number_of(&world, 1), num[1]);
	assert_true(count_again(true) > 0);
	come_again();
	/* Other bytes, or it would not matter whose they are. */
	good(conn_world_send(&world, 0, 50));
	good(conn_world_send(&world, 1, 60));
	good(conn_world_leave(&world, 0));
	good(conn_world_close(&world));
	numbered = NULL;
}

/* A wait used to say that it is established. */
static void lost_connection_is_not_established(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct conn_world world;
	uint64_t until;

	(void)state;
	open_world(&world, 1, 1);
	good(conn_world_ready(&world));
	world.connect.retries = 10;
	world.to.detect_ns = 300 * CONN_MS;
	good(conn_world_connect(&world));
	good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
	snt__sim_device_cut(world.end[0].device[0], true);
	until = snt__sim_now(world.sim) + 2000 * CONN_MS;
	while (!world.end[0].events[SNT_CONN_RETRYING])
		assert_true(conn_world_step(&world, until));
	assert_success(snt_conn_query(world.end[0].conn, &info));
	assert_int_equal(info.state, SNT_CONN_CONNECTING);
	assert_int_equal(snt_conn_wait(world.end[0].conn, 0), -ETIME);
	assert_error(snt_conn_disconnect(world.end[0].conn, 0), ENOTCONN, "");
	/* Aborted before the next attempt begins, it makes none. */
	assert_int_equal(world.end[0].conn->state, SNT__CONN_PAUSING);
	assert_success(snt_conn_abort(world.end[0].conn, NULL));
	while (!world.end[0].events[SNT_CONN_OVER])
		assert_true(conn_world_step(&world, until));
	assert_int_equal(conn_world_status(&world, 0), -ECANCELED);
	expect_text(&world, 0, "it is aborted");
	snt__sim_device_cut(world.end[0].device[0], false);
	good(conn_world_close(&world));
}

/* One physical CQ that can no longer be polled. */
static struct ibv_cq *broken_cq;
static int (*poll_any)(struct ibv_cq *cq, int count, struct ibv_wc *wc);

static int poll_all_but_one(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	return cq == broken_cq ? -1 : poll_any(cq, count, wc);
}

static void break_cq(struct snt_cq *cq)
{
	struct ibv_context_ops *ops;

	broken_cq = snt_cq_physical(cq, 0, NULL);
	ops = &broken_cq->context->ops;
	poll_any = ops->poll_cq;
	ops->poll_cq = poll_all_but_one;
}

/* The end of its QP is never reported. Such a connection was never over, and never tried
 * again. */
static void cq_that_breaks_while_its_qp_is_closed(void **state)
{
	(void)state;
	for (uint32_t retries = 0; retries < 2; retries++) {
		struct conn_world world;
		struct conn_end *end = &world.end[0];
		uint64_t until;

		open_world(&world, 1, 1);
		good(conn_world_ready(&world));
		world.connect.retries = retries;
		world.to.detect_ns = 300 * CONN_MS;
		good(conn_world_connect(&world));
		good(conn_world_run(&world, SNT_CONN_CONNECTED, 1000 * CONN_MS));
		break_cq(end->cq);
		snt__sim_device_cut(end->device[0], true);
		until = snt__sim_now(world.sim) + 3000 * CONN_MS;
		while (!end->events[SNT_CONN_OVER] && end->conn->attempts < 2)
			assert_true(conn_world_step(&world, until));
		assert_int_equal(end->conn->attempts, 1 + retries);
		snt__sim_device_cut(end->device[0], false);
		if (retries)
			assert_success(snt_conn_abort(end->conn, NULL));
		while (!end->events[SNT_CONN_OVER] ||
		       !world.end[1].events[SNT_CONN_OVER])
			assert_true(conn_world_step(&world, until));
		good(conn_world_close(&world));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_well),
		cmocka_unit_test(a_rail_that_leads_nowhere),
		cmocka_unit_test(ports_of_different_mtus),
		cmocka_unit_test(a_switch_of_a_smaller_mtu),
		cmocka_unit_test(gids_of_different_kinds),
		cmocka_unit_test(listener_on_all_addresses_hears_ipv6),
		cmocka_unit_test(ipv6_and_a_source),
		cmocka_unit_test(a_host_that_vanishes),
		cmocka_unit_test(a_network_that_comes_back_in_time),
		cmocka_unit_test(a_busy_peer_that_vanishes),
		cmocka_unit_test(last_words_that_have_to_wait),
		cmocka_unit_test(last_words_that_get_lost),
		cmocka_unit_test(closing_gives_last_words_up),
		cmocka_unit_test(disconnecting_from_a_peer_that_stays),
		cmocka_unit_test(disconnecting_with_a_wr_that_stays),
		cmocka_unit_test(disconnecting_in_time),
		cmocka_unit_test(empty_messages_that_get_lost),
		cmocka_unit_test(nothing_but_a_network_that_loses_them),
		cmocka_unit_test(nics_with_the_same_qp_numbers),
		cmocka_unit_test(qp_numbers_that_come_again),
		cmocka_unit_test(lost_connection_is_not_established),
		cmocka_unit_test(cq_that_breaks_while_its_qp_is_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
